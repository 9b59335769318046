"""Main charts of leaderboards and sessions, which `plot` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limpet_bench.leaderboard import Leaderboard
from limpet_bench.reports.charts.pareto import pareto_plot
from limpet_bench.reports.charts.recall import recall_lines
from limpet_bench.reports.charts.standings import cell_dots
from limpet_bench.sessions.results import SessionsResults

if TYPE_CHECKING:
    import altair as alt


def chief_chart(results: Leaderboard | SessionsResults) -> alt.LayerChart:
    """Return the main chart of results."""
    if isinstance(results, Leaderboard):
        return pareto_plot(results) or cell_dots(results, results.board.cells[0], width=640)
    return recall_lines(results)
