"""Where the vectors of both models are, in SQL: in two columns of one table, or new ones in a table of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.attached.postgres.ledger import SCHEMA, Entry, Ledger, Record
from holdfast.attached.postgres.session import Session, quoted
from holdfast.attached.state import Side
from holdfast.errors import GalleryError

LONGEST_NAME = 63


def added_name(name: str, what: str) -> str:
    """Return the name of something that is added, no longer than PostgreSQL takes.

    >>> added_name("emb", "new"), len(added_name("e" * 63, "edited"))
    ('emb_holdfast_new', 63)
    """
    suffix = f"_holdfast_{what}"
    room = LONGEST_NAME - len(suffix.encode())
    return name.encode()[:room].decode(errors="ignore") + suffix


def other(side: Side) -> Side:
    """Return the other one of the two models.

    >>> other("old")
    'new'
    """
    return "old" if side == "new" else "new"


class Layout(Protocol):
    """How rows and vectors are named in SQL; ``t`` is a row of the application's table.

    Args:
        relation: The application's table in SQL.
        rows: What follows FROM.
        edited: When the application last changed a row since the beginning: NULL for never, microseconds of the
            clock, and 0 where it keeps no vector. A number, which every client can read who selects *.
        wanted: Whether a row is to have vectors.
    """

    relation: str
    rows: str
    edited: str
    wanted: str

    def vector(self, side: Side) -> str:
        """Return the vector of a model."""
        ...

    def lacking(self, side: Side) -> str:
        """Return whether a row lacks a vector of a model."""
        ...

    def write(self, side: Side) -> str:
        """Return the statement that writes vectors into rows that are as they were read."""
        ...


def keys(record: Record, alias: str = "t") -> str:
    """Return the columns of the key, with commas between."""
    return ", ".join(f"{alias}.{quoted(column.name)}" for column in record.table.key)


def key_texts(record: Record) -> str:
    """Return the columns of the key of a row ``t`` as texts, with commas between."""
    return ", ".join(f"t.{quoted(column.name)}::text" for column in record.table.key)


def same_key(record: Record, one: str, another: str) -> str:
    """Return whether two rows have one key."""
    return " AND ".join(f"{one}.{quoted(column.name)} = {another}.{quoted(column.name)}" for column in record.table.key)


def given(record: Record, *further: tuple[str, str]) -> str:
    """Return rows that are sent as arrays, ``d`` in SQL: the columns of the key, and further ones.

    Args:
        record: Of the attachment.
        *further: Name and type of every further column.
    """
    columns = [(quoted(column.name), column.type) for column in record.table.key]
    sent = [f"%s::text[]::{kind}[]" for _, kind in columns] + [f"%b::{kind}[]" for _, kind in further]
    names = ", ".join([*(name for name, _ in columns), *(name for name, _ in further)])
    return f"unnest({', '.join(sent)}) AS d({names})"


def arrays(record: Record, found: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the keys of rows as `given` takes them: one list for each column."""
    return [[key[place] for key in found] for place in range(len(record.table.key))]


class Columns:
    """Both vectors are in columns of the application's table: the one that serves has the application's name.

    Args:
        entry: The attachment.
        relation: The table in SQL.
        serving: Whose vectors serve.
    """

    def __init__(self, entry: Entry, relation: str, serving: Side) -> None:
        table = entry.record.table
        self.record, self.serving, self.relation, self.rows = entry.record, serving, relation, f"{relation} AS t"
        self.served, self.hidden_name = table.vector.name, added_name(table.vector.name, other(serving))
        self.edited_name = added_name(table.vector.name, "edited")
        self.edited = f"t.{quoted(self.edited_name)}"
        self.wanted = (
            f"CASE WHEN {self.edited} IS NULL THEN {self.vector('old')} IS NOT NULL ELSE {self.edited} > 0 END"
        )

    def name(self, side: Side) -> str:
        """Return the name of the column with the vectors of a model."""
        return self.served if side == self.serving else self.hidden_name

    def vector(self, side: Side) -> str:
        """Return the vector of a model."""
        return f"t.{quoted(self.name(side))}"

    def lacking(self, side: Side) -> str:
        """Return whether a row lacks a vector of a model."""
        return f"{self.vector(side)} IS NULL AND {self.wanted}"

    def write(self, side: Side) -> str:
        """Return the statement that writes vectors into rows that are as they were read."""
        column, record = quoted(self.name(side)), self.record
        return (
            f"WITH d AS MATERIALIZED (SELECT * FROM {given(record, ('edited', 'bigint'), ('made', 'vector'))}), "
            f"mine AS MATERIALIZED (SELECT {keys(record)}, d.made FROM {self.rows} JOIN d ON "
            f"{same_key(record, 't', 'd')} WHERE {self.edited} IS NOT DISTINCT FROM d.edited AND "
            f"{self.lacking(side)} FOR NO KEY UPDATE OF t SKIP LOCKED) "
            f"UPDATE {self.relation} AS t SET {column} = mine.made FROM mine WHERE {same_key(record, 't', 'mine')}"
        )


class Aside:
    """New vectors are in a table of their own; the application's table stays as it is.

    Args:
        entry: The attachment.
        relation: The application's table in SQL.
    """

    def __init__(self, entry: Entry, relation: str) -> None:
        self.record, self.relation = entry.record, relation
        self.table = f"{SCHEMA}.vectors_{entry.id}"
        self.rows = f"{relation} AS t LEFT JOIN {self.table} AS s ON {same_key(entry.record, 't', 's')}"
        self.edited = "s.edited"
        self.wanted = f"{self.vector('old')} IS NOT NULL"

    def vector(self, side: Side) -> str:
        """Return the vector of a model."""
        return f"t.{quoted(self.record.table.vector.name)}" if side == "old" else "s.vector"

    def lacking(self, side: Side) -> str:
        """Return whether a row lacks a vector of a model."""
        return f"{self.vector(side)} IS NULL AND {self.wanted}"

    def write(self, side: Side) -> str:
        """Return the statement that writes vectors into rows that are as they were read."""
        record = self.record
        columns = ", ".join(quoted(column.name) for column in record.table.key)
        return (
            f"WITH d AS MATERIALIZED (SELECT * FROM {given(record, ('edited', 'bigint'), ('made', 'vector'))}) "
            f"INSERT INTO {self.table} AS s ({columns}, edited, vector) SELECT {keys(record, 'd')}, d.edited, d.made "
            f"FROM d JOIN {self.rows} ON {same_key(record, 't', 'd')} "
            f"WHERE {self.edited} IS NOT DISTINCT FROM d.edited AND {self.lacking(side)} "
            f"ON CONFLICT ({columns}) DO UPDATE SET vector = excluded.vector "
            "WHERE s.vector IS NULL AND s.edited IS NOT DISTINCT FROM excluded.edited"
        )


def held(session: Session, number: int, mode: str = "ACCESS SHARE") -> tuple[Entry, Columns | Aside]:
    """Lock the table of an attachment, and return it as it is while nobody can move columns.

    A lock that shuts others out is asked for at once, never after a weaker one: a transaction that read the table and
    goes on to write it then passes us by, where else the server would end it for the circle.

    Args:
        session: To the database, within a transaction.
        number: Of the attachment.
        mode: Of the lock, where both vectors are in one table.
    """
    ledger = Ledger(session)
    entry = ledger.entry(number)
    relation = relation_of(session, entry)
    if "EXCLUSIVE" in mode and mode != "ROW EXCLUSIVE":
        outlast_vacuum(session, entry.record.table.oid)
    session.rows(f"LOCK TABLE {relation} IN {'ACCESS SHARE' if entry.record.aside else mode} MODE")
    entry = ledger.entry(number)
    return entry, layout_of(session, entry)


def outlast_vacuum(session: Session, oid: int) -> None:
    """Wait for locks a little longer than deadlock_timeout where a vacuum may hold the table; within a transaction.

    An automatic vacuum, which is sure to come after a table was filled, gives way to whoever has waited so long.
    """
    session.rows(
        "SELECT set_config('lock_timeout', (setting::int + 500) || 'ms', true) FROM pg_settings "
        "WHERE name = 'deadlock_timeout' AND EXISTS (SELECT FROM pg_locks WHERE relation = %s AND granted "
        "AND mode = 'ShareUpdateExclusiveLock')", [oid],
    )  # fmt: skip


def layout_of(session: Session, entry: Entry) -> Columns | Aside:
    """Return the layout of an attachment, whose table is checked to be what it was.

    Args:
        session: To the database, within a transaction.
        entry: The attachment.

    Raises:
        GalleryError: The table, or a column that counts, is gone or has another name or type.
    """
    record, relation = entry.record, relation_of(session, entry)
    layout: Columns | Aside
    if record.aside:
        layout = Aside(entry, relation)
        expected = {record.table.vector.number: (record.table.vector.name, record.table.vector.type)}
    else:
        layout = Columns(entry, relation, entry.state.serving)
        expected = {
            record.table.vector.number: (layout.name("old"), record.table.vector.type),
            record.new_number: (layout.name("new"), record.new_type),
            record.edited_number: (layout.edited_name, "bigint"),
        }
    expected |= {column.number: (column.name, column.type) for column in (*record.table.key, *record.table.texts)}
    found = {
        int(number): (str(name), str(kind))
        for number, name, kind in session.rows(
            "SELECT attnum, attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped", [record.table.oid],
        )
    }  # fmt: skip
    changed = [
        f"{name} is gone" if number not in found else f"{name} ({kind}) is {' of type '.join(found[number])} now"
        for number, (name, kind) in expected.items()
        if found.get(number) != (name, kind)
    ]
    if changed:
        raise GalleryError(
            f"The table {record.table.schema}.{record.table.name} was changed while it was attached: "
            f"{'; '.join(changed)}.",
            expected="the columns as they were, until it is detached",
            to_do="change them back; or `holdfast attach detach --abandon`, which removes what was added, whatever is "
            "left of the table. Nothing was changed.",
        )
    return layout


def relation_of(session: Session, entry: Entry) -> str:
    """Return the table in SQL, however it is called by now.

    Raises:
        GalleryError: It is gone.
    """
    found = session.rows(
        "SELECT nspname, relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE pg_class.oid = %s", [entry.record.table.oid],
    )  # fmt: skip
    if not found:
        raise GalleryError(
            f"The table {entry.record.table.schema}.{entry.record.table.name} is gone.",
            expected="the table that was attached",
            to_do="`holdfast attach detach --abandon` removes what is left of the attachment.",
        )
    return quoted(str(found[0][0]), str(found[0][1]))
