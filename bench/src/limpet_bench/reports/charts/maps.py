"""Maps of embeddings of a few classes: a panel per new model, with old embeddings at the same positions in all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from limpet.reports.formats import percent_of
from limpet.reports.plots.frame import Frame
from limpet.reports.plots.scatter import many_marks
from limpet.reports.plots.style import (
    FAINT,
    HAIR,
    INK,
    SERIES,
    SOFT,
    area_of,
    cut,
    round_ticks,
    tick_label,
    width_of,
)
from limpet_bench.pictures.embedding_map import OLD, EmbeddingMap

Rows = list[dict[str, Any]]
Key = list[tuple[str | int, str]]

LAYOUT_NAMES = {"tsne": "t-SNE", "umap": "UMAP", "hyperboloid": "UMAP on a hyperboloid"}
"""Display names of layouts."""

_HEAD, _GAP, _MARGIN, _LINE = 24.0, 18.0, 14.0, 18.0  # pixels: three of a panel, and a line of the legend
_NARROW = 480.0
_APART = 5.0  # pixels: prototypes nearer than this overlap
_SEVERAL = 7  # number of classes with distinct colours


class _Frame(NamedTuple):
    """Position of the plane in a panel: four edges in pixels, the coordinates at its middle, and pixels per unit."""

    left: float
    top: float
    right: float
    bottom: float
    middle: tuple[float, float]
    scale: float

    def across(self, x: float) -> float:
        return (self.left + self.right) / 2 + self.scale * (x - self.middle[0])

    def down(self, y: float) -> float:
        return (self.top + self.bottom) / 2 - self.scale * (y - self.middle[1])


def embedding_panels(title: str, found: EmbeddingMap, *, width: float = 640, head: str = "") -> alt.LayerChart:
    """Draw old embeddings as hollow triangles, new ones as dots and old prototypes as diamonds, coloured by class.

    Old embeddings that count as noise are black crosses. The number of a class is at the middle of its points. Colours
    repeat after seven classes; the numbers distinguish these classes. All panels share one scale for both directions.
    """
    panels = [*[OLD] * (found.apart or not found.models), *found.models]
    columns = 1 if width < _NARROW else min(len(panels), 3 if len(panels) in (3, 5, 6, 9) else 2)
    across = (width - _GAP * (columns - 1)) / columns
    high = min(across, 420.0 if columns == 1 else 320.0)
    top = _HEAD * bool(head)
    bottom = top + math.ceil(len(panels) / columns) * (_HEAD + high + _GAP)
    classes: Key = [(number, f"{number + 1}  {name}") for number, name in enumerate(found.classes)]
    legend = [_key(found), classes]
    lines = [_flowing([cut(words, width - 20, 12) for _, words in part], width) for part in legend]
    height = bottom + _LINE * sum(1 + part[-1][0] for part in lines if part)
    frame = Frame(width, height, (0, 0, 0, 0), (0.0, width), (height, 0.0))
    drawn: dict[str, Rows] = {name: [] for name in _LAYERS}
    unit = _unit(found, across, high)
    for number, model in enumerate(panels):
        right, down = (number % columns) * (across + _GAP), top + (number // columns) * (_HEAD + high + _GAP)
        place = unit._replace(left=right, right=right + across, top=down + _HEAD, bottom=down + _HEAD + high)
        _panel(drawn, place, found, model)
    keys = []
    for part, places in zip(legend, lines, strict=True):
        for (mark, words), (line, at) in zip(part, places, strict=True):
            y = bottom + _LINE * line + 2
            _sample(drawn, mark, at + 7, y)
            keys.append({"x": at + 20, "y": y + 4, "text": cut(words, width - 20, 12)})
        bottom += _LINE * (1 + places[-1][0]) if places else 0.0
    headline = [{"x": 0, "y": 14, "text": cut(head, width)}]
    return frame.chart(title, _told(found), [
        frame.axes(),
        frame.rules(drawn["rings"], "rings", colour=FAINT, width=1),
        frame.boxes(drawn["panels"], "panels", opacity=0.0, edge=HAIR, line=1.0),
        frame.text(headline, "place", bold=True),
        frame.text(drawn["models"], "model", bold=True),
        many_marks(frame, drawn["old"], "old", hollow=True, line=1.1),
        many_marks(frame, drawn["new"], "new", line=0.0),
        frame.rules(drawn["noise"], "noise", colour=INK, width=1.8),
        frame.rules(drawn["origins"], "origins"),
        many_marks(frame, drawn["prototypes"], "prototypes", edge=INK, line=1.2),
        frame.text(drawn["distances"], "distances", size=11, colour=SOFT, align="center"),
        frame.text(drawn["numbers"], "class", size=14, align="center", bold=True),
        frame.text(keys, "key", size=12, colour=SOFT),
    ])  # fmt: skip


_LAYERS = ("rings", "panels", "models", "old", "new", "noise", "origins", "prototypes", "distances", "numbers")


def own_side(found: EmbeddingMap, model: str) -> float | None:
    """Return the share of a new model's points for which the nearest old class centre is that of their own class.

    None if old or new embeddings are not shown.
    """
    centres = {one.name: (np.mean(one.x), np.mean(one.y)) for one in found.clusters if one.model == OLD and one.ids}
    of_model = [one for one in found.clusters if one.model == model]
    if not centres or not of_model or model == OLD:
        return None
    names, places = list(centres), np.array(list(centres.values()))
    right = [
        names[int(np.argmin(np.hypot(*(places - point).T)))] == one.name
        for one in of_model
        for point in zip(one.x, one.y, strict=True)
    ]
    return float(np.mean(right))


def _told(found: EmbeddingMap) -> str:
    first = [one for one in found.clusters if one.model == found.clusters[0].model]
    words = [
        f"{sum(len(one.ids) for one in first):,} items of {len(found.classes)} classes, laid out by "
        f"{LAYOUT_NAMES[found.layout]} with seed {found.seed}: {', '.join(found.classes)}."
    ]
    if found.noise:
        words.append(f"{len(found.noise):,} old embeddings of them are taken for noise.")
    for model in found.models:
        share = own_side(found, model)
        if share is not None:
            words.append(
                f"{model}: {percent_of(share)} of the new points lie nearest to the old centre of their class."
            )
    return " ".join(words)


def _unit(found: EmbeddingMap, across: float, high: float) -> _Frame:
    x = [x for one in found.clusters for x in one.x] + [x for x, _ in found.prototypes.values()]
    y = [y for one in found.clusters for y in one.y] + [y for _, y in found.prototypes.values()]
    if _has_origin(found):
        x, y = [*x, 0.0], [*y, 0.0]
    spans = max(x) - min(x) or 1.0, max(y) - min(y) or 1.0
    scale = min((across - 2 * _MARGIN) / spans[0], (high - 2 * _MARGIN) / spans[1])
    return _Frame(0, 0, across, high, ((max(x) + min(x)) / 2, (max(y) + min(y)) / 2), scale)


def _has_origin(found: EmbeddingMap) -> bool:
    return found.layout == "hyperboloid"


def _panel(drawn: dict[str, Rows], frame: _Frame, found: EmbeddingMap, model: str) -> None:
    wide = frame.right - frame.left
    name = "old model" if model == OLD else model
    drawn["models"].append({"x": frame.left, "y": frame.top - 8, "text": cut(name, wide)})
    edges = {"x": frame.left + 0.5, "x2": frame.right - 0.5, "y": frame.top, "y2": frame.bottom}  # not cut off
    drawn["panels"].append(edges)
    if _has_origin(found):
        _rings(drawn, frame)
    small = 2.6 if wide < 280 else 3.2
    noise, shown = set(found.noise), (model,) if found.apart else (OLD, model)
    for one in sorted(found.clusters, key=lambda one: one.model != OLD):
        colour = _colour(found.classes.index(one.name))
        points = [(frame.across(x), frame.down(y), item) for x, y, item in zip(one.x, one.y, one.ids, strict=True)]
        for x, y, item in points if one.model in shown else ():
            if one.model != OLD:
                drawn["new"].append(_dot(x, y, colour, small))
            elif item in noise:
                drawn["noise"] += _cross(x, y, small + 0.6)
            else:
                drawn["old"].append(_triangle(x, y, colour, small + 0.6))
    _prototypes(drawn, frame, found)
    _numbers(drawn, frame, found, shown)


def _dot(x: float, y: float, colour: str, radius: float) -> dict[str, Any]:
    return {"x": x, "y": y, "colour": colour, "shape": "circle", "size": area_of("circle", radius)}


def _triangle(x: float, y: float, colour: str, radius: float) -> dict[str, Any]:
    return {"x": x, "y": y, "colour": colour, "shape": "triangle-up", "size": area_of("triangle-up", radius)}


def _cross(x: float, y: float, radius: float) -> Rows:
    return [
        {"x": x - radius, "x2": x + radius, "y": y, "y2": y},
        {"x": x, "x2": x, "y": y - radius, "y2": y + radius},
    ]


def _prototypes(drawn: dict[str, Rows], frame: _Frame, found: EmbeddingMap) -> None:
    """Draw old prototypes; overlapping ones are drawn smaller, because similar classes have nearly the same one."""
    places: list[tuple[float, float]] = []
    for name, (x, y) in found.prototypes.items():
        across, down = frame.across(x), frame.down(y)
        here = sum(math.hypot(across - a, down - d) < _APART for a, d in places)
        places.append((across, down))
        size = area_of("diamond", max(2.4, 8.0 - 3.4 * here))
        colour, note = _colour(found.classes.index(name)), f"old prototype of {name}"
        drawn["prototypes"].append(
            {"x": across, "y": down, "colour": colour, "shape": "diamond", "size": size, "note": note}
        )


def _numbers(drawn: dict[str, Rows], frame: _Frame, found: EmbeddingMap, shown: Sequence[str]) -> None:
    """Write the number of every class at the middle of its points; overlapping numbers are listed together."""
    places: list[tuple[float, float, list[int]]] = []
    for number, name in enumerate(found.classes, start=1):
        of_class = [one for one in found.clusters if one.name == name and one.model in shown and one.x]
        if not of_class:
            continue
        x, y = frame.across(float(np.mean(of_class[-1].x))), frame.down(float(np.mean(of_class[-1].y)))
        near = next((one for one in places if abs(one[0] - x) < 18 and abs(one[1] - y) < 14), None)
        if near is None:
            places.append((x, y, [number]))
        else:
            near[2].append(number)
    for x, y, numbers in places:
        words = ", ".join(map(str, numbers))
        half = width_of(words, 14) / 2
        x = min(max(x, frame.left + half + 3), frame.right - half - 3)
        drawn["numbers"].append({"x": x, "y": y + 5, "text": words})


def _rings(drawn: dict[str, Rows], frame: _Frame) -> None:
    x, y = frame.across(0), frame.down(0)
    reach = max(x - frame.left, frame.right - x, y - frame.top, frame.bottom - y)
    turns = np.linspace(0, 2 * np.pi, 181)
    for radius in round_ticks(0, reach / frame.scale, 6)[1:]:
        across, down = x + frame.scale * radius * np.cos(turns), y + frame.scale * radius * np.sin(turns)
        inside = (across >= frame.left) & (across <= frame.right) & (down >= frame.top) & (down <= frame.bottom)
        drawn["rings"] += [
            {"x": across[n], "x2": across[n + 1], "y": down[n], "y2": down[n + 1]}
            for n in np.flatnonzero(inside[:-1] & inside[1:]).tolist()
        ]
        up = y - frame.scale * radius
        if inside.any() and frame.top + 12 < up and frame.left + 8 < x < frame.right - 8:
            drawn["distances"].append({"x": x, "y": up + 4, "text": tick_label(radius)})
    drawn["origins"] += _cross(x, y, 5)


def _colour(number: int) -> str:
    return SERIES[number % _SEVERAL]


def _key(found: EmbeddingMap) -> Key:
    models = {one.model for one in found.clusters}
    shown: list[tuple[bool, str | int, str]] = [
        (OLD in models, "old", "old embedding"),
        (bool(models - {OLD}), "new", "new embedding"),
        (bool(found.prototypes), "prototypes", "old prototype"),
        (bool(found.noise), "noise", "taken for noise"),
        (_has_origin(found), "origins", "origin"),
    ]
    return [(mark, words) for has, mark, words in shown if has]


def _sample(drawn: dict[str, Rows], mark: str | int, x: float, y: float) -> None:
    if isinstance(mark, int):
        drawn["new"].append(_dot(x, y, _colour(mark), 5.0))
    elif mark in ("noise", "origins"):
        drawn[mark] += _cross(x, y, 4.2)
    elif mark == "prototypes":
        size = area_of("diamond", 6.0)
        drawn[mark].append({"x": x, "y": y, "colour": SOFT, "shape": "diamond", "size": size, "note": "old prototype"})
    else:
        drawn[mark].append((_triangle if mark == "old" else _dot)(x, y, SOFT, 4.2))


def _flowing(entries: Sequence[str], width: float) -> list[tuple[int, float]]:
    """Return the line and the left edge of every legend entry, with as many entries per line as fit.

    >>> _flowing(["a" * 20] * 3, 400)
    [(0, 0.0), (0, 196.4), (1, 0.0)]
    """
    places, line, at = [], 0, 0.0
    for words in entries:
        across = 20 + width_of(words, 12)
        if at and at + across > width:
            line, at = line + 1, 0.0
        places.append((line, round(at, 2)))
        at += across + 18
    return places
