"""The chart of how uncertain a model is of the gallery: one histogram per group of items, with their means."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from holdfast.evaluation.uncertainty import Histogram
from holdfast.reports.formats import percent, score
from holdfast.reports.plots import Evaluations
from holdfast.reports.svg import Scale, chart, element, line, path, reaching, text, width_of, x_axis, y_axis

GROUPS = {"seen": "classes the old model has seen", "unseen": "classes it has not seen", "all": "all items"}
_SHORT = {"seen": "seen", "unseen": "not seen", "all": "mean"}

_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 18, 58, 46


def uncertainties(evaluations: Evaluations) -> dict[str, Histogram]:
    """Return the histogram of every model that knows its uncertainty: "old" first, new models by name."""
    found: dict[str, Histogram] = {}
    for record in evaluations.values():
        if record.uncertainty and record.uncertainty.old:
            found.setdefault("old", record.uncertainty.old)
    for name, record in evaluations.items():
        if record.uncertainty and record.uncertainty.new:
            found[name if name != "old" else "old (new)"] = record.uncertainty.new
    return found


def uncertainty_range(histograms: Mapping[str, Histogram]) -> tuple[float, float]:
    """Return the lowest and highest edge of all bins, so that panels of several models share one scale."""
    return (
        min(found.edges[0] for found in histograms.values()),
        max(found.edges[-1] for found in histograms.values()),
    )


def uncertainty_plot(
    name: str, found: Histogram, limits: tuple[float, float], *, width: float = 340, height: float = 250
) -> str:
    """Draw the share of every group's items over uncertainty: an area, and a second group as an outline over it.

    Args:
        name: The model.
        found: Its histogram.
        limits: What `uncertainty_range` returned.
        width: Width in pixels.
        height: Height in pixels.
    """
    groups = shares(found)
    x = reaching(*limits, _LEFT, width - _RIGHT, 10)
    y = reaching(0.0, max(max(values) for values in groups.values()), height - _BOTTOM, _TOP, 4)
    parts = [
        x_axis(x, _TOP, y.start, "uncertainty", 5),
        y_axis(y, _LEFT, x.stop, "items of the group, in per cent"),
        *(_steps(found.edges, values, x, y, group) for group, values in groups.items()),
        *_means(found, x, y),
    ]
    return chart(width, height, f"Uncertainty of {name}", _in_words(found), parts)


def shares(found: Histogram) -> dict[str, list[float]]:
    """Return what part of every group's items is in each bin, in per cent, groups in the order of `GROUPS`."""
    groups = found.groups
    return {
        group: [100 * count / groups[group].items for count in groups[group].counts]
        for group in GROUPS
        if group in groups
    }


def _steps(edges: list[float], values: list[float], x: Scale, y: Scale, group: str) -> str:
    """Draw a histogram as one stepped line from the baseline to the baseline."""
    points = [(x(edges[0]), y.start)]
    for (low, high), found in zip(pairwise(edges), values, strict=True):
        points += [(x(low), y(found)), (x(high), y(found))]
    return path([*points, (x(edges[-1]), y.start)], f"histogram {group}")


def _means(found: Histogram, x: Scale, y: Scale) -> list[str]:
    """Draw the mean of every group as a line with a label, each label on a line of its own."""
    parts = []
    for row, group in enumerate(shares(found)):
        at, words = x(found.groups[group].mean), f"{_SHORT[group]} {score(found.groups[group].mean)}"
        top = y.stop - 22 + 16 * row
        left = at + 6 + width_of(words, 12) > x.stop
        parts.append(line(at, top - 9, at, y.start, f"mean {group}"))
        parts.append(text(at - 6 if left else at + 6, top, words, "small halo", "end" if left else "start"))
    return parts


def group_swatch(group: str) -> str:
    """Return the mark of a group for a legend."""
    marks = path([(1, 11), (1, 3), (9, 3), (9, 1), (17, 1), (17, 6), (25, 6), (25, 11)], f"histogram {group}")
    return element("svg", marks, kind="swatch", viewBox="0 0 26 12", aria_hidden="true")


def histogram_rows(found: Histogram) -> tuple[list[str], list[list[str]]]:
    """Return the histogram as a table: a row per bin, a column per group, in per cent of its items."""
    groups = shares(found)
    edges = [f"{edge:g}" for edge in found.edges]
    bins = [f"{low} – {high}" for low, high in pairwise(edges)]
    rows = [[name, *(percent(values[row] / 100) for values in groups.values())] for row, name in enumerate(bins)]
    return ["uncertainty", *(GROUPS[group] for group in groups)], rows


def _in_words(found: Histogram) -> str:
    edges, groups = found.edges, found.groups
    return " ".join(
        f"{GROUPS[group]}: mean {score(groups[group].mean)}, {groups[group].items:,} items, most of them between "
        f"{edges[(mode := values.index(max(values)))]:g} and {edges[mode + 1]:g}."
        for group, values in shares(found).items()
    )
