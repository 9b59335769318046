"""The panels of the figures that a suite asks for: lines over a setting, grouped bars, and matrices of generations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limpet.reports.charts.canvas import HAIR, PAPER, SERIES, SOFT, Chart, round_ticks
from limpet.reports.charts.lines import as_fit
from limpet.reports.charts.matrix import Limits, heat_map, heat_range, marked_by_criterion
from limpet.reports.formats import score, signed
from limpet.reports.svg import cut, tick_label, width_of
from limpet.support.wording import metric_name

if TYPE_CHECKING:
    from limpet_bench.figure_values import BarPanel, GenerationMatrix, Line, LinePanel, Matrices, Spread

_LETTERS, _ROW = 12.0, 17.0  # height of letters in a legend, and of its rows
_NAMED, _MARKED = 12, 30  # so many values have a tick each, and a mark
SIGNED = ("p_up", "p_comp")
"""Measures that are differences."""


class Look(NamedTuple):
    """How one of several things is drawn: its colour, whether dashed or pale, and the shape of its marks."""

    colour: str
    again: bool
    shape: int


def look(number: int) -> Look:
    """Return how the thing of this place is drawn; of 42 no two are alike."""
    return Look(SERIES[number % len(SERIES)], bool(number // len(SERIES) % 2), number % 6)


def names_of(things: Sequence[tuple[str, str]]) -> list[str]:
    """Return what rows and measures are called together: no more than tells them apart, and never nothing.

    >>> names_of([("bct", "cross"), ("p2s", "cross")]), names_of([("bct", "cross"), ("bct", "self_new")])
    (['bct', 'p2s'], ['cross', 'self (new)'])
    >>> names_of([("bct", "cross"), ("p2s", "self_new")]), names_of([("", "p_comp")])
    (['bct, cross', 'p2s, self (new)'], ['P_comp'])
    """
    labels, measures = ({thing[part] for thing in things} for part in (0, 1))
    found = []
    for label, measure in things:
        parts = [label] * (len(labels) > 1) + [metric_name(measure)] * (len(measures) > 1)
        found.append(", ".join(parts) or label or metric_name(measure))
    return found


def written(measure: str, value: Spread | None) -> str:
    """Write a mean with its range, if there is one."""
    form = signed if measure in SIGNED else score
    if value is None:
        return form(None)
    return form(value.mean) + (f" [{form(value.lowest)}, {form(value.highest)}]" if value.seeds > 1 else "")


def reach(values: Sequence[Spread | None]) -> Limits | None:
    """Return the lowest and the highest number of all; None where nothing is defined."""
    known = [value for value in values if value is not None]
    return (min(one.lowest for one in known), max(one.highest for one in known)) if known else None


class _Head(NamedTuple):
    """What stands above the axes: the place of a panel, a legend in rows of (number, name, where it begins).

    Args:
        place: The headline of the panel.
        rows: Of the legend.
        names: Of what is drawn, in its order.
    """

    place: str
    rows: list[list[tuple[int, str, float]]]
    names: list[str]

    @classmethod
    def of(cls, place: str, names: list[str], width: float) -> _Head:
        """Lay out a legend in rows that fit a width; a single name needs none."""
        rows: list[list[tuple[int, str, float]]] = []
        at = width
        for number, name in enumerate(names if len(names) > 1 else ()):
            words = cut(name, width - 32, _LETTERS)
            if at + 32 + width_of(words, _LETTERS) > width:
                rows, at = [*rows, []], 0.0
            rows[-1].append((number, words, at))
            at += 46 + width_of(words, _LETTERS)
        return cls(place, rows, names)

    @property
    def height(self) -> float:
        """Pixels that it takes."""
        return 20.0 * bool(self.place) + _ROW * len(self.rows)

    def draw(self, chart: Chart, sample: Callable[[Chart, Look, float, float], None]) -> None:
        """Write it above the axes.

        Args:
            chart: Where.
            sample: Draws a look in 26 pixels to the right of values of the axes.
        """
        if self.place:
            chart.write(0, chart.height - 14, cut(self.place, chart.width), across="page", up="page", bold=True)
        for row, named in enumerate(self.rows):
            down = 20.0 * bool(self.place) + _ROW * row + 12
            for number, words, at in named:
                sample(chart, look(number), at, down - 4)
                chart.write(at + 32, chart.height - down, words, across="page", up="page", size=_LETTERS, colour=SOFT,
                            label="legend")  # fmt: skip


def _line_sample(chart: Chart, drawn: Look, right: float, down: float) -> None:
    (x, y), (end, _) = chart.value(right, down), chart.value(right + 26, down)
    chart.line([x, end], [y, y], drawn.colour, 2.0, (6, 3) if drawn.again else None)
    chart.mark((x + end) / 2, y, drawn.shape, drawn.colour, 4.2, edge=PAPER)


def _bar_sample(chart: Chart, drawn: Look, right: float, down: float) -> None:
    (x, y), (end, top) = chart.value(right, down + 5), chart.value(right + 26, down - 5)
    chart.box(x, y, end - x, top - y, drawn.colour, alpha=_alpha(drawn))


def _alpha(drawn: Look) -> float:
    return 0.45 if drawn.again else 1.0


def lines_panel(
    panel: LinePanel, title: str, across: str, up: str, *, log: bool = False, width: float = 640, height: float = 320
) -> Chart:
    """Draw lines with the range over seeds as a band; where nothing is defined a line has no mark."""
    names = names_of([(line.label, line.measure) for line in panel.lines])
    head = _Head.of(panel.place, names, width)
    values = sorted({point.at for line in panel.lines for point in line.points}) or [0.0]
    places = {at: math.log10(at) if log else at for at in values}
    low, high = places[values[0]], places[values[-1]]
    room = 0.04 * (high - low) or 0.5
    ticks = round_ticks(*(reach([point.value for line in panel.lines for point in line.points]) or (0.0, 1.0)))
    told = "; ".join(
        f"{name}: {', '.join(f'{tick_label(one.at)}: {written(line.measure, one.value)}' for one in line.points)}"
        for name, line in zip(names, panel.lines, strict=True)
    )
    size, around = (width, height + head.height), (46.0, head.height + 32, 16.0, 46.0)
    x = (low - room, high + room)
    chart = Chart(f"{title} {panel.place}".strip(), f"{up}. {told}.", size, around, x, (ticks[0], ticks[-1]))
    named = values if len(values) <= _NAMED else [tick for tick in round_ticks(low, high) if low <= tick <= high]
    at = [places.get(value, value) for value in named]
    chart.x_axis(at, across, labels=as_fit([tick_label(value) for value in named], [chart.at(one) for one in at]))
    chart.y_axis(ticks, "")
    chart.write(0, height - 14, up, size=12, colour=SOFT, across="page", up="page")
    head.draw(chart, _line_sample)
    for number, line in reversed(list(enumerate(panel.lines))):
        _line(chart, line, look(number), names[number], places, marked=len(values) <= _MARKED)
    return chart


def _line(chart: Chart, line: Line, drawn: Look, name: str, places: Mapping[float, float], *, marked: bool) -> None:
    known = [(places[point.at], point.value, point.at) for point in line.points if point.value is not None]
    x, dashes = [at for at, _, _ in known], (6.0, 3.0) if drawn.again else None
    if any(value.seeds > 1 for _, value, _ in known):
        ends = ([value.lowest for _, value, _ in known], [value.highest for _, value, _ in known])
        chart.area(x, *ends, drawn.colour, 0.14, label="range")
    chart.line(x, [value.mean for _, value, _ in known], drawn.colour, 2.0, dashes, label=f"line {name}")
    for at, value, asked in known if marked else ():
        note = f"{name}, {tick_label(asked)}: {written(line.measure, value)}"
        chart.mark(at, value.mean, drawn.shape, drawn.colour, 4.2, edge=PAPER, note=note, label=name)


def bars_panel(panel: BarPanel, title: str, up: str, *, width: float = 640) -> Chart:
    """Draw bars below each other, in groups, with whiskers over the range of seeds and the means to the right."""
    names = names_of([(series.label, series.measure) for series in panel.series])
    head = _Head.of(panel.place, names, width)
    step = 17.0
    group = 26.0 + step * len(panel.series)
    low, high = reach([value for series in panel.series for value in series.values]) or (0.0, 1.0)
    ticks = round_ticks(min(0.0, low), max(0.0, high))
    told = "; ".join(
        f"{where}: "
        + ", ".join(
            f"{name} {written(one.measure, one.values[place])}" for name, one in zip(names, panel.series, strict=True)
        )
        for place, where in enumerate(panel.groups)
    )
    size = (width, head.height + 8 + group * len(panel.groups) + 44)
    around = (2.0, head.height + 8, 58.0, 44.0)
    chart = Chart(f"{title} {panel.place}".strip(), f"{up}. {told}.", size, around, (ticks[0], ticks[-1]))
    chart.x_axis(ticks, up)
    head.draw(chart, _bar_sample)
    chart.line([0, 0], [chart.top, chart.bottom], HAIR, 1.2, label="zero", behind=True)
    for place, where in enumerate(panel.groups):
        top = chart.top + group * place
        chart.write(0, top + 16, cut(where, width - 8), across="page", bold=True, halo=True, label="group")
        for number, series in enumerate(panel.series):
            _bar(chart, series.measure, series.values[place], look(number), top + 22 + step * number, names[number])
    return chart


def _bar(chart: Chart, measure: str, value: Spread | None, drawn: Look, top: float, name: str) -> None:
    form = signed if measure in SIGNED else score
    chart.write(
        chart.width, top + 11, form(value.mean if value else None), across="page", align="right", label="number"
    )
    if value is None:
        return
    note = f"{name}: {written(measure, value)}"
    chart.box(0, top, value.mean, 13, drawn.colour, alpha=_alpha(drawn), note=note, label=name)
    if value.seeds > 1:
        chart.whisker((value.lowest, value.highest), top + 6.5, label=f"whisker {name}")


def matrix_panel(panel: GenerationMatrix, title: str, measure: str, limits: Limits, *, width: float = 340) -> Chart:
    """Draw what queries of every generation score on the galleries of those before, marked where that is compatible.

    Args:
        panel: The matrix.
        title: Of the figure.
        measure: What it holds; where that is "cross", pairs above the older model's own score are marked.
        limits: Ends of the colours, the same for panels beside each other.
        width: Width in pixels.
    """
    values = means_of(panel)
    names = [str(number + 1) for number in range(len(values))]
    marked = marked_by_criterion(values) if measure == "cross" else None
    name, form = ", ".join(filter(None, (panel.label, panel.place))), signed if measure in SIGNED else score
    return heat_map(name, values, names, limits, what=title, marked=marked, form=form, width=width)


def means_of(panel: GenerationMatrix) -> NDArray[np.float64]:
    """Return the means of a matrix, NaN where there is none."""
    return np.array([[np.nan if one is None else one.mean for one in row] for row in panel.values])


def matrix_range(found: Matrices) -> Limits:
    """Return the lowest and the highest mean of all panels, so that they share one scale."""
    return heat_range([means_of(panel) for panel in found.panels]) or (0.0, 1.0)
