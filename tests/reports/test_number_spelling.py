"""One spelling of numbers on every page: 1,234 and 0.5 and −0.5 and 12 %, in words, tables and charts."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from limpet.evaluation.chain import ChainResults
from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.evaluation.test_sets import CombinationResults
from limpet.reports.adapt import render_adapt_report
from limpet.reports.chain import render_chain_report
from limpet.reports.combined import render_combined_report
from limpet.reports.evaluation import render_report
from limpet_bench.reports.sessions import render_sessions_report

WRONG = {
    "a per cent without a space": r"\d%",
    "a hyphen for a minus": r"(?<![\w.−-])-\.?\d",
    "thousands without a comma": r"(?<![\w.,:/#-])(?!(?:19|20)\d\d\b)\d{4,}(?![\w.:-])",
    "a decimal point without its zero": r"(?<![\w.])\.\d",
}


def read(page: str) -> str:
    """Return what people read on a page: not its code, and not the fingerprints and versions of programs."""
    shown = re.sub(r"<(style|script|code|desc|title)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", " ", shown))


@pytest.fixture(scope="module")
def pages(
    results: EvaluationResults,
    unlabelled: Evaluation,
    adapted: dict[str, Any],
    nine_learners: SimpleNamespace,
    make_results: Callable[..., EvaluationResults],
    make_chain: Callable[..., ChainResults],
    make_combination: Callable[..., CombinationResults],
) -> dict[str, str]:
    return {
        "report": render_report(results),
        "unlabelled": render_report(make_results({"new": unlabelled})),
        "adapt": render_adapt_report(adapted),
        "sessions": render_sessions_report(nine_learners.results, nine_learners.plan),
        "chain": render_chain_report(make_chain({"e1": 1.6, "second": 1.2}, [1.0])),
        "combined": render_combined_report(make_combination({"roxford": {}, "rparis": {"gate_metric": "recall@1"}})),
    }


@pytest.mark.parametrize("page", ["report", "unlabelled", "adapt", "sessions", "chain", "combined"])
@pytest.mark.parametrize("what", WRONG)
def test_numbers_are_spelt_in_one_way(pages: dict[str, str], page: str, what: str) -> None:
    found = re.findall(rf".{{0,20}}{WRONG[what]}.{{0,10}}", read(pages[page]))
    assert not found
