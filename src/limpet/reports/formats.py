"""Number formats: scores with three digits, signs for differences, a dash for missing values."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["MISSING", "percent", "percent_of", "plain_text", "probability", "score", "signed"]

MISSING = "–"

Pair = Sequence[float | None] | None


def score(value: float | None) -> str:
    """Write a fraction with three digits.

    >>> score(0.41273), score(None), score(0.0)
    ('0.413', '–', '0.000')
    """
    return MISSING if value is None else _with_digits(value, "").replace("-", "−")


def signed(value: float | None) -> str:
    """Write a difference with its sign; one that rounds to zero keeps its first digit.

    >>> signed(0.01734), signed(-0.2), signed(0.00004), signed(0.0), signed(None)
    ('+0.017', '−0.200', '+0.00004', '0.000', '–')
    """
    if value is None:
        return MISSING
    return _with_digits(value, "+" if value else "").replace("-", "−")


def interval(pair: Pair, *, sign: bool = False) -> str:
    """Write both ends of an interval; empty for none.

    >>> interval([0.01, 0.024], sign=True), interval(None)
    ('[+0.010, +0.024]', '')
    """
    if pair is None or None in pair:
        return ""
    written = signed if sign else score
    return f"[{', '.join(written(end) for end in pair)}]"


def percent(value: float | None) -> str:
    """Write a share in per cent, with a non-breaking space.

    >>> percent(0.0314).replace("\N{NO-BREAK SPACE}", " "), percent(None)
    ('3.1 %', '–')
    """
    return MISSING if value is None else f"{100 * value:.1f}\N{NO-BREAK SPACE}%"


def percent_of(share: float) -> str:
    """Write a share in whole per cent, with one more digit if it is small.

    >>> ", ".join(percent_of(share).replace("\N{NO-BREAK SPACE}", " ") for share in (0.254, 0.0, 0.004))
    '25 %, 0 %, 0.4 %'
    """
    return percent(share) if 0 < share < 0.01 else f"{100 * share:.0f}\N{NO-BREAK SPACE}%"


def level(share: float) -> str:
    """Write the level of intervals.

    >>> level(0.95).replace("\N{NO-BREAK SPACE}", " "), level(0.975).replace("\N{NO-BREAK SPACE}", " ")
    ('95 %', '97.5 %')
    """
    return f"{100 * share:g}\N{NO-BREAK SPACE}%"


def probability(value: float | None) -> str:
    """Write a probability; one that rounds to zero keeps its first digit.

    >>> probability(0.0317), probability(0.00009999), probability(None)
    ('0.032', '0.0001', '–')
    """
    return score(value if value is None or value >= 0.0005 else float(f"{value:.0e}"))


def plain_text(text: str) -> str:
    """Write minus signs as hyphens and all spaces alike, for terminals and files that other programs read."""
    return text.replace("−", "-").replace("\N{NO-BREAK SPACE}", " ")


def _with_digits(value: float, sign: str) -> str:
    if value and abs(value) < 0.0005:
        return f"{value:{sign}.{_leading_zeros(value) + 1}f}"
    return f"{value:{sign}.3f}"


def _leading_zeros(value: float) -> int:
    return min(12, int(f"{abs(value):e}".rpartition("-")[2]) - 1)
