"""The axes of a chart: their place on it in pixels, their ranges, and the layers that charts are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
from altair.utils.schemapi import debug_mode

from limpet.reports.plots.style import FAINT, INK, SOFT, area_of, clean

__all__ = ["Frame", "Range", "layer_of", "noted"]

Range = tuple[float, float]
Row = Mapping[str, Any]
Channel = dict[str, Any]
Align = Literal["left", "center", "right"]


@dataclass(frozen=True)
class Frame:
    """The size of a chart in pixels and the ranges of its axes.

    Args:
        room: Pixels to the left, above, to the right and below the axes.
        x: Values at the left and right end.
        y: Values at the lower and upper end.
        log: Whether the x axis is logarithmic.
    """

    width: float
    height: float
    room: tuple[float, float, float, float]
    x: Range
    y: Range
    log: bool = False

    @property
    def inner(self) -> tuple[float, float]:
        """Width and height of the axes."""
        left, top, right, bottom = self.room
        return self.width - left - right, self.height - top - bottom

    def across(self, value: float) -> float:
        """Return how many pixels from the left of the chart a value is."""
        low, high = self._ends
        return self.room[0] + self.inner[0] * ((math.log10(value) if self.log else value) - low) / (high - low)

    def down(self, value: float) -> float:
        """Return how many pixels from the top of the chart a value is."""
        low, high = self.y
        return self.room[1] + self.inner[1] * (high - value) / (high - low)

    def x_at(self, pixels: float) -> float:
        """Return the value at a distance in pixels from the left of the chart."""
        low, high = self._ends
        at = low + (high - low) * (pixels - self.room[0]) / self.inner[0]
        return 10.0**at if self.log else at

    def y_at(self, pixels: float) -> float:
        """Return the value at a distance in pixels from the top of the chart."""
        low, high = self.y
        return high - (high - low) * (pixels - self.room[1]) / self.inner[1]

    @property
    def _ends(self) -> Range:
        return (math.log10(self.x[0]), math.log10(self.x[1])) if self.log else self.x

    def at(self, x: str = "x", y: str = "y") -> dict[str, Any]:
        """Return the positions of a layer: two fields, on the axes of this frame."""
        return {"x": self.along(x), "y": self.up(y)}

    def along(self, field: str, **options: Any) -> Channel:
        """Return a field on the x axis."""
        kind = "log" if self.log else "linear"
        return quantity(field, scale={"domain": list(self.x), "nice": False, "zero": False, "type": kind}, **options)

    def up(self, field: str, **options: Any) -> Channel:
        """Return a field on the y axis."""
        return quantity(field, scale={"domain": list(self.y), "nice": False, "zero": False}, **options)

    def axes(
        self,
        x: Sequence[float] = (),
        y: Sequence[float] = (),
        *,
        x_title: str = "",
        y_title: str = "",
        x_words: str | None = None,
        grid: bool = True,
    ) -> alt.Chart:
        """Return a layer that draws axes and nothing else.

        Args:
            x: Ticks of the x axis, whose labels are left out where they would meet.
            y: Ticks of the y axis.
            x_title: Written below the x axis.
            y_title: Written above the y axis, from the left edge of the chart.
            x_words: A Vega expression that writes a tick, such as `PER_CENT`.
            grid: Whether the x axis has grid lines.
        """
        left, top, _, bottom = self.room
        across = {
            "values": list(x), "title": x_title or None, "titleY": bottom - 8, "titleBaseline": "alphabetic",
            "grid": grid, "labelOverlap": "greedy", "labelFlush": left < 20, "format": "~g",
            **({"labelExpr": x_words} if x_words else {}),
        }  # fmt: skip
        upwards = {
            "values": list(y), "title": y_title or None, "titleAngle": 0, "titleAlign": "left",
            "titleAnchor": "start", "format": "~g", "titleBaseline": "alphabetic", "titleX": -left, "titleY": 14 - top,
        }  # fmt: skip
        ends = [{"x": value, "y": height} for value, height in zip(self.x, self.y, strict=True)]
        sides = {
            "x": self.along("x", axis=across if x or x_title else None),
            "y": self.up("y", axis=upwards if y else None),
        }
        return layer_of(ends, "axes", {"type": "point", "opacity": 0}, sides)

    def chart(self, title: str, told: str, layers: Iterable[alt.Chart | alt.LayerChart | None]) -> alt.LayerChart:
        """Return the chart of layers, those behind first.

        Args:
            title: What is drawn.
            told: Its numbers, for people who do not see it.
            layers: Those that are None are left out.
        """
        left, top, right, bottom = self.room
        width, height = self.inner
        title, told = clean(title), clean(told)
        axis = {
            "labelFontSize": 12, "labelColor": SOFT, "titleFontSize": 12, "titleFontWeight": "normal", "aria": False,
            "titleColor": SOFT, "gridColor": FAINT, "domain": False, "ticks": False, "labelPadding": 8,
        }  # fmt: skip
        drawn = [layer for layer in layers if layer is not None]
        for place, layer in enumerate(drawn):
            layer.name = f"{place} {layer.name}"  # Vega writes all but letters and digits alike
        # all at once: each method of a chart copies all of its layers
        return alt.LayerChart(
            layer=drawn, width=width, height=height, autosize="none", background="transparent",
            description=f"{title}. {told}", padding={"left": left, "top": top, "right": right, "bottom": bottom},
            usermeta={"title": title, "told": told},
            config={"view": {"stroke": None}, "mark": {"aria": False}, "axis": axis, "font": "sans-serif"},
        )  # fmt: skip

    def text(
        self,
        rows: Iterable[Row],
        name: str,
        *,
        size: float = 13,
        colour: str = INK,
        align: Align = "left",
        bold: bool = False,
        dx: float = 0,
        dy: float = 0,
        halo: bool = True,
    ) -> alt.Chart | None:
        """Return words at values of the axes; rows hold x, y and text, and their own colour where they have one.

        Args:
            rows: What to write; those without words are left out.
            name: Of the layer.
            size: Height of the letters in pixels.
            colour: Of the words.
            align: Which part of the words is at x.
            bold: Whether the letters are.
            dx: Pixels to the right.
            dy: Pixels downwards.
            halo: Whether pages keep what lies behind away from the letters.
        """
        values = [row for row in rows if row["text"]]
        mark: dict[str, Any] = {"type": "text", "fontSize": size, "align": align, "dx": dx, "dy": dy}
        mark |= {"baseline": "alphabetic"} | ({"fontWeight": "bold"} if bold else {})
        mark |= {} if halo else {"stroke": "none"}
        mark |= {"color": colour}
        words = {"field": "text", "type": "nominal"}
        return _layer(values, name, mark, {**self.at(), "text": words, **_colours("color", values)})

    def rules(
        self,
        rows: Sequence[Row],
        name: str,
        *,
        colour: str = SOFT,
        width: float = 1.2,
        dashes: Sequence[float] | None = None,
    ) -> alt.Chart | None:
        """Return straight lines; rows hold x, y, x2 and y2, and their own colour where they have one."""
        mark: dict[str, Any] = {"type": "rule", "color": colour, "strokeWidth": width}
        mark |= {"strokeDash": list(dashes)} if dashes else {}
        return _layer(rows, name, mark, {**self.between(), **_colours("color", rows)})

    def boxes(
        self,
        rows: Sequence[Row],
        name: str,
        *,
        colour: str = INK,
        opacity: float = 1.0,
        edge: str | None = None,
        line: float = 0.0,
        dashes: Sequence[float] | None = None,
    ) -> alt.Chart | None:
        """Return rectangles; rows hold x, y, x2 and y2, and a colour and a note of their own where they have one."""
        mark: dict[str, Any] = {"type": "rect", "fill": colour, "fillOpacity": opacity}
        mark |= {"aria": bool(rows) and "note" in rows[0]}
        mark |= {"stroke": edge, "strokeWidth": line, "strokeDash": list(dashes or ())} if edge else {}
        return _layer(rows, name, mark, {**self.between(), **noted(rows), **_colours("fill", rows)})

    def lines(
        self,
        rows: Sequence[Row],
        name: str,
        *,
        colour: str = INK,
        width: float = 2.2,
        dashes: Sequence[float] | None = None,
    ) -> alt.Chart | None:
        """Return one line through points in their order; rows hold x and y."""
        mark: dict[str, Any] = {"type": "line", "strokeWidth": width, "color": colour, "strokeJoin": "round"}
        mark |= {"strokeDash": list(dashes)} if dashes else {}
        ordered = [{**row, "place": place} for place, row in enumerate(rows)]
        return _layer(ordered, name, mark, {**self.at(), "order": quantity("place")})

    def band(self, rows: Sequence[Row], name: str, *, colour: str = INK, opacity: float = 0.14) -> alt.Chart | None:
        """Return what lies between two curves; rows hold x, y and y2."""
        mark = {"type": "area", "color": colour, "opacity": opacity}
        return _layer(rows, name, mark, {**self.at(), "y2": {"field": "y2"}})

    def marks(
        self,
        rows: Sequence[Row],
        name: str,
        *,
        shape: str = "circle",
        radius: float = 5.0,
        colour: str = INK,
        fill: str | None = None,
        edge: str | None = None,
        line: float = 1.0,
        opacity: float = 1.0,
    ) -> alt.Chart | None:
        """Return marks of one look; rows hold x and y, and a note where something appears under a pointer.

        Args:
            rows: The marks.
            name: Of the layer.
            shape: One of `style.SHAPES`.
            radius: Their half width in pixels.
            colour: Of the marks.
            fill: Another colour inside.
            edge: Another colour of the line around them.
            line: Width of that line.
            opacity: Of the marks.
        """
        mark = {
            "type": "point", "shape": shape, "size": area_of(shape, radius), "fill": fill or colour,
            "stroke": edge or colour, "strokeWidth": line, "opacity": opacity, "aria": bool(rows) and "note" in rows[0],
        }  # fmt: skip
        return _layer(rows, name, mark, {**self.at(), **noted(rows)})

    def between(self) -> dict[str, Any]:
        """Return the positions of a layer whose rows reach from x to x2 and from y to y2."""
        return {**self.at(), "x2": {"field": "x2"}, "y2": {"field": "y2"}}


def quantity(field: str, **options: Any) -> Channel:
    """Return the channel of a field with numbers."""
    return {"field": field, "type": "quantitative", **options}


def as_it_is(field: str, kind: str = "nominal") -> Channel:
    """Return the channel of a field whose values are drawn as they are: colours, shapes, or pixels where they count."""
    return {"field": field, "type": kind, "scale": None}


def noted(rows: Sequence[Row]) -> dict[str, Channel]:
    """Return the channels of what appears under a pointer, where rows hold a note."""
    note = {"field": "note", "type": "nominal"}
    return {"tooltip": note, "description": note} if rows and "note" in rows[0] else {}


def layer_of(rows: Sequence[Row], name: str, mark: Any, channels: Mapping[str, Channel]) -> alt.Chart:
    """Return rows as a layer; characters that SVG cannot hold are left out.

    Args:
        rows: Its data.
        name: Of the layer.
        mark: Type and looks of its marks by name, as in Vega-Lite. Every step of a chart copies all options of
            Altair's classes, most of which are not given; a dict holds only those that are.
        channels: What the fields of rows stand for, in the same form.
    """
    values = [{key: clean(value) if isinstance(value, str) else value for key, value in row.items()} for row in rows]
    with debug_mode(False):  # a schema need not be checked for every layer of every page
        return alt.Chart({"values": values}, name=name, mark=mark, encoding=alt.FacetedEncoding(**channels))


def _layer(
    rows: Sequence[Row], name: str, mark: Mapping[str, Any], channels: Mapping[str, Channel]
) -> alt.Chart | None:
    return layer_of(rows, name, mark, channels) if rows else None


def _colours(channel: str, rows: Sequence[Row]) -> dict[str, Channel]:
    return {channel: as_it_is("colour")} if rows and "colour" in rows[0] else {}
