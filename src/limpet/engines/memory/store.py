"""A gallery with all vectors in RAM and exact search, stored in one SQLite file, or only in RAM."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from limpet.engines.backup_files import Contents, restore_folder
from limpet.engines.checks import checked_queries
from limpet.engines.digested_folder import DigestedFolder
from limpet.engines.filters import Filter
from limpet.engines.folder import create_folder, open_folder
from limpet.engines.ledger import GalleryLedger
from limpet.engines.ledger_store import LedgerStore, Lock, ThreadLock
from limpet.engines.memory.rows import TABLES, StoredRows
from limpet.engines.memory.table import Addition, MemoryTable, TableView
from limpet.engines.planning import CommitPlan, unknown_generation
from limpet.engines.promises import Promises
from limpet.engines.sqlite import DATABASE, SqliteDatabase, WriterLock, translated
from limpet.engines.store import Changes, Committed, Document, Hits, Pointer, Tidied, Upkeep, Vectors
from limpet.errors import GalleryError, StoreError
from limpet.support.disk import Disk

_KEPT_SECONDS = 60.0
_KEPT_ROWS = 4096


class MemoryStore(LedgerStore):
    """All vectors in RAM, exact search; with a folder every commit is also on disk, in the ledger's own transaction.

    Use it for galleries that fit into memory, for tests and for rehearsals. It needs no extra.

    Args:
        place: The folder, or "" for a gallery that ends with this object.
        database: Database of the ledger, which also stores the vectors.

    >>> import numpy as np
    >>> from limpet import EmbeddingSet, Gallery
    >>> items, url = EmbeddingSet(np.eye(4, dtype=np.float32), model="v1"), "memory://"
    >>> with Gallery.create(url, fingerprint=items.fingerprint, space=items.space) as gallery:
    ...     print(gallery.add(items), "added; found", gallery.search(items[:1], k=1).hits[0][0].id)
    4 added; found 0
    """

    kind: ClassVar[str] = "memory"
    in_folder: ClassVar[bool] = True
    in_memory: ClassVar[str | None] = "memory://"
    promises: ClassVar[Promises] = Promises.of_gallery("none")

    def __init__(self, place: str, database: SqliteDatabase, disk: Disk) -> None:
        self._loading = threading.Lock()  # one thread at a time updates the tables
        self._guard = threading.Lock()  # tables and pointer together; never held during disk access
        self._tables: dict[str, MemoryTable] = {}
        self._numbers: dict[str, int] = {}
        self._current = Pointer(0, {})
        self._known = {0: time.monotonic()}  # commits that a search may use, and when each was loaded
        lock: Lock = WriterLock(database) if place else ThreadLock()
        super().__init__(f"memory:{place or '//'}", GalleryLedger(database), lock, Path(place) if place else None)
        self.database, self.disk = database, disk
        self._rows = StoredRows(database)
        self.pointer()

    @classmethod
    def create(cls, place: str, disk: Disk) -> MemoryStore:
        """Create an empty gallery in a folder, or only in RAM if ``place`` is empty."""
        if place:
            return cls(place, create_folder(Path(place), cls.kind, disk, TABLES), disk)
        database = SqliteDatabase(":memory:", disk)
        GalleryLedger(database).create(cls.kind, TABLES)
        return cls(place, database, disk)

    @classmethod
    def open(cls, place: str, disk: Disk) -> MemoryStore:
        """Open the gallery in a folder."""
        if not place:
            raise GalleryError(
                "A gallery in RAM cannot be opened again.",
                expected="one that was created by this program; it ends with its process",
                to_do="create it with 'memory://', or keep one in a folder with 'memory:PATH'.",
            )
        return cls(place, open_folder(Path(place), disk), disk)

    def _start_anew(self) -> None:
        super()._start_anew()
        if self._loading.locked():
            self._unload()  # a thread that this process does not have was changing the tables
        self._loading, self._guard = threading.Lock(), threading.Lock()

    def _unload(self) -> None:
        """Drop the tables, so that they are read from the database again."""
        self._tables, self._numbers, self._known, self._current = {}, {}, {}, Pointer(-1, {})

    @classmethod
    def restore(cls, place: str, backup: DigestedFolder, contents: Contents, disk: Disk) -> None:
        """Create the gallery of a backup in a new or empty folder, see `restore_folder`."""
        if not place:
            raise GalleryError(
                "A gallery in RAM alone ends with its process.",
                expected="memory:FOLDER to restore a backup to",
                to_do="name a new folder; nothing was restored.",
            )
        restore_folder(Path(place), backup, contents, disk, cls.open)

    def pointer(self) -> Pointer:
        """Return the current pointer, after reading what another process may have written."""
        if self.ledger.sequence() != self._current.sequence:
            with self._loading, self._room():
                self._refresh()
        return self._current

    def commit(self, changes: Changes, manifest: Document, event: Document) -> Committed:
        """Apply changes, add the event to the journal, and update the pointer, see `Store.commit`."""
        plan = self.ledger.plan(changes)
        with self._loading:
            with self.database.transaction():
                self._must_be_writing()
                self._reached("memory.rows")
                self._rows.write(plan)
                self._reached("memory.read_back")
                self._rows.read_back(plan)
                self._rows.drop(changes.drop)
                committed = self.ledger.record(plan, changes, manifest, event, {})
            with self._room():
                self._apply(plan, changes, committed.pointer)
        return committed

    def _reached(self, point: str) -> None:
        with translated(self.url):
            self.disk.reached(point)

    def _apply(self, plan: CommitPlan, changes: Changes, pointer: Pointer) -> None:
        with self._updating():
            for generation in changes.create:
                self._tables[generation.name] = MemoryTable(generation.width, plan.sequence)
            for name, ids in plan.remove.items():
                self._tables[name].remove(ids, plan.sequence)
            for part in plan.append:
                rows = part.rows
                addition = Addition(rows.ids, self._numbered(rows.ids), part.versions, rows.vectors, part.metadata)
                self._tables[rows.generation].add(addition, plan.sequence)
            for name in changes.drop:
                self._tables[name].drop(plan.sequence)
            self._publish(pointer)

    @contextmanager
    def _room(self) -> Iterator[None]:
        """Report that the machine's memory does not suffice."""
        try:
            yield
        except MemoryError as error:
            raise StoreError(
                f"'{self.url}' finds no room in memory{f': {error}' if str(error) else ''}.",
                to_do="ask for fewer hits or queries at once, or keep the gallery in LanceDB or PostgreSQL. "
                "`limpet upgrade log` shows whether a commit is in it.",
                intact="The gallery is intact on disk.",
            ) from error

    @contextmanager
    def _updating(self) -> Iterator[None]:
        """Lock the tables while they change; if the change fails, all data is read from the database again."""
        with self._guard:
            try:
                yield
            except BaseException:
                self._unload()
                raise

    def _numbered(self, ids: Iterable[str]) -> NDArray[np.int64]:
        numbers = self._numbers
        return np.array([numbers.setdefault(identifier, len(numbers)) for identifier in ids], np.int64)

    def _publish(self, pointer: Pointer) -> None:
        """Update the pointer after the tables, and remove rows that only old pointers see once there are many."""
        self._current = pointer
        self._known[pointer.sequence] = time.monotonic()
        tables = self._tables.values()
        if sum(table.dead for table in tables) > max(_KEPT_ROWS, sum(len(table) for table in tables)):
            self._forget(_KEPT_SECONDS)

    def _forget(self, seconds: float) -> int:
        """Remove rows that no pointer younger than `seconds` sees; return the size of their vectors in bytes."""
        until = time.monotonic() - seconds
        oldest = max((sequence for sequence, when in self._known.items() if when <= until), default=min(self._known))
        self._known = {sequence: when for sequence, when in self._known.items() if sequence >= oldest}
        before = sum(table.bytes for table in self._tables.values())
        self._numbers = {}
        self._tables = {name: table.kept_since(oldest, self._numbered) for name, table in self._tables.items()}
        return before - sum(table.bytes for table in self._tables.values())

    def _refresh(self) -> None:
        with self.database.reading():
            pointer, _ = self.ledger.pointer()
            if pointer.sequence == self._current.sequence:
                return
            widths = {name: width for name, (width, _) in self.ledger.generations().items()}
            since, tables = self._current.sequence, {name: self._tables.get(name) for name in widths}
            gone = {name: self._rows.gone(name, since, table.places if table else {}) for name, table in tables.items()}
            new = {name: self._added(name, since, width) for name, width in widths.items()}
        with self._updating():
            for name in set(self._tables) - set(widths):
                self._tables[name].drop(pointer.sequence)
            for name, table in tables.items():
                if table is None or table.width != widths[name] or table.dropped <= pointer.sequence:
                    table = self._tables[name] = MemoryTable(widths[name], pointer.sequence)
                table.remove(gone[name], pointer.sequence)
                table.add(new[name], pointer.sequence)
            self._publish(pointer)

    def _added(self, generation: str, since: int, width: int) -> Addition:
        ids, versions, vectors, metadata = self._rows.added(generation, since, width)
        return Addition(ids, self._numbered(ids), versions, vectors, metadata)

    def search(
        self,
        queries: Vectors,
        k: int,
        *,
        generation: str,
        without: frozenset[str] = frozenset(),
        where: Filter | None = None,
        exact: bool = True,
        at: Pointer,
    ) -> Hits:
        """Find the rows with the largest inner products, see `Store.search`; always exact."""
        with self._guard:
            view = self._view(generation, at.sequence)
            others = tuple(self._view(name, at.sequence) for name in sorted(without))
        queries = checked_queries(queries, view.table.width, k)
        with self._room():
            found = view.best(queries, k, others, where)
            return Hits(
                [[view.ids[place] for place in places] for places, _ in found],
                [scores for _, scores in found],
                [[view.metadata[place] for place in places] for places, _ in found],
            )

    def keeps(self, sequence: int) -> bool:
        """Say whether this object has the rows of a commit."""
        return sequence in self._known

    def _view(self, generation: str, sequence: int) -> TableView:
        if sequence not in self._known:
            raise GalleryError(
                f"A search in '{self.url}' as of commit {sequence}.",
                expected=f"a pointer that this store returned, {min(self._known, default=0)} or later",
                to_do="ask for the pointer again.",
            )
        table = self._tables.get(generation)
        if table is None or not table.created <= sequence < table.dropped:
            raise unknown_generation(generation, self.ledger.generations())
        return table.view(sequence)

    def vectors(self, generation: str, ids: Sequence[str]) -> tuple[list[str], Vectors]:
        """Return the vectors of a generation among these ids, and their ids, in the order given."""
        pointer = self.pointer()
        with self._guard:
            view = self._view(generation, pointer.sequence)
            places = view.table.places
            rows = {identifier: places[identifier] for identifier in ids if identifier in places}
            return list(rows), view.vectors[list(rows.values())]

    def _now(self, generation: str) -> TableView:
        pointer = self.pointer()
        with self._guard:
            return self._view(generation, pointer.sequence)

    def scan_rows(
        self, generation: str, *, batch: int = 8192
    ) -> Iterator[tuple[list[str], NDArray[np.int64], Vectors]]:
        """Yield all rows of a generation: ids, versions of their items when written, vectors."""
        view = self._now(generation)
        places = np.flatnonzero(view.visible)
        for first in range(0, len(places), batch):
            rows = places[first : first + batch]
            yield [view.ids[row] for row in rows], view.versions[rows], view.vectors[rows]

    def build_index(self, generation: str, *, directions: bool = False) -> None:
        """Only check that the generation exists: every search compares all rows."""
        self._now(generation)

    def upkeep(self, generation: str) -> Upkeep:
        """Return rows and size of a generation; all rows count as indexed, since none needs an index."""
        table = self._now(generation).table
        return Upkeep(len(table), table.bytes, len(table))

    def damage(self) -> list[str]:
        """Read the file again, from the disk; return what cannot be read, a sentence each."""
        rows = [str(row[0]) for row in self.database.execute("PRAGMA integrity_check(10)")]
        return [f"The database '{self.database.path}' is damaged: {why}." for why in rows if why != "ok"]

    def waiting(self) -> int:
        """Return the bytes of vectors that only old pointers see, and of unused pages of the file."""
        with self._guard:
            dead = sum(table.dead * table.width for table in self._tables.values())
        return dead * np.dtype(np.float32).itemsize + self._unused()

    def _unused(self) -> int:
        [(pages,)], [(size,)] = (self.database.execute(f"PRAGMA {name}") for name in ("freelist_count", "page_size"))
        return int(pages * size)

    def tidy(self, *, older_than: float = 3600.0) -> Tidied:
        """Remove data that only old pointers see, and free unused pages of the file."""
        self.database.must_be_writable()
        with self._loading, self._guard:
            freed = self._forget(older_than)
        unused = self._unused()
        if unused:
            freed += unused
            self.database.execute("VACUUM")
            self.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Tidied(freed, self.waiting())

    def backup(self, into: DigestedFolder) -> Pointer:
        """Write all data of one pointer into an empty folder, see `Store.backup`."""
        with self.database.reading():
            pointer, _ = self.ledger.pointer()
            self._reached("memory.backup")
            self.database.copy_to(into.path / DATABASE, into.on_bytes)
        into.take(DATABASE)
        return pointer

    def close(self) -> None:
        """Close the file and drop the rows."""
        self.database.close()
        self._tables = {}
