from __future__ import annotations

from base64 import b64encode
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from limpet.reports.charts.canvas import BAD, GOOD, Chart
from limpet_bench.pictures.strips import Hit, Strip, Strips
from limpet_bench.reports.charts.strips import strip_panel, strips_width

from ..reading import assert_page_ready


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


def marked(chart: Chart, label: str) -> list[str]:
    return [str(line.get_color()) for line in chart.axes.lines if line.get_label() == label]


def texts(chart: Chart, label: str) -> list[str]:
    return [item.get_text() for item in chart.axes.texts if item.get_label() == label]


@pytest.mark.parametrize("width", [350, 640])
def test_every_hit_is_framed_by_whether_it_is_right(width: float) -> None:
    chart = strip_panel("Hits", "a place", found(), width=width)
    assert marked(chart, "right") == [GOOD] * (3 * 2 + 1) and marked(chart, "wrong") == [BAD] * (3 * 2 + 1)  # and a key
    assert len(marked(chart, "item")) == 3  # queries
    pictures = [item for item in chart.axes.get_children() if item.get_label() == "picture"]
    assert len(pictures) == 3 + 3 * 2 and texts(chart, "class") == ["b"] * 6  # in place of the picture of j
    assert chart.told.count("Query q of a: model 0: right, wrong; model 1: right, wrong.") == 3
    assert_page_ready(chart)


def test_pictures_keep_their_shape_and_nothing_leaves_the_drawing() -> None:
    for width, models in ((350, 1), (350, 3), (640, 2), (1040, 3)):
        chart = strip_panel("Hits", "", found(models), width=width)
        for item in chart.axes.get_children():
            if item.get_label() == "picture":
                left, right, bottom, top = item.get_extent()
                assert abs((right - left) / abs(top - bottom) - 2) < 1e-6
                assert left >= 0 and right <= width and max(top, bottom) <= chart.height
        for line in chart.axes.lines:
            assert max(line.get_xdata()) <= width and max(line.get_ydata()) <= chart.height


def test_models_stand_beside_each_other_where_they_fit_and_else_below() -> None:
    beside, below = (strip_panel("Hits", "", found(3), width=width) for width in (640, 350))
    assert texts(beside, "model") == ["model 0", "model 1", "model 2"]
    assert texts(below, "model") == ["model 0", "model 1", "model 2"] * 3
    assert below.height > 2 * beside.height
    assert strips_width(found(1)) == 640 and 640 < strips_width(found(5)) <= 1040


def test_what_nobody_judges_has_neither_mark_nor_key() -> None:
    chart = strip_panel("Hits", "", found(judged=False), width=640)
    assert not marked(chart, "right") and not marked(chart, "wrong") and not texts(chart, "key")
    assert "not judged" in chart.told
