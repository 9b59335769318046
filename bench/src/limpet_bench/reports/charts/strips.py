"""A few queries with what several models find first: pictures, each marked as right or wrong."""

from __future__ import annotations

import math
from base64 import b64decode
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from limpet.reports.charts.canvas import BAD, GOOD, HAIR, PAPER, SOFT, Chart
from limpet.reports.charts.shapes import Line
from limpet.reports.svg import cut, width_of
from limpet_bench.pictures.strips import Hit, Strips

_GAP, _APART, _LINE = 8.0, 22.0, 18.0  # between pictures, between models, and a line of words
_SMALLEST, _LARGEST = 44.0, 84.0  # pixels of a picture
_KEY = 26.0


def strip_panel(title: str, place: str, found: Strips, *, width: float = 640) -> Chart:
    """Draw a row per query: its picture, and the first hits of every model beside it or, where they do not fit, below.

    A right hit has a solid frame and a tick, a wrong one a dashed frame and a cross; one that nobody can judge a thin
    one. Items without a picture have the name of their class.
    """
    most, models = _most(found), len(found.models)
    side = (width - models * _APART - (most - 1) * models * _GAP - 4) / (1 + models * most)
    columns = models if side >= _SMALLEST else 1
    if columns == 1:
        side = (width - _APART - (most - 1) * _GAP - 4) / (1 + most)
    side = min(side, _LARGEST)
    lines = math.ceil(models / columns)
    head = _LINE * bool(place) + (_LINE + 4 if columns > 1 else 0)
    each = lines * (side + _GAP) + (_LINE * lines if columns == 1 else 0) + 14
    pictures = {name: _pixels(file) for name, file in found.pictures.items()}
    chart = Chart(f"{title} {place}".strip(), _told(found), (width, head + each * len(found.strips) + _KEY),
                  (0, 0, 0, 0), (0.0, width))  # fmt: skip
    if place:
        chart.write(0, 14, cut(place, width), bold=True)
    span = most * side + (most - 1) * _GAP
    starts = [side + _APART + column * (span + _APART) for column in range(columns)]
    if columns > 1:
        chart.write(2, head - 8, "query", size=12, colour=SOFT)
        for name, start in zip(found.models, starts, strict=True):
            chart.write(start, head - 8, cut(name, span), size=13, bold=True, label="model")
    for row, strip in enumerate(found.strips):
        down = head + row * each + 4
        asked = Hit(id=strip.query, label=strip.label, right=None)
        _item(chart, 2, down + (_LINE if columns == 1 else 0), side, asked, pictures, f"query of {strip.label}")
        for number, name in enumerate(found.models):
            line, column = (number, 0) if columns == 1 else (0, number)
            top = down + line * (side + _GAP + _LINE) + (_LINE if columns == 1 else 0)
            if columns == 1:
                chart.write(starts[0], top - 6, cut(name, span), size=12, colour=SOFT, label="model")
            for place_of, hit in enumerate(strip.hits[name]):
                x = starts[column] + place_of * (side + _GAP)
                _item(chart, x, top, side, hit, pictures, f"{name}, {place_of + 1}: {hit.label}")
    _key(chart, head + each * len(found.strips) + 12, found)
    return chart


def strips_width(found: Strips) -> float:
    """Return the width in pixels at which hits of all models stand beside each other, from 640 up to that of a page."""
    asked, models = _most(found), len(found.models)
    return min(1040.0, max(640.0, 4 + models * _APART + models * (asked - 1) * _GAP + (1 + models * asked) * 60))


def _most(found: Strips) -> int:
    return max((len(hits) for strip in found.strips for hits in strip.hits.values()), default=1) or 1


def _told(found: Strips) -> str:
    words = {True: "right", False: "wrong", None: "not judged"}
    rows = []
    for strip in found.strips:
        hits = "; ".join(f"{name}: {', '.join(words[hit.right] for hit in strip.hits[name])}" for name in found.models)
        rows.append(f"Query {strip.query}{f' of {strip.label}' if strip.label else ''}: {hits}.")
    return " ".join(rows)


def _pixels(file: str) -> NDArray[np.uint8]:
    from PIL import Image

    with Image.open(BytesIO(b64decode(file))) as image:
        return np.asarray(image.convert("RGB"))


def _item(
    chart: Chart, x: float, y: float, side: float, hit: Hit, pictures: dict[str, NDArray[np.uint8]], note: str
) -> None:
    """Draw the picture of an item in a square, and the frame that judges it."""
    pixels = pictures.get(hit.id)
    if pixels is None:
        chart.write(x + side / 2, y + side / 2 + 4, cut(hit.label or hit.id, side - 6), size=11, align="center",
                    colour=SOFT, label="class")  # fmt: skip
    else:
        high, wide = pixels.shape[:2]
        scale = (side - 6) / max(high, wide)
        chart.picture(x + (side - wide * scale) / 2, y + (side - high * scale) / 2, wide * scale, high * scale, pixels,
                      note=note)  # fmt: skip
    _frame(chart, x, y, side, hit.right)


def _frame(chart: Chart, x: float, y: float, side: float, right: bool | None) -> None:
    colour, line = {True: (GOOD, 2.2), False: (BAD, 2.2), None: (HAIR, 1.0)}[right]
    corners = ([x, x + side, x + side, x, x], [y, y, y + side, y + side, y])
    label = {True: "right", False: "wrong", None: "item"}[right]
    chart.line(*corners, colour, line, (5.0, 3.0) if right is False else None, label=label)
    if right is None:
        return
    x, y, reach = x + side - 3, y + side - 3, 2.7
    chart.mark(x, y, 0, colour, 6.5, edge=PAPER, line=1.4)
    strokes = (
        [([-0.9, -0.2, 1.0], [0.1, 0.8, -0.8])] if right else [([-0.8, 0.8], [-0.8, 0.8]), ([-0.8, 0.8], [0.8, -0.8])]
    )
    for across, down in strokes:
        places = [x + reach * one for one in across], [y + reach * one for one in down]
        chart.add(Line(*places, PAPER, 1.5, zorder=4, longer=True))


def _key(chart: Chart, y: float, found: Strips) -> None:
    """Say what frames mean, of those that are there."""
    judged = {hit.right for strip in found.strips for hits in strip.hits.values() for hit in hits}
    x = 2.0
    for right, words in ((True, "of its class"), (False, "of another class")):
        if right in judged:
            _frame(chart, x, y - 9, 17, right)
            chart.write(x + 30, y + 5, words, size=12, colour=SOFT, label="key")
            x += 42 + width_of(words, 12)
