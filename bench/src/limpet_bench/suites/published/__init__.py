"""Numbers printed in papers: one CSV file per paper, with suite, row and table or section of every number."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from typing import Any

from limpet_bench.leaderboard import Published

SCORES = ("self_old", "self_independent", "self_new", "cross", "average", "ar@1", "ar@2", "ar@4", "accuracy")
P_METRICS = ("p_up", "p_comp", "p_score")


def published(suite: str) -> list[Published]:
    """Return the numbers that a paper prints for the table or figure of a suite.

    Args:
        suite: Name of the suite, such as "ndpp-table-2".
    """
    return [_row(cells) for cells in _lines(suite.partition("-")[0]) if cells["suite"] == suite]


@cache
def _lines(paper: str) -> list[dict[str, str]]:
    with (resources.files(__name__) / f"{paper}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _row(cells: dict[str, str]) -> Published:
    def numbers(names: tuple[str, ...], prefix: str = "") -> dict[str, float]:
        return {name: float(value) for name in names if (value := cells.get(prefix + name))}

    words: dict[str, Any] = {name: cells[name] for name in ("data", "scenario", "label", "metric", "where")}
    words["variant"] = cells.get("variant") or None
    return Published(
        **words,
        scores=numbers(SCORES),
        deviations=numbers(SCORES, "± "),
        printed=numbers(P_METRICS),
    )
