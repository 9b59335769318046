"""Applications on several engines that keep writing during an upgrade, each with a record of what it wrote."""

from __future__ import annotations

import copy
import re
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import chromadb
import httpx
import numpy as np
from chromadb.config import Settings
from pymilvus import DataType, MilvusClient
from qdrant_client import QdrantClient, models

from crash.shop import DIM, NEW, OLD, Shop, vector, written
from crash.shop import source as shop_source
from limpet.attached.collections.opening import current, open_attachment, start
from limpet.engines.address import read_address
from limpet.engines.collection import Target
from limpet.engines.qdrant.source import connected
from limpet.engines.sides import ModelSide
from limpet.errors import GalleryError
from limpet.geometry import Hypersphere
from limpet.upgrade.vector_sources import CallableItems, CallableVectors, VectorSource, WithText

Found = dict[int, tuple[str, list[float]]]


class Application(Protocol):
    """An application with numbered items, each with a text, which writes vectors of one of two models."""

    twin: dict[int, str]

    def start(self) -> Any: ...

    def open(self) -> Any: ...

    def source(self, side: ModelSide, attachment: Any) -> VectorSource: ...

    def write(self, item: int, text: str, side: ModelSide) -> None: ...

    def delete(self, item: int) -> None: ...

    def served(self) -> Found: ...

    def close(self) -> None: ...

    def late(self, item: int, text: str) -> None: ...

    def unseen(self, item: int, text: str) -> None: ...

    def occupy(self) -> None: ...

    def copied(self) -> Application: ...


class _Collections:
    """Base of applications of collections, which ask `current` where to write and what to query."""

    url: str

    def __init__(self) -> None:
        self.twin: dict[int, str] = {}

    def start(self) -> Any:
        return start(self.url, old=OLD, new=NEW)

    def open(self) -> Any:
        return open_attachment(self.url)

    def source(self, side: ModelSide, attachment: Any) -> VectorSource:
        def embed(texts: list[str]) -> np.ndarray:
            return np.stack([vector(side, text) for text in texts])

        items = WithText(CallableItems(lambda ids: [self.twin.get(int(one)) for one in ids]))
        return CallableVectors(embed, f"declared:{side}", Hypersphere(DIM), items)

    def write(self, item: int, text: str, side: ModelSide) -> None:
        self.twin[item] = text
        self.put(self.writing(), item, text, vector(side, text).tolist())

    def delete(self, item: int) -> None:
        del self.twin[item]
        self.remove(self.writing(), item)

    def late(self, item: int, text: str) -> None:
        """Write like a process that has not called `current` since before the start of the upgrade."""
        self.twin[item] = text
        self.put(self.first, item, text, vector("old", text).tolist())

    def unseen(self, item: int, text: str) -> None:
        """Write like a process that writes with the model that was not declared."""
        self.twin[item] = text
        with self.open() as it:
            self.put(it.engine.target("new"), item, text, vector("new", text).tolist())

    def occupy(self) -> None:
        """Create what an upgrade would create, with an upgrade that has another ledger."""
        start(re.sub(r"ledger=[^&]+", r"\g<0>_other", self.url), old=OLD, new=NEW).close()

    def copied(self) -> _Collections:
        """Return the application with a copy of its items in another place, and with the same ledger."""
        other = copy.copy(self)
        other.url, other.close = self.elsewhere(), lambda: None  # type: ignore[method-assign]
        return other

    def elsewhere(self) -> str:
        """Copy the items, and return the URL of the copy."""
        place, rest = self.url.split("#", 1)
        scheme, path = place.split(":", 1)
        (shutil.copytree if Path(path).is_dir() else shutil.copyfile)(path, other := f"{Path(path).parent}/copy.db")
        return f"{scheme}:{other}#{rest}"

    def writing(self) -> Target:
        return self.named("writes")

    def named(self, for_: str) -> Target:
        """Return the target that the ledger names; the first collection if no upgrade is started."""
        try:
            return current(self.url, for_=for_)
        except GalleryError:
            return self.first

    def side(self) -> ModelSide:
        """Return the model with which the application has to write."""
        return "old" if self.writing() == self.first else "new"

    def served(self) -> Found:
        return self.contents(self.named("queries"))

    first: Target

    def put(self, target: Target, item: int, text: str, numbers: list[float]) -> None:
        raise NotImplementedError

    def remove(self, target: Target, item: int) -> None:
        raise NotImplementedError

    def contents(self, target: Target) -> Found:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class QdrantApplication(_Collections):
    """Points in a folder of the client's local mode, or of a server.

    Args:
        place: ``qdrant:FOLDER`` or ``qdrant://HOST:PORT``.
        ledger: Ledger of attachments.
        further: Further options of the URL, beginning with "&".
        alias: Alias that queries use; empty for none.
    """

    def __init__(self, place: str, ledger: str, further: str = "", alias: str = "") -> None:
        super().__init__()
        self.name = f"items_{uuid.uuid4().hex[:8]}"
        sign = "/" if "//" in place else "#"
        if sign == "#":
            folder = Path(place.removeprefix("qdrant:"))
            if not folder.exists():
                QdrantClient(path=str(folder)).close()
        self._context = connected(read_address(f"{place}{sign}{self.name}"))
        self.client, self.alias = self._context.__enter__(), alias
        self.first = Target(self.name, "emb")
        self.client.create_collection(
            self.name, {"emb": models.VectorParams(size=DIM, distance=models.Distance.COSINE),
                        "other": models.VectorParams(size=2, distance=models.Distance.DOT)},
        )  # fmt: skip
        if alias:
            make = models.CreateAlias(collection_name=self.name, alias_name=alias)
            self.client.update_collection_aliases([models.CreateAliasOperation(create_alias=make)])
        query = f"vector=emb&ledger={ledger}{further}"
        self.url = f"{place}/{alias or self.name}?{query}" if sign == "/" else f"{place}#{alias or self.name}?{query}"

    def put(self, target: Target, item: int, text: str, numbers: list[float]) -> None:
        vectors = {str(target.vector): numbers, "other": [float(item), 1.0]}
        point = models.PointStruct(id=item, vector=vectors, payload={"text": text, "tags": [text, item]})
        self.client.upsert(target.collection, [point])

    def remove(self, target: Target, item: int) -> None:
        self.client.delete(target.collection, [item])

    def contents(self, target: Target) -> Found:
        points, _ = self.client.scroll(target.collection, limit=1000, with_vectors=True)
        found = {}
        for point in points:
            assert point.payload is not None and isinstance(point.vector, dict)
            assert point.payload["tags"] == [point.payload["text"], point.id]
            assert point.vector["other"] == [float(str(point.id)), 1.0]
            if target.vector in point.vector:
                found[int(str(point.id))] = (point.payload["text"], _numbers(point.vector[target.vector]))
        return found

    def close(self) -> None:
        for one in [one.name for one in self.client.get_collections().collections if one.name.startswith(self.name)]:
            self.client.delete_collection(one)
        self._context.__exit__(None, None, None)


class MilvusApplication(_Collections):
    """Rows of Milvus Lite, or of a server.

    Args:
        place: ``milvus:FILE.db`` or ``milvus://HOST:PORT``.
        ledger: Ledger of attachments.
        alias: Alias that queries use; empty for none.
    """

    def __init__(self, place: str, ledger: str, alias: str = "") -> None:
        super().__init__()
        served, self.name = "//" in place, f"items_{uuid.uuid4().hex[:8]}"
        self.client = MilvusClient(place.replace("milvus", "http") if served else place.removeprefix("milvus:"))
        schema = self.client.create_schema(enable_dynamic_field=True)
        schema.add_field("key", DataType.INT64, is_primary=True)
        schema.add_field("emb", DataType.FLOAT_VECTOR, dim=DIM)
        schema.add_field("text", DataType.VARCHAR, max_length=200)
        index = self.client.prepare_index_params()
        index.add_index("emb", index_type="HNSW", metric_type="COSINE", params={"M": 8, "efConstruction": 32})
        self.client.create_collection(self.name, schema=schema, index_params=index)
        self.first, self.alias = Target(self.name, "emb"), alias
        if alias:
            self.client.create_alias(self.name, alias)
        query = f"ledger={ledger}"
        self.url = f"{place}/{alias or self.name}?{query}" if served else f"{place}#{alias or self.name}?{query}"

    def put(self, target: Target, item: int, text: str, numbers: list[float]) -> None:
        row = {"key": item, "emb": numbers, "text": text, "tags": [text, item]}
        self.client.upsert(target.collection, [row])

    def remove(self, target: Target, item: int) -> None:
        self.client.delete(target.collection, ids=[item])

    def contents(self, target: Target) -> Found:
        rows = self.client.query(target.collection, filter="key >= 0", output_fields=["*"], consistency_level="Strong")
        assert all(row["tags"] == [row["text"], row["key"]] for row in rows)
        return {row["key"]: (row["text"], _numbers(row["emb"])) for row in rows}

    def close(self) -> None:
        if self.alias:
            self.client.drop_alias(self.alias)
        for one in [one for one in self.client.list_collections() if one.startswith(self.name)]:
            self.client.drop_collection(one)
        self.client.close()


class ChromaApplication(_Collections):
    """Rows of a server, written by Chroma's own client.

    Args:
        place: ``chroma://HOST:PORT``.
        ledger: Ledger of attachments.
        database: Database of the server; it is created unless it is Chroma's default.
        name: Name of the collection; empty generates a name.
    """

    def __init__(self, place: str, ledger: str, database: str = chromadb.DEFAULT_DATABASE, name: str = "") -> None:
        super().__init__()
        self.name = name or f"items_{uuid.uuid4().hex[:8]}"
        self.place, self.ledger = place, ledger
        if database != chromadb.DEFAULT_DATABASE:
            httpx.post(f"http{place[6:]}/api/v2/tenants/default_tenant/databases", json={"name": database})
        self.client = chroma_client(place, database)
        self.client.create_collection(
            self.name, embedding_function=None, configuration={"hnsw": {"space": "cosine", "max_neighbors": 8}}
        )
        self.first = Target(self.name)
        self.url = f"{place}/{self.name}?ledger={ledger}&database={database}"

    def copied(self) -> ChromaApplication:
        """Return an application with a collection of the same name in another database, and the same ledger."""
        return ChromaApplication(self.place, self.ledger, f"other_{self.name}", self.name)

    def _collection(self, target: Target) -> Any:
        return self.client.get_collection(target.collection, embedding_function=None)

    def put(self, target: Target, item: int, text: str, numbers: list[float]) -> None:
        metadata = {"text": text, "tags": [text, str(item)]}
        self._collection(target).upsert([str(item)], [numbers], [metadata], [text])

    def remove(self, target: Target, item: int) -> None:
        self._collection(target).delete([str(item)])

    def contents(self, target: Target) -> Found:
        rows = self._collection(target).get(include=["embeddings", "documents", "metadatas"])
        found = {}
        for item, row, document, metadata in zip(*(rows[name] for name in (
            "ids", "embeddings", "documents", "metadatas")), strict=True):  # fmt: skip
            assert metadata["tags"] == [document, item] and metadata["text"] == document
            found[int(item)] = (document, _numbers(row))
        return found

    def close(self) -> None:
        for one in self.client.list_collections():
            if one.name.startswith(self.name):
                self.client.delete_collection(one.name)


def chroma_client(place: str, database: str = chromadb.DEFAULT_DATABASE) -> Any:
    """Return Chroma's own client of a server, without telemetry."""
    parts, quiet = urlsplit(place), Settings(anonymized_telemetry=False)
    return chromadb.HttpClient(str(parts.hostname), int(parts.port or 0), settings=quiet, database=database)


class PostgresApplication:
    """Rows of a PostgreSQL table; the queries of the application never change.

    Args:
        shop: Shop with an empty table.
    """

    def __init__(self, shop: Shop) -> None:
        self.shop, self.twin = shop, dict[int, str]()

    def start(self) -> Any:
        return self.shop.start()

    def open(self) -> Any:
        return self.shop.open()

    def source(self, side: ModelSide, attachment: Any) -> VectorSource:
        return shop_source(attachment, side)

    def write(self, item: int, text: str, side: ModelSide) -> None:
        self.twin[item] = text
        self.shop.execute(
            "INSERT INTO shop.items (id, title, emb) VALUES (%s, %s, %s::vector) "
            "ON CONFLICT (id) DO UPDATE SET title = excluded.title, emb = excluded.emb",
            [item, text, written(side, text)],
        )  # fmt: skip

    def delete(self, item: int) -> None:
        del self.twin[item]
        self.shop.execute("DELETE FROM shop.items WHERE id = %s", [item])

    def late(self, item: int, text: str) -> None:
        self.write(item, text, "old")

    def unseen(self, item: int, text: str) -> None:
        self.twin[item] = text
        self.shop.unseen(
            "INSERT INTO shop.items (id, title, emb) VALUES (%s, %s, %s)", item, text, written("new", text)
        )

    def occupy(self) -> None:
        self.shop.execute("ALTER TABLE shop.items ADD emb_limpet_new text")

    def copied(self) -> PostgresApplication:
        with tempfile.TemporaryDirectory() as folder:
            other = PostgresApplication(self.shop.copied(folder))
        other.twin, other.close = dict(self.twin), other.shop.drop  # type: ignore[method-assign]
        return other

    def served(self) -> Found:
        rows: Sequence[Any] = self.shop.execute("SELECT id, title, emb::text FROM shop.items WHERE emb IS NOT NULL")
        return {item: (text, _numbers(np.fromstring(emb.strip("[]"), sep=","))) for item, text, emb in rows}

    def close(self) -> None:
        pass


def _numbers(values: Any) -> list[float]:
    return [round(float(one), 5) for one in values]


def expected(twin: dict[int, str], side: ModelSide) -> Found:
    """Return what queries must find when one model is active."""
    return {item: (text, _numbers(vector(side, text))) for item, text in twin.items()}
