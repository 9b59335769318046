"""Layouts of the vectors of both models in SQL: two columns of one table, one column, or a second table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from limpet.attached.postgres.ledger import SCHEMA, TableEntry, TableLedger, TableRecord, closed
from limpet.attached.state import AttachmentState
from limpet.engines.postgres.database import PostgresDatabase, literal, quoted
from limpet.engines.promises import Promises
from limpet.engines.sides import OTHER, SIDES, ModelSide
from limpet.errors import GalleryError

LONGEST_NAME = 63
MARK = "limpet upgrade"
"""Prefix of the comment on an added column; the token of the attachment follows."""
BEFORE = " before"
"""Suffix of a model's name in the mark of a vector that belongs to an earlier text."""
AT_START = 1
"""First number of the mark of a row that has not changed since the start."""
MOVED = -1
"""First number of the mark of a new row whose vector is about to be moved to the other column."""
WITHDRAWN = -2
"""First number of the mark of a row from which the application removes a vector that was to be filled."""
NOW = "(date_part('epoch', clock_timestamp()) * '1000000'::double precision)::bigint"  # as pg_catalog has it exactly

_STORAGE = {"p": "PLAIN", "e": "EXTERNAL", "m": "MAIN", "x": "EXTENDED"}


ADDED = "new", "old", "kept", "mark", "model"
"""Suffixes of the names of added columns."""


def added_name(name: str, what: str) -> str:
    """Return the name of an added object, within PostgreSQL's length limit.

    >>> added_name("emb", "new"), len(added_name("e" * 63, "edited"))
    ('emb_limpet_new', 63)
    """
    suffix = f"_limpet_{what}"
    room = LONGEST_NAME - len(suffix.encode())
    return name.encode()[:room].decode(errors="ignore") + suffix


def text_of(record: TableRecord, row: str = "t") -> str:
    """Return the SQL of the embedded text of a row: several columns joined by line breaks, "" for NULL."""
    columns = ", ".join(f"{row}.{quoted(column.name)}" for column in record.table.texts)
    return f"concat_ws(E'\\n', {columns})" if columns else "''"


def digest(text: str, *vectors: str) -> str:
    """Return a 64-bit digest of the text of a row and its vectors, which reveals later changes.

    The bytes of a vector follow the number of columns and the type in those of a record, so that no function in the
    schema of pgvector has to be named.
    """
    parts = " || ".join(f"md5(substr(record_send(ROW({one})), 9))" for one in vectors)
    return f"('x' || left(md5({text} || {parts}), 16))::bit(64)::bigint"


class Layout(Protocol):
    """SQL expressions for rows and vectors; ``t`` is a row of the application's table.

    Every row has a mark: numbers, visible to every client that selects *. The first number is the time at which the
    application last changed the row: microseconds of the clock, `AT_START` for never, and 0 where the row keeps no
    vector. The others are digests, see `digest`. A row without a mark was written without our triggers, and its vectors
    are unknown.

    Args:
        relation: The application's table in SQL.
        text: See `text_of`.
        edited: Time at which the application last changed a row; NULL where a vector is unknown.
        stamp: Text that differs as soon as the row, or its text, has changed.
        unknown: Whether a row has a vector whose model or text is unknown.
        unseen: Whether a row was changed without our triggers since it got its mark; this reads every vector.
        forget: Clause after UPDATE that removes the mark of such rows.
        wanted: Whether a row should have vectors.
        home: Name of the original column of the old vectors.
        added: Name and type of each column that is added to the table, by the name of its number in `TableRecord`.
        triggers: Names of the triggers.
    """

    promises: ClassVar[Promises]
    """Guarantees for an upgrade."""

    relation: str
    rows: str
    text: str
    edited: str
    stamp: str
    unknown: str
    unseen: str
    forget: str
    wanted: str
    home: str
    added: Mapping[str, tuple[str, str]]
    triggers: tuple[str, ...]

    def vector(self, side: ModelSide) -> str:
        """Return the vector of a model."""
        ...

    def current(self, side: ModelSide) -> str:
        """Return the vector of a model if it belongs to the row's current text; NULL otherwise."""
        return self.vector(side)

    def lacking(self, side: ModelSide) -> str:
        """Return whether a row lacks a vector of a model for its current text."""
        return f"{self.vector(side)} IS NULL AND {self.wanted}"

    def displaced(self, side: ModelSide) -> str:
        """Return whether a row would have no known vector of a model if only that model stayed."""
        return self.lacking(side)

    def make(self, grants: Sequence[tuple[str, str]]) -> list[str]:
        """Return the statements that add columns or tables; grants are the privileges on the vector column by role."""
        ...

    def remove(self) -> list[str]:
        """Return the statements that keep only the serving vectors."""
        ...

    def write(self, side: ModelSide) -> str:
        """Return the statement that writes vectors into rows that have not changed since they were read."""
        ...


def keys(record: TableRecord, alias: str = "t") -> str:
    """Return the columns of the key, separated by commas."""
    return ", ".join(f"{alias}.{quoted(column.name)}" for column in record.table.key)


def key_texts(record: TableRecord) -> str:
    """Return the columns of the key of a row ``t`` as texts, separated by commas."""
    return ", ".join(f"t.{quoted(column.name)}::text" for column in record.table.key)


def same_key(record: TableRecord, one: str, another: str) -> str:
    """Return whether two rows have the same key."""
    return " AND ".join(
        f"{one}.{quoted(column.name)} {column.equals} {another}.{quoted(column.name)}" for column in record.table.key
    )


def given(record: TableRecord, *further: tuple[str, str]) -> str:
    """Return rows that are sent as arrays, ``d`` in SQL: the columns of the key, and further ones."""
    columns = [(quoted(column.name), column.type) for column in record.table.key]
    sent = ["%s::text[]" for _ in columns] + [f"%b::{kind}[]" for _, kind in further]
    names = ", ".join([*(name for name, _ in columns), *(name for name, _ in further)])
    typed = ", ".join([*(f"{name}::{kind} AS {name}" for name, kind in columns), *(name for name, _ in further)])
    return f"(SELECT {typed} FROM unnest({', '.join(sent)}) AS sent({names})) AS d"  # unnest flattens arrays of arrays


def arrays(record: TableRecord, found: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the keys of rows as `given` takes them: one list for each column."""
    return [[key[place] for key in found] for place in range(len(record.table.key))]


def marking(record: TableRecord, relation: str, column: str) -> str:
    """Return the statement that marks a column as added by an attachment; a dump keeps the mark."""
    said = f"{MARK} {record.token}: added beside {record.table.vector.name}, see `limpet upgrade status`"
    return f"COMMENT ON COLUMN {relation}.{quoted(column)} IS {literal(said)}"


_FIRST = {"mark_number": f"{{{AT_START}}}", "model_number": "old"}


def _adding(relation: str, record: TableRecord, added: Mapping[str, tuple[str, str]], *further: str) -> list[str]:
    """Return the statements that add columns; the vector column has the storage of the application's.

    Existing rows get their marks by column defaults, which rewrite no row and are dropped at once: a later row that is
    written without our triggers has no mark.
    """
    defaults = {added[one][0]: first for one, first in _FIRST.items() if one in added}
    parts = [
        f"ADD COLUMN {quoted(name)} {kind}{f' DEFAULT {literal(defaults[name])}' if name in defaults else ''}"
        for name, kind in added.values()
    ]
    if record.table.storage:
        vectors = quoted(added["new_number"][0])
        parts.append(f"ALTER COLUMN {vectors} SET STORAGE {_STORAGE[record.table.storage]}")
    dropped = ", ".join(f"ALTER COLUMN {quoted(name)} DROP DEFAULT" for name in defaults)
    return [
        f"ALTER TABLE {relation} {', '.join([*parts, *further])}",
        f"ALTER TABLE {relation} {dropped}",
        *(marking(record, relation, name) for name, _ in added.values()),
    ]


class ColumnLayout(Layout):
    """Both vectors are in columns of the application's table: the one that serves has the application's name.

    A mark has three numbers: the time of the last change, a digest of the text and the old vector, and one of the text
    and the new vector. A vector without a digest is of an earlier text, or unknown; the old vector of a row that has
    not changed since the start needs none.
    """

    promises: ClassVar[Promises] = Promises(
        "the application", "triggers", "one transaction", "one transaction", earlier=False, index="like the old one"
    )

    def __init__(self, entry: TableEntry, relation: str, serving: ModelSide) -> None:
        table = entry.record.table
        self.record, self.serving, self.relation, self.rows = entry.record, serving, relation, f"{relation} AS t"
        self.text = text_of(self.record)
        self.served, self.hidden_name = table.vector.name, added_name(table.vector.name, OTHER[serving])
        self.mark_name = added_name(table.vector.name, "mark")
        self.home = self.name("old")
        self.edited = f"(t.{quoted(self.mark_name)})[1]"
        self.stamp = f"concat_ws(':', {self.edited}, md5({self.text}))"
        self.added = {
            "new_number": (self.name("new"), self.record.new_type),
            "mark_number": (self.mark_name, "bigint[]"),
        }
        self.triggers = ("insert", "moved", *(["source"] if table.texts else []), "row", "nulled")
        served, hidden = f"t.{quoted(self.served)}", f"t.{quoted(self.hidden_name)}"
        self.wanted = (
            f"CASE WHEN {self.edited} IS NULL THEN {served} IS NOT NULL OR {hidden} IS NOT NULL "
            f"WHEN {self.edited} = {AT_START} THEN {self.vector('old')} IS NOT NULL ELSE {self.edited} <> 0 END"
        )
        self.unknown = f"{self.edited} IS NULL AND {self.wanted}"
        self.unseen = " OR ".join(
            f"coalesce({self.known(side)} <> {digest(self.text, self.vector(side))}, false)" for side in SIDES
        )
        withdrawn = f"{self.known(serving)} IS NOT NULL"  # the row had a vector, and none was to be filled
        self.forget = (
            f"SET {quoted(self.hidden_name)} = NULL, {quoted(self.mark_name)} = CASE WHEN {served} IS NULL THEN "
            f"ARRAY[CASE WHEN {withdrawn} THEN 0 ELSE {NOW} END, NULL, NULL] END"
        )

    def name(self, side: ModelSide) -> str:
        """Return the name of the column with the vectors of a model."""
        return self.served if side == self.serving else self.hidden_name

    def vector(self, side: ModelSide) -> str:
        """Return the vector of a model."""
        return f"t.{quoted(self.name(side))}"

    def known(self, side: ModelSide, row: str = "t.") -> str:
        """Return the digest of the vector of a model in the mark."""
        return f"({row}{quoted(self.mark_name)})[{SIDES.index(side) + 2}]"

    def missing(self, side: ModelSide, row: str = "t.") -> str:
        """Return whether a row has no vector of a model for its text, needed or not; the condition of an index."""
        untouched = f" AND ({row}{quoted(self.mark_name)})[1] IS DISTINCT FROM {AT_START}" if side == "old" else ""
        return f"({row}{quoted(self.name(side))} IS NULL OR {self.known(side, row)} IS NULL{untouched})"

    def current(self, side: ModelSide) -> str:
        """Return the vector of a model if it belongs to the row's current text; NULL otherwise."""
        return f"(CASE WHEN NOT {self.missing(side)} THEN {self.vector(side)} END)"

    def lacking(self, side: ModelSide) -> str:
        """Return whether a row lacks a vector of a model for its current text."""
        return f"{self.missing(side)} AND {self.wanted}"

    def displaced(self, side: ModelSide) -> str:
        """Return whether a row would have no known vector of a model if only that model stayed.

        A vector of an earlier text stays, as it would without us: the application has not replaced it.
        """
        unknown = f"{self.edited} IS NULL AND {self.known(side)} IS NULL"
        return f"({self.vector(side)} IS NULL OR {unknown}) AND {self.wanted}"

    def make(self, grants: Sequence[tuple[str, str]]) -> list[str]:
        """Return the statements that add columns; grants are the privileges on the vector column by role."""
        free = [f"ALTER COLUMN {quoted(self.served)} DROP NOT NULL"] * bool(self.record.table.not_null)
        return [
            *_adding(self.relation, self.record, self.added, *free),
            *(f"GRANT {right} ({quoted(self.name('new'))}) ON {self.relation} TO {role}" for right, role in grants),
        ]

    def remove(self) -> list[str]:
        """Return the statements that keep only the serving vectors."""
        hidden, mark = quoted(self.hidden_name), quoted(self.mark_name)
        return [f"ALTER TABLE {self.relation} DROP COLUMN {hidden}, DROP COLUMN {mark}"]

    def write(self, side: ModelSide) -> str:
        """Return the statement that writes vectors into rows that have not changed since they were read."""
        column, record, rest = quoted(self.name(side)), self.record, OTHER[side]
        made = f"mine.made::{record.new_type if side == 'new' else record.table.vector.type}"
        marks = {side: digest(self.text, made), rest: self.known(rest)}
        if rest == "old":
            untouched = f"CASE WHEN {self.edited} = {AT_START} THEN {digest(self.text, self.vector(rest))} END"
            marks[rest] = f"coalesce({self.known(rest)}, {untouched})"
        unknown = f"{self.edited} IS NULL AND {self.vector(rest)} IS NOT NULL AND {self.known(rest)} IS NULL"
        edited = f"CASE WHEN {unknown} THEN NULL ELSE coalesce({self.edited}, {NOW}) END"
        return f"{_unchanged(self, record, side)} UPDATE {self.relation} AS t SET {column} = {made}, " \
               f"{quoted(self.mark_name)} = ARRAY[{edited}, {marks['old']}, {marks['new']}] " \
               f"FROM mine WHERE {same_key(record, 't', 'mine')}"  # fmt: skip


def _unchanged(layout: ColumnLayout | OneColumn, record: TableRecord, side: ModelSide) -> str:
    """Return the start of a statement: rows, ``mine`` in SQL, that are unchanged since read and lack a vector."""
    return (
        f"WITH d AS MATERIALIZED (SELECT * FROM {given(record, ('stamp', 'text'), ('made', 'vector'))}), "
        f"mine AS MATERIALIZED (SELECT {keys(record)}, d.made FROM {layout.rows} JOIN d ON "
        f"{same_key(record, 't', 'd')} WHERE {layout.stamp} = d.stamp AND "
        f"{layout.lacking(side)} FOR NO KEY UPDATE OF t SKIP LOCKED)"
    )


class OneColumn(Layout):
    """Vectors of both models are in the application's own column, and a mark stores the model of each one.

    This is for models whose vectors may be compared with one another. A second column keeps the vector of the other
    model, of the same text. A third column stores the model of the vector: old, new, or "old before" or "new before"
    for a vector of an earlier text, which serves until it is replaced; NULL if unknown. The mark has two numbers: the
    time of the last change, and a digest of the row's text and both vectors.

    Args:
        turns: The model whose vectors the column should hold in the end.
    """

    promises: ClassVar[Promises] = Promises(
        "the application", "triggers", "one entry of the ledger", "row by row", earlier=False, index="like the old one"
    )

    def __init__(self, entry: TableEntry, relation: str, turns: ModelSide) -> None:
        table = entry.record.table
        self.record, self.relation, self.rows, self.turns = entry.record, relation, f"{relation} AS t", turns
        self.home, self.text = table.vector.name, text_of(self.record)
        self.kept_name, self.mark_name, self.model_name = (
            added_name(table.vector.name, what) for what in ("kept", "mark", "model")
        )
        self.own, self.kept, self.model, self.mark = (
            f"t.{quoted(name)}" for name in (self.home, self.kept_name, self.model_name, self.mark_name)
        )
        self.edited, self.wanted = f"({self.mark})[1]", f"{self.own} IS NOT NULL"
        self.stamp = f"concat_ws(':', {self.edited}, md5({self.text}))"
        self.unknown = f"{self.model} IS NULL AND {self.wanted}"
        self.unseen = f"({self.mark})[2] <> {digest(self.text, self.own, self.kept)}"
        self.forget = (
            f"SET {', '.join(f'{quoted(one)} = NULL' for one in (self.kept_name, self.model_name, self.mark_name))}"
        )
        self.added = {
            "new_number": (self.kept_name, table.vector.type),
            "mark_number": (self.mark_name, "bigint[]"),
            "model_number": (self.model_name, "text"),
        }
        self.triggers = ("insert", *(["source"] if table.texts else []), "row")

    def vector(self, side: ModelSide) -> str:
        """Return the vector of a model."""
        return f"(CASE {self.model} WHEN '{side}' THEN {self.own} WHEN '{OTHER[side]}' THEN {self.kept} END)"

    def displaced(self, side: ModelSide) -> str:
        """Return whether a row would have no known vector of a model if only that model stayed.

        A vector of an earlier text stays, as it would without us: the application has not replaced it.
        """
        return f"coalesce({self.model}, '') NOT IN ('{side}', '{side}{BEFORE}') AND {self.wanted}"

    def make(self, grants: Sequence[tuple[str, str]]) -> list[str]:
        """Return the statements that add the columns; no other code reads or writes these columns."""
        return _adding(self.relation, self.record, self.added)

    def remove(self) -> list[str]:
        """Return the statements that keep only vectors of the column's target model; other rows then have none."""
        dropped = ", ".join(f"DROP COLUMN {quoted(name)}" for name, _ in self.added.values())
        return [
            f"UPDATE {self.relation} AS t SET {quoted(self.home)} = NULL WHERE {self.displaced(self.turns)}",
            f"ALTER TABLE {self.relation} {dropped}",
        ]

    def write(self, side: ModelSide) -> str:
        """Return the statement that writes vectors into rows that have not changed since they were read.

        The replaced vector is kept, unless it is of an earlier text. A vector of the model that is to be removed does
        not replace one of the model that is to stay.
        """
        stays = f"{self.model} = '{self.turns}'" if side != self.turns else "false"
        made = f"mine.made::{self.record.table.vector.type}"
        own = f"CASE WHEN {stays} THEN {self.own} ELSE {made} END"
        kept = f"CASE WHEN {stays} THEN {made} WHEN {self.model} = '{OTHER[side]}' THEN {self.own} END"
        return (
            f"{_unchanged(self, self.record, side)} UPDATE {self.relation} AS t SET "
            f"{quoted(self.home)} = {own}, {quoted(self.kept_name)} = {kept}, "
            f"{quoted(self.model_name)} = CASE WHEN {stays} THEN {self.model} ELSE '{side}' END, "
            f"{quoted(self.mark_name)} = ARRAY[coalesce({self.edited}, {NOW}), {digest(self.text, own, kept)}] "
            f"FROM mine WHERE {same_key(self.record, 't', 'mine')}"
        )

    def put_back(self, limit: int | None, after: bool) -> str:
        """Return the statement that puts kept vectors into the column, and keeps those that it replaces.

        Args:
            limit: Maximum number of rows, skipping locked ones; None for all rows, waiting for locked ones.
            after: Whether to change only rows after a key, whose columns are sent as texts.

        Returns:
            The statement. It returns one row if it changed any: their number, and the largest key.
        """
        record = self.record
        key = ", ".join(f"%s::text::{column.type}" for column in record.table.key)
        beyond = f" AND ({keys(record)}) > ({key})" if after else ""
        few = "" if limit is None else f" ORDER BY {keys(record)} LIMIT {limit} FOR NO KEY UPDATE OF t SKIP LOCKED"
        largest = ", ".join(f"{one} DESC" for one in keys(record).split(", "))
        return (
            f"WITH mine AS MATERIALIZED (SELECT {keys(record)} FROM {self.rows} WHERE {self.displaced(self.turns)} "
            f"AND {self.vector(self.turns)} IS NOT NULL{beyond}{few}), "
            f"done AS (UPDATE {self.relation} AS t SET {quoted(self.home)} = {self.kept}, "
            f"{quoted(self.kept_name)} = {self.own}, {quoted(self.model_name)} = {literal(self.turns)}, "
            f"{quoted(self.mark_name)} = ARRAY[{self.edited}, {digest(self.text, self.kept, self.own)}] FROM mine "
            f"WHERE {same_key(record, 't', 'mine')} RETURNING {keys(record)}) "
            f"SELECT count(*) OVER (), {key_texts(record)} FROM done AS t ORDER BY {largest} LIMIT 1"
        )


class Aside(Layout):
    """New vectors are in a table of their own; the application's table stays as it is.

    Args:
        relation: The application's table in SQL.
    """

    promises: ClassVar[Promises] = Promises(
        "the application", "triggers", "none", "none", earlier=False, index="like the old one"
    )

    def __init__(self, entry: TableEntry, relation: str) -> None:
        self.record, self.relation, self.text = entry.record, relation, text_of(entry.record)
        self.table = f"{SCHEMA}.vectors_{entry.id}"
        self.rows = f"{relation} AS t LEFT JOIN {self.table} AS s ON {same_key(entry.record, 't', 's')}"
        self.edited, self.home = f"coalesce(s.edited, {AT_START})", entry.record.table.vector.name
        self.stamp = f"concat_ws(':', s.edited, md5({self.text}))"
        self.digest = digest(self.text, self.vector("old"))
        self.unseen = f"s.vector IS NOT NULL AND s.digest <> {self.digest}"
        self.unknown = "s.vector IS NULL AND s.digest IS NOT NULL"
        self.forget = "SET vector = NULL"
        self.wanted = f"{self.vector('old')} IS NOT NULL"
        self.added = {}
        self.triggers = ("insert", "row", "delete", "truncate")

    def vector(self, side: ModelSide) -> str:
        """Return the vector of a model."""
        return f"t.{quoted(self.record.table.vector.name)}" if side == "old" else "s.vector"

    def make(self, grants: Sequence[tuple[str, str]]) -> list[str]:
        """Return the statements that create the table; grants are the privileges to read it."""
        key = self.record.table.key
        columns = ", ".join(f"{quoted(column.name)} {column.type} NOT NULL" for column in key)
        return [
            f"CREATE TABLE {self.table} ({columns}, edited bigint, digest bigint, vector {self.record.new_type}, "
            f"PRIMARY KEY ({', '.join(quoted(column.name) for column in key)}))",
            closed(f"TABLE {self.table}"),
            *(f"GRANT {right} ON {self.table} TO {role}" for right, role in grants),
        ]  # fmt: skip

    def remove(self) -> list[str]:
        """Return the statements that keep only the serving vectors."""
        return [f"DROP TABLE {self.table}"]

    def write(self, side: ModelSide) -> str:
        """Return the statement that writes vectors into rows that have not changed since they were read."""
        record = self.record
        columns = ", ".join(quoted(column.name) for column in record.table.key)
        return (
            f"WITH d AS MATERIALIZED (SELECT * FROM {given(record, ('stamp', 'text'), ('made', 'vector'))}) "
            f"INSERT INTO {self.table} AS s ({columns}, edited, digest, vector) "
            f"SELECT {keys(record, 'd')}, s.edited, {self.digest}, d.made "
            f"FROM d JOIN {self.rows} ON {same_key(record, 't', 'd')} "
            f"WHERE {self.stamp} = d.stamp AND {self.lacking(side)} "
            f"ON CONFLICT ({columns}) DO UPDATE SET vector = excluded.vector, digest = excluded.digest "
            "WHERE s.vector IS NULL AND s.edited IS NOT DISTINCT FROM excluded.edited"
        )


AnyLayout = ColumnLayout | OneColumn | Aside


def layout_in(entry: TableEntry, relation: str, state: AttachmentState) -> AnyLayout:
    """Return the layout that an attachment has in a state."""
    if entry.record.aside:
        return Aside(entry, relation)
    if entry.record.shared:
        return OneColumn(entry, relation, state.turns)
    return ColumnLayout(entry, relation, state.serving)


def held(database: PostgresDatabase, number: int, mode: str = "ACCESS SHARE") -> tuple[TableEntry, AnyLayout]:
    """Lock the table of an attachment, and return the attachment as it is while no session can move columns.

    An exclusive lock is requested at once, never after a lock that conflicts with readers or writers. A transaction
    that has read the table and goes on to write it then overtakes us; otherwise the server would end it to resolve the
    deadlock.
    """
    ledger = TableLedger(database)
    entry = ledger.entry(number)
    if entry.record.shared and mode == "ROW EXCLUSIVE":
        ledger.hold(number)  # no swap or rollback meanwhile, which no lock on a table prevents
        entry = ledger.entry(number)
    relation = relation_of(entry)
    if "EXCLUSIVE" in mode and mode != "ROW EXCLUSIVE" and not entry.record.aside:
        outlast_vacuum(database, relation, entry.record.table.oid)
    database.rows(f"LOCK TABLE {relation} IN {'ACCESS SHARE' if entry.record.aside else mode} MODE")
    entry = ledger.entry(number)
    return entry, layout_of(database, entry)


def outlast_vacuum(database: PostgresDatabase, relation: str, oid: int) -> None:
    """Make an automatic vacuum of a table give way before others are locked out; within a transaction.

    Autovacuum always runs after a table was filled, and gives way to a session that has waited for deadlock_timeout. We
    wait for a lock that blocks neither readers nor writers, so that no session queues behind us, and no other vacuum
    begins. Autovacuum has no role; other holders of such a lock do not give way, and a longer wait is not worth it.
    """
    found = database.rows(
        "SELECT current_setting('lock_timeout'), setting::int + 500 FROM pg_settings WHERE name = 'deadlock_timeout' "
        "AND EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE granted AND usesysid IS NULL "
        "AND mode = 'ShareUpdateExclusiveLock' AND (relation = %s OR relation IN "
        "(SELECT relid FROM pg_partition_tree(%s::oid::regclass))))", [oid, oid],
    )  # fmt: skip
    for before, patience in found:
        database.rows("SELECT set_config('lock_timeout', %s, true)", [f"{patience}ms"])
        database.rows(f"LOCK TABLE {relation} IN SHARE UPDATE EXCLUSIVE MODE")
        database.rows("SELECT set_config('lock_timeout', %s, true)", [before])


def layout_of(database: PostgresDatabase, entry: TableEntry) -> AnyLayout:
    """Return the layout of an attachment, after checking that its table is unchanged.

    Raises:
        GalleryError: The table, or a column in use, is missing or has another name or type.
    """
    record = entry.record
    columns = database.rows(
        "SELECT attnum, attname, format_type(atttypid, atttypmod), "
        "strpos(coalesce(col_description(attrelid, attnum), ''), %s) > 0 FROM pg_attribute "
        "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped", [record.token, record.table.oid],
    )  # fmt: skip
    layout = layout_in(entry, relation_of(entry), entry.state)
    expected = {record.table.vector.number: (layout.home, record.table.vector.type)}
    expected |= {getattr(record, number): column for number, column in layout.added.items()}
    expected |= {column.number: (column.name, column.type) for column in (*record.table.key, *record.table.texts)}
    found = {int(number): (str(name), str(kind)) for number, name, kind, _ in columns}
    changed = [
        f"{name} is gone" if number not in found else f"{name} ({kind}) is {' of type '.join(found[number])} now"
        for number, (name, kind) in expected.items()
        if found.get(number) != (name, kind)
    ]
    if changed:
        raise GalleryError(
            f"The table {record.table.schema}.{record.table.name} was changed during its upgrade: "
            f"{'; '.join(changed)}.",
            to_do="change them back; or `limpet upgrade cancel --force`, which removes what was added, whatever is "
            "left of the table.",
            intact="Nothing was changed.",
        )
    if not record.aside and record.mark_number not in {int(number) for number, *_, marked in columns if marked}:
        edited = layout.added["mark_number"][0]
        raise GalleryError(
            f"The comment on {record.table.schema}.{record.table.name}.{edited}, by which the table is known, is gone.",
            expected=f"{marking(record, layout.relation, edited)};",
            to_do="run that, if it is the table whose upgrade was started.",
            intact="Nothing was changed.",
        )
    return layout


def relation_of(entry: TableEntry) -> str:
    """Return the table in SQL, under its current name.

    Raises:
        GalleryError: The table no longer exists.
    """
    if entry.gone:
        raise GalleryError(
            f"{entry.gone}.",
            expected=f"the table that was attached, with its triggers or as a table of {entry.record.table.owner}",
            to_do="restore it; or `limpet upgrade cancel --force`, which removes what is left of "
            "the attachment and changes no column of any table.",
        )
    return entry.record.table.identifier
