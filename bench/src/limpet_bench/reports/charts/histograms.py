"""Histograms of a quantity: all models in one chart, or one chart per model with seen and unseen classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import altair as alt

from limpet.evaluation import Histogram
from limpet.reports.formats import percent_of, score
from limpet.reports.plots.frame import Frame
from limpet.reports.plots.histogram import histogram
from limpet.reports.plots.style import CROSS, OLD, REVERSE, SERIES, SOFT, close_ticks, cut, round_ticks, tick_label
from limpet.reports.readings import shares
from limpet_bench.pictures.embedding_map import OLD as OLD_MODEL
from limpet_bench.pictures.histograms import Histograms

_TOP, _KEY = 24.0, 17.0  # heights in pixels of the headline, and of a line of the legend
_GROUPS = {"seen": "seen by the old model", "unseen": "not seen", "all": "all items"}
_NEW = (CROSS, SERIES[1], SERIES[2], SERIES[3], SERIES[4], SERIES[5])


class _Shape(NamedTuple):
    """One distribution and how to draw it.

    Args:
        name: Name in the legend.
        values: Share of the items per bin, in per cent.
        mean: Mean of the quantity.
        items: Number of items.
        clipped: Share of items at the maximum length; None if the quantity does not depend on the length.
        filled: Whether to draw an area instead of an outline.
        dashed: Whether the outline and the line at the mean are dashed.
    """

    name: str
    values: list[float]
    mean: float
    items: int
    clipped: float | None
    colour: str
    filled: bool
    dashed: bool


def histogram_panels(
    title: str, found: Histograms, *, place: str = "", width: float = 640, beside: float | None = None
) -> list[alt.LayerChart]:
    """Draw one chart of all models; if seen and unseen classes are separated, one chart per model."""
    limits = min(one.edges[0] for one in found.panels.values()), max(one.edges[-1] for one in found.panels.values())
    if not found.split:
        return [_panel(title, place, found.words, _by_model(found), limits, width)]
    each = width if beside is None or len(found.panels) == 1 else beside
    most = max(max(max(values) for values in shares(one).values()) for one in found.panels.values())
    return [
        _panel(
            title,
            ", ".join(
                filter(
                    None,
                    (
                        place,
                        "old model" if name == OLD_MODEL else name,
                        "" if one.auc is None else f"AUC of unseen classes {score(one.auc)}",
                    ),
                )
            ),
            found.words,
            _by_group(one),
            limits,
            each,
            most,
        )
        for name, one in found.panels.items()
    ]


def _by_model(found: Histograms) -> list[tuple[_Shape, list[float]]]:
    shapes = []
    number = 0
    for name, one in found.panels.items():
        ((group, values),) = shares(one).items()
        known = one.groups[group]
        old = name == OLD_MODEL
        colour = OLD if old else _NEW[number % len(_NEW)]
        filled = old or (number == 0 and OLD_MODEL not in found.panels)
        shape = _Shape(
            "old model" if old else name,
            values,
            known.mean,
            known.items,
            known.clipped,
            colour,
            filled,
            number >= len(_NEW),
        )
        shapes.append((shape, one.edges))
        number += not old
    return shapes


def _by_group(found: Histogram) -> list[tuple[_Shape, list[float]]]:
    return [
        (
            _Shape(
                _GROUPS[group],
                values,
                found.groups[group].mean,
                found.groups[group].items,
                found.groups[group].clipped,
                REVERSE if group == "unseen" else CROSS,
                group != "unseen",
                group == "unseen",
            ),
            found.edges,
        )
        for group, values in shares(found).items()
    ]


def _panel(
    title: str,
    name: str,
    words: str,
    shapes: Sequence[tuple[_Shape, list[float]]],
    limits: tuple[float, float],
    width: float,
    most: float | None = None,
) -> alt.LayerChart:
    told = []
    for shape, edges in shapes:
        mode = shape.values.index(max(shape.values))
        clipped = "" if shape.clipped is None else f", {percent_of(shape.clipped)} clipped"
        told.append(
            f"{shape.name}: mean {score(shape.mean)}, {shape.items:,} items{clipped}, most often between "
            f"{edges[mode]:g} and {edges[mode + 1]:g}."
        )
    (ends, across) = close_ticks(*limits)
    up = round_ticks(0.0, max(max(shape.values) for shape, _ in shapes) if most is None else most, 4)
    head = _TOP * bool(name) + _KEY * len(shapes)
    lead = "" if words.casefold() in title.casefold() else f"{words}. "
    frame = Frame(width, head + 244, (34, head + 34, 18, 46), ends, (up[0], up[-1]))
    start = frame.x_at(0)
    layers: list[alt.Chart | None] = [
        frame.axes(across, up, x_title=words),
        frame.text([{"x": start, "y": frame.y_at(14), "text": cut(name, width)}], "model", bold=True),
        frame.text([{"x": start, "y": frame.y_at(head + 16), "text": "items in per cent"}], "up", size=12, colour=SOFT),
    ]
    keys = []
    for row, (shape, edges) in enumerate(shapes):
        dashes = (6.0, 2.8) if shape.dashed else None
        layers += histogram(frame, shape.name, shape.values, edges, shape.colour, filled=shape.filled, dashes=dashes)
        mean = {"x": shape.mean, "x2": shape.mean, "y": up[0], "y2": up[-1]}
        layers.append(frame.rules([mean], f"mean {shape.name}", colour=shape.colour, width=1.4, dashes=dashes))
        down = _TOP * bool(name) + _KEY * row + 9
        ends_of = {"x": start, "x2": frame.x_at(26)}
        if shape.filled:
            box = {**ends_of, "y": frame.y_at(down - 5), "y2": frame.y_at(down + 5)}
            layers.append(frame.boxes([box], f"sample {row}", colour=shape.colour, opacity=0.28))
        else:
            sample = {**ends_of, "y": frame.y_at(down), "y2": frame.y_at(down)}
            layers.append(frame.rules([sample], f"sample {row}", colour=shape.colour, width=2.0, dashes=dashes))
        items = f"mean {_number(shape.mean)} of {shape.items:,}"
        items += "" if shape.clipped is None else f", {percent_of(shape.clipped)} clipped"
        said = cut(f"{shape.name}: {items}", width - 36)
        keys.append({"x": frame.x_at(34), "y": frame.y_at(down + 4), "text": said})
    layers.append(frame.text(keys, "key", size=12, colour=SOFT))
    return frame.chart(f"{title} {name}".strip(), f"{lead}{' '.join(told)}", layers)


def _number(mean: float) -> str:
    return score(mean) if abs(mean) < 10 else tick_label(round(mean, 1))
