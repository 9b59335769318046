"""The charts of a drill: quality while the gallery is re-embedded, and what becomes of first hits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.reports.drill_words import curve_of, percent_of, short_metric
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

Document = Mapping[str, Any]

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


def drill_curves(document: Document, metric: str, *, width: float = 520, height: float = 300) -> str:
    """Draw one metric over the share that is re-embedded, in all orders, with today's value as a line.

    Args:
        document: What `Drill.to_dict` returned.
        metric: Its name.
        width: Width in pixels.
        height: Height in pixels.
    """
    curves = {name: found for name, found in document["curves"].items() if metric in found["values"]}
    before, band = _reference(document, metric), _band(document, metric)
    drawn = [value for found in curves.values() for value in found["values"][metric]]
    ends = [*drawn, *([before] if before is not None else []), *(value for pair in band for value in pair[1:])]
    x = Scale(0.0, 1.0, _LEFT, width - _RIGHT)
    lowest = 0.0 if metric.startswith("overlap") else max(0.0, min(ends))
    y = reaching(lowest, min(1.0, max(ends)), height - _BOTTOM, _TOP, 4)
    parts = [
        x_axis(x, _TOP, y.start, "share of the gallery re-embedded", 4, share=True),
        y_axis(y, _LEFT, x.stop, short_metric(metric)),
    ]
    if band:
        outline = [(x(share), y(high)) for share, _, high in band] + [(x(s), y(low)) for s, low, _ in reversed(band)]
        parts.append(path(outline, "likely"))
    if before is not None:
        parts.append(line(x.start, y(before), x.stop, y(before), "reference level"))
    for number, (_, found) in reversed(list(enumerate(curves.items()))):
        parts += _route(found["shares"], found["values"][metric], x, y, number, stepped=document["linked"] == "none")
    if before is not None:
        below = y(before) + 15 < y.start and all(value >= before for value in drawn)
        at = y(before) + 15 if below else y(before) - 6
        parts.append(text(x.stop - 4, at, f"today {score(before)}", "small halo", "end"))
    return chart(
        width, height, f"{short_metric(metric)} during the backfill", _curves_in_words(curves, metric, before), parts
    )


def _reference(document: Document, metric: str) -> float | None:
    """Return today's value; None for one that is 1 by definition, or says nothing of today."""
    found = document["before"].get(metric)
    return None if found is None or metric == "overlap@10 with old" else float(found)


def _band(document: Document, metric: str) -> list[tuple[float, float, float]]:
    """Return shares with the ends of the interval of a metric, in the first order."""
    curve = curve_of(document)
    differences = (curve["differences"] or {}).get(metric)
    if not differences or document["linked"] == "none":
        return []
    before = document["before"][metric]
    pairs = zip(curve["shares"], differences, strict=True)
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


def _curves_in_words(curves: Mapping[str, Any], metric: str, before: float | None) -> str:
    today = "" if before is None else f"Today {score(before)}. "
    return today + " ".join(
        f"{name}: "
        + ", ".join(
            f"{score(value)} at {percent_of(share)}"
            for share, value in zip(found["shares"], found["values"][metric], strict=True)
        )
        + f"; on average {score(found['area'][metric])}."
        for name, found in curves.items()
    )


def order_swatch(number: int) -> str:
    """Return the line of an order, for a legend."""
    drawn = path([(0, 6), (26, 6)], f"route order-{number}") + marker(13, 6, number, f"stop order-{number}", 3.4)
    return element("svg", drawn, kind="swatch", viewBox="0 0 26 12", aria_hidden="true")


def change_swatch(kind: str) -> str:
    """Return the colour of a change, for a legend."""
    return element("svg", box(0, 0, 26, 12, f"bar {kind}"), kind="swatch", viewBox="0 0 26 12", aria_hidden="true")


def changes_of(document: Document, found: Mapping[str, Any]) -> dict[str, float]:
    """Return which share of all queries each change befell, in the order of `CHANGES`, those that did.

    >>> changes_of({"asked": 10, "judged": 5}, {"changed": 0.5, "fixed": 0.4, "broken": 0.2})
    {'fixed': 0.2, 'broken': 0.1, 'other': 0.2, 'same': 0.5}
    """
    judged = document["judged"] / document["asked"]
    fixed, broken = ((found[name] or 0.0) * judged for name in ("fixed", "broken"))
    shares = {
        "fixed": fixed,
        "broken": broken,
        "other": found["changed"] - fixed - broken,
        "same": 1 - found["changed"],
    }
    return {name: round(share, 6) for name, share in shares.items() if share > 1e-9}


def first_hit_bars(document: Document, *, width: float = 640) -> str:
    """Draw which share of the queries finds another item first than today, at every stage."""
    rows = document["first_hits"]
    names = [stage(found["share"]) for found in rows]
    left = 0.0 if width < 500 else max(map(width_of, names)) + 12
    x = Scale(0.0, 1.0, left + 0.5, width - 0.5)
    row = _ROW + (18 if not left else 0)
    parts = []
    for place, found in enumerate(rows):
        top = row * place + (18 if not left else 0)
        parts.append(text(0, top + (_BAR / 2 + 5 if left else -6), names[place], "stage"))
        start = 0.0
        for kind, share in changes_of(document, found).items():
            wide = x(start + share) - x(start)
            parts.append(box(x(start), top, wide, _BAR, f"bar {kind}", f"{CHANGES[kind]}: {percent_of(share)}"))
            if wide > width_of(percent_of(share), 12) + 4:
                parts.append(
                    text(round(x(start) + wide / 2, 2), top + 16.5, percent_of(share), f"inside {kind}", "middle")
                )
            start += share
    words = " ".join(
        f"{name}: "
        + ", ".join(f"{percent_of(s)} {CHANGES[kind]}" for kind, s in changes_of(document, found).items())
        + "."
        for name, found in zip(names, rows, strict=True)
    )
    return chart(width, row * len(rows) - (_ROW - _BAR) + 2, "First hits compared with today", words, parts)


def stage(share: float) -> str:
    """Name the moment at which so much is re-embedded.

    >>> stage(0.0), stage(0.5), stage(1.0)
    ('after the swap', 'half way', 'at the end')
    """
    return {0.0: "after the swap", 0.5: "half way", 1.0: "at the end"}.get(share, f"{percent_of(share)} done")
