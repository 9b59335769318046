"""The figures of a suite: drawn on the page of its board, and as files beside it.

How a value is drawn and tabulated is registered by its class: `charts_of`, its panels; `records_of`, every number on a
line of its own for CSV; `table_of`, what people read.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.bench.figure_values import BarChart, FigureValue, Lines, Matrices, NumberTable, Spread
from holdfast.reports.charts.canvas import Chart, standalone
from holdfast.reports.charts.panels import (
    bars_panel,
    lines_panel,
    matrix_panel,
    matrix_range,
    names_of,
    written,
)
from holdfast.reports.formats import plain_text
from holdfast.reports.markdown import Table, markdown_table
from holdfast.reports.page import pages_can_be_written, write_page
from holdfast.reports.svg import tick_label
from holdfast.wording import metric_name

if TYPE_CHECKING:
    from holdfast.bench.leaderboard import Leaderboard

FOLDER = "figures"
"""Where the files are, beside results.json."""

Record = Mapping[str, str | float | None]
"""One number with all that it is of, by the name of a column."""

_WIDE, _BESIDE = 640.0, 400.0  # pixels of a panel alone, and of one of several


@singledispatch
def charts_of(value: FigureValue) -> list[Chart]:
    """Return the panels of a figure; none where it is a table."""
    return []


@singledispatch
def records_of(value: FigureValue) -> Iterator[Record]:
    """Yield every number of a figure with all that it is of, unrounded; the columns of its CSV."""
    raise NotImplementedError(f"no records of {type(value).__name__}")


@singledispatch
def table_of(value: FigureValue) -> Table:
    """Return columns and rows for people."""
    records = list(records_of(value))
    columns = list(dict.fromkeys(name for record in records for name in record))
    rows = [[_for_people(record.get(name)) for name in columns] for record in records]
    return [metric_name(name) for name in columns], rows


def _for_people(value: str | float | None) -> str:
    return "–" if value is None else value if isinstance(value, str) else tick_label(value)


def _numbers(value: Spread | None) -> Record:
    if value is None:
        return {"mean": None, "lowest": None, "highest": None, "seeds": 0}
    return {"mean": value.mean, "lowest": value.lowest, "highest": value.highest, "seeds": value.seeds}


def _width(panels: Sequence[object]) -> float:
    return _WIDE if len(panels) == 1 else _BESIDE


# --- lines -----------------------------------------------------------------------------------------------------------


@charts_of.register
def _(value: Lines) -> list[Chart]:
    up, log = ", ".join(map(metric_name, value.up.split(", "))), value.scale == "log"
    across = value.across.rpartition(".")[2].replace("_", " ")
    width = _width(value.panels)
    return [lines_panel(panel, value.title, across, up, log=log, width=width) for panel in value.panels if panel.lines]


@records_of.register
def _(value: Lines) -> Iterator[Record]:
    for panel in value.panels:
        for line in panel.lines:
            for point in line.points:
                of = {"place": panel.place, "label": line.label, "measure": line.measure}
                yield {**of, value.across: point.at, **_numbers(point.value)}


@table_of.register
def _(value: Lines) -> Table:
    lines = [(panel.place, line) for panel in value.panels for line in panel.lines]
    names = names_of([(line.label, line.measure) for _, line in lines])
    heads = [", ".join(filter(None, (place, name))) for (place, _), name in zip(lines, names, strict=True)]
    at = sorted({point.at for _, line in lines for point in line.points})
    known = [{point.at: written(line.measure, point.value) for point in line.points} for _, line in lines]
    return [value.across, *heads], [[tick_label(one), *(line.get(one, "–") for line in known)] for one in at]


# --- bars ------------------------------------------------------------------------------------------------------------


@charts_of.register
def _(value: BarChart) -> list[Chart]:
    up = ", ".join(map(metric_name, value.up.split(", ")))
    return [bars_panel(panel, value.title, up, width=_width(value.panels)) for panel in value.panels]


@records_of.register
def _(value: BarChart) -> Iterator[Record]:
    for panel in value.panels:
        for series in panel.series:
            for group, one in zip(panel.groups, series.values, strict=True):
                of = {"place": panel.place, "group": group, "label": series.label, "measure": series.measure}
                yield {**of, **_numbers(one)}


@table_of.register
def _(value: BarChart) -> Table:
    series = value.panels[0].series
    heads = names_of([(one.label, one.measure) for one in series])
    rows = [
        [", ".join(filter(None, (panel.place, group))), *(written(one.measure, one.values[at]) for one in panel.series)]
        for panel in value.panels
        for at, group in enumerate(panel.groups)
    ]
    return ["", *heads], rows


# --- tables ----------------------------------------------------------------------------------------------------------


@records_of.register
def _(value: NumberTable) -> Iterator[Record]:
    for row in value.rows:
        for column, one in zip(value.columns, row.values, strict=True):
            of = {"label": row.label, "place": column.place, "metric": column.metric, "measure": column.measure}
            yield {**of, **_numbers(one)}


@table_of.register
def _(value: NumberTable) -> Table:
    several = len({column.metric for column in value.columns}) > 1
    heads = []
    for column in value.columns:
        names = [metric_name(column.measure)] * (column.measure != "learner") + [metric_name(column.metric)] * several
        heads.append(", ".join(filter(None, (column.place, column.title or ", ".join(names) or column.metric))))
    rows = [
        [row.label, *(written(column.measure, one) for column, one in zip(value.columns, row.values, strict=True))]
        for row in value.rows
    ]
    return ["method", *heads], rows


# --- matrices --------------------------------------------------------------------------------------------------------


@charts_of.register
def _(value: Matrices) -> list[Chart]:
    limits, title = matrix_range(value), f"{metric_name(value.measure)}, {metric_name(value.metric)}"
    width = max(264.0, 80.0 + 60 * value.generations)
    return [matrix_panel(panel, title, value.measure, limits, width=width) for panel in value.panels]


@records_of.register
def _(value: Matrices) -> Iterator[Record]:
    for panel in value.panels:
        for asks, row in enumerate(panel.values, start=1):
            for held, one in enumerate(row[:asks], start=1):
                of: Record = {"place": panel.place, "label": panel.label, "queries": asks, "gallery": held}
                yield {**of, **_numbers(one)}


@table_of.register
def _(value: Matrices) -> Table:
    generations = range(1, value.generations + 1)
    rows = [
        [
            ", ".join(filter(None, (panel.label, panel.place, f"queries of {asks}"))),
            *(written(value.measure, one) for one in row),
        ]
        for panel in value.panels
        for asks, row in enumerate(panel.values, start=1)
    ]
    return ["", *(f"gallery of {held}" for held in generations)], rows


# --- pages and files -------------------------------------------------------------------------------------------------


class Figure(NamedTuple):
    """A figure of a page.

    Args:
        title: Its headline.
        charts: Its panels.
        table: Its numbers for people.
    """

    title: str
    charts: list[Chart]
    table: Table


def page_figures(results: Leaderboard) -> list[Figure]:
    """Return the figures of a board, as its suite orders them."""
    return [Figure(value.title, charts_of(value), table_of(value)) for value in results.figures.values()]


def figure_csv(value: FigureValue) -> str:
    """Return every number of a figure as CSV, unrounded, a line each."""
    records = list(records_of(value))
    stream = io.StringIO()
    names = list(dict.fromkeys(name for record in records for name in record))
    writer = csv.DictWriter(stream, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return stream.getvalue()


def write_figures(results: Leaderboard, folder: str | Path) -> list[Path]:
    """Write figures/NAME.csv of every figure, figures/NAME.md, and figures/NAME.svg of what is drawn; return the paths.

    Where the packages that draw are not installed, there is no picture.

    Raises:
        DataError: A file could not be written.
    """
    paths = []
    place = Path(folder) / FOLDER
    for name, value in results.figures.items():
        columns, rows = table_of(value)
        told = f"# {plain_text(value.title)}\n\n{markdown_table(columns, rows)}"
        paths += [write_page(figure_csv(value), place, f"{name}.csv"), write_page(told, place, f"{name}.md")]
        charts = charts_of(value) if pages_can_be_written() else []
        if charts:
            paths.append(write_page(standalone(charts, value.title), place, f"{name}.svg"))
    return paths
