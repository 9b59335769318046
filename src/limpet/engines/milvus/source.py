"""Collections of Milvus: ``milvus://HOST:PORT/COLLECTION``, or ``milvus:FILE.db#COLLECTION`` of Milvus Lite.

All reads use strong consistency: a read includes everything acknowledged before it began. Pages are in the order of the
primary key; servers that pin an iterator's timestamp return all pages from one snapshot, older ones (2.3) each page
from its own.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Required, TypedDict

import pyarrow as pa
from pymilvus import DataType, MilvusClient, MilvusException
from pymilvus.client.types import LoadState

from limpet.engines.address import Address
from limpet.engines.filters import Condition
from limpet.engines.schemaless import LOOKED_AT, asked_names, batch_of, types_of
from limpet.engines.services import authority_of, collection_of, flag
from limpet.engines.source import declared_similarity, filter_of, kept, needed, roles_of, sampled, whole_ids
from limpet.errors import DataError, LastingStoreError, StoreError, reason, unknown_name
from limpet.support.extras import require

PORT = 19530
"""Default port of a server."""
_PAGE = 1024
"""Ids per request."""
MOST = 16_384
"""Maximum rows of a response."""
_TOKEN = "MILVUS_TOKEN"
_SIMILARITIES = {"COSINE": "cosine", "IP": "inner-product", "L2": "euclidean"}
_TYPES = {
    DataType.BOOL: pa.bool_(), DataType.INT8: pa.int8(), DataType.INT16: pa.int16(), DataType.INT32: pa.int32(),
    DataType.INT64: pa.int64(), DataType.FLOAT: pa.float32(), DataType.DOUBLE: pa.float64(),
    DataType.VARCHAR: pa.string(), DataType.JSON: pa.string(), DataType.ARRAY: pa.string(),
}  # fmt: skip
_PUSHED = (DataType.BOOL, DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64, DataType.DOUBLE,
           DataType.VARCHAR)  # fmt: skip
"""Types that Milvus compares as limpet does: it rounds 32-bit floats before it compares them."""
_OTHER_VECTORS = {"SPARSE_FLOAT_VECTOR": "sparse", "BINARY_VECTOR": "of bits", "FLOAT16_VECTOR": "of 16 bits",
                  "BFLOAT16_VECTOR": "of 16 bits", "INT8_VECTOR": "of whole numbers",
                  "_ARRAY_OF_VECTOR": "a list of several vectors"}  # fmt: skip
_DYNAMIC = "$meta"


class MilvusCollection:
    """One collection, by its name or an alias.

    Columns are its fields and the dynamic values of rows: nested values under dotted names. Lists and objects are JSON.
    Dynamic columns are inferred from the first rows and from those with the values that the URL names.

    Args:
        address: A file and a collection, or ``milvus://HOST:PORT/COLLECTION``; see `connected`.

    Raises:
        ConfigError: The collection does not exist, or the URL cannot be parsed.
        DataError: The vector is sparse, or not of float32.
        StoreError: The service is unreachable, or the collection is not loaded.
    """

    options: ClassVar[Collection[str]] = ("https", "database")
    record: None = None

    def __init__(self, address: Address) -> None:
        self.address, self.collection = address, collection_of(address)
        self.name = f"collection '{self.collection}' of Milvus"
        with connected(address) as client:
            described = describe(client, self.collection)
            load_of_file(address, client, self.collection)
            self._refuse_unloaded(client)
            fields = {str(one["name"]): one for one in described["fields"]}
            further = self._further(client, fields) if described.get("enable_dynamic_field") else {}
        self._fields = {name: DataType(one["type"]) for name, one in fields.items()}
        self.key = next(name for name, one in fields.items() if one.get("is_primary"))
        own = {
            name: pa.list_(pa.float32(), int(fields[name]["params"]["dim"]))
            if type_ == DataType.FLOAT_VECTOR
            else _TYPES.get(type_, pa.null())
            for name, type_ in self._fields.items()
        }
        self.schema: Mapping[str, pa.DataType] = {name: one for name, one in further.items() if name not in own} | own
        self._refuse_vector(address.roles.vector)
        self._where = filter_of(self)

    def _refuse_unloaded(self, client: MilvusClient) -> None:
        if client.get_load_state(self.collection)["state"] != LoadState.Loaded:
            raise StoreError(
                f"The {self.name} is not loaded, and can be read only when it is.",
                to_do="load it, such as by load_collection of its client.",
                intact="Nothing was changed.",
            )

    def _further(self, client: MilvusClient, fields: Collection[str]) -> dict[str, pa.DataType]:
        asking: dict[str, Any] = {"limit": LOOKED_AT, "output_fields": [_DYNAMIC], "consistency_level": "Strong"}
        rows = list(client.query(self.collection, filter="", **asking))
        heads = {name.partition(".")[0] for name in asked_names(self.address)} - {*fields, *types_of(rows)}
        for name in filter(re.compile(r"\w+", re.ASCII).fullmatch, heads):
            rows += client.query(self.collection, filter=f'exists {_DYNAMIC}["{name}"]', **asking)
        return types_of(rows)

    def _refuse_vector(self, name: str | None) -> None:
        vectors = [one for one, type_ in self._fields.items() if "VECTOR" in type_.name]
        only = name or (vectors[0] if len(vectors) == 1 else None)
        kind = self._fields.get(only or "")
        if kind is not None and kind.name in _OTHER_VECTORS:
            raise DataError(
                f"The vector '{only}' of {self.name} is {_OTHER_VECTORS[kind.name]}.",
                expected="one dense vector of float32 for every row",
                to_do="name another one: vector=NAME in the URL.",
            )

    @property
    def rows(self) -> int:
        """Number of rows of a read."""
        with connected(self.address) as client:
            counted = self._count(client)
        return counted if self.address.sample is None else min(counted, self.address.sample.rows)

    def _count(self, client: MilvusClient) -> int:
        asked = {"output_fields": ["count(*)"], "consistency_level": "Strong"}
        return int(client.query(self.collection, filter=self._pushed(), **asked)[0]["count(*)"])

    def type_name(self, column: str) -> str:
        """Return the type of a column."""
        return str(self.schema[column])

    def similarity(self, vector: str) -> str | None:
        """Return the similarity of a vector's index; None without an index.

        Raises:
            DataError: No space has this similarity.
        """
        with connected(self.address) as client:
            indexes = client.list_indexes(self.collection, field_name=vector)
            metrics = {client.describe_index(self.collection, one).get("metric_type") for one in indexes} - {None}
        return declared_similarity(self, vector, metrics, _SIMILARITIES)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches of at most `rows` rows, with these columns, in the order of the primary key.

        Raises:
            DataError: Primary keys occur twice, which Milvus does not prevent.
        """
        return sampled(self, columns, lambda names: self._iterated(names, rows))

    def fetch(self, ids: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these ids, in any order."""
        [key] = needed(self, roles_of(self), "id")
        texts = self.schema[key] == pa.string()
        values: list[Any] = list(ids) if texts else whole_ids(ids)
        with connected(self.address) as client:
            for start in range(0, len(values), _PAGE):
                found = client.query(
                    self.collection, filter=f"{self._called(key)} in {literal(values[start : start + _PAGE])}",
                    output_fields=self._read(columns), consistency_level="Strong",
                )  # fmt: skip
                yield batch_of(found, self.schema, columns, self.name)

    def _iterated(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        wanted, read = list(dict.fromkeys([*columns, *(one.column for one in self._where)])), 0
        with connected(self.address) as client:
            counted = self._count(client)
            iterator = client.query_iterator(
                self.collection, batch_size=min(rows, MOST), filter=self._pushed(), output_fields=self._read(wanted),
                consistency_level="Strong",
            )  # fmt: skip
            try:
                while page := iterator.next():
                    read += len(page)
                    yield kept(batch_of(page, self.schema, wanted, self.name), self._where).select(list(columns))
            finally:
                iterator.close()
            if read < counted == self._count(client):
                raise DataError(
                    f"{counted - read} primary keys of {self.name} are there twice: {counted} rows, of which {read} "
                    "can be told apart.",
                    to_do="write rows by upsert, which replaces; insert adds another one.",
                )

    def _read(self, columns: Sequence[str]) -> list[str]:
        heads = {name if name in self._fields else name.partition(".")[0] for name in columns}
        return sorted(name if name in self._fields else _DYNAMIC for name in heads | {self.key})

    def _called(self, column: str) -> str:
        return column if column in self._fields else f'{_DYNAMIC}["{column}"]'

    def _pushed(self) -> str:
        """Return the part of the conditions that Milvus can evaluate; it may let more rows through."""
        return condition_text([one for one in self._where if self._fields.get(one.column) in _PUSHED])


def condition_text(where: Sequence[Condition]) -> str:
    """Write conditions on fields in the syntax of Milvus; empty without conditions.

    >>> condition_text([Condition("colour", "=", "red"), Condition("price", "<", 5)])
    'colour == "red" and price < 5'
    """
    signs = {"=": "=="}
    return " and ".join(
        f"{one.column} {signs.get(one.comparison, one.comparison)} {literal(one.value)}" for one in where
    )


def literal(value: Any) -> str:
    """Write a value, or a list of values, in the syntax of Milvus."""
    return json.dumps(value, ensure_ascii=False)


class Field(TypedDict, total=False):
    """Milvus's description of a field, as far as it is used here."""

    name: Required[str]
    type: Required[int]
    params: Mapping[str, Any]
    is_primary: bool
    is_partition_key: bool
    nullable: bool


class Described(TypedDict, total=False):
    """Milvus's description of a collection, as far as it is used here."""

    fields: Required[Sequence[Field]]
    enable_dynamic_field: bool
    auto_id: bool
    functions: Sequence[object]


def describe(client: MilvusClient, collection: str) -> Described:
    """Return the description of a collection.

    Raises:
        ConfigError: The collection does not exist.
    """
    if not client.has_collection(collection):
        raise unknown_name("collection", collection, client.list_collections())
    described: Described = client.describe_collection(collection)
    return described


def load_of_file(address: Address, client: MilvusClient, collection: str) -> None:
    """Load a collection of a file: Milvus Lite unloads all when the process that has the file open ends.

    A service keeps loaded collections loaded, and loading others is its owner's decision.
    """
    if "://" not in address.place and client.get_load_state(collection)["state"] != LoadState.Loaded:
        client.load_collection(collection)


@contextmanager
def connected(address: Address) -> Iterator[MilvusClient]:
    """Yield a client of a service, or of a file, which Milvus Lite then keeps open until this process ends.

    The token of a service, or its ``USER:PASSWORD``, is read from the environment variable MILVUS_TOKEN; the connection
    is encrypted with ``https=true``.

    Raises:
        ConfigError: The URL cannot be parsed.
        DataError: The file does not exist.
        StoreError: The service is unreachable, or refuses; or another process has the file open.
    """
    with translated(address):
        if "://" in address.place:
            host, port = authority_of(address, PORT, _TOKEN)
            uri = f"{'https' if flag(address, 'https', False) else 'http'}://{host}:{port}"
            said = {"token": os.environ.get(_TOKEN, ""), "db_name": address.options.get("database", "")}
        else:
            require("A file of Milvus Lite", "milvus-lite")
            uri, said = address.place, {}
            if not Path(uri).exists() or not uri.endswith(".db"):  # the client would create it
                raise DataError(f"There is no '{uri}' that ends with .db.", to_do="check it.")
        client = MilvusClient(uri, timeout=60, **said)
        try:
            yield client
        finally:
            client.close()


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Convert errors of the client to ours, and keep it from printing them as well."""
    place = f"Milvus at {address.name}"
    loggers = [logging.getLogger(name) for name in ("pymilvus", "milvus_lite")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    except MilvusException as error:
        refused = "auth" in str(error.message).lower() or "permission" in str(error.message).lower()
        raise (LastingStoreError if refused else StoreError)(
            f"{place}: {reason(Exception(error.message))}.",
            to_do=f"set {_TOKEN} to a token that may."
            if refused
            else "check the URL; a file is open in one process at a time.",
        ) from error
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
