"""Typed results of a leaderboard: the runs of a bench, and the limits of every number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from limpet.evaluation import FirstHits, Variant
from limpet.results import Defined, Disagreement, Part, Results
from limpet.support import Count, NonNegative, PositiveInt, Share
from limpet_bench.figure_values import Exact, FigureValue, PublishedNumber

Rank = Annotated[float, Field(ge=1)]
Name = Annotated[str, Field(min_length=1)]


class _Open(Part):
    """A part that allows further fields; every number is finite."""

    model_config = ConfigDict(allow_inf_nan=False)


class Facts(_Open):
    """Size of a data set as seen by the models of a cell.

    Args:
        images: Number of items that the new model was trained on.
        old_images: Number of items that the old model was trained on; None if it was not trained here.
    """

    images: PositiveInt
    classes: PositiveInt
    old_images: int | None = None
    old_classes: int | None = None

    @property
    def per_class(self) -> float:
        """Images per class."""
        return self.images / self.classes


FactsByPlace = dict[str, dict[str, Facts]]  # by data set and scenario


LEARNER = "learner"
"""The only system of sessions: queries of the last model on the gallery of all sessions."""


class Published(Exact):
    """One row of a table in a paper.

    Args:
        data: Name of the searched data; "a, b and c" if a number is a mean over several test sets.
        label: Label of the row in the suite.
        metric: The metric of the scores.
        scores: Fractions by system or, for sessions, by metric; "average" is the mean of cross and self (new).
        deviations: Standard deviations over runs, by the same keys.
        variant: Variant of P_up and P_comp in the paper.
        printed: P metrics as printed: in per cent in the sigmoid variant.
    """

    data: str
    scenario: str
    label: Name
    metric: str
    scores: dict[str, float] = Field(default_factory=dict)
    deviations: dict[str, float] = Field(default_factory=dict)
    variant: Variant | None = None
    printed: dict[str, float] = Field(default_factory=dict)
    where: str = ""

    @property
    def p_metrics(self) -> dict[str, float]:
        """P metrics as fractions."""
        factor = 100 if self.variant == "sigmoid" else 1
        return {name: round(value / factor, 9) for name, value in self.printed.items()}

    def number(self, measure: str, metric: str, variant: Variant) -> PublishedNumber | None:
        """Return one number as a fraction; None if the row does not print it in this metric and variant.

        >>> row = Published(data="a and b", scenario="open-class", label="bct", metric="map", variant="sigmoid",
        ...                 printed={"p_up": 47.5})
        >>> row.number("p_up", "map", "sigmoid"), row.number("p_up", "map", "raw")
        (PublishedNumber(value=0.475, deviation=None), None)
        """
        if measure == LEARNER:
            values, key = self.scores, metric
        elif metric != self.metric:
            return None
        elif measure in self.printed:
            values, key = self.p_metrics if variant == self.variant else {}, measure
        else:
            values, key = self.scores, measure
        return PublishedNumber(value=values[key], deviation=self.deviations.get(key)) if key in values else None


class SuiteRecord(_Open):
    """Record of a suite.

    Args:
        metric: Ranking metric; several are joined by commas.
        kind: "images" for trained models, "features" for heads over frozen models, or "sessions".
        published: Published numbers of its rows.
        facts: Sizes of the data sets.
    """

    name: str
    title: str
    description: str
    metric: str
    kind: str
    published: list[Published] = Field(default_factory=list)
    facts: FactsByPlace = Field(default_factory=dict)


class Varied(Exact):
    """The difference between a row and the row that it is a variant of.

    Args:
        row: The label of that row.
    """

    row: Name
    setting: Name
    value: Any


class _OneRun(_Open):
    """A run on one test set, or over several, with its P metrics; None if they are undefined."""

    data: str
    trained_on: Name | None = None
    scenario: str
    method: str
    label: Name
    seed: int
    p_up: Defined = None
    p_comp: Defined = None
    p_score: Defined = None

    @property
    def p_metrics(self) -> dict[str, float | None]:
        return {"p_up": self.p_up, "p_comp": self.p_comp, "p_score": self.p_score}


class Run(_OneRun):
    """One run.

    Args:
        data: The searched data: the name of the data set, or of a test set.
        trained_on: Name of the data set that the models were trained on; None if it is the searched one.
        label: What is ranked: a method with its options.
        seed: Random seed.
        changes: Settings that were chosen for the run, by dotted name.
        settings: The run's own settings beside the options, by dotted name.
        varied: What the run varies, if it is a variant of another row.
        scores: By system or measure, in that metric; None if the run failed.
        measured: All results by metric: all systems and P metrics, or the learner of sessions.
        after_sessions: By metric, its value after every session.
        verdict: Verdict of the evaluation; None if nothing could be judged.
        worse: Further metrics that are clearly worse; None if they were not tested.
        first_hits: Changes of first hits; None if no single answer is right or wrong.
        images_per_second: Training speed.
        waiting: Share of training spent waiting for data.
        failure: Why the run has no scores.
        gallery: How the old gallery was searched: "as it is", or "mapped" without embedding an item; None if that does
            not apply, as for models of images.
        pairs: Number of items, embedded by both models, that the run was fitted on; the new model encodes each of them.
        labels: Number of these items whose label was shown to the run.
    """

    options: dict[str, Any] = Field(default_factory=dict)
    changes: dict[str, Any] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    varied: Varied | None = None
    metric: str
    scores: dict[str, Defined] | None
    measured: dict[str, dict[str, Defined]] = Field(default_factory=dict)
    after_sessions: dict[str, list[Defined]] = Field(default_factory=dict)
    verdict: str | None = None
    worse: list[str] | None = None
    first_hits: FirstHits | None = None
    seconds: NonNegative | None = None
    images_per_second: NonNegative | None = None
    waiting: Share | None = None
    failure: str | None = None
    gallery: str | None = None
    pairs: PositiveInt | None = None
    labels: int | None = None

    @property
    def numbers(self) -> dict[str, float | None]:
        """All ranking values: the scores and the P metrics, by name."""
        return {**self.p_metrics, **(self.scores or {})}

    def number(self, measure: str) -> float:
        """Return one of the numbers; NaN if it is missing or the run failed."""
        found = None if self.failure else self.numbers.get(measure)
        return math.nan if found is None else found

    @property
    def speeds(self) -> dict[str, float | None]:
        """Measures of training speed, by name."""
        return {"images_per_second": self.images_per_second, "waiting": self.waiting}


class CombinedRun(_OneRun):
    """Results of one model over several test sets, with averaged P metrics.

    Args:
        tests: Names of the test sets; ``data`` lists them in words. Other fields are those of `Run`.
    """

    tests: Annotated[list[str], Field(min_length=1)]


class BenchRuns(_Open):
    """The runs of a bench, before ranking.

    Args:
        rows: The runs, including failed ones.
        combined: Runs over several test sets at once.
        tuning: The trials that chose options, as plain records.
        figures: Figures and tables beside the leaderboard, by name.
        figure_notes: Reasons why a figure, or a part of it, is not drawn, by name.
        facts: Sizes of the data sets, if the suite does not record them.
    """

    suite: SuiteRecord
    machine: str = ""
    rows: list[Run]
    combined: list[CombinedRun] = Field(default_factory=list)
    tuning: list[dict[str, Any]] = Field(default_factory=list)
    figures: dict[str, FigureValue] = Field(default_factory=dict)
    figure_notes: dict[str, str] = Field(default_factory=dict)
    facts: FactsByPlace = Field(default_factory=dict)


class Mean(Exact):
    """A mean with the standard deviation over seeds (n - 1); None if undefined, as for one seed."""

    mean: float
    deviation: NonNegative | None


class SeedMean(Mean):
    """A mean over `seeds` seeds."""

    seeds: PositiveInt


class CellMean(Mean):
    """A mean over `cells` cells."""

    cells: PositiveInt


class InCell(Exact):
    """Results of a label in a cell.

    Args:
        rank: Rank from 1, the best; None if the cell or the label is not ranked.
        complete: Whether the label has the ranking number for every seed.
        missing: Number of runs that were not made.
        means: Means by measure, over the seeds that have it.
    """

    rank: Rank | None
    complete: bool
    failed: Count
    missing: Count
    means: dict[str, SeedMean | None]


class LeaderboardCell(Exact):
    """One data set in one scenario.

    Args:
        seeds: Seeds that any label was run with.
        ranked: Whether any label is complete.
        references: Scores of the given models, if they are the same for all labels.
        labels: Results of every label.
    """

    data: str
    scenario: str
    seeds: Annotated[list[int], Field(min_length=1)]
    ranked: bool
    references: dict[str, SeedMean]
    labels: dict[str, InCell]


class Entry(Exact):
    """A label of the leaderboard.

    Args:
        method: The method that the label stands for.
        options: Options of its first run.
        reference: Description of a label that is shown but not ranked; None for a ranked label.
        rank: Average rank; None if the label is not ranked.
        means: Means by measure, over the cells that define it; None if the label lacks some of these cells.
        front: Whether no other label beats it in both P_comp and P_up.
        failed: Number of runs that failed.
        missing: Number of runs that were not made.
        compatible: Number of runs judged compatible.
        mixed: Number of runs that gained in the deciding metric and were clearly worse in another.
        best: Number of cells in which no other label was better.
    """

    label: str
    method: str
    options: dict[str, Any]
    reference: str | None
    rank: Rank | None
    means: dict[str, CellMean | None]
    front: bool
    runs: Count
    failed: Count
    missing: Count
    compatible: Count
    mixed: Count
    judged: Count
    seconds: NonNegative
    best: Count

    @property
    def incomplete(self) -> bool:
        """Whether a run failed or was not made."""
        return bool(self.failed or self.missing)


class Front(Exact):
    """Labels that no other beats in both P_comp and P_up, the number of cells, and excluded labels."""

    labels: list[str]
    cells: PositiveInt
    incomplete: list[str]


class FriedmanTest(Exact):
    """Test whether labels differ at all; see `limpet_bench.statistics.Friedman`. F is None if it is infinite."""

    chi_square: NonNegative
    f: float | None
    f_p_value: Share
    p_value: Share
    cells: Annotated[int, Field(ge=2)]
    labels: Annotated[int, Field(ge=2)]
    differ: bool


class NemenyiTest(Exact):
    """Labels that do not differ significantly: average ranks less than the critical difference apart."""

    level: Annotated[float, Field(gt=0, lt=1)]
    critical_difference: Annotated[float, Field(gt=0)]
    groups: list[list[str]]


class Standings(Exact):
    """Means, ranks and significant differences.

    Args:
        lower_is_better: Scores for which lower is better.
        cells: Cells, one for every data set in every scenario.
        references: Means over cells of the given models, for those that all cells have.
        front: Pareto front; None if no label has both P_comp and P_up.
        friedman: Friedman test; None if ranks cannot be tested.
        untested: Whether "cells" or "labels" are too few for a test; None if ranks were tested.
    """

    ranked_by: str
    lower_is_better: list[str]
    measures: list[str]
    labels: Annotated[list[Entry], Field(min_length=1)]
    cells: Annotated[list[LeaderboardCell], Field(min_length=1)]
    references: dict[str, float | None]
    front: Front | None
    friedman: FriedmanTest | None
    nemenyi: NemenyiTest | None
    untested: Literal["cells", "labels"] | None

    @property
    def ranked(self) -> list[Entry]:
        """The labels that are ranked, best first."""
        return [entry for entry in self.labels if entry.reference is None]

    @property
    def in_order(self) -> list[Entry]:
        """All labels in the order of tables: ranked ones, best first, then the others."""
        return [*self.ranked, *(entry for entry in self.labels if entry.reference is not None)]

    @property
    def columns(self) -> list[str]:
        """The measures that labels are compared by: the ranking one first, without given models."""
        others = [name for name in self.measures if name not in ("self_old", "self_independent", self.ranked_by)]
        return [name for name in (self.ranked_by, *others) if name in self.measures]


class Leaderboard(Results):
    """The results of a bench.

    Args:
        tuning: The trials that chose options, as plain records.
        rows: The runs, including failed ones.
        combined: Runs over several test sets at once.
        figures: Figures and tables beside the leaderboard, by name.
        figure_notes: Reasons why a figure, or a part of it, is not drawn, by name.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    KIND: ClassVar[str | None] = "leaderboard"
    WRITER: ClassVar[str] = "“limpet-bench”"
    AGAIN: ClassVar[str] = "run “limpet-bench”"

    kind: str
    suite: SuiteRecord
    machine: str
    command: str
    wall_seconds: NonNegative
    tuning: list[dict[str, Any]]
    rows: Annotated[list[Run], Field(min_length=1)]
    combined: list[CombinedRun] = Field(default_factory=list)
    board: Standings
    figures: dict[str, FigureValue] = Field(default_factory=dict)
    figure_notes: dict[str, str] = Field(default_factory=dict)

    @property
    def title(self) -> str:
        """The title of the suite."""
        return self.suite.title

    @property
    def failures(self) -> list[Run]:
        """The runs that failed, in their order."""
        return [run for run in self.rows if run.failure]

    def runs_of(self, cell: LeaderboardCell, label: str | None = None) -> list[Run]:
        """Return the runs in a cell, all of them or those of a label."""
        return [
            run
            for run in self.rows
            if (run.data, run.scenario) == (cell.data, cell.scenario) and label in (None, run.label)
        ]

    def metrics(self, cell: LeaderboardCell | None = None) -> list[str]:
        """Return the metrics of all runs, or of those in a cell: data sets may have metrics of their own."""
        return list(dict.fromkeys(run.metric for run in (self.rows if cell is None else self.runs_of(cell))))

    def disagreements(self) -> Iterator[Disagreement]:
        """Yield every part that contradicts another."""
        board = self.board
        names, run = [entry.label for entry in board.labels], {row.label for row in self.rows}
        if len(names) != len(set(names)) or set(names) != run:
            yield "board.labels", names, f"each label of the runs once: {', '.join(sorted(run))}"
        places, ran = ([(one.data, one.scenario) for one in found] for found in (board.cells, self.rows))
        if len(places) != len(set(places)) or set(places) != set(ran):
            yield "board.cells", places, f"each cell of the runs once: {sorted(set(ran))}"
        for number, cell in enumerate(board.cells):
            if set(cell.labels) != run:
                yield f"board.cells.{number}.labels", list(cell.labels), f"the labels {', '.join(names)}"
        tested = board.friedman is not None
        if tested != (board.nemenyi is not None) or tested == (board.untested is not None):
            yield "board.untested", board.untested, "a reason just where labels were not tested"
        for place, told in (
            ("nemenyi.groups", {name for group in (board.nemenyi.groups if board.nemenyi else ()) for name in group}),
            ("front.labels", set(board.front.labels if board.front else ())),
        ):
            if not told <= run:
                yield f"board.{place}", sorted(told), f"labels of the runs: {', '.join(names)}"
        for number, row in enumerate(self.rows):
            if (row.scores is None) != bool(row.failure):
                yield f"rows.{number}", "without scores and reason, or with both", "scores, or why there are none"
        yield from self._wrong_combined(run)

    def _wrong_combined(self, labels: set[str]) -> Iterator[Disagreement]:
        seen = set()
        for number, row in enumerate(self.combined):
            if row.label not in labels:
                yield f"combined.{number}.label", row.label, f"a label of the runs: {', '.join(sorted(labels))}"
            here = (row.data, row.trained_on, row.scenario, row.label, row.seed)
            if here in seen:
                yield f"combined.{number}", f"a second one of {row.label}, seed {row.seed}", "one per label and seed"
            seen.add(here)
