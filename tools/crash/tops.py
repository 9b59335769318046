"""Faults of the top of a sharded gallery: lost replies and errors; and planted bugs that a trial must catch."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

import obstore

from limpet.engines.s3.top import S3Top
from limpet.engines.top import Beside, LedgerTop, Stamped, Top
from limpet.errors import GalleryError, StoreError

Read = Callable[[Any], Stamped]
STALE = 0.2  # seconds for which a stale document is used


def lose_replies(share: float, errors: float = 0.0, wait: float = 0.0) -> None:
    """Let writes and reads of a top in a database fail in this process.

    Args:
        share: Share of writes that are executed but whose reply is lost.
        errors: Share of writes and reads that fail without an effect.
        wait: Maximum seconds until a lost reply is noticed; other processes may write the top meanwhile.
    """
    put, read, chance = LedgerTop.put, LedgerTop.read, random.Random(os.getpid())

    def faulty_put(self: LedgerTop, after: Stamped, beside: Beside) -> bool:
        drawn = chance.random()
        if drawn < errors:
            raise StoreError("An error of the trial: nothing was done.")
        done = put(self, after, beside)
        if drawn < errors + share:
            time.sleep(chance.uniform(0.0, wait))
            raise StoreError("A reply that the trial lost.")
        return done

    def faulty_read(self: LedgerTop) -> Stamped:
        if chance.random() < errors:
            raise StoreError("An error of the trial: nothing was read.")
        return read(self)

    LedgerTop.put, LedgerTop.read = faulty_put, faulty_read  # type: ignore[method-assign]


def blind_retry(store: Any = None) -> None:
    """A writer whose reply was lost writes again, and overwrites newer writes."""

    def wrong(self: Top, document: Any, over: Stamped, commit: str, beside: Beside | None = None) -> Stamped:
        after = Stamped(document, over.tag + 1, (*over.commits, commit))
        try:
            if self.put(after, beside or Beside()):
                return after
        except StoreError:
            after = Stamped(document, self.read().tag + 1, after.commits)
            if self.put(after, beside or Beside()):
                return after
        raise GalleryError("The top has moved.", to_do="try again.")

    Top.move = wrong  # type: ignore[method-assign]


def unconditional_put(store: Any = None) -> None:
    """A write of the top overwrites newer writes."""
    put, really = LedgerTop.put, obstore.put

    def wrong(self: LedgerTop, after: Stamped, beside: Beside) -> bool:
        [(tag,)] = self.database.execute("SELECT tag FROM top WHERE one = 1")
        return put(self, Stamped(after.document, int(tag) + 1, after.commits), beside)

    LedgerTop.put = wrong  # type: ignore[method-assign]
    obstore.put = lambda *words, mode=None, **more: really(*words, **more)


def stale_read(store: Any = None) -> None:
    """A process that has read the top uses it for a while without reading it again."""
    _replace_read(_stale)


def _stale(read: Read) -> Read:
    def wrong(self: Top) -> Stamped:
        when, known = getattr(self, "_believed", (0.0, None))
        if known is None or time.monotonic() - when > STALE:
            when, known = self._believed = time.monotonic(), read(self)  # type: ignore[attr-defined]
        return known

    return wrong


def last_move_alone(store: Any = None) -> None:
    """A writer whose reply was lost checks only the last write, which may be a later one by another process."""
    _replace_read(_last_alone)


def _last_alone(read: Read) -> Read:
    def wrong(self: Top) -> Stamped:
        found = read(self)
        return Stamped(found.document, found.tag, found.commits[-1:])

    return wrong


def _replace_read(by: Callable[[Read], Read]) -> None:
    for kind in (LedgerTop, S3Top):
        kind.read = by(kind.read)  # type: ignore[method-assign,assignment]


BUGS: dict[str, Callable[[], None]] = {
    "unconditional put": unconditional_put,
    "blind retry": blind_retry,
    "stale read": stale_read,
    "last move alone": last_move_alone,
}
