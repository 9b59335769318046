"""Registers the reports of leaderboards and sessions; `limpet_bench` imports this module on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limpet.support import Report, needing, register_report
from limpet_bench.leaderboard import Leaderboard
from limpet_bench.reports.leaderboard import leaderboard_markdown, leaderboard_records, leaderboard_words
from limpet_bench.reports.leaderboard_tables import leaderboard_table
from limpet_bench.reports.sessions import sessions_markdown, sessions_records, sessions_table, sessions_words
from limpet_bench.sessions.results import SessionsResults

if TYPE_CHECKING:
    import altair as alt


def chart_of(results: Leaderboard | SessionsResults) -> alt.LayerChart:
    """Return the main chart of results; Altair is imported on first use.

    Raises:
        ConfigError: Altair is missing, or the results hold nothing to draw.
    """
    with needing("A chart"):
        from limpet_bench.reports.charts.chief import chief_chart
    return chief_chart(results)


register_report(
    Leaderboard, Report(leaderboard_markdown, leaderboard_words, leaderboard_table, leaderboard_records, chart_of)
)
register_report(SessionsResults, Report(sessions_markdown, sessions_words, sessions_table, sessions_records, chart_of))
