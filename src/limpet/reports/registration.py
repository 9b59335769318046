"""Registers the report of every kind of results; `limpet` imports it when results are first reported."""

from __future__ import annotations

from limpet.evaluation.chain import ChainResults
from limpet.evaluation.results import EvaluationResults
from limpet.evaluation.test_sets import CombinationResults
from limpet.galleries.rehearsal.results import Rehearsal
from limpet.linking.results import AdaptResults
from limpet.reports.adapt import adapt_markdown
from limpet.reports.chain import chain_markdown
from limpet.reports.charts.figures import figure_of
from limpet.reports.combined import combined_markdown
from limpet.reports.evaluation import evaluation_markdown
from limpet.reports.rehearsal import rehearsal_markdown
from limpet.support.reporting import Report, register_report

register_report(AdaptResults, Report(adapt_markdown, figure_of))
register_report(ChainResults, Report(chain_markdown, figure_of))
register_report(CombinationResults, Report(combined_markdown, figure_of))
register_report(EvaluationResults, Report(evaluation_markdown, figure_of))
register_report(Rehearsal, Report(rehearsal_markdown, figure_of))
