"""From a suite to its tasks, each known by everything that decides what it becomes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

import limpet
from limpet.adapters import ADAPTERS
from limpet.data.datasets import option_names
from limpet.data.retrieval_data import RetrievalData
from limpet.data.scenarios import Split
from limpet.data.texts import TEXT_DATASETS
from limpet.errors import ConfigError
from limpet.evaluation.metrics import metrics_named
from limpet.evaluation.protocols import PROTOCOLS, RankingProtocol
from limpet.methods import build_method
from limpet.models.named_models import open_release
from limpet.models.release import Release
from limpet.models.specs import EncoderSpec
from limpet.models.text_encoders import is_service, refuse_named_in
from limpet.models.text_folders import find_model
from limpet.support.options import bound, option_types
from limpet.support.source_code import digest_of, version_of
from limpet_bench.sessions.plans import PLANS
from limpet_bench.settings import Changes, of_machine, own_settings, resolved_settings
from limpet_bench.sources import (
    APART,
    EVALUATION,
    VALIDATION,
    digests_of,
    open_images,
    open_items,
    open_setting,
    part_digest,
    protocol_digest,
    protocol_of,
    refuse_other_channels,
    refuse_unknown_classes,
    rows_of_all,
    searched_facts,
    split_of,
)
from limpet_bench.suite import EvaluationSet, Suite, Values, Variant, changed

COMPUTING = (
    "geometry", "embeddings", "losses", "adapters", "methods", "data", "models", "training", "evaluation", "linking",
)  # fmt: skip
"""Packages of limpet whose code decides what a task becomes."""

OWN = ("datasets", "protocols", "pictures", "sessions")
MODULES = ("steps.py", "sources.py", "settings.py")
"""Packages and modules of the bench that do."""


@cache
def code_version() -> str:
    """Return the digest of all code of limpet and of the bench that computes, 16 hexadecimal digits."""
    root, own = Path(limpet.__file__).parent, Path(__file__).parent
    folders = [*(root / package for package in COMPUTING), *(own / package for package in OWN)]
    return digest_of(
        [*(path for folder in folders for path in sorted(folder.rglob("*.py"))), *(own / name for name in MODULES)]
    )


class Identity(TypedDict):
    """What the address of a task is made of, as plain values."""

    kind: str
    settings: Mapping[str, Any]
    needs: Mapping[str, str]
    code: str


@dataclass(frozen=True, eq=False)
class Task:
    """One step: a model to train, embeddings to make, scores to measure.

    Two tasks of the same address become the same, so only one of them is ever run. The address covers the kind, the
    settings, the code and the addresses of the tasks that this one needs: a changed option reruns what depends on it,
    and nothing else.

    Args:
        kind: What is done, a key of `limpet_bench.steps.STEPS`.
        settings: What decides the result, plain values.
        needs: Tasks whose products it reads, by the role they play.
        work: About how much there is to do, such as images times epochs, for estimates; decides nothing.
        label: What people call it; decides nothing.
        hints: How to do what the settings say, such as the very rows that a digest stands for; told to the step beside
            the settings, and not recorded.
        asks_api: Whether it asks a server, which costs money or time of others; decides nothing.
    """

    kind: str
    settings: Mapping[str, Any]
    needs: Mapping[str, Task] = field(default_factory=dict)
    work: float = 1.0
    label: str = ""
    hints: Mapping[str, Any] = field(default_factory=dict)
    asks_api: bool = False

    @cached_property
    def address(self) -> str:
        """The content address, 64 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()

    def to_run(self) -> Task:
        """Return the same task without what it takes to run those that it needs: less to hand to another process."""
        needs = {role: replace(task, needs={}, hints={})._at(task.address) for role, task in self.needs.items()}
        return replace(self, needs=needs)._at(self.address)

    def _at(self, address: str) -> Task:
        self.__dict__["address"] = address  # where `cached_property` keeps what it was told
        return self

    def identity(self) -> Identity:
        """Return what the address is made of."""
        return {
            "kind": self.kind,
            "settings": dict(self.settings),
            "needs": {role: task.address for role, task in self.needs.items()},
            "code": code_version(),
        }


def in_order(tasks: Iterable[Task]) -> list[Task]:
    """Return these tasks and all that they need, each address once, every task after those it needs."""
    found: dict[str, Task] = {}

    def visit(task: Task) -> Iterator[Task]:
        if task.address not in found:
            for needed in task.needs.values():
                yield from visit(needed)
            found[task.address] = task
            yield task

    return [known for task in tasks for known in visit(task)]


Rows = NDArray[np.int64]


class Case(NamedTuple):
    """What a row on images is of."""

    data: str
    scenario: str
    label: str
    seed: int


class Scored(NamedTuple):
    """One score of a row: what the images that were searched are called, the metric that ranks, and the tasks."""

    name: str
    metric: str
    task: Task
    further: tuple[Task, ...] = ()


class Model(NamedTuple):
    """A task that trains a model, and the rows of the training images that it is trained on."""

    task: Task
    rows: Rows

    @property
    def channels(self) -> int:
        """Channels of the images that it takes."""
        return int(self.task.settings["experiment"]["model"]["channels"])


@dataclass(frozen=True)
class Search:
    """One set of queries and gallery with its protocol.

    Args:
        source: "name" and "options" of the data set.
        part: The evaluation or the validation images.
        digests: Of queries and gallery.
        images: How many there are to embed.
        form: "points", or "features" where the protocol pools them.
        flip: Whether the features of the mirrored image are added.
        protocol: "name", "options", "ground_truth" and "digest" of the protocol, and whether it leaves one out.
        metrics: What is measured.
        gate_metric: What ranks.
    """

    source: Values
    part: str
    digests: tuple[str, str]
    images: int
    form: str
    flip: bool
    protocol: Values
    metrics: tuple[str, ...]
    gate_metric: str

    def embedded(self, model: Task) -> Task:
        """Return the task of queries and gallery as a model embeds them."""
        settings: Values = {"data": self.source, "part": self.part, "searched": list(self.digests)}
        settings |= {"form": self.form, "flip": self.flip}
        work = float(self.images * (1 + self.flip))
        return Task("embed", settings, {"model": model}, work, f"embed {model.label}")

    def settings(self) -> Values:
        """Return the settings of the task that scores, with the code of what other packages measure by."""
        metrics = list(dict.fromkeys((*self.metrics, self.gate_metric)))
        settings: Values = {
            "data": self.source,
            "protocol": self.protocol,
            "metrics": metrics,
            "gate_metric": self.gate_metric,
            "seed": 0,
        }
        protocol = PROTOCOLS[self.protocol["name"]]
        measures = metrics_named(metrics) if issubclass(protocol, RankingProtocol) else {}
        used = {"protocol": protocol, **measures}
        codes = {name: version for name, thing in used.items() if (version := version_of(thing))}
        return settings | ({"measured_by_code": codes} if codes else {})


def search_of(name: str, source: Values, asked: EvaluationSet, part: str, root: Path | None) -> Search:
    """Return what is searched in a set of images.

    Raises:
        ConfigError: Labels are to say who answers what, and there are none; or the protocol does not know a metric.
    """
    facts = searched_facts(source, root, part)
    written = {"name": asked.protocol, "options": dict(asked.protocol_options), "ground_truth": asked.ground_truth}
    protocol = protocol_of(source, written, root, leave_one_out=facts.leave_one_out)
    if protocol.needs_labels and not facts.labelled:
        raise ConfigError(
            f"The images to search in '{name}' have no labels that say who answers what.",
            expected="a protocol with a ground truth",
            to_do=f'name it: test_sets={{"{name}": {{"protocol": ...}}}}; or hold classes out of training.',
        )
    metrics, gate = asked.metrics or protocol.metrics, asked.gate_metric or protocol.gate_metric
    protocol.check_metrics((*metrics, gate))
    record: Values = {**written, "leave_one_out": facts.leave_one_out, "digest": protocol_digest(protocol)}
    return Search(source, part, facts.digests, facts.images, asked.form, asked.flip, record, tuple(metrics), gate)


FITTED_ON = ("train", "unlabelled")
"""Parts of texts that heads and adapters are fitted on."""

BY_LABEL: Values = {"name": "labels", "options": {}, "ground_truth": "", "leave_one_out": False}
"""How texts are searched: their labels say who answers whom."""

VALIDATION_OPTIONS = {"validation_fraction": 0.2, "validation_classes": 60}
"""Options by which readers of images set classes apart for choosing settings, each with a value that is often right."""


@dataclass(frozen=True)
class Row:
    """One method, with one set of options, on one data set and scenario, with one seed.

    Args:
        data: What was searched: the name of the data set, or of a test set.
        scenario: Name of the scenario.
        label: What the leaderboard calls it.
        seed: The seed.
        score: The task that scores it.
        changes: Settings other than those of the suite, by dotted name: a trial, or what was chosen.
        trained_on: Name of the data set that models were trained on.
        metric: What ranks it.
        settings: What is its own beside the options of its method, by dotted name.
        varied: What it varies, if it is a variant of another row.
        further: Further tasks that measure it, whose records have "scores" by metric and system.
    """

    data: str
    scenario: str
    label: str
    seed: int
    score: Task
    changes: Changes
    trained_on: str
    metric: str
    settings: Values
    varied: Variant | None = None
    further: tuple[Task, ...] = ()

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks that measure it."""
        return (self.score, *self.further)


@dataclass(frozen=True)
class Planner:
    """Makes rows of a suite.

    Args:
        suite: The suite.
        root: Folder that holds the folders of the named data sets.
        data_options: Further options of the data sets, such as those that set validation classes apart.
        part: What is searched: the evaluation or the validation images.
        chosen: Settings that were chosen for data set, scenario and label.
    """

    suite: Suite
    root: Path | None
    data_options: Mapping[str, Values]
    part: str = EVALUATION
    chosen: Mapping[tuple[str, str, str], Changes] = field(default_factory=dict)
    _searched: dict[str, dict[str, Search]] = field(default_factory=dict, init=False, repr=False)

    def of(self, data: str, scenario: str, label: str, seed: int, changes: Changes) -> list[Row]:
        """Return the rows of one run: one for everything that is searched."""
        make = {"images": self._images, "features": self._features, "sessions": self._sessions}[self.suite.track]
        case, settings = Case(data, scenario, label, seed), own_settings(self.suite.rows[label], changes)
        varied = self.suite.variants.get(label)
        return [
            Row(name, scenario, label, seed, task, dict(changes), data, metric, settings, varied, further)
            for name, metric, task, further in make(case, changes)
        ]

    def rows(self) -> Iterator[Row]:
        """Yield all rows, as they were chosen."""
        suite = self.suite
        for data in suite.data:
            for scenario in suite.conditions:
                for label in suite.rows:
                    for seed in suite.seeds:
                        case = Case(data, scenario, label, seed)
                        yield from self.of(*case, self._chosen(case))

    def _source(self, data: str) -> Values:
        return {"name": data, "options": {**self.suite.data[data], **self.data_options.get(data, {})}}

    def _chosen(self, case: Case) -> Changes:
        return self.chosen.get((case.data, case.scenario, case.label), {})

    @cached_property
    def _frozen(self) -> Mapping[str, Mapping[Literal["old", "new"], str]]:
        """The frozen models of every scenario; those of texts are there, but for what may be on the hub or an API."""
        found = {scenario: self.suite.frozen_in(scenario) for scenario in self.suite.scenarios}
        for model in {model for frozen in found.values() for model in frozen.values()} if self.suite.of_texts else ():
            refuse_named_in(self.suite.name, model)
            owner, _, name = model.partition("/")
            on_hub = owner[:1].isalnum() and name and "/" not in name and not Path(model).expanduser().exists()
            if not on_hub and not is_service(model):
                find_model(model)
        return found

    @cached_property
    def _image_models(self) -> Mapping[str, Release]:
        """The frozen models of images, opened once."""
        return {model: open_release(model) for frozen in self._frozen.values() for model in frozen.values()}

    def _images(self, case: Case, changes: Changes) -> Iterator[Scored]:
        if self.part == VALIDATION:
            refuse_without_validation(case.data, open_images(self._source(case.data), self.root))
        within = self.suite.within(case.scenario)
        old, independent, new = self._old(case), self._independent(case), self._new(case, changes)
        gallery = baseline = old
        if within.searched is not None:
            there = case._replace(scenario=within.searched)
            gallery = self._new(there, self._chosen(there))
            baseline = gallery if within.baseline == "own" else self._independent(there)
        models = {"old": baseline, "searched": gallery, "new": new, "independent": independent}
        if case.data not in self._searched:
            self._searched[case.data] = self._opened(case.data)
        for name, search in self._searched[case.data].items():
            for model in models.values():
                refuse_other_channels(search.source, self.root, model.channels, model.task.label)
            sides = {role: search.embedded(model.task) for role, model in models.items()}
            label = f"score {case.label} ({name}, {case.scenario}, seed {case.seed})"
            needs = {**sides, "model": new.task}
            task = Task("score", search.settings(), needs, float(search.images), label)
            classifies = self.suite.accuracy and self.part == EVALUATION
            further = (self._classified(case, name, search, models),) if classifies else ()
            yield Scored(name, search.gate_metric, task, further)

    def _classified(self, case: Case, name: str, search: Search, models: Mapping[str, Model]) -> Task:
        """Return the task that measures how well the classifiers of models name the classes of what is searched."""
        refuse_unknown_classes(name, search.source, self._source(case.data), self.root)
        features = dataclasses.replace(search, form="features", flip=False)
        needs = {role: features.embedded(model.task) for role, model in models.items() if role != "searched"}
        needs |= {f"{role}_model": model.task for role, model in models.items()}
        label = f"accuracy of {case.label} ({name}, {case.scenario}, seed {case.seed})"
        return Task("accuracy", {}, needs, float(search.images), label)

    def _old(self, case: Case) -> Model:
        values = self.suite.settings(case.data, scenario=case.scenario, old=True)
        return self._model(case, "old", values, self._split(case).old, None)

    def _independent(self, case: Case) -> Model:
        split = self._split(case)
        rows = split.new if self.suite.upper_bound == "new" else rows_of_all(split)
        return self._model(case, "independent", self.suite.settings(case.data, scenario=case.scenario), rows, None)

    def _new(self, case: Case, changes: Changes) -> Model:
        """Return the new model of a row, the successor of the old one or of that row's model of another scenario."""
        values = changed(self.suite.settings(case.data, case.label, scenario=case.scenario), changes)
        predecessor = None
        if build_method(values["method"], values["options"]).needs_old:
            before = self.suite.within(case.scenario).predecessor
            there = case if before is None else case._replace(scenario=before)
            predecessor = self._old(case) if before is None else self._new(there, self._chosen(there))
        return self._model(case, case.label, values, self._split(case).new, predecessor)

    def _model(self, case: Case, what: str, values: Values, rows: Rows, old: Model | None) -> Model:
        """Return a task that is the same for every scenario in which a model of these settings sees these rows."""
        source = self._source(case.data)
        settings = {
            "data": {**source, "digest": part_digest(source, self.root, "train")},
            "rows": hashlib.sha256(np.ascontiguousarray(rows, np.int64).tobytes()).hexdigest()[:24],
            **resolved_settings(values, case.seed, self.root),
        }
        task = Task(
            "train",
            settings,
            {} if old is None else {"old": old.task},
            float(len(rows) * settings["experiment"]["recipe"]["epochs"]),
            f"{what} ({case.data}, {case.scenario}, seed {case.seed})",
            {"train_on": rows, "old_trained_on": None if old is None else old.rows, "machine": of_machine(values)},
        )
        model = Model(task, rows)
        refuse_other_channels(source, self.root, model.channels, what)
        return model

    def _split(self, case: Case) -> Split:
        options = {"seed": case.seed, **self.suite.scenarios[case.scenario]}
        options.pop("scenario", None)
        scenario = {"name": self.suite.scenario_of(case.scenario), "options": options}
        return split_of(self._source(case.data), scenario, self.root)

    def _opened(self, data: str) -> dict[str, Search]:
        suite = self.suite
        if self.part != EVALUATION or not suite.test_sets:
            own = EvaluationSet(metrics=suite.metrics, gate_metric=suite.gate_metric)
            return {data: search_of(data, self._source(data), own, self.part, self.root)}
        only = len(suite.data) == 1
        return {
            name if only else f"{name}, trained on {data}": search_of(
                name, {"name": asked.data or name, "options": dict(asked.options)}, asked, EVALUATION, self.root
            )
            for name, asked in suite.tests().items()
        }

    def _features(self, case: Case, changes: Changes) -> Iterator[Scored]:
        data, scenario, label, seed = case
        within = self.suite.within(scenario)
        frozen = self._frozen_tasks(case)
        head = self._head(case, changes)
        searched = baseline = frozen["old"]
        if within.searched is not None:
            there = case._replace(scenario=within.searched)
            searched = baseline = self._head(there, self._chosen(there))
            baseline = searched if within.baseline == "own" else self._frozen_tasks(there)["new"]
        sides = {"old": baseline, "searched": searched, "independent": frozen["new"], "new": head, "model": head}
        metrics = list(dict.fromkeys((*self.suite.metrics, self.suite.gate_metric)))
        asked: Values = {"metrics": metrics, "gate_metric": self.suite.gate_metric, "protocol": BY_LABEL, "seed": 0}
        if open_items(self._items(case), self.root).leave_one_out:
            asked["protocol"] = {**BY_LABEL, "leave_one_out": True}
        task = Task("score", asked, sides, label=f"score {label} ({data}, {scenario}, seed {seed})")
        yield Scored(data, self.suite.gate_metric, task)

    def _head(self, case: Case, changes: Changes) -> Task:
        """Return the task of a head or an adapter: for the gallery of the old model, or of the predecessor's head."""
        data, scenario, label, seed = case
        within, frozen = self.suite.within(scenario), self._frozen_tasks(case)
        old = frozen["old"]
        if within.predecessor is not None:
            there = case._replace(scenario=within.predecessor)
            old = self._head(there, self._chosen(there))
        source, entry = self._items(case), self.suite.rows[label]
        name, needs = f"{label} ({data}, {scenario}, seed {seed})", {"old": old, "new": frozen["new"]}
        parts = open_items(source, self.root).parts()
        fitted_on = float(sum(len(part) for role, part in parts.items() if role in FITTED_ON))
        if entry.adapter is not None:
            options = changed({"options": dict(entry.options)}, changes)["options"]
            asked = {"method": entry.adapter, "options": {**options, "direction": entry.direction}}
            code = version_of(ADAPTERS[entry.adapter])
            settings: Values = {"experiment": asked, "data": source, **({"adapter_code": code} if code else {})}
            return Task("adapter", settings, needs, fitted_on, name)
        values = changed({**self.suite.settings(data, label, scenario=scenario), "start": entry.start}, changes)
        start = values.pop("start")
        settings = {**resolved_settings(values, seed, self.root), "start": start, "data": source}
        return Task("head", settings, needs, fitted_on * settings["experiment"]["recipe"]["epochs"], name)

    def _items(self, case: Case) -> Values:
        """Return which texts or images of a data set a head is trained on, and searched with."""
        data, scenario, _, seed = case
        models = self._frozen[scenario]  # refused before texts are read
        options = {**self.suite.data[data], **self.suite.scenarios[scenario], **self.data_options.get(data, {})}
        source: Values = {"name": data, "options": options}
        if data not in TEXT_DATASETS:
            source["apart"] = {share: options.pop(share, 0.0) for share in APART} | {"seed": seed}
            for model in models.values():
                spec = self._image_models[model].encoder.spec
                if not isinstance(spec, EncoderSpec):
                    raise ConfigError(f"'{model}' is a {spec.name}.", expected="a model of images: so is the data")
                refuse_other_channels(source, self.root, spec.channels, model)
        elif "seed" in option_types(TEXT_DATASETS[data].read):
            options["seed"] = seed
        if self.part == VALIDATION:
            source["part"] = VALIDATION
        source["digest"] = digests_of(source, self.root)
        return source

    def _frozen_tasks(self, case: Case) -> dict[str, Task]:
        """Return what the frozen models of a scenario embed, old and new."""
        source, name = self._items(case), f"{case.data}, {case.scenario}, seed {case.seed}"
        return {side: self._embedded(source, model, name) for side, model in self._frozen[case.scenario].items()}

    def _embedded(self, source: Values, model: str, name: str) -> Task:
        """Return the parts of one division, out of all items that are kept, which are embedded once for all of them."""
        everything: Values = {"name": source["name"], "options": {} if self.suite.of_texts else {**source["options"]}}
        items = open_items(everything, self.root)
        everything["digest"] = digests_of(everything, self.root)
        work = float(len(items.train) + len(items.query) + (0 if items.leave_one_out else len(items.gallery)))
        kind, known = "texts", {"model": model}
        if not self.suite.of_texts:
            kind, known = "frozen-images", {"model": model, "fingerprint": self._image_models[model].fingerprint}
        whole = Task(
            kind, {"data": everything, **known}, {}, work, f"{model} ({source['name']})", asks_api=is_service(model)
        )
        return Task(kind, {"data": source, **known}, {"whole": whole}, label=f"{model} ({name})")

    def _sessions(self, case: Case, changes: Changes) -> Iterator[Scored]:
        data, plan, label, seed = case
        suite, name = self.suite, f"{data}, {plan}, seed {seed}"
        source = self._source(data)
        asked = bound(PLANS[plan], {"seed": seed, **suite.plans[plan]}, f"plan '{plan}'")
        shared: Values = {"data": source, "plan": {"name": plan, "options": asked}}
        shared["divided"] = {"test_images": suite.test_images, "classes": suite.classes}
        setting = open_setting(shared, self.root)
        read = ("train", "query") if suite.test_images is None else ("train",)
        source["digest"] = [part_digest(source, self.root, part) for part in read]
        values = changed({**suite.settings(data, label), "budget": suite.budget_of(label)}, changes)
        budget = values.pop("budget")
        own = resolved_settings(values, seed, self.root)
        refuse_other_channels(source, self.root, own["experiment"]["model"]["channels"], label)
        method = build_method(values["method"], values["options"])
        needs = {}
        if method.first_session == "shared":
            first = {**shared, **resolved_settings({**values, "method": "independent", "options": {}}, seed, self.root)}
            epochs = float(first["experiment"]["recipe"]["epochs"])
            work = len(setting.plan.rows(0)) * epochs
            hints = {"machine": of_machine(values)}
            needs["first"] = Task("first-session", first, {}, work, f"first session ({name})", hints)
        rest = range(len(needs), setting.plan.sessions)
        work = float(sum(len(setting.plan.rows(session)) for session in rest) * own["experiment"]["recipe"]["epochs"])
        memory = None if method.memory in (None, "everything") else budget
        settings, hints = {**shared, **own, "budget": memory}, {"machine": of_machine(values)}
        task = Task("sessions", settings, needs, work, f"{label} ({name})", hints)
        further: tuple[Task, ...] = ()
        if suite.accuracy and self.part == EVALUATION:
            label = f"accuracy of {label} ({name})"
            further = (Task("session-accuracy", shared, {"learner": task}, float(len(setting.test)), label),)
        yield Scored(data, suite.gate_metric, task, further)


def refuse_without_validation(name: str, data: RetrievalData) -> None:
    """Refuse to tune on data without validation images, and say how this very data could have some.

    Raises:
        ConfigError: There are none.
    """
    if data.validation is not None:
        return
    known = option_names(name)
    option = next((option for option in VALIDATION_OPTIONS if option in known), None)
    if option is not None:
        to_do = f'write in the tuning: "data_options": {{"{name}": {{"{option}": {VALIDATION_OPTIONS[option]}}}}}'
    elif Path(name).is_dir():
        to_do = f"put images of further classes into {Path(name) / 'val'}/CLASS, beside train/CLASS and test/CLASS"
    else:
        to_do = "leave the tuning out, or choose settings on other data: the reader of this one sets none apart"
    raise ConfigError(
        f"The data set '{name}' has no validation images with these options, and the suite tunes on them.",
        expected="classes set apart for choosing settings",
        to_do=f"{to_do}.",
        intact="Nothing was run.",
    )
