"""From a suite to the cells of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from holdfast.bench.cells import Cell
from holdfast.bench.image_cells import Case, ImageCells, Scored
from holdfast.bench.session_steps import open_setting
from holdfast.bench.settings import Changes, changed, of_machine, resolved, told
from holdfast.bench.sources import (
    EVALUATION,
    VALIDATION,
    open_images,
    open_texts,
    part_digest,
    refuse_other_channels,
)
from holdfast.bench.suite_schema import Suite, Values
from holdfast.continual.plans import PLANS
from holdfast.data.datasets import option_names
from holdfast.data.retrieval_data import RetrievalData
from holdfast.data.texts import TEXT_DATASETS
from holdfast.errors import ConfigError
from holdfast.methods import build_method
from holdfast.models.text_folders import find_model
from holdfast.options import bound, option_types

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
        label: What the board calls it.
        seed: The seed.
        score: The cell that scores it.
        changes: Settings other than those of the suite, by dotted name: a trial, or what was chosen.
        trained_on: Name of the data set that models were trained on.
        metric: What ranks it.
        settings: What is its own beside the options of its method, by dotted name.
    """

    data: str
    scenario: str
    label: str
    seed: int
    score: Cell
    changes: Changes
    trained_on: str
    metric: str
    settings: Values


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

    def of(self, data: str, scenario: str, label: str, seed: int, changes: Changes) -> list[Row]:
        """Return the rows of one run: one for everything that is searched."""
        make = {"images": self._images, "features": self._features, "sessions": self._sessions}[self.suite.track]
        case, settings = Case(data, scenario, label, seed), told(self.suite.methods[label], changes)
        return [
            Row(name, scenario, label, seed, cell, dict(changes), data, metric, settings)
            for name, metric, cell in make(case, changes)
        ]

    def rows(self) -> Iterator[Row]:
        """Yield all rows, as they were chosen."""
        suite = self.suite
        for data in suite.data:
            for scenario in suite.conditions:
                for label in suite.methods:
                    for seed in suite.seeds:
                        yield from self.of(data, scenario, label, seed, self.chosen.get((data, scenario, label), {}))

    @cached_property
    def _image_cells(self) -> ImageCells:
        return ImageCells(self.suite, self.root, self.data_options, self.part, self.chosen)

    @cached_property
    def _frozen(self) -> Mapping[str, str]:
        """The frozen models, which are there; only what may be a name on the hub is not looked for yet."""
        found: dict[str, str] = {}
        for side, model in self.suite.frozen.items():
            owner, _, name = model.partition("/")
            if not (owner[:1].isalnum() and name and "/" not in name) or Path(model).expanduser().exists():
                find_model(model)
            found[side] = model
        return found

    def _images(self, case: Case, changes: Changes) -> Iterator[Scored]:
        if self.part == VALIDATION:
            options = {**self.suite.data[case.data], **self.data_options.get(case.data, {})}
            refuse_without_validation(case.data, open_images({"name": case.data, "options": options}, self.root))
        yield from self._image_cells.scored(case, changes)

    def _features(self, case: Case, changes: Changes) -> Iterator[Scored]:
        data, scenario, label, seed = case
        models = self._frozen  # refused before texts are read
        options = {**self.suite.data[data], **self.suite.scenarios[scenario], **self.data_options.get(data, {})}
        if data in TEXT_DATASETS and "seed" in option_types(TEXT_DATASETS[data].read):
            options["seed"] = seed
        source: Values = {"name": data, "options": options}
        if self.part == VALIDATION:
            source["part"] = VALIDATION
        parts = open_texts(source, self.root).parts()
        source["digest"] = {part: texts.digest()[:24] for part, texts in parts.items()}
        name = f"{data}, {scenario}, seed {seed}"
        frozen: dict[str, Cell] = {side: self._embedded_texts(source, model, name) for side, model in models.items()}
        values = changed({**self.suite.settings(data, label), "start": self.suite.methods[label].start}, changes)
        start = values.pop("start")
        settings = {**resolved(values, seed, self.root), "start": start, "data": source}
        work = float(len(parts["train"]) * settings["experiment"]["recipe"]["epochs"])
        head = Cell("head", settings, frozen, work, f"{label} ({name})")
        sides = {
            "old": frozen["old"],
            "searched": frozen["old"],
            "independent": frozen["new"],
            "new": head,
            "model": head,
        }
        metrics = list(dict.fromkeys((*self.suite.metrics, self.suite.gate_metric)))
        asked = {"metrics": metrics, "gate_metric": self.suite.gate_metric, "protocol": BY_LABEL, "seed": 0}
        yield Scored(data, self.suite.gate_metric, Cell("score", asked, sides, label=f"score {label} ({name})"))

    def _embedded_texts(self, source: Values, model: str, name: str) -> Cell:
        """Return the parts of one split, out of all texts of the data set, which are embedded once for all splits."""
        everything: Values = {"name": source["name"], "options": {}}
        parts = open_texts(everything, self.root).parts()
        everything["digest"] = {part: texts.digest()[:24] for part, texts in parts.items()}
        work = float(sum(map(len, parts.values())))
        whole = Cell("texts", {"data": everything, "model": model}, {}, work, f"{model} ({source['name']})")
        return Cell("texts", {"data": source, "model": model}, {"whole": whole}, label=f"{model} ({name})")

    def _sessions(self, case: Case, changes: Changes) -> Iterator[Scored]:
        data, plan, label, seed = case
        suite, name = self.suite, f"{data}, {plan}, seed {seed}"
        source = {"name": data, "options": {**suite.data[data], **self.data_options.get(data, {})}}
        asked = bound(PLANS[plan], {"seed": seed, **suite.plans[plan]}, f"plan '{plan}'")
        shared: Values = {"data": source, "plan": {"name": plan, "options": asked}}
        shared["divided"] = {"test_images": suite.test_images, "classes": suite.classes}
        setting = open_setting(shared, self.root)
        read = ("train", "query") if suite.test_images is None else ("train",)
        source["digest"] = [part_digest(source, self.root, part) for part in read]
        values = changed(suite.settings(data, label), changes)
        own = resolved(values, seed, self.root)
        refuse_other_channels(source, self.root, own["experiment"]["model"]["channels"], label)
        method = build_method(values["method"], values["options"])
        needs = {}
        if method.first_session == "shared":
            first = {**shared, **resolved({**values, "method": "independent", "options": {}}, seed, self.root)}
            epochs = float(first["experiment"]["recipe"]["epochs"])
            work = len(setting.plan.rows(0)) * epochs
            hints = {"machine": of_machine(values)}
            needs["first"] = Cell("first-session", first, {}, work, f"first session ({name})", hints)
        rest = range(len(needs), setting.plan.sessions)
        work = float(sum(len(setting.plan.rows(session)) for session in rest) * own["experiment"]["recipe"]["epochs"])
        budget = None if method.memory in (None, "everything") else suite.budget
        settings, hints = {**shared, **own, "budget": budget}, {"machine": of_machine(values)}
        cell = Cell("sessions", settings, needs, work, f"{label} ({name})", hints)
        yield Scored(data, suite.gate_metric, cell)


def refuse_without_validation(name: str, data: RetrievalData) -> None:
    """Refuse to tune on data without validation images, and say how this very data could have some.

    Args:
        name: Name or path of the data set.
        data: The data set.

    Raises:
        ConfigError: There are none.
    """
    if data.validation is not None:
        return
    known = option_names(name)
    option = next((option for option in VALIDATION_OPTIONS if option in known), None)
    if option is not None:
        to_do = f"write in the tuning: data_options: {{{name}: {{{option}: {VALIDATION_OPTIONS[option]}}}}}"
    elif Path(name).is_dir():
        to_do = f"put images of further classes into {Path(name) / 'val'}/CLASS, beside train/CLASS and test/CLASS"
    else:
        to_do = "leave the tuning out, or choose settings on other data: the reader of this one sets none apart"
    raise ConfigError(
        f"The data set '{name}' has no validation images with these options, and the suite tunes on them.",
        expected="classes set apart for choosing settings",
        to_do=f"{to_do}; nothing was run.",
    )
