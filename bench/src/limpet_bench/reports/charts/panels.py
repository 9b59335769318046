"""Panels of the figures of a suite: lines over a setting, grouped bars, and matrices of generations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt
import numpy as np
from numpy.typing import NDArray

from limpet.reports.formats import score, signed
from limpet.reports.plots.frame import Frame, Range
from limpet.reports.plots.heat import heat_map, heat_range, marked_by_criterion
from limpet.reports.plots.style import HAIR, INK, PAPER, SERIES, SOFT, cut, round_ticks, shape_of, tick_label, width_of
from limpet.support import metric_name

if TYPE_CHECKING:
    from limpet_bench.figure_values import BarPanel, GenerationMatrix, LinePanel, Matrices, Spread

Layers = list[alt.Chart | None]

_LETTERS, _ROW = 12.0, 17.0  # font size of a legend, and height of its rows
_NAMED, _MARKED = 12, 30  # maximum number of values with a tick each, and with a mark each
SIGNED = ("p_up", "p_comp")
"""Measures that are differences."""


class Look(NamedTuple):
    """Appearance of a series: its colour, whether it is dashed or pale, and the shape of its marks."""

    colour: str
    again: bool
    shape: int


def look(number: int) -> Look:
    """Return the appearance of the series with this number; the first 42 differ."""
    return Look(SERIES[number % len(SERIES)], bool(number // len(SERIES) % 2), number % 6)


def names_of(things: Sequence[tuple[str, str]]) -> list[str]:
    """Return the shortest distinct names for pairs of row and measure; a name is never empty.

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
    """Format a mean with its range over seeds, if there are several."""
    form = signed if measure in SIGNED else score
    if value is None:
        return form(None)
    return form(value.mean) + (f" [{form(value.lowest)}, {form(value.highest)}]" if value.seeds > 1 else "")


def reach(values: Sequence[Spread | None]) -> Range | None:
    """Return the lowest and the highest value of all; None if none is defined."""
    known = [value for value in values if value is not None]
    return (min(one.lowest for one in known), max(one.highest for one in known)) if known else None


class _Head(NamedTuple):
    """Headline and legend above the axes.

    Args:
        place: The headline of the panel.
        rows: Rows of the legend, with number, shortened name and left edge in pixels of every entry.
        names: Names of the series, in their order.
    """

    place: str
    rows: list[list[tuple[int, str, float]]]
    names: list[str]

    @classmethod
    def of(cls, place: str, names: list[str], width: float) -> _Head:
        """Lay out a legend in rows that fit a width; a single name has no legend."""
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
        return 20.0 * bool(self.place) + _ROW * len(self.rows)

    def layers(self, frame: Frame, sample: Callable[[Frame, Look, float, float, str], Layers]) -> Layers:
        """Draw headline and legend above the axes.

        Args:
            frame: Frame of the panel.
            sample: Function that draws a sample of 26 pixels, given frame, look, left edge, vertical middle and name.
        """
        start = frame.x_at(0)
        headline = {"x": start, "y": frame.y_at(14), "text": cut(self.place, frame.width)}
        found: Layers = [frame.text([headline], "place", bold=True)]
        keys = []
        for row, named in enumerate(self.rows):
            down = 20.0 * bool(self.place) + _ROW * row + 12
            for number, words, at in named:
                found += sample(frame, look(number), at, down - 4, f"sample {number}")
                keys.append({"x": frame.x_at(at + 32), "y": frame.y_at(down), "text": words})
        return [*found, frame.text(keys, "legend", size=_LETTERS, colour=SOFT)]


def _line_sample(frame: Frame, drawn: Look, right: float, down: float, name: str) -> Layers:
    ends = [{"x": frame.x_at(right + across), "y": frame.y_at(down)} for across in (0, 13, 26)]
    return [
        frame.lines(ends[::2], name, colour=drawn.colour, width=2.0, dashes=_dashes(drawn)),
        frame.marks(
            ends[1:2], f"mark of {name}", shape=shape_of(drawn.shape), radius=4.2, colour=drawn.colour, edge=PAPER
        ),
    ]


def _bar_sample(frame: Frame, drawn: Look, right: float, down: float, name: str) -> Layers:
    box = {"x": frame.x_at(right), "x2": frame.x_at(right + 26), "y": frame.y_at(down - 5), "y2": frame.y_at(down + 5)}
    return [frame.boxes([box], name, colour=drawn.colour, opacity=_alpha(drawn))]


def _dashes(drawn: Look) -> tuple[float, ...] | None:
    return (6.0, 3.0) if drawn.again else None


def _alpha(drawn: Look) -> float:
    return 0.45 if drawn.again else 1.0


def lines_panel(
    panel: LinePanel, title: str, across: str, up: str, *, log: bool = False, width: float = 640, height: float = 320
) -> alt.LayerChart:
    """Draw lines with the range over seeds as a band; undefined values have no mark."""
    names = names_of([(line.label, line.measure) for line in panel.lines])
    head = _Head.of(panel.place, names, width)
    values = sorted({point.at for line in panel.lines for point in line.points}) or [0.0]
    low, high = values[0], values[-1]
    if log:
        x = (low / 1.1, high * 1.1) if high > low else (low / 3, low * 3)
    else:
        room = 0.04 * (high - low) or 0.5
        x = (low - room, high + room)
    ticks = round_ticks(*(reach([point.value for line in panel.lines for point in line.points]) or (0.0, 1.0)))
    told = "; ".join(
        f"{name}: {', '.join(f'{tick_label(one.at)}: {written(line.measure, one.value)}' for one in line.points)}"
        for name, line in zip(names, panel.lines, strict=True)
    )
    frame = Frame(width, height + head.height, (46.0, head.height + 32, 16.0, 46.0), x, (ticks[0], ticks[-1]), log=log)
    named = values if len(values) <= _NAMED else [tick for tick in round_ticks(low, high) if low <= tick <= high]
    above = {"x": frame.x_at(0), "y": frame.y_at(head.height + 14), "text": up}
    layers: Layers = [
        frame.axes(named, ticks, x_title=across),
        frame.text([above], "up", size=12, colour=SOFT),
        *head.layers(frame, _line_sample),
    ]
    for number, line in reversed(list(enumerate(panel.lines))):
        drawn, name = look(number), names[number]
        known = [(point.at, point.value) for point in line.points if point.value is not None]
        track = [
            {"x": at, "y": value.mean, "note": f"{name}, {tick_label(at)}: {written(line.measure, value)}"}
            for at, value in known
        ]
        if any(value.seeds > 1 for _, value in known):
            band = [{"x": at, "y": value.lowest, "y2": value.highest} for at, value in known]
            layers.append(frame.band(band, f"range {number}", colour=drawn.colour))
        layers.append(frame.lines(track, f"line {number}", colour=drawn.colour, width=2.0, dashes=_dashes(drawn)))
        if len(values) <= _MARKED:
            shape = shape_of(drawn.shape)
            layers.append(
                frame.marks(track, f"marks {number}", shape=shape, radius=4.2, colour=drawn.colour, edge=PAPER)
            )
    return frame.chart(f"{title} {panel.place}".strip(), f"{up}. {told}.", layers)


def bars_panel(panel: BarPanel, title: str, up: str, *, width: float = 640) -> alt.LayerChart:
    """Draw groups of horizontal bars, with whiskers for the range over seeds and the means to the right."""
    names = names_of([(series.label, series.measure) for series in panel.series])
    head = _Head.of(panel.place, names, width)
    step, top = 17.0, head.height + 8
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
    inner = group * len(panel.groups)
    frame = Frame(width, top + inner + 44, (2.0, top, 58.0, 44.0), (ticks[0], ticks[-1]), (inner, 0.0))
    layers: Layers = [
        frame.axes(ticks, x_title=up),
        *head.layers(frame, _bar_sample),
        frame.rules([{"x": 0, "x2": 0, "y": 0, "y2": inner}], "zero", colour=HAIR),
    ]
    whiskers: list[dict[str, Any]] = []
    numbers = []
    for number, series in enumerate(panel.series):
        drawn, form, bars = look(number), signed if series.measure in SIGNED else score, []
        for place, value in enumerate(series.values):
            down = group * place + 22 + step * number
            words = form(value.mean if value else None)
            numbers.append({"x": frame.x_at(width), "y": down + 11, "text": words})
            if value is not None:
                note = f"{names[number]}: {written(series.measure, value)}"
                bars.append({"x": 0, "x2": value.mean, "y": down, "y2": down + 13, "note": note})
                if value.seeds > 1:
                    middle = down + 6.5
                    whiskers.append({"x": value.lowest, "x2": value.highest, "y": middle, "y2": middle})
                    for end in (value.lowest, value.highest):
                        whiskers.append({"x": end, "x2": end, "y": middle - 3.5, "y2": middle + 3.5})
        layers.append(frame.boxes(bars, f"bars {number}", colour=drawn.colour, opacity=_alpha(drawn)))
    groups = [
        {"x": frame.x_at(0), "y": group * place + 16, "text": cut(where, width - 8)}
        for place, where in enumerate(panel.groups)
    ]
    layers += [
        frame.rules(whiskers, "whiskers", colour=INK, width=1.3),
        frame.text(groups, "groups", bold=True),
        frame.text(numbers, "numbers", align="right"),
    ]
    return frame.chart(f"{title} {panel.place}".strip(), f"{up}. {told}.", layers)


def matrix_panel(
    panel: GenerationMatrix, title: str, measure: str, limits: Range, *, width: float = 340
) -> alt.LayerChart:
    """Draw the scores of the queries of every generation on the galleries of earlier generations.

    Args:
        panel: The matrix.
        title: Title of the figure.
        measure: Measure of the matrix; for "cross", pairs that score above the older model itself are marked.
        limits: Ends of the colour scale, the same for adjacent panels.
        width: Width in pixels.
    """
    values = means_of(panel)
    names = [str(number + 1) for number in range(len(values))]
    marked = marked_by_criterion(values) if measure == "cross" else None
    name, form = ", ".join(filter(None, (panel.label, panel.place))), signed if measure in SIGNED else score
    return heat_map(name, values, names, limits, what=title, marked=marked, form=form, width=width)


def means_of(panel: GenerationMatrix) -> NDArray[np.float64]:
    """Return the means of a matrix (generations, generations), NaN if undefined."""
    return np.array([[np.nan if one is None else one.mean for one in row] for row in panel.values])


def matrix_range(found: Matrices) -> Range:
    """Return the lowest and the highest mean of all panels, for one common scale."""
    return heat_range([means_of(panel) for panel in found.panels]) or (0.0, 1.0)
