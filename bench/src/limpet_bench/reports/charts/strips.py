"""Chart of a few queries with the first hits of several models as pictures, marked as right or wrong."""

from __future__ import annotations

import math
from typing import Any

import altair as alt

from limpet.reports.plots.frame import Frame, layer_of, noted
from limpet.reports.plots.style import BAD, GOOD, HAIR, PAPER, SOFT, cut, width_of
from limpet_bench.pictures.strips import Hit, Strips

Rows = list[dict[str, Any]]

_GAP, _APART, _LINE = 8.0, 22.0, 18.0  # pixels between pictures, between models, and of a line of text
_SMALLEST, _LARGEST = 44.0, 84.0  # minimum and maximum pixels per side of a picture
_KEY = 26.0


def strip_panel(title: str, place: str, found: Strips, *, width: float = 640) -> alt.LayerChart:
    """Draw a row per query: its picture, and the first hits of the models side by side or, if too wide, one per line.

    A right hit has a solid frame and a tick, a wrong one a dashed frame and a cross, and a hit that was not judged a
    thin frame. Items without a picture show the name of their class.
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
    height = head + each * len(found.strips) + _KEY
    frame = Frame(width, height, (0, 0, 0, 0), (0.0, width), (height, 0.0))
    span = most * side + (most - 1) * _GAP
    starts = [side + _APART + column * (span + _APART) for column in range(columns)]
    drawn: dict[str, Rows] = {name: [] for name in ("pictures", "classes", *_FRAMES, "models")}
    if columns > 1:
        named = zip(found.models, starts, strict=True)
        drawn["models"] = [{"x": start, "y": head - 8, "text": cut(name, span)} for name, start in named]
    for row, strip in enumerate(found.strips):
        down = head + row * each + 4
        asked = Hit(id=strip.query, label=strip.label, right=None)
        top = down + (_LINE if columns == 1 else 0)
        _item(drawn, 2, top, side, asked, found.pictures, f"query of {strip.label}")
        for number, name in enumerate(found.models):
            line, column = (number, 0) if columns == 1 else (0, number)
            top = down + line * (side + _GAP + _LINE) + (_LINE if columns == 1 else 0)
            if columns == 1:
                drawn["models"].append({"x": starts[0], "y": top - 6, "text": cut(name, span)})
            for place_of, hit in enumerate(strip.hits[name]):
                x = starts[column] + place_of * (side + _GAP)
                _item(drawn, x, top, side, hit, found.pictures, f"{name}, {place_of + 1}: {hit.label}")
    keys = _key(drawn, head + each * len(found.strips) + 12, found)
    small: dict[str, Any] = {"size": 12, "colour": SOFT}
    model: dict[str, Any] = {"bold": True} if columns > 1 else small
    query = [{"x": 2, "y": head - 8, "text": "query" * (columns > 1)}]
    return frame.chart(f"{title} {place}".strip(), _told(found), [
        frame.axes(),
        frame.text([{"x": 0, "y": 14, "text": cut(place, width)}], "place", bold=True),
        frame.text(query, "query", **small),
        frame.text(drawn["models"], "model", **model),
        frame.text(drawn["classes"], "class", size=11, align="center", colour=SOFT),
        _images(frame, drawn["pictures"], side - 6),
        *(
            frame.boxes(drawn[name], name, opacity=0.0, edge=colour, line=line, dashes=dashes)
            for name, (colour, line, dashes, _) in _FRAMES.items()
        ),
        *(_badges(frame, drawn[name], name) for name in ("right", "wrong")),
        *(
            frame.text(_corners(drawn[name], 3.5), f"sign {name}", size=11, colour=PAPER, align="center", bold=True,
                       halo=False)
            for name in ("right", "wrong")
        ),
        frame.text(keys, "key", **small),
    ])  # fmt: skip


_FRAMES: dict[str, tuple[str, float, tuple[float, ...], str]] = {
    "right": (GOOD, 2.2, (), "✓"),
    "wrong": (BAD, 2.2, (5.0, 3.0), "✗"),
    "item": (HAIR, 1.0, (), ""),
}
_KINDS = {True: "right", False: "wrong", None: "item"}


def _images(frame: Frame, rows: Rows, side: float) -> alt.Chart | None:
    if not rows:
        return None
    mark = {"type": "image", "width": side, "height": side, "aria": True}
    return layer_of(rows, "pictures", mark, {**frame.at(), **noted(rows), "url": {"field": "url", "type": "nominal"}})


def _corners(rows: Rows, down: float) -> Rows:
    return [{"x": row["x2"] - 3, "y": row["y2"] - 3 + down, "text": row["sign"]} for row in rows]


def _badges(frame: Frame, rows: Rows, name: str) -> alt.Chart | None:
    colour = _FRAMES[name][0]
    return frame.marks(_corners(rows, 0), f"badge {name}", radius=6.5, colour=colour, edge=PAPER, line=1.4)


def strips_width(found: Strips) -> float:
    """Return the width in pixels that fits the hits of all models side by side, between 640 and 1,040."""
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


def _item(
    drawn: dict[str, Rows], x: float, y: float, side: float, hit: Hit, pictures: dict[str, str], note: str
) -> None:
    middle = {"x": x + side / 2, "y": y + side / 2}
    if hit.id in pictures:
        drawn["pictures"].append({**middle, "url": f"data:image/png;base64,{pictures[hit.id]}", "note": note})
    else:
        drawn["classes"].append({**middle, "y": middle["y"] + 4, "text": cut(hit.label or hit.id, side - 6)})
    _frame(drawn, x, y, side, hit.right)


def _frame(drawn: dict[str, Rows], x: float, y: float, side: float, right: bool | None) -> None:
    kind = _KINDS[right]
    drawn[kind].append({"x": x, "x2": x + side, "y": y, "y2": y + side, "sign": _FRAMES[kind][3]})


def _key(drawn: dict[str, Rows], y: float, found: Strips) -> Rows:
    judged = {hit.right for strip in found.strips for hits in strip.hits.values() for hit in hits}
    x, keys = 2.0, []
    for right, words in ((True, "of its class"), (False, "of another class")):
        if right in judged:
            _frame(drawn, x, y - 9, 17, right)
            keys.append({"x": x + 30, "y": y + 5, "text": words})
            x += 42 + width_of(words, 12)
    return keys
