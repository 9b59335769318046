"""What a chart shows, read from the artists of its figure, for the tests of all charts."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from matplotlib.lines import Line2D

from limpet.reports.charts.canvas import Chart

SVG = "{http://www.w3.org/2000/svg}"


def words(chart: Chart, label: str = "") -> list[str]:
    """Return the texts beside those of the axes, of one label or all."""
    return [
        text.get_text()
        for text in chart.axes.texts
        if text.get_label() == label or (not label and "tick" not in text.get_label())
    ]


def ticks(chart: Chart, axis: str = "x") -> list[str]:
    """Return what stands at the ticks of an axis."""
    return words(chart, f"{axis} tick")


def lines(chart: Chart, label: str) -> list[Line2D]:
    """Return lines and marks of a label, in the order of drawing."""
    return [line for line in chart.axes.lines if line.get_label() == label]


def points(line: Line2D) -> list[tuple[float, float]]:
    """Return the values that a line goes through."""
    return [(float(x), float(y)) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]


def values(chart: Chart, label: str) -> list[float]:
    """Return where on the horizontal axis every mark of a label stands."""
    return [points(line)[0][0] for line in lines(chart, label)]


def assert_page_ready(chart: Chart) -> None:
    """Assert what holds of every chart on a page: a text alternative, no fixed colour, no id, everything within."""
    drawing = chart.svg()
    root = ElementTree.fromstring(drawing)
    title, told = root.findtext(f"{SVG}title"), root.findtext(f"{SVG}desc")
    assert title and told and root.get("role") == "img" and root.get("aria-label") == f"{title}. {told}"
    assert [float(part) for part in str(root.get("viewBox")).split()] == pytest.approx(
        [0, 0, chart.width, chart.height], abs=0.01
    )
    assert root.get("width") is None and root.get("height") is None
    styles = ";".join(str(item.get("style", "")) for item in root.iter())
    assert "#" not in styles and "url(" not in styles and "font-family" not in styles
    assert all(item.get("id") is None for item in root.iter()) and chart.svg() == drawing
    for item in root.iter(f"{SVG}text"):
        across, style = 0.5 * 11 * len(item.text or ""), str(item.get("style"))
        share = 0.5 if "text-anchor:middle" in style else float("text-anchor:end" in style)
        start, y = float(str(item.get("x"))) - share * across, float(str(item.get("y")))
        assert start > -9 and start + across < chart.width + 9 and 0 < y <= chart.height, item.text
