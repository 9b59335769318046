"""Statements that swap or roll back an attached table, and that remove what was added to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from limpet.attached.postgres.indexes import index_name
from limpet.attached.postgres.layout import ColumnLayout, OneColumn, added_name
from limpet.attached.postgres.ledger import TableEntry
from limpet.attached.postgres.triggers import create_statements, function_statements
from limpet.attached.state import AttachmentState
from limpet.engines.postgres.database import PostgresDatabase, literal, quoted
from limpet.engines.sides import SIDES, ModelSide
from limpet.upgrade.lifecycle import Phase

_COMPRESSIONS = {"p": "pglz", "l": "lz4"}


def turned(state: AttachmentState, side: ModelSide, writes: ModelSide | None = None) -> AttachmentState:
    """Return the state after a swap or a rollback."""
    phase: Phase = "swapped" if side == "new" else "started"
    return replace(state, phase=phase, turned_back=side == "old", writes=writes or state.writes)


def turn_statements(entry: TableEntry, relation: str, side: ModelSide, writes: ModelSide | None = None) -> list[str]:
    """Return the statements that make a model's vectors serve; in a shared column, that change who writes with what."""
    state = turned(entry.state, side, writes)
    if entry.record.shared:
        return function_statements(entry, OneColumn(entry, relation, side), state)
    name, table = quoted(entry.record.table.vector.name), entry.record.table
    before, after = ColumnLayout(entry, relation, entry.state.serving), ColumnLayout(entry, relation, side)
    return [
        f"ALTER TABLE {relation} RENAME COLUMN {name} TO {quoted(added_name(table.vector.name, before.serving))}",
        f"ALTER TABLE {relation} RENAME COLUMN {quoted(before.hidden_name)} TO {name}",
        *create_statements(entry, after, state),
    ]


def left_indexes(database: PostgresDatabase, entry: TableEntry) -> list[str]:
    """Return, in SQL, the remaining indexes over rows that lack a vector, except those that are dropped with others."""
    vector, own = entry.record.table.vector.name, entry.record.table.name
    found = database.rows(
        "SELECT nspname, made.relname, home.relname FROM pg_index JOIN pg_class AS made ON made.oid = indexrelid "
        "JOIN pg_class AS home ON home.oid = indrelid JOIN pg_namespace ON pg_namespace.oid = made.relnamespace "
        "WHERE NOT made.relispartition "
        "AND indrelid IN (SELECT %s::oid UNION ALL SELECT relid FROM pg_partition_tree(%s::oid::regclass))",
        [entry.record.table.oid] * 2,
    )
    return [
        quoted(str(schema), str(name))
        for schema, name, home in found
        if re.sub(r"_cc(?:new|old)\d*$", "", str(name))  # invalid indexes that REINDEX CONCURRENTLY left
        in {index_name(vector, f"lacks_{side}", "" if home == own else str(home)) for side in SIDES}
    ]


def names_to_restore(database: PostgresDatabase, entry: TableEntry) -> list[tuple[str, str]]:
    """Return the new indexes in SQL, with those of partitions, and the name of the old index that each replaces."""
    if entry.record.aside or entry.record.shared or entry.record.index == "none":
        return []
    table, found = entry.record.table, []
    for one in table.indexes:
        after, before = quoted(table.schema, added_name(one.name, "new")), quoted(table.schema, one.name)
        parts = database.rows(
            "SELECT nspname, made.relname, was.relname FROM pg_partition_tree(to_regclass(%s)) AS new "
            "JOIN pg_index AS i ON i.indexrelid = new.relid JOIN pg_class AS made ON made.oid = new.relid "
            "JOIN pg_namespace ON pg_namespace.oid = made.relnamespace "
            "JOIN pg_partition_tree(to_regclass(%s)) AS old ON old.level > 0 "
            "JOIN pg_index AS j ON j.indexrelid = old.relid AND j.indrelid = i.indrelid "
            "JOIN pg_class AS was ON was.oid = old.relid", [after, before],
        )  # fmt: skip
        found += [(after, quoted(one.name))]
        found += [(quoted(str(schema), str(name)), quoted(str(old))) for schema, name, old in parts]
    return found


def inherited(
    database: PostgresDatabase, entry: TableEntry, relation: str, names: Sequence[tuple[str, str]]
) -> list[str]:
    """Return statements that copy settings and comments of the old column and indexes, which are dropped later."""
    record = entry.record
    if record.aside or record.shared:
        return []
    column = f"ALTER TABLE {relation} ALTER COLUMN {quoted(record.table.vector.name)} SET"
    [(said,)] = database.rows("SELECT row_to_json(one) FROM pg_attribute AS one WHERE attrelid = %s AND attnum = %s",
                             [record.table.oid, record.table.vector.number])  # fmt: skip
    [(comment,)] = database.rows("SELECT col_description(%s, %s)", [record.table.oid, record.table.vector.number])
    statistics, compression = said["attstattarget"], said.get("attcompression")
    words = "NULL" if comment is None else literal(comment)  # replaces our mark
    made = [f"COMMENT ON COLUMN {relation}.{quoted(record.table.vector.name)} IS {words}"]
    made += [f"{column} STATISTICS {statistics}"] * (statistics not in (None, -1))
    made += [f"{column} ({', '.join(said['attoptions'] or ())})"] * bool(said["attoptions"])
    made += [f"{column} COMPRESSION {_COMPRESSIONS.get(compression)}"] * (compression in _COMPRESSIONS)
    for after, before in names:
        schema = after.rpartition('"."')[0] + '"'
        [(comment,)] = database.rows("SELECT obj_description(to_regclass(%s), 'pg_class')", [f"{schema}.{before}"])
        made += [f"COMMENT ON INDEX {after} IS {literal(comment)}"] * bool(comment)
    return made


def restored_not_null(database: PostgresDatabase, entry: TableEntry, relation: str) -> str:
    """Return the statement that restores the application's constraint, with its name if the server stores one."""
    table = entry.record.table
    column = quoted(table.vector.name)
    [(number,)] = database.rows("SELECT current_setting('server_version_num')::int")
    if number >= 180_000 and table.not_null != "NOT NULL":
        return f"ALTER TABLE {relation} ADD CONSTRAINT {quoted(table.not_null)} NOT NULL {column}"
    return f"ALTER TABLE {relation} ALTER COLUMN {column} SET NOT NULL"
