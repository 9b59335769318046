"""What a chart shows, read from its Vega-Lite specification, for the tests of all charts."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import altair as alt
import pytest

from limpet.reports.plots.rendering import svg

SVG = "{http://www.w3.org/2000/svg}"


def layers(chart: alt.LayerChart) -> dict[str, dict[str, Any]]:
    """Return the layers of a chart by name, those behind first."""
    spec = chart.to_dict()
    found = {layer["name"].partition(" ")[2]: layer for layer in spec["layer"]}
    for layer in found.values():
        layer["rows"] = spec["datasets"][layer.get("data", spec.get("data"))["name"]]
    return found


def rows(chart: alt.LayerChart, name: str) -> list[dict[str, Any]]:
    """Return the data of a layer; nothing where the chart has none of this name."""
    layer = layers(chart).get(name)
    found: list[dict[str, Any]] = [] if layer is None else layer["rows"]
    return found


def points(chart: alt.LayerChart, name: str) -> list[tuple[float, float]]:
    """Return the places of a layer."""
    return [(row["x"], row["y"]) for row in rows(chart, name)]


def words(chart: alt.LayerChart, name: str = "") -> list[str]:
    """Return the texts of a layer, or all but those of the axes."""
    found = layers(chart).items()
    texts = [layer for key, layer in found if layer["mark"]["type"] == "text" and name in ("", key)]
    return [row["text"] for layer in texts for row in layer["rows"]]


def axis(chart: alt.LayerChart, of: str = "x") -> dict[str, Any]:
    """Return an axis, with the ends of its scale as "domain"."""
    channel = layers(chart)["axes"]["encoding"][of]
    return {**channel["axis"], "domain": channel["scale"]["domain"]}


def told(chart: alt.LayerChart) -> str:
    """Return the numbers of a chart in words."""
    words: str = chart.to_dict()["usermeta"]["told"]
    return words


def assert_page_ready(chart: alt.LayerChart) -> None:
    """Assert what holds of every chart on a page: a text alternative, no fixed colour, no id, all words within."""
    drawing, spec = svg(chart), chart.to_dict()
    root = ElementTree.fromstring(drawing)
    title, said = root.findtext(f"{SVG}title"), root.findtext(f"{SVG}desc")
    assert title and said and root.get("role") == "img" and root.get("aria-label") == f"{title}. {said}"
    room = spec["padding"]
    size = (spec["width"] + room["left"] + room["right"], spec["height"] + room["top"] + room["bottom"])
    assert [float(part) for part in str(root.get("viewBox")).split()] == pytest.approx([0, 0, *size], abs=1)
    assert root.get("width") is None and root.get("height") is None
    for item in root.iter():
        assert item.get("id") is None and item.get("font-family") is None and item.get("href") is None
        for look in ("fill", "stroke"):
            assert str(item.get(look, "none")).startswith(("var(--", "none", "transparent")), item.attrib
        assert "url(" not in str(item.attrib)
    assert svg(chart) == drawing
