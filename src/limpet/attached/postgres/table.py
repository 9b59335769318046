"""Properties of an application's table that matter for an upgrade of its vectors, and reasons to refuse one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from limpet.attached.base import Right
from limpet.engines.postgres.database import PostgresDatabase, check_extension, literal, quoted
from limpet.engines.postgres.graphs import WIDEST_INDEXED
from limpet.engines.postgres.table_address import TableAddress
from limpet.errors import ConfigError, DataError, GalleryError, nearest, unknown_name

OLDEST_SERVER = 13

_KINDS = {"v": "a view", "m": "a materialised view", "f": "a foreign table", "c": "a type", "i": "an index",
          "S": "a sequence", "t": "a TOAST table"}  # fmt: skip


@dataclass(frozen=True)
class TableColumn:
    """A column.

    Args:
        type: Its type in SQL, such as ``vector(384)``.
        number: Number of the column in PostgreSQL, which does not depend on its name.
        equals: The operator in SQL with which the key's index compares values, qualified by its schema.
    """

    name: str
    type: str
    number: int
    equals: str = "="


@dataclass(frozen=True)
class VectorIndex:
    """An index over the vectors.

    Args:
        definition: The part of its definition after USING.
        oid: Object identifier in PostgreSQL.
    """

    name: str
    definition: str
    oid: int


@dataclass(frozen=True)
class AttachedTable:
    """A table with vectors.

    Args:
        oid: Object identifier in PostgreSQL.
        partitioned: Whether its rows are in partitions.
        key: Columns that identify a row.
        texts: Columns of the embedded text.
        not_null: Name of the constraint that every row has a vector; empty if there is none.
        storage: Letter of the storage mode of vectors, if it is not the default.
    """

    oid: int
    schema: str
    name: str
    owner: str
    partitioned: bool
    key: tuple[TableColumn, ...]
    vector: TableColumn
    kind: str
    dim: int
    texts: tuple[TableColumn, ...]
    not_null: str
    indexes: tuple[VectorIndex, ...]
    storage: str = ""

    @property
    def identifier(self) -> str:
        """Its name in SQL."""
        return quoted(self.schema, self.name)


def inspect(database: PostgresDatabase, address: TableAddress) -> AttachedTable:
    """Read the properties of a table.

    Raises:
        ConfigError: The table or column does not exist, or is of a kind that cannot be attached.
        DataError: The vectors have several dimensions, or ids are not unique.
        GalleryError: The server or an extension is too old, or the server is a standby.
    """
    _check_server(database)
    oid, schema, name, partitioned = relation_named(database, address.table)
    columns = {
        str(column): (
            TableColumn(str(column), str(kind), int(number)),
            str(family),
            str(generated),
            bool(not_null),
            digits,
        )
        for column, kind, number, family, generated, not_null, digits in database.rows(
            "SELECT attname, format_type(atttypid, atttypmod), attnum, typname, attgenerated, attnotnull, atttypmod "
            "FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid "
            "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum", [oid],
        )
    }  # fmt: skip
    for column in (address.vector, *address.key, *address.texts):
        if column and column not in columns:
            raise unknown_name(f"column of {schema}.{name}", column, columns)
    vectors = [one for one, (_, family, *_) in columns.items() if family in WIDEST_INDEXED]
    if address.vector not in vectors and (address.vector or len(vectors) != 1):
        raise ConfigError(
            f"The column '{address.vector}' of {schema}.{name} is of the type {columns[address.vector][0].type}."
            if address.vector else f"{schema}.{name} has {len(vectors) or 'no'} columns of vectors.",
            expected="one column of the type vector or halfvec" + (f": {', '.join(vectors)}" if vectors else ""),
            to_do="name it in the URL: &vector=COLUMN.",
        )  # fmt: skip
    vector, kind, _, not_null, digits = columns[address.vector or vectors[0]]
    generated = [one for one in address.texts if columns[one][2]]
    if generated:
        raise ConfigError(
            f"The column '{generated[0]}' of {schema}.{name} is computed from others.",
            expected="columns that the application writes",
            to_do="name those that it is computed from: &text=COLUMN,COLUMN.",
        )
    operators = _operators(database, oid)
    key = tuple(
        replace(columns[one][0], equals=operators.get(one, "="))
        for one in _key(database, oid, f"{schema}.{name}", address.key)
    )
    unfit = [one for one in (schema, name, vector.name, *(column.name for column in key)) if "%" in one or '"' in one]
    if unfit:
        raise ConfigError(f"The name {unfit[0]!r} of {schema}.{name}.", expected='names without " and %',
                          to_do="give it another one.")  # fmt: skip
    storage = database.rows(
        "SELECT attstorage FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid "
        "WHERE attrelid = %s AND attnum = %s AND attstorage <> typstorage", [oid, vector.number],
    )  # fmt: skip
    table = AttachedTable(
        oid, schema, name, owner_of(database, oid), partitioned, key, vector, kind, digits,
        tuple(columns[one][0] for one in address.texts),
        _not_null(database, oid, vector) if not_null else "", _indexes(database, oid, vector),
        str(storage[0][0]) if storage else "",
    )  # fmt: skip
    return table if digits > 0 else _measured(database, table)


def owner_of(database: PostgresDatabase, oid: int) -> str:
    """Return the role that owns a table."""
    [(owner,)] = database.rows("SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = %s", [oid])
    return str(owner)


def _check_server(database: PostgresDatabase) -> None:
    [(number, version)] = database.rows(
        "SELECT current_setting('server_version_num')::int, current_setting('server_version')"
    )
    if number < OLDEST_SERVER * 10_000:
        raise GalleryError(f"The server is PostgreSQL {version}.", expected=f"{OLDEST_SERVER} or newer",
                           intact="Nothing was changed.")  # fmt: skip
    check_extension(database)


def relation_named(database: PostgresDatabase, table: str) -> tuple[int, str, str, bool]:
    """Return oid, schema and name of a table, and whether it is partitioned.

    Raises:
        ConfigError: No table has that name, or its kind cannot be attached.
    """
    if not table:
        raise ConfigError("The URL names no table.", expected="…?table=SCHEMA.TABLE")
    found = database.rows(
        "SELECT pg_class.oid, nspname, relname, relkind, relispartition, relkind = 'r' AND EXISTS (SELECT FROM "
        "pg_inherits WHERE inhparent = pg_class.oid OR inhrelid = pg_class.oid), relpersistence = 't' "
        "FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname || '.' || relname = %s "
        "OR nspname = 'public' AND relname = %s ORDER BY nspname || '.' || relname = %s DESC LIMIT 1",
        [table, table, table],
    )  # names may hold dots
    if not found:
        schemas: dict[str, list[str]] = {}
        for schema, name in database.rows(
            "SELECT nspname, relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE relkind IN ('r', 'p') AND nspname NOT IN ('pg_catalog', 'information_schema') LIMIT 1000"
        ):
            schemas.setdefault(str(name), []).append(f"{schema}.{name}")
        same = schemas.get(table, [])
        meant = f" Did you mean '{same[0]}'?" if same else nearest(table, [*schemas, *chain(*schemas.values())])
        raise ConfigError(
            f"There is no table '{table}' in the database.{meant}",
            to_do="name its schema too, as in shop.items, if it is in another one than 'public'.",
        )
    [(oid, schema, name, kind, partition, inherited, temporary)] = found
    wrong = _KINDS.get(kind, "") or (partition and "a partition of another table") or (
        inherited and "a table that others inherit from") or (temporary and "a temporary table")  # fmt: skip
    if wrong:
        raise ConfigError(
            f"{schema}.{name} is {wrong}.",
            to_do="name its parent." if partition else "name the table that holds the rows.",
        )
    return int(oid), str(schema), str(name), kind == "p"


def _key(database: PostgresDatabase, oid: int, table: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of the primary key, or check that the named columns identify a row."""
    uniques = [
        (bool(primary), [str(one) for one in names])
        for primary, names in database.rows(
            "SELECT indisprimary, array_agg(attname::text ORDER BY place) FROM pg_index, "
            "unnest(indkey[0:indnkeyatts - 1]) WITH ORDINALITY AS part(number, place), pg_attribute "
            "WHERE indrelid = %s AND indisunique AND indisvalid AND indimmediate AND indpred IS NULL "
            "AND indexprs IS NULL AND attrelid = indrelid AND attnum = number "
            "GROUP BY indexrelid, indisprimary HAVING bool_and(attnotnull) ORDER BY indisprimary DESC", [oid],
        )
    ]  # fmt: skip
    if wanted:
        found = next((names for _, names in uniques if sorted(names) == sorted(wanted)), None)
        if found is None:
            listed = ", ".join(wanted)
            raise DataError(
                f"{listed} of {table} may be the same in several rows, or NULL: no unique index says otherwise.",
                expected="columns that identify a row" + "".join(
                    f": {', '.join(names)}" for primary, names in uniques if primary),
                to_do=f"CREATE UNIQUE INDEX CONCURRENTLY on them and ALTER COLUMN … SET NOT NULL, or name others by "
                f"&id=. Repeated ids show by: SELECT {listed}, count(*) FROM {table} GROUP BY {listed} "
                "HAVING count(*) > 1",
                intact="Nothing was changed.",
            )  # fmt: skip
        return tuple(found)
    if not uniques or not uniques[0][0]:
        others = "; ".join(", ".join(names) for _, names in uniques)
        raise DataError(
            f"{table} has no primary key.",
            expected="columns that identify a row" + (f", such as: {others}" if others else ""),
            to_do="name them by &id=COLUMN, which takes a unique index over columns that are NOT NULL.",
            intact="Nothing was changed.",
        )
    return tuple(uniques[0][1])


def _operators(database: PostgresDatabase, oid: int) -> dict[str, str]:
    return {
        str(column): f"OPERATOR({schema}.{operator})"
        for column, schema, operator in database.rows(
            "SELECT attname, quote_ident(nspname), oprname FROM pg_index, "
            "unnest(indkey::int2[], indclass::oid[]) AS part(number, class) "
            "JOIN pg_opclass ON pg_opclass.oid = class JOIN pg_amop ON amopfamily = opcfamily AND amopstrategy = 3 "
            "AND amoplefttype = opcintype AND amoprighttype = opcintype JOIN pg_operator ON pg_operator.oid = amopopr "
            "JOIN pg_namespace ON pg_namespace.oid = oprnamespace JOIN pg_am ON pg_am.oid = opcmethod, pg_attribute "
            "WHERE indrelid = %s AND indisunique AND amname = 'btree' AND attrelid = indrelid AND attnum = number",
            [oid],
        )
    }  # fmt: skip


def _not_null(database: PostgresDatabase, oid: int, vector: TableColumn) -> str:
    found = database.rows(
        "SELECT conname FROM pg_constraint WHERE conrelid = %s AND contype = 'n' AND conkey = ARRAY[%s::int2]",
        [oid, vector.number],
    )  # of PostgreSQL 18; before, such a constraint had no name
    return str(found[0][0]) if found else "NOT NULL"


def _indexes(database: PostgresDatabase, oid: int, vector: TableColumn) -> tuple[VectorIndex, ...]:
    [(path,)] = database.rows("SELECT current_setting('search_path')")
    database.rows("SELECT set_config('search_path', 'pg_catalog', true)")  # definitions then name pgvector's schema
    found = database.rows(
        "SELECT relname, pg_get_indexdef(indexrelid), indexrelid, coalesce((SELECT ' TABLESPACE ' || quote_ident("
        "spcname) FROM pg_tablespace WHERE oid = reltablespace), '') FROM pg_index "
        "JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid = %s AND indisvalid AND EXISTS ("
        "SELECT 1 FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = indexrelid AND refobjid = indrelid "
        "AND refobjsubid = %s) ORDER BY relname", [oid, vector.number],
    )  # fmt: skip
    database.rows("SELECT set_config('search_path', %s, true)", [path])
    indexes = []
    for name, definition, index, place in found:
        using, where, condition = str(definition).partition(" USING ")[2].partition(" WHERE ")
        indexes.append(VectorIndex(str(name), f"{using}{place}{where}{condition}", int(index)))
    return tuple(indexes)


def _measured(database: PostgresDatabase, table: AttachedTable) -> AttachedTable:
    """Return the table with the dimension of its vectors, if the column does not declare it."""
    found = database.rows(
        f"SELECT vector_dims({quoted(table.vector.name)}), count(*) FROM {table.identifier} "
        f"WHERE {quoted(table.vector.name)} IS NOT NULL GROUP BY 1 ORDER BY 2 DESC LIMIT 5"
    )
    if len(found) != 1:
        dims = ", ".join(f"{count:,} of dimension {dim}" for dim, count in found) or "none"
        raise DataError(
            f"The column '{table.vector.name}' of {table.schema}.{table.name} holds vectors of several dimensions or "
            f"none: {dims}.",
            expected="vectors of one dimension",
            to_do="correct these rows, or declare the column vector(D).",
            intact="Nothing was changed.",
        )
    return replace(table, dim=int(found[0][0]))


def bound(database: PostgresDatabase, table: AttachedTable) -> list[str]:
    """Return the objects that depend on the vector column, and would show old vectors or fail after a swap."""
    column, found = table.vector.name, []
    for kind, said in database.rows(
        "SELECT classid::regclass::text, pg_describe_object(classid, objid, objsubid) FROM pg_depend "
        "WHERE refclassid = 'pg_class'::regclass AND refobjid = %s AND refobjsubid = %s "
        "AND classid NOT IN ('pg_class'::regclass, 'pg_constraint'::regclass) "
        "AND NOT (classid = 'pg_attrdef'::regclass AND deptype = 'a') AND NOT EXISTS (SELECT FROM pg_trigger WHERE "
        "classid = 'pg_trigger'::regclass AND oid = objid AND tgname LIKE 'zz\\_limpet\\_%%') ORDER BY 1, 2",
        [table.oid, table.vector.number],
    ):  # fmt: skip
        found.append(f"{said} ({str(kind).removeprefix('pg_')}) is bound to the column '{column}', and would go on "
                     "with the old vectors after a swap: drop it, and create it again after `finish`")  # fmt: skip
    for name, said in database.rows(
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE conrelid = %s AND contype NOT IN ('n', 'p') AND %s = ANY(conkey)", [table.oid, table.vector.number],
    ):  # fmt: skip
        found.append(f"the constraint {name} ({said}) is bound to the column '{column}': drop it, and add it again "
                     "after `finish`")  # fmt: skip
    return found


def refusals(database: PostgresDatabase, table: AttachedTable) -> list[str]:
    """Return why the table cannot be attached, wherever new vectors are stored."""
    column, found = table.vector.name, []
    for (said,) in database.rows(
        "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = %s AND adnum = %s",
        [table.oid, table.vector.number],
    ):
        found.append(f"the column '{column}' has the default {said}: drop it")
    [(lists,)] = database.rows("SELECT current_setting('server_version_num')::int >= 150000")
    listed = "AND NOT EXISTS (SELECT FROM pg_publication_rel JOIN pg_publication AS p ON p.oid = prpubid " \
             "WHERE p.pubname = all_of_it.pubname AND prrelid = %s AND prattrs IS NOT NULL " \
             "AND %s <> ALL (prattrs::int2[]))"  # fmt: skip
    for (name,) in database.rows(
        "SELECT DISTINCT pubname FROM pg_publication_tables AS all_of_it WHERE (schemaname, tablename) IN (SELECT "
        "nspname, relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE pg_class.oid = %s "
        f"OR pg_class.oid IN (SELECT relid FROM pg_partition_tree(%s::oid::regclass))) {listed if lists else ''}",
        [table.oid, table.oid, *([table.oid, table.vector.number] if lists else [])],
    ):
        found.append(f"the publication {name} sends the column '{column}', or all columns, to other servers, which "
                     "lack the new one: take the table out of it, or name the other columns there "
                     "(PostgreSQL 15 or later)")  # fmt: skip
    for (name,) in database.rows(
        "SELECT DISTINCT tgname FROM pg_trigger WHERE tgrelid = %s AND NOT tgisinternal AND tgtype & 3 = 3 "
        "AND tgtype & 20 <> 0 AND tgname::text COLLATE \"C\" > 'zz_limpet' AND tgname NOT LIKE 'zz\\_limpet\\_%%' "
        "ORDER BY 1", [table.oid],
    ):  # fmt: skip
        found.append(f"the trigger {name} would be fired after ours, by its name, and might change what those saw: "
                     "give it a name before 'zz_limpet'")  # fmt: skip
    return found


def hidden_rows(database: PostgresDatabase, table: AttachedTable) -> list[str]:
    """Report that rows of the table are hidden from this role, if they are, wherever new vectors are stored."""
    if not database.rows("SELECT row_security_active(%s::oid)", [table.oid])[0][0]:
        return []
    return ["row-level security hides rows of the table from this role, which has to see all: start the upgrade as "
            "its owner (without FORCE ROW LEVEL SECURITY), or as a role with BYPASSRLS"]  # fmt: skip


def row_types(database: PostgresDatabase, table: AttachedTable) -> list[str]:
    """Return functions that take or return rows of the table, whose type gets additional columns."""
    return [
        str(name)
        for (name,) in database.rows(
            "SELECT objid::regprocedure::text FROM pg_depend WHERE classid = 'pg_proc'::regclass "
            "AND refclassid = 'pg_type'::regclass AND refobjid IN (SELECT unnest(ARRAY[pg_type.oid, typarray]) "
            "FROM pg_type JOIN pg_class ON reltype = pg_type.oid WHERE pg_class.oid = %s) ORDER BY 1", [table.oid],
        )
    ]  # fmt: skip


def firing_triggers(database: PostgresDatabase, table: AttachedTable) -> list[str]:
    """Return the application's triggers that every update of a row fires, including a backfill."""
    return [str(name) for (name,) in database.rows(f"{FIRING} ORDER BY 1", [table.oid, table.vector.number])]


FIRING = (
    "SELECT tgname FROM pg_trigger WHERE tgrelid = %s AND NOT tgisinternal AND tgtype & 16 <> 0 "
    "AND tgenabled IN ('O', 'A') AND (tgattr = '' OR %s = ANY(tgattr::int2[])) AND tgname NOT LIKE 'zz\\_limpet\\_%%'"
)
"""See `firing_triggers`; its parameters are the table and the number of its vector column."""


def rights(
    database: PostgresDatabase, table: AttachedTable, schema: str, *, aside: bool, shared: bool, silent: bool
) -> list[Right]:
    """Return the privileges that attaching requires, no more.

    Args:
        database: Connection to the database, within a transaction.
        table: See `inspect`.
        schema: Schema of the ledger.
        aside: Whether new vectors go to a table of their own.
        shared: Whether they go to the column of the old ones.
        silent: Whether the application has triggers that the backfill must not fire.
    """
    [(role, here, vectors)] = database.rows(
        "SELECT quote_ident(current_user), quote_ident(current_database()), (SELECT nspname FROM pg_extension "
        "JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector')"
    )
    there = bool(database.rows("SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema]))
    place = f"SCHEMA {quoted(schema)}" if there else f"DATABASE {here}"
    asked: list[tuple[str, str]] = [
        (f"GRANT CREATE ON {place} TO {role}",
         f"has_{'schema' if there else 'database'}_privilege({literal(schema) if there else 'current_database()'}, "
         "'CREATE')"),
        (f"GRANT USAGE ON SCHEMA {quoted(table.schema)} TO {role}",
         f"has_schema_privilege({literal(table.schema)}, 'USAGE')"),
        (f"GRANT USAGE ON SCHEMA {quoted(str(vectors))} TO {role}",
         f"has_schema_privilege({literal(str(vectors))}, 'USAGE')"),
    ]  # fmt: skip
    if aside:
        asked += [
            (f"GRANT SELECT ON {table.identifier} TO {role}", f"has_table_privilege({table.oid}::oid, 'SELECT')"),
            (f"GRANT TRIGGER ON {table.identifier} TO {role}", f"has_table_privilege({table.oid}::oid, 'TRIGGER')"),
        ]
    else:
        owner = database.rows("SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class WHERE oid = %s", [table.oid])
        asked += [
            (f"GRANT {owner[0][0]} TO {role}",
             f"(SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = {table.oid})"),
        ]  # fmt: skip
    if not aside and not shared:
        asked += [
            (f"GRANT CREATE ON SCHEMA {quoted(table.schema)} TO {role}",
             f"has_schema_privilege({literal(table.schema)}, 'CREATE')"),
        ]  # fmt: skip
    if silent:
        modern = database.rows("SELECT current_setting('server_version_num')::int >= 150000")[0][0]
        setting = "has_parameter_privilege('session_replication_role', 'SET')" if modern else "false"
        asked.append((f"GRANT SET ON PARAMETER session_replication_role TO {role}",
                      f"({setting} OR (SELECT rolsuper FROM pg_roles WHERE rolname = current_user))"))  # fmt: skip
    asked = list(dict.fromkeys(asked))
    [held] = database.rows(f"SELECT {', '.join(condition for _, condition in asked)}")
    return [Right(f"{statement};", bool(has)) for (statement, _), has in zip(asked, held, strict=True)]
