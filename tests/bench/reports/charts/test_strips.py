from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from limpet.reports.plots.rendering import svg, width_of
from limpet_bench.pictures.strips import Hit, Strip, Strips
from limpet_bench.reports.charts.strips import strip_panel, strips_width

from ....reports.specs import SVG, rows, told, words


def file(value: int) -> str:
    buffer = BytesIO()
    Image.fromarray(np.full((4, 8), value, np.uint8)).save(buffer, "PNG")
    return b64encode(buffer.getvalue()).decode()


def found(models: int = 2, *, judged: bool = True) -> Strips:
    names = [f"model {number}" for number in range(models)]
    hits = [
        Hit(id="i", label="a", right=True if judged else None),
        Hit(id="j", label="b", right=False if judged else None),
    ]
    strips = [Strip(query="q", label="a", hits=dict.fromkeys(names, hits)) for _ in range(3)]
    return Strips(models=names, strips=strips, pictures={"i": file(10), "q": file(90)})  # none of j


@pytest.mark.parametrize("width", [350, 640])
def test_every_hit_is_framed_by_whether_it_is_right(width: float) -> None:
    chart = strip_panel("Hits", "a place", found(), width=width)
    assert len(rows(chart, "right")) == len(rows(chart, "wrong")) == 3 * 2 + 1  # and a key
    assert words(chart, "sign right") == ["✓"] * 7 and words(chart, "sign wrong") == ["✗"] * 7
    assert len(rows(chart, "item")) == 3  # queries
    assert len(rows(chart, "pictures")) == 3 + 3 * 2 and words(chart, "class") == ["b"] * 6  # for the picture of j
    assert told(chart).count("Query q of a: model 0: right, wrong; model 1: right, wrong.") == 3


def test_pictures_are_kept_as_they_are_with_their_notes() -> None:
    chart = strip_panel("Hits", "", found(1), width=640)
    root = ElementTree.fromstring(svg(chart))
    images = list(root.iter(f"{SVG}image"))
    assert len(images) == 6 and {image.findtext(f"{SVG}title") for image in images} == {"query of a", "model 0, 1: a"}
    links = [value for image in images for key, value in image.attrib.items() if key.endswith("href")]
    assert all(link.startswith("data:image/png;base64,iVBOR") for link in links) and len(links) == 6


@pytest.mark.parametrize(("width", "models"), [(350, 1), (350, 3), (640, 2), (1040, 3)])
def test_nothing_leaves_the_drawing(width: float, models: int) -> None:
    chart = strip_panel("Hits", "", found(models), width=width)
    frames = [row for name in ("right", "wrong", "item") for row in rows(chart, name)]
    assert width_of(chart) == width
    assert all(0 <= row["x"] < row["x2"] <= width and row["y2"] <= chart.to_dict()["height"] for row in frames)


def test_models_stand_beside_each_other_where_they_fit_and_else_below() -> None:
    beside, below = (strip_panel("Hits", "", found(3), width=width) for width in (640, 350))
    assert words(beside, "model") == ["model 0", "model 1", "model 2"]
    assert words(below, "model") == ["model 0", "model 1", "model 2"] * 3
    assert below.to_dict()["height"] > 2 * beside.to_dict()["height"]
    assert strips_width(found(1)) == 640 and 640 < strips_width(found(5)) <= 1040


def test_what_nobody_judges_has_neither_mark_nor_key() -> None:
    chart = strip_panel("Hits", "", found(judged=False), width=640)
    assert not rows(chart, "right") and not rows(chart, "wrong") and not words(chart, "key")
    assert "not judged" in told(chart)
