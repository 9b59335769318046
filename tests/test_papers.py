"""The tables and figures of the papers: each that is a result has a suite at the paper's size."""

from __future__ import annotations

from limpet_bench.suites import PAPERS, SUITES, suite_named

RESULTS = {
    "ndpp": "table-2 table-3 table-4 table-5 figure-2 figure-4 figure-5 figure-6",
    "hbct": "table-1 table-2 table-3 table-4 table-5 table-6 figure-2 figure-5 figure-6 figure-7",
    "cvs": "table-1 table-2 table-c-1 table-c-2 table-c-3 table-c-4 table-c-5 table-c-6 "
    "figure-3 figure-4 figure-5 figure-a-4",
    "advbct": "table-2 table-3 figure-2 figure-5 figure-6",
    "mixbct": "table-2 table-3 table-4 table-5 table-6 table-7 table-8 table-9 figure-3 figure-4 figure-5 figure-6",
}
"""Listed by hand from their texts; figure 4 of HBCT is drawn by a script."""


def test_every_result_of_a_paper_has_a_suite() -> None:
    found: dict[str, set[str]] = {paper: set() for paper in PAPERS}
    for name in SUITES:
        for item in suite_named(name).reproduces:
            paper, _, number = item.partition("/")
            assert number in RESULTS[paper].split(), (name, item)
            if not name.endswith("-small"):
                found[paper].add(number)
    assert found == {paper: set(items.split()) for paper, items in RESULTS.items()}
