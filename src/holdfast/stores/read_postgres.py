"""Tables of PostgreSQL that other programs wrote, read through a cursor of the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
from pgvector.psycopg.halfvec import register_halfvec_info
from pgvector.psycopg.vector import register_vector_info
from psycopg import errors, sql
from psycopg.types import TypeInfo

from holdfast.errors import ConfigError, DataError, StoreError, reason
from holdfast.stores.postgres_address import read_address

_ARROW = {
    "bool": pa.bool_(), "int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64(), "float4": pa.float32(),
    "float8": pa.float64(), "text": pa.string(), "varchar": pa.string(), "bpchar": pa.string(), "uuid": pa.string(),
    "vector": pa.list_(pa.float32()), "halfvec": pa.list_(pa.float16()), "float4[]": pa.list_(pa.float32()),
    "float8[]": pa.list_(pa.float64()),
}  # fmt: skip
_VECTORS = {"vector": register_vector_info, "halfvec": register_halfvec_info}
_COLUMNS = """
SELECT attname, CASE WHEN typcategory = 'A' THEN typelem::regtype::oid ELSE atttypid END, typcategory = 'A'
FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


class PostgresTable:
    """One table, or view, of a database.

    Args:
        url: ``postgresql://…``.
        table: Its name, with that of the schema where the search path does not lead to it: ``shop.items``.

    Raises:
        ConfigError: There is no such table, or the URL cannot be read.
        StoreError: The database cannot be reached.
    """

    record: Mapping[str, Any] = {}

    def __init__(self, url: str, table: str) -> None:
        self._parameters, self.table = read_address(url).parameters, table
        self.name = f"table '{table}' of the database"
        with self._connected() as connection:
            names = dict(connection.execute("SELECT oid, typname FROM pg_type").fetchall())
            columns = connection.execute(_COLUMNS, [self._quoted(connection)]).fetchall()
            [(self.rows,)] = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(self._identifier)).fetchall()
        kinds = {name: f"{names[oid]}{'[]' if many else ''}" for name, oid, many in columns}
        self.schema = {name: _ARROW.get(kind, pa.null()) for name, kind in kinds.items()}

    @property
    def _identifier(self) -> sql.Identifier:
        return sql.Identifier(*self.table.split("."))

    def _quoted(self, connection: Any) -> str:
        return self._identifier.as_string(connection)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield record batches of at most so many rows, with these columns, all of one moment."""
        schema = pa.schema([(name, self.schema[name]) for name in columns])
        listed = sql.SQL(", ").join(map(sql.Identifier, columns))
        with self._connected() as connection, connection.cursor("holdfast_import", binary=True) as cursor:
            cursor.execute(sql.SQL("SELECT {} FROM {}").format(listed, self._identifier))
            while found := cursor.fetchmany(rows):
                yield self._batch(found, schema)

    def _batch(self, rows: Sequence[tuple[Any, ...]], schema: Any) -> Any:
        try:
            arrays = [
                pa.array([_plain(value, kind) for value in values], type=kind)
                for values, kind in zip(zip(*rows, strict=True), schema.types, strict=True)
            ]
        except pa.ArrowInvalid as error:
            raise DataError(
                f"{self.name} holds something else than its columns say: {error}.",
                expected="lists of numbers, not lists of lists",
                to_do="correct the table, then import it again.",
            ) from error
        return pa.record_batch(arrays, schema=schema)

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """Give a connection that only reads, and sees one moment."""
        settings: dict[str, Any] = {"connect_timeout": 10, **self._parameters}
        try:
            with psycopg.connect(**settings) as connection:
                connection.read_only, connection.isolation_level = True, psycopg.IsolationLevel.REPEATABLE_READ
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
                to_do="check the address and the rights; the table was not changed.",
            ) from error


def _plain(value: Any, kind: Any) -> Any:
    """Return a value that Arrow takes: arrays for vectors, and texts for what is written as one."""
    if value is None:
        return None
    if hasattr(value, "to_numpy"):
        return value.to_numpy()
    return str(value) if kind == pa.string() else value
