"""The cells of rows on images: models, what they embed, and how that scores."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.bench.cells import Cell
from holdfast.bench.settings import Changes, changed, of_machine, resolved
from holdfast.bench.sources import (
    EVALUATION,
    part_digest,
    protocol_digest,
    protocol_of,
    refuse_other_channels,
    rows_of_all,
    searched_facts,
    split_of,
)
from holdfast.bench.suite_schema import EvaluationSet, InScenario, Suite, Values
from holdfast.data.split import Split
from holdfast.errors import ConfigError
from holdfast.methods import build_method

Rows = NDArray[np.int64]


class Case(NamedTuple):
    """What a row on images is of."""

    data: str
    scenario: str
    label: str
    seed: int


class Scored(NamedTuple):
    """One score of a row: what the board calls the images that were searched, the metric that ranks, and the cell."""

    name: str
    metric: str
    cell: Cell


class Model(NamedTuple):
    """A cell that trains a model, and the rows of the training images that it is trained on."""

    cell: Cell
    rows: Rows

    @property
    def channels(self) -> int:
        """Channels of the images that it takes."""
        return int(self.cell.settings["experiment"]["model"]["channels"])


@dataclass(frozen=True)
class ImageCells:
    """Makes the cells of rows on images.

    Args:
        suite: The suite.
        root: Folder that holds the folders of the named data sets.
        data_options: Further options of the data sets, such as those that set validation classes apart.
        part: What is searched: the evaluation or the validation images.
        chosen: What was chosen for data set, scenario and label; the settings of predecessors.
    """

    suite: Suite
    root: Path | None
    data_options: Mapping[str, Values]
    part: str
    chosen: Mapping[tuple[str, str, str], Changes]
    _searched: dict[str, dict[str, Search]] = field(default_factory=dict, repr=False)

    def scored(self, case: Case, changes: Changes) -> Iterator[Scored]:
        """Yield what a row scores on everything that is searched."""
        within = self._within(case.scenario)
        old, independent, new = self._old(case), self._independent(case), self._new(case, changes)
        gallery = baseline = old
        if within.searched is not None:
            there = case._replace(scenario=within.searched)
            gallery = self._new(there, self._chosen(there))
            baseline = gallery if within.baseline == "own" else self._independent(there)
        models = {"old": baseline, "searched": gallery, "new": new, "independent": independent}
        for name, search in self._searches(case.data).items():
            for model in models.values():
                refuse_other_channels(search.source, self.root, model.channels, model.cell.label)
            sides = {role: search.embedded(model.cell) for role, model in models.items()}
            label = f"score {case.label} ({name}, {case.scenario}, seed {case.seed})"
            needs = {**sides, "model": new.cell}
            cell = Cell("score", search.settings(), needs, float(search.images), label)
            yield Scored(name, search.gate_metric, cell)

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
            before = self._within(case.scenario).predecessor
            there = case if before is None else case._replace(scenario=before)
            predecessor = self._old(case) if before is None else self._new(there, self._chosen(there))
        return self._model(case, case.label, values, self._split(case).new, predecessor)

    def _model(self, case: Case, what: str, values: Values, rows: Rows, old: Model | None) -> Model:
        """Return a cell that is the same for every scenario in which a model of these settings sees these rows."""
        source = self._source(case.data)
        settings = {
            "data": {**source, "digest": part_digest(source, self.root, "train")},
            "rows": hashlib.sha256(np.ascontiguousarray(rows, np.int64).tobytes()).hexdigest()[:24],
            **resolved(values, case.seed, self.root),
        }
        cell = Cell(
            "train",
            settings,
            {} if old is None else {"old": old.cell},
            float(len(rows) * settings["experiment"]["recipe"]["epochs"]),
            f"{what} ({case.data}, {case.scenario}, seed {case.seed})",
            {"train_on": rows, "old_trained_on": None if old is None else old.rows, "machine": of_machine(values)},
        )
        model = Model(cell, rows)
        refuse_other_channels(source, self.root, model.channels, what)
        return model

    def _split(self, case: Case) -> Split:
        options = {"seed": case.seed, **self.suite.scenarios[case.scenario]}
        options.pop("scenario", None)
        scenario = {"name": self.suite.scenario_of(case.scenario), "options": options}
        return split_of(self._source(case.data), scenario, self.root)

    def _source(self, data: str) -> Values:
        return {"name": data, "options": {**self.suite.data[data], **self.data_options.get(data, {})}}

    def _within(self, scenario: str) -> InScenario:
        return self.suite.by_scenario.get(scenario, InScenario())

    def _chosen(self, case: Case) -> Changes:
        return self.chosen.get((case.data, case.scenario, case.label), {})

    def _searches(self, data: str) -> dict[str, Search]:
        """Return what is searched by the name that the board has for it; opened once."""
        if data not in self._searched:
            self._searched[data] = self._opened(data)
        return self._searched[data]

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

    def embedded(self, model: Cell) -> Cell:
        """Return the cell of queries and gallery as a model embeds them."""
        settings: Values = {"data": self.source, "part": self.part, "searched": list(self.digests)}
        settings |= {"form": self.form, "flip": self.flip}
        work = float(self.images * (1 + self.flip))
        return Cell("embed", settings, {"model": model}, work, f"embed {model.label}")

    def settings(self) -> Values:
        """Return the settings of the cell that scores."""
        return {
            "data": self.source,
            "protocol": self.protocol,
            "metrics": list(dict.fromkeys((*self.metrics, self.gate_metric))),
            "gate_metric": self.gate_metric,
            "seed": 0,
        }


def search_of(name: str, source: Values, asked: EvaluationSet, part: str, root: Path | None) -> Search:
    """Return what is searched in a set of images.

    Args:
        name: What to call it in a message.
        source: "name" and "options" of the data set.
        asked: How it is searched.
        part: The evaluation or the validation images.
        root: Folder that holds the folders of the named data sets.

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
            to_do=f"name it in the suite: test_sets: {{{name}: {{protocol: ...}}}}; or hold classes out of training.",
        )
    metrics, gate = asked.metrics or protocol.metrics, asked.gate_metric or protocol.gate_metric
    protocol.check_metrics((*metrics, gate))
    record: Values = {**written, "leave_one_out": facts.leave_one_out, "digest": protocol_digest(protocol)}
    return Search(source, part, facts.digests, facts.images, asked.form, asked.flip, record, tuple(metrics), gate)
