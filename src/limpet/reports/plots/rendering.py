"""Renders charts as SVG for pages, with CSS variables as colours, and as files."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from limpet.embeddings.storage import write_atomically
from limpet.errors import refuse
from limpet.reports.plots.style import INK, VARIABLES, clean
from limpet.support.extras import needing

if TYPE_CHECKING:
    import altair as alt

__all__ = ["for_page", "save", "svg", "width_of"]

ENDINGS = (".svg", ".png", ".pdf")
"""File extensions in which charts can be saved."""

_SVG = "{http://www.w3.org/2000/svg}"
_LONG = re.compile(r"-?\d+\.\d{3,}")
_DROPPED = {"role", "pointer-events", "font-family", "class", "stroke-miterlimit"}
_FINE = 144  # dots per inch of a PNG: two pixels per pixel of a page
_GAP = 24.0
_HALO = {"paint-order": "stroke", "stroke": "#ffffff", "stroke-width": "3", "stroke-linejoin": "round"}

ElementTree.register_namespace("", _SVG[1:-1])


def svg(chart: alt.LayerChart) -> str:
    """Return a chart as SVG for a page: colours are CSS variables, texts are text elements, and notes are titles.

    The style of the page sets fonts and the halo of texts; see `style.css`. No element has an id, so a page can hold
    several charts.
    """
    return ElementTree.tostring(_compiled(chart, VARIABLES), encoding="unicode")


def for_page(drawing: str, title: str, told: str) -> str:
    """Return an SVG that Vega rendered, in the form of `svg`.

    Args:
        drawing: The SVG, such as the output of a notebook cell.
        title: Title, for the text alternative.
        told: The numbers in words, for the text alternative.
    """
    root = _simplified(drawing, title, told, VARIABLES)
    for background in root.findall(f"{_SVG}rect"):  # it would be white on a dark page
        root.remove(background)
    return ElementTree.tostring(root, encoding="unicode")


def width_of(chart: alt.LayerChart) -> float:
    """Return the width of a chart in pixels, with the padding around its axes."""
    spec = chart.to_dict(validate=False)
    return float(spec["width"] + spec["padding"]["left"] + spec["padding"]["right"])


def save(
    charts: alt.LayerChart | Sequence[alt.LayerChart], path: str | Path, *, title: str = "", beside: int = 2
) -> Path:
    """Write charts into a file atomically, in the light colours of pages.

    Args:
        charts: One or several charts.
        path: Path that ends in .svg, .png or .pdf.
        title: Title above several charts; the label of a single one.
        beside: Number of charts per row.

    Returns:
        The path.

    Raises:
        ConfigError: The path has another extension.
        DataError: The file could not be written.
    """
    path = Path(path)
    refuse(path.suffix not in ENDINGS, f"'{path}' ends in '{path.suffix}'.", f"one of {', '.join(ENDINGS)}")
    drawn = [charts] if not isinstance(charts, Sequence) else list(charts)
    text = _standalone(drawn, title, beside)
    if path.suffix == ".svg":
        return write_atomically(path, lambda part: part.write_text(text, encoding="utf-8", newline=""))
    with needing("A chart as a file"):
        import vl_convert
    content = vl_convert.svg_to_png(text, ppi=_FINE) if path.suffix == ".png" else vl_convert.svg_to_pdf(text)
    return write_atomically(path, lambda part: part.write_bytes(content))


def _standalone(charts: Sequence[alt.LayerChart], title: str, beside: int) -> str:
    drawings = [_compiled(chart, {}) for chart in charts]
    sizes = [tuple(map(float, str(drawing.get("viewBox")).split()[2:])) for drawing in drawings]
    rows = [range(start, min(start + beside, len(charts))) for start in range(0, len(charts), beside)]
    top = _GAP if len(charts) == 1 else 2 * _GAP
    width = max(sum(sizes[place][0] + _GAP for place in row) for row in rows) + _GAP
    height = sum(max(sizes[place][1] for place in row) + _GAP for row in rows) + top
    called = clean(title) or str(drawings[0].get("aria-label"))
    page = ElementTree.Element(
        f"{_SVG}svg",
        {"width": f"{width:g}", "height": f"{height:g}", "viewBox": f"0 0 {width:g} {height:g}",
         "font-family": "sans-serif", "role": "img", "aria-label": called},
    )  # fmt: skip
    ElementTree.SubElement(page, f"{_SVG}rect", {"width": "100%", "height": "100%", "fill": "white"})
    if len(charts) > 1:
        head = {"x": f"{_GAP:g}", "y": f"{_GAP:g}", "font-weight": "bold", "font-size": "14px", "fill": INK}
        ElementTree.SubElement(page, f"{_SVG}text", head).text = called
    down = top
    for row in rows:
        right = _GAP
        for place in row:
            size = {"width": f"{sizes[place][0]:g}", "height": f"{sizes[place][1]:g}"}
            drawings[place].attrib |= {"x": f"{right:g}", "y": f"{down:g}", **size}
            page.append(drawings[place])
            right += sizes[place][0] + _GAP
        down += max(sizes[place][1] for place in row) + _GAP
    for text in page.iter(f"{_SVG}text"):
        if "stroke" not in text.attrib:
            text.attrib |= _HALO
    return ElementTree.tostring(page, encoding="unicode") + "\n"


def _compiled(chart: alt.LayerChart, variables: dict[str, str]) -> ElementTree.Element:
    with needing("A chart"):
        import vl_convert
    spec = chart.to_dict(validate=False)
    said = spec["usermeta"]
    return _simplified(vl_convert.vegalite_to_svg(json.dumps(spec)), said["title"], said["told"], variables)


def _simplified(drawing: str, title: str, told: str, variables: dict[str, str]) -> ElementTree.Element:
    root = ElementTree.fromstring(clean(drawing))
    _simplify(root, variables)
    label = {"class": "chart", "role": "img", "aria-label": f"{title}. {told}"}
    root.attrib = {**label, "viewBox": str(root.get("viewBox"))}
    for place, (tag, words) in enumerate((("title", title), ("desc", told))):
        described = ElementTree.Element(f"{_SVG}{tag}")
        described.text = words
        root.insert(place, described)
    return root


def _simplify(parent: ElementTree.Element, variables: dict[str, str]) -> None:
    for item in list(parent):
        if item.get("opacity") == "0" or item.get("class") in ("background", "foreground"):
            parent.remove(item)
            continue
        note = item.get("aria-label")
        item.attrib = {
            key: _written(value, variables)
            for key, value in item.attrib.items()
            if key not in _DROPPED and not key.startswith("aria-") and (key, value) != ("opacity", "1")
        }
        _simplify(item, variables)
        if note:
            title = ElementTree.Element(f"{_SVG}title")
            title.text = note
            item.insert(0, title)
        if item.tag == f"{_SVG}g" and not len(item):
            parent.remove(item)


def _written(value: str, variables: dict[str, str]) -> str:
    if value in variables:
        return f"var(--{variables[value]})"
    return _LONG.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value)
