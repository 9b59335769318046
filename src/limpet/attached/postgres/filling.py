"""Filling rows with vectors beside an application that writes: in small transactions, and its writes win.

A batch of keys is handed out, together with when the application last changed each row; vectors are made without any
transaction open; and they are written into those of the rows that are still as they were handed out. Rows that somebody
holds locked are passed over, so that nobody waits in a circle; they come with the next pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, Unpack

from limpet.attached.base import FillOptions, rest_after
from limpet.attached.filling import Run, check_model
from limpet.attached.postgres.layout import Layout, OneColumn, arrays, held, key_texts, keys
from limpet.attached.postgres.ledger import Entry, Ledger
from limpet.attached.postgres.rows import id_of
from limpet.attached.postgres.session import RETRIES, Result, Session
from limpet.attached.postgres.table import firing_triggers
from limpet.attached.state import Side
from limpet.embeddings import EmbeddingSet
from limpet.embeddings.embedding_set import shown
from limpet.errors import BudgetError, DataError
from limpet.galleries.backfill import Backfilled, LeftOut
from limpet.galleries.sources import VectorSource

MOST_PASSES = 4  # each up to the last row of its beginning, so that it ends however fast an application writes
LOCK_TIMEOUT = 5.0  # seconds; a swap holds the table for less
HELD = 0.02  # seconds that a transaction should hold the rows that it writes, since the application waits for them
HELD_AT_A_SHARE = 0.005  # seconds, where whoever runs it cares more for the application than for an early end
FIRST = 16  # rows of the first transaction, from whose seconds those of the next ones follow


class Batch(NamedTuple):
    """Rows to be filled.

    Args:
        keys: Of the rows, one text for every column.
        edited: When the application last changed each, see `Layout`; None for never.
    """

    keys: list[list[str]]
    edited: list[int | None]

    @property
    def ids(self) -> list[str]:
        """What the rows are called outside of the table."""
        return [id_of(key) for key in self.keys]


def read_batch(
    session: Session,
    entry: Entry,
    layout: Layout,
    side: Side,
    limit: int,
    *,
    after: Sequence[str] | None = None,
    upto: Sequence[str] | None = None,
    made: datetime | None = None,
) -> Batch:
    """Return rows that lack a vector, by key; within a transaction.

    Args:
        session: To the database.
        entry: The attachment as it is in this transaction.
        layout: Its layout.
        side: Of which model.
        limit: At most so many.
        after: Only those after this key.
        upto: Only those up to this key.
        made: Only those that the application has not changed after this moment.
    """
    record = entry.record
    conditions, values = [layout.lacking(side)], list[object]()
    given = ", ".join(f"%s::text::{column.type}" for column in record.table.key)
    for sign, key in ((">", after), ("<=", upto)):
        if key is not None:
            conditions.append(f"({keys(record)}) {sign} ({given})")
            values += key
    if made is not None:
        conditions.append(f"({layout.edited} IS NULL OR {layout.edited} <= %s)")
        values.append(int(1_000_000 * made.timestamp()))
    rows = session.rows(
        f"SELECT {key_texts(record)}, {layout.edited} FROM {layout.rows} WHERE {' AND '.join(conditions)} "
        f"ORDER BY {keys(record)} LIMIT {int(limit)}", values,
    )  # fmt: skip
    return Batch([[str(part) for part in row[:-1]] for row in rows], [row[-1] for row in rows])


def last_key(session: Session, entry: Entry, layout: Layout) -> list[str] | None:
    """Return the largest key of the table, None of an empty one; within a transaction."""
    largest = ", ".join(f"{one} DESC" for one in keys(entry.record).split(", "))
    rows = session.rows(f"SELECT {key_texts(entry.record)} FROM {layout.relation} AS t ORDER BY {largest} LIMIT 1")
    return [str(part) for part in rows[0]] if rows else None


def write_batch(session: Session, entry: Entry, layout: Layout, side: Side, batch: Batch, made: EmbeddingSet) -> int:
    """Write vectors into rows that are as they were read, and return how many; within a transaction.

    Args:
        session: To the database.
        entry: The attachment as it is in this transaction.
        layout: Its layout.
        side: Of which model.
        batch: The rows.
        made: Vectors of some of them.
    """
    place = {identifier: row for row, identifier in enumerate(batch.ids)}
    strangers = [identifier for identifier in made.ids if identifier not in place]
    if strangers:
        raise DataError(f"The source made vectors of {shown(strangers)}.", expected="the rows it was asked for")
    rows = [place[identifier] for identifier in made.ids]
    unnoticed(session, entry)
    values = [*arrays(entry.record, [batch.keys[row] for row in rows]), [batch.edited[row] for row in rows],
              list(made.vectors)]  # fmt: skip
    return session.count(layout.write(side), values)


def unnoticed(session: Session, entry: Entry) -> None:
    """Let what is written in this transaction not count as written by the application, nor fire its triggers."""
    session.rows("SELECT set_config('limpet.filling', 'on', true)")
    if not entry.record.aside and not entry.record.fires and firing_triggers(session, entry.record.table):
        session.rows("SELECT set_config('session_replication_role', 'replica', true)")


def put_back_batch(
    session: Session, entry: Entry, layout: Layout, limit: int | None, after: Sequence[str] | None = None
) -> tuple[int, list[str]]:
    """Put kept vectors of the model that stays into the column that both models share; within a transaction.

    Args:
        session: To the database.
        entry: The attachment as it is in this transaction.
        layout: Its layout.
        limit: Into at most so many rows that nobody holds; into all when None.
        after: Only after this key.

    Returns:
        Into how many rows, and the largest key of them; into none where each model has a place of its own.
    """
    if not isinstance(layout, OneColumn):
        return 0, []
    unnoticed(session, entry)
    found = session.rows(layout.put_back(limit, after is not None), after or [])
    return (int(found[0][0]), [str(part) for part in found[0][1:]]) if found else (0, [])


def check_made(source: VectorSource, entry: Entry, side: Side) -> None:
    """Refuse a source of another model, or whose vectors a column cannot hold; see `check_model`."""
    model = entry.record.new if side == "new" else entry.record.old
    check_model(source, model, side, attached="table", ranked=", whose directions or distances pgvector ranks")


class Filling(Run):
    """One run; several may go on at once, in as many processes.

    Args:
        session: To the database.
        number: Of the attachment.
        source: Where vectors come from.
        side: Of which model.
        made: Pass over rows that the application changed after this moment, when the source's vectors were made; None
            for a source that reads rows as they are.
        options: See `FillOptions`. With a share of the time, transactions that write are shorter than otherwise.
    """

    def __init__(
        self,
        session: Session,
        number: int,
        source: VectorSource,
        side: Side,
        *,
        made: datetime | None = None,
        **options: Unpack[FillOptions],
    ) -> None:
        super().__init__(source, side, options, batch=512, items="rows")
        self.session, self.ledger, self.number, self.made = session, Ledger(session), number, made
        self.held, self.at_a_time = HELD if self.share is None else HELD_AT_A_SHARE, min(self.batch, FIRST)

    def run(self) -> Backfilled:
        """Fill rows, as far as budget and time go.

        Raises:
            DataError: The source is of another model, or makes what it was not asked for.
            UpgradeStateError: There is nothing to fill from where the attachment stands.
            StoreError: The database stayed out of reach; another run goes on where this one stopped.
        """
        entry = self._reach(self._begin)
        shared = self.side == "new" and self.made is None
        for passes in range(MOST_PASSES):  # a further one finds what others left
            embedded, written, self.left_out = self.embedded, self.written, LeftOut(self.source)
            if not self._pass(entry, shared=shared and not passes):
                break
            if passes and self.embedded - embedded == self.written - written < self.batch:
                break  # an application that goes on writing always leaves a few
        lacking = self._reach(self._end)
        return self.backfilled(entry.state.fingerprint(self.side), lacking)

    def _begin(self) -> Entry:
        with self.session.transaction():
            entry = self.ledger.entry(self.number, lock=True)
            check_made(self.source, entry, self.side)
            self.total = lacking_rows(self.session, held(self.session, self.number)[1], self.side)
            self.ledger.step(entry, {"kind": "fill", "of": self.side, "lacking": self.total})
            return entry

    def _end(self) -> int:
        with self.session.transaction():
            entry = self.ledger.entry(self.number, lock=True)
            lacking = lacking_rows(self.session, held(self.session, self.number)[1], self.side)
            done = "filled" if self.stopped == "done" and self.side == "new" else "fill"
            self.ledger.step(entry, {"kind": done, "of": self.side, "written": self.written, "lacking": lacking,
                                     "missing": len(self.left_out.missing), "stopped": self.stopped,
                                     "without_text": len(self.left_out.without_text)})  # fmt: skip
            return lacking

    def _pass(self, entry: Entry, *, shared: bool) -> bool:
        """Go through the table once; return whether there is time and budget for another pass."""
        after: list[str] | None = None
        upto = self._reach(self._last)
        while upto is not None:
            limit = self.batch if self.budget is None else min(self.batch, self.budget - self.embedded)
            if limit < 1:
                self.stopped = "budget"
                return False
            if not self.in_time():
                return False
            batch = self._reach(lambda: self._next(after, upto, limit, shared=shared))  # noqa: B023
            if not batch.keys:
                return True
            after = batch.keys[-1]
            try:
                made = self.source.embed(batch.ids)
            except BudgetError:
                self.stopped = "budget"
                return False
            model = entry.state.fingerprint(self.side)
            if (made.fingerprint, made.form) != (model, "points"):
                raise DataError(f"The source made {made}.", expected=f"points by {model}")
            self.embedded += len(made)
            self.left_out.add(set(batch.ids) - set(made.ids))
            if len(made):
                self.written += self._write(batch, made)
            self.tell()
        return True

    def _last(self) -> list[str] | None:
        with self.session.transaction(LOCK_TIMEOUT):
            entry, layout = held(self.session, self.number)
            return last_key(self.session, entry, layout)

    def _next(self, after: Sequence[str] | None, upto: Sequence[str], limit: int, *, shared: bool) -> Batch:
        """Return the next rows; of a pass that others share, those that nobody else was given."""
        with self.session.transaction(LOCK_TIMEOUT):
            if shared:
                after = self.ledger.reached(self.number)
            entry, layout = held(self.session, self.number)
            batch = read_batch(self.session, entry, layout, self.side, limit, after=after, upto=upto, made=self.made)
            if shared:
                self.ledger.set_reached(self.number, batch.keys[-1] if batch.keys else None)
            return batch

    def _write(self, batch: Batch, made: EmbeddingSet) -> int:
        """Write the vectors in transactions so short that whoever waits for one of their rows hardly notices."""
        done = written = 0
        while done < len(made):
            part, began = made.select(slice(done, done + self.at_a_time)), time.monotonic()
            written += self._reach(lambda: self._write_part(batch, part))  # noqa: B023
            done += len(part)
            self.pace(self.embedded - len(made) + done, rest_after(time.monotonic() - began, self.share))
        return written

    def _write_part(self, batch: Batch, part: EmbeddingSet) -> int:
        with self.session.transaction(LOCK_TIMEOUT):
            entry, layout = held(self.session, self.number, "ROW EXCLUSIVE")
            started = time.monotonic()  # before that no row is locked
            written = write_batch(self.session, entry, layout, self.side, batch, part)
        fitting = int(len(part) * self.held / max(time.monotonic() - started, 1e-6))
        self.at_a_time = min(self.batch, max(1, (self.at_a_time + fitting) // 2))
        return written

    def _reach(self, call: Callable[[], Result]) -> Result:
        return self.session.patiently(lambda: self.session.reached(call, RETRIES), RETRIES)


def lacking_rows(session: Session, layout: Layout, side: Side) -> int:
    """Return how many rows lack a vector of a model; within a transaction."""
    [(count,)] = session.rows(f"SELECT count(*) FROM {layout.rows} WHERE {layout.lacking(side)}")
    return int(count)


def displaced_rows(session: Session, layout: Layout, side: Side) -> int:
    """Return how many rows would be without a vector of a model if that one alone stayed; within a transaction."""
    [(count,)] = session.rows(f"SELECT count(*) FROM {layout.rows} WHERE {layout.displaced(side)}")
    return int(count)
