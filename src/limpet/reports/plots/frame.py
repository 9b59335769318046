"""The axes of a chart: their place on it in pixels, their ranges, and the layers that charts are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

from limpet.reports.plots.style import FAINT, INK, SOFT, area_of, clean

Range = tuple[float, float]
Row = Mapping[str, Any]
Align = Literal["left", "center", "right"]


@dataclass(frozen=True)
class Frame:
    """The size of a chart in pixels and the ranges of its axes.

    Args:
        width: Of the whole chart.
        height: Of the whole chart.
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
        """Return the value so many pixels from the left of the chart."""
        low, high = self._ends
        at = low + (high - low) * (pixels - self.room[0]) / self.inner[0]
        return 10.0**at if self.log else at

    def y_at(self, pixels: float) -> float:
        """Return the value so many pixels from the top of the chart."""
        low, high = self.y
        return high - (high - low) * (pixels - self.room[1]) / self.inner[1]

    @property
    def _ends(self) -> Range:
        return (math.log10(self.x[0]), math.log10(self.x[1])) if self.log else self.x

    def at(self, x: str = "x", y: str = "y") -> dict[str, Any]:
        """Return the positions of a layer: two fields, on the axes of this frame."""
        return {"x": self.along(x), "y": self.up(y)}

    def along(self, field: str, **options: Any) -> alt.X:
        """Return a field on the x axis."""
        scale = alt.Scale(domain=list(self.x), nice=False, zero=False, type="log" if self.log else "linear")
        return alt.X(field=field, type="quantitative", scale=scale, **options)

    def up(self, field: str, **options: Any) -> alt.Y:
        """Return a field on the y axis."""
        scale = alt.Scale(domain=list(self.y), nice=False, zero=False)
        return alt.Y(field=field, type="quantitative", scale=scale, **options)

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
        across = alt.Axis(
            values=list(x), title=x_title or None, titleY=bottom - 8, titleBaseline="alphabetic", grid=grid,
            labelOverlap="greedy", labelFlush=left < 20, format="~g", labelExpr=x_words or alt.Undefined,
        )  # fmt: skip
        upwards = alt.Axis(
            values=list(y), title=y_title or None, titleAngle=0, titleAlign="left", titleAnchor="start", format="~g",
            titleBaseline="alphabetic", titleX=-left, titleY=14 - top,
        )  # fmt: skip
        ends = [{"x": value, "y": height} for value, height in zip(self.x, self.y, strict=True)]
        layer: alt.Chart = alt.Chart(data_of(ends), name="axes").mark_point(opacity=0)
        return layer.encode(
            x=self.along("x", axis=across if x or x_title else None), y=self.up("y", axis=upwards if y else None)
        )

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
        chart: Any = alt.layer(*drawn).properties(
            width=width, height=height, autosize="none", background="transparent", description=f"{title}. {told}",
            padding={"left": left, "top": top, "right": right, "bottom": bottom},
            usermeta={"title": title, "told": told},
        )  # fmt: skip
        whole: alt.LayerChart = chart.configure(
            view={"stroke": None}, mark={"aria": False}, axis=axis, font="sans-serif"
        )
        return whole

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
        mark: dict[str, Any] = {"fontSize": size, "align": align, "dx": dx, "dy": dy, "baseline": "alphabetic"}
        mark |= {"fontWeight": "bold"} if bold else {}
        mark |= {} if halo else {"stroke": "none"}
        mark |= {"color": colour}
        layer = _layer(values, name)
        words = alt.Text(field="text", type="nominal")
        return layer and layer.mark_text(**mark).encode(**self.at(), text=words, **_colours("color", values))

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
        mark: dict[str, Any] = {"color": colour, "strokeWidth": width}
        mark |= {"strokeDash": list(dashes)} if dashes else {}
        layer = _layer(rows, name)
        return layer and layer.mark_rule(**mark).encode(**self.between(), **_colours("color", rows))

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
        mark: dict[str, Any] = {"fill": colour, "fillOpacity": opacity, "aria": bool(rows) and "note" in rows[0]}
        mark |= {"stroke": edge, "strokeWidth": line, "strokeDash": list(dashes or ())} if edge else {}
        layer = _layer(rows, name)
        return layer and layer.mark_rect(**mark).encode(**self.between(), **noted(rows), **_colours("fill", rows))

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
        mark: dict[str, Any] = {
            "strokeWidth": width,
            "color": colour,
            **({"strokeDash": list(dashes)} if dashes else {}),
        }
        layer = _layer([{**row, "place": place} for place, row in enumerate(rows)], name)
        order = alt.Order(field="place", type="quantitative")
        return layer and layer.mark_line(**mark, strokeJoin="round").encode(**self.at(), order=order)

    def band(self, rows: Sequence[Row], name: str, *, colour: str = INK, opacity: float = 0.14) -> alt.Chart | None:
        """Return what lies between two curves; rows hold x, y and y2."""
        layer = _layer(rows, name)
        return layer and layer.mark_area(color=colour, opacity=opacity).encode(**self.at(), y2=alt.Y2(field="y2"))

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
        layer = _layer(rows, name)
        return layer and layer.mark_point(
            shape=shape, size=area_of(shape, radius), fill=fill or colour, stroke=edge or colour, strokeWidth=line,
            opacity=opacity, aria="note" in rows[0],
        ).encode(**self.at(), **noted(rows))  # fmt: skip

    def between(self) -> dict[str, Any]:
        """Return the positions of a layer whose rows reach from x to x2 and from y to y2."""
        return {**self.at(), "x2": alt.X2(field="x2"), "y2": alt.Y2(field="y2")}


def noted(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the channels of what appears under a pointer, where rows hold a note."""
    if not rows or "note" not in rows[0]:
        return {}
    return {channel: of(field="note", type="nominal") for channel, of in _NOTES.items()}


_NOTES = {"tooltip": alt.Tooltip, "description": alt.Description}


def _layer(rows: Sequence[Row], name: str) -> alt.Chart | None:
    return alt.Chart(data_of(rows), name=name) if rows else None


def data_of(rows: Sequence[Row]) -> alt.InlineData:
    """Return rows as the data of a layer, without characters that SVG cannot hold."""
    return alt.InlineData(
        values=[{key: clean(value) if isinstance(value, str) else value for key, value in row.items()} for row in rows]
    )


def _colours(channel: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the channel of colours where rows have one each."""
    if not rows or "colour" not in rows[0]:
        return {}
    return {channel: _COLOURS[channel](field="colour", type="nominal", scale=None)}


_COLOURS = {"color": alt.Color, "fill": alt.Fill}
