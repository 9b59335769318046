"""How far a long step of an upgrade is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict


class Told(TypedDict, total=False):
    """How far a long step is; each step tells some of these.

    Args:
        step: What is being done.
        state: The same in a word or two, where several things are done by turns.
        done: How much of it, in items or mebibytes.
        total: Of all; None where that is not known.
        read: Rows that were read.
        written: Items that were written.
        skipped: Rows whose item was there before.
        embedded: Items that a source made vectors of.
        missing: Items that it does not have.
        seconds: How long it took so far.
        waiting: Seconds until the store is asked again.
    """

    step: str
    state: str
    done: float
    total: int | None
    read: int
    written: int
    skipped: int
    embedded: int
    missing: int
    seconds: float
    waiting: float


Progress = Callable[[Told], None]
"""Is told how far a long step is."""
