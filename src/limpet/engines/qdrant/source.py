"""Collections of Qdrant: ``qdrant://HOST:PORT/COLLECTION``, or ``qdrant:FOLDER#COLLECTION`` of the client's local mode.

Points are read in the order of their ids, page by page; Qdrant has no readable snapshots. A point that exists all the
while is read exactly once, in its state at some time during the read; a point that is added or deleted meanwhile may
be read or not. In collections with the cosine distance, Qdrant stores normalized vectors: these are read, whatever
length the application gave them.
"""

from __future__ import annotations

import os
import pickle
import re
import sqlite3
import uuid
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from limpet.engines.address import Address
from limpet.engines.filters import Condition, Conditions
from limpet.engines.schemaless import LOOKED_AT, asked_names, batch_of, names_without_path, types_of
from limpet.engines.services import authority_of, collection_of, flag
from limpet.engines.source import filter_of, kept, needed, roles_of, sampled, whole_ids
from limpet.errors import DataError, LastingStoreError, StoreError, reason, unknown_name
from limpet.support.disk import only_files
from limpet.support.documents import read_json

PORT = 6333
"""Default port of a server."""
ID = "id"
"""The column of point ids, as texts."""
UNNAMED = "vector"
"""The column of the vectors of a collection whose vector has no name."""
_PAGE = 1024
"""Ids per request."""
_KEY = "QDRANT_API_KEY"
_SIMILARITIES = {"Cosine": "cosine", "Dot": "inner-product", "Euclid": "euclidean"}
_INDEXED = {"keyword": pa.string(), "text": pa.string(), "datetime": pa.string(), "uuid": pa.string(),
            "integer": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}  # fmt: skip
_PLAIN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_CONSISTENCY = models.ReadConsistencyType.MAJORITY


class QdrantCollection:
    """One collection, by its name or an alias.

    Columns are "id", one for every named vector (or "vector"), and the payload: nested values under dotted names, and
    fields whose name is taken as "payload.NAME". Lists and objects are JSON. Payload columns and their types are
    inferred from payload indexes, the first points, and points with the fields that the URL names.

    Args:
        address: A folder and a collection, or ``qdrant://HOST:PORT/COLLECTION``; see `connected`.

    Raises:
        ConfigError: The collection or vector does not exist, or the URL cannot be parsed.
        DataError: The vector is sparse or a multivector, or the folder is not one of Qdrant.
        StoreError: The service is unreachable, or refuses.
    """

    options: ClassVar[Collection[str]] = ("https",)
    record: None = None
    key = ID

    def __init__(self, address: Address) -> None:
        self.address, self.collection = address, collection_of(address)
        self.name = f"collection '{self.collection}' of Qdrant"
        with connected(address) as client:
            known = [one.name for one in client.get_collections().collections]
            known += [one.alias_name for one in client.get_aliases().aliases]
            if self.collection not in known:
                raise unknown_name("collection", self.collection, known)
            info = client.get_collection(self.collection)
            dense, others = vectors_of(info.config.params)
            indexed = {
                name: _INDEXED.get(str(one.data_type.value), pa.string()) for name, one in info.payload_schema.items()
            }
            payloads = [point.payload or {} for point in client.scroll(self.collection, limit=LOOKED_AT)[0]]
            known = [ID, *dense, *others, *indexed, *types_of(payloads)]
            missing = [name for name in asked_names(address) if name not in known]
            for name in filter(_PLAIN.fullmatch, missing):
                there = models.Filter(must_not=[models.IsEmptyCondition(is_empty=models.PayloadField(key=name))])
                points, _ = client.scroll(self.collection, scroll_filter=there, limit=LOOKED_AT)
                payloads += [point.payload or {} for point in points]
        self._vectors = dense
        own: dict[str, pa.DataType] = {ID: pa.string()}
        own |= {name: pa.list_(pa.float32(), one.size) for name, one in dense.items()}
        own |= dict.fromkeys(others, pa.null())
        values = types_of(payloads) | indexed
        self._pathless = {name for payload in payloads for name in names_without_path(payload)}
        self._payload = {f"payload.{name}" if name in own else name: name for name in values}
        self.schema: Mapping[str, pa.DataType] = own | {name: values[real] for name, real in self._payload.items()}
        self._refuse_vector(address.roles.vector, others)
        self._where = filter_of(self)

    def _refuse_vector(self, name: str | None, others: Mapping[str, str]) -> None:
        only = name or (None if self._vectors else next(iter(others), None))
        if only is not None and only in others:
            raise DataError(
                f"The vector '{only}' of {self.name} is {others[only]}.",
                expected="one dense vector for every point",
                to_do=f"name another one: vector=NAME in the URL; dense are {', '.join(self._vectors) or 'none'}.",
            )

    @property
    def rows(self) -> int:
        """Number of points of a read."""
        with connected(self.address) as client:
            counted = int(client.count(self.collection, count_filter=self._pushed(), exact=True).count)
        return counted if self.address.sample is None else min(counted, self.address.sample.rows)

    def type_name(self, column: str) -> str:
        """Return the type of a column."""
        return str(self.schema[column])

    def similarity(self, vector: str) -> str | None:
        """Return the similarity of a vector, which every collection declares.

        Raises:
            DataError: The distance is the Manhattan distance.
        """
        distance = str(self._vectors[vector].distance.value)
        if distance not in _SIMILARITIES:
            raise DataError(
                f"The vector '{vector}' of {self.name} is compared by the distance {distance}.",
                expected=f"one of {', '.join(_SIMILARITIES)}",
            )
        return _SIMILARITIES[distance]

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches of at most `rows` rows, with these columns, in the order of point ids."""
        return sampled(self, columns, lambda names: self._scrolled(names, rows))

    def fetch(self, ids: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these ids, in any order."""
        [key] = needed(self, roles_of(self), "id")
        with connected(self.address) as client:
            for start in range(0, len(ids), _PAGE):
                some, read = ids[start : start + _PAGE], self._selected(columns)
                if key == ID:
                    wanted = [one for one in map(point_id, some) if one is not None]
                    points = client.retrieve(self.collection, ids=wanted, consistency=_CONSISTENCY, **read)
                    yield self._batch(points, columns)
                    continue
                if not self._is_path(self._payload[key]):  # Qdrant cannot filter by it: all points are read
                    wanted_ids = pa.array(ids, pa.large_string())
                    for batch in self._scrolled(list(dict.fromkeys([key, *columns])), _PAGE, None, ()):
                        batch = batch.filter(pc.is_in(batch.column(0).cast(pa.large_string()), wanted_ids))
                        yield batch.select(list(columns))
                    return
                texts = self.schema[key] == pa.string()
                values: Sequence[str | int] = some if texts else whole_ids(some)
                yield from self._scrolled(columns, _PAGE, _any_of(self._payload[key], values), ())

    def _scrolled(
        self, columns: Sequence[str], rows: int, found: models.Filter | None = None, where: Conditions | None = None
    ) -> Iterator[pa.RecordBatch]:
        where, found = (self._where, self._pushed()) if where is None else (where, found)
        wanted = list(dict.fromkeys([*columns, *(one.column for one in where)]))
        offset: Any = None
        with connected(self.address) as client:
            while True:
                points, offset = client.scroll(
                    self.collection, scroll_filter=found, limit=rows, offset=offset, consistency=_CONSISTENCY,
                    **self._selected(wanted),
                )  # fmt: skip
                yield kept(self._batch(points, wanted), where).select(list(columns))
                if offset is None:
                    return

    def _selected(self, columns: Sequence[str]) -> dict[str, Any]:
        payload = [self._payload[name] for name in columns if name in self._payload]
        plain = all(map(self._is_path, payload))
        vectors = [name for name in columns if name in self._vectors]
        return {
            "with_payload": [name.partition(".")[0] for name in payload] if plain and payload else bool(payload),
            "with_vectors": True if vectors == [UNNAMED] else vectors or False,
        }

    def _is_path(self, name: str) -> bool:
        return _PLAIN.fullmatch(name) is not None and name not in self._pathless

    def _batch(self, points: Sequence[models.Record], columns: Sequence[str]) -> pa.RecordBatch:
        return batch_of([self._row(point) for point in points], self.schema, columns, self.name)

    def _row(self, point: models.Record) -> dict[str, Any]:
        vectors = point.vector if isinstance(point.vector, dict) else {UNNAMED: point.vector or None}
        payload, taken = point.payload or {}, {name: real for name, real in self._payload.items() if name != real}
        return {**payload, **{name: payload.get(real) for name, real in taken.items()}, ID: str(point.id),
                **{name: self._vector(name, vectors.get(name)) for name in self._vectors}}  # fmt: skip

    def _vector(self, name: str, vector: Any) -> Any:
        """Return a vector as the server stores it; a folder keeps it as given."""
        if vector is None or "://" in self.address.place or self._vectors[name].distance != models.Distance.COSINE:
            return vector
        length = np.linalg.norm(vector)
        return np.array(vector) / length if length else vector

    def _pushed(self) -> models.Filter | None:
        """Return the part of the conditions that Qdrant can evaluate; it may let more points through."""
        must: list[Any] = []
        for one in self._where:
            name = self._payload.get(one.column, "")
            if self._is_path(name):
                must += _condition(one, name, self.schema[one.column])
        return models.Filter(must=must) if must else None


def _condition(one: Condition, name: str, type_: pa.DataType) -> list[Any]:
    value = one.value
    if type_ == pa.float64() or (type_ == pa.int64() and one.comparison in ("<", "<=", ">", ">=")):
        bounds = {"<": {"lt": value}, "<=": {"lte": value}, ">": {"gt": value}, ">=": {"gte": value},
                  "=": {"gte": value, "lte": value}, "!=": {}}[one.comparison]  # fmt: skip
        return [models.FieldCondition(key=name, range=models.Range(**bounds))] if bounds else []
    if one.comparison == "=" and not str(value).startswith(("[", "{")):  # such a text may represent a list
        return [models.FieldCondition(key=name, match=models.MatchValue(value=value))]
    return []


def _any_of(name: str, values: Sequence[Any]) -> models.Filter:
    return models.Filter(must=[models.FieldCondition(key=name, match=models.MatchAny(any=list(values)))])


def point_id(text: str) -> int | str | None:
    """Return the id of a point in Qdrant's form: an integer, or a UUID; None for a text that is neither.

    >>> point_id("17"), point_id("0"), point_id("red")
    (17, 0, None)
    """
    if text.isdecimal() and text.isascii():
        return int(text) if int(text) < 2**64 else None
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return None


def vectors_of(params: models.CollectionParams) -> tuple[dict[str, models.VectorParams], dict[str, str]]:
    """Return the dense vectors of a collection by name, and descriptions of the others.

    A vector without a name is called `UNNAMED`.
    """
    found = params.vectors or {}
    named = found if isinstance(found, dict) else {UNNAMED: found}
    dense = {name: one for name, one in named.items() if one.multivector_config is None}
    others = {name: "a list of several vectors for every point" for name in named if name not in dense}
    return dense, others | dict.fromkeys(params.sparse_vectors or {}, "sparse")


@contextmanager
def connected(address: Address) -> Iterator[QdrantClient]:
    """Yield a client of a service, or of a folder, which the whole process shares and no other process can use.

    The key of a service is read from the environment variable QDRANT_API_KEY; with a key the connection is encrypted
    unless ``https=false`` is given.

    Raises:
        ConfigError: The URL cannot be parsed.
        DataError: The folder does not exist, or contains other files than those that the Qdrant client writes.
        StoreError: The service is unreachable, or refuses; or another process has the folder open.
    """
    with translated(address):
        if "://" not in address.place:
            with _folder(Path(address.place)) as client:
                yield client
            return
        host, port = authority_of(address, PORT, _KEY)
        key = os.environ.get(_KEY)
        https = flag(address, "https", key is not None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about keys over connections that the user chose to leave unencrypted
            client = QdrantClient(host=host, port=port, https=https, api_key=key, timeout=60, check_compatibility=False)
        try:
            yield client
        finally:
            client.close()


_open: dict[Path, tuple[QdrantClient, list[None]]] = {}
_opening = Lock()


@contextmanager
def _folder(path: Path) -> Iterator[QdrantClient]:
    path = path.resolve()
    with _opening:
        if path not in _open:
            if not (path / "meta.json").is_file():  # the client would create it
                raise DataError(
                    f"'{path}' is no folder of Qdrant.", expected="one that its client made, with the file meta.json"
                )
            _refuse_code(path)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about large folders
                _open[path] = (QdrantClient(path=str(path), force_disable_check_same_thread=True), [])
        client, users = _open[path]
        users.append(None)
    try:
        yield client
    finally:
        with _opening:
            users.pop()
            if not users:
                del _open[path]
                client.close()


class _Points(pickle.Unpickler):
    """Unpickler that only creates values of the client's own models."""

    def find_class(self, module: str, name: str) -> Any:
        found = getattr(models, name, None) if module.startswith("qdrant_client.http.models") else None
        if isinstance(found, type) and issubclass(found, BaseModel):
            return found
        raise pickle.UnpicklingError(f"{module}.{name}")


def _refuse_code(path: Path) -> None:
    """Refuse a folder whose points contain anything else than points: the client unpickles them, which runs code."""
    try:
        names = list(read_json(only_files(path, deep=True) / "meta.json")["collections"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"'{path / 'meta.json'}' cannot be read: {reason(error)}.", expected="a folder of Qdrant"
        ) from error
    for name in names:  # the client reads only those, even nested ones: "a/b"
        file = path / "collection" / name / "storage.sqlite"
        if not file.is_file():
            continue
        # Only read, but SQLite must first roll back what a killed process was writing.
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True)) as database:
            for (point,) in database.execute("SELECT point FROM points"):
                try:
                    _Points(BytesIO(point)).load()
                except Exception as error:  # foreign bytes may cause any error
                    raise DataError(
                        f"'{file}' holds something that Qdrant does not write: {reason(error)}.",
                        expected="points alone",
                        to_do="use no folder of unknown origin: the client of Qdrant would run the code in it.",
                    ) from error


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Convert errors of the client to ours."""
    place = f"Qdrant at {address.name}"
    try:
        yield
    except UnexpectedResponse as error:
        refused = error.status_code in (401, 403)
        kind = LastingStoreError if refused else StoreError
        raise kind(
            f"{place} answers {error.status_code}: {reason(error)}.",
            to_do=f"set {_KEY} to a key that may." if refused else "",
        ) from error
    except ResponseHandlingException as error:
        raise StoreError(f"{place} does not answer: {reason(error.source)}.", to_do="check the URL.") from error
    except ApiException as error:
        raise StoreError(f"{place}: {reason(error)}.") from error
    except RuntimeError as error:
        if isinstance(error, DataError | StoreError) or "already accessed" not in str(error):
            raise
        raise StoreError(f"Another process has {place} open.", to_do="close it, or run a server.") from error
    except sqlite3.Error as error:
        raise DataError(f"{place} cannot be read: {reason(error)}.", expected="a folder of Qdrant") from error
