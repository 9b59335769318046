"""What charts consist of: shapes that write themselves onto a page as SVG, and are drawn by Matplotlib in a figure.

On a page colours are its variables, text is text, and nothing has an id.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal, Protocol
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from limpet.reports.charts.canvas import Chart

Align = Literal["left", "center", "right"]
Unit = Literal["data", "page"]
Dashes = tuple[float, ...] | None
Points = Sequence[tuple[float, float]]

_ANCHORS: dict[Align, str] = {"left": "start", "right": "end", "center": "middle"}
_MOVE, _LINE, _CLOSE = 1, 2, 79  # how Matplotlib numbers the steps of a path
_LETTERS = {_MOVE: "M", _LINE: "L", 3: "Q", 4: "C"}
_MANY = 128  # points from which a line is simplified


class Shape(Protocol):
    """Something that a chart shows."""

    @property
    def zorder(self) -> float:
        """It is drawn before all that has a greater one."""

    def write(self, page: Element, chart: Chart) -> None:
        """Add it to an element of a page, in pixels from the upper left corner of the chart."""

    def draw(self, axes: Axes) -> None:
        """Add it to axes of Matplotlib."""


@dataclass(frozen=True)
class Line:
    """A line through points, dashed by lengths in pixels, with a bar so high across each where it has caps."""

    x: Sequence[float]
    y: Sequence[float]
    colour: str
    width: float = 1.0
    dashes: Dashes = None
    label: str = "_"
    zorder: float = 2
    longer: bool = False  # by half of its width at both ends
    clipped: bool = False  # where the axes end, in a figure
    caps: float = 0.0

    def write(self, page: Element, chart: Chart) -> None:
        points = chart.pixels(self.x, self.y)
        if points:
            style = _stroke(chart, self.colour, self.width, self.dashes, caps="square" if self.longer else "butt")
            SubElement(page, "path", {"d": _outline(chart, points), "style": _css({"fill": "none"} | style)})
        if self.caps:
            style = _stroke(chart, self.colour, self.width) | {"fill": chart.variable(self.colour)}
            _write_markers(page, points, "|", self.caps, style)

    def draw(self, axes: Axes) -> None:
        from matplotlib.lines import Line2D

        line = Line2D(
            self.x, self.y, color=self.colour, linewidth=self.width, linestyle=_dashed(self.dashes, self.width),
            solid_capstyle="projecting" if self.longer else "butt", solid_joinstyle="round", dash_joinstyle="round",
            label=self.label, zorder=self.zorder, clip_on=self.clipped,
        )  # fmt: skip
        if self.caps:
            line.set(marker="|", markersize=self.caps, markeredgewidth=self.width)
        axes.add_artist(line)


@dataclass(frozen=True)
class Marks:
    """One of Matplotlib's markers at every point, hollow without a colour, with a line around it."""

    x: Sequence[float]
    y: Sequence[float]
    marker: str
    size: float
    colour: str | None
    edge: str
    line: float
    alpha: float | None = None
    note: str = ""
    label: str = "_"
    zorder: float = 3
    clipped: bool = False

    def write(self, page: Element, chart: Chart) -> None:
        face = {"fill": chart.variable(self.colour)} if self.colour else {}
        face |= _opacity("fill-opacity", (self.alpha or 1.0) if self.colour else 0.0)
        style = _stroke(chart, self.edge, self.line, joins=_marker(self.marker, self.size)[1]) | face
        _write_markers(_noted(page, self.note), chart.pixels(self.x, self.y), self.marker, self.size, style)

    def draw(self, axes: Axes) -> None:
        from matplotlib.lines import Line2D

        marks = Line2D(
            self.x, self.y, linestyle="none", marker=self.marker, markersize=self.size, color=self.colour or self.edge,
            markerfacecolor=self.colour or "none", markeredgecolor=self.edge, markeredgewidth=self.line,
            alpha=self.alpha, gid=_group(self.note), label=self.label, zorder=self.zorder, clip_on=self.clipped,
        )  # fmt: skip
        axes.add_artist(marks)


@dataclass(frozen=True)
class Strokes:
    """Lines through as many points each, with round ends, as one shape."""

    points: Points
    each: int
    colour: str
    width: float
    alpha: float = 1.0
    label: str = "_"
    zorder: float = 1

    @property
    def _steps(self) -> list[int]:
        return [_LINE if number % self.each else _MOVE for number in range(len(self.points))]

    def write(self, page: Element, chart: Chart) -> None:
        points = chart.pixels(*zip(*self.points, strict=True))
        style = {"fill": "none"} | _opacity("opacity", self.alpha)
        style |= _stroke(chart, self.colour, self.width, caps="round")
        SubElement(page, "path", {"d": _outline(chart, points, self._steps, simplify=False), "style": _css(style)})

    def draw(self, axes: Axes) -> None:
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        path = Path(self.points, self._steps)
        path.should_simplify = False  # which would drop the shortest lines
        patch = PathPatch(
            path, facecolor="none", edgecolor=self.colour, linewidth=self.width, alpha=self.alpha, label=self.label,
            zorder=self.zorder, capstyle="round", joinstyle="round", clip_on=False, snap=False,
        )  # fmt: skip
        axes.add_artist(patch)


@dataclass(frozen=True)
class Box:
    """A rectangle from a corner, with a line around it where it has an edge.

    Where it is crisp, nothing shines through between it and one beside it.
    """

    x: float
    y: float
    width: float
    height: float
    colour: str
    alpha: float = 1.0
    edge: str | None = None
    line: float = 0.0
    dashes: Dashes = None
    note: str = ""
    label: str = "_"
    crisp: bool = False
    zorder: float = 1
    opacity: float | None = None  # of all of it

    def write(self, page: Element, chart: Chart) -> None:
        (left, base), (right, top) = chart.pixels((self.x, self.x + self.width), (self.y, self.y + self.height))
        corners = [(left, base), (right, base), (right, top), (left, top)]
        style = _face(chart, self.colour, self.alpha) | _opacity("opacity", self.opacity or 1.0)
        if self.edge:
            style |= _stroke(chart, self.edge, self.line, self.dashes, joins="miter")
        page = _noted(page, self.note)
        if style == {"fill": "none"}:  # which nobody sees
            return
        shape = f"{_through(corners)} z"
        if not self.alpha:
            shape = _outline(chart, [*corners, corners[0]], [_MOVE, _LINE, _LINE, _LINE, _CLOSE])
        drawn = SubElement(page, "path", {"d": shape, "style": _css(style)})
        if self.crisp:
            drawn.set("shape-rendering", "crispEdges")

    def draw(self, axes: Axes) -> None:
        from matplotlib.patches import Rectangle

        rectangle = Rectangle(
            (self.x, self.y), self.width, self.height, facecolor=(self.colour, self.alpha),
            edgecolor=self.edge or "none", linewidth=self.line, linestyle=_dashed(self.dashes, self.line),
            alpha=self.opacity, gid="crisp" if self.crisp else _group(self.note), label=self.label, zorder=self.zorder,
            clip_on=False,
        )  # fmt: skip
        axes.add_artist(rectangle)


@dataclass(frozen=True)
class Area:
    """What lies between two curves, one value or as many as places; upright where the places are on the other axis."""

    places: Sequence[float]
    low: ArrayLike
    high: ArrayLike
    colour: str
    alpha: float
    label: str = ""
    upright: bool = False
    clipped: bool = False
    zorder: float = 1

    def write(self, page: Element, chart: Chart) -> None:
        low, high = (np.broadcast_to(end, len(self.places)).tolist() for end in (self.low, self.high))
        there, back = list(zip(self.places, low, strict=True)), list(zip(self.places, high, strict=True))[::-1]
        corners = [back[-1], *there, back[0], *back]
        if self.upright:
            corners = [(x, y) for y, x in corners]
        points, place = chart.pixels(*zip(*corners, strict=True)), {}
        wide, high = (max(ends) - min(ends) for ends in zip(*points, strict=True))
        if wide < chart.width and high < chart.height:
            points = [(right, down - chart.height) for right, down in points]
            place = {"transform": f"translate(0 {_number(chart.height)})"}
        place = {"d": f"{_through(points)} z"} | place
        SubElement(page, "path", place | {"style": _css(_face(chart, self.colour, self.alpha))})

    def draw(self, axes: Axes) -> None:
        fill = axes.fill_betweenx if self.upright else axes.fill_between
        fill(
            self.places, self.low, self.high, color=self.colour, alpha=self.alpha, linewidth=0, label=self.label,
            clip_on=self.clipped, zorder=self.zorder,
        )  # fmt: skip


@dataclass(frozen=True)
class Steps:
    """A histogram: an area of one opacity above a baseline, or the outline of one, with a line along its steps."""

    values: Sequence[float]
    edges: Sequence[float]
    colour: str
    alpha: float = 0.0
    line: float = 0.0
    dashes: Dashes = None
    baseline: float = 0.0
    label: str = ""
    zorder: float = 1

    def write(self, page: Element, chart: Chart) -> None:
        x, y = np.repeat(self.edges, 2), np.r_[self.baseline, np.repeat(self.values, 2), self.baseline]
        points = chart.pixels(x.tolist(), y.tolist())
        style = _face(chart, self.colour, self.alpha)
        style |= _stroke(chart, self.colour, self.line, self.dashes, joins="miter")
        shape = _through(points) if self.alpha else _outline(chart, points)
        SubElement(page, "path", {"d": shape, "style": _css(style)})

    def draw(self, axes: Axes) -> None:
        axes.stairs(
            self.values, self.edges, baseline=self.baseline, fill=self.alpha > 0, facecolor=(self.colour, self.alpha),
            edgecolor=self.colour if self.line else "none", linewidth=self.line,
            linestyle=_dashed(self.dashes, self.line), label=self.label, clip_on=False, zorder=self.zorder,
        )  # fmt: skip


@dataclass(frozen=True)
class Text:
    """A line of text; see `Chart.write`."""

    x: float
    y: float
    words: str
    across: Unit
    up: Unit
    shift: tuple[float, float]
    size: float
    colour: str
    align: Align
    bold: bool
    halo: bool
    label: str
    zorder: float

    def write(self, page: Element, chart: Chart) -> None:
        if not self.words:
            return
        x = (chart.at(self.x) if self.across == "data" else self.x) + self.shift[0]
        y = (chart.down(self.y) if self.up == "data" else chart.height - self.y) - self.shift[1]
        style = {"font-weight": "700"} if self.bold else {}
        style |= {"font-size": f"{_number(self.size)}px", "text-anchor": _ANCHORS[self.align]}
        place = {"x": _number(x), "y": _number(y), "style": _css(style | {"fill": chart.variable(self.colour)})}
        SubElement(page, "text", place | ({"class": "halo"} if self.halo else {})).text = self.words

    def draw(self, axes: Axes) -> None:
        from matplotlib.text import Annotation

        units = {"data": "data", "page": "figure points"}
        text = Annotation(
            self.words, (self.x, self.y), xycoords=(units[self.across], units[self.up]), xytext=self.shift,
            textcoords="offset points", size=self.size, color=self.colour, weight="bold" if self.bold else "normal",
            horizontalalignment=self.align, verticalalignment="baseline", gid="halo" if self.halo else None,
            label=self.label, zorder=self.zorder, parse_math=False, annotation_clip=False, clip_on=False,
        )  # fmt: skip
        axes.add_artist(text)


@dataclass(frozen=True)
class Picture:
    """An image as it is, red, green and blue (height, width, 3) from a corner; see `Chart.picture`."""

    x: float
    y: float
    width: float
    height: float
    pixels: NDArray[np.uint8]
    note: str = ""
    zorder: float = 0

    def write(self, page: Element, chart: Chart) -> None:
        from PIL import Image

        high, wide = self.pixels.shape[:2]
        file = BytesIO()
        Image.fromarray(np.dstack([self.pixels, np.full((high, wide), 255, np.uint8)])).save(file, format="png")
        (left, top), (right, base) = chart.pixels((self.x, self.x + self.width), (self.y, self.y + self.height))
        matrix = ((right - left) / wide, 0.0, 0.0, (base - top) / high, left, top)
        places = {"width": f"{wide}", "height": f"{high}", "transform": f"matrix({' '.join(map(_number, matrix))})"}
        content = b64encode(file.getvalue()).decode()
        image = SubElement(page, "image", places | {"href": f"data:image/png;base64,{content}"})
        if self.note:
            SubElement(image, "title").text = self.note

    def draw(self, axes: Axes) -> None:
        from matplotlib.image import AxesImage

        axes.figure.suppressComposite = True  # else all images of a figure become one
        extent = (self.x, self.x + self.width, self.y + self.height, self.y)
        image = AxesImage(axes, extent=extent, interpolation="none", gid=_group(self.note))
        image.set_data(self.pixels)
        image.set(clip_on=False, label="picture", zorder=self.zorder)
        axes.add_artist(image)


def _group(note: str) -> str | None:
    """Return the group id of something in a figure that has a note."""
    return f"note: {note}" if note else None


def _noted(page: Element, note: str) -> Element:
    """Return where something is written that has a note, which appears under a pointer."""
    if note:
        page = SubElement(page, "g")
        SubElement(page, "title").text = note
    return page


def _write_markers(page: Element, points: Points, marker: str, size: float, style: dict[str, str]) -> None:
    shape = _marker(marker, size)[0]
    for point in points:
        moved = f"translate({' '.join(map(_number, point))})"
        SubElement(page, "path", {"d": shape, "transform": moved, "style": _css(style)})


@cache
def _marker(marker: str, size: float) -> tuple[str, str]:
    """Return the outline of one of Matplotlib's markers about its middle, and how its lines join."""
    from matplotlib.markers import MarkerStyle
    from matplotlib.transforms import Affine2D

    style = MarkerStyle(marker, "full")
    downwards = Affine2D().scale(size) + Affine2D().scale(1, -1)
    return _path(style.get_path().iter_segments(style.get_transform() + downwards)), str(style.get_joinstyle())


def _outline(chart: Chart, points: Points, steps: Sequence[int] | None = None, *, simplify: bool = True) -> str:
    """Return a line through points, without what lies beyond the drawing, and simplified where it has many."""
    inside = all(0 <= right <= chart.width and 0 <= down <= chart.height for right, down in points)
    if inside and steps is None and len(points) < _MANY:
        return _through(points)
    from matplotlib.path import Path

    path, clip = Path(points, steps), (0.0, 0.0, chart.width, chart.height)
    path.simplify_threshold = 1 / 9  # of a pixel
    return _path(path.iter_segments(clip=clip, simplify=simplify and steps is None and len(points) >= _MANY))


def _path(segments: Iterable[tuple[Any, Any]]) -> str:
    """Write the steps of a path of Matplotlib."""
    return " ".join(
        "z" if code == _CLOSE else f"{_LETTERS[code]} {' '.join(map(_number, points.tolist()))}"
        for points, code in segments
    )


def _through(points: Points) -> str:
    return "M " + " L ".join(f"{_number(right)} {_number(down)}" for right, down in points)


def _face(chart: Chart, colour: str, alpha: float) -> dict[str, str]:
    """Return how an area looks; one that is not to be seen is hollow."""
    return {"fill": chart.variable(colour)} | _opacity("fill-opacity", alpha) if alpha else {"fill": "none"}


def _opacity(key: str, alpha: float) -> dict[str, str]:
    return {} if alpha == 1 else {key: _number(alpha)}


def _stroke(
    chart: Chart, colour: str, width: float, dashes: Dashes = None, *, joins: str = "round", caps: str = "butt"
) -> dict[str, str]:
    """Return how a line looks, without what is so anyway."""
    if not width:
        return {}
    style = {}
    if dashes:
        style = {"stroke-dasharray": ",".join(map(_number, dashes)), "stroke-dashoffset": "0"}
    style |= {"stroke": chart.variable(colour)}
    style |= {} if width == 1 else {"stroke-width": _number(width)}
    style |= {} if joins == "round" else {"stroke-linejoin": joins}
    return style | ({} if caps == "butt" else {"stroke-linecap": caps})


def _dashed(dashes: Dashes, width: float) -> str | tuple[float, tuple[float, ...]]:
    """Return dashes as Matplotlib counts them, in widths of the line."""
    return (0, tuple(length / width for length in dashes)) if dashes else "-"


def _css(style: dict[str, str]) -> str:
    return ";".join(f"{key}:{value}" for key, value in style.items())


def _number(value: float) -> str:
    """Return two decimals, of six, and no more than it needs."""
    return f"{float(f'{value:.6f}'):.2f}".rstrip("0").rstrip(".")
