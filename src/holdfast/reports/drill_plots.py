"""The charts of a drill: quality while the gallery is re-embedded, and what becomes of first hits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.galleries.rehearsal.results import FirstHits, OrderCurve, Rehearsal
from holdfast.reports.drill_words import percent_of
from holdfast.reports.formats import score
from holdfast.reports.svg import (
    Scale,
    box,
    chart,
    element,
    line,
    marker,
    path,
    reaching,
    text,
    width_of,
    x_axis,
    y_axis,
)
from holdfast.wording import metric_name

STYLE = """
.order-0{--own:var(--random)}.order-1{--own:var(--margin)}.order-2{--own:var(--reverse)}.order-3{--own:var(--independent)}.order-4{--own:var(--old)}
.route{fill:none;stroke:var(--own);stroke-width:2.2;stroke-linejoin:round}
.route.order-1{stroke-dasharray:7 3}.route.order-2{stroke-dasharray:2 3}
.route.order-3{stroke-dasharray:9 3 2 3}.route.order-4{stroke-dasharray:4 4}
.stop{fill:var(--own)}
.likely{fill:var(--random);opacity:.13}
.bar.fixed{fill:var(--good)}.bar.broken{fill:var(--bad)}.bar.other{fill:var(--cross);fill-opacity:.45}.bar.same{fill:var(--faint)}
.chart .inside{fill:var(--paper);font-size:12px;font-weight:600}
.chart .inside.same,.chart .inside.other{fill:var(--ink);font-weight:400}
"""

CHANGES = {
    "fixed": "wrong before, right now",
    "broken": "right before, wrong now",
    "other": "another first hit",
    "same": "the same first hit",
}
"""What can become of the first hit of a query."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 18, 30, 46
_ROW, _BAR = 42, 24


def drill_curves(results: Rehearsal, metric: str, *, width: float = 520, height: float = 300) -> str:
    """Draw one metric over the share that is re-embedded, in all orders, with today's value as a line.

    Args:
        results: What a rehearsal measured.
        metric: Its name.
        width: Width in pixels.
        height: Height in pixels.
    """
    curves = {name: found for name, found in results.curves.items() if metric in found.values}
    before, band = _reference(results, metric), _band(results, metric)
    drawn = [value for found in curves.values() for value in found.values[metric]]
    ends = [*drawn, *([before] if before is not None else []), *(value for pair in band for value in pair[1:])]
    x = Scale(0.0, 1.0, _LEFT, width - _RIGHT)
    lowest = 0.0 if metric.startswith("overlap") else max(0.0, min(ends))
    y = reaching(lowest, min(1.0, max(ends)), height - _BOTTOM, _TOP, 4)
    parts = [
        x_axis(x, _TOP, y.start, "share of the gallery re-embedded", 4, share=True),
        y_axis(y, _LEFT, x.stop, metric_name(metric)),
    ]
    if band:
        outline = [(x(share), y(high)) for share, _, high in band] + [(x(s), y(low)) for s, low, _ in reversed(band)]
        parts.append(path(outline, "likely"))
    if before is not None:
        parts.append(line(x.start, y(before), x.stop, y(before), "reference level"))
    for number, (_, found) in reversed(list(enumerate(curves.items()))):
        parts += _route(found.shares, found.values[metric], x, y, number, stepped=not results.swaps_first)
    if before is not None:
        below = y(before) + 15 < y.start and all(value >= before for value in drawn)
        at = y(before) + 15 if below else y(before) - 6
        parts.append(text(x.stop - 4, at, f"today {score(before)}", "small halo", "end"))
    return chart(
        width, height, f"{metric_name(metric)} during the backfill", _curves_in_words(curves, metric, before), parts
    )


def _reference(results: Rehearsal, metric: str) -> float | None:
    """Return today's value; None for one that is 1 by definition, or says nothing of today."""
    return None if metric == "overlap@10 with old" else results.before.get(metric)


def _band(results: Rehearsal, metric: str) -> list[tuple[float, float, float]]:
    """Return shares with the ends of the interval of a metric, in the first order."""
    curve = results.curve
    differences = (curve.differences or {}).get(metric)
    if not differences or not results.swaps_first:
        return []
    before = results.before[metric]
    pairs = zip(curve.shares, differences, strict=True)
    return [(share, before + low, before + high) for share, (_, low, high) in pairs]


def _route(
    shares: Sequence[float], values: Sequence[float], x: Scale, y: Scale, number: int, *, stepped: bool
) -> list[str]:
    """Return a line through the values, level until the end where only the swap changes what is served."""
    points = [(x(share), y(value)) for share, value in zip(shares, values, strict=True)]
    through = [*points[:-1], (points[-1][0], points[-2][1]), points[-1]] if stepped and len(points) > 1 else points
    marks = [
        marker(at, up, number, f"stop order-{number}", 3.4, f"{percent_of(share)}: {score(value)}")
        for (at, up), share, value in zip(points, shares, values, strict=True)
    ]
    return [path(through, f"route order-{number}"), *marks]


def _curves_in_words(curves: Mapping[str, OrderCurve], metric: str, before: float | None) -> str:
    today = "" if before is None else f"Today {score(before)}. "
    return today + " ".join(
        f"{name}: "
        + ", ".join(
            f"{score(value)} at {percent_of(share)}"
            for share, value in zip(found.shares, found.values[metric], strict=True)
        )
        + f"; on average {score(found.area[metric])}."
        for name, found in curves.items()
    )


def order_swatch(number: int) -> str:
    """Return the line of an order, for a legend."""
    drawn = path([(0, 6), (26, 6)], f"route order-{number}") + marker(13, 6, number, f"stop order-{number}", 3.4)
    return element("svg", drawn, kind="swatch", viewBox="0 0 26 12", aria_hidden="true")


def change_swatch(kind: str) -> str:
    """Return the colour of a change, for a legend."""
    return element("svg", box(0, 0, 26, 12, f"bar {kind}"), kind="swatch", viewBox="0 0 26 12", aria_hidden="true")


def changes_of(found: FirstHits, judged: float) -> dict[str, float]:
    """Return which share of all queries each change befell, in the order of `CHANGES`, those that did.

    Args:
        found: How first hits changed.
        judged: Share of the queries of which it is known what is right.

    >>> changes_of(FirstHits(share=1.0, changed=0.5, fixed=0.4, broken=0.2), judged=0.5)
    {'fixed': 0.2, 'broken': 0.1, 'other': 0.2, 'same': 0.5}
    """
    fixed, broken = (found.fixed or 0.0) * judged, (found.broken or 0.0) * judged
    shares = {
        "fixed": fixed,
        "broken": broken,
        "other": found.changed - fixed - broken,
        "same": 1 - found.changed,
    }
    return {name: round(share, 6) for name, share in shares.items() if share > 1e-9}


def first_hit_bars(results: Rehearsal, *, width: float = 640) -> str:
    """Draw which share of the queries finds another item first than today, at every stage."""
    rows = [(stage(found.share), changes_of(found, results.judged / results.asked)) for found in results.first_hits]
    left = 0.0 if width < 500 else max(width_of(name) for name, _ in rows) + 12
    x = Scale(0.0, 1.0, left + 0.5, width - 0.5)
    row = _ROW + (18 if not left else 0)
    parts = []
    for place, (name, changes) in enumerate(rows):
        top = row * place + (18 if not left else 0)
        parts.append(text(0, top + (_BAR / 2 + 5 if left else -6), name, "stage"))
        start = 0.0
        for kind, share in changes.items():
            wide = x(start + share) - x(start)
            parts.append(box(x(start), top, wide, _BAR, f"bar {kind}", f"{CHANGES[kind]}: {percent_of(share)}"))
            if wide > width_of(percent_of(share), 12) + 4:
                parts.append(
                    text(round(x(start) + wide / 2, 2), top + 16.5, percent_of(share), f"inside {kind}", "middle")
                )
            start += share
    words = " ".join(
        f"{name}: " + ", ".join(f"{percent_of(share)} {CHANGES[kind]}" for kind, share in changes.items()) + "."
        for name, changes in rows
    )
    return chart(width, row * len(rows) - (_ROW - _BAR) + 2, "First hits compared with today", words, parts)


def stage(share: float) -> str:
    """Name the moment at which so much is re-embedded.

    >>> stage(0.0), stage(0.5), stage(1.0)
    ('after the swap', 'half way', 'at the end')
    """
    return {0.0: "after the swap", 0.5: "half way", 1.0: "at the end"}.get(share, f"{percent_of(share)} done")
