"""The chief chart of every kind of results, as a Matplotlib figure for notebooks, papers and files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from limpet.errors import ConfigError
from limpet.evaluation.chain import ChainResults
from limpet.evaluation.results import EvaluationResults
from limpet.evaluation.test_sets import CombinationResults
from limpet.galleries.rehearsal.results import Rehearsal
from limpet.linking.results import AdaptResults
from limpet.reports.charts.bars import agreement_bars, agreements, score_bars
from limpet.reports.charts.forest import candidate_dots, measured, sets_plot
from limpet.reports.charts.lines import rehearsal_curves
from limpet.reports.charts.matrix import heat_map, heat_range
from limpet.support.extras import needing
from limpet.support.wording import metric_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from limpet.reports.charts.canvas import Chart
    from limpet.results import Results


def figure_of(results: Results) -> Figure:
    """Return the chief chart of results on white, whose `savefig` writes .svg, .png and .pdf.

    Raises:
        ConfigError: Matplotlib is missing, or the results hold nothing to draw.
    """
    return on_white(lambda: _CHIEF[type(results)](results))


def on_white(draw: Callable[[], Chart]) -> Figure:
    """Return a chart as a figure on white.

    Raises:
        ConfigError: Matplotlib is missing.
    """
    with needing("A chart"):
        import matplotlib  # noqa: F401
    chart = draw()
    chart.figure.set_facecolor("white")
    return chart.figure


def _evaluation(results: EvaluationResults) -> Chart:
    if measured(results.evaluations):
        return score_bars(results.evaluations)
    found = agreements(results.evaluations)
    if not found:
        raise ConfigError("These results hold no scores to draw.", expected="scores, or agreement with the old model")
    return agreement_bars(*next(iter(found.items())))


def _chain(results: ChainResults) -> Chart:
    matrix = np.array(results.matrix, np.float64)
    limits, what = heat_range([matrix]) or (0.0, 1.0), metric_name(results.metric)
    names = [str(number) for number in range(1, len(results.models) + 1)]
    return heat_map(what, matrix, names, limits, what=what, width=max(264.0, 80.0 + 60 * len(names)))


_CHIEF: dict[type[Results], Callable[[Any], Chart]] = {
    AdaptResults: candidate_dots,
    ChainResults: _chain,
    CombinationResults: lambda results: sets_plot(results.sets),
    EvaluationResults: _evaluation,
    Rehearsal: lambda results: rehearsal_curves(results, results.metric),
}
