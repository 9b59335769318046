"""Both sides of an upgrade in Chroma: two collections, since a row has one vector."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from limpet.engines.address import Address
from limpet.engines.chroma.service import (
    DOCUMENT,
    EMBEDDING,
    PORT,
    SCOPES,
    URI,
    ChromaCollectionRecord,
    Record,
    connected,
)
from limpet.engines.collection import UNREAD, CollectionRow, Engine, IndexStatus, Pace, Target, Wanted, digest_of
from limpet.engines.schemaless import value_at
from limpet.engines.sides import ModelSide
from limpet.errors import DataError, GalleryError, refuse

_REST = ("metadata", DOCUMENT, URI)


class ChromaEngine(Engine):
    """Both sides of an upgrade of a collection of Chroma, held by one client.

    Use it for a collection on a Chroma server.

    Args:
        dim: Dimension of the new vectors, which Chroma infers from the first one.
        version: Metadata field that the application changes with every write; None to compare whole rows.

    >>> from limpet import start_upgrade
    >>> from limpet.upgrade.model import UpgradeModel
    >>> url = "chroma://127.0.0.1:8000/products?ledger=upgrade.db"
    >>> old, new = UpgradeModel("declared:v1", 32, "v1"), UpgradeModel("declared:v2", 64, "v2")
    >>> with start_upgrade(url, new, old=old) as upgrade:  # doctest: +SKIP
    ...     print(upgrade.phase, upgrade.status().items)
    started 120
    """

    service = "Chroma"
    scopes = SCOPES
    port = PORT

    def __init__(self, address: Address, old: Target, new: Target, dim: int, version: str | None = None) -> None:
        super().__init__(address, old, new, dim, version)
        self._service = self._open.enter_context(connected(address))
        self._seen: dict[ModelSide, ChromaCollectionRecord | None] = {}

    @classmethod
    def resolved(cls, address: Address, name: str) -> str:
        """Return the name itself: Chroma has no aliases."""
        return name

    @classmethod
    def sides(cls, address: Address, wanted: Wanted) -> tuple[Target, Target]:
        """Return the collection, and another one.

        Raises:
            ConfigError: An alias was requested.
        """
        refuse(wanted.alias is not None, f"alias={wanted.alias}.",
               "no alias, which Chroma has none of; the application asks `current`")  # fmt: skip
        return Target(wanted.collection), Target(wanted.name_after(wanted.collection))

    # Collections

    def is_there(self) -> bool:
        """Say whether the new collection exists."""
        return self._service.find(self._targets["new"].collection) is not None

    def create(self) -> None:
        """Create the new collection with the settings of the old one, without its embedding function."""
        if not self.is_there():
            old = self._service.described(self._targets["old"].collection)
            self._service.create(self._targets["new"].collection, old)

    def drop(self) -> None:
        """Remove the new collection."""
        self._service.drop(self._targets["new"].collection)

    def indexes(self) -> tuple[IndexStatus, ...]:
        """Return the index of the new collection, which every search of Chroma has."""
        return (IndexStatus(self._targets["new"].collection, True),) if self.is_there() else ()

    def aliased(self, alias: str) -> str | None:
        """Return None: Chroma has no aliases."""
        return None

    def set_alias(self, alias: str, side: ModelSide) -> None:
        """Refuse an alias, since Chroma has none."""
        raise GalleryError(f"Chroma has no alias '{alias}'.", expected="an application that asks `current`")

    # Rows

    def _collection(self, side: ModelSide) -> ChromaCollectionRecord | None:
        """Return the collection of a side; None if the new one does not exist."""
        name = self._targets[side].collection
        found = self._service.described(name) if side == "old" else self._service.find(name)
        self._seen[side] = found
        return found

    def scan(
        self, side: ModelSide, pace: Pace, *, digests: bool = True
    ) -> Iterator[Sequence[tuple[str, bytes | None]]]:
        """Yield ids, from one snapshot, and digests of all rows of a side."""
        collection = self._collection(side)
        if collection is None:
            return
        ids, start = self._service.ids(collection), 0
        if not digests:
            yield [(one, UNREAD) for one in ids]
            return
        include = _REST if self._version is not None else (*_REST, EMBEDDING)
        while start < len(ids):
            page, began = ids[start : start + pace.rows], time.monotonic()
            records = self._service.get(collection, include, page)
            start += len(page)
            pace.took(len(records), time.monotonic() - began)
            yield [(row.id, row.digest) for row in map(self._row, records)]

    def fetch(self, side: ModelSide, ids: Sequence[str], *, vectors: bool = True) -> Sequence[CollectionRow]:
        """Return the existing rows."""
        collection = self._collection(side)
        if collection is None:
            return []
        include = (*_REST, EMBEDDING) if vectors else _REST
        return [self._row(record) for record in self._service.get(collection, include, ids)]

    def _row(self, record: Record) -> CollectionRow:
        rest = {name: getattr(record, name) for name in _REST}
        vector = None if record.embedding is None else np.array(record.embedding, np.float32)
        if self._version is not None:
            digest: bytes | None = digest_of(value_at(record.values, self._version))
        else:
            digest = None if vector is None else digest_of(rest, vector)
        return CollectionRow(record.id, vector, rest, digest, record.values)

    def put(
        self, side: ModelSide, rows: Sequence[CollectionRow], there: Mapping[str, CollectionRow] | None = None
    ) -> None:
        """Write whole rows: the same request removes fields of earlier versions that Chroma would keep."""
        if there is None:
            there = {row.id: row for row in self.fetch(side, [row.id for row in rows], vectors=False)}
        collection = self._seen[side] or self._service.described(self._targets[side].collection)
        self._service.upsert(collection, [_record(row, there.get(row.id)) for row in rows])

    def remove(self, side: ModelSide, ids: Sequence[str]) -> None:
        """Remove rows."""
        if ids:
            self._service.remove(self._service.described(self._targets[side].collection), ids)


def _record(row: CollectionRow, before: CollectionRow | None) -> Record:
    if row.vector is None:
        raise DataError(f"The item '{row.id}' has no vector.", expected="one for every item that is written")
    was = before.rest if before is not None else dict.fromkeys(_REST)
    metadata = {**dict.fromkeys(was["metadata"] or ()), **row.rest["metadata"]}
    kept = {name: row.rest[name] or ("" if was[name] else None) for name in (DOCUMENT, URI)}
    return Record(row.id, list(map(float, row.vector)), metadata=metadata, **kept)
