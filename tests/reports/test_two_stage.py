"""Two-stage search in the report of `limpet adapt`: its numbers are told where it was measured."""

from __future__ import annotations

import pytest

from limpet.errors import ConfigError
from limpet.linking.compare import Effect
from limpet.linking.results import AdaptResults
from limpet.linking.two_stage import TwoStage
from limpet.reports.adapt import adapt_markdown, render_adapt_report, two_stage_finding, two_stage_rows

from .pages import Page

FOUND = TwoStage(
    candidates=40,
    cross=Effect(mean=0.61, interval=(0.6, 0.62)),
    cross_minus_self_old=Effect(mean=0.13, interval=(0.12, 0.14)),
    self_new_minus_cross=Effect(mean=0.02, interval=(-0.01, 0.03)),
    recovered=0.87,
    encoded_per_query=0.75,
    encoded=0.755,
    queries=400,
)


def test_what_was_measured_is_told(adapted: AdaptResults) -> None:
    results = adapted.model_copy(update={"two_stage": FOUND})
    said = two_stage_finding(results)
    for words in ("0.610", "+0.130 [+0.120, +0.140]", "40 candidates", "0.8 each", "400 queries", "75.5"):
        assert words in said
    columns, rows = two_stage_rows(results)
    assert len(columns) == len(rows[1]) == 6
    assert rows[1][:4] == ["two stages, 40 candidates", "0.610 [0.600, 0.620]", "+0.130 [+0.120, +0.140]",
                           "87.0\N{NO-BREAK SPACE}%"]  # fmt: skip
    text = Page(render_adapt_report(results)).text
    for words in (*rows[1], "Without any fit: two-stage search"):
        assert " ".join(words.split()) in " ".join(text.split())
    assert "## Two-stage search" in adapt_markdown(results)


def test_results_of_before_say_nothing_of_it(adapted: AdaptResults) -> None:
    assert adapted.two_stage is None
    assert (two_stage_finding(adapted), two_stage_rows(adapted)) == ("", None)
    assert "two-stage" not in render_adapt_report(adapted).partition("</style>")[2]
    assert "Two-stage" not in adapt_markdown(adapted)


def test_an_interval_the_wrong_way_round_is_refused(adapted: AdaptResults) -> None:
    wrong = FOUND.model_copy(update={"cross": Effect(mean=0.61, interval=(0.62, 0.6))})
    document = {**adapted.to_dict(), "two_stage": wrong.model_dump(mode="json")}
    with pytest.raises(ConfigError, match=r"two_stage.cross.interval"):
        AdaptResults.parse(document)
