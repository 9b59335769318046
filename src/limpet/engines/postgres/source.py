"""Tables and views of PostgreSQL, read through a server-side cursor: ``postgresql://…?table=shop.items``.

A read is one read-only transaction with one snapshot; it does not block writes of the application. But as long as it
runs, the server keeps row versions that vacuum would remove.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import quote, urlencode
from uuid import UUID

import numpy as np
import psycopg
import pyarrow as pa
from numpy.typing import NDArray
from psycopg import errors, sql
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.types import TypeInfo

from limpet.engines.address import Address
from limpet.engines.moment import kept
from limpet.engines.postgres.address import OPTIONS, Connection, PostgresAddress, read_address
from limpet.engines.postgres.database import OWN_PATH, PostgresDatabase
from limpet.engines.source import (
    check_readable,
    declared_similarity,
    filter_of,
    metadata_kind,
    needed,
    roles_of,
    whole_ids,
)
from limpet.errors import ConfigError, DataError, LastingStoreError, StoreError, reason, refuse

_ARROW = {
    "bool": pa.bool_(), "int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64(), "float4": pa.float32(),
    "float8": pa.float64(), "numeric": pa.float64(), "text": pa.string(), "varchar": pa.string(),
    "bpchar": pa.string(), "vector": pa.list_(pa.float32()), "halfvec": pa.list_(pa.float32()),
    "float4[]": pa.list_(pa.float32()), "float8[]": pa.list_(pa.float64()),
}  # fmt: skip
_WRITTEN = ("uuid", "json", "jsonb", "date", "time", "timetz", "interval", "inet", "cidr", "macaddr", "name", "citext")
"""Types that become texts as the server writes them; so do enumerations."""
_MOMENTS = {"timestamp": "", "timestamptz": "Z"}
"""Types that become UTC texts of one width, with their suffix: such texts sort by time."""
_NUMBERS: dict[str, np.dtype[Any]] = {"vector": np.dtype(">f4"), "halfvec": np.dtype(">f2")}
"""Number formats of vectors as the server sends them, after two 16-bit fields: the dimension and an unused one."""
_HEAD = 4  # bytes
_SIMILARITIES = {
    f"{kind}_{operators}": similarity
    for kind in ("vector", "halfvec")
    for operators, similarity in (("cosine_ops", "cosine"), ("ip_ops", "inner-product"), ("l2_ops", "euclidean"))
}
_EXTENSION = "SELECT nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'vector'"
_OPERATORS = {"cosine": "<=>", "inner-product": "<#>", "euclidean": "<->"}
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
_KEY = """
SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)
WHERE indrelid = %s::regclass AND indisprimary ORDER BY array_position(indkey::int2[], attnum)
"""
_INDEXES = """
SELECT DISTINCT opcname FROM pg_index
JOIN pg_depend ON pg_depend.classid = 'pg_class'::regclass AND pg_depend.objid = indexrelid
JOIN pg_attribute ON attrelid = indrelid AND attnum = pg_depend.refobjsubid
JOIN pg_opclass ON pg_opclass.oid = ANY(indclass)
JOIN pg_am ON pg_am.oid = opcmethod
WHERE indrelid = %s::regclass AND refobjid = indrelid AND attname = %s AND indisvalid AND amname IN ('hnsw', 'ivfflat')
"""
_MOST_DIGITS = 18  # of a 64-bit integer


class _Bytes(Loader):
    """Returns a vector as the server sent it."""

    format = Format.BINARY

    def load(self, data: Any) -> bytes:
        return bytes(data)


class PostgresTable:
    """One table, or view, of a database.

    Args:
        address: Address whose place is the database, as libpq parses it. The name of the table includes its schema if
            that is not in the search path: ``shop.items``.

    Raises:
        ConfigError: The table does not exist, or the URL cannot be parsed.
        StoreError: The database is unreachable, or the table cannot be read.
    """

    options: ClassVar[Collection[str]] = OPTIONS
    record: None = None

    def __init__(self, address: Address) -> None:
        refuse(address.table is None, "A database without a table.", "postgresql://…?table=NAME")
        self.address, self.table = address, str(address.table)
        options = dict(address.options)
        schema = options.pop("schema", None)
        self._database = read_address(f"{address.place}?{urlencode(options, quote_via=quote)}")
        parts = self.table.split(".")
        self._identifier = sql.Identifier(*([schema] if schema and len(parts) == 1 else []), *parts)
        self.name = f"table '{self.table}' of the database"
        with self._connected() as connection:
            oid = [self._identifier.as_string(connection)]
            columns = connection.execute(_COLUMNS, oid).fetchall()
            keys = connection.execute(_KEY, oid).fetchall()
        self.key = ",".join(name for (name,) in keys) or None
        self._types = {name: "text" if enumeration else kind for name, kind, enumeration, _ in columns}
        self.schema = {name: _arrow(self._types[name], digits) for name, _, _, digits in columns}
        self._selected = {name: _selected(name, kind, enumeration) for name, kind, enumeration, _ in columns}
        self._join_key(address.roles.id or self.key)
        self._join_texts(address.roles.text)
        self._where = self._conditions()

    def _join_key(self, named: str | None) -> None:
        """Add a column for keys of several columns, ``id=shop,item``: a JSON list of their texts."""
        parts = [] if named is None or named in self.schema else named.split(",")
        if named is None or len(parts) < 2:
            return
        check_readable(self, parts)
        texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in parts)
        self._types[named], self.schema[named] = "text", pa.string()
        self._selected[named] = sql.SQL("json_build_array({})::text").format(texts)

    def _join_texts(self, named: str | None) -> None:
        """Add a column for texts of several columns, ``text=title,body``: joined by line breaks, without NULL."""
        parts = [] if named is None or named in self.schema else named.split(",")
        if named is None or len(parts) < 2:
            return
        check_readable(self, parts)
        joined = sql.SQL(", ").join(map(sql.Identifier, parts))
        self._types[named], self.schema[named] = "text", pa.string()
        self._selected[named] = sql.SQL(r"concat_ws(E'\n', {})").format(joined)

    def type_name(self, column: str) -> str:
        """Return PostgreSQL's name for the type of a column."""
        return str(self._types[column])

    @cached_property
    def rows(self) -> int:
        """Number of rows of a read."""
        with self._connected() as connection:
            counted = sql.SQL("SELECT count(*) FROM {} {}").format(self._identifier, self._where)
            [(rows,)] = connection.execute(counted).fetchall()
        return int(rows) if self.address.sample is None else min(rows, self.address.sample.rows)

    def similarity(self, vector: str) -> str | None:
        """Return the similarity of a column's indexes; None without an index, or if they differ.

        Raises:
            DataError: No space has the similarity of an index.
        """
        with self._connected() as connection:
            found = connection.execute(_INDEXES, [self._identifier.as_string(connection), vector]).fetchall()
        return declared_similarity(self, vector, {str(operators) for (operators,) in found}, _SIMILARITIES)

    def nearest(
        self, vector: str, queries: Sequence[NDArray[np.float32]], k: int, *, exact: bool
    ) -> list[list[str]] | None:
        """Return the ids of the nearest rows, see `SearchedSource`."""
        [key] = needed(self, roles_of(self), "id")
        with self._connected() as connection:
            found = connection.execute(_INDEXES, [self._identifier.as_string(connection), vector]).fetchall()
            own = {one for (one,) in found if one.startswith(f"{self._types[vector]}_")} & _SIMILARITIES.keys()
            if not own:  # the index may be over another type, which other queries use
                return None
            [(schema,)] = connection.execute(_EXTENSION).fetchall()
            operator, type_ = _OPERATORS[_SIMILARITIES[min(own)]], sql.Identifier(schema, self._types[vector])
            nearest = sql.SQL("SELECT {}::text FROM {} {} ORDER BY {} OPERATOR({}.{}) %s::{} LIMIT {}").format(
                self._selected[key], self._identifier, self._where, sql.Identifier(vector), sql.Identifier(schema),
                sql.SQL(operator), type_, sql.Literal(k),
            )  # fmt: skip
            if exact:
                connection.execute("SET LOCAL enable_indexscan TO off; SET LOCAL enable_seqscan TO on")
            rows = [connection.execute(nearest, [str(query.tolist())]).fetchall() for query in queries]
        return [[str(identifier) for (identifier,) in one] for one in rows]

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches of at most `rows` rows, with these columns, all from one snapshot."""
        drawn: sql.Composable = sql.SQL("")
        if self.address.sample is not None:
            [key] = needed(self, roles_of(self), "id")
            drawn = sql.SQL('ORDER BY md5({} || {}::text) COLLATE "C" LIMIT {}').format(
                sql.Literal(f"{self.address.sample.seed}:"), self._selected[key], sql.Literal(self.address.sample.rows)
            )
        yield from self._read(columns, rows, self._where, drawn)

    def fetch(self, ids: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these ids, in any order, using the index of the id column, if there is one."""
        [key] = needed(self, roles_of(self), "id")
        kind = self._types[key]
        values, cast, column = list(ids), "text", self._selected[key]
        if metadata_kind(self.schema[key]) == "integer":
            values, cast = list(map(str, whole_ids(ids))), "int8"
        elif kind == "uuid":
            values, cast, column = [one for one in ids if _is_uuid(one)], "uuid", sql.Identifier(key)
        named = sql.SQL("WHERE {} = ANY({}::{}[])").format(column, sql.Literal(values), sql.Identifier(cast))
        yield from self._read(columns, max(1, len(ids)), named, sql.SQL(""))

    def _conditions(self) -> sql.Composable:
        conditions: list[sql.Composable] = []
        for one in filter_of(self):
            texts = sql.SQL(' COLLATE "C"' if metadata_kind(self.schema[one.column]) == "text" else "")
            conditions.append(
                sql.SQL("({}){} {} {}").format(
                    self._selected[one.column], texts, sql.SQL(one.comparison), sql.Literal(one.value)
                )
            )
        vector = roles_of(self).vector
        if self.address.missing == "skip" and vector is not None:
            conditions.append(sql.SQL("{} IS NOT NULL").format(sql.Identifier(vector)))
        return sql.SQL("WHERE {}").format(sql.SQL(" AND ").join(conditions)) if conditions else sql.SQL("")

    def _read(
        self, columns: Sequence[str], rows: int, where: sql.Composable, drawn: sql.Composable
    ) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([(name, self.schema[name]) for name in columns])
        listed = sql.SQL(", ").join(self._selected[name] for name in columns)
        with self._connected() as connection, connection.cursor("limpet_source", binary=True) as cursor:
            cursor.execute(sql.SQL("SELECT {} FROM {} {} {}").format(listed, self._identifier, where, drawn))
            while found := cursor.fetchmany(rows):
                rows_of = zip(schema, zip(*found, strict=True), strict=True)
                yield pa.record_batch([self._array(field, values) for field, values in rows_of], schema=schema)

    def _array(self, field: Any, values: Sequence[Any]) -> Any:
        kind = self._types[field.name]
        try:
            if kind in _NUMBERS:
                return _vectors(values, _NUMBERS[kind])
            return pa.array([_plain(value, field.type) for value in values], type=field.type)
        except (pa.ArrowInvalid, ValueError) as error:
            raise DataError(
                f"The column '{field.name}' of {self.name} holds something else than its type says: {reason(error)}.",
                expected="numbers, texts, or lists of numbers that are no lists of lists",
                to_do="correct the table, or leave the column out (--take says which are taken).",
            ) from error

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        user = self._database.parameters.get("user", "USER")
        try:
            place = (self._database.parameters.get(name) for name in ("host", "hostaddr", "port", "dbname"))
            moment = kept(("postgresql", *place), lambda stack: _exported(self._database, stack))
            with _reading(self._database, moment or "") as connection:
                user = connection.info.user
                connection.execute("SET LOCAL synchronize_seqscans TO off")  # the same order every time
                for name in _NUMBERS:
                    found = TypeInfo.fetch(connection, name)
                    if found is not None:
                        connection.adapters.register_loader(found.oid, _Bytes)
                yield connection
        except (errors.UndefinedTable, errors.InvalidSchemaName, UnicodeEncodeError) as error:
            raise ConfigError(
                f"There is no {self.name}.",
                to_do="name its schema too, as in shop.items, if it is in another one than 'public'.",
            ) from error
        except errors.InsufficientPrivilege as error:
            parts = self._identifier.as_string(None)
            within = f" and GRANT USAGE ON SCHEMA {parts.rpartition('.')[0]}" if "." in parts else ""
            raise LastingStoreError(
                f"The user '{user}' may not read {self.name}: {reason(error)}.",
                to_do=f"let its owner type GRANT SELECT ON {parts} TO {user}{within and within + f' TO {user}'}; "
                "nothing was read.",
            ) from error
        except psycopg.Error as error:
            raise StoreError(
                f"Cannot read {self.name}: {reason(error)}.",
                to_do="check the address, and the rights to read it.",
            ) from error


@contextmanager
def _reading(address: PostgresAddress, moment: str = "") -> Iterator[Connection]:
    with closing(PostgresDatabase(address, path=OWN_PATH)) as database, database.streaming(moment) as connection:
        yield connection


def _exported(address: PostgresAddress, stack: ExitStack) -> str:
    connection = stack.enter_context(_reading(address))
    [(moment,)] = connection.execute("SELECT pg_export_snapshot()").fetchall()
    return str(moment)


def _arrow(kind: str, digits: int) -> Any:
    """Return the Arrow type of a column; `pa.null()` if it is not supported."""
    if kind in (*_WRITTEN, *_MOMENTS):
        return pa.string()
    precision, scale = (digits - 4) >> 16, (digits - 4) & 0x7FF
    if kind == "numeric" and digits >= 0 and not scale and precision <= _MOST_DIGITS:
        return pa.int64()
    return _ARROW.get(kind, pa.null())


def _selected(name: str, kind: str, enumeration: bool) -> sql.Composable:
    """Return the select expression of a column: texts for types that Arrow and a gallery do not support."""
    column = sql.Identifier(name)
    if enumeration or kind in _WRITTEN:
        return sql.SQL("{}::text").format(column)
    if kind in _MOMENTS:
        form = sql.Literal(f'YYYY-MM-DD"T"HH24:MI:SS.US"{_MOMENTS[kind]}"')
        return sql.SQL(
            "CASE WHEN {0} >= '0001-01-01' AND isfinite({0}) THEN to_char({0}, {1}) ELSE {0}::text END"
        ).format(column, form)
    return column


def _vectors(values: Sequence[Any], numbers: np.dtype[Any]) -> pa.Array:
    """Return vectors in the server's format as a list array of float32; missing ones are null."""
    sizes = [0 if value is None else (len(value) - _HEAD) // numbers.itemsize for value in values]
    sent = b"".join(value[_HEAD:] for value in values if value is not None)
    flat = np.frombuffer(sent, numbers).astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    absent = pa.array([value is None for value in values])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat), mask=absent)


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _plain(value: Any, kind: Any) -> Any:
    """Return a value that Arrow accepts: texts for types written as one, numbers in native byte order."""
    if value is None:
        return None
    if isinstance(value, Decimal):
        return int(value) if kind == pa.int64() else float(value)
    return str(value) if kind == pa.string() else value
