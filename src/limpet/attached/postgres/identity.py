"""Recognition of a table after a dump and restore, which changes the numbers of tables, columns and indexes.

The token of an attachment is an argument of its triggers and part of the comments on the columns that it added. Both
stay with the table and its columns when these are renamed, and a dump includes them.
"""

from __future__ import annotations

from dataclasses import replace

from limpet.attached.postgres.layout import ADDED, MARK, layout_in, layout_of, marking
from limpet.attached.postgres.ledger import SCHEMA, TableEntry, TableLedger, TableRecord
from limpet.attached.postgres.table import TableColumn
from limpet.attached.postgres.triggers import function_statements
from limpet.engines.postgres.database import PostgresDatabase, quoted
from limpet.errors import GalleryError, StoreError


def recognise(database: PostgresDatabase) -> dict[int, tuple[str, ...]]:
    """Find the tables of attachments whose ledger was restored from a dump; within a transaction.

    Only numbers are updated: that of the table with the token, and those of its columns by their names.

    Returns:
        Descriptions of what was found, by attachment; without those that are known or remain unknown.
    """
    found, ledger = dict[int, tuple[str, ...]](), TableLedger(database)
    for number in [one.id for one in ledger.entries() if one.restored]:
        entry = ledger.entry(number, lock=True)
        tables = _marked(database, entry) if entry.restored else []
        if len(tables) != 1:
            continue
        ledger.renew_rights()
        ledger.describe(number, _renumbered(database, entry, tables[0]))
        entry = ledger.entry(number)
        relation, called = entry.record.table.identifier, f"{entry.record.table.schema}.{entry.record.table.name}"
        ledger.note(number, {"kind": "restored", "table": called})
        layout = layout_in(entry, relation, entry.state)
        found[number] = (
            f"The database was restored from a dump. {called} is the table of this attachment: it carries the token "
            f"{entry.record.token}.",
        )
        try:
            for name, _ in layout.added.values():
                database.rows(marking(entry.record, relation, name))
            layout_of(database, entry)
            for statement in function_statements(entry, layout, entry.state):
                database.rows(statement)
        except StoreError:
            raise
        except GalleryError as error:  # every step refuses such a table, but `cancel --force` must be possible
            found[number] += (f"{error.given} {error.to_do}",)
    return found


def _marked(database: PostgresDatabase, entry: TableEntry) -> list[int]:
    """Return the tables whose triggers carry the token, or, without such triggers, those whose columns do.

    No other role can create a trigger from our functions. But the owner of a table can write any comment on its
    columns, so such a table must belong to the role that owned the attached one, or to the owner of the ledger.
    """
    triggers = database.rows(
        "SELECT DISTINCT tgrelid FROM pg_trigger WHERE tgparentid = 0 AND tgfoid IN "
        "(to_regprocedure(%s), to_regprocedure(%s)) AND position(convert_to(%s, 'UTF8') IN tgargs) > 0",
        [f"{SCHEMA}.on_write_{entry.id}()", f"{SCHEMA}.on_move_{entry.id}()", entry.record.token],
    )
    columns = (
        "SELECT DISTINCT objoid FROM pg_description JOIN pg_class ON pg_class.oid = objoid "
        "WHERE classoid = 'pg_class'::regclass AND objsubid > 0 AND strpos(description, %s) > 0 "
        "AND (pg_get_userbyid(relowner) = %s OR relowner = (SELECT nspowner FROM pg_namespace WHERE nspname = %s))"
    )
    record = entry.record
    return [int(oid) for (oid,) in triggers or database.rows(columns, [record.token, record.table.owner, SCHEMA])]


def _renumbered(database: PostgresDatabase, entry: TableEntry, oid: int) -> TableRecord:
    """Return the record with the numbers of a table; a missing object has the number -1."""
    record = entry.record
    [(schema, name, owner)] = database.rows(
        "SELECT nspname, relname, pg_get_userbyid(relowner) FROM pg_class JOIN pg_namespace "
        "ON pg_namespace.oid = relnamespace WHERE pg_class.oid = %s", [oid],
    )  # fmt: skip
    columns = {
        str(column): int(number)
        for column, number in database.rows(
            "SELECT attname, attnum FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped", [oid]
        )
    }
    indexes = {
        str(index): int(number)
        for index, number in database.rows(
            "SELECT relname, pg_class.oid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid = %s",
            [oid],
        )
    }
    layout = layout_in(entry, quoted(str(schema), str(name)), entry.state)

    def numbered(column: TableColumn, name: str = "") -> TableColumn:
        return replace(column, number=columns.get(name or column.name, -1))

    table = replace(
        record.table, oid=oid, schema=str(schema), name=str(name), owner=str(owner),
        key=tuple(map(numbered, record.table.key)), texts=tuple(map(numbered, record.table.texts)),
        vector=numbered(record.table.vector, layout.home),
        indexes=tuple(replace(one, oid=indexes.get(one.name, 0)) for one in record.table.indexes),
    )  # fmt: skip
    added = {number: columns.get(name, -1) for number, (name, _) in layout.added.items()}
    return replace(record, table=table, **added)  # type: ignore[arg-type]


def leftovers(database: PostgresDatabase, oid: int | None = None) -> list[str]:
    """Return what attachments without a ledger left in tables, such as in a table that was restored by itself.

    Args:
        database: Connection to the database, within a transaction.
        oid: Number of one table; all tables if left out.

    Returns:
        Descriptions in words, each with the statement that removes it.
    """
    found = []
    marked = database.rows(
        "SELECT objoid, nspname, relname, attname, description FROM pg_description JOIN pg_attribute ON attrelid = "
        "objoid AND attnum = objsubid JOIN pg_class ON pg_class.oid = objoid JOIN pg_namespace ON pg_namespace.oid = "
        "relnamespace WHERE classoid = 'pg_class'::regclass AND starts_with(description, %s) AND NOT attisdropped "
        "AND attname LIKE '%%\\_mark' AND objoid = coalesce(%s, objoid) ORDER BY objoid",
        [f"{MARK} ", oid],
    )
    tokens = {
        one.record.token for one in TableLedger(database).entries()
    }  # read last, so that it includes what was attached meanwhile
    for relation, schema, name, column, said in marked:
        if str(said).removeprefix(f"{MARK} ").partition(":")[0] in tokens:
            continue
        base, table = str(column).removesuffix("_limpet_mark"), quoted(str(schema), str(name))
        added = [f"{base}_limpet_{what}" for what in ADDED]
        columns = {
            str(one): bool(marked)
            for one, marked in database.rows(
                "SELECT attname, coalesce(col_description(attrelid, attnum), '') = %s FROM pg_attribute "
                "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped", [said, relation],
            )
        }  # fmt: skip
        lacks = database.rows(
            "SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid = %s "
            "AND relname = ANY(%s)", [relation, [f"{base}_limpet_lacks_{side}" for side in ("old", "new")]],
        )  # fmt: skip
        statements = [f"DROP INDEX {', '.join(quoted(str(schema), str(one)) for (one,) in lacks)}"] * bool(lacks)
        dropped = ", ".join(f"DROP COLUMN {quoted(one)}" for one in columns if one in added)
        statements.append(f"ALTER TABLE {table} {dropped}")
        statements += [
            f"COMMENT ON COLUMN {table}.{quoted(one)} IS NULL"
            for one, marked in columns.items()
            if marked and one not in added
        ]
        found.append(
            f"{schema}.{name} has columns of an attachment that the ledger does not know, as a table has that was "
            f"restored without it. This removes them, and leaves the vectors that serve: {'; '.join(statements)}"
        )
    return found
