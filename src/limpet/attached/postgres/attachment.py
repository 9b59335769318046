"""An upgrade of vectors in a PostgreSQL table that an application continues to read and write, step by step.

A step that needs a blocking lock requests it with a short timeout, repeatedly and with growing pauses, because other
sessions queue behind a pending lock request. Every step but index builds is one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from logging import INFO
from typing import NamedTuple, Unpack

from psycopg.errors import IdleInTransactionSessionTimeout

from limpet.attached.base import Attachment, NotStartedError
from limpet.attached.next_steps import next_steps
from limpet.attached.postgres import client
from limpet.attached.postgres.filling import (
    FORGOTTEN,
    KeyBatch,
    TableFill,
    check_made,
    displaced_rows,
    forget_rows,
    forget_unseen,
    lacking_rows,
    put_back_batch,
    read_batch,
    write_batch,
)
from limpet.attached.postgres.identity import leftovers, recognise
from limpet.attached.postgres.indexes import build, statuses, wanted
from limpet.attached.postgres.layout import (
    ADDED,
    AnyLayout,
    OneColumn,
    added_name,
    held,
    key_texts,
    layout_of,
    outlast_vacuum,
    relation_of,
)
from limpet.attached.postgres.ledger import SCHEMA, TableEntry, TableLedger, TableRecord
from limpet.attached.postgres.rows import TableTexts, TableVectors, blank_text, id_of
from limpet.attached.postgres.start import Preparation, known, meant
from limpet.attached.postgres.statements import (
    inherited,
    left_indexes,
    names_to_restore,
    restored_not_null,
    turn_statements,
)
from limpet.attached.postgres.table import bound, owner_of
from limpet.attached.postgres.triggers import create_statements, drop_statement
from limpet.attached.postgres.verify import queries_of, table_problems, trigger_problems, written_since
from limpet.attached.recognition import CLOSE, cosine
from limpet.attached.state import AttachmentEvent, advance
from limpet.embeddings import EmbeddingSet
from limpet.engines.address import Address as SourceAddress
from limpet.engines.postgres.database import PostgresDatabase, locked, quoted
from limpet.engines.postgres.table_address import TableAddress, read_table_address
from limpet.engines.sides import SIDES, ModelSide
from limpet.errors import GalleryError, StoreError, UpgradeStateError, refuse, shown
from limpet.evaluation.results import Evaluation
from limpet.support.logs import logger
from limpet.upgrade.base import UpgradeVerification
from limpet.upgrade.filling import Backfilled, Filling, FillOptions, embedded_items
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.status import ApplicationFacts, UpgradeStatus
from limpet.upgrade.vector_sources import VectorSource, WithText

_log = logger("attached")

_LOCK_TIMEOUT = 0.4  # seconds; usually less than deadlock_timeout, so that this session gives way
ATTEMPTS = 40
HELD = 2.0  # maximum seconds of a statement while all other sessions wait for the table
LAST = 256  # maximum number of rows whose vectors are made before the table is locked, and written while it is
FEW = 16  # rows to leave for that, if the application lets us; more are first filled in transactions of their own
ROUNDS = 40  # attempts while an application writes rows faster than their vectors are made
FREE_ROUNDS = 3  # attempts after which writers, but not readers, wait while the vectors of the last rows are made
QUICK = 0.3  # seconds: they wait only if making vectors took less than this the last time
LONGEST = 1.0  # seconds after which they wait no longer
PUT_BACK, PASSES = 512, 4  # rows of a transaction; locked rows are put back in the next pass


def start(
    url: str,
    *,
    old: UpgradeModel,
    new: UpgradeModel,
    aside: bool = False,
    mixing: Evaluation | None = None,
    fire_triggers: bool = False,
    index: str = "whole",
) -> PostgresAttachment:
    """Start an upgrade of a table, or return the started one between the same models.

    Args:
        url: ``postgresql://USER@HOST/DATABASE?table=SCHEMA.TABLE&id=COLUMN&vector=COLUMN&text=COLUMN``, see
            `read_table_address`.
        old: The model of the existing vectors; a dimension of 0 is taken from them.
        new: The new model.
        aside: Keep new vectors in a table of their own, if this one may not be altered; a swap is then not possible.
        mixing: Write new vectors into the column of the old ones, in any order, if vectors of both may be compared:
            an evaluation of these two models with ``mixing`` must allow it. The existing index continues to serve.
        fire_triggers: Let the backfill fire the application's own triggers on updates.
        index: Part of each new vector to index, if the old vectors are indexed: "whole" vectors, up to 4,000
            numbers; "bits", the sign of every number; "first:N", the first N numbers; "none" builds no index.

    Raises:
        ConfigError: The URL, a table or a column is wrong.
        DataError: The vectors have several dimensions, or rows have no unique key.
        GalleryError: The table cannot be attached; the message says why.
        UpgradeStateError: Another upgrade of the table was started.
        StoreError: Privileges are missing, or the database fails.
    """
    address = read_table_address(url)
    database = PostgresDatabase(address.database)
    ledger = TableLedger(database)
    notes: tuple[str, ...] = ()

    def begin() -> int:
        nonlocal notes
        with database.transaction(_LOCK_TIMEOUT):
            ledger.lock()
            there = known(database, address, old, new, shared=mixing is not None)
            if there is not None:
                return there
            it = Preparation(database, address, old, new, aside=aside, mixing=mixing, fire_triggers=fire_triggers,
                             index=index)  # fmt: skip
            it.refuse()
            notes = it.notes
            entry = ledger.begin(it.record, it.event)
            if not aside:
                outlast_vacuum(database, it.table.identifier, it.table.oid)
            for statement in it.table_statements(entry, it.table.identifier):
                database.rows(statement)
            ledger.describe(entry.id, _numbered(database, entry, it.layout(entry, it.table.identifier)))
            layout_of(database, ledger.entry(entry.id))
            return entry.id

    try:
        started = PostgresAttachment(address, database, database.patiently(begin, ATTEMPTS))
        started.notes = notes
        return started
    except BaseException:
        database.close()
        raise


def open_attachment(url: str) -> PostgresAttachment:
    """Open the upgrade of a table.

    Args:
        url: URL of the table; table and columns may be left out if the database has one upgrade.

    Raises:
        GalleryError: No upgrade exists, or the URL matches several.
    """
    address = read_table_address(url)
    database = PostgresDatabase(address.database)
    try:
        with database.transaction():
            restored = recognise(database)
            everything = TableLedger(database).entries()
            left = leftovers(database)
        entries = [entry for entry in everything if meant(entry, address)]
        if left and not entries:
            raise GalleryError(
                f"The table {left[0]}.",
                expected="a table that was restored together with the schema limpet_attached",
                to_do="run that, or restore both.",
                intact="Nothing was changed.",
            )
        if len(entries) != 1:
            tables = [(one.record.table, one.record.table.vector.name) for one in entries or everything]
            listed = ", ".join(f"{table.schema}.{table.name}.{vector}" for table, vector in tables)
            raise (GalleryError if entries else NotStartedError)(
                f"There are {len(entries) or 'no'} upgrades of '{address.url}' in progress"
                f"{f'; the database has: {listed}' if listed else ''}.",
                expected="one",
                to_do="name the table, …?table=SCHEMA.TABLE&vector=COLUMN; `limpet upgrade start --help` shows how to "
                "start one, and `limpet upgrade log` lists those that ended.",
                intact="Nothing was changed.",
            )
        it = PostgresAttachment(address, database, entries[0].id)
        it.notes = tuple(restored.get(entries[0].id, ()))
        return it
    except BaseException:
        database.close()
        raise


def ended(url: str) -> Sequence[AttachmentEvent]:
    """Return the journal of the last upgrade of a table that ended; empty if there is none.

    Args:
        url: URL of the table with its name at the end of the upgrade; table and columns may be left out.
    """
    address = read_table_address(url)
    database = PostgresDatabase(address.database)
    try:
        with database.transaction():
            return TableLedger(database).ended(address)
    finally:
        database.close()


def _numbered(database: PostgresDatabase, entry: TableEntry, layout: AnyLayout) -> TableRecord:
    found = {
        str(name): int(number)
        for name, number in database.rows(
            "SELECT attname, attnum FROM pg_attribute WHERE attrelid = %s AND NOT attisdropped",
            [entry.record.table.oid],
        )
    }
    numbers = {called: found[name] for called, (name, _) in layout.added.items()}
    return replace(entry.record, **numbers)  # type: ignore[arg-type]


class _Ready(NamedTuple):
    """Rows to write just before a swap or rollback, with their vectors.

    Args:
        seconds: Time that it took to make the vectors.
    """

    batch: KeyBatch
    made: EmbeddingSet | None = None
    seconds: float = 0.0


def _made_of(source: VectorSource, batch: KeyBatch) -> _Ready:
    started = time.monotonic()
    made = source.embed(batch.ids) if batch.keys else None
    return _Ready(batch, made, time.monotonic() - started)


class PostgresAttachment(Attachment):
    """An upgrade in a PostgreSQL table; use `start` or `open_attachment`.

    Args:
        number: Number of the attachment in the ledger.
    """

    def __init__(self, address: TableAddress, database: PostgresDatabase, number: int) -> None:
        self.address, self.number = address, number
        self._database, self._ledger, self._reader = database, TableLedger(database), PostgresDatabase(address.database)
        self._opened = self.entry

    @property
    def entry(self) -> TableEntry:
        """The attachment as its ledger has it now."""
        with self._database.transaction():
            return self._ledger.entry(self.number)

    @property
    def texts(self) -> WithText:
        """Texts of the table's rows, for sources that re-embed them."""
        return WithText(TableTexts(self._reader, self._opened))

    @property
    def stored(self) -> TableVectors:
        """The old vectors of the rows, for adapters and heads."""
        return TableVectors(self._reader, self._opened)

    @property
    def rows(self) -> SourceAddress:
        """The table under its current name, as a source."""
        table, source = self.entry.record.table, self.address.source
        columns = {"id": table.key, "vector": (table.vector,), "text": table.texts}
        roles = {role: ",".join(column.name for column in found) or None for role, found in columns.items()}
        return replace(source, table=f"{table.schema}.{table.name}", roles=replace(source.roles, **roles))

    def status(self) -> UpgradeStatus:
        """Read the status; every row is counted.

        Raises:
            GalleryError: The upgrade has ended, or the table was changed meanwhile.
        """
        with self._database.transaction():
            entry, layout = held(self._database, self.number)
            blank = blank_text(entry.record)
            conditions = [
                layout.wanted, layout.lacking("old"), layout.lacking("new"), f"NOT ({layout.wanted})",
                layout.unknown,
                *(f"{layout.model} = '{side}' AND {layout.wanted}" if isinstance(layout, OneColumn) else "false"
                  for side in SIDES),
                *(f"{layout.lacking(side)} AND {blank}" for side in SIDES),
            ]  # fmt: skip
            counts = ", ".join(f"count(*) FILTER (WHERE {condition})" for condition in conditions)
            [(items, old, new, empty, unknown, of_old, of_new, blank_old, blank_new)] = self._database.rows(
                f"SELECT {counts} FROM {layout.rows}"
            )
            indexes = statuses(self._database, wanted(self._database, entry, layout))
        table = entry.record.table
        holding: dict[ModelSide, int] = {"old": int(of_old), "new": int(of_new)}
        state = entry.state
        facts = ApplicationFacts(
            int(empty), holding if state.shared else {}, {"old": int(blank_old), "new": int(blank_new)},
            bool(table.texts), int(unknown), client.client_queries(entry),
        )  # fmt: skip
        found = UpgradeStatus(
            f"{table.schema}.{table.name}.{table.vector.name}", state.phase, entry.record.old, entry.record.new,
            state.serving, state.writes, int(items), {"old": int(old), "new": int(new)}, indexes, application=facts,
            notes=self.notes,
        )  # fmt: skip
        return replace(found, next=next_steps(found, state))

    def some(self, limit: int) -> list[str]:
        """Return ids of at most `limit` rows that have an up-to-date old vector."""
        with self._database.transaction():
            entry, layout = held(self._database, self.number)
            rows = self._database.rows(f"SELECT {key_texts(entry.record)} FROM {layout.rows} "
                                      f"WHERE {layout.current('old')} IS NOT NULL LIMIT {limit}")  # fmt: skip
        return [id_of([str(part) for part in row]) for row in rows]

    def backfill(
        self,
        source: VectorSource,
        *,
        of: ModelSide = "new",
        made: datetime | None = None,
        **options: Unpack[FillOptions],
    ) -> Backfilled:
        """Write vectors for rows that lack one, see `Attachment.backfill`; several processes may run at once.

        Rows that the application changed after ``made`` are skipped.

        Raises:
            DataError: The source is of another model.
            StoreError: The database stayed unreachable.
        """
        done = Filling(TableFill(self._database, self.number, of, made, options), source, **options).run()
        _log.log(INFO, "filled %d rows of %s with vectors of %s, %d lack one",
                 done.written, self.address.url, done.generation, done.lacking)  # fmt: skip
        return done

    def index(self) -> None:
        """Build the indexes over new vectors, one after the other, while the application reads and writes.

        Raises:
            UpgradeStateError: Rows must be backfilled first.
            GalleryError: Another session is building an index.
        """
        with self._database.transaction():
            entry, layout = held(self._database, self.number)
            advance(entry.state, {"kind": "index"})
            indexes = wanted(self._database, entry, layout)
            self._ledger.note(self.number, {"kind": "index", "began": [one.name for one in indexes]})
        try:
            build(self._database, indexes, lambda: self.entry)
        except GalleryError:
            self._remove_late_indexes(entry)
            _ = self.entry  # the index build fails on a dropped column: report that the upgrade has ended instead
            raise
        with self._database.transaction():
            entry = self._ledger.entry(self.number, lock=True)
            self._ledger.apply(entry, {"kind": "index", "built": [one.name for one in indexes]})

    def _remove_late_indexes(self, entry: TableEntry) -> None:
        """Remove indexes that were built while another process ended the upgrade, if it did."""
        with self._database.transaction():
            if self.number in (one.id for one in self._ledger.entries()):
                return
            late = left_indexes(self._database, entry)
        for index in late:
            self._database.alone(f"DROP INDEX CONCURRENTLY IF EXISTS {index}")

    def swap(
        self,
        source: VectorSource | None = None,
        *,
        writes: ModelSide | None = None,
        allow_missing: int = 0,
        attempts: int = ATTEMPTS,
    ) -> None:
        """Rename both columns in one transaction, see `Attachment.swap`.

        The source's vectors of rows that were written just before are made before the table is locked, and again while
        the application writes further rows. If vectors of both models share a column, the application must query with
        the new model from now on; the table is not locked, and missing vectors are not refused.

        Raises:
            UpgradeStateError: An index is missing, or rows lack a new vector; the message names them.
            LockedError: Statements that take longer than `_LOCK_TIMEOUT` used the table all the time.
        """
        self._turn("swap", "new", source, writes, allow_missing, attempts)

    def rollback(
        self,
        source: VectorSource | None = None,
        *,
        writes: ModelSide | None = None,
        allow_missing: int = 0,
        attempts: int = ATTEMPTS,
    ) -> None:
        """Rename both columns back; see `swap`.

        If vectors of both models share a column, the application must query with the old model at once, and old vectors
        are put back in small transactions; ``source`` makes those that were not kept. An interrupted call is resumed.
        """
        self._turn("rollback", "old", source, writes, allow_missing, attempts)

    def _turn(
        self,
        kind: str,
        side: ModelSide,
        source: VectorSource | None,
        writes: ModelSide | None,
        allow: int,
        attempts: int,
    ) -> None:
        event: dict[str, object] = {"kind": kind, "allow_missing": allow} | ({"writes": writes} if writes else {})
        entry = self.entry
        state = advance(entry.state, event)
        self._forget_unseen(kind)
        if entry.record.shared:
            self._point(event, side, source, writes, attempts)
            return
        if entry.record.old.dim != entry.record.new.dim and state.writes != side:
            raise UpgradeStateError(
                f"Cannot {kind}: the old model makes vectors of {entry.record.old.dim} numbers and the new one of "
                f"{entry.record.new.dim}, so from that moment the column takes only those of the {side} model.",
                expected=f"an application that writes with {entry.state.fingerprint(side)} from that moment on",
                to_do=f"change the application, and repeat the command with --writes {side} at the same time.",
            )
        if source is not None:
            check_made(source, entry, side)
        with self._database.transaction():
            self._refuse_bound(kind, *held(self._database, self.number))

        ready = _Ready(KeyBatch([], []))
        writers_wait = False

        def attempt() -> tuple[int, KeyBatch]:
            """Swap unless more rows than allowed lack a vector; return how many do, with some that prevent it."""
            nonlocal ready
            if source is not None:
                ready = self._ready(source, side, ready)
            with self._database.transaction(_LOCK_TIMEOUT):
                entry = self._ledger.entry(self.number, lock=True)
                advance(entry.state, event)
                if source is not None and writers_wait and ready.seconds < QUICK:
                    entry, layout = held(self._database, self.number, "SHARE ROW EXCLUSIVE")
                    ready = self._made_quickly(source, read_batch(self._database, entry, layout, side, LAST))
                entry, layout = held(self._database, self.number, "ACCESS EXCLUSIVE")
                self._database.rows("SELECT set_config('statement_timeout', %s, true)", [f"{round(1000 * HELD)}ms"])
                if source is not None and ready.made is not None and len(ready.made):
                    batch = embedded_items(source, ready.batch, ready.made)
                    write_batch(self._database, entry, layout, side, batch, ready.made.vectors)
                    self._database.rows("SELECT set_config('limpet.filling', '', true)")
                lacking = lacking_rows(self._database, layout, side)
                if lacking > allow:
                    return lacking, read_batch(self._database, entry, layout, side, LAST)
                if side == "new":
                    self._refuse_unbuilt(entry, layout)
                statements = turn_statements(entry, layout.relation, side, writes)
                self._database.rows("; ".join(statements))  # in one round trip, since all other sessions wait
                self._ledger.apply(entry, {**event, "lacking": lacking})
                return lacking, KeyBatch([], [])

        before: KeyBatch | None = None
        for number in range(ROUNDS):
            writers_wait = number >= FREE_ROUNDS
            lacking, left = self._database.patiently(attempt, attempts)
            if source is None or not left.keys or left == before:  # the source lacks the unchanged rows
                break
            before = left
        if left.keys:
            raise self._lacking(kind, side, lacking, left.ids[:20])
        _log.log(INFO, "%s of %s: %s serves", kind, self.address.url, state.fingerprint(side))
        if source is not None and lacking:
            self.backfill(source, of=side)

    def _ready(self, source: VectorSource, side: ModelSide, before: _Ready) -> _Ready:
        """Fill rows until few are left, if possible; return these with their vectors, made while no session waits."""
        for number in range(FREE_ROUNDS):
            with self._database.transaction():
                entry, layout = held(self._database, self.number)
                batch = read_batch(self._database, entry, layout, side, LAST)
            if len(batch.keys) <= FEW or number == FREE_ROUNDS - 1:
                break
            self.backfill(source, of=side)
        return before if batch == before.batch else _made_of(source, batch)

    def _made_quickly(self, source: VectorSource, batch: KeyBatch) -> _Ready:
        """Make vectors while writers wait; if that takes longer than `LONGEST`, the server ends the transaction.

        Raises:
            LockedError: It took longer, and writers no longer wait.
        """
        limit = "SELECT set_config('idle_in_transaction_session_timeout', %s, true)"
        self._database.rows(limit, [f"{round(1000 * LONGEST)}ms"])
        made = _made_of(source, batch)
        try:
            self._database.rows(limit, ["0"])
        except StoreError as error:
            ended = isinstance(error.__cause__, IdleInTransactionSessionTimeout)  # it covers more than the embedding
            if made.seconds < LONGEST and not ended:
                raise
            raise locked() from error
        return made

    def _point(
        self,
        event: AttachmentEvent,
        side: ModelSide,
        source: VectorSource | None,
        writes: ModelSide | None,
        attempts: int,
    ) -> None:
        """Swap or roll back a column that both models share: the pointer first, then vectors."""
        if source is not None:
            check_made(source, self.entry, side)

        def attempt() -> None:
            with self._database.transaction(_LOCK_TIMEOUT):
                self._ledger.entry(self.number, lock=True)
                entry, layout = held(self._database, self.number)
                for statement in turn_statements(entry, layout.relation, side, writes) if writes else []:
                    self._database.rows(statement)
                self._ledger.apply(entry, event)

        self._database.patiently(attempt, attempts)
        self._put_back()
        if source is not None:
            self.backfill(source, of=side)
        _log.log(INFO, "%s of %s: ask with %s", event["kind"], self.address.url, self.state.fingerprint(side))

    def _put_back(self) -> None:
        """Put kept vectors of the remaining model back into a shared column, without blocking other sessions."""

        def batch(after: list[str] | None) -> tuple[int, list[str]]:
            with self._database.transaction(_LOCK_TIMEOUT):
                entry, layout = held(self._database, self.number, "ROW EXCLUSIVE")
                return put_back_batch(self._database, entry, layout, PUT_BACK, after)

        for _ in range(PASSES):
            after: list[str] | None = None
            total = 0
            while True:
                rows, last = self._database.patiently(lambda: batch(after), ATTEMPTS)  # noqa: B023
                if not rows:
                    break
                total, after = total + rows, last
            if not total:
                return

    def _forget_unseen(self, kind: str = "") -> None:
        """Find rows that were changed without our triggers: the model and text of their vectors are unknown.

        Args:
            kind: Step to refuse while triggers are missing or disabled; empty to refuse none.
        """

        def attempt() -> int:
            with self._database.transaction(_LOCK_TIMEOUT):
                entry, layout = held(self._database, self.number, "ROW EXCLUSIVE")
                found = trigger_problems(self._database, entry, layout) if kind else []
                if found:
                    raise UpgradeStateError(
                        f"Cannot {kind}: {'; '.join(found)}.",
                        to_do="`limpet upgrade writes --of NAME` makes them again, for the model that it writes with.",
                    )
                return forget_unseen(self._database, entry, layout)

        while self._database.patiently(attempt, ATTEMPTS) == FORGOTTEN:
            pass

    def _lacking(self, kind: str, side: ModelSide, lacking: int, ids: Sequence[str]) -> UpgradeStateError:
        return UpgradeStateError(
            f"Cannot {kind}: {lacking:,} rows have no up-to-date vector of the {side} model, and would not be found: "
            f"{shown(ids, lacking)}.",
            to_do=f"`limpet upgrade backfill --of {side} --model {'OLD_' * (side == 'old')}MODEL` fills them; "
            + (
                f"or give {kind} the source, which fills the last ones by itself; where the application writes faster "
                "than that, let it pause; "
                if kind in ("swap", "rollback")
                else ""
            )
            + f"or allow it: --allow-missing {lacking}.",
            intact="Nothing that serves was changed.",
        )

    def _refuse_bound(self, kind: str, entry: TableEntry, layout: AnyLayout) -> None:
        """Refuse a swap or rollback while an object created after the start depends on the serving column."""
        table = entry.record.table
        number = table.vector.number if entry.state.serving == "old" else entry.record.new_number
        found = bound(self._database, replace(table, vector=replace(table.vector, number=number)))
        if found:
            raise UpgradeStateError(
                f"Cannot {kind}: {'; '.join(found)}.",
                expected="nothing that would go on with the vectors that serve now",
                to_do="it came after the start.",
            )

    def _refuse_unbuilt(self, entry: TableEntry, layout: AnyLayout) -> None:
        unbuilt = [one.name for one in statuses(self._database, wanted(self._database, entry, layout)) if not one.built]
        if unbuilt:
            raise UpgradeStateError(
                f"Cannot swap: {', '.join(unbuilt)} {'is' if len(unbuilt) == 1 else 'are'} not built.",
                expected="the indexes over new vectors that there are over the old ones",
                to_do="`limpet upgrade index` builds them.",
            )

    def declare_writes(self, model: str, source: VectorSource | None = None, *, allow_missing: int = 0) -> ModelSide:
        """Declare which model the application writes with, unless a session sets limpet.writes_with.

        Raises:
            ConfigError: The model is neither of the two, or a source or missing rows were given.
            UpgradeStateError: The dimension of the column requires the other model.
        """
        refuse(source is not None or allow_missing != 0, "A model, or --allow-missing, for a declaration of a table.",
               "neither: triggers keep what the application writes with either model")  # fmt: skip

        def attempt() -> ModelSide:
            with self._database.transaction(_LOCK_TIMEOUT):
                entry = self._ledger.entry(self.number, lock=True)
                side = entry.state.side_of(model)
                if entry.record.old.dim != entry.record.new.dim and side != entry.state.serving:
                    raise UpgradeStateError(
                        f"The column takes vectors of {entry.state.fingerprint(entry.state.serving)} only, whose "
                        "dimension is another.",
                        expected="a declaration in the moment of the swap",
                        to_do=f"say it with the step that changes the dimension: --writes {side} of swap or rollback.",
                    )
                entry, layout = held(self._database, self.number, "ACCESS EXCLUSIVE")
                state = self._ledger.apply(entry, {"kind": "writes", "writes": side})
                if (owner := owner_of(self._database, entry.record.table.oid)) != entry.record.table.owner:
                    table = replace(entry.record.table, owner=owner)
                    self._ledger.describe(self.number, replace(entry.record, table=table))
                made = create_statements(entry, layout, state)
                # Only the owner may drop a trigger, but others may drop the function together with its triggers.
                for statement in [drop_statement(entry), *made] if entry.record.aside else made:
                    self._database.rows(statement)
                return side

        return self._database.patiently(attempt, ATTEMPTS)

    def verify(self, *, watch: float = 0.0, source: VectorSource | None = None) -> UpgradeVerification:
        """Check the table, and find queries of the application that should change.

        Rows that were changed without our triggers are found by digests of their texts and vectors, all of which are
        read; these rows count as lacking from then on. So do rows whose vectors the source does not reproduce, from a
        sample of those that the application wrote since the last swap or rollback. Without watching, all queries in
        pg_stat_statements are named.

        Raises:
            DataError: The source is of another model.
        """
        with suppress(GalleryError):  # the next lines report a table that was changed
            self._forget_unseen()
        with self._database.transaction():
            entry = self._ledger.entry(self.number)
            problems = table_problems(self._database, entry)
        if source is not None:
            problems += self._of_another_model(source)
        queries, unwatched = queries_of(self._database, entry, watch)
        return UpgradeVerification(tuple(problems), tuple(queries), unwatched)

    def _of_another_model(self, source: VectorSource) -> list[str]:
        """Report rows that hold vectors of another model than their marks say; these count as lacking afterwards."""
        entry = self.entry
        side = entry.state.serving
        check_made(source, entry, side)
        turns = [event for event in self.journal() if event["kind"] in ("swap", "rollback")]
        since = datetime.fromisoformat(str(turns[-1]["at"])) if turns else entry.started
        with self._database.transaction(_LOCK_TIMEOUT):
            entry, layout = held(self._database, self.number)
            batch, stored = written_since(self._database, entry, layout, side, since)
        made = source.embed(batch.ids)
        pairs = zip(made.ids, made.vectors, strict=True)
        differing = [one for one, vector in pairs if cosine(vector, stored[one]) < CLOSE]
        with self._database.transaction(_LOCK_TIMEOUT):
            entry, layout = held(self._database, self.number, "ROW EXCLUSIVE")
            wrong = forget_rows(self._database, entry, layout, batch, differing)
        if not wrong:
            return []
        model = (entry.record.new if side == "new" else entry.record.old).called
        return [
            f"{len(wrong):,} of {len(made):,} rows that the application wrote since {since:%Y-%m-%d %H:%M} hold "
            f"vectors that {model} does not make: {shown(wrong)}. They count as lacking from now on, and `limpet "
            f"upgrade backfill --of {side}` makes them anew; let the application write with that model, or declare the "
            "one that it writes with: `limpet upgrade writes --of NAME`"
        ]

    def finish(self, *, allow_missing: int = 0) -> None:
        """Keep only the new vectors, under the names of the old ones; this cannot be undone.

        Raises:
            UpgradeStateError: The new vectors do not serve, rows lack one, or the application writes old ones.
        """
        self._end("finish", "new", allow_missing)

    def cancel(self, *, allow_missing: int = 0, force: bool = False) -> None:
        """Keep only the old vectors: the table is as before the upgrade.

        With ``force``, a changed table keeps the vectors that serve; NOT NULL of the vectors is not restored.

        Raises:
            UpgradeStateError: The new vectors serve, rows lack an old one, or the application writes new ones.
        """
        if not force:
            self._end("cancel", "old", allow_missing)
            return
        entry = self.entry
        if not self._is_changed(entry):  # nothing else is possible for a changed table
            advance(entry.state, {"kind": "cancel"})
        self._database.patiently(lambda: self._remove_left(entry.state.serving), ATTEMPTS)
        self.notes = self._left()

    def _end(self, kind: str, stays: ModelSide, allow_missing: int) -> None:
        event = {"kind": kind, "allow_missing": allow_missing}
        entry = self.entry
        relation_of(entry)
        advance(entry.state, event)
        self._forget_unseen(kind)
        if entry.record.shared:
            if entry.state.turns != stays:
                self.rollback()
            self._put_back()
        required = bool(entry.record.table.not_null) and not entry.record.aside
        renewed = required and not entry.record.shared
        check = quoted(added_name(entry.record.table.vector.name, "check"))

        def refuse_lacking(layout: AnyLayout) -> None:
            lacking = displaced_rows(self._database, layout, stays)
            if lacking > (0 if required and not renewed else allow_missing):
                ids = read_batch(self._database, entry, layout, stays, 20, condition=layout.displaced(stays)).ids
                raise self._lacking(kind, stays, lacking, ids)

        def attempt() -> None:
            with self._database.transaction(_LOCK_TIMEOUT):
                entry = self._ledger.entry(self.number, lock=True)
                advance(entry.state, event)
                entry, layout = held(self._database, self.number, "ACCESS EXCLUSIVE")
                put_back_batch(self._database, entry, layout, None)
                if entry.record.shared or entry.state.indexed:  # an index takes effect at once
                    refuse_lacking(layout)
                names = names_to_restore(self._database, entry) if stays == "new" else []
                for statement in inherited(self._database, entry, layout.relation, names) if stays == "new" else []:
                    self._database.rows(statement)
                for statement in (drop_statement(entry), *layout.remove()):
                    self._database.rows(statement)
                if not entry.record.aside:
                    for index in left_indexes(self._database, entry):
                        self._database.rows(f"DROP INDEX {index}")
                for before, after in names:
                    self._database.rows(f"ALTER INDEX {before} RENAME TO {after}")
                if renewed:
                    self._database.rows(restored_not_null(self._database, entry, layout.relation))
                    self._database.rows(f"ALTER TABLE {layout.relation} DROP CONSTRAINT {check}")
                self._ledger.end(entry, event)

        with self._database.transaction():
            refuse_lacking(held(self._database, self.number)[1])
        if renewed:
            self._database.patiently(lambda: self._check_not_null(kind, stays, check), ATTEMPTS)
        self._database.patiently(attempt, ATTEMPTS)
        self.notes = self._left()
        _log.log(INFO, "%s of %s: %s stays", kind, self.address.url, entry.state.fingerprint(stays))

    def _left(self) -> tuple[str, ...]:
        """Return, in words, what stays in the database after the last upgrade."""
        with self._database.transaction():
            others = self._ledger.entries()
        return () if others else (
            f"{SCHEMA}.model_of stays for queries that call it, and answers NULL; the log of upgrades stays beside it. "
            f"When nothing needs either any more: DROP SCHEMA {SCHEMA} CASCADE;",
        )  # fmt: skip

    def _check_not_null(self, kind: str, stays: ModelSide, check: str) -> None:
        """Let the server validate, without blocking reads and writes, that no vector is missing."""
        with self._database.transaction(_LOCK_TIMEOUT):
            entry, layout = held(self._database, self.number, "ACCESS EXCLUSIVE")
            column = layout.vector(stays).removeprefix("t.")
            lacking = self._database.rows(f"SELECT 1 FROM {layout.rows} WHERE {layout.vector(stays)} IS NULL LIMIT 1")
            if lacking:
                ids = read_batch(self._database, entry, layout, stays, 20).ids
                raise self._lacking(kind, stays, lacking_rows(self._database, layout, stays), ids)
            self._database.rows(f"ALTER TABLE {layout.relation} DROP CONSTRAINT IF EXISTS {check}, "
                               f"ADD CONSTRAINT {check} CHECK ({column} IS NOT NULL) NOT VALID")  # fmt: skip
        with self._database.transaction():
            _, layout = held(self._database, self.number)
            self._database.rows(f"ALTER TABLE {layout.relation} VALIDATE CONSTRAINT {check}")

    def _remove_left(self, stays: ModelSide) -> None:
        with self._database.transaction(_LOCK_TIMEOUT):
            entry = self._ledger.entry(self.number, lock=True)
            record = entry.record
            self._database.rows(drop_statement(entry))
            if record.aside:
                self._database.rows(f"DROP TABLE IF EXISTS {SCHEMA}.vectors_{entry.id}")
            relation = "" if entry.gone else record.table.identifier
            if relation and record.shared:
                self._put_back_left(relation, record, stays)
            if relation and not record.aside:
                hidden = record.table.vector.number if stays == "new" and not record.shared else record.new_number
                ours = {hidden, record.mark_number, record.model_number}
                named = [added_name(record.table.vector.name, what) for what in ADDED]
                gone = self._database.rows(
                    "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = %s AND attnum = ANY(%s) AND NOT "
                    "attisdropped AND (attname = ANY(%s) OR strpos(col_description(attrelid, attnum), %s) > 0)",
                    [record.table.oid, sorted(ours), named, record.token],
                )
                if gone:
                    parts = ", ".join(f"DROP COLUMN {name}" for (name,) in gone)
                    self._database.rows(f"ALTER TABLE {relation} {parts}")
                for index in left_indexes(self._database, entry):
                    self._database.rows(f"DROP INDEX {index}")
                for (name,) in self._database.rows(
                    "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = %s AND NOT attisdropped "
                    "AND strpos(col_description(attrelid, attnum), %s) > 0", [record.table.oid, record.token],
                ):  # fmt: skip
                    self._database.rows(f"COMMENT ON COLUMN {relation}.{name} IS NULL")
            self._ledger.end(entry, {"kind": "cancel", "force": True})

    def _is_changed(self, entry: TableEntry) -> bool:
        with self._database.transaction():
            try:
                relation_of(entry)
                layout_of(self._database, entry)
            except StoreError:
                raise
            except GalleryError:
                return True
        return False

    def _put_back_left(self, relation: str, record: TableRecord, stays: ModelSide) -> None:
        """Put kept vectors back as far as the columns exist; within a transaction."""
        found = self._database.rows(
            "SELECT quote_ident(attname) FROM unnest(%s::int[]) WITH ORDINALITY AS one(number, place) "
            "JOIN pg_attribute ON attnum = number AND attrelid = %s AND NOT attisdropped ORDER BY place",
            [[record.table.vector.number, record.new_number, record.model_number], record.table.oid],
        )
        if len(found) < 3:
            return
        (own,), (kept,), (model,) = found
        others = f"{own} IS NOT NULL AND coalesce({model}, 'old') <> '{stays}'"
        self._database.rows(f"UPDATE {relation} SET {own} = {kept}, {model} = '{stays}' "
                           f"WHERE {others} AND {kept} IS NOT NULL")  # fmt: skip
        [(mixed,)] = self._database.rows(f"SELECT count(*) FROM {relation} WHERE {others}")
        if mixed:
            _log.warning("%s was changed: %d rows keep a vector of another model than %s, or of an earlier text",
                         self.address.url, mixed, stays)  # fmt: skip

    def journal(self, last: int | None = None) -> Sequence[AttachmentEvent]:
        """Return the events of the journal in order, each with "at", a time, and "kind"."""
        with self._database.transaction():
            return self._ledger.journal(self.number)[-(last or 0) :]

    def close(self) -> None:
        """Close all connections."""
        self._database.close()
        self._reader.close()
