"""Embeddings of a few classes in a plane: a panel for every new model, the old ones at one place in all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from limpet.reports.charts.canvas import FAINT, HAIR, INK, PAPER, SERIES, SOFT, Chart, round_ticks
from limpet.reports.formats import percent_of
from limpet.reports.svg import cut, tick_label, width_of
from limpet_bench.pictures.embedding_map import OLD, EmbeddingMap

LAYOUT_NAMES = {"tsne": "t-SNE", "umap": "UMAP", "hyperboloid": "UMAP on a hyperboloid"}
"""What people call a layout."""

_HEAD, _GAP, _MARGIN, _LINE = 24.0, 18.0, 14.0, 18.0  # of a panel; a line of the legend
_NARROW = 480.0
_APART = 5.0  # pixels: prototypes nearer than this are in one place
_SEVERAL = 7  # classes whose colours differ


class _Frame(NamedTuple):
    """Where the plane is in a panel: pixels of its four edges, the place in its middle, and pixels of a unit."""

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


def embedding_panels(title: str, found: EmbeddingMap, *, width: float = 640, head: str = "") -> Chart:
    """Draw old embeddings as hollow triangles, new ones as dots and old prototypes as diamonds, a colour for a class.

    Old embeddings that are taken for noise are black crosses. The number of a class stands at the middle of its points;
    more than seven classes share colours, and are told apart by their numbers. Panels share one scale, the same in both
    directions.

    Args:
        title: What is drawn.
        found: The layout.
        width: Width in pixels; panels stand below each other on a narrow one.
        head: A line above the panels; empty for none.
    """
    panels = [*[OLD] * (found.apart or not found.models), *found.models]
    columns = 1 if width < _NARROW else min(len(panels), 3 if len(panels) in (3, 5, 6, 9) else 2)
    across = (width - _GAP * (columns - 1)) / columns
    high = min(across, 420.0 if columns == 1 else 320.0)
    top = _HEAD * bool(head)
    bottom = top + math.ceil(len(panels) / columns) * (_HEAD + high + _GAP)
    legend = [[(cut(words, width - 20, 12), mark) for mark, words in part] for part in (_key(found), _classes(found))]
    lines = [_flowing([words for words, _ in part], width) for part in legend]
    height = bottom + _LINE * sum(1 + part[-1][0] for part in lines if part)
    chart = Chart(title, _told(found), (width, height), (0, 0, 0, 0), (0.0, width))
    if head:
        chart.write(0, 14, cut(head, width), bold=True, label="place")
    frame = _frame(found, across, high)
    for number, model in enumerate(panels):
        right, down = (number % columns) * (across + _GAP), top + (number // columns) * (_HEAD + high + _GAP)
        place = frame._replace(left=right, right=right + across, top=down + _HEAD, bottom=down + _HEAD + high)
        _panel(chart, place, found, model)
    for part, places in zip(legend, lines, strict=True):
        for (words, mark), (line, at) in zip(part, places, strict=True):
            mark(chart, at + 7, bottom + _LINE * line + 2)
            chart.write(at + 20, bottom + _LINE * line + 6, words, size=12, colour=SOFT, label="key")
        bottom += _LINE * (1 + places[-1][0]) if places else 0.0
    return chart


def own_side(found: EmbeddingMap, model: str) -> float | None:
    """Return which share of a new model's points lies nearer to the old centre of its class than to any other's.

    None where old or new embeddings are not shown.
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


def _frame(found: EmbeddingMap, across: float, high: float) -> _Frame:
    """Return the frame of a panel at the left upper corner, in which all points have room."""
    x = [x for one in found.clusters for x in one.x] + [x for x, _ in found.prototypes.values()]
    y = [y for one in found.clusters for y in one.y] + [y for _, y in found.prototypes.values()]
    if _has_origin(found):
        x, y = [*x, 0.0], [*y, 0.0]
    spans = max(x) - min(x) or 1.0, max(y) - min(y) or 1.0
    scale = min((across - 2 * _MARGIN) / spans[0], (high - 2 * _MARGIN) / spans[1])
    return _Frame(0, 0, across, high, ((max(x) + min(x)) / 2, (max(y) + min(y)) / 2), scale)


def _has_origin(found: EmbeddingMap) -> bool:
    """Return whether distances from the origin mean something in the plane."""
    return found.layout == "hyperboloid"


def _panel(chart: Chart, frame: _Frame, found: EmbeddingMap, model: str) -> None:
    wide, high = frame.right - frame.left, frame.bottom - frame.top
    name = "old model" if model == OLD else model
    chart.write(frame.left, frame.top - 8, cut(name, wide), bold=True, label="model")
    edges = (frame.left + 0.5, frame.top, wide - 1, high)  # a line on the very edge of the drawing would be cut
    chart.box(*edges, PAPER, alpha=0.0, edge=HAIR, line=1.0, label="panel")
    if _has_origin(found):
        _rings(chart, frame)
    small = 2.6 if wide < 280 else 3.2
    noise, shown = set(found.noise), (model,) if found.apart else (OLD, model)
    for one in sorted(found.clusters, key=lambda one: one.model != OLD):
        if one.model not in shown:
            continue
        points = [(frame.across(x), frame.down(y), name) for x, y, name in zip(one.x, one.y, one.ids, strict=True)]
        colour = _colour(found.classes.index(one.name))
        if one.model == OLD:
            kept = [(across, down) for across, down, name in points if name not in noise]
            places = [across for across, _ in kept], [down for _, down in kept]
            chart.triangles(*places, colour, small + 0.6, line=1.1, label=f"old {one.name}")
            _crosses(chart, [(across, down) for across, down, name in points if name in noise], small + 0.6)
        else:
            places = [across for across, _, _ in points], [down for _, down, _ in points]
            chart.dots(*places, colour, small, alpha=0.75, label=f"{model} {one.name}")
    _prototypes(chart, frame, found)
    _numbers(chart, frame, found, shown)


def _prototypes(chart: Chart, frame: _Frame, found: EmbeddingMap) -> None:
    """Draw old prototypes, those in one place inside each other: similar classes have nearly the same one."""
    drawn: list[tuple[float, float]] = []
    for name, (x, y) in found.prototypes.items():
        across, down = frame.across(x), frame.down(y)
        here = sum(math.hypot(across - a, down - d) < _APART for a, d in drawn)
        drawn.append((across, down))
        colour, radius = _colour(found.classes.index(name)), max(2.4, 8.0 - 3.4 * here)
        note = f"old prototype of {name}"
        chart.mark(across, down, 3, colour, radius, edge=INK, line=1.2, note=note, label="prototype")


def _numbers(chart: Chart, frame: _Frame, found: EmbeddingMap, shown: Sequence[str]) -> None:
    """Write the number of every class at the middle of its points; those in one place beside each other."""
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
        chart.write(x, y + 5, words, size=14, align="center", bold=True, halo=True, label="class")


def _crosses(chart: Chart, places: Sequence[tuple[float, float]], radius: float) -> None:
    """Draw upright crosses of two lines each."""
    for x, y in places:
        chart.line([x - radius, x + radius], [y, y], INK, 1.8, label="noise")
        chart.line([x, x], [y - radius, y + radius], INK, 1.8, label="noise")


def _rings(chart: Chart, frame: _Frame) -> None:
    """Draw circles at round distances from the origin, as far as the frame reaches, and a cross there."""
    x, y = frame.across(0), frame.down(0)
    reach = max(x - frame.left, frame.right - x, y - frame.top, frame.bottom - y)
    turns = np.linspace(0, 2 * np.pi, 181)
    for radius in round_ticks(0, reach / frame.scale, 6)[1:]:
        across, down = x + frame.scale * radius * np.cos(turns), y + frame.scale * radius * np.sin(turns)
        inside = (across >= frame.left) & (across <= frame.right) & (down >= frame.top) & (down <= frame.bottom)
        if inside.any():
            across, down = np.where(inside, across, np.nan), np.where(inside, down, np.nan)
            chart.line(across.tolist(), down.tolist(), FAINT, 1.0, label="ring", behind=True)
            up = y - frame.scale * radius
            if frame.top + 12 < up and frame.left + 8 < x < frame.right - 8:
                chart.write(
                    x, up + 4, tick_label(radius), size=11, colour=SOFT, align="center", halo=True, label="tick"
                )
    chart.line([x - 5, x + 5], [y, y], SOFT, 1.2, label="origin")
    chart.line([x, x], [y - 5, y + 5], SOFT, 1.2, label="origin")


def _colour(number: int) -> str:
    return SERIES[number % _SEVERAL]


Mark = Callable[[Chart, float, float], None]
"""Draws a mark of the legend at a place in pixels."""


def _key(found: EmbeddingMap) -> list[tuple[Mark, str]]:
    """Return what marks mean, each drawn in grey."""
    models = {one.model for one in found.clusters}
    shown: list[tuple[bool, Mark, str]] = [
        (OLD in models, lambda chart, x, y: chart.triangles([x], [y], SOFT, 4.2), "old embedding"),
        (bool(models - {OLD}), lambda chart, x, y: chart.dots([x], [y], SOFT, 4.0), "new embedding"),
        (
            bool(found.prototypes),
            lambda chart, x, y: chart.mark(x, y, 3, SOFT, 6.0, edge=INK, line=1.4),
            "old prototype",
        ),
        (bool(found.noise), lambda chart, x, y: _crosses(chart, [(x, y)], 4.2), "taken for noise"),
        (_has_origin(found), lambda chart, x, y: chart.write(x, y + 4, "+", align="center", colour=SOFT), "origin"),
    ]
    return [(mark, words) for has, mark, words in shown if has]


def _classes(found: EmbeddingMap) -> list[tuple[Mark, str]]:
    """Return the colour and the number of every class."""

    def mark(number: int) -> Mark:
        return lambda chart, x, y: chart.dots([x], [y], _colour(number), 5.0)

    return [(mark(number), f"{number + 1}  {name}") for number, name in enumerate(found.classes)]


def _flowing(entries: Sequence[str], width: float) -> list[tuple[int, float]]:
    """Return the line and the left edge of every entry, as many beside each other as fit.

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
