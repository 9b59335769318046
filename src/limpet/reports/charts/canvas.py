"""What every chart is drawn on: axes measured in pixels, whose colours follow the scheme of a page.

In the SVG of a page each colour is a variable of the page, so that one drawing serves light, dark and print. A figure
of Matplotlib, which is made where somebody asks for it, has the colours of a page in light, as a file for a paper needs
them. Matplotlib, of the extra `report`, is imported when the first chart is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from xml.etree import ElementTree

from limpet.reports.charts.shapes import Align, Area, Box, Dashes, Line, Marks, Picture, Shape, Strokes, Text, Unit
from limpet.reports.svg import NOT_XML, tick_label, width_of

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

INK, SOFT, FAINT, HAIR, PAPER = "#1d2227", "#5a6470", "#e6e3dc", "#d5d1c8", "#fdfcfa"
CROSS, OLD, INDEPENDENT = "#0072b2", "#55606b", "#b0528e"
GOOD, MAYBE, BAD, REVERSE = "#007a5a", "#9a6300", "#b84a00", "#c75a00"
SERIES = (CROSS, "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8f98")
HEAT, HEAT_INK, ON_HEAT = "#003058", "#010101", "#ffffff"

VARIABLES = {
    **{INK: "ink", SOFT: "soft", FAINT: "faint", HAIR: "hair", PAPER: "paper"},
    **{CROSS: "cross", OLD: "old", INDEPENDENT: "independent"},
    **{GOOD: "good", MAYBE: "maybe", BAD: "bad", REVERSE: "reverse"},
    **{colour: f"series-{number}" for number, colour in enumerate(SERIES) if number},
    **{HEAT: "heat", HEAT_INK: "heat-ink", ON_HEAT: "on-heat"},
}
"""The variable of the style of a page that holds a colour."""

VERDICTS = {"compatible": GOOD, "inconclusive": MAYBE, "mixed": MAYBE, "not held out": MAYBE, "not compatible": BAD}
"""Colours of the verdicts; the others are in ink."""

SHAPES = (("o", 2.0), ("s", 1.8), ("^", 2.1), ("D", 1.77), ("v", 2.1), ("P", 2.2))
"""Six markers that differ without colour, each with its width for a radius of 1."""

DPI = 72  # a point is a pixel of a page
_SAME = 1e-9  # values nearer than this are drawn as one
_SVG = "{http://www.w3.org/2000/svg}"
_DOT = 0.02  # pixels: a shorter line is not drawn by all programs
_ASCENT = 12 * 1556 / 2048  # pixels above the base that Matplotlib's font reaches in the size of ticks
_HALO = ".halo{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}"  # as pages have it
_OWN = ("backend", "interactive", "toolbar", "timezone", "date.epoch", "webagg", "tk.", "savefig.directory")

Range = tuple[float, float]
Arguments = ParamSpec("Arguments")
Drawn = TypeVar("Drawn")


def own_style(draw: Callable[Arguments, Drawn]) -> Callable[Arguments, Drawn]:
    """Let a function draw with Matplotlib's defaults, whatever is set for other drawings."""

    @wraps(draw)
    def drawn(*args: Arguments.args, **options: Arguments.kwargs) -> Drawn:
        import matplotlib

        if _defaults().items() <= dict.items(matplotlib.rcParams):
            return draw(*args, **options)
        with matplotlib.rc_context():
            dict.update(matplotlib.rcParams, _defaults())  # which were checked when Matplotlib was imported
            return draw(*args, **options)

    return drawn


@cache
def _defaults() -> dict[str, Any]:
    import matplotlib

    return {key: found for key, found in matplotlib.rcParamsDefault.items() if not key.startswith(_OWN)}


@own_style
def round_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round values, about so many, from below to above a range; a single value gets a step towards zero.

    >>> round_ticks(0.13, 0.52), round_ticks(1.0, 1.0, 1)
    ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.5, 1.0])
    """
    from matplotlib.ticker import MaxNLocator

    if high - low < _SAME:
        low, high = (high - 0.5, high) if high > 0 else (low, low + 0.5)
    ticks = MaxNLocator(about, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [round(float(tick), 10) + 0.0 for tick in ticks]


def close_ticks(low: float, high: float, about: int = 5) -> tuple[tuple[float, float], list[float]]:
    """Return ends close around a range, on values twice as fine as ticks are, and about so many round ticks within."""
    ends = round_ticks(low, high, 2 * about)
    ticks = [tick for tick in round_ticks(ends[0], ends[-1], about) if ends[0] <= tick <= ends[-1]]
    return (ends[0], ends[-1]), ticks


def _holding(limits: Range, ticks: Sequence[float]) -> Range:
    """Return limits that hold all ticks, in the order that they have."""
    low, high = min(*limits, *ticks), max(*limits, *ticks)
    return (low, high) if limits[0] < limits[1] else (high, low)


class Chart:
    """One pair of axes, and what it says in words.

    Args:
        title: What is drawn.
        told: Its numbers, for people who do not see it.
        size: Width and height in pixels.
        room: Pixels to the left, above, to the right and below the axes.
        x: Values at the left and right end.
        y: Values at the lower and upper end; where they are left out, pixels from the top of the drawing.
    """

    def __init__(
        self,
        title: str,
        told: str,
        size: tuple[float, float],
        room: tuple[float, float, float, float],
        x: tuple[float, float],
        y: tuple[float, float] | None = None,
    ) -> None:
        self.title, self.told, self.width, self.height = title, told, *size
        left, top, right, bottom = room
        self.top, self.bottom = top, self.height - bottom
        self.start, self.inner = left, self.width - left - right
        high = self.height - top - bottom
        self._place = (left / self.width, bottom / self.height, self.inner / self.width, high / self.height)
        self.x, self.y = x, y or (self.bottom, top)
        self._shapes: list[Shape] = []

    @cached_property
    @own_style
    def figure(self) -> Figure:
        """The chart as a figure of Matplotlib, with all that was drawn before somebody asked for it."""
        from matplotlib.figure import Figure

        figure = Figure((self.width / DPI, self.height / DPI), dpi=DPI, facecolor="none")
        axes = figure.add_axes(self._place, facecolor="none", frame_on=False)
        axes.set(xlim=self.x, ylim=self.y, autoscale_on=False)
        axes.set_axis_off()
        for shape in self._shapes:
            shape.draw(axes)
        return figure

    @property
    def axes(self) -> Axes:
        """Those of the figure."""
        return self.figure.axes[0]

    @staticmethod
    def variable(colour: str) -> str:
        """Return how a page names a colour."""
        return f"var(--{VARIABLES[colour]})"

    def at(self, x: float) -> float:
        """Return how many pixels from the left a value is."""
        low, high = self.x
        return self.start + self.inner * (x - low) / (high - low)

    def down(self, y: float) -> float:
        """Return how many pixels from the top a value is."""
        low, high = self.y
        return self.bottom - (self.bottom - self.top) * (y - low) / (high - low)

    def pixels(self, x: Iterable[float], y: Iterable[float]) -> list[tuple[float, float]]:
        """Return how many pixels from the left and from the top points are, as Matplotlib computes it."""
        (left, right), (low, high) = self.x, self.y
        across, up = 1 / (right - left), 1 / (high - low)
        wide, tall = self.inner, self.bottom - self.top
        first, base = self.start + wide * (-left * across), self.height - self.bottom + tall * (-low * up)
        wide, tall = wide * across, tall * up  # of one unit
        return [(wide * a + first, self.height - (tall * b + base)) for a, b in zip(x, y, strict=True)]

    def value(self, right: float, down: float) -> tuple[float, float]:
        """Return the values that are at a place of the drawing, in pixels from the left and from the top."""
        (left, end), (low, high) = self.x, self.y
        across, up = (right - self.start) / self.inner, (self.bottom - down) / (self.bottom - self.top)
        return left + across * (end - left), low + up * (high - low)

    def add(self, shape: Shape) -> None:
        """Draw a shape; a figure that somebody asked for before lacks it, and is made anew."""
        self._shapes.append(shape)
        self.__dict__.pop("figure", None)

    def x_axis(
        self, ticks: Sequence[float], title: str, *, labels: Sequence[str] | None = None, grid: bool = True
    ) -> None:
        """Draw a grid line for every value, write them below, and the title below all."""
        self.x_ticks(ticks, labels, grid=grid)
        self.write((self.x[0] + self.x[1]) / 2, 7, title, size=12, colour=SOFT, align="center", up="page")

    def x_ticks(self, ticks: Sequence[float], labels: Sequence[str] | None = None, *, grid: bool = True) -> None:
        """Write values below the axes, which hold them all, and draw a grid line for each."""
        if not ticks:
            return
        self.x = _holding(self.x, ticks)
        labels = [tick_label(tick) for tick in ticks] if labels is None else labels
        inside, up = self.at(ticks[0]) >= width_of(labels[0], 12) / 2 - 8, self.height - self.bottom - 7 - _ASCENT
        for place, (tick, words) in enumerate(zip(ticks, labels, strict=True)):
            if grid:
                self.add(Line([tick, tick], self.y, FAINT, label="grid", zorder=0.6, longer=True, clipped=True))
            align: Align = "center" if place or inside else "left"
            self.write(tick, up, words, up="page", size=12, colour=SOFT, align=align, label="x tick", zorder=0.6)

    def y_axis(self, ticks: Sequence[float], title: str) -> None:
        """Draw a grid line for every value, write them to the left, and the title above."""
        self.y = _holding(self.y, ticks) if ticks else self.y
        for tick in ticks:
            self.add(Line(self.x, [tick, tick], FAINT, label="grid", zorder=0.7, longer=True, clipped=True))
            self.write(
                self.start - 8, tick, tick_label(tick), across="page", shift=(0, -_ASCENT / 2), size=12, colour=SOFT,
                align="right", label="y tick", zorder=0.7,
            )  # fmt: skip
        self.write(0, self.height - 14, title, size=12, colour=SOFT, across="page", up="page")

    def write(
        self,
        x: float,
        y: float,
        words: str,
        *,
        across: Unit = "data",
        up: Unit = "data",
        shift: tuple[float, float] = (0, 0),
        size: float = 13,
        colour: str = INK,
        align: Align = "left",
        bold: bool = False,
        halo: bool = False,
        label: str = "",
        zorder: float = 3,
    ) -> None:
        """Write a line of text.

        Args:
            x: Where it begins, or what `align` says.
            y: Of its base.
            words: What to write.
            across: Whether `x` is a value of the axis, or pixels from the left of the drawing.
            up: Whether `y` is a value of the axis, or pixels from below the drawing.
            shift: Pixels to the right and upwards.
            size: Height of the letters in pixels.
            colour: One of this module.
            align: Which part of the words is at `x`.
            bold: Whether the letters are.
            halo: Whether what lies behind keeps away from the letters.
            label: The kind of text, for who looks for it in the figure.
            zorder: What is drawn before all that has a greater one.
        """
        words = NOT_XML.sub("", words)
        self.add(Text(x, y, words, across, up, shift, size, colour, align, bold, halo, label, zorder))

    def mark(
        self,
        x: float,
        y: float,
        shape: int = 0,
        colour: str = INK,
        radius: float = 5.0,
        *,
        edge: str | None = None,
        fill: str | None = None,
        line: float = 1.0,
        note: str = "",
        label: str = "",
    ) -> None:
        """Draw one of six shapes.

        Args:
            x: A value of the axis.
            y: A value of the axis.
            shape: Which of `SHAPES`; counted on from the first after the last.
            colour: Of the shape.
            radius: Its half width in pixels.
            edge: Colour of the line around it; its own when left out.
            fill: Another colour inside.
            line: Width of the line around it.
            note: What appears under a pointer.
            label: The kind of mark, for who looks for it in the figure.
        """
        marker, factor = SHAPES[shape % len(SHAPES)]
        note, label = NOT_XML.sub("", note), label or "_"
        self.add(Marks([x], [y], marker, radius * factor, fill or colour, edge or colour, line, note=note, label=label))

    def dots(
        self, x: Sequence[float], y: Sequence[float], colour: str, radius: float, *, alpha: float = 1.0, label: str = ""
    ) -> None:
        """Draw many filled dots of one colour as one shape, which takes a tenth of the room of as many marks.

        Args:
            x: Their places in values of the axis (N,).
            y: Likewise (N,).
            colour: One of this module.
            radius: Of a dot, in pixels.
            alpha: Their opacity; where dots meet they are not darker.
            label: The kind of mark, for who looks for it in the figure.
        """
        short = self.value(_DOT, 0)[0] - self.value(0, 0)[0]  # of a line with round ends
        points = [(place, b) for a, b in zip(x, y, strict=True) for place in (a, a + short)]
        if points:
            self.add(Strokes(points, 2, colour, 2 * radius, alpha, label or "_"))

    def triangles(
        self, x: Sequence[float], y: Sequence[float], colour: str, radius: float, *, line: float = 1.2, label: str = ""
    ) -> None:
        """Draw many hollow triangles of one colour as one shape; see `dots`."""
        across, up = (abs(b - a) for a, b in zip(self.value(0, 0), self.value(radius, radius), strict=True))
        flip = -1 if self.y[0] > self.y[1] else 1
        corners = ((-0.95, -0.7), (0.95, -0.7), (0.0, 1.0), (-0.95, -0.7), (0.95, -0.7))
        points = [(a + i * across, b + flip * j * up) for a, b in zip(x, y, strict=True) for i, j in corners]
        if points:
            self.add(Strokes(points, len(corners), colour, line, label=label or "_"))

    def picture(
        self, x: float, y: float, width: float, height: float, pixels: NDArray[np.uint8], *, note: str = ""
    ) -> None:
        """Draw an image from a corner at two values of the axes, as it is.

        Args:
            x: Where it begins.
            y: Of its upper edge, where the axis counts from above, and of its lower edge otherwise.
            width: In values of the axis.
            height: Likewise.
            pixels: Red, green and blue (height, width, 3), from the upper left.
            note: What appears under a pointer.
        """
        self.add(Picture(x, y, width, height, pixels, NOT_XML.sub("", note)))

    def line(
        self,
        x: Sequence[float],
        y: Sequence[float],
        colour: str,
        width: float = 1.0,
        dashes: Dashes = None,
        *,
        label: str = "",
        behind: bool = False,
    ) -> None:
        """Draw a line through points, dashed by lengths in pixels."""
        self.add(Line(x, y, colour, width, dashes, label or "_", 1.5 if behind else 2))

    def whisker(
        self, ends: Range, y: float, colour: str = INK, width: float = 1.3, cap: float = 3.5, *, label: str = ""
    ) -> None:
        """Draw a horizontal interval with caps."""
        self.add(Line(ends, [y, y], colour, width, label=label or "_", zorder=2.5, caps=2 * cap))

    def area(
        self, x: Sequence[float], low: ArrayLike, high: ArrayLike, colour: str, alpha: float, *, label: str = ""
    ) -> None:
        """Draw what lies between two curves; each is one value of the axis, or one for every place."""
        self.add(Area(x, low, high, colour, alpha, label))

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        colour: str,
        *,
        alpha: float = 1.0,
        edge: str | None = None,
        line: float = 0.0,
        dashes: Dashes = None,
        note: str = "",
        label: str = "",
        crisp: bool = False,
    ) -> None:
        """Draw a rectangle from a corner at two values of the axes, with a line around it where it has an edge.

        Where it is crisp, nothing shines through between it and one beside it.
        """
        note, label = NOT_XML.sub("", note), label or "_"
        self.add(Box(x, y, width, height, colour, alpha, edge, line, dashes, note, label, crisp))

    def __html__(self) -> str:
        """Return the drawing as SVG for a page; what a template writes."""
        return self.svg()

    def svg(self, kind: str = "chart") -> str:
        """Return the drawing as SVG for a page: colours are its variables, and text is text.

        Args:
            kind: "chart", or "swatch" for a mark in a legend, which says nothing in words.
        """
        box = {"class": kind, "xmlns": _SVG[1:-1], "viewBox": f"0 0 {self.width:g} {self.height:g}"}
        if kind == "swatch":
            page = ElementTree.Element("svg", box | {"aria-hidden": "true"})
        else:
            title, told = (NOT_XML.sub("", words) for words in (self.title, self.told))
            page = ElementTree.Element("svg", box | {"role": "img", "aria-label": f"{title}. {told}"})
            ElementTree.SubElement(page, "title").text = title
            ElementTree.SubElement(page, "desc").text = told
        for shape in sorted(self._shapes, key=lambda shape: shape.zorder):
            shape.write(page, self)
        return ElementTree.tostring(page, encoding="unicode")


def standalone(charts: Sequence[Chart], title: str, *, beside: int = 2, gap: float = 24.0) -> str:
    """Return charts as one SVG file on white, in rows of so many: what a page would show, in its light colours.

    Args:
        charts: At least one.
        title: Of all of them, written above where there are several.
        beside: How many stand in a row.
        gap: Pixels between them.
    """
    rows = [charts[start : start + beside] for start in range(0, len(charts), beside)]
    top = gap if len(charts) == 1 else 2 * gap
    width = max(sum(chart.width + gap for chart in row) for row in rows) + gap
    height = sum(max(chart.height for chart in row) + gap for row in rows) + top
    page = ElementTree.Element(
        f"{_SVG}svg",
        {"width": f"{width:g}", "height": f"{height:g}", "viewBox": f"0 0 {width:g} {height:g}",
         "font-family": "sans-serif", "role": "img", "aria-label": NOT_XML.sub("", title)},
    )  # fmt: skip
    ElementTree.SubElement(page, f"{_SVG}rect", {"width": "100%", "height": "100%", "fill": "white"})
    ElementTree.SubElement(page, f"{_SVG}style").text = _HALO
    if len(charts) > 1:
        head = {"x": f"{gap:g}", "y": f"{gap:g}", "style": f"font-weight:bold;fill:{INK}"}
        ElementTree.SubElement(page, f"{_SVG}text", head).text = NOT_XML.sub("", title)
    down = top
    for row in rows:
        right = gap
        for chart in row:
            drawn = ElementTree.fromstring(chart.svg())
            drawn.attrib |= {
                "x": f"{right:g}",
                "y": f"{down:g}",
                "width": f"{chart.width:g}",
                "height": f"{chart.height:g}",
            }
            page.append(drawn)
            right += chart.width + gap
        down += max(chart.height for chart in row) + gap
    colours = {f"var(--{name})": colour for colour, name in VARIABLES.items()}
    ElementTree.register_namespace("", _SVG[1:-1])
    text = ElementTree.tostring(page, encoding="unicode")
    return re.sub(r"var\(--[\w-]+\)", lambda found: colours[found[0]], text) + "\n"


def swatch(draw: Callable[[Chart], None]) -> str:
    """Return what a function draws on 26 x 12 pixels, from below, as a mark for a legend."""
    chart = Chart("", "", (26, 12), (0, 0, 0, 0), (0, 26), (0, 12))
    draw(chart)
    return chart.svg("swatch")
