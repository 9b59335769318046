"""Tasks of a suite, with addresses over everything that determines their results."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

import limpet
from limpet import EncoderSpec, Release, open_release
from limpet.adapters import ADAPTERS
from limpet.data import TEXT_DATASETS, RetrievalData, Split, option_names
from limpet.errors import ConfigError
from limpet.evaluation import metrics_named
from limpet.evaluation.protocols import PROTOCOLS, RankingProtocol
from limpet.methods import build_method
from limpet.models import ModelName, find_model, is_service, refuse_named_in
from limpet.support import bound, digest_of, on_the_hub, option_types, version_of
from limpet_bench.sessions.plans import PLANS
from limpet_bench.settings import Changes, of_machine, resolved_settings
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
from limpet_bench.suite import EvaluationSet, Run, Suite, Values, Variant

COMPUTING = (
    "geometry", "embeddings", "losses", "adapters", "methods", "data", "models", "training", "evaluation", "linking",
)  # fmt: skip
"""Packages of limpet whose code affects the results of tasks."""

OWN = ("datasets", "protocols", "pictures", "sessions")
MODULES = ("accuracy.py", "steps.py", "sources.py", "settings.py")
"""Modules of the bench whose code affects the results of tasks."""


@cache
def code_version() -> str:
    """Return the digest of all computing code of limpet and the bench, 16 hexadecimal digits."""
    root, own = Path(limpet.__file__).parent, Path(__file__).parent
    folders = [*(root / package for package in COMPUTING), *(own / package for package in OWN)]
    return digest_of(
        [*(path for folder in folders for path in sorted(folder.rglob("*.py"))), *(own / name for name in MODULES)]
    )


class Identity(TypedDict):
    """Plain values that the address of a task covers."""

    kind: str
    settings: Mapping[str, Any]
    needs: Mapping[str, str]
    code: str


@dataclass(frozen=True, eq=False)
class Task:
    """One step: training a model, embedding, or scoring.

    Tasks with the same address have the same result, so only one of them is run. The address covers the kind, the
    settings, the code and the addresses of the tasks that this one needs: a changed option reruns what depends on it,
    and nothing else.

    Args:
        kind: Kind of step, a key of `limpet_bench.steps.STEPS`.
        settings: Plain values that determine the result.
        needs: Tasks whose products it reads, by the role they play.
        work: Approximate amount of work, such as images times epochs, for estimates only.
        label: Display name.
        hints: Further inputs of the step that are not recorded, such as the rows behind a digest in the settings.
        asks_api: Whether the task sends requests to a server, which may cost money.
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
        """Return the task without the inputs of the tasks it needs, to send less to another process."""
        needs = {role: replace(task, needs={}, hints={})._at(task.address) for role, task in self.needs.items()}
        return replace(self, needs=needs)._at(self.address)

    def _at(self, address: str) -> Task:
        self.__dict__["address"] = address  # where `cached_property` stores its value
        return self

    def identity(self) -> Identity:
        """Return the values that the address covers."""
        return {
            "kind": self.kind,
            "settings": dict(self.settings),
            "needs": {role: task.address for role, task in self.needs.items()},
            "code": code_version(),
        }


def in_order(tasks: Iterable[Task]) -> list[Task]:
    """Return these tasks and all that they need, each address once, in topological order."""
    found: dict[str, Task] = {}

    def visit(task: Task) -> Iterator[Task]:
        if task.address not in found:
            for needed in task.needs.values():
                yield from visit(needed)
            found[task.address] = task
            yield task

    return [known for task in tasks for known in visit(task)]


Rows = NDArray[np.int64]


class Scored(NamedTuple):
    """One score of a row: the name of the searched images, the ranking metric, and the tasks."""

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
        """Number of input channels."""
        return int(self.task.settings["experiment"]["model"]["channels"])


@dataclass(frozen=True)
class Search:
    """One set of queries and gallery with its protocol.

    Args:
        source: "name" and "options" of the data set.
        part: The evaluation or the validation images.
        images: Number of images to embed.
        form: "points", or "features" if the protocol pools them.
        flip: Whether the features of the mirrored image are added.
        protocol: "name", "options", "ground_truth" and "digest" of the protocol, and "leave_one_out".
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
        """Return the task that embeds queries and gallery with a model."""
        settings: Values = {"data": self.source, "part": self.part, "searched": list(self.digests)}
        settings |= {"form": self.form, "flip": self.flip}
        work = float(self.images * (1 + self.flip))
        return Task("embed", settings, {"model": model}, work, f"embed {model.label}")

    def settings(self) -> Values:
        """Return the settings of the scoring task, with the code of metrics from other packages."""
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
    """Return the search in a set of images.

    Raises:
        ConfigError: The protocol needs labels and there are none, or it does not support a metric.
    """
    facts = searched_facts(source, root, part)
    written = {"name": asked.protocol, "options": dict(asked.protocol_options), "ground_truth": asked.ground_truth}
    protocol = protocol_of(source, written, root, leave_one_out=facts.leave_one_out)
    if protocol.needs_labels and not facts.labelled:
        raise ConfigError(
            f"The images to search in '{name}' have no labels that say who answers what.",
            expected="a protocol with a ground truth",
            to_do=f'name it: test_sets={{"{name}": EvaluationSet(protocol=...)}}; or hold classes out of training.',
        )
    metrics, gate = asked.metrics or protocol.metrics, asked.gate_metric or protocol.gate_metric
    protocol.check_metrics((*metrics, gate))
    record: Values = {**written, "leave_one_out": facts.leave_one_out, "digest": protocol_digest(protocol)}
    return Search(source, part, facts.digests, facts.images, asked.form, asked.flip, record, tuple(metrics), gate)


FITTED_ON = ("train", "unlabelled")
"""Parts of texts that heads and adapters are fitted on."""

BY_LABEL: Values = {"name": "labels", "options": {}, "ground_truth": "", "leave_one_out": False}
"""Protocol of texts: labels define relevance."""

VALIDATION_OPTIONS = {"validation_fraction": 0.2, "validation_classes": 60}
"""Options of image readers that hold out validation images, each with a value that suits most data sets."""


@dataclass(frozen=True)
class Row:
    """One method, with one set of options, on one data set and scenario, with one seed.

    Args:
        data: Searched data: the name of the data set, or of a test set.
        label: Label in the leaderboard.
        seed: Random seed.
        score: The task that scores it.
        changes: Settings other than those of the suite, by dotted name: those of a trial, or the chosen ones.
        trained_on: Name of the data set that models were trained on.
        settings: The row's own settings beside the options of its method, by dotted name.
        varied: What the row varies, if it is a variant of another row.
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
    """Plans the rows of a suite.

    Args:
        root: Folder that holds the folders of the named data sets.
        part: Part to search: the evaluation or the validation images.
        chosen: Chosen settings, by the place of a run.
    """

    suite: Suite
    root: Path | None
    part: str = EVALUATION
    chosen: Mapping[tuple[str, str, str], Changes] = field(default_factory=dict)
    _searched: dict[str, dict[str, Search]] = field(default_factory=dict, init=False, repr=False)

    def of(self, run: Run, seed: int, changes: Changes) -> list[Row]:
        """Return the rows of one run, one for each searched set."""
        make = {"images": self._images, "features": self._features, "sessions": self._sessions}[self.suite.track]
        (data, scenario, label), changes = run.place, dict(changes)
        settings = run.own_settings() | {name: changes[name] for name in changes if not name.startswith("options.")}
        return [
            Row(name, scenario, label, seed, task, changes, data, metric, settings, run.varied, further)
            for name, metric, task, further in make(run.changed(changes), seed)
        ]

    def rows(self) -> Iterator[Row]:
        """Yield all rows, with the chosen settings."""
        for run in self.suite.runs:
            for seed in self.suite.seeds:
                yield from self.of(run, seed, self.chosen.get(run.place, {}))

    def _source(self, run: Run) -> Values:
        options = {**run.data.options, **(run.data.validation if self.part == VALIDATION else {})}
        return {"name": run.data.name, "options": options}

    def _chosen(self, run: Run) -> Run:
        return run.changed(self.chosen.get(run.place, {}))

    @cached_property
    def _frozen(self) -> set[str]:
        """Names of the frozen models. Text models must exist, except those on the hub or behind an API."""
        found = {model for run in self.suite.runs if run.frozen for model in (run.frozen.old, run.frozen.new)}
        for model in found if self.suite.of_texts else ():
            refuse_named_in(self.suite.name, model)
            named = ModelName.of(model, bare="st")
            if not is_service(named) and not on_the_hub(named.place):
                find_model(named)
        return found

    @cached_property
    def _image_models(self) -> Mapping[str, Release]:
        return {model: open_release(model) for model in self._frozen}

    def _images(self, run: Run, seed: int) -> Iterator[Scored]:
        if self.part == VALIDATION:
            refuse_without_validation(run.data.name, open_images(self._source(run), self.root))
        old, independent, new = self._old(run, seed), self._independent(run, seed), self._new(run, seed)
        gallery = baseline = old
        if run.gallery is not None:
            there = self._chosen(run.gallery)
            gallery = self._new(there, seed)
            baseline = gallery if run.baseline == "own" else self._independent(there, seed)
        models = {"old": baseline, "searched": gallery, "new": new, "independent": independent}
        if run.data.name not in self._searched:
            self._searched[run.data.name] = self._opened(run)
        for name, search in self._searched[run.data.name].items():
            for model in models.values():
                refuse_other_channels(search.source, self.root, model.channels, model.task.label)
            sides = {role: search.embedded(model.task) for role, model in models.items()}
            label = f"score {run.label} ({name}, {run.scenario.name}, seed {seed})"
            needs = {**sides, "model": new.task}
            task = Task("score", search.settings(), needs, float(search.images), label)
            classifies = self.suite.accuracy and self.part == EVALUATION
            further = (self._classified(run, seed, name, search, models),) if classifies else ()
            yield Scored(name, search.gate_metric, task, further)

    def _classified(self, run: Run, seed: int, name: str, search: Search, models: Mapping[str, Model]) -> Task:
        refuse_unknown_classes(name, search.source, self._source(run), self.root)
        features = dataclasses.replace(search, form="features", flip=False)
        needs = {role: features.embedded(model.task) for role, model in models.items() if role != "searched"}
        needs |= {f"{role}_model": model.task for role, model in models.items()}
        label = f"accuracy of {run.label} ({name}, {run.scenario.name}, seed {seed})"
        return Task("accuracy", {}, needs, float(search.images), label)

    def _old(self, run: Run, seed: int) -> Model:
        return self._model(run, seed, "old", run.before.values(), self._split(run, seed).old, None)

    def _independent(self, run: Run, seed: int) -> Model:
        split = self._split(run, seed)
        rows = split.new if self.suite.upper_bound == "new" else rows_of_all(split)
        return self._model(run, seed, "independent", run.reference.values(), rows, None)

    def _new(self, run: Run, seed: int) -> Model:
        predecessor = None
        if build_method(run.method, run.options).needs_old:
            before = run.predecessor
            predecessor = self._old(run, seed) if before is None else self._new(self._chosen(before), seed)
        values = run.training.values(run.method, run.options)
        return self._model(run, seed, run.label, values, self._split(run, seed).new, predecessor)

    def _model(self, run: Run, seed: int, what: str, values: Values, rows: Rows, old: Model | None) -> Model:
        """Return the training task; it is the same in every scenario in which such a model sees these rows."""
        source = self._source(run)
        settings = {
            "data": {**source, "digest": part_digest(source, self.root, "train")},
            "rows": hashlib.sha256(np.ascontiguousarray(rows, np.int64).tobytes()).hexdigest()[:24],
            **resolved_settings(values, seed, self.root),
        }
        task = Task(
            "train",
            settings,
            {} if old is None else {"old": old.task},
            float(len(rows) * settings["experiment"]["recipe"]["epochs"]),
            f"{what} ({run.data.name}, {run.scenario.name}, seed {seed})",
            {"train_on": rows, "old_trained_on": None if old is None else old.rows, "machine": of_machine(values)},
        )
        model = Model(task, rows)
        refuse_other_channels(source, self.root, model.channels, what)
        return model

    def _split(self, run: Run, seed: int) -> Split:
        scenario = {"name": run.scenario.kind, "options": {"seed": seed, **run.scenario.options}}
        return split_of(self._source(run), scenario, self.root)

    def _opened(self, run: Run) -> dict[str, Search]:
        suite, data = self.suite, run.data.name
        if self.part != EVALUATION or not suite.test_sets:
            own = EvaluationSet(metrics=suite.metrics, gate_metric=suite.gate_metric)
            return {data: search_of(data, self._source(run), own, self.part, self.root)}
        only = len(suite.data) == 1
        return {
            name if only else f"{name}, trained on {data}": search_of(
                name, {"name": asked.data or name, "options": dict(asked.options)}, asked, EVALUATION, self.root
            )
            for name, asked in suite.tests().items()
        }

    def _features(self, run: Run, seed: int) -> Iterator[Scored]:
        data, scenario, label = run.place
        frozen, head = self._frozen_tasks(run, seed), self._head(run, seed)
        searched = baseline = frozen["old"]
        if run.gallery is not None:
            there = self._chosen(run.gallery)
            searched = baseline = self._head(there, seed)
            baseline = searched if run.baseline == "own" else self._frozen_tasks(there, seed)["new"]
        sides = {"old": baseline, "searched": searched, "independent": frozen["new"], "new": head, "model": head}
        metrics = list(dict.fromkeys((*self.suite.metrics, self.suite.gate_metric)))
        asked: Values = {"metrics": metrics, "gate_metric": self.suite.gate_metric, "protocol": BY_LABEL, "seed": 0}
        if open_items(self._items(run, seed), self.root).leave_one_out:
            asked["protocol"] = {**BY_LABEL, "leave_one_out": True}
        task = Task("score", asked, sides, label=f"score {label} ({data}, {scenario}, seed {seed})")
        yield Scored(data, self.suite.gate_metric, task)

    def _head(self, run: Run, seed: int) -> Task:
        """Return the task of a head or an adapter: for the gallery of the old model, or of the predecessor's head."""
        data, scenario, label = run.place
        frozen = self._frozen_tasks(run, seed)
        old = frozen["old"] if run.predecessor is None else self._head(self._chosen(run.predecessor), seed)
        source = self._items(run, seed)
        name, needs = f"{label} ({data}, {scenario}, seed {seed})", {"old": old, "new": frozen["new"]}
        parts = open_items(source, self.root).parts()
        fitted_on = float(sum(len(part) for role, part in parts.items() if role in FITTED_ON))
        if run.adapter is not None:
            asked = {"method": run.adapter, "options": {**run.options, "direction": run.direction}}
            code = version_of(ADAPTERS[run.adapter])
            settings: Values = {"experiment": asked, "data": source, **({"adapter_code": code} if code else {})}
            return Task("adapter", settings, needs, fitted_on, name)
        values = run.training.values(run.method, run.options)
        settings = {**resolved_settings(values, seed, self.root), "start": run.start, "data": source}
        return Task("head", settings, needs, fitted_on * settings["experiment"]["recipe"]["epochs"], name)

    def _items(self, run: Run, seed: int) -> Values:
        _ = self._frozen  # refuse unknown models before texts are read
        data, part = run.data, run.data.validation if self.part == VALIDATION else {}
        options = {**data.options, **run.scenario.options, **part}
        source: Values = {"name": data.name, "options": options}
        if data.name not in TEXT_DATASETS:
            source["apart"] = {share: options.pop(share, 0.0) for share in APART} | {"seed": seed}
            for model in self._models_of(run).values():
                spec = self._image_models[model].encoder.spec
                if not isinstance(spec, EncoderSpec):
                    raise ConfigError(f"'{model}' is a {spec.name}.", expected="a model of images: so is the data")
                refuse_other_channels(source, self.root, spec.channels, model)
        elif "seed" in option_types(TEXT_DATASETS[data.name].read):
            options["seed"] = seed
        if self.part == VALIDATION:
            source["part"] = VALIDATION
        source["digest"] = digests_of(source, self.root)
        return source

    def _models_of(self, run: Run) -> dict[str, str]:
        if run.frozen is None:
            raise ConfigError(f"The row '{run.label}' names no frozen models.", expected="an old and a new one")
        return {"old": run.frozen.old, "new": run.frozen.new}

    def _frozen_tasks(self, run: Run, seed: int) -> dict[str, Task]:
        source, name = self._items(run, seed), f"{run.data.name}, {run.scenario.name}, seed {seed}"
        return {side: self._embedded(source, model, name) for side, model in self._models_of(run).items()}

    def _embedded(self, source: Values, model: str, name: str) -> Task:
        """Return the task for the parts of one division; it selects them from all items, which are embedded once."""
        everything: Values = {"name": source["name"], "options": {} if self.suite.of_texts else {**source["options"]}}
        items = open_items(everything, self.root)
        everything["digest"] = digests_of(everything, self.root)
        work = float(len(items.train) + len(items.query) + (0 if items.leave_one_out else len(items.gallery)))
        kind, known = "texts", {"model": model}
        if not self.suite.of_texts:
            kind, known = "frozen-images", {"model": model, "fingerprint": self._image_models[model].fingerprint}
        whole = Task(
            kind,
            {"data": everything, **known},
            {},
            work,
            f"{model} ({source['name']})",
            asks_api=self.suite.of_texts and is_service(ModelName.of(model, bare="st")),
        )
        return Task(kind, {"data": source, **known}, {"whole": whole}, label=f"{model} ({name})")

    def _sessions(self, run: Run, seed: int) -> Iterator[Scored]:
        data, plan, label = run.place
        suite, name = self.suite, f"{data}, {plan}, seed {seed}"
        source = self._source(run)
        asked = bound(PLANS[run.scenario.kind], {"seed": seed, **run.scenario.options}, f"plan '{plan}'")
        shared: Values = {"data": source, "plan": {"name": run.scenario.kind, "options": asked}}
        shared["divided"] = {"test_images": suite.test_images, "classes": suite.classes}
        setting = open_setting(shared, self.root)
        read = ("train", "query") if suite.test_images is None else ("train",)
        source["digest"] = [part_digest(source, self.root, part) for part in read]
        values, hints = run.training.values(run.method, run.options), {"machine": of_machine(run.training.values())}
        own = resolved_settings(values, seed, self.root)
        refuse_other_channels(source, self.root, own["experiment"]["model"]["channels"], label)
        method = build_method(run.method, run.options)
        needs = {}
        if method.first_session == "shared":
            first = {**shared, **resolved_settings(run.training.values(), seed, self.root)}
            epochs = float(first["experiment"]["recipe"]["epochs"])
            work = len(setting.plan.rows(0)) * epochs
            needs["first"] = Task("first-session", first, {}, work, f"first session ({name})", hints)
        rest = range(len(needs), setting.plan.sessions)
        work = float(sum(len(setting.plan.rows(session)) for session in rest) * own["experiment"]["recipe"]["epochs"])
        memory = None if method.memory in (None, "everything") else run.budget
        task = Task("sessions", {**shared, **own, "budget": memory}, needs, work, f"{label} ({name})", hints)
        further: tuple[Task, ...] = ()
        if suite.accuracy and self.part == EVALUATION:
            label = f"accuracy of {label} ({name})"
            further = (Task("session-accuracy", shared, {"learner": task}, float(len(setting.test)), label),)
        yield Scored(data, suite.gate_metric, task, further)


def refuse_without_validation(name: str, data: RetrievalData) -> None:
    """Refuse to tune on data without validation images; the message says how this data set can have some.

    Raises:
        ConfigError: The data have no validation images.
    """
    if data.validation is not None:
        return
    known = option_names(name)
    option = next((option for option in VALIDATION_OPTIONS if option in known), None)
    if option is not None:
        to_do = f'write in the suite: Data("{name}", validation={{"{option}": {VALIDATION_OPTIONS[option]}}})'
    elif Path(name).is_dir():
        to_do = f"put images of further classes into {Path(name) / 'val'}/CLASS, beside train/CLASS and test/CLASS"
    else:
        to_do = "leave the search out, or choose settings on other data: the reader of this one sets none apart"
    raise ConfigError(
        f"The data set '{name}' has no validation images with these options, and rows are tuned on them.",
        expected="classes set apart for choosing settings",
        to_do=f"{to_do}.",
        intact="Nothing was run.",
    )
