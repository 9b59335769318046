"""The numbers that suites quote from their papers, against two transcriptions of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .shipped import EVERY

SYSTEMS = ("old_self", "indep_self", "new_self", "cross")
SUITES = {"AdvBCT": "advbct-", "HBCT": "hbct-", "NDPP/ODPP": "ndpp-"}
TABLES = json.loads((Path(__file__).parents[1] / "golden" / "paper_tables.json").read_text(encoding="utf-8"))
TOTALS = json.loads((Path(__file__).parent / "published_totals.json").read_text(encoding="utf-8"))


def quoted_scores(paper: str) -> set[tuple[float, ...]]:
    """All scores of old, independent and new model and across both that suites of a paper quote."""
    systems = ("self_old", "self_independent", "self_new", "cross")
    published = [row for name, suite in EVERY.items() if name.startswith(SUITES[paper]) for row in suite.published]
    return {tuple(row["scores"].get(one) for one in systems) for row in published if "scores" in row}


@pytest.mark.parametrize("paper", SUITES)
def test_published_scores_hold_every_row_of_the_golden_tables(paper: str) -> None:
    quoted, compared = quoted_scores(paper), 0
    for kind, unit in (("consistent_sigmoid", 100), ("consistent_raw", 1)):
        for row in (row for row in TABLES[kind] if row["paper"] == paper):
            for scores in zip(*(row[system] for system in SYSTEMS), strict=True):
                assert tuple(round(score / unit, 6) for score in scores) in quoted, (row["method"], scores)
                compared += 1
    assert compared > 20


def numbers_of(value: Any) -> Iterator[float]:
    """All numbers within a quoted row."""
    if isinstance(value, dict):
        for one in value.values():
            yield from numbers_of(one)
    elif isinstance(value, int | float):
        yield value


def control_totals(published: list[dict[str, Any]]) -> dict[str, float]:
    """The sum of all numbers quoted of every row of a table."""
    totals: dict[str, float] = {}
    for row in published:
        totals[row["label"]] = totals.get(row["label"], 0.0) + sum(numbers_of(row))
    return {label: round(total, 6) for label, total in totals.items()}


@pytest.mark.parametrize("suite", TOTALS)
def test_published_numbers_add_up_to_their_control_totals(suite: str) -> None:
    """Taken when every number was compared with its paper. Another total needs the paper at hand, not a new total."""
    assert control_totals(list(EVERY[suite].published)) == TOTALS[suite]


def test_published_numbers_all_have_a_control_total() -> None:
    assert set(TOTALS) == {name for name, suite in EVERY.items() if suite.published}
