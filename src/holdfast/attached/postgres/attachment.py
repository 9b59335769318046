"""An upgrade of vectors in a table of PostgreSQL that an application goes on reading and writing, step by step.

Whatever needs a lock that others wait for asks for it with a short timeout, again and again with growing pauses: a lock
that is waited for makes everybody behind it wait. Every step but the building of indexes is one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from logging import INFO
from typing import Any, Unpack

from holdfast.attached.base import AttachmentStatus, FillOptions, ModelIdentity, Verification
from holdfast.attached.postgres.address import TableAddress, read_table_address
from holdfast.attached.postgres.filling import (
    Filling,
    check_made,
    lacking_rows,
    read_batch,
    write_batch,
)
from holdfast.attached.postgres.indexes import NewIndex, build, new_type, statuses, wanted
from holdfast.attached.postgres.layout import Aside, Columns, added_name, held, layout_of, relation_of
from holdfast.attached.postgres.ledger import SCHEMA, Entry, Ledger, Record
from holdfast.attached.postgres.rows import TableTexts, TableVectors
from holdfast.attached.postgres.session import Session, literal, quoted
from holdfast.attached.postgres.table import Right, Table, firing_triggers, inspect, refusals, rights
from holdfast.attached.postgres.triggers import create_statements, drop_statement
from holdfast.attached.postgres.verify import queries_of, table_problems
from holdfast.attached.state import AttachmentState, Event, Side, advance
from holdfast.embeddings.embedding_set import shown
from holdfast.errors import ConfigError, GalleryError, LastingStoreError, StoreError, UpgradeStateError
from holdfast.galleries.backfill import Backfilled
from holdfast.galleries.sources import VectorSource
from holdfast.logs import logger

_log = logger("attached")

LOCK_TIMEOUT = 0.4  # seconds; less than deadlock_timeout usually is, so that it is us who give way
ATTEMPTS = 40
DRAINED = 256  # rows that are filled while writers wait
_GUARD = "SELECT pg_advisory_xact_lock(hashtext('holdfast_attached'))"
_STORAGE = {"p": "PLAIN", "e": "EXTERNAL", "m": "MAIN", "x": "EXTENDED"}


@dataclass(frozen=True)
class Plan:
    """What attaching would do, in SQL; nothing was changed.

    Args:
        table: As it is.
        rights: What it takes, no more, and which of it this role has.
        refusals: What rules the table out, in words; empty where nothing does.
        notes: What to know before.
        steps: Statements by step: start, index, swap, rollback, detach.
    """

    table: Table
    rights: tuple[Right, ...]
    refusals: tuple[str, ...]
    notes: tuple[str, ...]
    steps: Mapping[str, tuple[str, ...]]

    @property
    def lacking(self) -> tuple[str, ...]:
        """The statements that give the rights that are lacking."""
        return tuple(right.statement for right in self.rights if not right.held)


class _Preparation:
    """What is known of a table before it is attached, read in one transaction.

    Args:
        session: To the database, within a transaction.
        address: Of the table.
        old: Fingerprint and note of the model whose vectors are there; its dimension is that of the vectors.
        new: The model that is to take over.
        aside: Keep new vectors in a table of their own.
        fire_triggers: Let filling fire the application's own triggers.
    """

    def __init__(
        self,
        session: Session,
        address: TableAddress,
        old: ModelIdentity,
        new: ModelIdentity,
        *,
        aside: bool,
        fire_triggers: bool,
    ) -> None:
        table = inspect(session, address)
        if old.dim and old.dim != table.dim:
            raise ConfigError(
                f"The vectors in {table.schema}.{table.name} have the dimension {table.dim}, those of "
                f"{old.fingerprint} {old.dim}.",
                expected="the model that made the vectors which are there",
                to_do="name that model, or another column; nothing was changed.",
            )
        self.session, self.table, self.aside = session, table, aside
        triggers = [] if aside else firing_triggers(session, table)
        kind = new_type(table.kind, new.dim, indexed=bool(table.indexes))
        self.record = Record(
            table, replace(old, dim=table.dim), new, kind, 0 if aside else 1, 0 if aside else 1, fires=fire_triggers
        )
        self.rights = rights(session, table, SCHEMA, aside=aside, silent=bool(triggers) and not fire_triggers)
        self.refusals = [] if aside else refusals(session, table)
        self.silenced = triggers
        self._refuse_taken_names()

    def _refuse_taken_names(self) -> None:
        names = [added_name(self.table.vector.name, what) for what in ("new", "old", "edited")]
        taken = self.session.rows(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attname = ANY(%s) AND NOT attisdropped",
            [self.table.oid, names],
        )
        if taken and not self.aside:
            self.refusals.append(
                f"it has columns of the names that are to be added: {', '.join(str(name) for (name,) in taken)}"
            )

    def refuse(self) -> None:
        """Refuse a table that cannot be attached.

        Raises:
            LastingStoreError: Rights are lacking, each with what gives it.
            GalleryError: Something rules it out.
        """
        lacking = [right.statement for right in self.rights if not right.held]
        if lacking:
            aside = "" if self.aside else " Without rights to alter the table, --aside keeps new vectors beside it."
            raise LastingStoreError(
                f"Rights are lacking for {self.table.schema}.{self.table.name}.",
                expected=" ".join(lacking),
                to_do=f"let an administrator run these.{aside} Nothing was changed.",
            )
        if self.refusals:
            raise GalleryError(
                f"{self.table.schema}.{self.table.name} cannot be attached: {'; '.join(self.refusals)}.",
                expected="a table without these",
                to_do="change that, or keep new vectors beside the table by --aside; nothing was changed.",
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know before."""
        notes = [] if self.aside else [
            "SELECT * shows two columns more from now on, so a statement that was prepared with it fails once in every "
            "session, and INSERT without a list of columns puts the vector into the column of the old model after a "
            "swap: name columns.",
        ]  # fmt: skip
        old, new = self.record.old, self.record.new
        if old.dim != new.dim:
            notes.append(f"Vectors of {old.dim} numbers become such of {new.dim}: queries and writes of the old model "
                         "fail after a swap, and the application has to change its model in that moment.")  # fmt: skip
        if self.record.new_type.partition("(")[0] != self.table.kind:
            notes.append(f"The new column is of the type {self.record.new_type}, which pgvector can index.")
        if self.silenced:
            how = "are fired" if self.record.fires else "are not fired (session_replication_role)"
            notes.append(f"The application's triggers {', '.join(self.silenced)} {how} by filling.")
        return tuple(notes)

    def entry(self, number: int) -> Entry:
        """Return the attachment as it would be."""
        state = advance(AttachmentState(), self.event)
        return Entry(number, self.record, state, datetime.now().astimezone())

    @property
    def event(self) -> Event:
        """What begins it."""
        record = self.record
        return {"kind": "attach", "old": record.old.fingerprint, "new": record.new.fingerprint,
                "swappable": not self.aside}  # fmt: skip

    def extension(self) -> str:
        """Return the schema of pgvector in SQL."""
        return _extension(self.session)

    def grants(self) -> list[tuple[str, str]]:
        """Return rights on the vectors' column alone: what is granted, and to whom."""
        return [
            (str(privilege), str(role))
            for privilege, role in self.session.rows(
                "SELECT privilege_type, CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) "
                "END FROM pg_attribute, aclexplode(attacl) WHERE attrelid = %s AND attnum = %s",
                [self.table.oid, self.table.vector.number],
            )
        ]

    def table_statements(self, entry: Entry, relation: str) -> list[str]:
        """Return what is done to the table."""
        table, record = self.table, self.record
        if self.aside:
            beside = Aside(entry, relation)
            columns = ", ".join(f"{quoted(column.name)} {column.type} NOT NULL" for column in table.key)
            made = [
                f"CREATE TABLE {beside.table} ({columns}, edited bigint, vector {record.new_type}, "
                f"PRIMARY KEY ({', '.join(quoted(column.name) for column in table.key)}))"
            ]  # fmt: skip
        else:
            layout = Columns(entry, relation, "old")
            new, edited = quoted(layout.name("new")), quoted(layout.edited_name)
            parts = [f"ADD COLUMN {new} {record.new_type}", f"ADD COLUMN {edited} bigint"]
            if table.storage:
                parts.append(f"ALTER COLUMN {new} SET STORAGE {_STORAGE[table.storage]}")
            if table.not_null:
                parts.append(f"ALTER COLUMN {quoted(table.vector.name)} DROP NOT NULL")
            made = [f"ALTER TABLE {relation} {', '.join(parts)}"]
            made += [f"GRANT {privilege} ({new}) ON {relation} TO {role}" for privilege, role in self.grants()]
        return [*made, *create_statements(entry, _laid_out(entry, relation), entry.state, self.extension())]


def plan(
    url: str,
    *,
    old: ModelIdentity,
    new: ModelIdentity,
    aside: bool = False,
    fire_triggers: bool = False,
) -> Plan:
    """Return what attaching would do, in SQL, and the rights that it takes; nothing is changed. See `attach`."""
    address = read_table_address(url)
    session = Session(address.database)
    try:
        with session.transaction():
            it = _Preparation(session, address, old, new, aside=aside, fire_triggers=fire_triggers)
            entry, ledger = it.entry(1), Ledger(session)
            relation = it.table.identifier
            begin = [] if ledger.is_there() else [ledger.statements()]
            steps = {
                "start": (*begin, *it.table_statements(entry, relation)),
                "index": tuple(
                    statement for one in _indexes_of(session, entry, relation) for statement in one.statements()
                ),
            }
            if not aside:
                extension, swapped = it.extension(), replace(entry, state=replace(entry.state, phase="swapped"))
                steps["swap"] = tuple(_turn_statements(entry, relation, "new", extension))
                steps["rollback"] = tuple(_turn_statements(swapped, relation, "old", extension))
            steps["detach"] = tuple(_detach_statements(entry, relation, "old"))
            return Plan(it.table, tuple(it.rights), tuple(it.refusals), it.notes, steps)
    finally:
        session.close()


def attach(
    url: str,
    *,
    old: ModelIdentity,
    new: ModelIdentity,
    aside: bool = False,
    fire_triggers: bool = False,
) -> PostgresAttachment:
    """Attach to a table, or return the attachment of these two models that is there.

    Args:
        url: ``postgresql://USER@HOST/DATABASE?table=SCHEMA.TABLE&id=COLUMN&vector=COLUMN&text=COLUMN``, see
            `read_table_address`.
        old: The model whose vectors are there; a dimension of 0 is taken from them.
        new: The model that is to take over.
        aside: Keep new vectors in a table of their own, where this one may not be altered; nothing can be swapped then.
        fire_triggers: Let filling fire the application's own triggers on updates.

    Raises:
        ConfigError: The URL, a table or a column is wrong.
        DataError: Vectors of several dimensions, or rows that nothing identifies.
        GalleryError: Something rules the table out; it says what.
        UpgradeStateError: The table is attached already, for other models.
        StoreError: Rights are lacking, or the database fails.
    """
    address = read_table_address(url)
    session = Session(address.database)
    ledger = Ledger(session)

    def begin() -> int:
        with session.transaction(LOCK_TIMEOUT):
            session.rows(_GUARD)
            known = _known(session, address, old, new)
            if known is not None:
                return known
            it = _Preparation(session, address, old, new, aside=aside, fire_triggers=fire_triggers)
            it.refuse()
            if not ledger.is_there():
                session.rows(ledger.statements())
            entry = ledger.add(it.record, it.event)
            for statement in it.table_statements(entry, it.table.identifier):
                session.rows(statement)
            if not aside:
                ledger.describe(entry.id, _numbered(session, it.record))
            layout_of(session, ledger.entry(entry.id))
            return entry.id

    try:
        number = session.patiently(begin, ATTEMPTS)
    except BaseException:
        session.close()
        raise
    return PostgresAttachment(address, session, number)


def open_attachment(url: str) -> PostgresAttachment:
    """Open an attachment.

    Args:
        url: As it was attached; the table and its columns may be left out where the database has one attachment.

    Raises:
        GalleryError: There is none, or there are several that the URL may mean.
    """
    address = read_table_address(url)
    session = Session(address.database)
    try:
        with session.transaction():
            entries = [entry for entry in Ledger(session).entries() if _meant(entry, address)]
        if len(entries) != 1:
            listed = ", ".join(f"{one.record.table.schema}.{one.record.table.name}" for one in entries)
            raise GalleryError(
                f"The database has {len(entries) or 'no'} attachments that '{address.url}' may mean"
                f"{f': {listed}' if listed else ''}.",
                expected="one",
                to_do="name the table, …?table=SCHEMA.TABLE&vector=COLUMN; or begin: `holdfast attach start`. "
                "Nothing was changed.",
            )
        return PostgresAttachment(address, session, entries[0].id)
    except BaseException:
        session.close()
        raise


def _meant(entry: Entry, address: TableAddress) -> bool:
    table = entry.record.table
    schema, _, name = address.table.rpartition(".")
    return (not address.table or (name == table.name and schema in ("", table.schema))) and (
        address.vector in ("", table.vector.name)
    )


def _known(session: Session, address: TableAddress, old: ModelIdentity, new: ModelIdentity) -> int | None:
    """Return the attachment that is there of a table, if it is of these models.

    Raises:
        UpgradeStateError: It is of others.
    """
    for entry in Ledger(session).entries():
        if address.table and _meant(entry, address):
            state = entry.state
            if (state.old, state.new) == (old.fingerprint, new.fingerprint):
                return entry.id
            raise UpgradeStateError(
                f"{entry.record.table.schema}.{entry.record.table.name} is attached already: from {state.old} to "
                f"{state.new}, {state.phase}.",
                expected="one upgrade of a column at a time",
                to_do="`holdfast attach status` shows it; detach it first. Nothing was changed.",
            )
    return None


def _numbered(session: Session, record: Record) -> Record:
    """Return the record with the numbers of the columns that were added."""
    names = [added_name(record.table.vector.name, what) for what in ("new", "edited")]
    found = {
        str(name): int(number)
        for name, number in session.rows(
            "SELECT attname, attnum FROM pg_attribute WHERE attrelid = %s AND attname = ANY(%s)",
            [record.table.oid, names],
        )
    }
    return replace(record, new_number=found[names[0]], edited_number=found[names[1]])


def _extension(session: Session) -> str:
    [(schema,)] = session.rows(
        "SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace "
        "WHERE extname = 'vector'"
    )
    return str(schema)


def _laid_out(entry: Entry, relation: str) -> Columns | Aside:
    return Aside(entry, relation) if entry.record.aside else Columns(entry, relation, entry.state.serving)


def _indexes_of(session: Session, entry: Entry, relation: str) -> list[NewIndex]:
    return wanted(session, entry, _laid_out(entry, relation))


def _turn_statements(entry: Entry, relation: str, side: Side, extension: str, writes: Side | None = None) -> list[str]:
    """Return what makes the vectors of a model those that serve."""
    name, table = quoted(entry.record.table.vector.name), entry.record.table
    before, after = Columns(entry, relation, entry.state.serving), Columns(entry, relation, side)
    state = replace(entry.state, phase="swapped" if side == "new" else "rolled back",
                    writes=writes or entry.state.writes)  # fmt: skip
    return [
        f"ALTER TABLE {relation} RENAME COLUMN {name} TO {quoted(added_name(table.vector.name, before.serving))}",
        f"ALTER TABLE {relation} RENAME COLUMN {quoted(before.hidden_name)} TO {name}",
        *create_statements(entry, after, state, extension),
    ]


def _detach_statements(entry: Entry, relation: str, stays: Side) -> list[str]:
    """Return what removes everything that was added, and the vectors of the other model."""
    if entry.record.aside:
        return [drop_statement(entry), f"DROP TABLE {SCHEMA}.vectors_{entry.id}"]
    layout = Columns(entry, relation, stays)
    return [
        drop_statement(entry),
        f"ALTER TABLE {relation} DROP COLUMN {quoted(layout.hidden_name)}, DROP COLUMN {quoted(layout.edited_name)}",
    ]


class PostgresAttachment:
    """An upgrade in a table of PostgreSQL; use `attach` or `open_attachment`.

    Args:
        address: Of the table.
        session: To its database.
        number: Of the attachment in the ledger.
        texts: Texts of the table's rows, for sources that embed them anew.
        stored: The old vectors of the rows, for adapters and heads.
    """

    def __init__(self, address: TableAddress, session: Session, number: int) -> None:
        self.address, self.number = address, number
        self._session, self._ledger, self._reader = session, Ledger(session), Session(address.database)
        entry = self._entry()
        self.texts, self.stored = TableTexts(self._reader, entry), TableVectors(self._reader, entry)

    def __enter__(self) -> PostgresAttachment:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _entry(self) -> Entry:
        with self._session.transaction():
            return self._ledger.entry(self.number)

    @property
    def place(self) -> str:
        """The table and its column of vectors, in words."""
        table = self._entry().record.table
        return f"{table.schema}.{table.name}.{table.vector.name}"

    @property
    def state(self) -> AttachmentState:
        """Where it stands."""
        return self._entry().state

    @property
    def started(self) -> datetime:
        """When it began."""
        return self._entry().started

    def status(self) -> AttachmentStatus:
        """Read where it stands; every row is counted.

        Raises:
            GalleryError: It was detached, or the table was changed while it was attached.
        """
        with self._session.transaction():
            entry, layout = held(self._session, self.number)
            [(items, old, new, empty)] = self._session.rows(
                f"SELECT count(*) FILTER (WHERE {layout.wanted}), count(*) FILTER (WHERE {layout.lacking('old')}), "
                f"count(*) FILTER (WHERE {layout.lacking('new')}), count(*) FILTER (WHERE NOT ({layout.wanted})) "
                f"FROM {layout.rows}"
            )
            indexes = statuses(self._session, wanted(self._session, entry, layout))
        table = entry.record.table
        return AttachmentStatus(
            f"{table.schema}.{table.name}.{table.vector.name}", entry.state, entry.record.old, entry.record.new,
            int(items), {"old": int(old), "new": int(new)}, int(empty), indexes,
        )  # fmt: skip

    def backfill(
        self,
        source: VectorSource,
        *,
        of: Side = "new",
        made: datetime | None = None,
        **options: Unpack[FillOptions],
    ) -> Backfilled:
        """Give rows that lack one a vector of one of the models; what the application writes meanwhile wins.

        Several may run at once. Stopped anywhere, another one goes on.

        Args:
            source: Of that model. `texts` and `stored` read the table's rows for it.
            of: Which model.
            made: When the vectors of a source were made that does not read the rows now, such as files: rows that the
                application changed later are passed over.
            **options: See `FillOptions`.

        Raises:
            DataError: The source is of another model.
            StoreError: The database stayed out of reach.
        """
        done = Filling(self._session, self.number, source, of, made=made, **options).run()
        _log.log(INFO, "filled %d rows of %s with vectors of %s, %d lack one",
                 done.written, self.address.url, done.generation, done.lacking)  # fmt: skip
        return done

    def index(self) -> None:
        """Build the indexes over new vectors, one after the other, while the application reads and writes.

        Raises:
            UpgradeStateError: Rows are to be filled first.
            GalleryError: Somebody else is building one.
        """
        with self._session.transaction():
            entry, layout = held(self._session, self.number)
            advance(entry.state, {"kind": "index"})
            indexes = wanted(self._session, entry, layout)
            self._ledger.note(self.number, {"kind": "index began", "indexes": [one.name for one in indexes]})
        build(self._session, indexes)
        self._step({"kind": "index", "indexes": [one.name for one in indexes]})

    def _step(self, event: Event) -> AttachmentState:
        with self._session.transaction():
            return self._ledger.step(self._ledger.entry(self.number, lock=True), event)

    def swap(
        self,
        source: VectorSource | None = None,
        *,
        writes: Side | None = None,
        allow_missing: int = 0,
        attempts: int = ATTEMPTS,
    ) -> None:
        """Let the application's queries find the new vectors: two columns change their names in one transaction.

        Args:
            source: Of the new model: rows that were written a moment ago are filled while writers wait.
            writes: With which model the application writes from then on; as before if left out.
            allow_missing: So many rows may lack a vector, and are not found until they have one.
            attempts: How often to ask for the lock.

        Raises:
            UpgradeStateError: It is not indexed yet, or rows lack a new vector; they are named.
            LockedError: The table was in use all the time by statements that take longer than `LOCK_TIMEOUT`.
        """
        self._turn("swap", "new", source, writes, allow_missing, attempts)

    def rollback(
        self,
        source: VectorSource | None = None,
        *,
        writes: Side | None = None,
        allow_missing: int = 0,
        attempts: int = ATTEMPTS,
    ) -> None:
        """Let them find the old vectors again; the arguments are those of `swap`, for the old model."""
        self._turn("rollback", "old", source, writes, allow_missing, attempts)

    def _turn(
        self, kind: str, side: Side, source: VectorSource | None, writes: Side | None, allow: int, attempts: int
    ) -> None:
        event: dict[str, object] = {"kind": kind, "allow_missing": allow} | ({"writes": writes} if writes else {})
        entry = self._entry()
        state = advance(entry.state, event)
        if entry.record.old.dim != entry.record.new.dim and state.writes != side:
            raise UpgradeStateError(
                f"Cannot {kind}: the application writes vectors of {entry.record.old.dim} and "
                f"{entry.record.new.dim} numbers into one column.",
                expected=f"an application that writes with {entry.state.fingerprint(side)} from that moment on",
                to_do=f"repeat it with --writes {side}, in the moment the application changes; nothing was changed.",
            )
        if source is not None:
            check_made(source, entry, side)
            with self._session.transaction():
                lacking = lacking_rows(self._session, held(self._session, self.number)[1], side)
            if lacking > DRAINED:
                self.backfill(source, of=side)

        def attempt() -> None:
            with self._session.transaction(LOCK_TIMEOUT):
                entry = self._ledger.entry(self.number, lock=True)
                advance(entry.state, event)
                entry, layout = held(self._session, self.number, "SHARE ROW EXCLUSIVE")
                if source is not None:
                    self._drain(entry, layout, source, side)
                lacking = lacking_rows(self._session, layout, side)
                if lacking > allow:
                    ids = read_batch(self._session, entry, layout, side, 20).ids
                    raise self._lacking(kind, side, lacking, ids)
                if side == "new":
                    self._refuse_unbuilt(entry, layout)
                self._session.rows(f"LOCK TABLE {layout.relation} IN ACCESS EXCLUSIVE MODE")
                extension = _extension(self._session)
                for statement in _turn_statements(entry, layout.relation, side, extension, writes):
                    self._session.rows(statement)
                self._ledger.step(entry, {**event, "lacking": lacking})

        self._session.patiently(attempt, attempts)
        _log.log(INFO, "%s of %s: %s serves", kind, self.address.url, state.fingerprint(side))

    def _drain(self, entry: Entry, layout: Columns | Aside, source: VectorSource, side: Side) -> None:
        """Fill the last rows, while writers wait and readers do not."""
        batch = read_batch(self._session, entry, layout, side, DRAINED)
        if batch.keys:
            write_batch(self._session, entry, layout, side, batch, source.embed(batch.ids))
            self._session.rows("SELECT set_config('holdfast.filling', '', true)")

    def _lacking(self, kind: str, side: Side, lacking: int, ids: Sequence[str]) -> UpgradeStateError:
        return UpgradeStateError(
            f"Cannot {kind}: {lacking:,} rows have no up-to-date vector of the {side} model, and would not be found: "
            f"{shown(ids, lacking)}.",
            expected="a vector for every row",
            to_do=f"`holdfast attach backfill --of {side}` fills them; or give {kind} the source, which fills the last "
            f"ones by itself; or allow it: --allow-missing {lacking}. Nothing was changed.",
        )

    def _refuse_unbuilt(self, entry: Entry, layout: Columns | Aside) -> None:
        unbuilt = [one.name for one in statuses(self._session, wanted(self._session, entry, layout)) if not one.built]
        if unbuilt:
            raise UpgradeStateError(
                f"Cannot swap: {', '.join(unbuilt)} {'is' if len(unbuilt) == 1 else 'are'} not built.",
                expected="the indexes over new vectors that there are over the old ones",
                to_do="`holdfast attach index` builds them; nothing was changed.",
            )

    def declare_writes(self, model: str) -> Side:
        """Declare with which model the application writes, where a session does not say it by holdfast.writes_with.

        Args:
            model: old, new, or a fingerprint.

        Raises:
            ConfigError: Neither of the two.
            UpgradeStateError: The dimension of the column says it, and something else.
        """

        def attempt() -> Side:
            with self._session.transaction(LOCK_TIMEOUT):
                entry = self._ledger.entry(self.number, lock=True)
                side = entry.state.side_of(model)
                if entry.record.old.dim != entry.record.new.dim and side != entry.state.serving:
                    raise UpgradeStateError(
                        f"The column takes vectors of {entry.state.fingerprint(entry.state.serving)} only, whose "
                        "dimension is another.",
                        expected="a declaration in the moment of the swap",
                        to_do=f"`holdfast attach swap --writes {side}` (or rollback); nothing was changed.",
                    )
                entry, layout = held(self._session, self.number, "SHARE ROW EXCLUSIVE")
                state = self._ledger.step(entry, {"kind": "writes", "writes": side})
                for statement in create_statements(entry, layout, state, _extension(self._session)):
                    self._session.rows(statement)
                return side

        return self._session.patiently(attempt, ATTEMPTS)

    def verify(self, *, watch: float = 0.0) -> Verification:
        """Look for what is not as it should be, and for queries of the application that should change.

        Args:
            watch: Seconds to watch pg_stat_statements, so that only queries that are still sent are named; all that it
                remembers when 0.
        """
        with self._session.transaction():
            entry = self._ledger.entry(self.number)
            problems = table_problems(self._session, entry)
        queries, unwatched = queries_of(self._session, entry, watch)
        return Verification(tuple(problems), tuple(queries), unwatched)

    def complete(self, *, allow_missing: int = 0) -> None:
        """Count every row, and declare the upgrade finished: `detach` keeps the new vectors from then on.

        Raises:
            UpgradeStateError: It is not swapped, rows lack a new vector, or the application writes with the old model.
        """
        event = {"kind": "complete", "allow_missing": allow_missing}
        with self._session.transaction():
            entry = self._ledger.entry(self.number, lock=True)
            advance(entry.state, event)
            entry, layout = held(self._session, self.number)
            lacking = lacking_rows(self._session, layout, "new")
            if lacking > allow_missing:
                raise self._lacking("complete", "new", lacking, read_batch(
                    self._session, entry, layout, "new", 20).ids)  # fmt: skip
            self._ledger.step(entry, {**event, "lacking": lacking})

    def detach(self, *, allow_missing: int = 0, abandon: bool = False) -> None:
        """Remove everything that was added, and leave the vectors that serve: the table is as it was.

        Args:
            allow_missing: So many rows may stay without a vector.
            abandon: Remove what is left of the attachment to a table that was changed, whatever it is.

        Raises:
            UpgradeStateError: The new vectors serve, and it is not completed; or rows lack a vector.
        """
        entry = self._entry()
        stays: Side = "new" if entry.state.phase == "completed" else "old"
        advance(entry.state, {"kind": "detach"})
        if abandon:
            self._session.patiently(self._abandon, ATTEMPTS)
            return
        required = bool(entry.record.table.not_null) and not entry.record.aside
        check = quoted(added_name(entry.record.table.vector.name, "check"))

        def attempt() -> None:
            with self._session.transaction(LOCK_TIMEOUT):
                self._session.rows(_GUARD)
                entry = self._ledger.entry(self.number, lock=True)
                advance(entry.state, {"kind": "detach"})
                entry, layout = held(self._session, self.number, "SHARE ROW EXCLUSIVE")
                lacking = lacking_rows(self._session, layout, stays)
                if lacking > (0 if required else allow_missing):
                    raise self._lacking("detach", stays, lacking, read_batch(
                        self._session, entry, layout, stays, 20).ids)  # fmt: skip
                names = _names_to_restore(entry) if stays == "new" else []
                self._session.rows(f"LOCK TABLE {layout.relation} IN "
                                   f"{'ACCESS SHARE' if entry.record.aside else 'ACCESS EXCLUSIVE'} MODE")  # fmt: skip
                for statement in _detach_statements(entry, layout.relation, stays):
                    self._session.rows(statement)
                if not entry.record.aside:
                    schema, lacks = entry.record.table.schema, added_name(entry.record.table.vector.name, "lacks_")
                    for index in _left_indexes(self._session, entry, lacks):
                        self._session.rows(f"DROP INDEX IF EXISTS {quoted(schema, index)}")
                for before, after in names:
                    self._session.rows(f"ALTER INDEX {before} RENAME TO {after}")
                if required:
                    self._session.rows(_restored_not_null(self._session, entry, layout.relation))
                    self._session.rows(f"ALTER TABLE {layout.relation} DROP CONSTRAINT {check}")
                self._ledger.step(entry, {"kind": "detach", "stays": stays})
                self._ledger.remove(self.number)

        if required:
            self._session.patiently(lambda: self._check_not_null(stays, check), ATTEMPTS)
        self._session.patiently(attempt, ATTEMPTS)
        _log.log(INFO, "detached %s: %s stays", self.address.url, entry.state.fingerprint(stays))

    def _check_not_null(self, stays: Side, check: str) -> None:
        """Let the server see, beside reads and writes, that no vector is missing."""
        with self._session.transaction(LOCK_TIMEOUT):
            entry, layout = held(self._session, self.number, "ACCESS EXCLUSIVE")
            column = layout.vector(stays).removeprefix("t.")
            lacking = self._session.rows(f"SELECT FROM {layout.rows} WHERE {layout.vector(stays)} IS NULL LIMIT 1")
            if lacking:
                ids = read_batch(self._session, entry, layout, stays, 20).ids
                raise self._lacking("detach", stays, lacking_rows(self._session, layout, stays), ids)
            self._session.rows(f"ALTER TABLE {layout.relation} DROP CONSTRAINT IF EXISTS {check}, "
                               f"ADD CONSTRAINT {check} CHECK ({column} IS NOT NULL) NOT VALID")  # fmt: skip
        with self._session.transaction():
            _, layout = held(self._session, self.number)
            self._session.rows(f"ALTER TABLE {layout.relation} VALIDATE CONSTRAINT {check}")

    def _abandon(self) -> None:
        with self._session.transaction(LOCK_TIMEOUT):
            self._session.rows(_GUARD)
            entry = self._ledger.entry(self.number, lock=True)
            record = entry.record
            self._session.rows(drop_statement(entry))
            if record.aside:
                self._session.rows(f"DROP TABLE IF EXISTS {SCHEMA}.vectors_{entry.id}")
            try:
                relation = relation_of(self._session, entry)
            except StoreError:
                raise
            except GalleryError:
                relation = ""
            if relation and not record.aside:
                gone = self._session.rows(
                    "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = %s AND attnum = ANY(%s) "
                    "AND NOT attisdropped", [record.table.oid, [record.new_number, record.edited_number]],
                )  # fmt: skip
                if gone:
                    parts = ", ".join(f"DROP COLUMN {name}" for (name,) in gone)
                    self._session.rows(f"ALTER TABLE {relation} {parts}")
                for index in _left_indexes(self._session, entry, added_name(record.table.vector.name, "lacks_")):
                    self._session.rows(f"DROP INDEX IF EXISTS {quoted(record.table.schema, index)}")
            self._ledger.step(entry, {"kind": "detach", "abandoned": True})
            self._ledger.remove(self.number)

    def journal(self) -> Sequence[Mapping[str, Any]]:
        """Return what was done, the last event last, each with "at", a moment, and "kind"."""
        with self._session.transaction():
            return self._ledger.journal(self.number)

    def client_queries(self) -> list[tuple[str, str]]:
        """Return SQL for the application, each with what it is for."""
        entry = self._entry()
        table, state = entry.record.table, entry.state
        relation, column = f"{table.schema}.{table.name}", table.vector.name
        if entry.record.aside:
            key = ", ".join(quoted(one.name) for one in table.key)
            return [(
                "to search new vectors instead of old ones",
                f"SELECT … FROM {table.identifier} JOIN {SCHEMA}.vectors_{entry.id} AS new USING ({key}) "
                "ORDER BY new.vector <=> …",
            )]  # fmt: skip
        served = f"{SCHEMA}.model_of({literal(relation)}, {literal(column)})"
        return [
            ("to know in the very statement that searches which model the query must be of; if it was another, embed "
             "it again and repeat",
             f"SELECT {served} AS model, … FROM {table.identifier} ORDER BY {quoted(column)} <=> …"),
            ("to say in a transaction that its vectors are of the new model (without LOCAL: in a session)",
             f"SET LOCAL holdfast.writes_with = {literal(state.new)}"),
        ]  # fmt: skip

    def close(self) -> None:
        """Let go of connections."""
        self._session.close()
        self._reader.close()


def _left_indexes(session: Session, entry: Entry, prefix: str) -> list[str]:
    """Return the indexes over rows that lack a vector that are still there: of a parent, not of its partitions."""
    return [
        str(name)
        for (name,) in session.rows(
            "SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
            "WHERE indrelid = %s AND starts_with(relname::text, %s)", [entry.record.table.oid, prefix],
        )
    ]  # fmt: skip


def _names_to_restore(entry: Entry) -> list[tuple[str, str]]:
    """Return the new indexes in SQL, and the name of the old one in the place of each."""
    if entry.record.aside:
        return []
    table = entry.record.table
    return [(quoted(table.schema, added_name(one.name, "new")), quoted(one.name)) for one in table.indexes]


def _restored_not_null(session: Session, entry: Entry, relation: str) -> str:
    """Return what makes the application's constraint again, by its name where the server knows one."""
    table = entry.record.table
    column = quoted(table.vector.name)
    [(number,)] = session.rows("SELECT current_setting('server_version_num')::int")
    if number >= 180_000 and table.not_null != "NOT NULL":
        return f"ALTER TABLE {relation} ADD CONSTRAINT {quoted(table.not_null)} NOT NULL {column}"
    return f"ALTER TABLE {relation} ALTER COLUMN {column} SET NOT NULL"
