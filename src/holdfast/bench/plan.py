"""From a suite to the cells of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.bench.cells import Cell
from holdfast.bench.code_version import method_version
from holdfast.bench.experiments import experiment_from, plain, weights_digest
from holdfast.bench.session_steps import open_setting
from holdfast.bench.sources import (
    EVALUATION,
    VALIDATION,
    divided,
    open_images,
    open_texts,
    part_digest,
    searched_parts,
)
from holdfast.bench.suite import Suite, Values
from holdfast.continual.plans import PLANS
from holdfast.methods import METHODS, build_method
from holdfast.options import bound


@dataclass(frozen=True)
class Row:
    """One method, with one set of options, on one data set and scenario, with one seed.

    Args:
        data: Name of the data set.
        scenario: Name of the scenario.
        label: What the board calls it.
        seed: The seed.
        score: The cell that scores it.
        changes: Settings other than those of the suite, by dotted name: a trial, or what was chosen.
    """

    data: str
    scenario: str
    label: str
    seed: int
    score: Cell
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class Planner:
    """Makes rows of a suite.

    Args:
        suite: The suite.
        root: Folder that holds the folders of the named data sets.
        data_options: Further options of the data sets, such as those that set validation classes apart.
        part: What is searched: the evaluation or the validation images.
    """

    suite: Suite
    root: Path | None
    data_options: Mapping[str, Values]
    part: str = EVALUATION

    def row(self, data: str, scenario: str, label: str, seed: int, changes: Mapping[str, Any]) -> Row:
        """Return one row."""
        make = {"images": self._images, "features": self._features, "sessions": self._sessions}[self.suite.track]
        return Row(data, scenario, label, seed, make(data, scenario, label, seed, changes), dict(changes))

    def rows(self, chosen: Mapping[tuple[str, str, str], Mapping[str, Any]]) -> Iterator[Row]:
        """Yield all rows, with what was chosen for data set, scenario and label."""
        suite = self.suite
        for data in suite.data:
            for scenario in suite.conditions:
                for label in suite.methods:
                    for seed in suite.seeds:
                        yield self.row(data, scenario, label, seed, chosen.get((data, scenario, label), {}))

    def _images(self, data: str, scenario: str, label: str, seed: int, changes: Mapping[str, Any]) -> Cell:
        name = f"{data}, {scenario}, seed {seed}"
        source = {"name": data, "options": {**self.suite.data[data], **self.data_options.get(data, {})}}
        opened = open_images(source, self.root)
        sought = [part_digest(source, self.root, part) for part in searched_parts(opened, self.part)]
        source["digest"] = part_digest(source, self.root, "train")
        shared = {"data": source, "scenario": self._scenario(scenario, seed)}
        split = divided(opened.to_train_on(), shared["scenario"])

        def trained(side: str, values: Values, needs: Mapping[str, Cell], what: str) -> Cell:
            settings = {**shared, "side": side, **self._experiment(values, seed)}
            rows = split.old if side == "old" else split.new
            work = float(len(rows) * settings["experiment"]["recipe"]["epochs"])
            return Cell("train", settings, needs, work, f"{what} ({name})")

        def embedded(model: Cell) -> Cell:
            settings = {"data": source, "part": self.part, "searched": sought}
            return Cell("embed", settings, {"model": model}, label=f"embed {model.label}")

        old = trained("old", self.suite.settings(data, scenario=scenario, old=True), {}, "old")
        independent = trained("new", self.suite.settings(data, scenario=scenario), {}, "independent")
        values = changed(self.suite.settings(data, label, scenario=scenario), changes)
        needs = {"old": old} if build_method(values["method"], values["options"]).needs_old else {}
        new = trained("new", values, needs, label)
        sides = {"old": embedded(old), "new": embedded(new), "independent": embedded(independent)}
        loo = opened.leave_one_out or self.part != EVALUATION
        return self._scored({**sides, "model": new}, loo, f"{label} ({name})")

    def _features(self, data: str, scenario: str, label: str, seed: int, changes: Mapping[str, Any]) -> Cell:
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
        settings = {**self._experiment(values, seed), "start": start, "data": source}
        work = float(len(parts["train"]) * settings["experiment"]["recipe"]["epochs"])
        head = Cell("head", settings, frozen, work, f"{label} ({name})")
        sides = {"old": frozen["old"], "independent": frozen["new"], "new": head, "model": head}
        return self._scored(sides, False, f"{label} ({name})")

    def _embedded_texts(self, source: Values, model: str, name: str) -> Cell:
        """Return the parts of one split, out of all texts of the data set, which are embedded once for all splits."""
        everything: Values = {"name": source["name"], "options": {}}
        parts = open_texts(everything, self.root).parts()
        everything["digest"] = {part: texts.digest()[:24] for part, texts in parts.items()}
        work = float(sum(map(len, parts.values())))
        whole = Cell("texts", {"data": everything, "model": model}, {}, work, f"{model} ({source['name']})")
        return Cell("texts", {"data": source, "model": model}, {"whole": whole}, label=f"{model} ({name})")

    def _sessions(self, data: str, plan: str, label: str, seed: int, changes: Mapping[str, Any]) -> Cell:
        suite, name = self.suite, f"{data}, {plan}, seed {seed}"
        source = {"name": data, "options": {**suite.data[data], **self.data_options.get(data, {})}}
        asked = bound(PLANS[plan], {"seed": seed, **suite.plans[plan]}, f"plan '{plan}'")
        shared: Values = {"data": source, "plan": {"name": plan, "options": asked}}
        shared["divided"] = {"test_images": suite.test_images, "classes": suite.classes}
        setting = open_setting(shared, self.root)
        read = ("train", "query") if suite.test_images is None else ("train",)
        source["digest"] = [part_digest(source, self.root, part) for part in read]
        values = changed(suite.settings(data, label), changes)
        own = self._experiment(values, seed)
        method = build_method(values["method"], values["options"])
        needs = {}
        if method.first_session == "shared":
            first = {**shared, **self._experiment({**values, "method": "independent", "options": {}}, seed)}
            epochs = float(first["experiment"]["recipe"]["epochs"])
            work = len(setting.plan.rows(0)) * epochs
            needs["first"] = Cell("first-session", first, {}, work, f"first session ({name})")
        rest = range(len(needs), setting.plan.sessions)
        work = float(sum(len(setting.plan.rows(session)) for session in rest) * own["experiment"]["recipe"]["epochs"])
        budget = None if method.memory in (None, "everything") else suite.budget
        return Cell("sessions", {**shared, **own, "budget": budget}, needs, work, f"{label} ({name})")

    def _scored(self, needs: Mapping[str, Cell], leave_one_out: bool, label: str) -> Cell:
        suite = self.suite
        metrics = list(dict.fromkeys((*suite.metrics, suite.gate_metric)))
        settings = {"metrics": metrics, "gate_metric": suite.gate_metric, "leave_one_out": leave_one_out, "seed": 0}
        return Cell("score", settings, needs, label=f"score {label}")

    def _scenario(self, name: str, seed: int) -> Values:
        options = {"seed": seed, **self.suite.scenarios[name]}
        options.pop("scenario", None)
        return {"name": self.suite.scenario_of(name), "options": options}

    def _experiment(self, values: Values, seed: int) -> Values:
        resolved = plain(experiment_from({**values, "seed": seed}))
        found: Values = {"experiment": resolved}
        if (weights := values.get("weights")) is not None:
            found["weights_digest"] = weights_digest(weights, self.root)
        if version := method_version(METHODS[values["method"]]):
            found["method_code"] = version
        return found


def changed(values: Values, changes: Mapping[str, Any]) -> Values:
    """Return settings with some changed, by dotted name.

    >>> changed({"options": {"weight": 1}, "method": "p2s"}, {"options.weight": 2, "recipe.epochs": 3})
    {'options': {'weight': 2}, 'method': 'p2s', 'recipe': {'epochs': 3}}
    """
    result = dict(values)
    for name, value in changes.items():
        first, _, rest = name.partition(".")
        result[first] = changed(result.get(first, {}), {rest: value}) if rest else value
    return result
