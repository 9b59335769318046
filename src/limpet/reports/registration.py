"""Registers the report of every kind of results; `limpet` imports it when results are first reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limpet.evaluation.chain import ChainResults
from limpet.evaluation.results import EvaluationResults
from limpet.evaluation.test_sets import CombinationResults
from limpet.galleries.rehearsal.results import Rehearsal
from limpet.linking.results import AdaptResults
from limpet.reports.adapt import adapt_markdown
from limpet.reports.chain import chain_markdown
from limpet.reports.combined import combined_markdown
from limpet.reports.evaluation import evaluation_markdown
from limpet.reports.rehearsal import rehearsal_markdown
from limpet.results import Results
from limpet.support.extras import needing
from limpet.support.reporting import Report, register_report

if TYPE_CHECKING:
    import altair as alt


def chart_of(results: Results) -> alt.LayerChart:
    """Return the chief chart of results; Altair is imported when the first one is asked for.

    Raises:
        ConfigError: Altair is missing, or the results hold nothing to draw.
    """
    with needing("A chart"):
        from limpet.reports.plots.chief import chief_chart
    return chief_chart(results)


register_report(AdaptResults, Report(adapt_markdown, chart_of))
register_report(ChainResults, Report(chain_markdown, chart_of))
register_report(CombinationResults, Report(combined_markdown, chart_of))
register_report(EvaluationResults, Report(evaluation_markdown, chart_of))
register_report(Rehearsal, Report(rehearsal_markdown, chart_of))
