"""From finished cells to the rows that boards are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from holdfast.bench.cache import CellCache
from holdfast.bench.cells import Cell
from holdfast.bench.leaderboard import Run
from holdfast.bench.plan import Row
from holdfast.bench.pool import blocked_by
from holdfast.evaluation.compatibility import PMetrics, SelfAndCross

Values = Mapping[str, Any]


def result_of(row: Row, cache: CellCache, sharing: Mapping[str, int] | None = None) -> Run:
    """Return what a row became: scores, P metrics, verdict and seconds; or why it has none.

    "p_up" and "p_comp" are raw, "p_score" is P_1 of the sigmoid variant; None where it is not defined, as in sessions.
    "seconds" are those of the row's own model, what it embeds and its scores, and not those of the models that rows
    share; "images_per_second" and "waiting", the share of time spent waiting for data, are those of its training.

    Args:
        row: The row.
        cache: Where its cells are.
        sharing: How many rows have a cell for their own, by its address, such as one for each of several test sets:
            each is told its part of the seconds. One, where it is left out.
    """
    head: dict[str, Any] = {
        "data": row.data,
        "trained_on": row.trained_on,
        "scenario": row.scenario,
        "label": row.label,
        "changes": dict(row.changes),
        "settings": dict(row.settings),
        "seed": row.seed,
        "metric": row.metric,
    }
    reading = READINGS[row.score.kind]
    experiment = reading.trained(row.score).settings["experiment"]
    head |= {"method": experiment["method"], "options": experiment["options"]}
    record = cache.record(row.score)
    if record is None:
        reason = blocked_by(row.score, cache) or "it was not run"
        return Run(**head, scores=None, failure=reason)
    seconds = sum(
        found["seconds"] / (sharing or {}).get(cell.address, 1)
        for cell in own_cells(row)
        if (found := cache.record(cell)) is not None
    )
    speed = _speed(cache.record(reading.trained(row.score)))
    return Run(**head, **reading.values(record["values"], row.metric), **speed, seconds=seconds)


def own_cells(row: Row) -> list[Cell]:
    """Return the cells that are made for a row, each address once: its model, what that embeds, and its score."""
    roles = READINGS[row.score.kind].own
    cells = (row.score, *(cell for role, cell in row.score.needs.items() if role in roles))
    return list({cell.address: cell for cell in cells}.values())


def _speed(trained: Mapping[str, Any] | None) -> dict[str, float]:
    """Return how fast a model was trained, where its cell says so."""
    values = {} if trained is None else trained["values"]
    seen, seconds = values.get("seen"), values.get("seconds")
    if not seen or not seconds:
        return {}
    return {"images_per_second": seen / seconds, "waiting": values["waiting"] / seconds}


def _of_upgrade(values: Values, metric: str) -> dict[str, Any]:
    scores = values["scores"][metric]
    return {"scores": scores, **_p(scores), "verdict": values["verdict"], "worse": values.get("worse")}


def _of_sessions(values: Values, metric: str) -> dict[str, Any]:
    """Return what sessions are measured by, whichever of it ranks; there is no old model that P could compare with."""
    return {"scores": values["scores"]}


class Reading(NamedTuple):
    """How a row is read from its cell.

    Args:
        trained: Returns the cell whose experiment the row is about.
        own: Roles of the cells, beside the one that scores, that are made for the row alone.
        values: Returns scores, P metrics and verdict from the values of the record and the metric that ranks.
    """

    trained: Callable[[Cell], Cell]
    own: tuple[str, ...]
    values: Callable[[Values, str], dict[str, Any]]


READINGS = {
    "score": Reading(lambda cell: cell.needs["model"], ("new", "model"), _of_upgrade),
    "sessions": Reading(lambda cell: cell, ("first",), _of_sessions),
}
"""By the kind of the cell that a row ends with."""


def _p(scores: dict[str, float]) -> dict[str, float | None]:
    systems = ("self_old", "self_independent", "self_new", "cross")
    found = PMetrics.of(SelfAndCross(*(scores[system] for system in systems)))
    return {"p_up": found.p_up["raw"], "p_comp": found.p_comp["raw"], "p_score": found.p_score}
