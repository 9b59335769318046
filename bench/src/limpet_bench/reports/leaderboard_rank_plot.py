"""The critical-difference diagram of a leaderboard: average ranks, and bars that join what is not told apart.

The wide one is Demšar's (JMLR 7, 2006, figure 1), with the best at the left; the narrow one has a row per label, and
its bars stand at the left of the rows that they join.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from limpet.reports.svg import Scale, chart, cut, line, marker, path, text, tick_label, width_of
from limpet_bench.leaderboard import Entry, Leaderboard, NemenyiTest
from limpet_bench.reports.leaderboard_tables import average_rank, marked

STYLE = """.joined{stroke:var(--cross);stroke-width:5;stroke-linecap:round;opacity:.85}
.elbow{fill:none;stroke:var(--soft);stroke-width:1}
.ruler{stroke:var(--ink);stroke-width:2}
.rank-dot{fill:var(--ink)}
"""

_SIDE, _LINE, _LEVEL = 0.24, 22.0, 10.0  # share of the width for names, pixels per name and per bar
_ROW, _NARROW = 36.0, 480.0

_Ranked = tuple[Entry, float]  # and its average rank


def rank_diagram(results: Leaderboard, *, width: float = 900) -> str | None:
    """Draw the average ranks of the labels with the critical difference; None where ranks were not tested."""
    tested = results.board.nemenyi
    if tested is None:
        return None
    ranked = [(entry, entry.rank) for entry in results.board.ranked if entry.rank is not None]
    bars = _levels(tested.groups, [entry.label for entry, _ in ranked])
    draw = _demsar if width >= _NARROW else _rows
    height, parts = draw(ranked, bars, tested.critical_difference, width)
    return chart(width, height, "Average ranks, and what is not told apart", _in_words(ranked, tested), parts)


def _levels(groups: Sequence[Sequence[str]], labels: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return first label, last label and level of every bar; bars that overlap are on different levels."""
    ends: list[int] = []
    bars = []
    for group in groups:
        first, last = labels.index(group[0]), labels.index(group[-1])
        level = next((place for place, end in enumerate(ends) if end < first), len(ends))
        ends[level : level + 1] = [last]
        bars.append((first, last, level))
    return bars


def _demsar(
    ranked: Sequence[_Ranked], bars: Sequence[tuple[int, int, int]], difference: float, width: float
) -> tuple[float, list[str]]:
    side, count = _SIDE * width, len(ranked)
    x, axis = Scale(1.0, float(count), side + 12, width - side - 12), 62.0
    levels = 1 + max((level for *_, level in bars), default=-1)
    first_name = axis + 18 + _LEVEL * levels + 12
    left = ranked[: math.ceil(count / 2)]
    parts = [*_ruler(x, difference), line(x.start, axis, x.stop, axis, "zero")]
    for tick in _ticks(count, x.stop - x.start):
        parts += [line(x(tick), axis - 5, x(tick), axis, "zero"), text(x(tick), axis - 10, str(tick), "tick", "middle")]
    for place, (entry, rank) in enumerate(ranked):
        at_left = place < len(left)
        row = place if at_left else count - 1 - place
        y, at, end = first_name + _LINE * row, x(rank), side if at_left else width - side
        parts.append(path([(at, axis), (at, y), (end, y)], "elbow"))
        parts += _named(entry, end, y + 4.5, side, at_left=at_left)
    for first, last, level in bars:
        y = axis + 14 + _LEVEL * level
        parts.append(line(x(ranked[first][1]) - 4, y, x(ranked[last][1]) + 4, y, "joined"))
    return first_name + _LINE * (len(left) - 1) + 16, parts


def _named(entry: Entry, end: float, y: float, room: float, *, at_left: bool) -> list[str]:
    """Write a label and its rank at the end of its line, on its outer side."""
    away, anchor = (-1, "end") if at_left else (1, "start")
    rank = text(end + 8 * away, y, average_rank(entry.rank), "number", anchor)
    return [rank, text(end + 52 * away, y, cut(marked(entry), room - 54), "name", anchor)]


def _ruler(x: Scale, difference: float) -> list[str]:
    """Draw how long the critical difference is, from rank 1; one longer than the scale ends with it."""
    beyond = 1 + difference > x.high
    end = x(1 + difference)
    words = f"critical difference {difference:.2f}{': longer than the scale' if beyond else ''}"
    caps = [line(x.start, 14, x.start, 24, "ruler"), *([] if beyond else [line(end, 14, end, 24, "ruler")])]
    return [*caps, line(x.start, 19, end, 19, "ruler"), text(x.start, 9, words, "label")]


def _ticks(count: int, room: float) -> range:
    return range(1, count + 1, max(1, math.ceil(count * (width_of(str(count), 12) + 8) / room)))


def _rows(
    ranked: Sequence[_Ranked], bars: Sequence[tuple[int, int, int]], difference: float, width: float
) -> tuple[float, list[str]]:
    levels = 1 + max((level for *_, level in bars), default=-1)
    left = 8.0 + _LEVEL * levels
    x, top = Scale(1.0, float(len(ranked)), left + 6, width - 6), 56.0
    bottom = top + _ROW * len(ranked)
    parts = [*_ruler(x, difference)]
    for tick in _ticks(len(ranked), x.stop - x.start):
        parts += [
            line(x(tick), top - 8, x(tick), bottom, "grid"),
            text(x(tick), 44, tick_label(tick), "tick", "middle"),
        ]
    for place, (entry, rank) in enumerate(ranked):
        y = top + _ROW * place
        parts.append(text(left, y + 11, cut(marked(entry), width - left - 44), "name"))
        parts.append(text(width, y + 11, average_rank(entry.rank), "number halo", "end"))
        parts.append(marker(x(rank), y + 23, 0, "rank-dot", 5))
    for first, last, level in bars:
        at = 4 + _LEVEL * level
        parts.append(line(at, top + _ROW * first + 6, at, top + _ROW * last + 24, "joined"))
    return bottom + 4, parts


def _in_words(ranked: Sequence[_Ranked], tested: NemenyiTest) -> str:
    told = "; ".join(f"{entry.label}: {average_rank(rank)}" for entry, rank in ranked)
    groups = "; ".join(", ".join(group) for group in tested.groups) or "none"
    return f"{told}. Critical difference {tested.critical_difference:.2f}. Not told apart: {groups}."
