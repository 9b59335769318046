"""Registry of reports, so that measuring code imports no page and no chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from limpet.support.wording import aligned

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from altair import LayerChart


@dataclass(frozen=True)
class Report:
    """Report functions for one kind of results.

    Args:
        markdown: Function that returns findings and tables in Markdown.
        words: Function that returns the findings, one or two sentences per line, the headline first.
        table: Function that returns columns and rows of the main table, formatted for reading.
        records: Function that returns the rows of that table by column, with unrounded numbers.
        plot: Function that returns the main chart; None if there is none.
    """

    markdown: Callable[[Any], str]
    words: Callable[[Any], Sequence[str]]
    table: Callable[[Any], tuple[Sequence[str], Sequence[Sequence[str]]]]
    records: Callable[[Any], Sequence[Mapping[str, Any]]]
    plot: Callable[[Any], LayerChart] | None = None

    def of(self, convert: Callable[[Any], Any]) -> Report:
        """Return the report for values that a function converts to results of this kind."""
        markdown, words, table, records, plot = self.markdown, self.words, self.table, self.records, self.plot
        return Report(
            lambda given: markdown(convert(given)),
            lambda given: words(convert(given)),
            lambda given: table(convert(given)),
            lambda given: records(convert(given)),
            plot and (lambda given: plot(convert(given))),
        )


class Reported:
    """Methods of results in notebooks and scripts, based on the report registered for their class."""

    def summary(self) -> str:
        """Return the findings as text: the headline, and a line for each further finding."""
        return "\n".join(report_of(type(self)).words(self))

    def to_markdown(self) -> str:
        """Return findings and tables in Markdown, for papers, READMEs and pull requests."""
        return report_of(type(self)).markdown(self)

    def to_arrow(self) -> pa.Table:
        """Return the main numbers of the results, unrounded, as a pyarrow.Table."""
        import pyarrow as pa

        records = report_of(type(self)).records(self)
        columns = dict.fromkeys(column for record in records for column in record)
        return pa.table({column: [record.get(column) for record in records] for column in columns})

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_arrow` as a pandas.DataFrame; requires pandas."""
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        try:
            report = report_of(type(self))
        except LookupError:
            return super().__repr__()
        columns, rows = report.table(self)
        if len(rows) == 1:
            columns, *rows = zip(columns, *rows, strict=True)
        return "\n".join(
            [f"<{type(self).__name__}> {report.words(self)[0]}", *(aligned(columns, rows) if rows else [])]
        )

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        report = report_of(type(self))
        headline, *others = map(escape, report.words(self))
        columns, cells = report.table(self)
        rows = [f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in columns)}</tr>"]
        rows += [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in cells]
        return f"<p><b>{headline}</b></p><table>{''.join(rows)}</table><p>{'<br>'.join(others)}</p>"


class Charted(Reported):
    """Results that have a chart."""

    def plot(self) -> LayerChart:
        """Return the chief chart of such results, for notebooks; its `save` writes .html, .svg, .png and .pdf.

        Raises:
            ConfigError: Altair is missing, or nothing was measured that could be drawn.
        """
        plot = report_of(type(self)).plot
        if plot is None:
            raise LookupError(f"No chart is registered for {type(self).__name__}.")
        return plot(self)


_reports: dict[type, Report] = {}
_loaders: list[Callable[[], object]] = []


def register_report(kind: type, report: Report) -> None:
    """Register the report of a class of results and of its subclasses."""
    _reports[kind] = report


def register_loader(load: Callable[[], object]) -> None:
    """Register what imports reports, which register themselves; it runs when a report is asked for that is not there.

    The top level of a package registers its own, so that results can be reported before anybody imports a report.
    """
    _loaders.append(load)


def report_of(kind: type) -> Report:
    """Return the report of a class of results.

    Raises:
        LookupError: None is registered for it.
    """
    report = _registered(kind)
    if report is None:
        for load in _loaders:
            load()
        report = _registered(kind)
    if report is None:
        raise LookupError(f"No report is registered for {kind.__name__}. Call `register_report({kind.__name__}, …)`.")
    return report


def _registered(kind: type) -> Report | None:
    return next((_reports[base] for base in kind.__mro__ if base in _reports), None)
