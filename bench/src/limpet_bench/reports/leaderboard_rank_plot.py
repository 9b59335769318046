"""Critical-difference diagram of a leaderboard: average ranks, and bars that join labels not significantly different.

The wide form is that of Demšar (JMLR 7, 2006, figure 1), with the best label at the left. The narrow form has a row per
label, and bars to the left of the rows that they join.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from limpet.reports.plots.frame import Frame
from limpet.reports.plots.style import CROSS, FAINT, INK, SOFT, cut, width_of
from limpet_bench.leaderboard import Entry, Leaderboard, NemenyiTest
from limpet_bench.reports.leaderboard_tables import average_rank, marked

_SIDE, _LINE, _LEVEL = 0.24, 22.0, 10.0  # share of the width for names, pixels per name, pixels per bar
_ROW, _NARROW = 36.0, 480.0

_Ranked = tuple[Entry, float]  # with its average rank


Rows = list[dict[str, Any]]


def rank_diagram(results: Leaderboard, *, width: float = 900) -> alt.LayerChart | None:
    """Draw the average ranks of the labels with the critical difference; None if ranks were not tested."""
    tested = results.board.nemenyi
    if tested is None:
        return None
    ranked = [(entry, entry.rank) for entry in results.board.ranked if entry.rank is not None]
    bars = _levels(tested.groups, [entry.label for entry, _ in ranked])
    draw = _demsar if width >= _NARROW else _rows
    chart: alt.LayerChart = draw(ranked, bars, tested, width)
    return chart


def _chart(
    frame: Frame, layers: Sequence[alt.Chart | None], ranked: Sequence[_Ranked], tested: NemenyiTest
) -> alt.LayerChart:
    return frame.chart("Average ranks, and which do not differ", _in_words(ranked, tested), [frame.axes(), *layers])


def _levels(groups: Sequence[Sequence[str]], labels: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return the first label, last label and level of every bar; overlapping bars have different levels."""
    ends: list[int] = []
    bars = []
    for group in groups:
        first, last = labels.index(group[0]), labels.index(group[-1])
        level = next((place for place, end in enumerate(ends) if end < first), len(ends))
        ends[level : level + 1] = [last]
        bars.append((first, last, level))
    return bars


def _demsar(
    ranked: Sequence[_Ranked], bars: Sequence[tuple[int, int, int]], tested: NemenyiTest, width: float
) -> alt.LayerChart:
    side, count, axis = _SIDE * width, len(ranked), 62.0
    levels = 1 + max((level for *_, level in bars), default=-1)
    first_name = axis + 18 + _LEVEL * levels + 12
    half = math.ceil(count / 2)
    height = first_name + _LINE * (half - 1) + 16
    start, stop = side + 12, width - side - 12
    frame = _frame(width, height, count, start, stop)
    low, high = frame.x_at(start), frame.x_at(stop)
    ticks = _ticks(count, stop - start)
    lines: Rows = [{"x": low, "x2": high, "y": axis, "y2": axis}]
    lines += [{"x": tick, "x2": tick, "y": axis - 5, "y2": axis} for tick in ticks]
    elbows: Rows = []
    ranks: dict[bool, Rows] = {True: [], False: []}
    names: dict[bool, Rows] = {True: [], False: []}
    for place, (entry, rank) in enumerate(ranked):
        at_left = place < half
        y = first_name + _LINE * (place if at_left else count - 1 - place)
        end, away = (side, -1) if at_left else (width - side, 1)
        elbows += [{"x": rank, "x2": rank, "y": axis, "y2": y}, {"x": rank, "x2": frame.x_at(end), "y": y, "y2": y}]
        ranks[at_left].append({"x": frame.x_at(end + 8 * away), "y": y + 4.5, "text": average_rank(entry.rank)})
        names[at_left].append({"x": frame.x_at(end + 52 * away), "y": y + 4.5, "text": cut(marked(entry), side - 54)})
    joined = [
        {"x": frame.x_at(frame.across(ranked[first][1]) - 4), "x2": frame.x_at(frame.across(ranked[last][1]) + 4),
         "y": axis + 14 + _LEVEL * level, "y2": axis + 14 + _LEVEL * level}
        for first, last, level in bars
    ]  # fmt: skip
    numbers = [{"x": tick, "y": axis - 10, "text": str(tick)} for tick in ticks]
    return _chart(frame, [
        *_ruler(frame, tested.critical_difference),
        frame.rules(lines, "axis"),
        frame.text(numbers, "ticks", size=12, colour=SOFT, align="center"),
        frame.rules(elbows, "elbows", width=1),
        frame.rules(joined, "joined", colour=CROSS, width=5),
        frame.text(ranks[True], "left ranks", align="right"),
        frame.text(ranks[False], "right ranks"),
        frame.text(names[True], "left names", align="right", bold=True),
        frame.text(names[False], "right names", bold=True),
    ], ranked, tested)  # fmt: skip


def _frame(width: float, height: float, count: int, start: float, stop: float) -> Frame:
    return Frame(width, height, (start, 0, width - stop, 0), (1.0, max(2.0, float(count))), (height, 0.0))


def _ruler(frame: Frame, difference: float) -> list[alt.Chart | None]:
    """Draw the length of the critical difference from rank 1; it is cut at the end of the scale."""
    low, high = frame.x
    beyond = 1 + difference > high
    end = min(1 + difference, high)
    words = f"critical difference {difference:.2f}{': longer than the scale' if beyond else ''}"
    ends = [low] if beyond else [low, end]
    lines = [{"x": low, "x2": end, "y": 19, "y2": 19}, *({"x": at, "x2": at, "y": 14, "y2": 24} for at in ends)]
    return [
        frame.rules(lines, "ruler", colour=INK, width=2),
        frame.text([{"x": low, "y": 9, "text": words}], "difference", size=12, colour=SOFT),
    ]


def _ticks(count: int, room: float) -> range:
    return range(1, count + 1, max(1, math.ceil(count * (width_of(str(count), 12) + 8) / room)))


def _rows(
    ranked: Sequence[_Ranked], bars: Sequence[tuple[int, int, int]], tested: NemenyiTest, width: float
) -> alt.LayerChart:
    levels = 1 + max((level for *_, level in bars), default=-1)
    left, top = 8.0 + _LEVEL * levels, 56.0
    bottom = top + _ROW * len(ranked)
    frame = _frame(width, bottom + 4, len(ranked), left + 6, width - 6)
    ticks = _ticks(len(ranked), frame.inner[0])
    start, end = frame.x_at(left), frame.x_at(width)
    tops = [top + _ROW * place for place in range(len(ranked))]
    joined = []
    for first, last, level in bars:
        at = frame.x_at(4 + _LEVEL * level)
        joined.append({"x": at, "x2": at, "y": top + _ROW * first + 6, "y2": top + _ROW * last + 24})
    rows = list(zip(ranked, tops, strict=True))
    grid = [{"x": tick, "x2": tick, "y": top - 8, "y2": bottom} for tick in ticks]
    numbers = [{"x": tick, "y": 44, "text": str(tick)} for tick in ticks]
    return _chart(frame, [
        *_ruler(frame, tested.critical_difference),
        frame.rules(grid, "grid", colour=FAINT, width=1),
        frame.text(numbers, "ticks", size=12, colour=SOFT, align="center"),
        frame.rules(joined, "joined", colour=CROSS, width=5),
        frame.marks([{"x": rank, "y": y + 23} for (_, rank), y in rows], "ranks"),
        frame.text(
            [{"x": start, "y": y + 11, "text": cut(marked(entry), width - left - 44)} for (entry, _), y in rows],
            "name", bold=True,
        ),
        frame.text(
            [{"x": end, "y": y + 11, "text": average_rank(entry.rank)} for (entry, _), y in rows], "rank", align="right"
        ),
    ], ranked, tested)  # fmt: skip


def _in_words(ranked: Sequence[_Ranked], tested: NemenyiTest) -> str:
    told = "; ".join(f"{entry.label}: {average_rank(rank)}" for entry, rank in ranked)
    groups = "; ".join(", ".join(group) for group in tested.groups) or "none"
    return f"{told}. Critical difference {tested.critical_difference:.2f}. Not significantly different: {groups}."
