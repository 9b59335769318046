"""What every chart is drawn on: a Matplotlib figure measured in pixels, whose colours follow the scheme of a page.

A figure has the colours of a page in light, as a file for a paper needs them; in the SVG of a page each becomes the
page's variable of that colour, so that one drawing serves light, dark and print. Matplotlib, of the extra `report`, is
imported when the first chart is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar
from xml.etree import ElementTree

from holdfast.reports.svg import NOT_XML, tick_label, width_of

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

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

VERDICTS = {"compatible": GOOD, "inconclusive": MAYBE, "mixed": MAYBE, "not compatible": BAD}
"""Colours of the verdicts; the others are in ink."""

SHAPES = (("o", 2.0), ("s", 1.8), ("^", 2.1), ("D", 1.77), ("v", 2.1), ("P", 2.2))
"""Six markers that differ without colour, each with its width for a radius of 1."""

DPI = 72  # a point is a pixel of a page
_SAME = 1e-9  # values nearer than this are drawn as one
_SVG = "{http://www.w3.org/2000/svg}"
NOTE = "note: "  # with which the group id of something begins that has a note
_DOT = 0.02  # pixels: a shorter line is not drawn by all programs
_ASCENT = 12 * 1556 / 2048  # pixels above the base that Matplotlib's font reaches in the size of ticks
_GRID = {"color": FAINT, "linewidth": 1, "label": "grid"}
_HALO = ".halo{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}"  # as pages have it
_OWN = ("backend", "interactive", "toolbar", "timezone", "date.epoch", "webagg", "tk.", "savefig.directory")

Align = Literal["left", "center", "right"]
Arguments = ParamSpec("Arguments")
Drawn = TypeVar("Drawn")


def own_style(draw: Callable[Arguments, Drawn]) -> Callable[Arguments, Drawn]:
    """Let a function draw with Matplotlib's defaults, whatever is set for other drawings."""

    @wraps(draw)
    def drawn(*args: Arguments.args, **options: Arguments.kwargs) -> Drawn:
        import matplotlib

        with matplotlib.rc_context():
            dict.update(matplotlib.rcParams, _defaults())  # which were checked when Matplotlib was imported
            return draw(*args, **options)

    return drawn


@cache
def _defaults() -> dict[str, Any]:
    import matplotlib

    return {key: found for key, found in matplotlib.rcParamsDefault.items() if not key.startswith(_OWN)}


@cache
@own_style
def _blank() -> Figure:
    """Return a figure with axes without ticks, which is copied in half of the time that making one takes."""
    from matplotlib.figure import Figure

    figure = Figure(dpi=DPI, facecolor="none")
    axes = figure.add_axes((0, 0, 1, 1), facecolor="none", frame_on=False)
    axes.set_axis_off()
    for axis in (axes.xaxis, axes.yaxis):
        del axis.majorTicks, axis.minorTicks  # which are made again where somebody asks for them
    return figure


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
        inner = (self.width - left - right, self.height - top - bottom)
        self.figure: Figure = deepcopy(_blank())
        self.figure.set_size_inches(self.width / DPI, self.height / DPI)
        self.axes: Axes = self.figure.axes[0]
        self.axes.set_position((left / self.width, bottom / self.height, inner[0] / self.width, inner[1] / self.height))
        self.axes.set(xlim=x, ylim=y or (self.bottom, top), autoscale_on=False)
        self.start, self.inner = left, inner[0]

    def at(self, x: float) -> float:
        """Return how many pixels from the left a value is."""
        low, high = self.axes.get_xlim()
        return self.start + self.inner * (x - low) / (high - low)

    def down(self, y: float) -> float:
        """Return how many pixels from the top a value is."""
        low, high = self.axes.get_ylim()
        return self.bottom - (self.bottom - self.top) * (y - low) / (high - low)

    def value(self, right: float, down: float) -> tuple[float, float]:
        """Return the values that are at a place of the drawing, in pixels from the left and from the top."""
        (left, end), (low, high) = self.axes.get_xlim(), self.axes.get_ylim()
        across, up = (right - self.start) / self.inner, (self.bottom - down) / (self.bottom - self.top)
        return left + across * (end - left), low + up * (high - low)

    def x_axis(
        self, ticks: Sequence[float], title: str, *, labels: Sequence[str] | None = None, grid: bool = True
    ) -> None:
        """Draw a grid line for every value, write them below, and the title below all."""
        self.x_ticks(ticks, labels, grid=grid)
        middle = (self.axes.get_xlim()[0] + self.axes.get_xlim()[1]) / 2
        self.write(middle, 7, title, size=12, colour=SOFT, align="center", up="page")

    def x_ticks(self, ticks: Sequence[float], labels: Sequence[str] | None = None, *, grid: bool = True) -> None:
        """Write values below the axes, which hold them all, and draw a grid line for each."""
        if not ticks:
            return
        self.axes.xaxis.set_view_interval(min(ticks), max(ticks))
        labels = [tick_label(tick) for tick in ticks] if labels is None else labels
        inside, up = self.at(ticks[0]) >= width_of(labels[0], 12) / 2 - 8, self.height - self.bottom - 7 - _ASCENT
        for place, (tick, words) in enumerate(zip(ticks, labels, strict=True)):
            if grid:
                self._line([tick, tick], self.axes.get_ylim(), **_GRID, zorder=0.6)
            align: Align = "center" if place or inside else "left"
            self.write(tick, up, words, up="page", size=12, colour=SOFT, align=align, label="x tick", zorder=0.6)

    def y_axis(self, ticks: Sequence[float], title: str) -> None:
        """Draw a grid line for every value, write them to the left, and the title above."""
        if ticks:
            self.axes.yaxis.set_view_interval(min(ticks), max(ticks))
        for tick in ticks:
            self._line(self.axes.get_xlim(), [tick, tick], **_GRID, zorder=0.7)
            self.write(
                self.start - 8, tick, tick_label(tick), across="page", shift=(0, -_ASCENT / 2), size=12, colour=SOFT,
                align="right", label="y tick", zorder=0.7,
            )  # fmt: skip
        self.write(0, self.height - 14, title, size=12, colour=SOFT, across="page", up="page")

    def _line(self, x: Sequence[float], y: Sequence[float], **look: Any) -> None:
        """Draw a line as it is told, whereas `Axes.plot` first looks for units, formats and limits."""
        from matplotlib.lines import Line2D

        self.axes.add_artist(Line2D(x, y, **look))

    def write(
        self,
        x: float,
        y: float,
        words: str,
        *,
        across: Literal["data", "page"] = "data",
        up: Literal["data", "page"] = "data",
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
        from holdfast.reports.charts.renderer import Words

        units = {"data": "data", "page": "figure points"}
        text = Words(
            NOT_XML.sub("", words),
            (x, y),
            xycoords=(units[across], units[up]),
            xytext=shift,
            textcoords="offset points",
            size=size,
            color=colour,
            weight="bold" if bold else "normal",
            horizontalalignment=align,
            verticalalignment="baseline",
            gid="halo" if halo else None,
            label=label,
            zorder=zorder,
            parse_math=False,
            annotation_clip=False,
            clip_on=False,
        )
        self.axes.add_artist(text)

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
        self._line(
            [x],
            [y],
            linestyle="none",
            marker=marker,
            markersize=radius * factor,
            color=colour,
            markerfacecolor=fill or colour,
            markeredgecolor=edge or colour,
            markeredgewidth=line,
            gid=noted(note),
            label=label or "_",
            clip_on=False,
            zorder=3,
        )

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
        self._shape(points, 2, colour, 2 * radius, alpha, label)

    def triangles(
        self, x: Sequence[float], y: Sequence[float], colour: str, radius: float, *, line: float = 1.2, label: str = ""
    ) -> None:
        """Draw many hollow triangles of one colour as one shape; see `dots`."""
        across, up = (abs(b - a) for a, b in zip(self.value(0, 0), self.value(radius, radius), strict=True))
        flip = -1 if self.axes.yaxis_inverted() else 1
        corners = ((-0.95, -0.7), (0.95, -0.7), (0.0, 1.0), (-0.95, -0.7), (0.95, -0.7))
        points = [(a + i * across, b + flip * j * up) for a, b in zip(x, y, strict=True) for i, j in corners]
        self._shape(points, len(corners), colour, line, 1.0, label)

    def _shape(
        self, points: Sequence[tuple[float, float]], each: int, colour: str, line: float, alpha: float, label: str
    ) -> None:
        """Draw lines through as many points each as one shape."""
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        if not points:
            return
        codes = [Path.LINETO if number % each else Path.MOVETO for number in range(len(points))]
        path = Path(points, codes)
        path.should_simplify = False  # which would drop the shortest lines
        ends = {"capstyle": "round", "joinstyle": "round", "clip_on": False, "snap": False}
        patch = PathPatch(
            path, facecolor="none", edgecolor=colour, linewidth=line, alpha=alpha, label=label or "_", **ends
        )
        self.axes.add_artist(patch)

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
        from matplotlib.image import AxesImage

        self.figure.suppressComposite = True  # else all images of a figure become one, without notes
        image = AxesImage(self.axes, extent=(x, x + width, y + height, y), interpolation="none", gid=noted(note))
        image.set_data(pixels)
        image.set(clip_on=False, label="picture")
        self.axes.add_artist(image)

    def line(
        self,
        x: Sequence[float],
        y: Sequence[float],
        colour: str,
        width: float = 1.0,
        dashes: tuple[float, ...] | None = None,
        *,
        label: str = "",
        behind: bool = False,
    ) -> None:
        """Draw a line through points, dashed by lengths in pixels."""
        self._line(
            x,
            y,
            color=colour,
            linewidth=width,
            linestyle=(0, tuple(length / width for length in dashes)) if dashes else "-",
            solid_capstyle="butt",
            solid_joinstyle="round",
            dash_joinstyle="round",
            label=label or "_",
            clip_on=False,
            zorder=1.5 if behind else 2,
        )

    def whisker(
        self,
        ends: tuple[float, float],
        y: float,
        colour: str = INK,
        width: float = 1.3,
        cap: float = 3.5,
        *,
        label: str = "",
    ) -> None:
        """Draw a horizontal interval with caps."""
        self._line(
            ends,
            [y, y],
            color=colour,
            linewidth=width,
            marker="|",
            markersize=2 * cap,
            markeredgewidth=width,
            solid_capstyle="butt",
            label=label or "_",
            clip_on=False,
            zorder=2.5,
        )

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
        dashes: tuple[float, ...] | None = None,
        note: str = "",
        label: str = "",
        crisp: bool = False,
    ) -> None:
        """Draw a rectangle from a corner at two values of the axes, with a line around it where it has an edge.

        Where it is crisp, nothing shines through between it and one beside it.
        """
        from matplotlib.patches import Rectangle

        rectangle = Rectangle(
            (x, y),
            width,
            height,
            facecolor=(colour, alpha),
            edgecolor=edge or "none",
            linewidth=line,
            linestyle=(0, tuple(length / line for length in dashes)) if dashes else "-",
            gid="crisp" if crisp else noted(note),
            label=label or "_",
            clip_on=False,
        )
        self.axes.add_artist(rectangle)

    def __html__(self) -> str:
        """Return the drawing as SVG for a page; what a template writes."""
        return self.svg()

    @own_style
    def svg(self, kind: str = "chart") -> str:
        """Return the drawing as SVG for a page: colours are its variables, and text is text.

        Args:
            kind: "chart", or "swatch" for a mark in a legend, which says nothing in words.
        """
        from holdfast.reports.charts.renderer import draw_on

        box = {"class": kind, "xmlns": _SVG[1:-1], "viewBox": f"0 0 {self.width:g} {self.height:g}"}
        if kind == "swatch":
            page = ElementTree.Element("svg", box | {"aria-hidden": "true"})
        else:
            title, told = (NOT_XML.sub("", words) for words in (self.title, self.told))
            page = ElementTree.Element("svg", box | {"role": "img", "aria-label": f"{title}. {told}"})
            ElementTree.SubElement(page, "title").text = title
            ElementTree.SubElement(page, "desc").text = told
        draw_on(page, self.figure)
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


def noted(words: str) -> str | None:
    """Return the group id by which something drawn gets a note, which appears under a pointer."""
    return f"{NOTE}{NOT_XML.sub('', words)}" if words else None
