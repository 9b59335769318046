"""How large the data sets of a bench are, as its models saw them."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.bench.cache import CellCache
from holdfast.bench.cells import Cell
from holdfast.bench.leaderboard import Facts, FactsByPlace
from holdfast.bench.plan import Row


def facts_of(rows: Sequence[Row], cache: CellCache) -> FactsByPlace:
    """Return images and classes by data set and scenario, from the records of the first finished run of each.

    Returns:
        By data set and scenario, those of the old model where one was trained too. Nothing where no run is finished,
        or where its models do not say.
    """
    found: FactsByPlace = {}
    for row in rows:
        if row.scenario in found.get(row.data, {}) or not (new := _seen(row.score.needs.get("model"), cache)):
            continue
        side = row.score.needs.get("old")
        old = _seen(None if side is None else side.needs.get("model"), cache)
        found.setdefault(row.data, {})[row.scenario] = Facts(
            **new, **{f"old_{name}": size for name, size in old.items()}
        )
    return found


def _seen(model: Cell | None, cache: CellCache) -> dict[str, int]:
    """Return what a model was trained on; nothing where it is not known."""
    record = None if model is None else cache.record(model)
    if record is None:
        return {}
    values = record["values"]
    seen = {"images": values.get("images", values.get("pairs")), "classes": values.get("classes")}
    return {} if None in seen.values() else seen
