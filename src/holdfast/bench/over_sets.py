"""Rows of several test sets at once: P metrics averaged over them, as papers print them."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.bench.leaderboard import CombinedRun, Run
from holdfast.evaluation.compatibility import PMetrics, SelfAndCross

SYSTEMS = ("self_old", "self_independent", "self_new", "cross")


def over_sets(rows: Sequence[Run]) -> list[CombinedRun]:
    """Return one row for every run that searched several test sets, P metrics averaged over these.

    Every set counts by its own metric (AdvBCT, section 4.1; NDPP, section IV). A run that failed on one of them has
    none.
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
        data=f"{', '.join(names[:-1])} and {names[-1]}",
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
