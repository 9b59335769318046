"""The bench's pages in a real browser: accessible, and readable at the widths of a desk, a tablet and a phone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from limpet_bench.leaderboard import Leaderboard
from limpet_bench.reports.leaderboard import render_leaderboard
from limpet_bench.reports.sessions import render_sessions_report
from limpet_bench.sessions.plans import disjoint

from ...reports.browser import BROWSER, Browser
from ...reports.pages import assert_contents_lead_to_sections
from .test_documents import DOCUMENTS

pytestmark = [pytest.mark.browser, pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")]


@pytest.mark.slow
def test_pages_are_accessible_and_their_contents_lead_to_every_section(
    browser: Browser, nine_learners: SimpleNamespace, blurry_learners: SimpleNamespace, tmp_path: Path
) -> None:
    pages = {
        "leaderboard": render_leaderboard(Leaderboard.load(DOCUMENTS / "leaderboard.json")),
        "sessions": render_sessions_report(nine_learners.results, nine_learners.plan),
        "sessions-blurry": render_sessions_report(blurry_learners.results, blurry_learners.plan),
    }
    for name, text in pages.items():
        assert_contents_lead_to_sections(text)
        path = tmp_path / f"{name}.html"
        path.write_text(text, encoding="utf-8")
        assert browser.barriers(path) == []


@pytest.mark.parametrize(
    ("name", "charts"), [("nine_learners", 15), ("one_learner", 6), ("blurry_learners", 9), ("without_bounds", 8)]
)
def test_learners_in_sessions_fit_all_widths(
    measure: Callable[[str], dict[int, dict[str, Any]]], request: pytest.FixtureRequest, name: str, charts: int
) -> None:
    found = request.getfixturevalue(name)
    results = measure(render_sessions_report(found.results, found.plan))
    for result in results.values():
        assert result["scroll"] == result["client"]
        assert result["outside"] == []
        assert result["overlaps"] == []
        assert result["charts"] == charts
        assert result["smallest"] >= 11


def test_many_learners_of_long_names_in_many_sessions_fit_all_widths(
    measure: Callable[[str], dict[int, dict[str, Any]]], make_sessions: Callable[..., SimpleNamespace]
) -> None:
    plan = disjoint(np.repeat(np.arange(80), 10), sessions=24, validation=1)
    names = [f"cvs_with_a_very_long_name_without_any_place_to_break_{place}" for place in range(12)]
    found = make_sessions(plan, ["finetune", *names, "joint"], title="x" * 200, model={"y" * 100: "z" * 200})
    for result in measure(render_sessions_report(found.results, found.plan)).values():
        assert result["scroll"] == result["client"]
        assert result["outside"] == []
        assert result["overlaps"] == []
