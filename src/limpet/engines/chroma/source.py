"""Collections of Chroma: ``chroma://HOST:PORT/COLLECTION``.

The ids come from one snapshot. Rows are then read by id, page by page: a row that exists all the while is read exactly
once, in its state when its page was read; a row that is deleted meanwhile may be missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from limpet.engines.address import Address
from limpet.engines.chroma.service import (
    DOCUMENT,
    EMBEDDING,
    ID,
    OPTIONS,
    OWN,
    URI,
    ChromaCollectionRecord,
    Record,
    Service,
    connected,
)
from limpet.engines.filters import Condition
from limpet.engines.schemaless import LOOKED_AT, batch_of, types_of
from limpet.engines.services import collection_of
from limpet.engines.source import declared_similarity, filter_of, kept, sampled

_PAGE = 1024
"""Ids per request."""
_SIMILARITIES = {"cosine": "cosine", "ip": "inner-product", "l2": "euclidean"}
_COMPARISONS = {"=": "$eq", "<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte"}


class ChromaCollection:
    """One collection of a server.

    Columns are "id", "embedding", "document" and "uri", and the metadata; metadata with one of these names is
    "metadata.NAME". Lists are JSON. The metadata columns and their types are inferred from the first rows.

    Args:
        address: ``chroma://HOST:PORT/COLLECTION``; see `connected`.

    Raises:
        ConfigError: The collection does not exist, or the URL cannot be parsed.
        StoreError: The server is unreachable, or refuses.
    """

    options: ClassVar[Collection[str]] = OPTIONS
    record: None = None
    key = ID

    def __init__(self, address: Address) -> None:
        self.address, self.collection = address, collection_of(address)
        self.name = f"collection '{self.collection}' of Chroma"
        with connected(address) as service:
            self._described = service.described(self.collection)
            first = service.first(self._described, ["metadata"], LOOKED_AT)
        dim = self._described.get("dimension")
        self.schema: Mapping[str, pa.DataType] = types_of(record.values for record in first) | {
            ID: pa.string(),
            EMBEDDING: pa.null() if dim is None else pa.list_(pa.float32(), dim),
            DOCUMENT: pa.string(),
            URI: pa.string(),
        }
        self._where = filter_of(self)

    @property
    def rows(self) -> int:
        """Number of rows of a read."""
        pushed = self._pushed()
        with connected(self.address) as service:
            found = service.count(self._described) if pushed is None else len(service.ids(self._described, pushed))
        return found if self.address.sample is None else min(found, self.address.sample.rows)

    def type_name(self, column: str) -> str:
        """Return the type of a column."""
        if self.schema[column] == pa.null() and column == EMBEDDING:
            return "empty, without a dimension"
        return str(self.schema[column])

    def similarity(self, vector: str) -> str | None:
        """Return the similarity of vectors, which every collection declares.

        Raises:
            DataError: No space has this similarity.
        """
        return declared_similarity(self, vector, {space_of(self._described)}, _SIMILARITIES)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches of at most ``rows`` rows, with these columns, in the order of their first writing."""
        return sampled(self, columns, lambda names: self._paged(names, rows))

    def fetch(self, ids: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these ids, in any order."""
        with connected(self.address) as service:
            yield from self._read(service, ids, columns, _PAGE)

    def _paged(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        wanted = list(dict.fromkeys([*columns, *(one.column for one in self._where)]))
        with connected(self.address) as service:
            ids = service.ids(self._described, self._pushed())
            for batch in self._read(service, ids, wanted, rows):
                yield kept(batch, self._where).select(list(columns))

    def _read(
        self, service: Service, ids: Sequence[str], columns: Sequence[str], rows: int
    ) -> Iterator[pa.RecordBatch]:
        include = {name if name in OWN else "metadata" for name in columns} - {ID}
        for start in range(0, len(ids), rows):
            found = service.get(self._described, sorted(include), ids[start : start + rows])
            yield batch_of([_row(record) for record in found], self.schema, columns, self.name)

    def _pushed(self) -> Mapping[str, Any] | None:
        """Return the part of the conditions that Chroma can evaluate; it may let more rows through."""
        conditions = [
            {one.column: {_COMPARISONS[one.comparison]: one.value}} for one in self._where if self._compared(one)
        ]
        return {"$and": conditions} if len(conditions) > 1 else next(iter(conditions), None)

    def _compared(self, one: Condition) -> bool:
        """Say whether Chroma compares as limpet does: metadata, and texts and booleans only for equality."""
        if one.column in OWN or one.column.startswith("metadata.") or one.comparison not in _COMPARISONS:
            return False
        number = self.schema[one.column] in (pa.int64(), pa.float64())
        return number or (one.comparison == "=" and not str(one.value).startswith("["))  # which may stand for a list


def _row(record: Record) -> dict[str, Any]:
    return {**record.values, ID: record.id, EMBEDDING: record.embedding}


def space_of(described: ChromaCollectionRecord) -> str:
    """Return the distance of a collection, by Chroma's name.

    >>> space_of({"id": "7", "configuration_json": {"hnsw": {"space": "ip"}, "spann": None}})
    'ip'
    """
    configuration = described.get("configuration_json") or {}
    index = configuration.get("hnsw") or configuration.get("spann") or {}
    return str(index.get("space"))
