"""Every kind of page in a real browser: accessible, no wider than a phone, and no shared rule without a use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from limpet.evaluation.chain import ChainResults
from limpet.evaluation.examples import choose_examples
from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.evaluation.test_sets import CombinationResults
from limpet.galleries.rehearsal import Rehearsal
from limpet.linking.results import AdaptResults
from limpet.reports.adapt import render_adapt_report
from limpet.reports.chain import render_chain_report
from limpet.reports.combined import render_combined_report
from limpet.reports.evaluation import render_report
from limpet.reports.rehearsal import render_rehearsal_report

from .browser import BROWSER, Browser
from .pages import assert_contents_lead_to_sections
from .test_example_documents import DOCUMENTS, KINDS

pytestmark = [pytest.mark.browser, pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")]

UNUSED = """[...document.styleSheets].flatMap(sheet => (function selectors(rules) {
  return [...rules].flatMap(rule => rule.selectorText ? rule.selectorText.split(/,(?![^(]*\\))/)
    : selectors(rule.cssRules || []));
})(sheet.cssRules)).map(one => one.trim()).filter(one => {
  const element = one.replace(/::?(before|after|focus-visible|not\\(\\[open\\]\\))/g, '');
  return element && !document.querySelector(element);
})"""
RENDER: dict[type, Callable[[Any], str]] = {
    AdaptResults: render_adapt_report,
    ChainResults: render_chain_report,
    CombinationResults: render_combined_report,
    EvaluationResults: render_report,
    Rehearsal: render_rehearsal_report,
}


@pytest.fixture(scope="module")
def pages(
    results: EvaluationResults,
    unlabelled: Evaluation,
    simulated: SimpleNamespace,
    make_results: Callable[..., EvaluationResults],
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Path]:
    """Write a page of every kind, and one with examples of each look: labelled or not, with pictures or with words."""
    folder, sides = tmp_path_factory.mktemp("pages"), (simulated.old, simulated.old)
    new = (simulated.new["p2s"], simulated.new["p2s"])
    bare = [tuple(side.replace(labels=None, class_names=None) for side in pair) for pair in (sides, new)]
    typed = results.model_copy(update={"command": "limpet evaluate --old old --new new --out report"})
    labelled = choose_examples(results.evaluations["p2s"], *sides, *new, exclude_same_id=True)
    changed = choose_examples(unlabelled, *bare[0], *bare[1], exclude_same_id=True)
    blank = np.zeros((1, 8, 8), np.uint8)
    texts = {name: RENDER[kind](kind.load(DOCUMENTS / f"{name}.json")) for name, kind in KINDS.items()}
    texts["pictures"] = render_report(typed, examples={"p2s": labelled}, picture=lambda _: blank)
    texts["words"] = render_report(make_results({"p2s": unlabelled}), examples={"p2s": changed},
                                   facts=lambda name: {"text": name, "price": "12"})  # fmt: skip
    texts["mixed"] = render_report(make_results({
        verdict: results.evaluations["p2s"].model_copy(update={"verdict": verdict})
        for verdict in ("mixed", "not held out", "inconclusive", "not compatible")
    }))  # fmt: skip
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return sorted(folder.iterdir())


@pytest.mark.slow
def test_pages_are_accessible_and_fit_a_phone(browser: Browser, pages: list[Path]) -> None:
    assert [f"{page.stem}, {barrier}" for page in pages for barrier in browser.barriers(page)] == []


def test_no_shared_rule_of_the_style_is_without_a_use(browser: Browser, pages: list[Path]) -> None:
    unused = []
    for page in pages:
        browser.show(page, 1280, "light")
        unused.append(set(browser.run(UNUSED)))
    assert set.intersection(*unused) == set()


def test_the_contents_lead_to_every_section_and_the_verdict_comes_first(pages: list[Path]) -> None:
    for page in pages:
        assert_contents_lead_to_sections(page.read_text(encoding="utf-8"))
