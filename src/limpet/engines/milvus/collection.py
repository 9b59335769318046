"""Both sides of an upgrade in Milvus: two collections, since fields cannot be added before Milvus 3."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pymilvus import DataType, MilvusClient, MilvusException

from limpet.engines.address import Address
from limpet.engines.collection import UNREAD, CollectionRow, Engine, IndexStatus, Pace, Target, Wanted, digest_of
from limpet.engines.milvus.source import PORT, Field, connected, describe, literal, load_of_file, translated
from limpet.engines.sides import ModelSide
from limpet.errors import GalleryError

_STRONG: dict[str, Any] = {"consistency_level": "Strong"}


class MilvusEngine(Engine):
    """Both sides of an upgrade of a collection of Milvus, held by one client.

    Use it for a collection in Milvus, a server or a file of Milvus Lite.

    Args:
        address: Address of the service, or of a file.
        old: The collection, and its vector.
        new: Another collection with a vector of the same name.
        dim: Dimension of the new vectors.
        version: Field that the application changes with every write; None to compare whole rows.

    Raises:
        GalleryError: A property of the collection cannot be copied to another one.

    >>> from limpet import start_upgrade
    >>> from limpet.upgrade.model import UpgradeModel
    >>> url = "milvus://127.0.0.1:19530/products?vector=emb&text=title&ledger=upgrade.db"
    >>> old, new = UpgradeModel("declared:v1", 32, "v1"), UpgradeModel("declared:v2", 64, "v2")
    >>> with start_upgrade(url, new, old=old) as upgrade:  # doctest: +SKIP
    ...     print(upgrade.phase, upgrade.status().items)
    started 120
    """

    service = "Milvus"
    scopes = {"database": "default"}  # noqa: RUF012
    port = PORT

    def __init__(self, address: Address, old: Target, new: Target, dim: int, version: str | None = None) -> None:
        super().__init__(address, old, new, dim, version)
        self._vector = str(old.vector)
        self._client: MilvusClient = self._open.enter_context(connected(address))
        with translated(address):
            self._described = describe(self._client, old.collection)
            for one in (old, new):
                if self._client.has_collection(one.collection):
                    load_of_file(address, self._client, one.collection)
        self._key = next(one for one in self._described["fields"] if one.get("is_primary"))
        self._texts = self._key["type"] == DataType.VARCHAR
        fields = self._described["fields"]
        self._nullable = [one["name"] for one in fields if one["name"] == self._vector and one.get("nullable")]
        names = [one["name"] for one in self._described["fields"] if one["name"] != self._vector]
        self._fields = [*names, *(["$meta"] if self._described.get("enable_dynamic_field") else [])]
        self._compared = ["*"] if version is None else [version, *self._nullable]

    @classmethod
    def resolved(cls, address: Address, name: str) -> str:
        """Return the collection of a name or an alias."""
        with connected(address) as client:
            there = name in client.list_collections()
            return name if there else str(client.describe_alias(name)["collection_name"])

    @classmethod
    def sides(cls, address: Address, wanted: Wanted) -> tuple[Target, Target]:
        """Return the collection with its vector, and another one with a vector of the same name."""
        old = Target(wanted.collection, wanted.vector)
        return old, replace(old, collection=wanted.name_after(old.collection))

    def refuse(self) -> None:
        """Refuse a collection that cannot be copied faithfully.

        Raises:
            GalleryError: The collection cannot be copied; the message names all reasons.
        """
        fields, hindering = self._described["fields"], []
        if self._described.get("auto_id"):
            hindering.append("its keys are given by Milvus")
        if self._described.get("functions"):
            hindering.append("functions make some of its fields")
        with translated(self._address):
            partitions = self._client.list_partitions(self._targets["old"].collection)
        if len(partitions) > 1 and not any(one.get("is_partition_key") for one in fields):
            hindering.append(f"it has partitions: {', '.join(partitions)}")
        if hindering:
            raise GalleryError(
                f"The {self.place} cannot be upgraded in place: {'; '.join(hindering)}.",
                to_do="make a gallery of it: `limpet gallery create`.",
                intact="Nothing was changed.",
            )

    # Collections

    def is_there(self) -> bool:
        """Say whether the new collection exists."""
        with translated(self._address):
            return bool(self._client.has_collection(self._targets["new"].collection))

    def create(self) -> None:
        """Create the new collection, with fields and indexes like those of the old one, and load it."""
        old, new = self._targets["old"].collection, self._targets["new"].collection
        with translated(self._address):
            if not self._client.has_collection(new):
                schema = self._client.create_schema(
                    auto_id=False, enable_dynamic_field=bool(self._described.get("enable_dynamic_field"))
                )
                for field in self._described["fields"]:
                    schema.add_field(field["name"], DataType(field["type"]), **self._settings(field))
                self._client.create_collection(new, schema=schema, **_STRONG)
            made = set(self._client.list_indexes(new))
            for name in self._client.list_indexes(old):
                if name not in made:
                    self._client.create_index(new, self._index(old, name))
            self._client.load_collection(new)

    def _settings(self, field: Field) -> dict[str, Any]:
        settings = dict(field.get("params") or {})
        if field["name"] == self._vector:
            settings["dim"] = self._dim
        kept = ("is_primary", "is_partition_key", "nullable", "default_value", "element_type", "description")
        return settings | {name: value for name, value in field.items() if name in kept and value}

    def _index(self, collection: str, name: str) -> Any:
        told = dict(self._client.describe_index(collection, name))
        further = ("index_type", "metric_type", "field_name", "index_name")
        state = ("total_rows", "indexed_rows", "pending_index_rows", "state")
        params = {key: value for key, value in told.items() if key not in (*further, *state)}
        index = self._client.prepare_index_params()
        index.add_index(
            told["field_name"], index_type=told.get("index_type", ""), index_name=told["index_name"], params=params,
            **({"metric_type": told["metric_type"]} if told.get("metric_type") else {}),
        )  # fmt: skip
        return index

    def drop(self) -> None:
        """Remove the new collection."""
        with translated(self._address):
            if self._client.has_collection(self._targets["new"].collection):
                self._client.drop_collection(self._targets["new"].collection)

    def build(self) -> None:
        """Let Milvus index the written rows."""
        with translated(self._address):
            self._client.flush(self._targets["new"].collection)

    def indexes(self) -> tuple[IndexStatus, ...]:
        """Return the progress of Milvus's index builds."""
        new = self._targets["new"].collection
        if not self.is_there():
            return ()
        with translated(self._address):
            told = [self._client.describe_index(new, name) for name in self._client.list_indexes(new)]
        return tuple(
            IndexStatus(f"{new}.{one['index_name']}", one.get("state", "Finished") in ("Finished", 3)) for one in told
        )

    def aliased(self, alias: str) -> str | None:
        """Return the collection of an alias."""
        with translated(self._address):
            try:
                return str(self._client.describe_alias(alias)["collection_name"])
            except MilvusException:
                return None

    def set_alias(self, alias: str, side: ModelSide) -> None:
        """Point an alias to the collection of a side."""
        known, collection = self.aliased(alias), self._targets[side].collection
        with translated(self._address):
            (self._client.alter_alias if known else self._client.create_alias)(collection, alias)

    # Rows

    def scan(
        self, side: ModelSide, pace: Pace, *, digests: bool = True
    ) -> Iterator[Sequence[tuple[str, bytes | None]]]:
        """Yield ids and digests of all rows of a side, in the order of their keys."""
        if side == "new" and not self.is_there():
            return
        key, after = self._key["name"], ""
        while True:
            size = pace.rows  # an iterator keeps the size of its pages
            with translated(self._address):
                iterator = self._client.query_iterator(
                    self._targets[side].collection, batch_size=size, filter=after,
                    output_fields=[key, *(self._compared if digests else self._nullable)], **_STRONG,
                )  # fmt: skip
            try:
                while pace.rows == size:
                    began = time.monotonic()
                    with translated(self._address):
                        page = iterator.next()
                    if not page:
                        return
                    pace.took(len(page), time.monotonic() - began)
                    if digests:
                        yield [(row.id, row.digest) for row in map(self._row, page)]
                    else:
                        yield [(str(one[key]), None if one.get(self._vector, "") is None else UNREAD) for one in page]
                    after = f"{key} > {literal(page[-1][key])}"
            finally:
                iterator.close()

    def fetch(self, side: ModelSide, ids: Sequence[str], *, vectors: bool = True) -> Sequence[CollectionRow]:
        """Return the existing rows."""
        if not ids or (side == "new" and not self.is_there()):
            return []
        with translated(self._address):
            found = self._client.query(
                self._targets[side].collection, filter=f"{self._key['name']} in {literal(self._keys(ids))}",
                output_fields=["*"] if vectors else self._fields, **_STRONG,
            )  # fmt: skip
        return [self._row(one) for one in found]

    def _keys(self, ids: Sequence[str]) -> list[Any]:
        return list(ids) if self._texts else [int(one) for one in ids]

    def _row(self, found: Mapping[str, Any]) -> CollectionRow:
        rest = {name: value for name, value in found.items() if name != self._vector}
        own = found.get(self._vector)
        vector, key = None if own is None else np.array(own, np.float32), str(rest[self._key["name"]])
        if self._version is not None:
            gone = vector is None and self._vector in found  # and was not merely left unread
            return CollectionRow(key, vector, rest, None if gone else digest_of(rest.get(self._version)), rest)
        return CollectionRow(key, vector, rest, None if vector is None else digest_of(rest, vector), rest)

    def put(
        self, side: ModelSide, rows: Sequence[CollectionRow], there: Mapping[str, CollectionRow] | None = None
    ) -> None:
        """Write whole rows."""
        with translated(self._address):
            self._client.upsert(
                self._targets[side].collection, [{**row.rest, self._vector: row.vector} for row in rows]
            )

    def remove(self, side: ModelSide, ids: Sequence[str]) -> None:
        """Remove rows."""
        if ids:
            with translated(self._address):
                self._client.delete(self._targets[side].collection, ids=self._keys(ids))
