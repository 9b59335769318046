"""Histograms of uncertainty, for classes that the old model was trained on and for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt

from limpet.reports.formats import score
from limpet.reports.plots.frame import Align, Frame, Range
from limpet.reports.plots.style import CROSS, REVERSE, SOFT, Dashes, close_ticks, round_ticks, width_of
from limpet.reports.readings import GROUPS, shares

if TYPE_CHECKING:
    from limpet.evaluation.uncertainty import Histogram

__all__ = ["histogram"]

_SHORT = {"seen": "seen", "unseen": "not seen", "all": "mean"}


def uncertainty_plot(
    name: str, found: Histogram, limits: Range, *, width: float = 340, height: float = 250
) -> alt.LayerChart:
    """Draw a histogram of uncertainty per group: the first group as an area, a second one as an outline over it."""
    groups, edges = shares(found), found.edges
    told = []
    for group, values in groups.items():
        mode = values.index(max(values))
        told.append(
            f"{GROUPS[group]}: mean {score(found.groups[group].mean)}, {found.groups[group].items:,} items, "
            f"most often between {edges[mode]:g} and {edges[mode + 1]:g}."
        )
    (ends, across), up = close_ticks(*limits), round_ticks(0.0, max(map(max, groups.values())), 4)
    frame = Frame(width, height, (34, 58, 18, 46), ends, (up[0], up[-1]))
    layers: list[alt.Chart | None] = [
        frame.axes(across, up, x_title="uncertainty", y_title="items of the group, in per cent")
    ]
    for row, (group, values) in enumerate(groups.items()):
        filled = group != "unseen"
        layers += histogram(frame, group, values, edges, CROSS if filled else REVERSE, filled=filled)
        mean = found.groups[group].mean
        words, down = f"{_SHORT[group]} {score(mean)}", frame.room[1] - 22 + 16 * row
        left = frame.across(mean) + 6 + width_of(words, 12) > width - 18
        colour, dashes = (CROSS, None) if filled else (REVERSE, (5, 3))
        line = {"x": mean, "x2": mean, "y": 0.0, "y2": frame.y_at(down - 9)}
        side: Align = "right" if left else "left"
        written = [{"x": mean, "y": frame.y_at(down), "text": words}]
        layers += [
            frame.rules([line], f"mean {group}", colour=colour, width=1.6, dashes=dashes),
            frame.text(written, f"name {group}", size=11.5, colour=SOFT, align=side, dx=-6 if left else 6),
        ]
    return frame.chart(f"Uncertainty of {name}", " ".join(told), layers)


def histogram(
    frame: Frame, name: str, values: Sequence[float], edges: Sequence[float], colour: str, *, filled: bool,
    dashes: Dashes = None,
) -> list[alt.Chart | None]:  # fmt: skip
    """Draw a histogram as one stepped line that begins and ends at the baseline.

    Args:
        frame: Axes of the chart.
        name: Name of the layers.
        values: Height of every bin.
        edges: Edges of the bins, one more than values.
        colour: Colour of line and area.
        filled: Whether to fill the area below the line.
        dashes: Lengths of dashes and gaps in pixels; None draws a solid line.
    """
    heights = [*values, 0.0]
    steps = [{"x": edges[0], "y": 0.0}]
    for place, edge in enumerate(edges):
        before = heights[place - 1] if place else 0.0
        steps += [{"x": edge, "y": before}] * bool(place) + [{"x": edge, "y": heights[place]}]
    area = [{**step, "y2": 0.0} for step in steps]
    return [
        frame.band(area, f"area {name}", colour=colour, opacity=0.28) if filled else None,
        frame.lines(steps, name, colour=colour, width=1.0 if filled else 2.2, dashes=dashes),
    ]
