"""Registers the reports of leaderboards and sessions; `limpet_bench` imports it when one is first asked for."""

from __future__ import annotations

from limpet.reports.charts.canvas import Chart
from limpet.reports.charts.figures import on_white
from limpet.support.reporting import Report, register_report
from limpet_bench.leaderboard import Leaderboard
from limpet_bench.reports.charts.pareto import pareto_plot
from limpet_bench.reports.charts.recall import recall_lines
from limpet_bench.reports.charts.standings import cell_dots
from limpet_bench.reports.leaderboard import leaderboard_markdown
from limpet_bench.reports.sessions import sessions_markdown
from limpet_bench.sessions.results import SessionsResults


def _board(results: Leaderboard) -> Chart:
    return pareto_plot(results) or cell_dots(results, results.board.cells[0], width=640)


register_report(Leaderboard, Report(leaderboard_markdown, lambda results: on_white(lambda: _board(results))))
register_report(SessionsResults, Report(sessions_markdown, lambda results: on_white(lambda: recall_lines(results))))
