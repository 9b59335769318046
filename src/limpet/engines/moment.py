"""One moment at which several readings see a table that is being written."""

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
    """Let all readings of one database, or of one table of LanceDB, see the same moment: that of the first of them.

    Vectors of two models, or vectors and texts, are then of the same rows, whatever an application writes meanwhile.
    Collections have no such moments: each reading sees what is there when it reads.

    Leave it before anything slow is done with what was read: PostgreSQL keeps the rows of that moment as long as it
    lasts.
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
    """Return what says which moment a place is read at, made by the first reading; None outside of `one_moment`."""
    moment = _MOMENT.get()
    if moment is None:
        return None
    if key not in moment.kept:
        moment.kept[key] = make(moment.stack)
    found: _Kept = moment.kept[key]
    return found
