"""Style of all charts: colours, shapes of marks, round ticks, and texts shortened to fit."""

from __future__ import annotations

import math
import re

__all__ = [
    "BAD", "CROSS", "FAINT", "GOOD", "HAIR", "INDEPENDENT", "INK", "OLD", "PAPER", "REVERSE", "SERIES", "SOFT",
    "Dashes", "area_of", "close_ticks", "cut", "inner_ticks", "round_ticks", "shape_of", "shortened", "tick_label",
    "width_of",
]  # fmt: skip

INK, SOFT, FAINT, HAIR, PAPER = "#1d2227", "#5a6470", "#e6e3dc", "#d5d1c8", "#fdfcfa"
CROSS, OLD, INDEPENDENT = "#0072b2", "#55606b", "#b0528e"
GOOD, MAYBE, BAD, REVERSE = "#007a5a", "#9a6300", "#b84a00", "#c75a00"
SERIES = (CROSS, "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8f98")
HEAT, HEAT_INK, ON_HEAT = "#003058", "#010101", "#ffffff"

VARIABLES = {
    **{INK: "ink", SOFT: "soft", FAINT: "faint", HAIR: "hair", PAPER: "paper"},
    **{CROSS: "cross", OLD: "old", INDEPENDENT: "independent"},
    **{GOOD: "good", MAYBE: "maybe", BAD: "bad", REVERSE: "reverse"},
    **{colour: f"series-{number}" for number, colour in enumerate(SERIES) if number},
    **{HEAT: "heat", HEAT_INK: "heat-ink", ON_HEAT: "on-heat"},
}
"""CSS variable of pages for each colour."""

VERDICTS = {"compatible": GOOD, "inconclusive": MAYBE, "mixed": MAYBE, "not held out": MAYBE, "not compatible": BAD}
"""Colours of verdicts; other verdicts have the colour `INK`."""

Dashes = tuple[float, ...] | None

KINDS: dict[str, tuple[str, int]] = {"adapter": (CROSS, 0), "head": (INDEPENDENT, 3)}
"""Colours and shapes of candidates that link two models, by kind."""

REFERENCE_LOOKS: dict[str, tuple[str, Dashes]] = {"self_old": (OLD, None), "self_new": (GOOD, (7, 3))}
"""Colours and dashes of the references that candidates are compared with."""

ORDER_LOOKS: tuple[tuple[str, Dashes], ...] = (
    (CROSS, None), (GOOD, (7, 3)), (REVERSE, (2, 3)), (INDEPENDENT, (9, 3, 2, 3)), (OLD, (4, 4)),
)  # fmt: skip
"""Colours and dashes of the orders of a backfill, by position."""

SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
"""Six shapes of marks, which can be distinguished without colour."""

PER_CENT = "format(100 * datum.value, '~g') + '\N{NO-BREAK SPACE}%'"
"""Vega expression that formats a tick label as per cent."""

_WIDTHS = {"circle": 2.0, "square": 1.8, "triangle-up": 2.1, "diamond": 2.5, "triangle-down": 2.1, "cross": 2.2}
_LETTER = 0.66  # width of a letter as a share of the font size, in the widest common font, DejaVu Sans Bold
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SAME = 1e-9  # values closer than this count as equal


def shape_of(number: int) -> str:
    """Return the shape at an index; indices beyond the last start again at the first."""
    return SHAPES[number % len(SHAPES)]


def area_of(shape: str, radius: float) -> float:
    """Return the size of a mark in Vega, in square pixels, at which it looks as large as a circle of this radius."""
    return round((_WIDTHS[shape] * radius) ** 2, 1)


def round_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return about this many round values that cover a range; the range of a single value is extended towards zero.

    >>> round_ticks(0.13, 0.52), round_ticks(1.0, 1.0, 1)
    ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.5, 1.0])
    """
    if high - low < _SAME:
        low, high = (high - 0.5, high) if high > 0 else (low, low + 0.5)
    raw = (high - low) / about
    size = 10.0 ** math.floor(math.log10(raw))
    step = size * next(factor for factor in (1, 2, 5, 10) if raw <= factor * size * 1.0000001)
    first, last = math.floor(low / step + 1e-7), math.ceil(high / step - 1e-7)
    return [round(step * number, 10) + 0.0 for number in range(first, last + 1)]


def close_ticks(low: float, high: float, about: int = 5) -> tuple[tuple[float, float], list[float]]:
    """Return tight round ends of a range, on a grid twice as fine as the ticks, and about this many ticks within."""
    ends = round_ticks(low, high, 2 * about)
    return (ends[0], ends[-1]), inner_ticks(ends[0], ends[-1], about)


def inner_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return about this many round values within a range.

    >>> inner_ticks(0.13, 0.52)
    [0.2, 0.3, 0.4, 0.5]
    """
    return [tick for tick in round_ticks(low, high, about) if low - _SAME <= tick <= high + _SAME]


def tick_label(value: float) -> str:
    """Return the label of a tick, with a minus sign instead of a hyphen.

    >>> tick_label(0.0), tick_label(-0.25)
    ('0', '−0.25')
    """
    return f"{value + 0.0:g}".replace("-", "−")


def clean(words: str) -> str:
    """Return a text without characters that XML does not allow."""
    return _NOT_XML.sub("", words)


def width_of(words: str, size: float = 13.0) -> float:
    """Return the approximate width of a text in pixels, which is rather too large than too small."""
    return len(words) * size * _LETTER


def shortened(words: str, width: float, size: float = 13.0) -> str:
    """Return a text that fits a width in pixels; an ellipsis replaces its end if it is too long.

    >>> shortened("limpet", 45), shortened("hold", 45)
    ('limp…', 'hold')
    """
    letters = int(width / (size * _LETTER))
    return words if len(words) <= letters else f"{words[: max(1, letters - 1)]}…"


def cut(words: str, width: float, size: float = 13.0) -> str:
    """Return a text that fits a width in pixels; an ellipsis replaces its middle if it is too long.

    The end is kept, because labels often differ in an option at the end.

    >>> cut("bct, weight 0.5", 90), cut("bct", 90)
    ('bct, … 0.5', 'bct')
    """
    room = max(3, int(width / width_of("x", size)))
    head = (room - 1) // 2 + (room - 1) % 2
    return words if len(words) <= room else f"{words[:head]}…{words[head + 1 - room :]}"
