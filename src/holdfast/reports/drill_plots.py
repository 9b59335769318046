"""The charts of a drill: quality while the gallery is re-embedded, and what becomes of first hits."""

from __future__ import annotations

from holdfast.galleries.drill_result import FirstHits, Rehearsal
from holdfast.reports.drill_words import percent_of
from holdfast.reports.svg import (
    Scale,
    box,
    chart,
    element,
    text,
    width_of,
)

STYLE = """
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

_ROW, _BAR = 42, 24


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
