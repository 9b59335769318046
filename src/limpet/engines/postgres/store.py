"""A gallery in PostgreSQL with pgvector: vectors, items, journal and pointer change in one transaction."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from limpet.engines.backup_files import Contents
from limpet.engines.checks import checked_queries
from limpet.engines.digested_folder import DigestedFolder
from limpet.engines.filters import Filter
from limpet.engines.ledger import GalleryLedger
from limpet.engines.ledger_store import LedgerStore
from limpet.engines.planning import CommitPlan, unknown_generation
from limpet.engines.postgres.address import Connection
from limpet.engines.postgres.backup import copy_in, copy_out
from limpet.engines.postgres.database import EXTENSION, PostgresDatabase, check_extension, translated
from limpet.engines.postgres.graphs import built, choose, chosen, definition, form_of, index_of, table_of
from limpet.engines.postgres.rows import ROWS, append, create_table, decoded, drop_table, read, read_back
from limpet.engines.postgres.schema import create_schema, gallery_database, is_there, missing
from limpet.engines.postgres.search import FoundRow, nearest
from limpet.engines.postgres.sharing import ConnectionLock, Snapshots
from limpet.engines.promises import Promises
from limpet.engines.store import Changes, Committed, Document, Graph, Hits, Pointer, Tidied, Upkeep, Vectors
from limpet.errors import GalleryError
from limpet.support.disk import Disk


class PgvectorStore(LedgerStore):
    """One schema of a PostgreSQL database: the ledger's tables, and a table of vectors for every generation.

    Use it when several machines read and write the gallery, or when a PostgreSQL server with pgvector is there already.

    >>> import numpy as np
    >>> from limpet import EmbeddingSet, Gallery
    >>> items, url = EmbeddingSet(np.eye(4, dtype=np.float32), model="v1"), "postgresql://shop@127.0.0.1:54320/shop?schema=live"
    >>> with Gallery.create(url, fingerprint=items.fingerprint, space=items.space) as gallery:  # doctest: +SKIP
    ...     print(gallery.add(items), "added; found", gallery.search(items[:1], k=1).hits[0][0].id)
    4 added; found 0
    """

    kind: ClassVar[str] = "postgresql"
    in_folder: ClassVar[bool] = False
    in_memory: ClassVar[str | None] = None
    promises: ClassVar[Promises] = Promises.of_gallery("graph")

    def __init__(self, database: PostgresDatabase, disk: Disk) -> None:
        super().__init__(database.address.url, GalleryLedger(database), ConnectionLock(database))
        self.database, self.disk = database, disk
        self._snapshots = Snapshots(database)

    @classmethod
    def create(cls, place: str, disk: Disk) -> PgvectorStore:
        """Create an empty gallery in a schema that is empty or does not exist.

        Raises:
            GalleryError: The schema is not empty, or the server lacks pgvector.
            StoreError: The server is unreachable, or refuses.
        """
        database = gallery_database(place, disk)
        try:
            create_schema(database, cls.kind, vectors=True)
            check_extension(database)
        except BaseException:
            database.close()
            raise
        return cls(database, disk)

    @classmethod
    def open(cls, place: str, disk: Disk) -> PgvectorStore:
        """Open the gallery in a schema.

        Raises:
            GalleryError: The gallery does not exist, or has another format version.
            StoreError: The server is unreachable, or refuses.
        """
        database = gallery_database(place, disk)
        try:
            if not is_there(database):
                raise missing(database)
            GalleryLedger(database).check_format(database.address.url)
            check_extension(database)
        except BaseException:
            database.close()
            raise
        return cls(database, disk)

    @classmethod
    def restore(cls, place: str, backup: DigestedFolder, contents: Contents, disk: Disk) -> None:
        """Create the gallery of a backup in a schema that is empty or does not exist, in one transaction.

        Raises:
            GalleryError: The schema is not empty, or the server lacks pgvector.
            StoreError: The server is unreachable, or refuses.
        """
        database = gallery_database(place, disk)
        with closing(database), database.transaction():
            create_schema(database, cls.kind, vectors=True)
            check_extension(database)
            copy_in(database, backup)
            rows = {name: database.execute(f"SELECT count(*) FROM {table_of(name)}")[0][0] for name in contents.rows}
            contents.compare(GalleryLedger(database).pointer()[0], rows)

    @property
    def durable(self) -> bool:
        """Whether the server is configured to keep acknowledged writes after a power failure."""
        names = ("fsync", "full_page_writes", "synchronous_commit")
        rows = self.database.execute("SELECT setting FROM pg_settings WHERE name = ANY(?)", [list(names)])
        return all(setting != "off" for (setting,) in rows)

    def pointer(self) -> Pointer:
        """Return the current pointer; this thread's next searches at it see exactly that commit for a few seconds."""
        if self._writer == threading.get_ident():
            return super().pointer()  # on the connection that holds the lock
        with self._snapshots.showing() as snapshot:
            pointer = super().pointer()
            self._snapshots.name(snapshot, pointer.commit)
            return pointer

    def commit(self, changes: Changes, manifest: Document, event: Document) -> Committed:
        """Apply changes, add the event to the journal, and update the pointer, see `Store.commit`."""
        self._must_be_writing()
        with self.database.transaction():
            self._reached("pgvector.begin")
            plan = self.ledger.plan(changes)
            if changes.create:
                self._snapshots.forget()  # else this thread might wait for itself to replace a table
            for generation in changes.create:
                self._reached("pgvector.create")
                create_table(self.database, generation)
            self._write(plan)
            self._reached("pgvector.record")
            return self.ledger.record(plan, changes, manifest, event, {})

    def _reached(self, point: str) -> None:
        with translated(self.url):
            self.disk.reached(point)

    def _write(self, plan: CommitPlan) -> None:
        if plan.remove:
            self._reached("pgvector.remove")
        for generation, ids in plan.remove.items():
            clause, value = self.database.dialect.among("id", ids)
            self.database.execute(f"DELETE FROM {table_of(generation)} WHERE {clause}", [value])
        for part in plan.append:
            self._reached("pgvector.append")
            append(self.database, part)
        for part in plan.append:
            self._reached("pgvector.read_back")
            read_back(self.database, part)

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
        """Find the rows with the largest inner products, see `Store.search`.

        Searches of the thread that requested the pointer see exactly that commit as long as they follow each other
        closely; later ones all see one commit, that one or a newer one.
        """
        with self._snapshots.showing(at.commit) as snapshot:
            if snapshot.commit != at.commit:
                self._refuse_unknown(at)
                self._snapshots.name(snapshot, at.commit)
            known = self.database.execute("SELECT name, bit, width FROM generations")
            widths = {name: int(width) for name, _, width in known}
            if generation not in widths:
                raise unknown_generation(generation, widths)
            found = nearest(
                self.database,
                checked_queries(queries, widths[generation], k),
                k,
                generation=generation,
                mask=sum(1 << int(bit) for name, bit, _ in known if name in without),
                where=where,
                exact=exact,
            )
        return _hits(found)

    def _refuse_unknown(self, at: Pointer) -> None:
        if not self.ledger.has(at.commit):
            raise GalleryError(
                f"Commit {at.sequence} of the gallery '{self.url}' is not what it was when its pointer was read.",
                expected=f"one up to {super().pointer().sequence}, the last one, that a server which took over has",
                to_do="ask for the pointer again.",
            )

    def vectors(self, generation: str, ids: Sequence[str]) -> tuple[list[str], Vectors]:
        """Return the vectors of a generation among these ids, and their ids, in the order given."""
        width = self._width(generation)
        found = {row[0]: row[2] for row in read(self.database, generation, ids)}
        there = [identifier for identifier in dict.fromkeys(ids) if identifier in found]
        return there, decoded([found[identifier] for identifier in there], width)

    def _width(self, generation: str) -> int:
        known = self.ledger.generations()
        if generation not in known:
            raise unknown_generation(generation, known)
        return known[generation][0]

    def scan_rows(
        self, generation: str, *, batch: int = 8192
    ) -> Iterator[tuple[list[str], NDArray[np.int64], Vectors]]:
        """Yield all rows of a generation: ids, versions of their items when written, vectors; from one snapshot."""
        width = self._width(generation)
        with self.database.streaming() as connection:
            with translated(self.url):
                connection.execute(f"DECLARE streamed CURSOR FOR {ROWS} {table_of(generation)}".encode())
            while rows := self._fetched(connection, batch):
                versions = np.array([row[1] for row in rows], np.int64)
                yield [row[0] for row in rows], versions, decoded([row[2] for row in rows], width)

    def _fetched(self, connection: Connection, batch: int) -> list[tuple[Any, ...]]:
        with translated(self.url):
            return connection.execute(f"FETCH {int(batch)} FROM streamed".encode(), binary=True).fetchall()

    @property
    def graph(self) -> Graph:
        """Parameters of approximate indexes."""
        return chosen(self.database)

    def choose_graph(self, graph: Graph) -> None:
        """Store the parameters of approximate indexes, see `Store.choose_graph`."""
        with self.writing("index"), self.database.transaction():
            choose(self.database, graph)

    def build_index(self, generation: str, *, directions: bool = False) -> None:
        """Build an approximate index (HNSW) over a generation; the database keeps it up to date afterwards.

        An index with other parameters than those of `choose_graph` is rebuilt. `form_of` defines what it holds.
        """
        width = self._width(generation)
        form, graph = form_of(width, directions=directions), chosen(self.database)
        if form is None:
            raise GalleryError(
                f"Vectors of {width:,} numbers, of which " + ("" if directions else "the length counts, and ")
                + "no approximate index of pgvector finds what is near.",
                expected="at most 2,000 numbers, or 16,000 on the hypersphere",
                to_do="search without an index: every vector is compared.",
            )  # fmt: skip
        there = built(self.database, generation)
        if there is None or (there.m, there.ef_construction) != (graph.m, graph.ef_construction):
            [(extension,)] = self.database.execute(f"SELECT {EXTENSION}")
            self._build(index_of(generation), definition(generation, form, graph, f"{extension}."))

    def _build(self, index: str, on: str) -> None:
        """Build an index, replacing one that was interrupted; searches continue meanwhile."""
        self._snapshots.forget()  # else the database would wait for this thread
        schema = self.database.address.schema
        self._reached("pgvector.index")
        self.database.alone(f'DROP INDEX CONCURRENTLY IF EXISTS "{schema}".{index}')
        self.database.alone(f'CREATE INDEX CONCURRENTLY {index} ON "{schema}".{on}')

    def upkeep(self, generation: str) -> Upkeep:
        """Return rows, size with all indexes, and the number of rows that the approximate index covers."""
        self._width(generation)
        table = table_of(generation)
        [(rows, size)] = self.database.execute(
            f"SELECT (SELECT count(*) FROM {table}), pg_total_relation_size(to_regclass(?))", [table]
        )
        return Upkeep(int(rows), int(size), int(rows) if built(self.database, generation) else 0)

    def waiting(self) -> int:
        """Return the bytes of tables of dropped generations; the database manages all other space."""
        rows = [self.database.execute("SELECT pg_total_relation_size(to_regclass(quote_ident(?)))", [table])
                for table in self._dropped()]  # fmt: skip
        return sum(int(size) for [(size,)] in rows)

    def tidy(self, *, older_than: float = 3600.0) -> Tidied:
        """Remove the tables of dropped generations, and clean up after removed rows.

        Args:
            older_than: Not used: the database itself keeps data that a reader could still see.
        """
        self._snapshots.forget()
        freed = 0
        if self._dropped():
            with nullcontext() if self._writer == threading.get_ident() else self.writing("tidy"):
                before = self._size()
                for table in self._dropped():
                    self._reached("pgvector.drop")
                    drop_table(self.database, table)
                freed = before - self._size()
        before = self._size()
        for table in self._tables():
            self.database.alone(f'VACUUM (ANALYZE) "{self.database.address.schema}"."{table}"')
        return Tidied(freed + max(0, before - self._size()), self.waiting())

    def _dropped(self) -> list[str]:
        known = {f"rows_{name}" for name in self.ledger.bits()}
        return [table for table in self._tables() if table.startswith("rows_") and table not in known]

    def _tables(self) -> list[str]:
        rows = self.database.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = to_regnamespace(?)",
            [self.database.address.schema],
        )
        return [str(name) for (name,) in rows]

    def _size(self) -> int:
        [(size,)] = self.database.execute(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class "
            "WHERE relkind = 'r' AND relnamespace = to_regnamespace(?)",
            [self.database.address.schema],
        )
        return int(size)

    def backup(self, into: DigestedFolder) -> Pointer:
        """Write all data of one pointer into an empty folder, see `Store.backup`; it blocks no other session."""
        with self.database.streaming() as connection, self.database.using(connection):
            pointer = super().pointer()
            self._reached("pgvector.backup")
            copy_out(self.database, sorted(set(self._tables()) - set(self._dropped())), into)
            return pointer

    def close(self) -> None:
        """Close all connections."""
        self._snapshots.close()
        self.database.close()


def _hits(found: Sequence[Sequence[FoundRow]]) -> Hits:
    return Hits(
        [[row[0] for row in rows] for rows in found],
        [np.array([row[1] for row in rows], np.float32) for rows in found],
        [[json.loads(row[2]) for row in rows] for rows in found],
    )
