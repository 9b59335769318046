"""Which places every commit named: readers of an older pointer look them up, and tidying knows what may go."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from limpet.engines.forks import at_fork
from limpet.engines.lance.places import TableVersions
from limpet.engines.ledger import GalleryLedger
from limpet.engines.sqlite import SqliteDatabase
from limpet.engines.store import Pointer
from limpet.errors import GalleryError

TABLES = ("CREATE TABLE IF NOT EXISTS places (sequence bigint PRIMARY KEY, places text NOT NULL)",)
"""Statements that create the tables, with those of the ledger."""
_KEPT = 256  # commits whose places are kept in RAM


class PlaceHistory:
    """Places by number of the commit; any thread may ask.

    Args:
        database: Of the ledger; the places of each commit are written in its transaction.
    """

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        at_fork(self, in_child=PlaceHistory._start_anew)
        self._start_anew()

    def _start_anew(self) -> None:
        self._guard = threading.Lock()
        self._known: OrderedDict[int, TableVersions] = OrderedDict()

    def current(self, ledger: GalleryLedger) -> tuple[Pointer, TableVersions]:
        """Return the pointer and what it names."""
        pointer, plain = ledger.pointer()
        known = self._look_up(pointer.sequence)
        return pointer, known if known is not None else self.remember(pointer.sequence, TableVersions.read(plain))

    def at(self, sequence: int) -> TableVersions:
        """Return what the pointer named as of a commit.

        Raises:
            GalleryError: That is forgotten.
        """
        known = self._look_up(sequence) or self.named().get(sequence)
        if known is None:
            raise GalleryError(
                f"What commit {sequence} named is not there any more.",
                expected="a commit that is not older than the last tidying allowed",
                to_do="ask for the pointer again.",
            )
        return self.remember(sequence, known)

    def write(self, sequence: int, places: TableVersions) -> None:
        """Write the places of a commit, and when that was; inside its transaction."""
        plain = places.plain() | {"moment": _moment()}
        self._database.execute("INSERT INTO places VALUES (?, ?)", [sequence, json.dumps(plain)])

    def remember(self, sequence: int, places: TableVersions) -> TableVersions:
        """Keep places at hand."""
        with self._guard:
            self._known[sequence] = places
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return places

    def named(self) -> dict[int, TableVersions]:
        """Return what every commit named that is not forgotten, by number."""
        return {sequence: TableVersions.read(plain) for sequence, plain in self._rows().items()}

    def exists(self, sequence: int) -> bool:
        """Say whether what a commit named is not forgotten, as the database has it now."""
        return bool(self._database.execute("SELECT 1 FROM places WHERE sequence = ?", [sequence]))

    def _rows(self) -> dict[int, dict[str, Any]]:
        rows = self._database.execute("SELECT sequence, places FROM places ORDER BY sequence")
        return {int(sequence): json.loads(plain) for sequence, plain in rows}

    def forget(self, older_than: float, spared: int, leased: Collection[int]) -> dict[int, TableVersions]:
        """Forget commits that were followed by another one so many seconds ago, and return what they named.

        The time is that of the machine's own clock since it was started, which nobody sets.
        """
        rows = self._rows()
        sequences = list(rows)
        pairs = pairwise(sequences[: len(sequences) - spared])
        aged = [one for one, following in pairs if _age(rows[following]["moment"]) >= older_than]
        old = [one for one in aged if one not in leased]
        with self._database.transaction():
            self._database.execute_many("DELETE FROM places WHERE sequence = ?", [[one] for one in old])
        with self._guard:
            for sequence in old:
                self._known.pop(sequence, None)
        return {sequence: TableVersions.read(rows[sequence]) for sequence in old}

    def forget_before(self, oldest: int) -> None:
        """Forget the places that the pointer named before a commit."""
        with self._database.transaction():
            self._database.execute("DELETE FROM places WHERE sequence < ?", [oldest])

    def _look_up(self, sequence: int) -> TableVersions | None:
        with self._guard:
            return self._known.get(sequence)


def _moment() -> list[Any]:
    return [_boot(), _since_boot(), time.time()]


@lru_cache(maxsize=1)
def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _since_boot() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _age(moment: Sequence[Any]) -> float:
    """Return the seconds since a moment; at most those since our start if it is of another machine or start."""
    boot, seconds, time_of_day = moment
    if boot and boot == _boot():
        return _since_boot() - float(seconds)
    return min(_since_boot(), time.time() - float(time_of_day))


def versions_by_table(commits: Iterable[TableVersions]) -> dict[str, set[int]]:
    """Return the versions of every table that commits name."""
    versions: dict[str, set[int]] = {}
    for place in (place for places in commits for place in places):
        versions.setdefault(place.table, set()).add(place.version)
    return versions
