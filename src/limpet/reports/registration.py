"""Registers the report of every kind of results; `limpet` imports it when results are first reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from limpet.evaluation.chain import ChainResults
from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.evaluation.test_sets import CombinationResults
from limpet.galleries.rehearsal.results import Rehearsal
from limpet.linking.adapt import Adapted
from limpet.linking.results import AdaptResults
from limpet.reports import adapt, evaluation
from limpet.reports.adapt import adapt_markdown, adapt_records, adapt_table, adapt_words
from limpet.reports.chain import chain_markdown, chain_records, chain_words, matrix_table
from limpet.reports.combined import combined_markdown, combined_records, combined_table, combined_words
from limpet.reports.evaluation import evaluation_markdown, evaluation_records, evaluation_table, evaluation_words
from limpet.reports.formats import MISSING, plain_text
from limpet.reports.markdown import Table
from limpet.reports.rehearsal import order_rows, rehearsal_markdown, rehearsal_records, rehearsal_words
from limpet.reports.upgrade import status_markdown, status_records, status_table, status_words
from limpet.results import Results
from limpet.support.extras import needing
from limpet.support.reporting import Report, register_report
from limpet.upgrade.status import UpgradeStatus

if TYPE_CHECKING:
    import altair as alt


def chart_of(results: Results) -> alt.LayerChart:
    """Return the main chart of results; Altair is imported on first use.

    Raises:
        ConfigError: Altair is missing, or the results hold nothing to draw.
    """
    with needing("A chart"):
        from limpet.reports.plots.chief import chief_chart
    return chief_chart(results)


def _report(
    markdown: Callable[[Any], str],
    words: Callable[[Any], Sequence[str]],
    table: Callable[[Any], Table],
    records: Callable[[Any], Sequence[Mapping[str, Any]]],
    plot: Callable[[Any], alt.LayerChart] | None = chart_of,
) -> Report:
    """Return a report whose words and table use plain characters, without empty columns."""

    def written(results: Any) -> Table:
        columns, rows = table(results)
        known = [place for place in range(len(columns)) if {row[place] for row in rows} - {MISSING}]
        heads, *lines = ([plain_text(line[place]) for place in known] for line in (columns, *rows))
        return heads, lines

    return Report(markdown, lambda results: [plain_text(line) for line in words(results)], written, records, plot)


_ADAPT = _report(adapt_markdown, adapt_words, adapt_table, adapt_records)
_EVALUATION = _report(evaluation_markdown, evaluation_words, evaluation_table, evaluation_records)

register_report(AdaptResults, _ADAPT)
register_report(Adapted, _ADAPT.of(adapt.results_of))
register_report(ChainResults, _report(chain_markdown, chain_words, matrix_table, chain_records))
register_report(CombinationResults, _report(combined_markdown, combined_words, combined_table, combined_records))
register_report(EvaluationResults, _EVALUATION)
register_report(Evaluation, _EVALUATION.of(evaluation.results_of))
register_report(Rehearsal, _report(rehearsal_markdown, rehearsal_words, order_rows, rehearsal_records))
register_report(UpgradeStatus, _report(status_markdown, status_words, status_table, status_records, None))
