"""Equal tuning: every row gets as many trials from a stated space, and is chosen on validation classes alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from holdfast.bench.cache import CellCache
from holdfast.bench.plan import Planner, Row
from holdfast.bench.pool import blocked_by
from holdfast.bench.results import result_of
from holdfast.bench.sources import VALIDATION
from holdfast.bench.suite import Suite, Tuning

Changes = Mapping[str, Any]
Place = tuple[str, str, str]  # data set, scenario, label

LEAST_P_UP = -0.05
"""What costs the new model more of its own quality is taken only where all trials do."""
_ROUNDING = 1e-9  # means nearer than this are equal: their sums were added in another order


class Trial(NamedTuple):
    """One way to set a row, and how it did on validation data, averaged over seeds."""

    place: Place
    changes: Changes
    p_comp: float | None
    p_up: float | None
    failure: str | None
    chosen: bool


def space_of(suite: Suite, label: str) -> dict[str, list[Any]]:
    """Return what is searched for a row: its own space, or that of the suite."""
    own = suite.methods[label].search
    return dict(own if own is not None else suite.tuning.search if suite.tuning is not None else {})


def trials_of(space: Mapping[str, Sequence[Any]], budget: int) -> list[Changes]:
    """Return the settings to try: all of a space that fits the budget, else so many drawn from it without repetition.

    >>> trials_of({"options.weight": [1, 2], "recipe.learning_rate": [0.1]}, budget=5)
    [{'options.weight': 1, 'recipe.learning_rate': 0.1}, {'options.weight': 2, 'recipe.learning_rate': 0.1}]
    """
    every: list[Changes] = (
        [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())] if space else []
    )
    if len(every) <= budget:
        return every
    rows = np.sort(np.random.default_rng(0).choice(len(every), budget, replace=False))
    return [every[row] for row in rows.tolist()]


def planned_trials(suite: Suite, root: Any) -> list[Row]:
    """Return the rows of all trials; none where a row has a single way to be set."""
    tuning = suite.tuning
    if tuning is None:
        return []
    planner = Planner(suite, root, tuning.data_options, VALIDATION)
    return [
        row
        for data in suite.data
        for scenario in suite.conditions
        for label in suite.methods
        for changes in _worth_trying(suite, label, tuning)
        for seed in tuning.seeds
        for row in planner.of(data, scenario, label, seed, changes)
    ]


def _worth_trying(suite: Suite, label: str, tuning: Tuning) -> list[Changes]:
    found = trials_of(space_of(suite, label), tuning.budget)
    return found if len(found) > 1 else []


def judged(rows: Sequence[Row], cache: CellCache) -> list[Trial]:
    """Return how every trial did, the best of each place marked.

    The best has the highest mean P_comp among those whose mean P_up is at least -0.05; where none has, the highest
    P_up. The first of equals is taken, and the first of all where P_comp is not defined, the independent model being no
    better than the old one; a trial that failed is never chosen.
    """
    found: dict[tuple[Place, str], list[Row]] = {}
    for row in rows:
        found.setdefault(((row.trained_on, row.scenario, row.label), repr(sorted(row.changes.items()))), []).append(row)
    trials = [_trial(place, of_one, cache) for (place, _), of_one in found.items()]
    best: dict[Place, Trial] = {}
    for trial in trials:
        known = best.get(trial.place)
        if trial.failure is None and (known is None or _order(trial) > _order(known)):
            best[trial.place] = trial
    return [trial._replace(chosen=best.get(trial.place) is trial) for trial in trials]


def chosen(suite: Suite, trials: Sequence[Trial]) -> dict[Place, Changes]:
    """Return the settings of every place: those of its best trial, or the only ones there are."""
    single = {
        (data, scenario, label): ways[0]
        for label in suite.methods
        if suite.tuning is not None and len(ways := trials_of(space_of(suite, label), suite.tuning.budget)) == 1
        for data in suite.data
        for scenario in suite.conditions
    }
    return single | {trial.place: trial.changes for trial in trials if trial.chosen}


def _order(trial: Trial) -> tuple[bool, float]:
    up, comp = trial.p_up, trial.p_comp
    if up is None or comp is None:
        return False, -np.inf
    return (True, comp) if up >= LEAST_P_UP - _ROUNDING else (False, up)


def _trial(place: Place, rows: Sequence[Row], cache: CellCache) -> Trial:
    failure = next((reason for row in rows if (reason := blocked_by(row.score, cache)) is not None), None)
    if failure is not None:
        return Trial(place, rows[0].changes, None, None, failure, chosen=False)
    results = [result_of(row, cache) for row in rows]
    p_comp, p_up = _mean(result.p_comp for result in results), _mean(result.p_up for result in results)
    return Trial(place, rows[0].changes, p_comp, p_up, None, chosen=False)


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean; None where one is not defined."""
    found = list(values)
    known = [value for value in found if value is not None]
    return float(np.mean(known)) if len(known) == len(found) else None
