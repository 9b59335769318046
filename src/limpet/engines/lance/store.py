"""A gallery in a folder: vectors in Lance tables, everything else in one SQLite file, which determines what exists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from limpet.engines.backup_files import Contents, restore_folder
from limpet.engines.checks import checked_queries
from limpet.engines.database import ClosableDatabase
from limpet.engines.digested_folder import DigestedFolder
from limpet.engines.filters import Filter
from limpet.engines.folder import create_folder, open_folder
from limpet.engines.lance.care import VECTOR_INDEX, index_vectors, merge
from limpet.engines.lance.files import SUFFIX, FolderFiles, TableFiles
from limpet.engines.lance.history import TABLES, PlaceHistory, versions_by_table
from limpet.engines.lance.leases import HeldCommits, Leases
from limpet.engines.lance.places import Remainder, TableVersion, TableVersions, edit_of_generation, edit_of_remainder
from limpet.engines.lance.rebuilding import rebuild_items
from limpet.engines.lance.rows import (
    Table,
    among,
    generation_of,
    indexed_rows,
    items_of,
    portions,
    vectors_of,
)
from limpet.engines.lance.search import nearest
from limpet.engines.lance.tables import AGAIN, LanceTables, refuse_forked, translated
from limpet.engines.ledger import GalleryLedger
from limpet.engines.ledger_store import LedgerStore, Lock
from limpet.engines.planning import CommitPlan, unknown_generation
from limpet.engines.promises import Promises
from limpet.engines.sqlite import DATABASE, SqliteDatabase, WriterLock
from limpet.engines.store import Changes, Commit, Committed, Document, GoneBack, Hits, Pointer, Tidied, Upkeep, Vectors
from limpet.errors import GalleryError, LastingStoreError
from limpet.support.disk import Disk, only_files

TRIMMED_EVERY = 32  # commits
KEPT_SECONDS = 5.0
"""Seconds for which a superseded commit stays searchable; data that is being read stays longer."""
_SPARED = 8  # last commits to keep at any age, for a repair if the disk damages the last one


class LanceTableStore(LedgerStore):
    """Vectors in Lance tables, everything else in a ledger, which determines what exists.

    Args:
        url: URL of the gallery, for messages.
        database: Database of the ledger; closed with the store.
        lock: Lock of the single writer.
        files: Files of the tables.
        leases: Commits that readers are still reading.
        disk: Makes files durable; notified of every step.
        folder: Folder of its files, if they are on this machine.
        clock: Clock of the ledger's server, in seconds; that of this machine if None.
    """

    def __init__(
        self,
        url: str,
        database: ClosableDatabase,
        lock: Lock,
        files: TableFiles,
        leases: HeldCommits,
        disk: Disk,
        *,
        folder: Path | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(url, GalleryLedger(database), lock, folder)
        self.database = database
        self._history = PlaceHistory(database, clock)
        self._leases = leases
        self._cleared = False
        self._tables = LanceTables(files, disk, self._make_certain)

    def pointer(self) -> Pointer:
        """Return the current pointer."""
        return self._current()[0]

    def _current(self) -> tuple[Pointer, TableVersions]:
        return self._history.current(self.ledger)

    def commit(self, changes: Changes, manifest: Document, event: Document) -> Committed:
        """Apply changes, add the event to the journal, and update the pointer, see `Store.commit`."""
        self._must_be_writing()
        plan = self.ledger.plan(changes)
        with self._without_traces():
            committed = self._record(plan, changes, manifest, event, self._write(plan, changes))
        if plan.sequence % TRIMMED_EVERY == 0:
            with suppress(GalleryError), translated(self.url):  # what cannot be removed now is removed next time
                self._trim(KEPT_SECONDS, _SPARED)
        return committed

    @contextmanager
    def _without_traces(self) -> Iterator[None]:
        """Ensure that a failure in the block has no effect; the next writer cleans up."""
        try:
            with translated(self.url, AGAIN):
                yield
        except BaseException:
            self._tables.forget()
            self._cleared = False
            raise

    def _record(
        self, plan: CommitPlan, changes: Changes, manifest: Document, event: Document, places: TableVersions
    ) -> Committed:
        with self.database.transaction():
            self._must_be_writing()
            committed = self.ledger.record(plan, changes, manifest, event, places.plain())
            self._history.write(plan.sequence, places)
        self._history.remember(committed.pointer.commit, places)
        return committed

    def _recover(self) -> None:
        """Remove what an interrupted writer left; a table that it changed is restored at its next change."""
        refuse_forked()
        if not self._cleared:
            with translated(self.url):
                self._tables.clear(versions_by_table([self._current()[1], *self._history.named().values()]))
            self._cleared = True

    def _make_certain(self) -> None:
        """Write to the ledger, so that a commit in progress cannot reappear after a power failure."""
        with self.database.transaction():
            self._must_be_writing()
            self.database.execute("UPDATE pointer SET one = one")

    def _write(self, plan: CommitPlan, changes: Changes) -> TableVersions:
        """Change tables, durably; return the new versions."""
        pointer, before = self._current()
        tables = dict(before.tables)
        tables |= {generation.name: self._tables.create(generation) for generation in changes.create}
        remainders = self._announced(changes, pointer, TableVersions(tables, before.remainders))
        tables = {name: place for name, place in tables.items() if name not in changes.drop}
        edits = {place: edit_of_generation(plan, name) for name, place in tables.items()}
        edits |= {place: edit_of_remainder(plan, pair) for pair, place in remainders.items()}
        edits = {place: edit for place, edit in edits.items() if edit}
        self._tables.edit(edits, [place for place in remainders.values() if place in edits])
        return _moved(TableVersions(tables, remainders), self._tables.settle())

    def _announced(self, changes: Changes, pointer: Pointer, places: TableVersions) -> dict[Remainder, TableVersion]:
        """Return the announced remainders, new ones as of before this commit."""
        wanted = places.remainders if changes.remainders is None else changes.remainders
        gone = set(changes.drop)
        pairs = [(name, others) for name, others in wanted if others and not gone & {name, *others}]
        return {pair: places.remainders.get(pair) or self._remainder(pair, pointer, places) for pair in pairs}

    def _remainder(self, pair: Remainder, pointer: Pointer, places: TableVersions) -> TableVersion:
        """Create the table of a remainder, from the table with the fewest rows that do not belong to it."""
        name, others = pair
        sources = {frozenset[str](): places.tables[name]}
        sources |= {one: place for (of, one), place in places.remainders.items() if of == name and one < others}
        less, source = min(sources.items(), key=lambda item: self._count(pointer, name, others, item[0]))
        place = self._tables.link(source, f"{name}_without_{'_'.join(sorted(others))}")
        if self._count(pointer, name, others, less):
            left = self._count(pointer, name, frozenset({name}), others)
            self._tables.leave_out(place, self._ids(name, others, less) if left else None)
        return place

    def _count(self, pointer: Pointer, name: str, any_of: frozenset[str], none_of: frozenset[str]) -> int:
        held = pointer.held.items()
        return sum(count for names, count in held if name in names and names & any_of and not names & none_of)

    def _ids(self, name: str, any_of: frozenset[str], none_of: frozenset[str]) -> list[str]:
        bits = self.ledger.bits()
        masks = [sum(bits.get(one, 0) for one in names) for names in ({name}, any_of, none_of)]
        condition = "mask & ? != 0 AND mask & ? != 0 AND mask & ? = 0"
        return [row[0] for row in self.database.execute(f"SELECT id FROM items WHERE {condition}", masks)]

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
        """Find the rows with the largest inner products, see `Store.search`."""
        with translated(self.url), self._kept(at.sequence):
            place = self._version(generation, without, at)
            schema = self._tables.schema(place)
            queries = checked_queries(queries, schema.field("vector").type.list_size, k)
            return nearest(self._tables.reader(place), schema, queries, k, where, exact=exact)

    def _kept(self, sequence: int) -> AbstractContextManager[object]:
        """Protect the data of a commit during a search; open files stay readable anyway."""
        return nullcontext()

    def keeps(self, sequence: int) -> bool:
        """Say whether the data of a commit exists."""
        return self._history.exists(sequence)

    def _version(self, generation: str, without: frozenset[str], at: Pointer) -> TableVersion:
        places = self._history.at(at.commit)
        place = _of(generation, places)
        if not without:
            return place
        if (generation, without) not in places.remainders:
            raise GalleryError(
                f"A search of generation '{generation}' without the items of {', '.join(sorted(without))}.",
                expected="one that a commit announced in its remainders",
                to_do="commit with this pair among the remainders.",
            )
        return places.remainders[generation, without]

    @contextmanager
    def _now(self, generation: str) -> Iterator[Table]:
        with translated(self.url), self._reading() as places:
            yield self._tables.reader(_of(generation, places))

    @contextmanager
    def _reading(self) -> Iterator[TableVersions]:
        """Protect the data of the pointer while the block runs."""
        while True:
            commit = self.pointer().commit
            if not commit.sequence:
                yield TableVersions()
                return
            with self._leases.held(commit.sequence):
                if self._history.exists(commit.sequence):
                    yield self._history.at(commit)
                    return

    def vectors(self, generation: str, ids: Sequence[str]) -> tuple[list[str], Vectors]:
        """Return the vectors of a generation among these ids, and their ids, in the order given."""
        with self._now(generation) as table:
            parts = [table.to_table(columns=["id", "vector"], filter=among(part)) for part in portions(ids)]
            width = table.schema.field("vector").type.list_size
            found = np.concatenate([vectors_of(part) for part in parts] or [np.empty((0, width), np.float32)])
        names = [identifier for part in parts for identifier in part.column("id").to_pylist()]
        rows = {identifier: row for row, identifier in enumerate(names)}
        kept = [identifier for identifier in dict.fromkeys(ids) if identifier in rows]
        return kept, found[[rows[identifier] for identifier in kept]]

    def scan_rows(
        self, generation: str, *, batch: int = 8192
    ) -> Iterator[tuple[list[str], NDArray[np.int64], Vectors]]:
        """Yield all rows of a generation as they are stored: ids, versions of their items when written, vectors."""
        with self._now(generation) as table:
            for one in table.scanner(columns=["id", "version", "vector"], batch_size=batch).to_batches():
                part = pa.Table.from_batches([one])
                yield part.column("id").to_pylist(), part.column("version").to_numpy(), vectors_of(part)

    def build_index(self, generation: str, *, directions: bool = False) -> None:
        """Build an approximate index over a generation, or update it; searches continue meanwhile."""
        self._care_for(generation, index_vectors)

    def keep_up(self, generation: str) -> None:
        """Merge the small fragments of many commits, which slow down searches; searches continue meanwhile."""
        self._care_for(generation, merge)

    def _care_for(self, generation: str, step: Callable[[Table], None]) -> None:
        with self.writing(f"upkeep of {generation}", timeout=60.0) as pointer:
            _of(generation, self._current()[1])
            self._care(pointer, {"kind": "index", "generation": generation}, [generation], step)

    def _care(self, pointer: Pointer, event: Document, names: Iterable[str], step: Callable[[Table], None]) -> None:
        """Apply a maintenance step that does not change rows, and let the pointer name the result, if any.

        Remainders are recreated from the new version, so that they get its indexes and merged fragments.
        """
        before = self._current()[1]
        with self._without_traces():
            for name in names:
                self._tables.care(before.tables[name], step)
            cared = _moved(before, self._tables.settle())
            moved = {name for name, place in cared.tables.items() if place != before.tables[name]}
            if not moved:
                return
            again = {pair: self._remainder(pair, pointer, cared) for pair in before.remainders if pair[0] in moved}
            places = _moved(replace(cared, remainders={**before.remainders, **again}), self._tables.settle())
            none = Changes()
            self._record(self.ledger.plan(none), none, pointer.manifest, event, places)

    def upkeep(self, generation: str) -> Upkeep:
        """Return the physical state of a generation, with the remainders of it."""
        with translated(self.url), self._reading() as places:
            place = _of(generation, places)
            table = self._tables.reader(place)
            own = [place, *(one for (name, _), one in places.remainders.items() if name == generation)]
            return Upkeep(table.count_rows(), self._tables.size(own), indexed_rows(table, VECTOR_INDEX))

    def damage(self) -> list[str]:
        """Read all data of the pointer again, from the disk; return what cannot be read, a sentence each."""
        with self._reading() as places:
            wrong = {place.table: self._tables.damage(place) for place in places}
        return [f"The table '{table}' cannot be read: {why}" for table, why in wrong.items() if why]

    def last_whole(self) -> int | None:
        """Return the number of the newest completely readable commit; None if no commit is kept."""
        looked_at: dict[TableVersion, str] = {}
        for sequence, places in sorted(self._history.named().items(), reverse=True):
            new = [place for place in places if place not in looked_at]
            looked_at |= {place: self._tables.damage(place) for place in new}
            if not any(looked_at[place] for place in places):
                return sequence
        return None

    def go_back(self, sequence: int, manifest: Document, event: Document) -> GoneBack:
        """Restore rows and items to an earlier commit, as a new commit; only inside `writing`."""
        self._must_be_writing()
        places, none = self._history.at(Commit(sequence, 0.0)), Changes()
        plan = self.ledger.plan(none)
        with self._without_traces(), self.database.transaction():
            self.ledger.record(plan, none, manifest, event, places.plain())
            self._history.write(plan.sequence, places)
            tables = {name: self._tables.reader(place) for name, place in places.tables.items()}
            rows = [(generation_of(name, table), items_of(table)) for name, table in tables.items()]
            return rebuild_items(self.ledger, sequence, rows)

    def waiting(self) -> int:
        """Return the bytes of files that the gallery no longer needs."""
        with translated(self.url), self._reading() as places:
            return max(0, self._tables.files.total_size() - self._tables.size(places))

    def tidy(self, *, older_than: float = 3600.0) -> Tidied:
        """Merge small fragments and remove data that no pointer has named for `older_than` seconds."""
        with self.writing("tidying") as pointer, translated(self.url):
            before = self._tables.files.total_size()
            self._care(pointer, {"kind": "tidy"}, self._current()[1].tables, merge)
            self._trim(older_than, 0)
            for place in self._current()[1]:
                self._refuse_damage(place)
            after = self._tables.files.total_size()
            return Tidied(max(0, before - after), after - self._tables.size(self._current()[1]))

    def _trim(self, older_than: float, spared: int) -> None:
        """Remove data of commits superseded at least this long ago, unless they are being read."""
        self._make_certain()
        leased = self._leases.sequences()
        forgotten = self._history.forget(older_than, spared, leased)
        with self.database.transaction():
            for sequence in (
                forgotten.keys() & self._leases.sequences()
            ):  # of readers that started meanwhile, see `_reading`
                self._history.write(sequence, forgotten[sequence])
        versions = versions_by_table([self._current()[1], *self._history.named().values()])
        self._tables.clear(versions)
        self._tables.prune(versions)

    def _refuse_damage(self, place: TableVersion) -> None:
        wrong = self._tables.damage(place)
        if wrong:
            raise LastingStoreError(
                f"The table '{place.table}' cannot be read: {wrong}",
                to_do="`limpet doctor --repair` goes back to the last commit that is whole.",
            )

    def close(self) -> None:
        """Close files and tables."""
        self._tables.close()
        self.database.close()


class LanceStore(LanceTableStore):
    """Vectors in Lance tables; readers in any process see exactly the versions that the pointer names.

    Use it for galleries on one machine that are larger than memory, with approximate indexes. It is the default.

    Args:
        disk: Makes files durable; every step reaches it.

    >>> from tempfile import mkdtemp
    >>> import numpy as np
    >>> from limpet import EmbeddingSet, Gallery
    >>> items, url = EmbeddingSet(np.eye(4, dtype=np.float32), model="v1"), f"lance:{mkdtemp()}/live"
    >>> with Gallery.create(url, fingerprint=items.fingerprint, space=items.space) as gallery:
    ...     print(gallery.add(items), "added; found", gallery.search(items[:1], k=1).hits[0][0].id)
    4 added; found 0
    """

    kind: ClassVar[str] = "lance"
    in_folder: ClassVar[bool] = True
    in_memory: ClassVar[str | None] = None
    promises: ClassVar[Promises] = Promises.of_gallery("clusters")
    folder: Path

    def __init__(self, place: str, database: SqliteDatabase, disk: Disk) -> None:
        folder = Path(place)
        files, leases = FolderFiles(folder, disk), Leases(folder)
        super().__init__(f"lance:{place}", database, WriterLock(database), files, leases, disk, folder=folder)
        self._file = database

    @classmethod
    def create(cls, place: str, disk: Disk) -> LanceStore:
        """Create an empty gallery in a folder."""
        return cls(place, create_folder(Path(place), cls.kind, disk, TABLES), disk)

    @classmethod
    def open(cls, place: str, disk: Disk) -> LanceStore:
        """Open the gallery in a folder."""
        with translated(place):
            only_files(Path(place), deep=True)  # LanceDB would block on a pipe
        return cls(place, open_folder(Path(place), disk), disk)

    @classmethod
    def restore(cls, place: str, backup: DigestedFolder, contents: Contents, disk: Disk) -> None:
        """Create the gallery of a backup in a new or empty folder, see `restore_folder`."""
        restore_folder(Path(place), backup, contents, disk, cls.open)

    def backup(self, into: DigestedFolder) -> Pointer:
        """Write all data of one pointer into an empty folder, see `Store.backup`."""
        with translated(self.url):
            while True:
                with self._reading() as places, self._file.reading():
                    pointer, plain = self.ledger.pointer()
                    if TableVersions.read(plain) == places:  # otherwise another process committed in between
                        self._copy(places, pointer, into)
                        return pointer

    def _copy(self, places: TableVersions, pointer: Pointer, into: DigestedFolder) -> None:
        for place in places:
            for file in self._tables.files_of(place):
                name = f"{place.table}{SUFFIX}/{file}"
                into.copy(self.folder / name, name)
        self._file.copy_to(into.path / DATABASE, into.on_bytes)  # last: a folder without it is no gallery
        with closing(SqliteDatabase(into.path / DATABASE, into.disk)) as copy:
            PlaceHistory(copy).forget_before(pointer.sequence)  # which names tables that are not copied
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        into.take(DATABASE)


def _of(generation: str, places: TableVersions) -> TableVersion:
    if generation not in places.tables:
        raise unknown_generation(generation, places.tables)
    return places.tables[generation]


def _moved(places: TableVersions, settled: Mapping[str, TableVersion]) -> TableVersions:
    return TableVersions(
        {name: settled.get(place.table, place) for name, place in places.tables.items()},
        {pair: settled.get(place.table, place) for pair, place in places.remainders.items()},
    )
