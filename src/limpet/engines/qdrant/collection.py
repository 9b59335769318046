"""Both sides of an upgrade in Qdrant: two named vectors of the same points, or two collections."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from http import HTTPStatus
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

from limpet.engines.address import Address
from limpet.engines.collection import UNREAD, CollectionRow, Engine, IndexStatus, Pace, Target, Wanted, digest_of
from limpet.engines.qdrant.source import PORT, UNNAMED, connected, point_id, translated, vectors_of
from limpet.engines.sides import ModelSide
from limpet.errors import DataError, refuse

_CONSISTENCY = models.ReadConsistencyType.MAJORITY
_NAMED_SINCE = (1, 18)


def adds_vectors(client: QdrantClient) -> bool:
    """Say whether a named vector can be added to an existing collection: from Qdrant 1.18 on."""
    version = client.info().version.split(".")
    return tuple(int(part) for part in version[:2]) >= _NAMED_SINCE


class QdrantEngine(Engine):
    """Both sides of an upgrade of a collection of Qdrant, held by one client.

    Use it for a collection in Qdrant, a server or a local folder; named vectors need no second collection.

    Args:
        address: Address of the service, or of a folder.
        old: The collection, and its vector if that has a name.
        new: Another collection with a vector of the same name; or the same one, with another vector.
        dim: Dimension of the new vectors.
        version: Payload key that the application changes with every write; None to compare whole points.

    >>> from limpet import start_upgrade
    >>> from limpet.upgrade.model import UpgradeModel
    >>> url = "qdrant://127.0.0.1:6333/products?vector=emb&text=title&ledger=upgrade.db"
    >>> old, new = UpgradeModel("declared:v1", 32, "v1"), UpgradeModel("declared:v2", 64, "v2")
    >>> with start_upgrade(url, new, old=old) as upgrade:  # doctest: +SKIP
    ...     print(upgrade.phase, upgrade.status().items)
    started 120
    """

    service = "Qdrant"
    beside = ("vector", "collection")
    port = PORT

    def __init__(self, address: Address, old: Target, new: Target, dim: int, version: str | None = None) -> None:
        super().__init__(address, old, new, dim, version)
        self._names = {side: one.vector or UNNAMED for side, one in self._targets.items()}
        self._client: QdrantClient = self._open.enter_context(connected(address))

    @classmethod
    def resolved(cls, address: Address, name: str) -> str:
        """Return the collection of a name or an alias."""
        with connected(address) as client:
            aliases = {one.alias_name: one.collection_name for one in client.get_aliases().aliases}
        return aliases.get(name, name)

    @classmethod
    def sides(cls, address: Address, wanted: Wanted) -> tuple[Target, Target]:
        """Return the collection and its vector, and another vector of it, if one can be added, or a new collection."""
        old = Target(wanted.collection, None if wanted.vector == UNNAMED else wanted.vector)
        with connected(address) as client:
            added = old.vector is not None and wanted.alias is None and adds_vectors(client)
        if old.vector is not None and added and wanted.beside != "collection":
            return old, replace(old, vector=wanted.name_after(old.vector))
        refuse(wanted.beside == "vector", "beside=vector.",
               "a vector that has a name, no alias, and Qdrant 1.18 or later")  # fmt: skip
        return old, replace(old, collection=wanted.name_after(old.collection))

    # Collections

    def is_there(self) -> bool:
        """Say whether the new collection, or the new vector, exists."""
        collection, name = self._targets["new"].collection, self._names["new"]
        with translated(self._address):
            return self._client.collection_exists(collection) and name in self._vectors(collection)

    def _vectors(self, collection: str) -> Mapping[str, models.VectorParams]:
        return vectors_of(self._client.get_collection(collection).config.params)[0]

    def create(self) -> None:
        """Create the new side: settings and payload indexes like those of the old one, without its points."""
        if self.is_there():
            return
        old, new = self._targets["old"].collection, self._targets["new"].collection
        with translated(self._address), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about payload indexes, which folders do not support
            info = self._client.get_collection(old)
            params, own = info.config.params, vectors_of(info.config.params)[0][self._names["old"]]
            if self.shared:
                config = models.DenseVectorConfig(size=self._dim, distance=own.distance, datatype=own.datatype)
                self._client.create_vector_name(old, self._names["new"], models.DenseVectorNameConfig(dense=config))
                return
            changed = own.model_copy(update={"size": self._dim})
            vectors = {**params.vectors, self._names["old"]: changed} if isinstance(params.vectors, dict) else changed
            self._client.create_collection(
                new, vectors, params.sparse_vectors, shard_number=params.shard_number,
                replication_factor=params.replication_factor, on_disk_payload=params.on_disk_payload,
                write_consistency_factor=params.write_consistency_factor,
                hnsw_config=_diff(info.config.hnsw_config, models.HnswConfigDiff),
                optimizers_config=_diff(info.config.optimizer_config, models.OptimizersConfigDiff),
                quantization_config=info.config.quantization_config,
            )  # fmt: skip
            for field, index in info.payload_schema.items():
                self._client.create_payload_index(new, field, index.params or index.data_type)

    def drop(self) -> None:
        """Remove the new collection, or the new vector."""
        if not self.is_there():
            return
        with translated(self._address):
            if self.shared:
                self._client.delete_vector_name(self._targets["new"].collection, self._names["new"])
            else:
                self._client.delete_collection(self._targets["new"].collection)

    def indexes(self) -> tuple[IndexStatus, ...]:
        """Return the progress of Qdrant's index builds."""
        if not self.is_there():
            return ()
        with translated(self._address):
            info = self._client.get_collection(self._targets["new"].collection)
        return (IndexStatus(f"{self._targets['new'].collection}.{self._names['new']}", info.status == "green"),)

    def aliased(self, alias: str) -> str | None:
        """Return the collection of an alias."""
        with translated(self._address):
            found = self._client.get_aliases().aliases
        return next((one.collection_name for one in found if one.alias_name == alias), None)

    def set_alias(self, alias: str, side: ModelSide) -> None:
        """Point an alias to the collection of a side, in one operation of the service."""
        make = models.CreateAlias(collection_name=self._targets[side].collection, alias_name=alias)
        gone = [models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias))]
        operations: list[Any] = [*(gone if self.aliased(alias) else []), models.CreateAliasOperation(create_alias=make)]
        with translated(self._address):
            self._client.update_collection_aliases(operations)

    # Points

    def scan(
        self, side: ModelSide, pace: Pace, *, digests: bool = True
    ) -> Iterator[Sequence[tuple[str, bytes | None]]]:
        """Yield ids and digests of all points of a side; if both are vectors of a point, of points that have one."""
        if side == "new" and not self.is_there():
            return
        name = self._names[side]
        alone = self._version is not None or not digests  # nothing is read that shows whether a point has one
        fields = [self._version] if self._version and digests else False
        what: dict[str, Any] = {"with_payload": fields if alone else True, "with_vectors": not alone}
        has = [models.HasVectorCondition(has_vector=name)]
        parts: list[tuple[models.Filter | None, bool]] = [(None, True)]
        if self.shared or (alone and name != UNNAMED):
            parts = [(models.Filter(must=has), True), *([] if self.shared else [(models.Filter(must_not=has), False)])]
        for where, there in parts:
            offset: Any = None
            while True:
                began = time.monotonic()
                with translated(self._address):
                    points, offset = self._client.scroll(
                        self._targets[side].collection, scroll_filter=where, limit=pace.rows, offset=offset,
                        consistency=_CONSISTENCY, **what,
                    )  # fmt: skip
                pace.took(len(points), time.monotonic() - began)
                if digests and there:
                    yield [(row.id, row.digest) for row in (self._row(side, point) for point in points)]
                else:
                    yield [(str(point.id), UNREAD if there else None) for point in points]
                if offset is None:
                    break

    def fetch(self, side: ModelSide, ids: Sequence[str], *, vectors: bool = True) -> Sequence[CollectionRow]:
        """Return the existing points, with a vector of the side or without."""
        if not ids:
            return []
        wanted = [one for one in map(point_id, ids) if one is not None]
        with translated(self._address):
            points = self._client.retrieve(
                self._targets[side].collection,
                wanted,
                with_payload=True,
                with_vectors=vectors,
                consistency=_CONSISTENCY,
            )
        return [self._row(side, point) for point in points]

    def _row(self, side: ModelSide, point: models.Record) -> CollectionRow:
        payload, name, other = point.payload or {}, self._names[side], self._names["new" if side == "old" else "old"]
        vectors = dict(point.vector) if isinstance(point.vector, dict) else {UNNAMED: point.vector or None}
        own = vectors.pop(name, None)
        vector = None if own is None else np.array(own, np.float32)
        if self._version is not None:
            gone = vector is None and point.vector is not None  # and was not merely left unread
            digest = None if gone else digest_of(payload.get(self._version))
            return CollectionRow(str(point.id), vector, {"payload": payload, "vectors": vectors}, digest, payload)
        if self.shared:
            vectors.pop(other, None)
        rest = {"payload": payload, "vectors": vectors}
        dense = {one: self._counted(one, numbers) for one, numbers in vectors.items() if _dense(numbers)}
        told = {"payload": payload, "vectors": {one: numbers for one, numbers in vectors.items() if one not in dense}}
        return CollectionRow(
            str(point.id),
            vector,
            rest,
            None if own is None else digest_of(told, self._counted(name, own), dense),
            payload,
        )

    def _counted(self, name: str, numbers: Any) -> NDArray[np.float32]:
        """Return the part of a vector that digests cover: for cosine its direction, since a folder drops the length."""
        vector = np.array(numbers, np.float32)
        return vector / (float(np.linalg.norm(vector)) or 1.0) if name in self._directions else vector

    @cached_property
    def _directions(self) -> set[str]:
        with translated(self._address):
            known = self._vectors(self._targets["old"].collection)
        names = {name for name, params in known.items() if params.distance == models.Distance.COSINE}
        return names | ({self._names["new"]} if self._names["old"] in names else set())

    def put(
        self, side: ModelSide, rows: Sequence[CollectionRow], there: Mapping[str, CollectionRow] | None = None
    ) -> None:
        """Write whole points; of two vectors of the same points only one, if the point still exists."""
        name, collection = self._names[side], self._targets[side].collection
        if self.shared:
            self._update(
                collection, [models.PointVectors(id=_id(row.id), vector={name: _numbers(row)}) for row in rows]
            )
            return
        with translated(self._address):
            self._client.upsert(collection, [
                models.PointStruct(
                    id=_id(row.id), payload=dict(row.rest["payload"]),
                    vector=_numbers(row) if name == UNNAMED else {**row.rest["vectors"], name: _numbers(row)},
                ) for row in rows
            ])  # fmt: skip

    def _update(self, collection: str, points: list[models.PointVectors]) -> None:
        """Write vectors of existing points; the application may delete some at the same time."""
        with translated(self._address):
            try:
                self._client.update_vectors(collection, points)
            except (KeyError, UnexpectedResponse) as error:  # of a folder, and of a service, which wrote the others
                if not isinstance(error, KeyError) and error.status_code != HTTPStatus.NOT_FOUND:
                    raise

    def remove(self, side: ModelSide, ids: Sequence[str]) -> None:
        """Remove points of a collection."""
        if ids:
            with translated(self._address):
                self._client.delete(self._targets[side].collection, list(map(_id, ids)))


def _id(text: str) -> Any:
    return point_id(text)


def _dense(vector: Any) -> bool:
    return isinstance(vector, list) and bool(vector) and isinstance(vector[0], float)


def _numbers(row: CollectionRow) -> list[float]:
    if row.vector is None:
        raise DataError(f"The item '{row.id}' has no vector.", expected="one for every item that is written")
    return list(map(float, row.vector))


def _diff(config: Any, kind: type[Any]) -> Any:
    if config is None:
        return None
    known = kind.model_fields
    return kind(**{name: value for name, value in config.model_dump().items() if name in known and value is not None})
