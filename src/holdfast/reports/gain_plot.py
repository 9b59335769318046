"""The chart of gains: cross minus self (old) of many comparisons with their intervals around zero, a row each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.reports.formats import interval, signed
from holdfast.reports.svg import Scale, chart, line, marker, reaching, shortened, text, whisker, width_of, x_axis
from holdfast.reports.words import SHAPES

_ROW, _HIGH_ROW, _TOP, _BOTTOM, _NUMBER = 26, 44, 30, 44, 62


class Gain(NamedTuple):
    """One comparison.

    Args:
        name: What was compared, for people.
        found: cross - self (old).
        around: Its interval.
        verdict: What colours it: a key of `words.MARKS`.
    """

    name: str
    found: float
    around: tuple[float, float]
    verdict: str


def gain_plot(title: str, gains: Sequence[Gain], axis: str, *, width: float = 640) -> str:
    """Draw every gain as a mark with its interval, and its number to the right.

    Names stand to the left; where that would take more than two fifths of the width, above.

    Args:
        title: Of the chart, for its text alternative.
        gains: From top to bottom.
        axis: What is below the axis.
        width: Width in pixels.
    """
    gutter = max(width_of(gain.name) for gain in gains) + 12
    above = gutter > 0.4 * width
    gutter, step = (8.0, _HIGH_ROW) if above else (gutter, _ROW)
    ends = [end for gain in gains for end in (gain.found, *gain.around)]
    room = 0.15 * max(map(abs, ends)) or 0.01
    x = reaching(min(*ends, -room), max(*ends, room), gutter, width - _NUMBER, 5 if width > 500 else 3)
    height = _TOP + step * len(gains) + _BOTTOM
    parts = [x_axis(x, _TOP, height - _BOTTOM, axis, 5 if width > 500 else 3)]
    parts.append(line(x(0), _TOP, x(0), height - _BOTTOM, "zero"))
    for place, gain in enumerate(gains):
        parts += _row(x, _TOP + step * place, gain, width, above=above)
    parts.append(_sides(x, width))
    return chart(width, height, title, _in_words(gains), parts)


def _row(x: Scale, top: float, gain: Gain, width: float, *, above: bool) -> list[str]:
    kind, y = gain.verdict.replace(" ", "-"), top + (30 if above else _ROW / 2)
    name = text(0, top + 14, shortened(gain.name, width), "name") if above else text(0, y + 4, gain.name, "name")
    note = f"{gain.name}: {signed(gain.found)} {interval(gain.around, sign=True)}"
    return [
        name,
        whisker(x(gain.around[0]), x(gain.around[1]), y, f"whisker {kind}", 4),
        marker(x(gain.found), y, SHAPES[gain.verdict], f"point {kind}", 5, note),
        text(width, y + 4, signed(gain.found), "number", "end"),
    ]


def _sides(x: Scale, width: float) -> str:
    """Name both sides of zero, where there is room."""
    less, more = "← worse", "better than old →"
    fits = x(0) - 8 - width_of(less, 12) > 0
    left = text(x(0) - 8, 18, less, "label", "end") if fits else ""
    after = x(0) + 8
    return left + text(min(after, width - width_of(more, 12)), 18, more, "label")


def _in_words(gains: Sequence[Gain]) -> str:
    return (
        "; ".join(
            f"{gain.name}: {signed(gain.found)} {interval(gain.around, sign=True)}, {gain.verdict}" for gain in gains
        )
        + "."
    )
