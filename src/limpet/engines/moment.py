"""A common snapshot for several reads of a table that is being written."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

_Kept = TypeVar("_Kept")


@dataclass(frozen=True)
class _Moment:
    stack: ExitStack
    kept: dict[Hashable, Any] = field(default_factory=dict)


_MOMENT: ContextVar[_Moment | None] = ContextVar("limpet_sources_moment", default=None)


@contextmanager
def one_moment() -> Iterator[None]:
    """Let all reads of one database, or of one LanceDB table, see the same snapshot: that of the first read.

    Vectors of two models, or vectors and texts, then belong to the same rows, whatever an application writes meanwhile.
    Collections have no snapshots: each read sees the current data.

    Leave the block before slow work on what was read: PostgreSQL keeps the old row versions as long as the snapshot
    exists.
    """
    if _MOMENT.get() is not None:
        yield
        return
    with ExitStack() as stack:
        token = _MOMENT.set(_Moment(stack))
        try:
            yield
        finally:
            _MOMENT.reset(token)


def kept(key: Hashable, make: Callable[[ExitStack], _Kept]) -> _Kept | None:
    """Return the snapshot of a place, created by the first read; None outside of `one_moment`."""
    moment = _MOMENT.get()
    if moment is None:
        return None
    if key not in moment.kept:
        moment.kept[key] = make(moment.stack)
    found: _Kept = moment.kept[key]
    return found
