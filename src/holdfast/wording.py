"""Numbers in sentences that several parts of this package write; pages and tables have `holdfast.reports.formats`."""

from __future__ import annotations

from collections.abc import Sequence


def whole_percent(share: float) -> str:
    """Write a share in whole per cent, with a space that does not break.

    >>> whole_percent(0.624).replace("\N{NO-BREAK SPACE}", " ")
    '62 %'
    """
    return f"{100 * share:.0f}\N{NO-BREAK SPACE}%"


def counted(number: int, word: str) -> str:
    """Write a number of things.

    >>> counted(1, "seed"), counted(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Write names one after another.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
