"""The main chart of every kind of results, which `plot` returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import altair as alt
import numpy as np

from limpet.errors import ConfigError
from limpet.evaluation.chain import ChainResults
from limpet.evaluation.results import EvaluationResults
from limpet.evaluation.test_sets import CombinationResults
from limpet.galleries.rehearsal.results import Rehearsal
from limpet.linking.results import AdaptResults
from limpet.reports.plots.bars import agreement_bars, score_bars
from limpet.reports.plots.forest import candidate_dots, sets_plot
from limpet.reports.plots.heat import heat_map, heat_range
from limpet.reports.plots.lines import rehearsal_curves
from limpet.reports.readings import agreements
from limpet.reports.words import measured
from limpet.results import Results
from limpet.support.wording import metric_name


def chief_chart(results: Results) -> alt.LayerChart:
    """Return the main chart of results.

    Raises:
        ConfigError: The results hold nothing to draw.
    """
    return _CHIEF[type(results)](results)


def _evaluation(results: EvaluationResults) -> alt.LayerChart:
    if measured(results.evaluations):
        return score_bars(results.evaluations)
    found = agreements(results.evaluations)
    if not found:
        raise ConfigError("These results hold no scores to draw.", expected="scores, or agreement with the old model")
    return agreement_bars(*next(iter(found.items())))


def _chain(results: ChainResults) -> alt.LayerChart:
    matrix = np.array(results.matrix, np.float64)
    limits, what = heat_range([matrix]) or (0.0, 1.0), metric_name(results.metric)
    names = [str(number) for number in range(1, len(results.models) + 1)]
    return heat_map(what, matrix, names, limits, what=what, width=max(264.0, 80.0 + 60 * len(names)))


_CHIEF: dict[type[Results], Callable[[Any], alt.LayerChart]] = {
    AdaptResults: candidate_dots,
    ChainResults: _chain,
    CombinationResults: lambda results: sets_plot(results.sets),
    EvaluationResults: _evaluation,
    Rehearsal: lambda results: rehearsal_curves(results, results.metric),
}
