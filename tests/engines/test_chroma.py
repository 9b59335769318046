"""Collections of Chroma as sources and as sides of an upgrade, on a real server."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromadb.utils import embedding_functions

from crash import chroma_server
from crash.applications import chroma_client
from crash.shop import NEW, OLD
from limpet.attached.collections.opening import start
from limpet.engines.address import read_address
from limpet.engines.chroma.collection import ChromaEngine
from limpet.engines.chroma.service import Service, connected
from limpet.engines.collection import Target
from limpet.engines.source import needed, roles_of
from limpet.engines.sources import open_source
from limpet.errors import ConfigError, DataError, GalleryError, LastingStoreError, StoreError

DIM, ROWS = 6, 40
VECTORS = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
IDS = [f"k{number:02}" for number in np.random.default_rng(1).permutation(ROWS)]


def metadata(row: int) -> dict[str, Any]:
    rare = {"rare": f"r{row}"} if row == ROWS - 1 else {}
    return {"price": row / 2, "count": row, "topic": f"t{row % 4}", "good": row % 2 == 0, "tags": ["a", str(row)],
            "uri": "taken", "max.speed": row, "mixed": row if row % 2 else "x", **rare}  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Any:
    return chroma_client(chroma_server.shared().url)


@pytest.fixture(scope="module")
def make(client: Any) -> Iterator[Callable[..., Any]]:
    """Make a collection with all rows, and return it and its URL."""
    made = []

    def filled(space: str = "ip", rows: int = ROWS, **settings: Any) -> tuple[Any, str]:
        settings.setdefault("configuration", {"hnsw": {"space": space, "max_neighbors": 7}})
        collection = client.create_collection(f"t{uuid.uuid4().hex}", **{"embedding_function": None, **settings})
        made.append(collection.name)
        if rows:
            documents = [f"item {row}" for row in range(rows)]
            collection.upsert(IDS[:rows], VECTORS[:rows], [metadata(row) for row in range(rows)], documents)
        return collection, f"{chroma_server.shared().url}/{collection.name}"

    yield filled
    for name in {one.name for one in client.list_collections()}:
        if name.startswith(tuple(made)):
            client.delete_collection(name)


@pytest.fixture(scope="module")
def url(make: Callable[..., Any]) -> str:
    return str(make()[1])


def rows_of(batches: Iterator[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_what_was_put_in_comes_out_page_by_page(url: str) -> None:
    source = open_source(url)
    assert (source.rows, source.key) == (ROWS, "id")
    batches = list(source.batches(["embedding", "id", "document"], 16))
    assert [batch.num_rows for batch in batches] == [16, 16, 8]
    found = rows_of(iter(batches))
    assert [row["id"] for row in found] == IDS
    np.testing.assert_array_equal(np.array([row["embedding"] for row in found], np.float32), VECTORS)
    assert [row["document"] for row in found] == [f"item {row}" for row in range(ROWS)]


@pytest.mark.parametrize(("space", "name"), [("ip", "inner-product"), ("l2", "euclidean"), ("cosine", "cosine")])
def test_a_collection_compares_as_it_declares(make: Callable[..., Any], space: str, name: str) -> None:
    source = open_source(make(space, 3)[1])
    assert source.similarity("embedding") == name
    found = np.array([row["embedding"] for row in rows_of(source.batches(["embedding"], 9))], np.float32)
    np.testing.assert_allclose(found, VECTORS[:3], rtol=1e-5)  # with the length that the application gave


def test_metadata_become_columns_of_one_type(url: str) -> None:
    source = open_source(f"{url}?label=rare")
    types = {name: str(type_) for name, type_ in source.schema.items()}
    assert types == {
        "id": "string", "embedding": f"fixed_size_list<item: float>[{DIM}]", "document": "string", "uri": "string",
        "price": "double", "count": "int64", "topic": "string", "good": "bool", "tags": "string", "rare": "string",
        "metadata.uri": "string", "max.speed": "int64", "mixed": "null",
    }  # fmt: skip
    columns = ["tags", "good", "metadata.uri", "uri", "rare", "max.speed", "id"]
    assert rows_of(source.fetch([IDS[39], "none"], columns)) == [
        {"tags": '["a", "39"]', "good": False, "metadata.uri": "taken", "uri": None, "rare": "r39", "max.speed": 39,
         "id": IDS[39]}
    ]  # fmt: skip


@pytest.mark.parametrize(("where", "rows"), [
    ("price<3", range(6)), ("count>=37", range(37, 40)), ("topic=t1", range(1, 40, 4)), ("price=2.5", [5]),
    ("topic!=t1", [row for row in range(40) if row % 4 != 1]), ("good=true", range(0, 40, 2)), ("rare!=x", [39]),
    ('tags=["a", "7"]', [7]), ("document=item 8", [8]), ("max.speed=7", [7]), ("metadata.uri=taken", range(40)),
    ("topic>t2", range(3, 40, 4)), (f"id={IDS[4]}", [4]),
])  # fmt: skip
def test_conditions_choose_rows(url: str, where: str, rows: Any) -> None:
    source = open_source(f"{url}?label=rare&where={where}&where=count>=0")
    found = [row["document"] for row in rows_of(source.batches(["document"], 7))]
    assert found == [f"item {row}" for row in rows]


def test_a_sample_is_the_same_by_its_seed(url: str) -> None:
    samples = [rows_of(open_source(f"{url}?sample=9&seed={seed}&where=count<30").batches(["count"], 5))
               for seed in (1, 1, 2)]  # fmt: skip
    assert len(samples[0]) == 9 and samples[0] == samples[1] != samples[2]
    assert max(row["count"] for row in samples[0]) < 30


def test_rows_that_are_deleted_meanwhile_hide_no_others(make: Callable[..., Any]) -> None:
    """Chroma's pages by an offset leave out a row for each one that is deleted before them."""
    collection, url = make()
    reading = open_source(url).batches(["id"], 10)
    found = [row["id"] for row in next(reading).to_pylist()]
    collection.delete(IDS[:5])
    found += [row["id"] for row in rows_of(reading)]
    assert found == IDS


def test_a_row_that_is_deleted_while_it_is_read_is_left_out(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chroma reads the vector after the rest, and answers with an error where it is gone."""
    collection, url = make(rows=8)
    send, answers, wrong = Service._send, [500, 500], "Error executing plan: Internal error: Error finding id"

    def deleted(self: Service, method: str, path: str, *body: Any, **further: Any) -> Any:
        if path.endswith("/get") and answers:
            answers.pop()
            collection.delete(IDS[2:3])
            raise StoreError(f"Chroma answers 500: {wrong}.")
        return send(self, method, path, *body, **further)

    monkeypatch.setattr(Service, "_send", deleted)
    assert [row["id"] for row in rows_of(open_source(url).batches(["id", "embedding"], 9))] == IDS[:2] + IDS[3:8]
    assert answers == []
    answers += [500] * 99
    with pytest.raises(StoreError, match="finding"):
        open_source(url)


def test_what_cannot_be_is_refused_by_name(
    url: str, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    empty, server = open_source(make(rows=0)[1]), chroma_server.shared().url
    with pytest.raises(DataError, match="empty"):
        needed(empty, roles_of(empty), "vector")
    for wrong, error, words in (
        (f"{url}s", ConfigError, "Did you mean"), (f"{url}?where=coutn<3", ConfigError, "Did you mean 'count'"),
        (server, ConfigError, "names no collection"), (f"{url}?htps=true", ConfigError, "Did you mean 'https'"),
        (f"{url}?tenant=none", ConfigError, "collection"), ("chroma://127.0.0.1:9/items", StoreError, "not answer"),
        ("chroma://me:s3cret@127.0.0.1:9/items", ConfigError, "CHROMA_TOKEN"),
    ):  # fmt: skip
        with pytest.raises(error, match=words) as caught:
            open_source(wrong)
        assert "s3cret" not in str(caught.value)
    source: Any = open_source(url)
    monkeypatch.setitem(source._described, "configuration_json", {"hnsw": {"space": "l1"}})
    with pytest.raises(DataError, match="l1"):
        source.similarity("embedding")
    with pytest.raises(ConfigError, match="no alias"):
        start(f"{url}?ledger={tmp_path / 'ledger.db'}&alias=shown", old=OLD, new=NEW)


@contextmanager
def answering(status: int, headers: Mapping[str, str]) -> Iterator[tuple[str, list[str | None]]]:
    """Run a server that gives one answer, and give its place and the tokens that it was sent."""
    tokens: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(self.headers.get("X-Chroma-Token"))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", tokens
        server.shutdown()


def test_a_token_goes_to_the_server_of_the_url_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMA_TOKEN", "s3cret")
    with answering(200, {}) as (other, strange), answering(307, {"Location": f"http://{other}/"}) as (place, own):
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://{other}")
        with pytest.raises(StoreError, match="307") as caught:
            open_source(f"chroma://{place}/items?https=false")
        assert own == ["s3cret"] and strange == [] and "s3cret" not in str(caught.value)
        with pytest.raises(StoreError):  # encrypted where nobody says otherwise
            open_source(f"chroma://{place}/items")
        assert own == ["s3cret"]
    with answering(200, {}) as (place, _), pytest.raises(StoreError, match="as Chroma does"):
        open_source(f"chroma://{place}/items?https=false")
    with answering(401, {}) as (place, _), pytest.raises(LastingStoreError, match="CHROMA_TOKEN"):
        open_source(f"chroma://{place}/items?https=false")


class Function(embedding_functions.EmbeddingFunction):  # type: ignore[type-arg]
    """An embedding function that notes when it is built."""

    built = 0

    def __init__(self) -> None:
        type(self).built += 1

    def __call__(self, input: Any) -> Any:
        return [np.ones(DIM, np.float32) for _ in input]

    @staticmethod
    def name() -> str:
        return "noted"

    def get_config(self) -> dict[str, Any]:
        return {}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> Function:
        return Function()


def test_an_embedding_function_is_neither_built_nor_copied(make: Callable[..., Any], tmp_path: Path) -> None:
    embedding_functions.register_embedding_function(Function)
    collection, url = make(embedding_function=Function(), metadata={"owner": "me"})
    Function.built = 0
    with connected(read_address(url)) as service:
        old = service.described(collection.name)
        assert old["configuration_json"]["embedding_function"]["name"] == "noted"
        it = start(f"{url}?ledger={tmp_path / 'ledger.db'}", old=OLD, new=NEW)
        new = service.described(it.engine.target("new").collection)
        it.status()
        it.close()
    assert Function.built == 0
    assert new["configuration_json"] == {**old["configuration_json"], "embedding_function": None}
    assert "noted" not in str(new) and new["metadata"] == {"owner": "me"}
    code = "import sys, limpet.engines.chroma.collection; sys.exit('chromadb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_settings_in_the_metadata_are_those_of_the_new_collection(make: Callable[..., Any], tmp_path: Path) -> None:
    """As collections of before 1.0 have them."""
    said = {"hnsw:space": "l2", "hnsw:M": 5}
    collection, url = make(configuration=None, metadata=said)
    with start(f"{url}?ledger={tmp_path / 'l.db'}", old=OLD, new=NEW) as it, connected(read_address(url)) as service:
        both = [service.described(name) for name in (collection.name, it.engine.target("new").collection)]
    assert both[0]["configuration_json"] == both[1]["configuration_json"] and both[1]["metadata"] == said


def test_a_row_is_written_as_a_whole(make: Callable[..., Any]) -> None:
    """Chroma leaves what a write does not name, and cannot remove a text."""
    collection, url = make("cosine", 2)
    engine = ChromaEngine(read_address(url), Target(collection.name), Target(f"{collection.name}2"), DIM)
    with pytest.raises(GalleryError):
        engine.set_alias("shown", "old")
    engine.create()
    first = engine.fetch("old", IDS[:1])[0]
    engine.put("new", [first])
    assert engine.fetch("new", IDS[:1])[0].digest == first.digest
    bare = replace(first, rest={"metadata": {"other": 1}, "document": None, "uri": None})
    engine.put("new", [bare])
    [read] = engine.fetch("new", IDS[:1])
    assert read.rest == bare.rest and read.vector is not None
    engine.put("new", [engine.fetch("new", IDS[:1])[0]])
    assert engine.fetch("new", IDS[:1])[0].digest == read.digest
    engine.remove("new", [*IDS[:1], "none"])
    assert list(engine.fetch("new", IDS[:1])) == [] and len(engine.fetch("old", IDS)) == 2
    engine.drop()
    engine.drop()
    assert not engine.is_there() and engine.fetch("new", IDS) == []
    engine.close()
