"""Backfill of rows while an application writes: in small transactions, and the application's writes win.

A batch of keys is handed out with the time at which the application last changed each row. Vectors are made while no
transaction is open. They are written into those rows that have not changed since they were handed out. Rows that
another transaction has locked are skipped to avoid deadlocks; the next pass fills them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limpet.attached.postgres.layout import (
    AnyLayout,
    Aside,
    Layout,
    OneColumn,
    arrays,
    given,
    held,
    key_texts,
    keys,
    same_key,
)
from limpet.attached.postgres.ledger import SCHEMA, TableEntry, TableLedger
from limpet.attached.postgres.rows import id_of
from limpet.attached.postgres.table import FIRING
from limpet.embeddings import EmbeddingSet
from limpet.engines.postgres.database import RETRIES, PostgresDatabase, Result, Row
from limpet.engines.sides import ModelSide
from limpet.errors import LastingStoreError, LockedError, StoreError
from limpet.upgrade.filling import Fillable, FillOptions, LeftOut, check_source
from limpet.upgrade.vector_sources import VectorSource

_LOCK_TIMEOUT = 5.0  # seconds; a swap holds the table for less
ASIDE_TIMEOUT = 0.4  # seconds to wait for rows of the side table: less than deadlock_timeout, so that we give way
FORGOTTEN = 1000  # maximum number of rows whose marks one transaction removes
HELD = 0.02  # seconds that a transaction should take to write its rows, since the application waits for them
HELD_AT_A_SHARE = 0.005  # seconds, where the speed of the application counts more than an early end
_FEWEST = 16  # minimum rows of a transaction, and rows of the first one
WORTH = 0.75  # half as many rows must take at most this share of the time; otherwise shrinking does not help
KNOWN_FOR = 50  # transactions after which the measured time of another size is outdated


class KeyBatch(NamedTuple):
    """Rows to fill.

    Args:
        keys: Keys of the rows, one text per column.
        stamps: Text of each row that shows whether it has changed since, see `Layout`.
    """

    keys: list[list[str]]
    stamps: list[str]

    @property
    def ids(self) -> list[str]:
        """Ids of the rows outside of the table."""
        return [id_of(key) for key in self.keys]

    def select(self, rows: Sequence[int]) -> KeyBatch:
        """Return some of the rows, in the order given."""
        return KeyBatch([self.keys[row] for row in rows], [self.stamps[row] for row in rows])


class Portions:
    """Number of rows that a transaction writes, adapted to how long earlier ones held their locks.

    It is halved if the time is too long, unless half as many rows are locked for hardly less time: on a busy server
    most of the time is spent waiting. It is doubled if that takes hardly longer, and grows more if the time is
    far too short.

    Args:
        held: Target seconds for which rows are locked.
    """

    def __init__(self, most: int, held: float) -> None:
        self.rows = min(most, _FEWEST)
        self._most, self._held, self._number = most, held, 0
        self._took: dict[int, tuple[float, int]] = {}

    @property
    def tried(self) -> bool:
        """Whether the lock time of a portion of this size is known."""
        return self._known(self.rows) is not None

    def _known(self, rows: int) -> float | None:
        """Return the recent lock time of a portion of this size; None if unknown."""
        seconds, number = self._took.get(rows, (0.0, -KNOWN_FOR))
        return seconds if self._number - number < KNOWN_FOR else None

    def took(self, rows: int, seconds: float) -> None:
        """Record how long a transaction held its locks; ignored for another size than the present one."""
        if rows != self.rows:
            return
        before = self._known(rows)
        now = seconds if before is None else (before + seconds) / 2
        self._number += 1
        self._took[rows] = now, self._number
        more, fewer = min(self._most, 2 * rows), max(min(self._most, _FEWEST), rows // 2)
        shorter, longer = (self._known(one) for one in (fewer, more))
        helps = fewer < rows and (shorter is None or shorter <= WORTH * now)
        if now <= self._held / 2:
            while self.rows < self._most and now * self.rows / rows <= self._held / 2:
                self.rows = min(self._most, 2 * self.rows)
        elif not helps and (longer is None or longer * WORTH <= now):
            self.rows = more
        elif now > self._held and helps:
            self.rows = fewer


def read_batch(
    database: PostgresDatabase,
    entry: TableEntry,
    layout: Layout,
    side: ModelSide,
    limit: int,
    *,
    after: Sequence[str] | None = None,
    upto: Sequence[str] | None = None,
    made: datetime | None = None,
    condition: str = "",
) -> KeyBatch:
    """Return rows that lack a vector, in the order of their keys; within a transaction.

    Args:
        database: Connection to the database.
        entry: The attachment as it is in this transaction.
        layout: Layout of the attachment.
        side: Model whose vector is lacking.
        limit: Maximum number of rows.
        after: Return only rows after this key.
        upto: Return only rows up to this key.
        made: Return only rows that the application has not changed after this time.
        condition: SQL condition that selects rows instead of those that lack a vector.
    """
    record = entry.record
    conditions, values = [condition or layout.lacking(side)], list[object]()
    given = ", ".join(f"%s::text::{column.type}" for column in record.table.key)
    for sign, key in ((">", after), ("<=", upto)):
        if key is not None:
            conditions.append(f"({keys(record)}) {sign} ({given})")
            values += key
    if made is not None:
        conditions.append(f"{layout.edited} <= %s")
        values.append(int(1_000_000 * made.timestamp()))
    rows = database.rows(
        f"SELECT {key_texts(record)}, {layout.stamp} FROM {layout.rows} WHERE {' AND '.join(conditions)} "
        f"ORDER BY {keys(record)} LIMIT {int(limit)}", values,
    )  # fmt: skip
    return KeyBatch([[str(part) for part in row[:-1]] for row in rows], [row[-1] for row in rows])


def last_key(database: PostgresDatabase, entry: TableEntry, layout: Layout) -> list[str] | None:
    """Return the largest key of the table, None if it is empty; within a transaction."""
    largest = ", ".join(f"{one} DESC" for one in keys(entry.record).split(", "))
    rows = database.rows(f"SELECT {key_texts(entry.record)} FROM {layout.relation} AS t ORDER BY {largest} LIMIT 1")
    return [str(part) for part in rows[0]] if rows else None


def write_batch(
    database: PostgresDatabase,
    entry: TableEntry,
    layout: Layout,
    side: ModelSide,
    batch: KeyBatch,
    vectors: NDArray[np.float32],
) -> Callable[[], list[Row] | None]:
    """Write vectors into rows that are as they were read; within a transaction.

    Returns:
        See `PostgresDatabase.send`: one row with how many were written, and in how many seconds.
    """
    unnoticed(database, entry)
    values = [*arrays(entry.record, batch.keys), batch.stamps, list(vectors)]
    seconds = "extract(epoch FROM clock_timestamp() - statement_timestamp())::float8"  # by the clock of the server
    return database.send(
        f"WITH done AS ({layout.write(side)} RETURNING 1) SELECT count(*), {seconds} FROM done", values
    )


def written_keys(
    database: PostgresDatabase,
    entry: TableEntry,
    layout: Layout,
    side: ModelSide,
    batch: KeyBatch,
    vectors: NDArray[np.float32],
) -> set[tuple[str, ...]]:
    """Return the keys of rows that hold exactly these vectors; within a transaction. See `write_batch`."""
    record = entry.record
    kind = record.new_type if side == "new" else record.table.vector.type
    rows = database.rows(
        f"SELECT {key_texts(record)} FROM {layout.rows} JOIN {given(record, ('made', 'vector'))} ON "
        f"{same_key(record, 't', 'd')} WHERE record_image_eq(ROW({layout.current(side)}), ROW(d.made::{kind}))",
        [*arrays(record, batch.keys), list(vectors)],
    )
    return {tuple(str(part) for part in row) for row in rows}


def unnoticed(database: PostgresDatabase, entry: TableEntry) -> None:
    """Mark writes of this transaction as ours: they do not count as the application's, nor fire its triggers."""
    record = entry.record
    database.send("SELECT set_config('limpet.filling', 'on', true)")
    if not record.aside and not record.fires:
        database.send(f"SELECT set_config('session_replication_role', 'replica', true) WHERE EXISTS ({FIRING})",
                     [record.table.oid, record.table.vector.number])  # fmt: skip


class TableFacts(NamedTuple):
    """The properties of a table that a transaction relies on, and checks before it reads or writes a row.

    Args:
        seal: A digest of the ledger's entry and of the names and types of the table's columns.
    """

    entry: TableEntry
    layout: AnyLayout
    seal: str

    @classmethod
    def read(cls, database: PostgresDatabase, number: int) -> TableFacts:
        """Read the current properties, see `held`."""
        with database.transaction(_LOCK_TIMEOUT):
            entry, layout = held(database, number)
            [(seal,)] = database.rows(f"SELECT {_seal(entry)}")
        return cls(entry, layout, str(seal))

    def lock(self, database: PostgresDatabase, mode: str = "ACCESS SHARE") -> None:
        """Lock the table as `held` does, without waiting for a response; within a transaction.

        A changed table fails the transaction: a failing cast is how a statement can do that.
        """
        if self.entry.record.shared and mode == "ROW EXCLUSIVE":
            TableLedger(database).hold(self.entry.id)
        mode = "ACCESS SHARE" if self.entry.record.aside else mode
        database.send(f"LOCK TABLE {self.layout.relation} IN {mode} MODE")
        database.send(
            f"SELECT (CASE WHEN {_seal(self.entry)} = %s THEN NULL ELSE 'changed' END)::text::uuid", [self.seal]
        )


def _seal(entry: TableEntry) -> str:
    oid = f"{entry.record.table.oid}::oid"
    return (
        f"(SELECT md5(concat_ws(' ', record, state, (SELECT concat_ws('.', relnamespace::regnamespace, relname) "
        f"FROM pg_class WHERE pg_class.oid = {oid}), (SELECT string_agg(concat_ws(' ', attnum, attname, atttypid, "
        f"atttypmod), ',' ORDER BY attnum) FROM pg_attribute WHERE attrelid = {oid} AND attnum > 0 "
        f"AND NOT attisdropped))) FROM {SCHEMA}.attachments WHERE id = {entry.id})"
    )


def forget_unseen(database: PostgresDatabase, entry: TableEntry, layout: Layout) -> int:
    """Remove the marks of rows changed without our triggers, and return their number; within a transaction.

    Every text and vector is read. No such rows remain if the number is less than `FORGOTTEN`.
    """
    unnoticed(database, entry)
    same = same_key(entry.record, "t", "s")
    if isinstance(layout, Aside):
        database.rows(
            f"DELETE FROM {layout.table} AS s WHERE NOT EXISTS (SELECT FROM {layout.relation} AS t WHERE {same})"
        )
        database.rows(f"UPDATE {layout.table} AS s {layout.forget} FROM {layout.relation} AS t WHERE {same} "
                     f"AND {layout.unseen}")  # fmt: skip
        return 0
    return database.count(
        f"WITH s AS MATERIALIZED (SELECT {keys(entry.record)} FROM {layout.rows} WHERE {layout.unseen} "
        f"ORDER BY {keys(entry.record)} LIMIT {FORGOTTEN} FOR NO KEY UPDATE OF t) "
        f"UPDATE {layout.relation} AS t {layout.forget} FROM s WHERE {same}"
    )


def forget_rows(
    database: PostgresDatabase, entry: TableEntry, layout: Layout, batch: KeyBatch, ids: Collection[str]
) -> list[str]:
    """Remove the marks of given rows that are unchanged since they were read; return their ids; in a transaction."""
    if isinstance(layout, Aside) or not ids:
        return []
    unnoticed(database, entry)
    rows = [row for row, identifier in enumerate(batch.ids) if identifier in ids]
    found = database.rows(
        f"WITH s AS MATERIALIZED (SELECT {keys(entry.record)} FROM {layout.rows} JOIN "
        f"{given(entry.record, ('stamp', 'text'))} ON {same_key(entry.record, 't', 'd')} "
        f"WHERE {layout.stamp} = d.stamp FOR NO KEY UPDATE OF t) UPDATE {layout.relation} AS t {layout.forget} FROM s "
        f"WHERE {same_key(entry.record, 't', 's')} RETURNING {key_texts(entry.record)}",
        [*arrays(entry.record, [batch.keys[row] for row in rows]), [batch.stamps[row] for row in rows]],
    )
    return sorted(id_of([str(part) for part in row]) for row in found)


def put_back_batch(
    database: PostgresDatabase, entry: TableEntry, layout: Layout, limit: int | None, after: Sequence[str] | None = None
) -> tuple[int, list[str]]:
    """Put kept vectors of the remaining model into the column that both models share; within a transaction.

    Args:
        database: Connection to the database.
        entry: The attachment as it is in this transaction.
        layout: Layout of the attachment.
        limit: Maximum number of rows; locked rows are skipped. None for all rows.
        after: Change only rows after this key.

    Returns:
        Number of changed rows, and the largest key of them; no rows if each model has a place of its own.
    """
    if not isinstance(layout, OneColumn):
        return 0, []
    unnoticed(database, entry)
    found = database.rows(layout.put_back(limit, after is not None), after or [])
    return (int(found[0][0]), [str(part) for part in found[0][1:]]) if found else (0, [])


def check_made(source: VectorSource, entry: TableEntry, side: ModelSide) -> None:
    """Refuse a source of another model, or with vectors that pgvector cannot rank; see `check_source`."""
    model = entry.record.new if side == "new" else entry.record.old
    check_source(source, model.fingerprint, model.dim, of=f"the {side} model")


class TableFill(Fillable[KeyBatch]):
    """Rows of an attached table; several processes may fill them at once.

    Args:
        side: The model of the vectors.
        made: Skip rows that the application changed after this time, when the source's vectors were made; None for a
            source that reads the current rows.
        options: With a share of the time, write transactions are shorter; with it or a rate, they are sent one by
            one.
    """

    batch = 512

    def __init__(
        self, database: PostgresDatabase, number: int, side: ModelSide, made: datetime | None, options: FillOptions
    ) -> None:
        self.database, self.ledger, self.number, self.side, self.made = (
            database,
            TableLedger(database),
            number,
            side,
            made,
        )
        share, rate, batch = options.get("share"), options.get("rate"), options.get("batch")
        self.at_once = share is None and rate is None
        self.portions = Portions(batch or self.batch, HELD if share is None else HELD_AT_A_SHARE)
        self.known: TableFacts | None = None
        self.shared = side == "new" and made is None  # the first pass is shared with other processes
        self.after: list[str] | None = None
        self.last: list[str] | None = None  # end of the pass, however fast the application writes
        self.parts: list[tuple[KeyBatch, NDArray[np.float32]]] | None = None  # to be written
        self.unanswered = False  # whether a connection was lost before it confirmed the commit

    def begin(self, source: VectorSource) -> None:
        """Check the source, count rows that lack a vector, and record the start; see `Fillable`."""

        def begin() -> None:
            with self.database.transaction():
                entry = self.ledger.entry(self.number, lock=True)
                check_made(source, entry, self.side)
                self.total = lacking_rows(self.database, held(self.database, self.number)[1], self.side)
                self.ledger.apply(entry, {"kind": "backfill", "of": self.side, "lacking": self.total})
                self.generation = entry.state.fingerprint(self.side)

        self._patiently(begin)
        self.known = self._patiently(lambda: TableFacts.read(self.database, self.number))

    def begin_pass(self) -> None:
        """Go back to the first row; the pass ends at the row that is last now."""

        def last() -> list[str] | None:
            with self.database.transaction(_LOCK_TIMEOUT):
                entry, layout = held(self.database, self.number)
                return last_key(self.database, entry, layout)

        self.last, self.after = self._patiently(last), None
        self.again, self.shared = self.shared, False

    def next(self, limit: int) -> KeyBatch | None:
        """Return the next rows; in the first pass, those that no other process has taken."""
        if self.last is None:
            return None
        batch = self._patiently(lambda: self._next(limit))
        if not batch.keys:
            return None
        self.after = batch.keys[-1]
        return batch

    def _next(self, limit: int) -> KeyBatch:
        entry, layout, _ = known = self._known()
        with self.database.pipeline(), self.database.transaction(_LOCK_TIMEOUT):
            known.lock(self.database)
            after = self.ledger.reached(self.number) if self.again else self.after
            batch = read_batch(
                self.database, entry, layout, self.side, limit, after=after, upto=self.last, made=self.made
            )
            if self.again:  # rows that a failing server lost are handed out again
                self.database.send("SET LOCAL synchronous_commit = off")
                self.ledger.set_reached(self.number, batch.keys[-1] if batch.keys else None)
        return batch

    def write(self, batch: KeyBatch, made: EmbeddingSet, start: int) -> int:
        """Write the vectors in transactions so short that a session that waits for one of their rows hardly notices.

        All transactions are sent at once, unless there are pauses in between or the time for which a portion is locked
        is unknown. Rows are locked while the server works, not while a response is in transit.
        """
        size = self.portions.rows
        end = len(made) if self.at_once and self.portions.tried else min(start + size, len(made))
        if self.parts is None:
            rows = [range(first, min(first + size, end)) for first in range(start, end, size)]
            self.parts = [(batch.select(part), made.vectors[part.start : part.stop]) for part in rows]
            self.end_of_parts = end
        parts = self.parts
        self._patiently(lambda: self._write_parts(parts), 2 * RETRIES if self._known().entry.record.aside else RETRIES)
        self.parts = None
        return self.end_of_parts

    def _write_parts(self, parts: list[tuple[KeyBatch, NDArray[np.float32]]]) -> None:
        """Write vectors in a transaction for each part; remove written parts from the list."""
        if self.unanswered:
            self._count_written(parts)
        sent: list[tuple[Callable[[], list[Row] | None], Callable[[], bool]]] = []
        entry, layout, _ = known = self._known()
        timeout = ASIDE_TIMEOUT if entry.record.aside else _LOCK_TIMEOUT
        try:
            with self.database.pipeline():
                for batch, vectors in parts:
                    with self.database.transaction(timeout) as committed:
                        known.lock(self.database, "ROW EXCLUSIVE")
                        rows = write_batch(self.database, entry, layout, self.side, batch, vectors)
                    sent.append((rows, committed))
        except StoreError as error:
            self.unanswered = not isinstance(error, LastingStoreError | LockedError)
            raise
        finally:
            done = [found[0] for one, committed in sent if committed() and (found := one())]
            for (written, seconds), (_, vectors) in zip(done, parts, strict=False):
                self.written += int(written)
                self.portions.took(len(vectors), seconds)
            del parts[: len(done)]

    def _count_written(self, parts: list[tuple[KeyBatch, NDArray[np.float32]]]) -> None:
        """Count parts that were committed before the connection was lost, and remove them from the list."""
        for number, (batch, vectors) in enumerate(parts):
            with self.database.transaction(_LOCK_TIMEOUT):
                entry, layout, _ = known = self._known()
                known.lock(self.database)
                written = written_keys(self.database, entry, layout, self.side, batch, vectors)
            self.written += len(written)
            left = [row for row, key in enumerate(batch.keys) if tuple(key) not in written]
            parts[number] = batch.select(left), vectors[left]
        parts[:] = [(batch, vectors) for batch, vectors in parts if batch.keys]
        self.unanswered = False

    def lacking(self) -> int:
        """Return the number of rows that lack a vector."""

        def lacking() -> int:
            with self.database.transaction():
                return lacking_rows(self.database, held(self.database, self.number)[1], self.side)

        return self._patiently(lacking)

    def end(self, stopped: str, left_out: LeftOut, lacking: int) -> None:
        """Record the end; see `Fillable`."""

        def end() -> None:
            with self.database.transaction():
                entry = self.ledger.entry(self.number, lock=True)
                self.ledger.apply(entry, {"kind": "backfill", "of": self.side, "written": self.written,
                                         "lacking": lacking, "missing": len(left_out.missing), "stopped": stopped,
                                         "without_text": len(left_out.without_text)})  # fmt: skip

        self._patiently(end)

    def _patiently(self, call: Callable[[], Result], attempts: int = RETRIES) -> Result:
        return self.database.patiently(lambda: self._as_known(call), attempts)

    def _as_known(self, call: Callable[[], Result]) -> Result:
        """Repeat a call with the table's current properties after a swap, a rollback or another change."""
        while True:
            before = self.known
            try:
                return call()
            except LastingStoreError:
                if before is None:
                    raise
                self.known = TableFacts.read(self.database, self.number)
                if self.known.seal == before.seal:
                    raise

    def _known(self) -> TableFacts:
        return self.known or TableFacts.read(self.database, self.number)


def lacking_rows(database: PostgresDatabase, layout: Layout, side: ModelSide) -> int:
    """Return the number of rows that lack a vector of a model; within a transaction."""
    [(count,)] = database.rows(f"SELECT count(*) FROM {layout.rows} WHERE {layout.lacking(side)}")
    return int(count)


def displaced_rows(database: PostgresDatabase, layout: Layout, side: ModelSide) -> int:
    """Return the number of rows that would have no vector of a model if only that model stayed; in a transaction."""
    [(count,)] = database.rows(f"SELECT count(*) FROM {layout.rows} WHERE {layout.displaced(side)}")
    return int(count)
