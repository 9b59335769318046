"""Tables of PostgreSQL that other programs wrote, read through a cursor of the server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
from pgvector.psycopg.halfvec import register_halfvec_info
from pgvector.psycopg.vector import register_vector_info
from psycopg import errors, sql
from psycopg.types import TypeInfo

from holdfast.errors import ConfigError, DataError, StoreError, reason
from holdfast.stores.postgres.address import read_address

_ARROW = {
    "bool": pa.bool_(), "int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64(), "float4": pa.float32(),
    "float8": pa.float64(), "numeric": pa.float64(), "text": pa.string(), "varchar": pa.string(),
    "bpchar": pa.string(), "vector": pa.list_(pa.float32()), "halfvec": pa.list_(pa.float16()),
    "float4[]": pa.list_(pa.float32()), "float8[]": pa.list_(pa.float64()),
}  # fmt: skip
_WRITTEN = ("uuid", "json", "jsonb", "date", "time", "timetz", "interval", "inet", "cidr", "macaddr", "name", "citext")
"""What becomes a text as the server writes it; so do enumerations."""
_MOMENTS = {"timestamp": "", "timestamptz": "Z"}
"""What becomes a text of one width in UTC, with what follows it: such texts sort as the moments do."""
_VECTORS = {"vector": register_vector_info, "halfvec": register_halfvec_info}
_COLUMNS = """
SELECT attname, typname || CASE WHEN array_ THEN '[]' ELSE '' END, typtype = 'e' AND NOT array_, digits
FROM (
    SELECT attname, attnum, own.typcategory = 'A' AND own.typelem <> 0 AS array_,
        CASE WHEN own.typcategory = 'A' AND own.typelem <> 0 THEN own.typelem
             WHEN own.typbasetype <> 0 THEN own.typbasetype ELSE own.oid END AS kind,
        CASE WHEN own.typbasetype <> 0 THEN own.typtypmod ELSE atttypmod END AS digits
    FROM pg_attribute JOIN pg_type own ON own.oid = atttypid
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
) AS found JOIN pg_type ON pg_type.oid = kind ORDER BY attnum
"""
_MOST_DIGITS = 18  # of an integer of 64 bits


class PostgresTable:
    """One table, or view, of a database.

    Args:
        url: ``postgresql://…``.
        table: Its name, with that of the schema where the search path does not lead to it: ``shop.items``.

    Raises:
        ConfigError: There is no such table, or the URL cannot be read.
        StoreError: The database cannot be reached.
    """

    record: None = None

    def __init__(self, url: str, table: str) -> None:
        self._parameters, self.table = read_address(url).parameters, table
        self.name = f"table '{table}' of the database"
        with self._connected() as connection:
            columns = connection.execute(_COLUMNS, [self._quoted(connection)]).fetchall()
            [(self.rows,)] = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(self._identifier)).fetchall()
        self.schema = {
            name: _arrow("text" if enumeration else kind, digits) for name, kind, enumeration, digits in columns
        }
        self._selected = {name: _selected(name, kind, enumeration) for name, kind, enumeration, _ in columns}

    @property
    def _identifier(self) -> sql.Identifier:
        return sql.Identifier(*self.table.split("."))

    def _quoted(self, connection: Any) -> str:
        return self._identifier.as_string(connection)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield record batches of at most so many rows, with these columns, all of one moment."""
        schema = pa.schema([(name, self.schema[name]) for name in columns])
        listed = sql.SQL(", ").join(self._selected[name] for name in columns)
        with self._connected() as connection, connection.cursor("holdfast_import", binary=True) as cursor:
            cursor.execute(sql.SQL("SELECT {} FROM {}").format(listed, self._identifier))
            while found := cursor.fetchmany(rows):
                yield self._batch(found, schema)

    def _batch(self, rows: Sequence[tuple[Any, ...]], schema: Any) -> Any:
        columns = zip(schema, zip(*rows, strict=True), strict=True)
        return pa.record_batch([self._array(field, values) for field, values in columns], schema=schema)

    def _array(self, field: Any, values: Sequence[Any]) -> Any:
        try:
            return pa.array([_plain(value, field.type) for value in values], type=field.type)
        except (pa.ArrowInvalid, ValueError) as error:
            raise DataError(
                f"The column '{field.name}' of {self.name} holds something else than its type says: {reason(error)}.",
                expected="numbers, texts, or lists of numbers that are no lists of lists",
                to_do="correct the table, or leave the column out (--take says which are taken).",
            ) from error

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """Give a connection that only reads, and sees one moment."""
        settings: dict[str, Any] = {"connect_timeout": 10, **self._parameters}
        try:
            with psycopg.connect(**settings) as connection:
                connection.read_only, connection.isolation_level = True, psycopg.IsolationLevel.REPEATABLE_READ
                connection.execute("SET LOCAL datestyle TO 'ISO'; SET LOCAL timezone TO 'UTC'")
                for name, register in _VECTORS.items():
                    found = TypeInfo.fetch(connection, name)
                    if found is not None:
                        register(connection, found)
                yield connection
        except (errors.UndefinedTable, errors.InvalidSchemaName, UnicodeEncodeError) as error:
            raise ConfigError(
                f"There is no {self.name}.",
                expected="a table that exists",
                to_do="name its schema too, as in shop.items, if it is in another one than 'public'.",
            ) from error
        except psycopg.Error as error:
            raise StoreError(
                f"Cannot read {self.name}: {reason(error)}.",
                expected="a database that can be reached, and a table that may be read",
                to_do="check the address, and the rights to read it.",
            ) from error


def _arrow(kind: str, digits: int) -> Any:
    """Return the Arrow type of a column; `pa.null()` for one that cannot be read.

    Args:
        kind: Name of its type.
        digits: How PostgreSQL keeps precision and scale of a ``numeric``, -1 for any.
    """
    if kind in (*_WRITTEN, *_MOMENTS):
        return pa.string()
    precision, scale = (digits - 4) >> 16, (digits - 4) & 0x7FF
    if kind == "numeric" and digits >= 0 and not scale and precision <= _MOST_DIGITS:
        return pa.int64()
    return _ARROW.get(kind, pa.null())


def _selected(name: str, kind: str, enumeration: bool) -> sql.Composable:
    """Return how a column is selected: texts for types that Arrow and a gallery do not know."""
    column = sql.Identifier(name)
    if enumeration or kind in _WRITTEN:
        return sql.SQL("{}::text").format(column)
    if kind in _MOMENTS:
        form = sql.Literal(f'YYYY-MM-DD"T"HH24:MI:SS.US"{_MOMENTS[kind]}"')
        return sql.SQL(
            "CASE WHEN {0} >= '0001-01-01' AND isfinite({0}) THEN to_char({0}, {1}) ELSE {0}::text END"
        ).format(column, form)
    return column


def _plain(value: Any, kind: Any) -> Any:
    """Return a value that Arrow takes: arrays for vectors, texts for what is written as one, numbers of the machine."""
    if value is None:
        return None
    if hasattr(value, "to_numpy"):
        return value.to_numpy()
    if isinstance(value, Decimal):
        return int(value) if kind == pa.int64() else float(value)
    return str(value) if kind == pa.string() else value
