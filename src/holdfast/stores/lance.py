"""A gallery in a folder: vectors in Lance tables, everything else in one SQLite file, which alone says what exists."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.errors import GalleryError
from holdfast.stores.base import Changes, Committed, Hits, Pointer, Upkeep, Vectors
from holdfast.stores.checks import checked_queries
from holdfast.stores.disk import Disk
from holdfast.stores.filters import Filter
from holdfast.stores.folder import create_folder, open_folder
from holdfast.stores.lance_care import index_vectors, indexed_rows, merge
from holdfast.stores.lance_history import History
from holdfast.stores.lance_places import Place, Places, Remainder, edit_of_generation, edit_of_remainder
from holdfast.stores.lance_rows import Table, among, index_ids, portions, vectors_of
from holdfast.stores.lance_search import nearest
from holdfast.stores.lance_tables import INTACT, LanceTables, translated
from holdfast.stores.ledger import Ledger
from holdfast.stores.ledger_store import LedgerStore
from holdfast.stores.planning import Plan, unknown_generation
from holdfast.stores.sqlite import LOCK, SqliteDatabase, WriterLock


class LanceStore(LedgerStore):
    """Vectors in Lance tables; readers in any process see exactly the versions that the pointer names.

    Args:
        place: The folder.
        database: Of the ledger.
        disk: Makes files durable, and is told of every step.
    """

    kind: ClassVar[str] = "lance"

    def __init__(self, place: str, database: SqliteDatabase, disk: Disk) -> None:
        super().__init__(f"lance:{place}", Ledger(database), WriterLock(Path(place) / LOCK))
        self.database = database
        self._history = History(database)
        self._cleared = self._wrote = False
        with translated(self.url):
            self._tables = LanceTables(Path(place), disk)

    @classmethod
    def create(cls, place: str, disk: Disk) -> LanceStore:
        """Create an empty gallery in a folder."""
        return cls(place, create_folder(Path(place), cls.kind, disk), disk)

    @classmethod
    def open(cls, place: str, disk: Disk) -> LanceStore:
        """Open the gallery in a folder, after repairing what a power failure left."""
        store = cls(place, open_folder(Path(place), disk), disk)
        try:
            store._repair()
        except BaseException:
            store.close()
            raise
        return store

    def _repair(self) -> None:
        """Let Lance open tables again whose last version was torn by a power failure before it counted."""
        if not all(self._tables.opens(place) for place in self._current()[1]):
            with translated(self.url), self._lock.held("repairing after a power failure", 60.0):
                self._tables.repair(self._current()[1], wrote=False)

    def pointer(self) -> Pointer:
        """Return what exists now."""
        return self._current()[0]

    def _current(self) -> tuple[Pointer, Places]:
        return self._history.current(self.ledger)

    def commit(self, changes: Changes, manifest: Mapping[str, Any], event: Mapping[str, Any]) -> Committed:
        """Apply changes, add the event to the journal, and move the pointer, see `Store.commit`."""
        self._must_be_writing()
        plan = self.ledger.plan(changes)
        with self._without_traces():
            return self._record(plan, changes, manifest, event, self._write(plan, changes))

    @contextmanager
    def _without_traces(self) -> Iterator[None]:
        """Whatever fails inside has changed nothing that counts; the next writer clears it away."""
        try:
            with translated(self.url, INTACT):
                yield
        except BaseException:
            self._tables.forget()
            self._cleared = False
            raise

    def _record(
        self, plan: Plan, changes: Changes, manifest: Mapping[str, Any], event: Mapping[str, Any], places: Places
    ) -> Committed:
        """Move the pointer to these places."""
        with self.database.transaction():
            committed = self.ledger.record(plan, changes, manifest, event, places.plain())
            self._history.write(plan.sequence, places)
        self._history.remember(plan.sequence, places)
        return committed

    def _recover(self) -> None:
        """Remove what an interrupted writer left; a table that it changed is brought back when it changes again."""
        if not self._cleared:
            with translated(self.url):
                self._tables.repair(self._current()[1], wrote=self._wrote)
                self._tables.clear({place.lineage for place in self._history.named(self.ledger)})
            self._cleared = self._wrote = True

    def _write(self, plan: Plan, changes: Changes) -> Places:
        """Change tables and branches, durably; return where the rows are then."""
        pointer, before = self._current()
        tables = dict(before.tables)
        tables |= {generation.name: self._tables.create(generation) for generation in changes.create}
        fresh = {name for name, _ in set(changes.remainders or ()) - set(before.remainders)}
        tables |= {name: self._tables.care(tables[name], index_ids) for name in sorted(fresh)}  # for the branches, too
        remainders = self._announced(changes, pointer, Places(tables, before.remainders))
        tables = {name: place for name, place in tables.items() if name not in changes.drop}
        edits = {place: edit_of_generation(plan, name) for name, place in tables.items()}
        edits |= {place: edit_of_remainder(plan, pair) for pair, place in remainders.items()}
        moved = self._tables.change({place: edit for place, edit in edits.items() if edit})
        return Places(
            {name: moved.get(place, place) for name, place in tables.items()},
            {pair: moved.get(place, place) for pair, place in remainders.items()},
        )

    def _announced(self, changes: Changes, pointer: Pointer, places: Places) -> dict[Remainder, Place]:
        """Return the remainders that there are to be, the new ones as of before this commit."""
        wanted = places.remainders if changes.remainders is None else changes.remainders
        gone = set(changes.drop)
        pairs = [(name, others) for name, others in wanted if others and not gone & {name, *others}]
        return {pair: places.remainders.get(pair) or self._remainder(pair, pointer, places) for pair in pairs}

    def _remainder(self, pair: Remainder, pointer: Pointer, places: Places) -> Place:
        """Make the branch of a remainder, from whatever has the fewest rows that do not belong to it."""
        name, others = pair
        sources = {frozenset[str](): places.tables[name]}
        sources |= {one: place for (of, one), place in places.remainders.items() if of == name and one < others}
        less, source = min(sources.items(), key=lambda item: self._count(pointer, name, others, item[0]))
        place = self._tables.fork(source, "without_" + "_".join(sorted(others)))
        if not self._count(pointer, name, others, less):
            return place
        left = self._count(pointer, name, frozenset({name}), others)
        return self._tables.leave_out(place, self._ids(name, others, less) if left else None)

    def _count(self, pointer: Pointer, name: str, any_of: frozenset[str], none_of: frozenset[str]) -> int:
        """Return how many items have a vector in a generation, and in some, and in none of others."""
        held = pointer.held.items()
        return sum(count for names, count in held if name in names and names & any_of and not names & none_of)

    def _ids(self, name: str, any_of: frozenset[str], none_of: frozenset[str]) -> list[str]:
        """Return the items that `_count` counts."""
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
        with translated(self.url):
            place = self._place(generation, without, at.sequence)
            schema = self._tables.schema(place)
            queries = checked_queries(queries, schema.field("vector").type.list_size, k)
            return nearest(self._tables.reader(place), schema, queries, k, where, exact=exact)

    def _place(self, generation: str, without: frozenset[str], sequence: int) -> Place:
        places = self._history.at(sequence)
        if generation not in places.tables:
            raise unknown_generation(generation, places.tables)
        if not without:
            return places.tables[generation]
        if (generation, without) not in places.remainders:
            raise GalleryError(
                f"A search of generation '{generation}' without the items of {', '.join(sorted(without))}.",
                expected="one that a commit announced in its remainders",
                to_do="commit with this pair among the remainders. The gallery is intact.",
            )
        return places.remainders[generation, without]

    def _now(self, generation: str) -> Table:
        """Return the table of a generation as it is now."""
        return self._tables.reader(self._place(generation, frozenset(), self.pointer().sequence))

    def vectors(self, generation: str, ids: Sequence[str]) -> tuple[list[str], Vectors]:
        """Return the vectors among these ids that a generation has, and their ids, in the order given."""
        with translated(self.url):
            table = self._now(generation)
            parts = [table.search().where(among(part)).select(["id", "vector"]).limit(len(part)).to_arrow()
                     for part in portions(ids)]  # fmt: skip
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
        with translated(self.url):
            table = self._now(generation)
            for one in table.search().select(["id", "version", "vector"]).to_batches(batch):
                part = pa.Table.from_batches([one])
                yield part.column("id").to_pylist(), part.column("version").to_numpy(), vectors_of(part)

    def build_index(self, generation: str) -> None:
        """Build an approximate index over a generation, or bring it up to date; searches go on meanwhile."""
        self._care_for(generation, index_vectors)

    def keep_up(self, generation: str) -> None:
        """Merge the small pieces that many commits left, which cost every search; searches go on meanwhile."""
        self._care_for(generation, merge)

    def _care_for(self, generation: str, step: Callable[[Table], None]) -> None:
        with self.writing(f"upkeep of {generation}", timeout=60.0) as pointer:
            self._place(generation, frozenset(), pointer.sequence)
            self._care(pointer, {"kind": "index", "generation": generation}, [generation], step)

    def _care(
        self, pointer: Pointer, event: Mapping[str, Any], names: Iterable[str], step: Callable[[Table], None]
    ) -> None:
        """Do something to tables that leaves their rows as they are, and let the pointer name the result, if any.

        Remainders are made again from the new version, so that they get its indexes and its few pieces.
        """
        before = self._current()[1]
        with self._without_traces():
            tables = {name: self._tables.care(before.tables[name], step) for name in names}
            moved = {name for name, place in tables.items() if place != before.tables[name]}
            if not moved:
                return
            places = Places({**before.tables, **tables})
            remainders = {
                pair: self._remainder(pair, pointer, places) if pair[0] in moved else place
                for pair, place in before.remainders.items()
            }
            self._tables.sync()
            none = Changes()
            self._record(self.ledger.plan(none), none, pointer.manifest, event, replace(places, remainders=remainders))

    def upkeep(self, generation: str) -> Upkeep:
        """Return the physical state of a generation."""
        with translated(self.url):
            place = self._place(generation, frozenset(), self.pointer().sequence)
            table = self._tables.reader(place)
            return Upkeep(table.count_rows(), self._tables.size(place.table), indexed_rows(table))

    def tidy(self, *, older_than: float = 3600.0) -> int:
        """Merge small pieces and remove what no pointer has named for so many seconds; return bytes freed."""
        with self.writing("tidying") as pointer, translated(self.url):
            before = self._tables.total_size()
            self._care(pointer, {"kind": "tidy"}, self._current()[1].tables, merge)
            self._history.forget(time.time() - older_than)
            named = list(self._history.named(self.ledger))
            self._tables.clear({place.lineage for place in named})
            self._tables.prune(named)
            return max(0, before - self._tables.total_size())

    def close(self) -> None:
        """Let go of files and tables."""
        self._tables.close()
        self.database.close()
