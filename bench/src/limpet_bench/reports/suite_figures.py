"""Figures of a suite: charts and tables on the page of its leaderboard, and files beside it."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import altair as alt

from limpet.reports.formats import MISSING, percent_of, plain_text, score
from limpet.reports.markdown import Table, markdown_table
from limpet.reports.page import PHONE, Drawing, pages_can_be_written, write_page
from limpet.reports.plots.rendering import save, svg, width_of
from limpet.reports.plots.style import tick_label
from limpet.reports.readings import GROUPS
from limpet.support import metric_name
from limpet_bench.figure_values import (
    BarChart,
    ClassArrivals,
    FigureValue,
    Lines,
    Matrices,
    NumberTable,
    Planes,
    PublishedNumber,
    Quantities,
    ResultStrips,
    Spread,
    TableColumn,
)
from limpet_bench.pictures.embedding_map import OLD
from limpet_bench.ranking import P_MEASURES
from limpet_bench.reports.charts.arrivals import arrivals_panel
from limpet_bench.reports.charts.histograms import histogram_panels
from limpet_bench.reports.charts.maps import embedding_panels, own_side
from limpet_bench.reports.charts.panels import (
    SIGNED,
    bars_panel,
    lines_panel,
    matrix_panel,
    matrix_range,
    names_of,
    written,
)
from limpet_bench.reports.charts.strips import strip_panel, strips_width

if TYPE_CHECKING:
    from limpet_bench.leaderboard import Leaderboard

FOLDER = "figures"
"""Folder of the files, beside results.json."""

Record = Mapping[str, str | float | None]
"""One number with its keys, by column name."""

_WIDE, _BESIDE = 640.0, 400.0  # width in pixels of a single panel, and of one of several


@singledispatch
def charts_of(value: FigureValue, *, phone: bool = False) -> list[alt.LayerChart]:
    """Return the charts of the panels of a figure, in the width of a phone if requested; none for a table."""
    return []


@singledispatch
def records_of(value: FigureValue) -> Iterator[Record]:
    """Yield every number of a figure, unrounded, with its keys; these are the columns of the CSV file."""
    raise NotImplementedError(f"no records of {type(value).__name__}")


@singledispatch
def table_of(value: FigureValue) -> Table:
    """Return columns and rows for readers, with rounded numbers."""
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


def _width(panels: Sequence[object], phone: bool) -> float:
    return PHONE if phone else _WIDE if len(panels) == 1 else _BESIDE


# --- lines -----------------------------------------------------------------------------------------------------------


@charts_of.register
def _(value: Lines, *, phone: bool = False) -> list[alt.LayerChart]:
    up, log = ", ".join(map(metric_name, value.up.split(", "))), value.scale == "log"
    across = value.across.rpartition(".")[2].replace("_", " ")
    width = _width(value.panels, phone)
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
def _(value: BarChart, *, phone: bool = False) -> list[alt.LayerChart]:
    up = ", ".join(map(metric_name, value.up.split(", ")))
    return [bars_panel(panel, value.title, up, width=_width(value.panels, phone)) for panel in value.panels]


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
    published = any(printed for row in value.rows for printed in row.published)
    for row in value.rows:
        for column, one, printed in zip(value.columns, row.values, row.published, strict=True):
            of = column.model_dump(include={"data", "metric", "measure", "unit"})
            of |= {"variant": column.variant} if column.measure in P_MEASURES else {}
            beside = {} if printed is None else {"published": printed.value, "published_deviation": printed.deviation}
            yield {"scenario": row.scenario, "label": row.label, **of, **_numbers(one), **(beside if published else {})}


@table_of.register
def _(value: NumberTable) -> Table:
    several = len({column.metric for column in value.columns}) > 1
    heads = []
    for column in value.columns:
        names = [metric_name(column.measure)] * (column.measure != "learner") + [metric_name(column.metric)] * several
        title = column.title or ", ".join(names) or metric_name(column.metric)
        heads.append(", ".join(filter(None, (column.data, title))) + " (%)" * (column.unit == "%"))
    rows: list[list[str]] = []
    scenario = ""
    for row in value.rows:
        if row.scenario != scenario:  # a separate line, as in papers
            rows.append([row.scenario, *[""] * len(heads)])
            scenario = row.scenario
        cells = zip(value.columns, row.values, row.published, strict=True)
        rows.append([row.label, *(_beside(column, one, printed) for column, one, printed in cells)])
    return ["method", *heads], rows


def _beside(column: TableColumn, own: Spread | None, printed: PublishedNumber | None) -> str:
    """Format a number with its range and, after a slash, the number printed in the paper.

    >>> column = TableColumn(data="", measure="cross", metric="map", unit="%", digits=2)
    >>> _beside(column, Spread.of([50.0, 51.0]), PublishedNumber(value=47.7, deviation=0.25))
    '50.50 [50.00, 51.00] / 47.70 ± 0.25'
    >>> _beside(column, None, None)
    '–'
    """

    def form(number: float, digits: int = column.digits) -> str:
        sign = "+" if column.measure in SIGNED and column.variant == "raw" else ""
        return f"{number:{sign}.{digits}f}".replace("-", "−")

    told = MISSING if own is None else form(own.mean)
    if own is not None and own.seeds > 1:
        told += f" [{form(own.lowest)}, {form(own.highest)}]"
    if printed is None:
        return told
    digits = max(column.digits, len(repr(printed.value).partition(".")[2]))
    deviation = "" if printed.deviation is None else f" ± {printed.deviation:.{column.digits}f}"
    return f"{told} / {form(printed.value, digits)}{deviation}"


def note_below(value: FigureValue) -> str:
    """Return a note on published numbers and P metrics in a table; empty if it has neither."""
    if not isinstance(value, NumberTable):
        return ""
    sigmoid = any(column.variant == "sigmoid" for column in value.columns)
    told = [f"After the slash: the paper’s number ({value.where})."] * bool(value.where)
    told += ["P metrics go through the logistic function: 50 % is no change."] * sigmoid
    return " ".join(told)


# --- matrices --------------------------------------------------------------------------------------------------------


@charts_of.register
def _(value: Matrices, *, phone: bool = False) -> list[alt.LayerChart]:
    limits, title = matrix_range(value), f"{metric_name(value.measure)}, {metric_name(value.metric)}"
    width = min(PHONE if phone else math.inf, max(264.0, 80.0 + 60 * value.generations))
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


# --- maps of embeddings ----------------------------------------------------------------------------------------------


@charts_of.register
def _(value: Planes, *, phone: bool = False) -> list[alt.LayerChart]:
    panels = [max(1, len(panel.found.models) + panel.found.apart) for panel in value.panels]
    width = PHONE if phone else _WIDE if len(value.panels) == 1 else _BESIDE if max(panels) == 1 else 2 * _BESIDE
    return [
        embedding_panels(
            ", ".join(filter(None, (value.title, panel.place))), panel.found, width=width, head=panel.place
        )
        for panel in value.panels
    ]


@records_of.register
def _(value: Planes) -> Iterator[Record]:
    for panel in value.panels:
        found, noise = panel.found, set(panel.found.noise)
        for one in found.clusters:
            for item, x, y in zip(one.ids, one.x, one.y, strict=True):
                of: Record = {"place": panel.place, "model": one.model, "class": one.name, "item": item, "x": x, "y": y}
                yield of if one.model != OLD or not noise else {**of, "noise": str(item in noise).lower()}
        for name, (x, y) in found.prototypes.items():
            yield {"place": panel.place, "model": "old prototype", "class": name, "item": "", "x": x, "y": y}


@table_of.register
def _(value: Planes) -> Table:
    rows = []
    for panel in value.panels:
        found = panel.found
        for name in found.classes:
            own = {one.model: one for one in found.clusters if one.name == name}
            items = max((len(one.ids) for one in own.values()), default=0)
            marked = len(set(found.noise) & {item for one in own.values() for item in one.ids})
            rows.append([panel.place, name, str(items), str(marked) if found.noise else "–", "–"])
        for model in found.models:
            share = own_side(found, model)
            if share is not None:
                rows.append([panel.place, f"all, by {model}", "", "–", percent_of(share)])
    head = ["", "class", "items", "taken for noise", "nearest to the old centre of their class"]
    keep = [at for at in range(len(head)) if at == 1 or any(row[at] not in ("", "–") for row in rows)]
    return [head[at] for at in keep], [[row[at] for at in keep] for row in rows]


# --- histograms ------------------------------------------------------------------------------------------------------


@charts_of.register
def _(value: Quantities, *, phone: bool = False) -> list[alt.LayerChart]:
    width = PHONE if phone else _WIDE if len(value.panels) == 1 else _BESIDE
    return [
        chart
        for panel in value.panels
        for chart in histogram_panels(
            value.title, panel.found, place=panel.place, width=width, beside=PHONE if phone else _BESIDE
        )
    ]


@records_of.register
def _(value: Quantities) -> Iterator[Record]:
    for panel in value.panels:
        for model, found in panel.found.panels.items():
            for group, members in found.groups.items():
                for low, high, count in zip(found.edges, found.edges[1:], members.counts, strict=False):
                    of: Record = {"place": panel.place, "model": model, "group": group}
                    yield {**of, "from": low, "to": high, "items": count}


@table_of.register
def _(value: Quantities) -> Table:
    head = ["", "model", "", "items", "mean", "clipped", "AUC of unseen classes"]
    rows = [
        [
            panel.place,
            model,
            GROUPS[group],
            f"{members.items:,}",
            score(members.mean),
            "" if members.clipped is None else percent_of(members.clipped),
            "" if found.auc is None or group != "unseen" else score(found.auc),
        ]
        for panel in value.panels
        for model, found in panel.found.panels.items()
        for group, members in found.groups.items()
    ]
    keep = [at for at in range(len(head)) if at in (1, 2, 3, 4) or (at and any(row[at] for row in rows))]
    keep = [0, *keep] if len({row[0] for row in rows}) > 1 else keep
    return [head[at] for at in keep], [[row[at] for at in keep] for row in rows]


# --- queries with their first hits -----------------------------------------------------------------------------------


@charts_of.register
def _(value: ResultStrips, *, phone: bool = False) -> list[alt.LayerChart]:
    return [
        strip_panel(value.title, panel.place, panel.found, width=PHONE if phone else strips_width(panel.found))
        for panel in value.panels
    ]


@records_of.register
def _(value: ResultStrips) -> Iterator[Record]:
    for panel in value.panels:
        names, rows = panel.found.table()
        for row in rows:
            yield {"place": panel.place, **dict(zip(names, row, strict=True))}


@table_of.register
def _(value: ResultStrips) -> Table:
    rows = []
    for panel in value.panels:
        for strip in panel.found.strips:
            asked = strip.label or strip.query
            for model in panel.found.models:
                hits = strip.hits[model]
                words = [f"{_JUDGED[hit.right]} {hit.label or hit.id}".strip() for hit in hits]
                rows.append([panel.place, asked, model, *words])
    most = max((len(row) - 3 for row in rows), default=0)
    several = len({row[0] for row in rows}) > 1
    head = ["", "query", "model", *(f"hit {place}" for place in range(1, most + 1))]
    return head[1 - several :], [[*row, *[""] * (3 + most - len(row))][1 - several :] for row in rows]


_JUDGED = {True: "✓", False: "✗", None: ""}


# --- classes of sessions ---------------------------------------------------------------------------------------------


@charts_of.register
def _(value: ClassArrivals, *, phone: bool = False) -> list[alt.LayerChart]:
    return [arrivals_panel(value.title, panel, width=_width(value.panels, phone)) for panel in value.panels]


@records_of.register
def _(value: ClassArrivals) -> Iterator[Record]:
    for panel in value.panels:
        for session, images in enumerate(panel.images, start=1):
            for name, home, count in zip(panel.classes, panel.home, images, strict=True):
                of: Record = {"place": panel.place, "session": session, "class": name, "home": home}
                yield {**of, "images": count}


@table_of.register
def _(value: ClassArrivals) -> Table:
    rows = []
    for panel in value.panels:
        for session, images in enumerate(panel.images, start=1):
            own = [count for home, count in zip(panel.home, images, strict=True) if home == session and count]
            other = [count for home, count in zip(panel.home, images, strict=True) if home != session and count]
            told = [f"{sum(images):,}", f"{len(own):,}", _from_to(own), f"{len(other):,}", _from_to(other)]
            rows.append([", ".join(filter(None, (panel.place, f"session {session}"))), *told])
    return ["", "images", "own classes", "images of each", "other classes", "images of each of these"], rows


def _from_to(counts: Sequence[int]) -> str:
    if not counts:
        return "–"
    return f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"


# --- pages and files -------------------------------------------------------------------------------------------------


class Figure(NamedTuple):
    """A figure on a page.

    Args:
        title: Headline.
        charts: Panels, each for wide screens and for phones.
        table: Columns and rows of its numbers.
        wide: Whether its panels take the whole width of the page.
        width: Width of its widest panel in pixels.
        note: Why a part of it is not drawn; empty if nothing is missing.
        below: Note below its table.
    """

    title: str
    charts: list[Drawing]
    table: Table
    wide: bool = False
    width: int = 0
    note: str = ""
    below: str = ""


def page_figures(results: Leaderboard) -> list[Figure]:
    """Return the figures of a leaderboard, in the order of its suite."""
    found = []
    for name, value in results.figures.items():
        charts = charts_of(value)
        phone = charts_of(value, phone=True)
        drawings = [Drawing(svg(wide), svg(narrow)) for wide, narrow in zip(charts, phone, strict=True)]
        width = round(max(map(width_of, charts), default=0))
        note = results.figure_notes.get(name, "")
        found.append(Figure(value.title, drawings, table_of(value), width > _BESIDE, width, note, note_below(value)))
    return found


def figure_lines(results: Leaderboard) -> list[str]:
    """Return lines for a terminal: every figure with its title, and the reasons why figures are not drawn."""
    drawn = [f"{name}: {value.title}" if value.title != name else name for name, value in results.figures.items()]
    told = {name: plain_text(note) for name, note in results.figure_notes.items()}
    missing = [
        f"{name}: {'in part' if name in results.figures else 'not drawn'}. {note}" for name, note in told.items()
    ]
    return [*map(plain_text, drawn), *missing]


def figure_csv(value: FigureValue) -> str:
    """Return every number of a figure as CSV, unrounded, one line each."""
    records = list(records_of(value))
    stream = io.StringIO()
    names = list(dict.fromkeys(name for record in records for name in record))
    writer = csv.DictWriter(stream, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return stream.getvalue()


def figure_markdown(value: FigureValue, heading: str = "#") -> str:
    """Return the table of a figure in Markdown."""
    below = note_below(value)
    return "\n".join(
        [f"{heading} {plain_text(value.title)}\n", markdown_table(*table_of(value)), *[f"{below}\n"] * bool(below)]
    )


def write_figures(results: Leaderboard, folder: str | Path) -> list[Path]:
    """Write figures/NAME.csv, figures/NAME.md and, for charts, figures/NAME.svg of every figure; return the paths.

    Without the packages for charts, no SVG files are written.

    Raises:
        DataError: A file could not be written.
    """
    paths = []
    place = Path(folder) / FOLDER
    for name, value in results.figures.items():
        told = figure_markdown(value)
        paths += [write_page(figure_csv(value), place, f"{name}.csv"), write_page(told, place, f"{name}.md")]
        charts = charts_of(value) if pages_can_be_written() else []
        if charts:
            beside = 1 if max(map(width_of, charts)) > _BESIDE else 2
            paths.append(save(charts, place / f"{name}.svg", title=value.title, beside=beside))
    return paths
