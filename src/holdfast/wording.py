"""Numbers in sentences that several parts of this package write; pages and tables have `holdfast.reports.formats`."""

from __future__ import annotations


def whole_percent(share: float) -> str:
    """Write a share in whole per cent, with a space that does not break.

    >>> whole_percent(0.624).replace("\N{NO-BREAK SPACE}", " ")
    '62 %'
    """
    return f"{100 * share:.0f}\N{NO-BREAK SPACE}%"
