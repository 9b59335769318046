"""Pages of what was measured without a verdict, and of what is no query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.reports.evaluation import finding, headline, render_report, summary_rows
from limpet.reports.words import CLICKS

from .changes import changed

Make = Callable[..., EvaluationResults]


def test_scores_by_clicks_are_shown_with_intervals_and_without_a_verdict(
    clicked: Evaluation, make_results: Make
) -> None:
    assert clicked.verdict == "unlabelled" and clicked.cross is not None
    page = render_report(make_results({"p2s": clicked}))
    for system in ("self_old", "cross", "self_new"):
        value, (low, high) = getattr(clicked, system)["map"], clicked.mean_interval[system]["map"]
        assert f"<td>{value:.3f} <small>[{low:.3f}, {high:.3f}]</small></td>" in page
    assert page.count(CLICKS) == 1
    assert page.count('class="finding unlabelled"') == 1
    for spoken in ("A model is compatible when", "The verdict is read here", "What compatibility cost", "no labels"):
        assert spoken not in page
    assert "No verdict is read here" in page and "How much of today’s results stays" in page
    assert "While the gallery is re-embedded" not in page


def test_the_words_of_clicks(clicked: Evaluation, make_results: Make) -> None:
    found = finding("p2s", clicked)
    assert found.verdict == "unlabelled" and found.sentences[0].startswith(CLICKS)
    assert f"{clicked.cross['map']:.3f}" in found.sentences[0] and "is not judged" in found.sentences[0]
    assert "--protocol-options.judged true" in found.next_steps[0]
    assert found.sentences[1].startswith("Agreement is not quality either. After the swap")
    assert headline(make_results({"p2s": clicked})) == "Scores were measured by clicks, and no verdict is spoken."
    _, (row,) = summary_rows(make_results({"p2s": clicked}))
    assert row[1] == f"{clicked.self_old['map']:.3f}" and row[-1] == "unlabelled"


def test_a_page_of_templates_has_its_own_words(results: EvaluationResults, make_results: Make) -> None:
    templates = {"name": "ijbc-verification", "units": "genuine pairs", "queries_counted": 480}

    def of_templates(values: dict[str, Any]) -> None:
        values["protocol"] |= templates
        values["upgrade_curve"] = None

    record = changed(results.evaluations["p2s"], of_templates)
    page = render_report(make_results({"p2s": record}))
    assert "480 genuine pairs; 96 embedded items to search with, 96 in the gallery." in page
    assert "both systems answer the same genuine pairs" in page
    assert "<dfn>negative flip</dfn>: one of the genuine pairs that was right" in page
    assert "While the gallery is re-embedded" not in page  # pairs rank no gallery
    record = changed(record, lambda values: values["protocol"].update(name="labels"))
    page = render_report(make_results({"p2s": record}))
    assert "The upgrade curve was not measured for p2s" in page
    record = record.model_copy(update={"class_change": None})  # embeddings without labels have none
    assert "While the gallery is re-embedded" not in render_report(make_results({"p2s": record}))
