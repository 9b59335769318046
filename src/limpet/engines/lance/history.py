"""History of the table versions of every commit, for readers of older pointers and for tidy."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from limpet.engines.database import ClosableDatabase
from limpet.engines.forks import at_fork
from limpet.engines.lance.places import TableVersions
from limpet.engines.ledger import GalleryLedger
from limpet.engines.store import Commit, Pointer
from limpet.errors import GalleryError

TABLES = ("CREATE TABLE IF NOT EXISTS places (sequence bigint PRIMARY KEY, places text NOT NULL)",)
"""Statements that create the tables, in addition to those of the ledger."""
_KEPT = 256  # commits whose table versions are cached


class PlaceHistory:
    """Table versions by number of the commit; any thread may call it.

    Args:
        database: Database of the ledger; the versions of each commit are written in its transaction.
        clock: Clock in seconds that all writers share; the time since boot of this machine if None.
    """

    def __init__(self, database: ClosableDatabase, clock: Callable[[], float] | None = None) -> None:
        self._database, self._clock, self._ledger = database, clock, GalleryLedger(database)
        at_fork(self, in_child=PlaceHistory._start_anew)
        self._start_anew()

    def _start_anew(self) -> None:
        self._guard = threading.Lock()
        self._known: OrderedDict[Commit, TableVersions] = OrderedDict()

    def current(self, ledger: GalleryLedger) -> tuple[Pointer, TableVersions]:
        """Return the pointer and its table versions."""
        pointer, plain = ledger.pointer()
        known = self._look_up(pointer.commit)
        return pointer, known if known is not None else self.remember(pointer.commit, TableVersions.read(plain))

    def at(self, commit: Commit) -> TableVersions:
        """Return the table versions of a commit; of any commit with its number if it has no time.

        Raises:
            GalleryError: The history no longer has them.
        """
        known = self._look_up(commit)
        if known is None and (not commit.time or self._ledger.has(commit)):
            known = self.named().get(commit.sequence)
        if known is None:
            raise GalleryError(
                f"What commit {commit.sequence} named is not there any more.",
                expected="a commit that is not older than the last tidying allowed",
                to_do="ask for the pointer again.",
            )
        return self.remember(commit, known)

    def write(self, sequence: int, places: TableVersions) -> None:
        """Write the table versions and the time of a commit; inside its transaction."""
        moment = _moment() if self._clock is None else ["", 0.0, self._clock()]
        plain = places.plain() | {"moment": moment}
        self._database.execute("INSERT INTO places VALUES (?, ?)", [sequence, json.dumps(plain)])

    def remember(self, commit: Commit, places: TableVersions) -> TableVersions:
        """Cache table versions."""
        with self._guard:
            self._known[commit] = places
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return places

    def named(self) -> dict[int, TableVersions]:
        """Return the table versions of every commit in the history, by number."""
        return {sequence: TableVersions.read(plain) for sequence, plain in self._rows().items()}

    def exists(self, sequence: int) -> bool:
        """Say whether the database currently has the table versions of a commit."""
        return bool(self._database.execute("SELECT 1 FROM places WHERE sequence = ?", [sequence]))

    def _rows(self) -> dict[int, dict[str, Any]]:
        rows = self._database.execute("SELECT sequence, places FROM places ORDER BY sequence")
        return {int(sequence): json.loads(plain) for sequence, plain in rows}

    def forget(self, older_than: float, spared: int, leased: Collection[int]) -> dict[int, TableVersions]:
        """Forget commits that were superseded at least `older_than` seconds ago, and return their table versions.

        Unless a clock is given, ages are measured by the machine's time since boot, which cannot be set.
        """
        rows, now = self._rows(), None if self._clock is None else self._clock()
        sequences = list(rows)
        pairs = pairwise(sequences[: len(sequences) - spared])
        aged = [one for one, following in pairs if _age(rows[following]["moment"], now) >= older_than]
        old = [one for one in aged if one not in leased]
        with self._database.transaction():
            self._database.execute_many("DELETE FROM places WHERE sequence = ?", [[one] for one in old])
        with self._guard:
            for commit in [one for one in self._known if one.sequence in old]:
                del self._known[commit]
        return {sequence: TableVersions.read(rows[sequence]) for sequence in old}

    def forget_before(self, oldest: int) -> None:
        """Delete the history before a commit."""
        with self._database.transaction():
            self._database.execute("DELETE FROM places WHERE sequence < ?", [oldest])

    def _look_up(self, commit: Commit) -> TableVersions | None:
        with self._guard:
            return self._known.get(commit)


def _moment() -> list[Any]:
    return [_boot(), _since_boot(), time.time()]


@lru_cache(maxsize=1)
def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _since_boot() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _age(moment: Sequence[Any], now: float | None) -> float:
    """Return the age of a time in seconds; at most the time since our start if it is of another machine or boot."""
    boot, seconds, time_of_day = moment
    if now is not None:
        return now - float(time_of_day)
    if boot and boot == _boot():
        return _since_boot() - float(seconds)
    return min(_since_boot(), time.time() - float(time_of_day))


def versions_by_table(commits: Iterable[TableVersions]) -> dict[str, set[int]]:
    """Return the versions of every table that commits name."""
    versions: dict[str, set[int]] = {}
    for place in (place for places in commits for place in places):
        versions.setdefault(place.table, set()).add(place.version)
    return versions
