"""Line charts with bands: scores against the share re-embedded or the number of pairs, new thresholds against old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import altair as alt

from limpet.reports.formats import percent_of, score
from limpet.reports.plots.frame import Align, Frame, Range
from limpet.reports.plots.style import (
    CROSS,
    INK,
    KINDS,
    ORDER_LOOKS,
    PAPER,
    PER_CENT,
    REFERENCE_LOOKS,
    SOFT,
    Dashes,
    close_ticks,
    round_ticks,
    shape_of,
    width_of,
)
from limpet.reports.readings import ORDERS, REFERENCES, curve_orders, curve_references
from limpet.reports.thresholds import round_thresholds
from limpet.reports.words import with_interval
from limpet.support.wording import metric_name, whole_percent

if TYPE_CHECKING:
    from limpet.evaluation.results import Evaluation
    from limpet.evaluation.thresholds import Thresholds
    from limpet.galleries.rehearsal.results import OrderCurve, Rehearsal
    from limpet.linking.compare import LearningCurve
    from limpet.linking.results import AdaptResults

Layers = list[alt.Chart | None]

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_RE_EMBEDDED = "share of the gallery re-embedded"
_ROOM = (44, 30, 18, 46)


def level(
    frame: Frame, value: float, words: str, align: Align, *, colour: str = SOFT, width: float = 1.2,
    dashes: Dashes = (2, 3), above: bool = True,
) -> Layers:  # fmt: skip
    """Draw a horizontal line at a value, with its name at one end, above or below the line."""
    low, high = frame.x
    at, aside = (high, -4) if align == "right" else (low, 4)
    row = {"x": low, "x2": high, "y": value, "y2": value}
    name = {"x": at, "y": value, "text": words}
    return [
        frame.rules([row], f"level {words}", colour=colour, width=width, dashes=dashes),
        frame.text([name], f"name {words}", size=11.5, colour=colour, align=align, dx=aside, dy=-5 if above else 14),
    ]


def curve_plot(
    name: str, record: Evaluation, limits: Range, *, width: float = 340, height: float = 250
) -> alt.LayerChart | None:
    """Draw the upgrade curves of one new model in all orders, with the self-tests of both models as lines.

    Returns:
        None if no curve was measured.
    """
    curves = record.upgrade_curve
    if not curves:
        return None
    references, orders, shares = curve_references(record, curves), curve_orders(curves), curves.shares
    metric, ticks = metric_name(curves.metric), round_ticks(*limits, 4)
    levels = ", ".join(f"{words} {score(found)}" for words, found in references.items())
    told = "; ".join(
        f"{ORDERS[order]}: from {score(values[0])} at {whole_percent(shares[0])} to {score(values[-1])} at "
        f"{whole_percent(shares[-1])} re-embedded, mean {score(curves.area.get(order))}"
        for order, values in orders.items()
    )
    frame = Frame(width, height, _ROOM, (0.0, 1.0), (ticks[0], ticks[-1]))
    layers: Layers = [frame.axes(SHARES, ticks, x_title=_RE_EMBEDDED, y_title=metric, x_words=PER_CENT)]
    sides: tuple[tuple[Align, int], ...] = (("right", -1), ("left", 0))  # ends at which curves are far from the line
    for (words, found), (align, near) in zip(references.items(), sides, strict=True):
        if found is not None:
            curves_above = any(end is not None and end >= found for end in (values[near] for values in orders.values()))
            above = not curves_above or frame.down(found) + 16 > height - _ROOM[3]
            layers += level(frame, found, f"{words} {score(found)}", align, above=above)
    for order, values in orders.items():
        drawn = [{"x": share, "y": value} for share, value in zip(shares, values, strict=True) if value is not None]
        colour, dashes = ORDER_LOOKS[list(ORDERS).index(order)]
        layers.append(frame.lines(drawn, order, colour=colour, dashes=dashes))
    return frame.chart(f"Upgrade curve of {name}", f"{metric}. {levels}. {told}.", layers)


def rehearsal_curves(results: Rehearsal, metric: str, *, width: float = 520, height: float = 300) -> alt.LayerChart:
    """Draw one metric against the share that is re-embedded, in all orders, with today's value as a line."""
    curves = {name: found for name, found in results.curves.items() if metric in found.values}
    before = None if metric == "overlap@10 with old" else results.before.get(metric)  # the overlap is always 1
    band = _likely(results, metric)
    drawn = [value for found in curves.values() for value in found.values[metric]]
    ends = [*drawn, *([before] if before is not None else []), *(value for pair in band for value in pair[1:])]
    lowest = 0.0 if metric.startswith("overlap") else max(0.0, min(ends))
    ticks = round_ticks(lowest, min(1.0, max(ends)), 4)
    frame = Frame(width, height, _ROOM, (0.0, 1.0), (ticks[0], ticks[-1]))
    layers: Layers = [
        frame.axes(SHARES, ticks, x_title=_RE_EMBEDDED, y_title=metric_name(metric), x_words=PER_CENT),
        frame.band(
            [{"x": share, "y": low, "y2": high} for share, low, high in band], "likely", colour=CROSS, opacity=0.13
        ),
    ]
    if before is not None:
        below = frame.down(before) + 15 < height - _ROOM[3] and all(value >= before for value in drawn)
        layers += level(frame, before, f"today {score(before)}", "right", above=not below)
    for number, (name, found) in reversed(list(enumerate(curves.items()))):
        (colour, dashes), values = ORDER_LOOKS[number % len(ORDER_LOOKS)], found.values[metric]
        x, y = [*found.shares], [*values]
        if not results.swaps_first and len(values) > 1:  # results change only with the swap, at the end
            x, y = [*x[:-1], x[-1], x[-1]], [*y[:-1], y[-2], y[-1]]
        layers.append(frame.lines(_points(x, y), name, colour=colour, dashes=dashes))
        notes = [
            {"x": share, "y": value, "note": f"{percent_of(share)}: {score(value)}"}
            for share, value in zip(found.shares, values, strict=True)
        ]
        layers.append(frame.marks(notes, f"at {name}", shape=shape_of(number), radius=3.4, colour=colour))
    return frame.chart(f"{metric_name(metric)} during the backfill", _rehearsal_told(curves, metric, before), layers)


def _likely(results: Rehearsal, metric: str) -> list[tuple[float, float, float]]:
    """Return (share, low, high) of the interval of a metric in the first order, clipped to [0, 1]."""
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


def learning_curve(
    results: AdaptResults, curve: LearningCurve, *, width: float = 640, height: float = 340
) -> alt.LayerChart:
    """Draw the cross-test with its interval against the number of pairs (logarithmic), and mark how many are enough."""
    candidate = results.named(curve.candidate)
    (colour, shape), points = KINDS[candidate.kind if candidate else "adapter"], curve.points
    references = {system: results.systems.by_name()[system] for system in REFERENCES}
    ends = [end for mean in (*references.values(), *(point.cross for point in points)) for end in mean.interval]
    ticks, pairs = round_ticks(min(ends), max(ends)), [point.pairs for point in points]
    several = pairs[-1] > pairs[0]
    x = (pairs[0] / 1.06, pairs[-1] * 1.05) if several else (pairs[0] / 3, pairs[0] * 3)  # keeps marks within the axes
    told = "; ".join(f"{point.pairs:,} pairs: {with_interval(point.cross)}" for point in points)
    told += "." if curve.enough is None else f". {curve.enough:,} pairs are enough."
    told += " " + ", ".join(f"{name} {with_interval(references[system])}" for system, name in REFERENCES.items()) + "."
    frame = Frame(width, height, (44, 52, 16, 46), x, (ticks[0], ticks[-1]), log=True)
    name = metric_name(results.protocol.metric)
    up = f"{name}; further up is better ↑" if results.answered else f"{name} (agreement) ↑"
    layers: Layers = [
        frame.axes(
            pairs, ticks, x_title="pairs fitted on (logarithmic)", y_title=up, x_words="format(datum.value, ',')"
        )
    ]
    sides: tuple[tuple[str, Align], ...] = (("old model", "right"), ("re-embedded", "left"))
    for (system, mean), (words, align) in zip(references.items(), sides, strict=True):
        own, dashes = REFERENCE_LOOKS[system]
        low, high = mean.interval
        layers.append(frame.band([{"x": end, "y": low, "y2": high} for end in x], f"band {system}", colour=own))
        layers += level(frame, mean.mean, f"{words} {score(mean.mean)}", align, colour=own, width=1.8, dashes=dashes)
    around = [{"x": p.pairs, "y": p.cross.interval[0], "y2": p.cross.interval[1]} for p in points]
    track = [{"x": p.pairs, "y": p.cross.mean, "note": f"{p.pairs:,} pairs: {with_interval(p.cross)}"} for p in points]
    return frame.chart(f"Learning curve of {curve.candidate}", told, [
        *layers,
        frame.band(around, "interval", colour=colour, opacity=0.16),
        frame.lines(track, "track", colour=colour),
        *(layer for point in points if point.pairs == curve.enough
          for layer in _enough(frame, point.pairs, point.cross.mean, f"enough: {point.pairs:,} pairs")),
        frame.marks(track, "points", shape=shape_of(shape), colour=colour, edge=PAPER),
    ])  # fmt: skip


def _enough(frame: Frame, x: float, y: float, words: str) -> Layers:
    half, top = width_of(words) / 2, frame.room[1]
    middle = frame.x_at(min(max(frame.across(x), half), frame.width - half))
    return [
        frame.rules(
            [{"x": x, "x2": x, "y": frame.y[0], "y2": frame.y_at(top - 14)}], "enough", colour=INK, dashes=(2, 3)
        ),
        frame.text([{"x": middle, "y": frame.y_at(top - 20), "text": words}], "name enough", bold=True, align="center"),
        frame.marks([{"x": x, "y": y}], "ring", radius=9, fill="transparent", line=1.4),
    ]


def threshold_plot(thresholds: Thresholds, *, width: float = 640, height: float = 340) -> alt.LayerChart:
    """Draw the new threshold for every old one, with its interval, and marks at round old thresholds."""
    rows, found = thresholds.rows, round_thresholds(thresholds)
    ends = [row.interval for row in rows]
    x, across = close_ticks(rows[0].old, rows[-1].old)
    y, up = close_ticks(min(low for low, _ in ends), max(high for _, high in ends))
    told = "; ".join(f"{row.old:g} becomes {score(row.new)}" for row in found) + "."
    frame = Frame(width, height, (44, 30, 16, 46), x, y)
    layers: Layers = [frame.axes(across, up, x_title="threshold on old scores", y_title="threshold on new scores")]
    low, high = max(x[0], y[0]), min(x[1], y[1])
    if low < high:  # the line of equal scores, if it crosses the axes
        words = [{"x": high, "y": high, "text": "equal scores"}]
        layers += [
            frame.rules([{"x": low, "x2": high, "y": low, "y2": high}], "equal", dashes=(2, 3)),
            frame.text(words, "name equal", size=11.5, colour=SOFT, align="right", dx=-8, dy=16),
        ]
    colour, shape = KINDS["adapter"]
    band = [{"x": row.old, "y": low, "y2": high} for row, (low, high) in zip(rows, ends, strict=True)]
    read = [{"x": row.old, "y": row.new, "note": f"{row.old:g} → {score(row.new)}"} for row in found]
    layers += [
        frame.band(band, "likely", colour=colour, opacity=0.13),
        frame.lines(_points([row.old for row in rows], [row.new for row in rows]), "track", colour=colour),
        frame.marks(read, "thresholds", shape=shape_of(shape), radius=4.5, colour=colour, fill=PAPER, line=1.8),
    ]
    return frame.chart("Old thresholds as new ones", told, layers)


def _points(x: Sequence[float], y: Sequence[float]) -> list[dict[str, float]]:
    return [{"x": across, "y": up} for across, up in zip(x, y, strict=True)]
