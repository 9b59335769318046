"""Curves: a score over how much is re-embedded, over pairs, over sessions, and how often an uncertainty occurs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from limpet.adapters import ScoreMap
from limpet.reports.charts.canvas import (
    CROSS,
    GOOD,
    INDEPENDENT,
    INK,
    OLD,
    PAPER,
    REVERSE,
    SOFT,
    Chart,
    close_ticks,
    round_ticks,
    swatch,
)
from limpet.reports.charts.forest import KINDS, REFERENCE_LOOKS, REFERENCES, measured, with_interval
from limpet.reports.charts.shapes import Align, Marks, Steps
from limpet.reports.formats import percent, percent_of, score
from limpet.reports.svg import Scale, width_of
from limpet.support.wording import metric_name, whole_percent

if TYPE_CHECKING:
    from limpet.evaluation.results import Evaluation
    from limpet.evaluation.uncertainty import Histogram
    from limpet.evaluation.upgrade import UpgradeCurves
    from limpet.galleries.rehearsal.results import OrderCurve, Rehearsal
    from limpet.linking.compare import LearningCurve
    from limpet.linking.results import AdaptResults, ScoreMapRecord

Dashes = tuple[float, ...] | None
Range = tuple[float, float]

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
IN_PER_CENT = tuple(f"{100 * share:g}\N{NO-BREAK SPACE}%" for share in SHARES)
_RE_EMBEDDED = "share of the gallery re-embedded"


def _level(
    chart: Chart,
    value: float,
    words: str,
    align: Align,
    *,
    colour: str = SOFT,
    width: float = 1.2,
    dashes: Dashes = (2, 3),
    above: bool = True,
) -> None:
    """Draw a line at a height, with its name at one end, above or below."""
    ends = chart.x
    chart.line(ends, [value, value], colour, width, dashes, label=f"level {words}", behind=True)
    at, aside = (ends[1], -4) if align == "right" else (ends[0], 4)
    chart.write(at, value, words, shift=(aside, 5 if above else -14), size=11.5, colour=colour, align=align, halo=True)


# --- an upgrade ------------------------------------------------------------------------------------------------------

ORDERS = {
    "random": "random order",
    "margin": "least certain items first",
    "margin_reversed": "most certain items first",
}
ORDER_LOOKS: tuple[tuple[str, Dashes], ...] = (
    (CROSS, None), (GOOD, (7, 3)), (REVERSE, (2, 3)), (INDEPENDENT, (9, 3, 2, 3)), (OLD, (4, 4)),
)  # fmt: skip
"""Colours and dashes of orders of a backfill, the first one first."""


def curve_range(evaluations: Mapping[str, Evaluation]) -> Range | None:
    """Return the lowest and highest value of all upgrade curves with their references; None without any curve."""
    found = [
        number
        for record in measured(evaluations).values()
        if (curves := record.upgrade_curve)
        for numbers in (_references(record, curves).values(), *_orders(curves).values())
        for number in numbers
        if number is not None
    ]
    return (min(found), max(found)) if found else None


def _references(record: Evaluation, curves: UpgradeCurves) -> dict[str, float | None]:
    return {
        "old": record.score("self_old", curves.metric),
        "all re-embedded": record.score("self_new", curves.metric),
    }


def _orders(curves: UpgradeCurves) -> dict[str, list[float | None]]:
    return {order: curves.values[order] for order in ORDERS if order in curves.values}


def curve_plot(
    name: str, record: Evaluation, limits: Range, *, width: float = 340, height: float = 250
) -> Chart | None:
    """Draw the upgrade curves of one new model in all orders, between its old and its full quality.

    Args:
        name: The model.
        record: Its evaluation.
        limits: What `curve_range` returned, so that panels of several models share one scale.
        width: Width in pixels.
        height: Height in pixels.

    Returns:
        None where no curve was measured.
    """
    curves = record.upgrade_curve
    if not curves:
        return None
    references, orders, shares = _references(record, curves), _orders(curves), curves.shares
    metric, ticks = metric_name(curves.metric), round_ticks(*limits, 4)
    levels = ", ".join(f"{words} {score(found)}" for words, found in references.items())
    told = "; ".join(
        f"{ORDERS[order]}: from {score(values[0])} at {whole_percent(shares[0])} to {score(values[-1])} at "
        f"{whole_percent(shares[-1])} re-embedded, mean {score(curves.area.get(order))}"
        for order, values in orders.items()
    )
    size, ends = (width, height), (ticks[0], ticks[-1])
    chart = Chart(f"Upgrade curve of {name}", f"{metric}. {levels}. {told}.", size, (44, 30, 18, 46), (0.0, 1.0), ends)
    chart.x_axis(SHARES, _RE_EMBEDDED, labels=IN_PER_CENT)
    chart.y_axis(ticks, metric)
    sides: tuple[tuple[Align, int], ...] = (("right", -1), ("left", 0))  # where the curves are away from the line
    for (words, found), (align, near) in zip(references.items(), sides, strict=True):
        if found is not None:
            curves_above = any(end is not None and end >= found for end in (values[near] for values in orders.values()))
            above = not curves_above or chart.down(found) + 16 > chart.bottom
            _level(chart, found, f"{words} {score(found)}", align, above=above)
    for order, values in orders.items():
        drawn = [(share, value) for share, value in zip(shares, values, strict=True) if value is not None]
        colour, dashes = ORDER_LOOKS[list(ORDERS).index(order)]
        chart.line([share for share, _ in drawn], [value for _, value in drawn], colour, 2.2, dashes, label=order)
    return chart


def rehearsal_curves(results: Rehearsal, metric: str, *, width: float = 520, height: float = 300) -> Chart:
    """Draw one metric over the share that is re-embedded, in all orders, with today's value as a line."""
    curves = {name: found for name, found in results.curves.items() if metric in found.values}
    before = None if metric == "overlap@10 with old" else results.before.get(metric)  # which is 1, and says nothing
    band = _likely(results, metric)
    drawn = [value for found in curves.values() for value in found.values[metric]]
    ends = [*drawn, *([before] if before is not None else []), *(value for pair in band for value in pair[1:])]
    lowest = 0.0 if metric.startswith("overlap") else max(0.0, min(ends))
    ticks, title = round_ticks(lowest, min(1.0, max(ends)), 4), f"{metric_name(metric)} during the backfill"
    told, size = _rehearsal_told(curves, metric, before), (width, height)
    chart = Chart(title, told, size, (44, 30, 18, 46), (0.0, 1.0), (ticks[0], ticks[-1]))
    chart.x_axis(SHARES, _RE_EMBEDDED, labels=IN_PER_CENT)
    chart.y_axis(ticks, metric_name(metric))
    if band:
        shares, lows, highs = zip(*band, strict=True)
        chart.area(shares, lows, highs, CROSS, 0.13, label="likely")
    if before is not None:
        below = chart.down(before) + 15 < chart.bottom and all(value >= before for value in drawn)
        _level(chart, before, f"today {score(before)}", "right", above=not below)
    for number, (name, found) in reversed(list(enumerate(curves.items()))):
        (colour, dashes), values = ORDER_LOOKS[number % len(ORDER_LOOKS)], found.values[metric]
        x, y = [*found.shares], [*values]
        if not results.swaps_first and len(values) > 1:  # what is served changes with the swap only, at the end
            x, y = [*x[:-1], x[-1], x[-1]], [*y[:-1], y[-2], y[-1]]
        chart.line(x, y, colour, 2.2, dashes, label=name)
        for share, value in zip(found.shares, values, strict=True):
            chart.mark(
                share, value, number, colour, 3.4, note=f"{percent_of(share)}: {score(value)}", label=f"at {name}"
            )
    return chart


def _likely(results: Rehearsal, metric: str) -> list[tuple[float, float, float]]:
    """Return shares with the ends of the interval of a metric, in the first order; scores lie in [0, 1]."""
    curve = results.curve
    differences = (curve.differences or {}).get(metric)
    if not differences or not results.swaps_first:
        return []
    before, pairs = results.before[metric], zip(curve.shares, differences, strict=True)
    return [(share, max(0.0, before + low), min(1.0, before + high)) for share, (_, low, high) in pairs]


def _rehearsal_told(curves: Mapping[str, OrderCurve], metric: str, before: float | None) -> str:
    told = [] if before is None else [f"Today {score(before)}."]
    for name, found in curves.items():
        points = zip(found.shares, found.values[metric], strict=True)
        listed = ", ".join(f"{score(value)} at {percent_of(share)}" for share, value in points)
        told.append(f"{name}: {listed}; on average {score(found.area[metric])}.")
    return " ".join(told)


@cache
def order_swatch(number: int) -> str:
    """Return the line of an order, for a legend."""
    colour, dashes = ORDER_LOOKS[number % len(ORDER_LOOKS)]

    def draw(chart: Chart) -> None:
        chart.line([0, 26], [6, 6], colour, 2.2, dashes)
        chart.mark(13, 6, number, colour, 3.4)

    return swatch(draw)


# --- one adapter -----------------------------------------------------------------------------------------------------


def learning_curve(results: AdaptResults, curve: LearningCurve, *, width: float = 640, height: float = 340) -> Chart:
    """Draw cross over the number of pairs fitted on (logarithmic) with its interval, and where it is enough."""
    candidate = results.named(curve.candidate)
    (colour, shape), points = KINDS[candidate.kind if candidate else "adapter"], curve.points
    references = {system: results.systems.by_name()[system] for system in REFERENCES}
    ends = [end for mean in (*references.values(), *(point.cross for point in points)) for end in mean.interval]
    ticks, pairs = round_ticks(min(ends), max(ends)), [math.log10(point.pairs) for point in points]
    room = 0.0 if pairs[-1] > pairs[0] else 0.5
    inner = (width - 44 - 16) / ((pairs[-1] - pairs[0]) or 1.0)
    x = (pairs[0] - room - 10 / inner, pairs[-1] + room + 8 / inner)  # marks stand a little within the axes
    told = "; ".join(f"{point.pairs:,} pairs: {with_interval(point.cross)}" for point in points)
    told += "." if curve.enough is None else f". {curve.enough:,} pairs are enough."
    told += " " + ", ".join(f"{name} {with_interval(references[system])}" for system, name in REFERENCES.items()) + "."
    title, size = f"Learning curve of {curve.candidate}", (width, height)
    chart = Chart(title, told, size, (44, 52, 16, 46), x, (ticks[0], ticks[-1]))
    chart.x_axis(
        pairs,
        "pairs fitted on (logarithmic)",
        labels=as_fit([f"{p.pairs:,}" for p in points], [chart.at(at) for at in pairs]),
    )
    name = metric_name(results.protocol.metric)
    chart.y_axis(ticks, f"{name}; further up is better ↑" if results.answered else f"{name} (agreement) ↑")
    sides: tuple[tuple[str, Align], ...] = (("old model", "right"), ("re-embedded", "left"))
    for (system, mean), (words, align) in zip(references.items(), sides, strict=True):
        own, dashes = REFERENCE_LOOKS[system]
        chart.area(x, *mean.interval, own, 0.14)
        _level(chart, mean.mean, f"{words} {score(mean.mean)}", align, colour=own, width=1.8, dashes=dashes)
    lows, highs = zip(*(point.cross.interval for point in points), strict=True)
    chart.area(pairs, lows, highs, colour, 0.16, label="around")
    chart.line(pairs, [point.cross.mean for point in points], colour, 2.2, label="track")
    for at, point in zip(pairs, points, strict=True):
        if point.pairs == curve.enough:
            _enough(chart, at, point.cross.mean, f"enough: {point.pairs:,} pairs")
        note = f"{point.pairs:,} pairs: {with_interval(point.cross)}"
        chart.mark(at, point.cross.mean, shape, colour, 5, edge=PAPER, note=note, label="point")
    return chart


def as_fit(labels: Sequence[str], places: Sequence[float]) -> list[str]:
    """Return labels of which those are empty that would cover one to their right."""
    shown, taken = [], math.inf
    for words, at in zip(reversed(labels), reversed(places), strict=True):
        half = width_of(words, 12) / 2
        fits = at + half <= taken
        shown.append(words if fits else "")
        taken = at - half - 4 if fits else taken
    return shown[::-1]


def _enough(chart: Chart, x: float, y: float, words: str) -> None:
    """Mark where the number of pairs is enough."""
    half = width_of(words) / 2
    chart.line(
        [x, x],
        [chart.y[0], chart.value(0, chart.top - 14)[1]],
        INK,
        1.2,
        (2, 3),
        label="enough",
        behind=True,
    )
    right = min(max(chart.at(x), half), chart.width - half)
    chart.write(right, chart.height - chart.top + 20, words, across="page", up="page", bold=True, align="center")
    chart.add(Marks([x], [y], "o", 18, None, INK, 1.4, label="ring", zorder=2, clipped=True))


_THRESHOLDS = 10  # about so many are read off a map


def thresholds(score_map: ScoreMapRecord) -> list[tuple[float, float]]:
    """Return round old scores within the range of a map, each with the new score that stands for it.

    >>> from limpet.linking.results import ScoreMapRecord
    >>> found = ScoreMapRecord(error=0.1, text="", knots=[(0.55, 0.2), (0.65, 0.3), (0.75, 0.4)])
    >>> [f"{old:g} {new:.2f}" for old, new in thresholds(found)][1:4]
    ['0.58 0.23', '0.6 0.25', '0.62 0.27']
    """
    old, new = np.array(score_map.knots, np.float64).T
    found = ScoreMap("old_to_new", old, new)
    round_scores = Scale(float(old[0]), float(old[-1]), 0, 1).ticks(_THRESHOLDS)
    return [(at, found.threshold(at)) for at in round_scores if old[0] <= at <= old[-1]]


def score_map_plot(score_map: ScoreMapRecord, *, width: float = 640, height: float = 340) -> Chart:
    """Draw the new score that stands for every old one, with the thresholds that are read off."""
    old, new = zip(*score_map.knots, strict=True)
    found = thresholds(score_map)
    (x, across), (y, up) = close_ticks(old[0], old[-1]), close_ticks(new[0], new[-1])
    told = "; ".join(f"{at:g} becomes {score(value)}" for at, value in found) + "."
    chart = Chart("Old scores as new ones", told, (width, height), (44, 30, 16, 46), x, y)
    chart.x_axis(across, "score of the old model")
    chart.y_axis(up, "score of the new model that stands for it")
    low, high = max(x[0], y[0]), min(x[1], y[1])
    if low < high:  # where both scores are equal, as far as that lies within
        chart.line([low, high], [low, high], SOFT, 1.2, (2, 3), label="same", behind=True)
        chart.write(high, high, "equal scores", shift=(-8, -16), size=11.5, colour=SOFT, align="right", halo=True)
    colour, shape = KINDS["adapter"]
    chart.line(old, new, colour, 2.2, label="track")
    for at, value in found:
        chart.mark(
            at, value, shape, colour, 4.5, fill=PAPER, line=1.8, note=f"{at:g} → {score(value)}", label="read off"
        )
    return chart


def tick_step(count: int, across: float) -> int:
    """Return that every so many of the numbers up to a count are written, if each has this much room."""
    return max(1, math.ceil((width_of(str(count), 12) + 4) / across))


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return the places nearest to those wanted, by least squares, that are a gap apart and within limits.

    They keep their order. Places that are too near each other are pooled about their mean until none are (the pool of
    adjacent violators, on places less their rank times the gap). They leave the limits only where they cannot fit.

    >>> spread([10.0, 11.0, 50.0], 10.0, 0.0, 100.0)
    [5.5, 15.5, 50.0]
    >>> spread([3.0, 2.0], 10.0, 0.0, 100.0)
    [10.0, 0.0]
    """
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    pools: list[tuple[float, int]] = []  # mean and size
    for rank, place in enumerate(order):
        pools.append((wanted[place] - rank * gap, 1))
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            (first, n), (second, m) = pools[-2:]
            pools[-2:] = [((n * first + m * second) / (n + m), n + m)]
    means = [mean for mean, size in pools for _ in range(size)]
    last = max(low, high - gap * (len(wanted) - 1))
    found = [0.0] * len(wanted)
    for rank, place in enumerate(order):
        found[place] = min(max(means[rank], low), last) + rank * gap
    return found


# --- uncertainty -----------------------------------------------------------------------------------------------------

GROUPS = {"seen": "classes the old model has seen", "unseen": "classes it has not seen", "all": "all items"}
_SHORT = {"seen": "seen", "unseen": "not seen", "all": "mean"}


def uncertainties(evaluations: Mapping[str, Evaluation]) -> dict[str, Histogram]:
    """Return the histogram of every model that knows its uncertainty: "old" first, new models by name."""
    found: dict[str, Histogram] = {}
    for record in evaluations.values():
        if record.uncertainty and record.uncertainty.old:
            found.setdefault("old", record.uncertainty.old)
    for name, record in evaluations.items():
        if record.uncertainty and record.uncertainty.new:
            found[name if name != "old" else "old (new)"] = record.uncertainty.new
    return found


def uncertainty_range(histograms: Mapping[str, Histogram]) -> Range:
    """Return the lowest and highest edge of all bins, so that panels of several models share one scale."""
    found = histograms.values()
    return min(one.edges[0] for one in found), max(one.edges[-1] for one in found)


def uncertainty_plot(name: str, found: Histogram, limits: Range, *, width: float = 340, height: float = 250) -> Chart:
    """Draw the share of every group's items over uncertainty: an area, and a second group as an outline over it."""
    groups, edges = shares(found), found.edges
    told = []
    for group, values in groups.items():
        mode = values.index(max(values))
        told.append(
            f"{GROUPS[group]}: mean {score(found.groups[group].mean)}, {found.groups[group].items:,} items, "
            f"most often between {edges[mode]:g} and {edges[mode + 1]:g}."
        )
    (ends, across), up = close_ticks(*limits), round_ticks(0.0, max(map(max, groups.values())), 4)
    title, size = f"Uncertainty of {name}", (width, height)
    chart = Chart(title, " ".join(told), size, (34, 58, 18, 46), ends, (up[0], up[-1]))
    chart.x_axis(across, "uncertainty")
    chart.y_axis(up, "items of the group, in per cent")
    for row, (group, values) in enumerate(groups.items()):
        draw_histogram(chart, group, values, edges)
        mean = found.groups[group].mean
        words, down = f"{_SHORT[group]} {score(mean)}", chart.top - 22 + 16 * row
        left = chart.at(mean) + 6 + width_of(words, 12) > width - 18
        colour, dashes = (REVERSE, (5, 3)) if group == "unseen" else (CROSS, None)
        chart.line([mean, mean], [0.0, chart.value(0, down - 9)[1]], colour, 1.6, dashes, label=f"mean {group}")
        side: Align = "right" if left else "left"
        shift, up_to = (-6 if left else 6, 0), chart.value(0, down)[1]
        chart.write(mean, up_to, words, shift=shift, size=11.5, colour=SOFT, align=side, halo=True)
    return chart


def draw_histogram(chart: Chart, group: str, values: Sequence[float], edges: Sequence[float]) -> None:
    """Draw a histogram as one stepped line from the baseline to the baseline."""
    if group == "unseen":
        chart.add(Steps(values, edges, REVERSE, line=2.2, label=group))
    else:
        chart.add(Steps(values, edges, CROSS, 0.28, 1.0, label=group))


def shares(found: Histogram) -> dict[str, list[float]]:
    """Return what part of every group's items is in each bin, in per cent, groups in the order of `GROUPS`."""
    groups = found.groups
    return {
        group: [100 * count / groups[group].items for count in groups[group].counts]
        for group in GROUPS
        if group in groups
    }


@cache
def group_swatch(group: str) -> str:
    """Return the mark of a group for a legend."""
    return swatch(lambda chart: draw_histogram(chart, group, (9, 11, 6), (1, 9, 17, 25)))


def histogram_rows(found: Histogram) -> tuple[list[str], list[list[str]]]:
    """Return the histogram as a table: a row per bin, a column per group, in per cent of its items."""
    groups = shares(found)
    bins = [f"{low:g} – {high:g}" for low, high in zip(found.edges, found.edges[1:], strict=False)]
    rows = [[name, *(percent(values[row] / 100) for values in groups.values())] for row, name in enumerate(bins)]
    return ["uncertainty", *(GROUPS[group] for group in groups)], rows
