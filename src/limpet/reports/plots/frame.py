"""Frames of charts: position and ranges of the axes, and functions that make layers."""

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
        width: Width of the chart.
        height: Height of the chart.
        room: Pixels on the left, above, on the right and below the axes.
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
        """Width and height of the area between the axes, in pixels."""
        left, top, right, bottom = self.room
        return self.width - left - right, self.height - top - bottom

    def across(self, value: float) -> float:
        """Return the distance in pixels of an x value from the left of the chart."""
        low, high = self._ends
        return self.room[0] + self.inner[0] * ((math.log10(value) if self.log else value) - low) / (high - low)

    def down(self, value: float) -> float:
        """Return the distance in pixels of a y value from the top of the chart."""
        low, high = self.y
        return self.room[1] + self.inner[1] * (high - value) / (high - low)

    def x_at(self, pixels: float) -> float:
        """Return the x value at a distance in pixels from the left of the chart."""
        low, high = self._ends
        at = low + (high - low) * (pixels - self.room[0]) / self.inner[0]
        return 10.0**at if self.log else at

    def y_at(self, pixels: float) -> float:
        """Return the y value at a distance in pixels from the top of the chart."""
        low, high = self.y
        return high - (high - low) * (pixels - self.room[1]) / self.inner[1]

    @property
    def _ends(self) -> Range:
        return (math.log10(self.x[0]), math.log10(self.x[1])) if self.log else self.x

    def at(self, x: str = "x", y: str = "y") -> dict[str, Any]:
        """Return the position channels of a layer: two fields, on the axes of this frame."""
        return {"x": self.along(x), "y": self.up(y)}

    def along(self, field: str, **options: Any) -> Channel:
        """Return the channel of a field on the x axis."""
        kind = "log" if self.log else "linear"
        return quantity(field, scale={"domain": list(self.x), "nice": False, "zero": False, "type": kind}, **options)

    def up(self, field: str, **options: Any) -> Channel:
        """Return the channel of a field on the y axis."""
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
        """Return a layer that draws only the axes.

        Args:
            x: Ticks of the x axis; labels that would overlap are left out.
            y: Ticks of the y axis.
            x_title: Title below the x axis.
            y_title: Title above the y axis, from the left edge of the chart.
            x_words: Vega expression that formats a tick label, such as `PER_CENT`.
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
        """Return the chart made of layers.

        Args:
            title: Title, for the text alternative.
            told: The numbers in words, for the text alternative.
            layers: Layers from back to front; those that are None are left out.
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
            layer.name = f"{place} {layer.name}"  # unique, because Vega replaces all but letters and digits
        # one call, because each method of a chart copies all layers
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
        """Return a layer of texts.

        Args:
            rows: Texts with x, y and text, and optionally colour; rows with an empty text are left out.
            name: Name of the layer.
            size: Font size in pixels.
            colour: Colour of texts without their own.
            align: Part of the text that is at x.
            bold: Whether the font is bold.
            dx: Offset to the right in pixels.
            dy: Offset downwards in pixels.
            halo: Whether pages draw a halo around the letters.
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
        """Return a layer of straight lines; rows hold x, y, x2 and y2, and optionally a colour."""
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
        """Return a layer of rectangles; rows hold x, y, x2 and y2, and optionally a colour and a note."""
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
        """Return a layer with one line through points in the given order; rows hold x and y."""
        mark: dict[str, Any] = {"type": "line", "strokeWidth": width, "color": colour, "strokeJoin": "round"}
        mark |= {"strokeDash": list(dashes)} if dashes else {}
        ordered = [{**row, "place": place} for place, row in enumerate(rows)]
        return _layer(ordered, name, mark, {**self.at(), "order": quantity("place")})

    def band(self, rows: Sequence[Row], name: str, *, colour: str = INK, opacity: float = 0.14) -> alt.Chart | None:
        """Return a layer with the area between two curves; rows hold x, y and y2."""
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
        """Return a layer of equal marks.

        Args:
            rows: Marks with x and y, and optionally a note that appears under the pointer.
            name: Name of the layer.
            shape: Shape of the marks, from `style.SHAPES`.
            radius: Half width of a mark in pixels.
            colour: Colour of the marks.
            fill: Colour of the inside, if it differs.
            edge: Colour of the outline, if it differs.
            line: Width of the outline in pixels.
            opacity: Opacity of the marks.
        """
        mark = {
            "type": "point", "shape": shape, "size": area_of(shape, radius), "fill": fill or colour,
            "stroke": edge or colour, "strokeWidth": line, "opacity": opacity, "aria": bool(rows) and "note" in rows[0],
        }  # fmt: skip
        return _layer(rows, name, mark, {**self.at(), **noted(rows)})

    def between(self) -> dict[str, Any]:
        """Return the position channels of a layer whose rows reach from x to x2 and from y to y2."""
        return {**self.at(), "x2": {"field": "x2"}, "y2": {"field": "y2"}}


def quantity(field: str, **options: Any) -> Channel:
    """Return the channel of a numeric field."""
    return {"field": field, "type": "quantitative", **options}


def as_it_is(field: str, kind: str = "nominal") -> Channel:
    """Return the channel of a field without a scale: its values are colours, shapes, or (if quantitative) pixels."""
    return {"field": field, "type": kind, "scale": None}


def noted(rows: Sequence[Row]) -> dict[str, Channel]:
    """Return the channels of the note that appears under the pointer; none if rows hold no note."""
    note = {"field": "note", "type": "nominal"}
    return {"tooltip": note, "description": note} if rows and "note" in rows[0] else {}


def layer_of(rows: Sequence[Row], name: str, mark: Any, channels: Mapping[str, Channel]) -> alt.Chart:
    """Return a layer; characters that SVG cannot hold are removed from its texts.

    Args:
        rows: Data of the layer.
        name: Name of the layer.
        mark: Type and properties of the marks, as in Vega-Lite. This is a dict, because Altair copies all properties of
            its own classes at every step, most of which are not set.
        channels: Channels of the fields of rows, as in Vega-Lite.
    """
    values = [{key: clean(value) if isinstance(value, str) else value for key, value in row.items()} for row in rows]
    with debug_mode(False):  # validating every layer against the schema would be slow
        return alt.Chart({"values": values}, name=name, mark=mark, encoding=alt.FacetedEncoding(**channels))


def _layer(
    rows: Sequence[Row], name: str, mark: Mapping[str, Any], channels: Mapping[str, Channel]
) -> alt.Chart | None:
    return layer_of(rows, name, mark, channels) if rows else None


def _colours(channel: str, rows: Sequence[Row]) -> dict[str, Channel]:
    return {channel: as_it_is("colour")} if rows and "colour" in rows[0] else {}
