"""Which places every commit named: readers of an older pointer look them up, and tidying knows what may go."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator

from holdfast.errors import GalleryError
from holdfast.stores.base import Pointer
from holdfast.stores.lance_places import Place, Places
from holdfast.stores.ledger import Ledger
from holdfast.stores.sqlite import SqliteDatabase

_TABLE = "CREATE TABLE IF NOT EXISTS places (sequence bigint PRIMARY KEY, places text NOT NULL)"
_KEPT = 256  # commits whose places are kept in RAM


class History:
    """Places by number of the commit; any thread may ask.

    Args:
        database: Of the ledger; the places of each commit are written in its transaction.
    """

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._guard = threading.Lock()
        self._known: OrderedDict[int, Places] = OrderedDict()
        database.execute(_TABLE)

    def current(self, ledger: Ledger) -> tuple[Pointer, Places]:
        """Return the pointer and what it names."""
        pointer, plain = ledger.pointer()
        known = self._look_up(pointer.sequence)
        return pointer, known if known is not None else self.remember(pointer.sequence, Places.read(plain))

    def at(self, sequence: int) -> Places:
        """Return what the pointer named as of a commit.

        Raises:
            GalleryError: That is forgotten.
        """
        known = self._look_up(sequence)
        if known is not None:
            return known
        found = self._database.execute("SELECT places FROM places WHERE sequence = ?", [sequence])
        if not found:
            raise GalleryError(
                f"What commit {sequence} named is not there any more.",
                expected="a commit that is not older than the last tidying allowed",
                to_do="ask for the pointer again. The gallery is intact.",
            )
        return self.remember(sequence, Places.read(json.loads(found[0][0])))

    def write(self, sequence: int, places: Places) -> None:
        """Write the places of a commit; inside its transaction."""
        self._database.execute("INSERT INTO places VALUES (?, ?)", [sequence, json.dumps(places.plain())])

    def remember(self, sequence: int, places: Places) -> Places:
        """Keep places at hand."""
        with self._guard:
            self._known[sequence] = places
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return places

    def named(self, ledger: Ledger) -> Iterator[Place]:
        """Yield what the pointer names, and what it named and is not forgotten."""
        yield from self.current(ledger)[1]
        for (plain,) in self._database.execute("SELECT places FROM places"):
            yield from Places.read(json.loads(plain))

    def forget(self, moment: float) -> None:
        """Forget the places that no pointer has named since then, in seconds since 1970."""
        [(oldest,)] = self._database.execute("SELECT max(sequence) FROM journal WHERE time <= ?", [moment])
        if oldest is None:
            return
        with self._database.transaction():
            self._database.execute("DELETE FROM places WHERE sequence < ?", [oldest])
        with self._guard:
            for sequence in [known for known in self._known if known < oldest]:
                del self._known[sequence]

    def _look_up(self, sequence: int) -> Places | None:
        with self._guard:
            return self._known.get(sequence)
