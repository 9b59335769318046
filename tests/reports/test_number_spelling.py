"""One spelling of numbers on every page: 1,234 and 0.5 and −0.5 and 12 %, in words, tables and charts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from limpet.evaluation.chain import ChainResults
from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.evaluation.test_sets import CombinationResults
from limpet.reports.adapt import render_adapt_report
from limpet.reports.chain import render_chain_report
from limpet.reports.combined import render_combined_report
from limpet.reports.evaluation import render_report

from .pages import misspelt_numbers


@pytest.fixture(scope="module")
def pages(
    results: EvaluationResults,
    unlabelled: Evaluation,
    adapted: dict[str, Any],
    make_results: Callable[..., EvaluationResults],
    make_chain: Callable[..., ChainResults],
    make_combination: Callable[..., CombinationResults],
) -> dict[str, str]:
    return {
        "report": render_report(results),
        "unlabelled": render_report(make_results({"new": unlabelled})),
        "adapt": render_adapt_report(adapted),
        "chain": render_chain_report(make_chain({"e1": 1.6, "second": 1.2}, [1.0])),
        "combined": render_combined_report(make_combination({"roxford": {}, "rparis": {"gate_metric": "recall@1"}})),
    }


@pytest.mark.parametrize("page", ["report", "unlabelled", "adapt", "chain", "combined"])
def test_numbers_are_spelt_in_one_way(pages: dict[str, str], page: str) -> None:
    assert misspelt_numbers(pages[page]) == []
