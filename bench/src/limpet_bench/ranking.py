"""Leaderboard of the runs of a bench: means, ranks, significance tests and Pareto front."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.errors import DataError, unknown_name
from limpet.evaluation import PMetrics, SelfAndCross
from limpet.support import listed
from limpet_bench.leaderboard import (
    BenchRuns,
    CellMean,
    CombinedRun,
    Entry,
    FriedmanTest,
    Front,
    InCell,
    Leaderboard,
    LeaderboardCell,
    NemenyiTest,
    Run,
    SeedMean,
    Standings,
)
from limpet_bench.statistics import (
    LEVEL,
    cell_ranks,
    critical_difference,
    friedman,
    indistinct_groups,
    mean_over_seeds,
    pareto_front,
    ranks_by_data_set,
    seed_means,
)

SYSTEMS = ("self_old", "self_independent", "self_new", "cross")


def combined_over_test_sets(rows: Sequence[Run]) -> list[CombinedRun]:
    """Return one row for every run over several test sets, with averaged P metrics.

    Every set is scored by its own ranking metric (AdvBCT, section 4.1; NDPP, section IV). A run that failed on a set
    has no row.
    """
    runs: dict[tuple[str | None, str, str, str, int], list[Run]] = {}
    for row in rows:
        runs.setdefault((row.trained_on, row.scenario, row.label, row.method, row.seed), []).append(row)
    return [
        _averaged(found)
        for found in runs.values()
        if len(found) > 1 and all(row.scores and row.scores.keys() >= set(SYSTEMS) for row in found)
    ]


def _averaged(runs: Sequence[Run]) -> CombinedRun:
    first, names = runs[0], list(dict.fromkeys(run.data for run in runs))
    found = PMetrics.mean([PMetrics.of(SelfAndCross(*(run.number(system) for system in SYSTEMS))) for run in runs])
    return CombinedRun(
        data=listed(names),
        trained_on=first.trained_on,
        scenario=first.scenario,
        method=first.method,
        label=first.label,
        seed=first.seed,
        p_up=found.p_up["raw"],
        p_comp=found.p_comp["raw"],
        p_score=found.p_score,
        tests=names,
    )


P_MEASURES = ("p_up", "p_comp", "p_score")

Place = tuple[str, str]  # data, scenario


def measures(rows: Sequence[Run]) -> list[str]:
    """Return the scores of the runs, in order of appearance, and the P metrics that any run has."""
    scores = dict.fromkeys(name for row in rows for name in row.scores or {})
    return [*scores, *(name for name in P_MEASURES if any(row.p_metrics[name] is not None for row in rows))]


@dataclass(frozen=True)
class Runs:
    """Runs by cell and label."""

    rows: Sequence[Run]

    @cached_property
    def cells(self) -> dict[Place, list[int]]:
        """The seeds of every cell, over all labels."""
        found: dict[Place, set[int]] = {}
        for row in self.rows:
            found.setdefault((row.data, row.scenario), set()).add(row.seed)
        return {place: sorted(seeds) for place, seeds in found.items()}

    @cached_property
    def labels(self) -> list[str]:
        """The labels, in the order of their appearance."""
        return list(dict.fromkeys(row.label for row in self.rows))

    @cached_property
    def means(self) -> dict[str, dict[tuple[str, str, str], SeedMean | None]]:
        """Mean and deviation over seeds by measure, cell and label."""
        return {name: seed_means(self.rows, name) for name in measures(self.rows)}

    def of(self, label: str, place: Place | None = None) -> list[Run]:
        """Return the runs of a label, everywhere or in a cell."""
        places = self.cells if place is None else (place,)
        return [row for row in self.rows if row.label == label and (row.data, row.scenario) in places]

    def models_of(self, place: Place) -> Place:
        """Return the training data and the scenario of a cell's models."""
        row = next(row for row in self.rows if (row.data, row.scenario) == place)
        return row.trained_on or row.data, place[1]

    def mean(self, measure: str, place: Place, label: str) -> SeedMean | None:
        """Return mean and deviation over the seeds of a label that have the number; None if none has."""
        return self.means.get(measure, {}).get((*place, label))

    def complete(self, measure: str, place: Place, label: str) -> bool:
        """Return whether a label has the number for every seed of a cell."""
        found = self.mean(measure, place, label)
        return found is not None and found.seeds == len(self.cells[place])

    def defined(self, measure: str) -> list[Place]:
        """Return the cells with at least one complete label; P_comp, for example, is not defined in every cell."""
        return [place for place in self.cells if any(self.complete(measure, place, label) for label in self.labels)]

    def values(self, measure: str, places: Sequence[Place], labels: Sequence[str]) -> NDArray[np.float64]:
        """Return the means over seeds (cells, labels), NaN for an incomplete label."""
        found = np.full((len(places), len(labels)), np.nan)
        for i, place in enumerate(places):
            for j, label in enumerate(labels):
                mean = self.mean(measure, place, label)
                if mean is not None and self.complete(measure, place, label):
                    found[i, j] = mean.mean
        return found

    def overall(self, measure: str, label: str) -> CellMean | None:
        """Return the mean over the cells that define a measure; None if the label is incomplete in one.

        The deviation is over the per-seed means over cells; None for one seed, or if seeds differ between cells.
        """
        places = self.defined(measure)
        if not places or not all(self.complete(measure, place, label) for place in places):
            return None
        by_cell = [
            {run.seed: run.number(measure) for run in sorted(self.of(label, place), key=lambda run: run.seed)}
            for place in places
        ]
        mean, deviation = float(np.mean([np.mean(list(found.values())) for found in by_cell])), None
        if len({tuple(found) for found in by_cell}) == 1:
            by_seed = mean_over_seeds(np.mean([list(found.values()) for found in by_cell], axis=0))
            deviation = by_seed.deviation if by_seed else None
        return CellMean(mean=mean, deviation=deviation, cells=len(places))


REFERENCES = ("self_old", "self_independent")
"""Scores of the given models, which belong to no label."""


def leaderboard_of(
    found: BenchRuns,
    *,
    command: str,
    wall_seconds: float,
    references: Mapping[str, str] | None = None,
    ranked_by: str | None = None,
    lower_is_better: Sequence[str] = ("forgetting",),
) -> Leaderboard:
    """Return the leaderboard for pages and tables.

    Args:
        found: Runs of the bench.
        command: Command line of the bench.
        wall_seconds: Wall time in seconds.
        references: Labels that are shown but not ranked, such as an upper bound, with descriptions.
        ranked_by: Ranking score; by default "cross" if runs have it, else the metric of the suite.
        lower_is_better: Scores for which lower is better.

    Raises:
        ConfigError: No run has the ranking score, or two parts contradict each other.
        DataError: No runs were given, two have the same label, cell and seed, or a label has two methods.
    """
    if not found.rows:
        raise DataError("No runs.", expected="at least one", to_do="run the suite first.")
    methods: dict[str, str] = {}
    for row in found.rows:
        if methods.setdefault(row.label, row.method) != row.method:
            raise DataError(
                f"The label '{row.label}' stands for '{methods[row.label]}' and '{row.method}'.",
                expected="one method per label",
            )
    chosen = _ranked_by(found, ranked_by)
    return Leaderboard.of(
        suite=found.suite,
        machine=found.machine,
        command=command,
        wall_seconds=wall_seconds,
        tuning=found.tuning,
        rows=found.rows,
        combined=found.combined,
        figures=found.figures,
        figure_notes=found.figure_notes,
        board=_board(Runs(found.rows), chosen, dict(references or {}), set(lower_is_better)),
    )


def _ranked_by(found: BenchRuns, asked: str | None) -> str:
    names = measures(found.rows)
    if asked is None:
        asked = "cross" if "cross" in names or not names else found.suite.metric
    if names and asked not in names:
        raise unknown_name("score to rank by", asked, names)
    return asked


def _board(runs: Runs, ranked_by: str, references: Mapping[str, str], lower: set[str]) -> Standings:
    ranked = [label for label in runs.labels if label not in references]
    places = [place for place in runs.cells if any(runs.complete(ranked_by, place, label) for label in ranked)]
    values = runs.values(ranked_by, places, ranked)
    ranks = cell_ranks(values, higher_is_better=ranked_by not in lower)
    judged = ranks_by_data_set(ranks, [runs.models_of(place)[0] for place in places])
    averaged = judged if len(judged) > 1 else ranks  # a single data set allows no test, and its cells give finer ranks
    average = dict(zip(ranked, averaged.mean(axis=0).tolist(), strict=True)) if places and ranked else {}
    rank_of = {place: dict(zip(ranked, row.tolist(), strict=True)) for place, row in zip(places, ranks, strict=True)}
    front = _front(runs)
    entries = []
    for label in runs.labels:
        best = sum(found.get(label) == min(found.values()) for found in rank_of.values())
        on_front = front is not None and label in front.labels
        entries.append(_entry(runs, label, references.get(label), average.get(label), on_front, best))
    return Standings(
        ranked_by=ranked_by,
        lower_is_better=sorted(lower),
        measures=list(runs.means),
        labels=sorted(entries, key=_order),  # ties keep their order
        cells=[_cell(runs, place, rank_of.get(place, {}), ranked_by) for place in runs.cells],
        references=_given(runs),
        front=front,
        **_tests(judged, [label for label in ranked if label in average]),
    )


def _order(entry: Entry) -> tuple[float, bool]:
    return math.inf if entry.rank is None else entry.rank, entry.incomplete


def _entry(runs: Runs, label: str, reference: str | None, rank: float | None, front: bool, best: int) -> Entry:
    rows = runs.of(label)
    verdicts = [row.verdict for row in rows if row.verdict is not None]
    return Entry(
        label=label,
        method=rows[0].method,
        options=rows[0].options,
        reference=reference,
        rank=rank,
        means={name: runs.overall(name, label) for name in runs.means},
        front=front,
        runs=len(rows),
        failed=sum(bool(row.failure) for row in rows),
        missing=sum(map(len, runs.cells.values())) - len(rows),
        compatible=verdicts.count("compatible"),
        mixed=verdicts.count("mixed"),
        judged=len(verdicts),
        seconds=float(sum(row.seconds or 0.0 for row in rows)),
        best=best,
    )


def _cell(runs: Runs, place: Place, ranks: Mapping[str, float], ranked_by: str) -> LeaderboardCell:
    found = {}
    for label in runs.labels:
        rows = runs.of(label, place)
        found[label] = InCell(
            rank=ranks.get(label),
            complete=runs.complete(ranked_by, place, label),
            failed=sum(bool(row.failure) for row in rows),
            missing=len(runs.cells[place]) - len(rows),
            means={name: runs.mean(name, place, label) for name in runs.means},
        )
    return LeaderboardCell(
        data=place[0],
        scenario=place[1],
        seeds=runs.cells[place],
        ranked=bool(ranks),
        references={name: mean for name, mean in _given_in(runs, place).items() if mean is not None},
        labels=found,
    )


def _given(runs: Runs) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name in REFERENCES:
        means = [_given_in(runs, place)[name] for place in runs.cells]
        present = [mean.mean for mean in means if mean is not None]
        found[name] = float(np.mean(present)) if len(present) == len(means) else None
    return found


def _given_in(runs: Runs, place: Place) -> dict[str, SeedMean | None]:
    """Return mean and deviation over seeds of the given models; None if they differ between labels.

    In a chain, the searched gallery is that of a model of the label itself, so labels share no system.
    """
    found: dict[str, SeedMean | None] = {}
    for name in REFERENCES:
        by_seed: dict[int, list[float]] = {}
        for row in runs.rows:
            value = row.number(name)
            if (row.data, row.scenario) == place and not math.isnan(value):
                by_seed.setdefault(row.seed, []).append(value)
        one = all(np.allclose(values, values[0], rtol=0, atol=1e-9) for values in by_seed.values())
        found[name] = mean_over_seeds([np.mean(values) for values in by_seed.values()]) if one else None
    return found


def _front(runs: Runs) -> Front | None:
    """Return the labels that no other beats in both P_comp and P_up; None if none has both.

    Labels that are incomplete in a cell that defines them are excluded.
    """
    both = {label: [runs.overall(name, label) for name in ("p_comp", "p_up")] for label in runs.labels}
    points = {label: [mean.mean for mean in found if mean] for label, found in both.items() if None not in found}
    if not points:
        return None
    marked = pareto_front(list(points.values()))
    return Front(
        labels=[label for label, on in zip(points, marked, strict=True) if on],
        cells=len(runs.defined("p_comp")),
        incomplete=[label for label in runs.labels if label not in points],
    )


def _tests(ranks: NDArray[np.float64], labels: Sequence[str]) -> dict[str, Any]:
    """Test whether labels differ at all, and which of them differ significantly; None where a test is not possible.

    Ranks have a row per data set.

    If the Friedman test finds no difference, no two labels differ significantly (Demšar, section 3.2.2).
    """
    sets, count = ranks.shape
    if min(sets, count) < 2:
        return {"friedman": None, "nemenyi": None, "untested": "cells" if sets < 2 else "labels"}
    tested = friedman(ranks)
    difference = critical_difference(count, sets)
    differ = tested.p_value < LEVEL
    groups = indistinct_groups(ranks.mean(axis=0), difference if differ else math.inf)
    f = tested.f if math.isfinite(tested.f) else None
    named = [[labels[place] for place in group] for group in groups]
    return {
        "friedman": FriedmanTest(**{**tested._asdict(), "f": f, "differ": differ}),
        "nemenyi": NemenyiTest(level=LEVEL, critical_difference=difference, groups=named),
        "untested": None,
    }
