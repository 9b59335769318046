"""From finished cells to the rows that boards are made of."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from holdfast.bench.cache import CellCache
from holdfast.bench.cells import Cell, in_order
from holdfast.bench.plan import Row
from holdfast.bench.pool import blocked_by
from holdfast.evaluation.compatibility import p_comp, p_score, p_up

Values = Mapping[str, Any]


def result_of(row: Row, cache: CellCache, metric: str) -> dict[str, Any]:
    """Return what a row became: scores, P metrics, verdict and seconds; or why it has none.

    "p_up" and "p_comp" are raw, "p_score" is P_1 of the sigmoid variant; None where it is not defined, as in sessions.
    """
    head = {
        "data": row.data,
        "scenario": row.scenario,
        "label": row.label,
        "changes": dict(row.changes),
        "seed": row.seed,
        "metric": metric,
    }
    reading = READINGS[row.score.kind]
    experiment = reading.trained(row.score).settings["experiment"]
    head |= {"method": experiment["method"], "options": experiment["options"]}
    record = cache.record(row.score)
    if record is None:
        reason = blocked_by(row.score, cache) or "it was not run"
        nothing = dict.fromkeys(("scores", "p_up", "p_comp", "p_score", "verdict", "seconds"))
        return {**head, **nothing, "failure": reason}
    seconds = sum(found["seconds"] for cell in in_order([row.score]) if (found := cache.record(cell)) is not None)
    return {**head, **reading.values(record["values"], metric), "seconds": seconds, "failure": None}


def _of_upgrade(values: Values, metric: str) -> dict[str, Any]:
    scores = values["scores"][metric]
    return {"scores": scores, **_p(scores), "verdict": values["verdict"]}


def _of_sessions(values: Values, metric: str) -> dict[str, Any]:
    """Return what sessions are measured by, whichever of it ranks; there is no old model that P could compare with."""
    return {"scores": values["scores"], **dict.fromkeys(("p_up", "p_comp", "p_score", "verdict"))}


class Reading(NamedTuple):
    """How a row is read from its cell.

    Args:
        trained: Returns the cell whose experiment the row is about.
        values: Returns scores, P metrics and verdict from the values of the record and the metric that ranks.
    """

    trained: Callable[[Cell], Cell]
    values: Callable[[Values, str], dict[str, Any]]


READINGS = {
    "score": Reading(lambda cell: cell.needs["model"], _of_upgrade),
    "sessions": Reading(lambda cell: cell, _of_sessions),
}
"""By the kind of the cell that a row ends with."""


def _p(scores: dict[str, float]) -> dict[str, float | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of an independent model that is not better than the old one
        up = {kind: float(p_up(scores["self_new"], scores["self_independent"], kind)) for kind in ("raw", "sigmoid")}
        comp = {
            kind: float(p_comp(scores["cross"], scores["self_old"], scores["self_independent"], kind))
            for kind in ("raw", "sigmoid")
        }
    found = {"p_up": up["raw"], "p_comp": comp["raw"], "p_score": float(p_score(comp["sigmoid"], up["sigmoid"]))}
    return {name: None if math.isnan(value) else value for name, value in found.items()}
