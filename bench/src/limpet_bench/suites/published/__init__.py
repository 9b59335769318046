"""What papers print, one CSV file per paper with the suite, the row and the page or section of every number."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

from limpet_bench.suite import Values

SYSTEMS = ("self_old", "self_independent", "self_new", "cross", "ar@1", "ar@2", "ar@4", "accuracy")
P_METRICS = ("p_up", "p_comp", "p_score")


def published(suite: str) -> list[Values]:
    """Return what a paper prints of a table or figure.

    Args:
        suite: Name of the suite, such as "ndpp-table-2".

    Returns:
        A record per row of the paper: "data", "scenario", "label" and "metric", with "scores", their "deviations", and
        P metrics as they are "printed", in the "variant" that is printed.
    """
    return [_record(row) for row in _rows(suite.partition("-")[0]) if row["suite"] == suite]


@cache
def _rows(paper: str) -> list[dict[str, str]]:
    with (resources.files(__name__) / f"{paper}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _record(row: dict[str, str]) -> Values:
    def numbers(names: tuple[str, ...], prefix: str = "") -> dict[str, float]:
        return {name: float(value) for name in names if (value := row.get(prefix + name))}

    parts = {
        "scores": numbers(SYSTEMS),
        "deviations": numbers(SYSTEMS, "± "),
        "variant": row.get("variant"),
        "printed": numbers(P_METRICS),
        "where": row.get("where"),
    }
    key = {name: row[name] for name in ("data", "scenario", "label", "metric")}
    return {**key, **{name: value for name, value in parts.items() if value}}
