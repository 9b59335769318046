"""Values of a suite's figures, and the further tasks that they need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import NamedTuple

from limpet.errors import unknown_name
from limpet.evaluation import PMetrics, SelfAndCross, Variant, mean_of
from limpet.support import listed
from limpet_bench.cache import TaskCache
from limpet_bench.executor import reason_of
from limpet_bench.figure_values import (
    BarChart,
    BarPanel,
    FigureValue,
    GenerationMatrix,
    Line,
    LinePanel,
    Lines,
    Matrices,
    NumberTable,
    Point,
    PublishedNumber,
    Series,
    Spread,
    TableColumn,
    TableRow,
)
from limpet_bench.figures import (
    AVERAGE,
    Bars,
    Column,
    Curve,
    FigureSpec,
    LossCurve,
    Matrix,
    SessionCurve,
    Table,
    default_measure,
)
from limpet_bench.leaderboard import Run
from limpet_bench.ranking import P_MEASURES, SYSTEMS
from limpet_bench.suite import Suite
from limpet_bench.tasks import Row, Task

Place = tuple[str, str]
"""Searched set, and the scenario or plan."""


@dataclass(frozen=True)
class Finished:
    """Finished rows and tasks as the source of figures.

    Args:
        rows: Planned rows, with their tasks.
        runs: Results of the rows, in the same order.
        cache: Cache of finished tasks: `cache.record(task)` and `cache.folder(task)`.
    """

    suite: Suite
    rows: Sequence[Row]
    runs: Sequence[Run]
    cache: TaskCache

    def of(self, label: str, place: Place) -> Iterator[tuple[Row, Run]]:
        """Yield the runs of a row of the leaderboard in a place, one per seed."""
        for row, run in zip(self.rows, self.runs, strict=True):
            if (run.label, run.data, run.scenario) == (label, *place):
                yield row, run

    def spread(self, label: str, place: Place, measure: str, metric: str | None = None) -> Spread | None:
        """Return mean and range over seeds of one number; by default in the ranking metric."""
        runs = [run for _, run in self.of(label, place) if run.failure is None]
        return Spread.of([run.measured.get(metric or run.metric, {}).get(measure) for run in runs])

    def metrics(self, place: Place) -> set[str]:
        """Return the metrics of all runs of a place."""
        return {name for run in self.runs if (run.data, run.scenario) == place for name in run.measured}

    def ranked_by(self, places: Iterable[Place]) -> str:
        """Return the ranking metrics of these places, joined by commas."""
        wanted = set(places)
        return ", ".join(dict.fromkeys(run.metric for run in self.runs if (run.data, run.scenario) in wanted))


@singledispatch
def needed_tasks(spec: FigureSpec, suite: Suite, rows: Sequence[Row]) -> list[Task]:
    """Return the tasks that a figure needs in addition to those of its rows."""
    return []


@singledispatch
def gathered(spec: FigureSpec, name: str, found: Finished) -> FigureValue | None:
    """Return the value of a figure; None if none of its tasks finished."""
    raise NotImplementedError(f"nothing gathers figures of the kind '{spec.kind}'")


@singledispatch
def note_of(spec: FigureSpec, name: str, found: Finished) -> str | None:
    """Return why a figure, or a part of it, is not drawn, and what to do; None if nothing is missing."""
    return None


def figure_tasks(suite: Suite, rows: Sequence[Row]) -> list[Task]:
    """Return the tasks that all figures of a suite need in addition to those of its rows."""
    return [task for spec in suite.figures.values() for task in needed_tasks(spec, suite, rows)]


def figure_values(found: Finished) -> dict[str, FigureValue]:
    """Return all figures of a suite that have a value, by name."""
    values = {name: gathered(spec, name, found) for name, spec in found.suite.figures.items()}
    return {name: value for name, value in values.items() if value is not None}


def figure_notes(found: Finished) -> dict[str, str]:
    """Return why figures of a suite, or parts of them, are not drawn, by name."""
    notes = {name: note_of(spec, name, found) for name, spec in found.suite.figures.items()}
    return {name: note for name, note in notes.items() if note is not None}


def place_names(places: Sequence[Place]) -> dict[Place, str]:
    """Return the shortest distinct names of places.

    >>> place_names([("omniglot", "open-class"), ("omniglot", "open-data")])
    {('omniglot', 'open-class'): 'open-class', ('omniglot', 'open-data'): 'open-data'}
    >>> place_names([("omniglot", "open-class")])
    {('omniglot', 'open-class'): ''}
    """
    differs = [len({place[part] for place in places}) > 1 for part in (0, 1)]
    return {place: ", ".join(name for name, told in zip(place, differs, strict=True) if told) for place in places}


@gathered.register
def _curve(spec: Curve, name: str, found: Finished) -> FigureValue | None:
    suite, places = found.suite, place_names(list(spec.places(found.suite)))

    def line(place: Place, row: str, measure: str) -> Line:
        varied = {
            label: float(variant.value)
            for label, variant in suite.variants.items()
            if (variant.row, variant.setting) == (row, spec.over)
        }
        ordered = sorted(varied.items(), key=lambda item: item[1])
        points = [Point(at=at, value=found.spread(label, place, measure, spec.metric)) for label, at in ordered]
        return Line(label=row, measure=measure, points=points)

    panels = [
        LinePanel(place=words, lines=[line(place, row, one) for row in spec.rows for one in spec.measured(suite)])
        for place, words in places.items()
    ]
    up = spec.metric or found.ranked_by(places)
    return Lines(title=spec.title or name, across=spec.over, up=up, scale=spec.scale, panels=panels)


@gathered.register
def _bars(spec: Bars, name: str, found: Finished) -> FigureValue | None:
    suite, labels, places = found.suite, spec.labels(found.suite), list(spec.places(found.suite))
    measures = spec.measured(suite)

    def spread(label: str, place: Place, measure: str) -> Spread | None:
        return found.spread(label, place, measure, spec.metric)

    panels: list[BarPanel] = []
    if spec.over == "label":
        for place, words in place_names(places).items():
            series = [
                Series(label="", measure=one, values=[spread(label, place, one) for label in labels])
                for one in measures
            ]
            panels.append(BarPanel(place=words, groups=list(labels), series=series))
    else:
        part = ("data", "scenario").index(spec.over)  # index in a place
        apart: dict[str, list[Place]] = {}
        for place in places:
            apart.setdefault(place[1 - part], []).append(place)
        for words, beside in apart.items():
            series = [
                Series(label=label, measure=one, values=[spread(label, place, one) for place in beside])
                for label in labels
                for one in measures
            ]
            groups = [place[part] for place in beside]
            panels.append(BarPanel(place=words if len(apart) > 1 else "", groups=groups, series=series))
    return BarChart(title=spec.title or name, up=spec.metric or found.ranked_by(places), panels=panels)


@gathered.register
def _table(spec: Table, name: str, found: Finished) -> FigureValue | None:
    suite, columns = found.suite, list(_columns(spec, found))
    scenarios, several = spec.scenarios or tuple(suite.conditions), len(spec.data or suite.searched) > 1
    rows = [
        TableRow(
            scenario=scenario if len(scenarios) > 1 else "",
            label=label,
            values=[_cell(spec, found, label, scenario, column) for column in columns],
            published=[_published(spec, suite, label, scenario, column) for column in columns],
        )
        for scenario in scenarios
        for label in (*spec.references, *spec.labels(suite))
    ]
    heads = [
        TableColumn(
            data=column.sets[0] if several and len(column.sets) == 1 else "",
            measure=column.measure,
            metric=column.metric,
            **column.asked.model_dump(include={"title", "variant", "unit", "digits"}),
        )
        for column in columns
    ]
    where = dict.fromkeys(row.where for row in suite.published if row.where in (spec.where or (row.where,)))
    return NumberTable(title=spec.title or name, columns=heads, rows=rows, where=listed(list(where)))


class _Placed(NamedTuple):
    """A column with its data sets, measure and metric; the metrics of several data sets are joined."""

    asked: Column
    sets: tuple[str, ...]
    measure: str
    metric: str

    @property
    def factor(self) -> float:
        return 100.0 if self.asked.unit == "%" else 1.0


def _columns(spec: Table, found: Finished) -> Iterator[_Placed]:
    suite, scenarios = found.suite, spec.scenarios or tuple(found.suite.conditions)
    searched = tuple(spec.data or suite.searched)
    for data in searched:
        places = [(data, scenario) for scenario in scenarios]
        known = {metric for place in places for metric in found.metrics(place)}
        for column in spec.columns:
            metric = column.metric or found.ranked_by(places)
            if not column.over_sets and (not known or metric in known):  # metrics vary between test sets
                yield _Placed(column, (data,), column.measure or default_measure(suite), metric)
    ranked = found.ranked_by((data, scenario) for data in searched for scenario in scenarios)
    for column in spec.columns:
        if column.over_sets:
            yield _Placed(column, searched, column.measure or default_measure(suite), ranked)


def _cell(spec: Table, found: Finished, label: str, scenario: str, column: _Placed) -> Spread | None:
    """Return the measured value; for a reference model, that of the first row that has it."""
    labels, measure = [label], column.measure
    if label in spec.references:
        labels, measure = list(found.suite.rows) if measure == "self_new" else [], spec.references[label]
    for one in labels:
        seeds: dict[int, list[float | None]] = {}
        for data in column.sets:
            for _, run in found.of(one, (data, scenario)):
                if run.failure is None:
                    known = run.measured.get(run.metric if len(column.sets) > 1 else column.metric, {})
                    seeds.setdefault(run.seed, []).append(_number(known, measure, column.asked.variant))
        means = [mean_of(values) for values in seeds.values() if len(values) == len(column.sets)]
        spread = Spread.of([None if mean is None else column.factor * mean for mean in means])
        if spread is not None:
            return spread
    return None


def _number(known: Mapping[str, float | None], measure: str, variant: Variant) -> float | None:
    if measure == AVERAGE:
        return mean_of(known.get(name) for name in ("cross", "self_new"))
    scores = [score for system in SYSTEMS if (score := known.get(system)) is not None]
    if measure in P_MEASURES and variant == "sigmoid" and len(scores) == len(SYSTEMS):
        return dict(PMetrics.of(SelfAndCross(*scores)).variants())[measure, variant]
    return known.get(measure)


def _published(spec: Table, suite: Suite, label: str, scenario: str, column: _Placed) -> PublishedNumber | None:
    """Return the published number; for a reference model, that of any of its rows."""
    system = spec.references.get(label)
    if system is not None and column.measure != "self_new":
        return None
    for row in suite.published:
        same = (row.data, row.scenario) == (listed(column.sets), scenario) and (system or row.label == label)
        if same and row.where in (spec.where or (row.where,)):
            metric = row.metric if len(column.sets) > 1 else column.metric
            number = row.number(system or column.measure, metric, column.asked.variant)
            if number is not None:
                return number.times(column.factor)
    return None


@gathered.register
def _matrix(spec: Matrix, name: str, found: Finished) -> FigureValue | None:
    suite = found.suite
    scenarios = {suite.generations(scenario): scenario for scenario in spec.scenarios or suite.conditions}
    count = max(asks for asks, _ in scenarios)
    labels, data = spec.labels(suite), spec.data or suite.searched
    own = {asks: scenario for (asks, _), scenario in scenarios.items()}

    def value(label: str, searched: str, asks: int, held: int) -> Spread | None:
        if (asks, held) in scenarios:
            return found.spread(label, (searched, scenarios[asks, held]), spec.measure, spec.metric)
        if asks != held or spec.measure != "cross":
            return None
        first = next((scenario for (_, gallery), scenario in scenarios.items() if gallery == 1), None)
        scenario, measure = (first, "self_old") if asks == 1 else (own.get(asks), "self_new")
        return None if scenario is None else found.spread(label, (searched, scenario), measure, spec.metric)

    panels = [
        GenerationMatrix(
            place=searched if len(data) > 1 else "",
            label=label,
            values=[[value(label, searched, i, j) for j in range(1, count + 1)] for i in range(1, count + 1)],
        )
        for searched in data
        for label in labels
    ]
    metric = spec.metric or found.ranked_by(spec.places(suite))
    return Matrices(title=spec.title or name, measure=spec.measure, metric=metric, generations=count, panels=panels)


@gathered.register
def _session_curve(spec: SessionCurve, name: str, found: Finished) -> FigureValue | None:
    panels = []
    for place, words in place_names(list(spec.places(found.suite))).items():
        curves = {
            (label, spec.measure): [run.after_sessions.get(spec.measure, []) for _, run in found.of(label, place)]
            for label in spec.labels(found.suite)
        }
        panels.append(LinePanel(place=words, lines=mean_lines(curves)))
    return Lines(title=spec.title or name, across="session", up=spec.measure, panels=panels)


@gathered.register
def _loss_curve(spec: LossCurve, name: str, found: Finished) -> FigureValue | None:
    panels = []
    for place, words in place_names(list(spec.places(found.suite))).items():
        curves: dict[tuple[str, str], list[list[float]]] = {}
        for label in spec.labels(found.suite):
            for row, run in found.of(label, place):
                for term, values in losses_of(row, found.cache).items() if run.failure is None else ():
                    if not spec.terms or term in spec.terms:
                        curves.setdefault((label, term), []).append(values)
        panels.append(LinePanel(place=words, lines=mean_lines(curves)))
    return Lines(title=spec.title or name, across="epoch", up="loss", panels=panels)


@note_of.register
def _unknown_terms(spec: LossCurve, name: str, found: Finished) -> str | None:
    places, labels = set(spec.places(found.suite)), spec.labels(found.suite)
    known = {
        term: None
        for row, run in zip(found.rows, found.runs, strict=True)
        if (run.data, run.scenario) in places and run.label in labels and run.failure is None
        for term in losses_of(row, found.cache)
    }
    wrong = [term for term in spec.terms if known and term not in known]
    return reason_of(unknown_name("term of the loss:", wrong[0], known)) if wrong else None


def losses_of(row: Row, cache: TaskCache) -> dict[str, list[float]]:
    """Return the loss terms of a row's new model per epoch, by name, with their sum."""
    from limpet.training import load_history

    epochs = load_history(cache.folder(row.score.needs["model"]) / "release").epochs
    return {name: [epoch[name] for epoch in epochs] for name in epochs[0] if all(name in epoch for epoch in epochs)}


def mean_lines(curves: Mapping[tuple[str, str], Sequence[Sequence[float | None]]]) -> list[Line]:
    """Return the mean line of the seeds' curves for every label and measure, counted from 1."""
    lines = []
    for (label, measure), seeds in curves.items():
        steps = range(max(map(len, seeds), default=0))
        points = [Point(at=at + 1, value=Spread.of([seed[at] for seed in seeds if at < len(seed)])) for at in steps]
        if points:
            lines.append(Line(label=label, measure=measure, points=points))
    return lines
