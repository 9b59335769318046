"""From a suite to the cells of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from holdfast.bench.cells import Cell
from holdfast.bench.experiments import of_machine
from holdfast.bench.image_cells import Case, ImageCells, Scored
from holdfast.bench.session_steps import open_setting
from holdfast.bench.settings import Changes, changed, resolved, told
from holdfast.bench.sources import EVALUATION, VALIDATION, open_texts, part_digest
from holdfast.bench.suite_schema import Suite, Values
from holdfast.continual.plans import PLANS
from holdfast.methods import build_method
from holdfast.options import bound

BY_LABEL: Values = {"name": "labels", "options": {}, "ground_truth": "", "leave_one_out": False}
"""How texts are searched: their labels say who answers whom."""


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

    def _images(self, case: Case, changes: Changes) -> Iterator[Scored]:
        yield from self._image_cells.scored(case, changes)

    def _features(self, case: Case, changes: Changes) -> Iterator[Scored]:
        data, scenario, label, seed = case
        options = {**self.suite.data[data], **self.suite.scenarios[scenario], **self.data_options.get(data, {})}
        source: Values = {"name": data, "options": {**options, "seed": seed}}
        if self.part == VALIDATION:
            source["part"] = VALIDATION
        parts = open_texts(source, self.root).parts()
        source["digest"] = {part: texts.digest()[:24] for part, texts in parts.items()}
        name = f"{data}, {scenario}, seed {seed}"
        frozen: dict[str, Cell] = {
            side: self._embedded_texts(source, model, name) for side, model in self.suite.frozen.items()
        }
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
