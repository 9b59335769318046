"""How often a value occurs: models over each other, or for each model the classes it has seen and those it has not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from limpet.evaluation.uncertainty import Histogram
from limpet.reports.charts.canvas import CROSS, OLD, REVERSE, SERIES, SOFT, Chart, close_ticks, round_ticks
from limpet.reports.charts.lines import shares
from limpet.reports.charts.shapes import Steps
from limpet.reports.formats import percent_of, score
from limpet.reports.svg import cut, tick_label
from limpet_bench.pictures.embedding_map import OLD as OLD_MODEL
from limpet_bench.pictures.histograms import Histograms

_TOP, _KEY = 24.0, 17.0  # of the headline, and of a line of the legend
_GROUPS = {"seen": "seen by the old model", "unseen": "not seen", "all": "all items"}
_NEW = (CROSS, SERIES[1], SERIES[2], SERIES[3], SERIES[4], SERIES[5])


class _Shape(NamedTuple):
    """One distribution: what it is called, its bins in per cent, its mean, how many items, and how it is drawn.

    Args:
        clipped: Share of items at the largest length; None where the value does not depend on it.
        filled: An area rather than an outline.
        dashed: Whether the outline is, and the line at the mean.
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
) -> list[Chart]:
    """Draw one chart of all models, or where classes are apart, one of each model.

    Args:
        title: Of the figure.
        found: What to draw.
        place: Headline of the charts; empty where there is only one place.
        width: Width in pixels of a chart alone.
        beside: The same of one of several; as alone when left out.
    """
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
) -> Chart:
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
    size = (width, head + 34 + 210)
    lead = "" if words.casefold() in title.casefold() else f"{words}. "
    chart = Chart(f"{title} {name}".strip(), f"{lead}{' '.join(told)}", size, (34, head + 34, 18, 46), ends,
                  (up[0], up[-1]))  # fmt: skip
    chart.x_axis(across, words)
    chart.y_axis(up, "")
    if name:
        chart.write(0, chart.height - 14, cut(name, width), across="page", up="page", bold=True, label="model")
    for row, (shape, edges) in enumerate(shapes):
        _draw(chart, shape, shape.values, edges)
        dashes = (5.0, 3.0) if shape.dashed else None
        chart.line([shape.mean, shape.mean], [up[0], up[-1]], shape.colour, 1.4, dashes, label=f"mean {shape.name}")
        down = _TOP * bool(name) + _KEY * row
        corners = [chart.value(right, down + low) for right, low in ((0, 14), (9, 8), (18, 3), (26, 14))]
        bottom, heights = corners[0][1], [corners[1][1], corners[2][1], corners[1][1]]
        places = [chart.value(right, 0)[0] for right in (0, 8, 17, 26)]
        _draw(chart, shape, heights, places, bottom)
        items = f"mean {_number(shape.mean)} of {shape.items:,}"
        items += "" if shape.clipped is None else f", {percent_of(shape.clipped)} clipped"
        chart.write(34, chart.height - down - 13, cut(f"{shape.name}: {items}", width - 36), across="page", up="page",
                    size=12, colour=SOFT, label="key")  # fmt: skip
    chart.write(0, chart.height - head - 16, "items in per cent", size=12, colour=SOFT, across="page", up="page")
    return chart


def _number(mean: float) -> str:
    return score(mean) if abs(mean) < 10 else tick_label(round(mean, 1))


def _draw(chart: Chart, shape: _Shape, values: Sequence[float], edges: Sequence[float], baseline: float = 0.0) -> None:
    """Draw a distribution as an area, or as a stepped line from the baseline to the baseline."""
    alpha, line, dashes = (0.28, 1.0, None) if shape.filled else (0.0, 2.0, (6.0, 2.8) if shape.dashed else None)
    chart.add(Steps(values, edges, shape.colour, alpha, line, dashes, baseline, shape.name))
