"""What a leaderboard says over several test sets at once: P metrics per scenario and label, means over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from holdfast.bench.leaderboard import CombinedRun, Leaderboard, SeedMean
from holdfast.reports.leaderboard_names import measure_name, sets_name
from holdfast.reports.leaderboard_tables import MARK, Numbers, kinds_of, named, standings, with_deviation

MEASURES = ("p_up", "p_comp", "p_score")


class OverSets(NamedTuple):
    """What labels come to over the same test sets in one scenario.

    Args:
        sets: The test sets, and what models were trained on.
        scenario: The scenario.
        seeds: Those that any label was run with.
        numbers: P_comp, P_up and P_score, a row per label in the order of the board; nothing is ranked.
        incomplete: Whether a number is of fewer seeds, and marked.
    """

    sets: str
    scenario: str
    seeds: list[int]
    numbers: Numbers
    incomplete: bool


def over_sets(results: Leaderboard) -> list[OverSets]:
    """Return a table for all test sets and scenarios that were measured together, in the order of their runs."""
    groups: dict[tuple[str, str], list[CombinedRun]] = {}
    for run in results.combined:
        groups.setdefault((sets_name(run), run.scenario), []).append(run)
    return [_over_sets(sets, scenario, runs, results) for (sets, scenario), runs in groups.items()]


def _over_sets(sets: str, scenario: str, runs: Sequence[CombinedRun], results: Leaderboard) -> OverSets:
    present = {run.label for run in runs}
    shown = [entry for entry in results.board.in_order if entry.label in present]
    seeds = sorted({run.seed for run in runs})
    written, values, incomplete = [], [], False
    for entry in shown:
        of_label = [run for run in runs if run.label == entry.label]
        means = [_mean_over_seeds(of_label, measure) for measure in MEASURES]
        fewer = [mean is not None and mean.seeds < len(seeds) for mean in means]
        cells = [
            with_deviation(measure, mean) + MARK * less
            for measure, mean, less in zip(MEASURES, means, fewer, strict=True)
        ]
        written.append([named(entry), *cells])
        values.append([None if mean is None or less else mean.mean for mean, less in zip(means, fewer, strict=True)])
        incomplete |= any(fewer)
    kinds = kinds_of(shown)
    ranked = [row for row, kind in zip(values, kinds, strict=True) if kind == "ranked"]
    standing = standings(ranked, [False] * len(MEASURES), len(MEASURES), len(kinds))
    numbers = Numbers(["method", *map(measure_name, MEASURES)], written, standing, kinds)
    return OverSets(sets, scenario, seeds, numbers, incomplete)


def _mean_over_seeds(runs: Sequence[CombinedRun], measure: str) -> SeedMean | None:
    found = [value for run in runs if (value := run.p_metrics[measure]) is not None]
    if not found:
        return None
    return SeedMean(mean=fmean(found), deviation=stdev(found) if len(found) > 1 else None, seeds=len(found))


def over_sets_headings(found: Sequence[OverSets]) -> tuple[str, list[str]]:
    """Return the test sets where all these tables are of the same, else nothing; and what each table is of."""
    sets = {table.sets for table in found}
    if len(sets) == 1:
        return sets.pop(), [table.scenario for table in found]
    return "", [f"{table.sets}, {table.scenario}" for table in found]


def over_sets_notes(found: Sequence[OverSets]) -> list[str]:
    """Return what has to be said below these tables: the mark, and that a single seed has no deviation."""
    notes = []
    if any(table.incomplete for table in found):
        notes.append(f"{MARK} without this number for some seeds: the mean of the others, and never best.")
    if found and all(len(table.seeds) == 1 for table in found):
        notes.append("One seed: there is no deviation, and a difference may be chance.")
    return notes
