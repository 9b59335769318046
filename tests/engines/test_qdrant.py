"""Collections of Qdrant as sources, on the client's local mode."""

from __future__ import annotations

import base64
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qdrant_client import QdrantClient, models

from limpet.engines.sources import open_source
from limpet.errors import ConfigError, DataError, StoreError

DIM, ROWS = 6, 40
VECTORS = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
UUID = "550e8400-e29b-41d4-a716-446655440000"
IDS: list[Any] = [*range(ROWS - 1), UUID]
SIZE = models.VectorParams(size=DIM, distance=models.Distance.DOT)


def payload(row: int) -> dict[str, Any]:
    rare = {"rare": f"r{row}"} if row == ROWS - 1 else {}
    return {
        "text": f"item {row}", "price": row / 2, "count": row, "tags": ["a", str(row)], "old": "taken",
        "meta": {"topic": f"t{row % 4}", "deep": {"good": row % 2 == 0}}, "mixed": row if row % 2 else "x",
        "max.speed": row, "size": {"in.cm": row}, **rare,
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("qdrant") / "data"
    client = QdrantClient(path=str(path))
    client.create_collection(
        "named",
        {
            "old": SIZE,
            "cosine": SIZE.model_copy(update={"distance": models.Distance.COSINE}),
            "far": SIZE.model_copy(update={"distance": models.Distance.MANHATTAN}),
            "many": SIZE.model_copy(update={"multivector_config": models.MultiVectorConfig(comparator="max_sim")}),
        },
        sparse_vectors_config={"thin": models.SparseVectorParams()},
    )
    client.create_collection("plain", SIZE.model_copy(update={"distance": models.Distance.EUCLID}))
    rows = list(zip(IDS, VECTORS.tolist(), range(ROWS), strict=True))
    client.upsert("named", [
        models.PointStruct(id=one, vector={"old": vector, **({"cosine": vector} if row else {})}, payload=payload(row))
        for one, vector, row in rows
    ])  # fmt: skip
    client.upsert("plain", [models.PointStruct(id=one, vector=vector) for one, vector, _ in rows])
    client.update_collection_aliases(
        [models.CreateAliasOperation(create_alias=models.CreateAlias(collection_name="plain", alias_name="serving"))]
    )
    client.close()
    return path


def rows_of(batches: Iterator[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_what_was_put_in_comes_out_page_by_page(folder: Path) -> None:
    source = open_source(f"qdrant:{folder}#named?vector=old")
    assert (source.rows, source.similarity("old"), source.key) == (ROWS, "inner-product", "id")
    batches = list(source.batches(["old", "id", "text"], 16))
    assert [batch.num_rows for batch in batches] == [16, 16, 8]
    found = rows_of(iter(batches))
    assert [row["id"] for row in found] == [str(one) for one in IDS]
    np.testing.assert_array_equal(np.array([row["old"] for row in found], np.float32), VECTORS)
    assert [row["text"] for row in found] == [f"item {row}" for row in range(ROWS)]
    plain = open_source(f"qdrant:{folder}#serving")
    assert plain.similarity("vector") == "euclidean" and list(plain.schema) == ["id", "vector"]
    np.testing.assert_array_equal(np.array([row["vector"] for row in rows_of(plain.batches(["vector"], 99))]), VECTORS)


def test_vectors_of_the_cosine_come_back_with_length_one_and_missing_ones_are_null(folder: Path) -> None:
    source = open_source(f"qdrant:{folder}#named?vector=cosine")
    found = [row["cosine"] for row in rows_of(source.batches(["cosine"], 99))]
    assert source.similarity("cosine") == "cosine" and found[0] is None
    length = np.linalg.norm(VECTORS[1:], axis=1, keepdims=True)
    np.testing.assert_allclose(np.array(found[1:]), VECTORS[1:] / length, rtol=1e-6)


def test_payloads_become_columns_of_one_type(folder: Path) -> None:
    source = open_source(f"qdrant:{folder}#named?vector=old&text=text&label=rare")
    types = {name: str(type_) for name, type_ in source.schema.items()}
    assert types.items() >= {
        "text": "string", "price": "double", "count": "int64", "tags": "string", "meta": "string",
        "meta.topic": "string", "meta.deep.good": "bool", "mixed": "null", "payload.old": "string", "thin": "null",
        "many": "null",
    }.items()  # fmt: skip
    columns = ["tags", "meta.topic", "meta.deep.good", "payload.old", "rare", "price"]
    last = rows_of(source.fetch([UUID], columns))[0]
    assert last == {"tags": '["a", "39"]', "meta.topic": "t3", "meta.deep.good": False, "payload.old": "taken",
                    "rare": "r39", "price": 19.5}  # fmt: skip


@pytest.mark.parametrize(("where", "rows"), [
    ("price<3", range(6)), ("count>=37", range(37, 40)), ("meta.topic=t1", range(1, 40, 4)),
    ("meta.topic!=t1", [row for row in range(40) if row % 4 != 1]), ("meta.deep.good=true", range(0, 40, 2)),
    ("rare!=x", [39]), ("price=2.5", [5]), ('tags=["a", "7"]', [7]), ("text>item 8", [9]), (f"id={UUID}", [39]),
    ("max.speed=7", [7]), ("size.in.cm>=38", [38, 39]),
])  # fmt: skip
def test_conditions_choose_points(folder: Path, where: str, rows: Any) -> None:
    source = open_source(f"qdrant:{folder}#named?vector=old&label=rare&where={where}")
    found = [row["text"] for row in rows_of(source.batches(["text"], 7))]
    assert sorted(found) == sorted(f"item {row}" for row in rows)


def test_a_sample_is_the_same_by_its_seed_and_whatever_is_the_id(folder: Path) -> None:
    by_point = [rows_of(open_source(f"qdrant:{folder}#named?vector=old&sample=9&seed={seed}").batches(["id"], 5))
                for seed in (1, 1, 2)]  # fmt: skip
    assert len(by_point[0]) == 9 and by_point[0] == by_point[1] != by_point[2]
    source = open_source(f"qdrant:{folder}#named?vector=old&id=text&sample=9&where=count<20")
    assert {row["text"] for row in rows_of(source.batches(["text", "old"], 5))} <= {f"item {row}" for row in range(20)}
    assert [row["count"] for row in rows_of(source.fetch(["item 7", "item 99"], ["count"]))] == [7]
    assert rows_of(source.fetch(["item 7"], ["max.speed", "size.in.cm"])) == [{"max.speed": 7, "size.in.cm": 7}]
    for key in ("max.speed", "size.in.cm"):  # a key with a dot, which Qdrant takes for one within another
        source = open_source(f"qdrant:{folder}#named?vector=old&id={key}")
        assert sorted(row["text"] for row in rows_of(source.fetch(["7", "38", "99"], ["text"]))) == [
            "item 38",
            "item 7",
        ]


@pytest.mark.parametrize(("url", "error", "words"), [
    ("#named?vector=many", DataError, "'many' .* a list of several vectors"),
    ("#named?vector=thin", DataError, "'thin' .* is sparse"),
    ("#namde", ConfigError, "Did you mean 'named'"),
    ("", ConfigError, "names no collection"),
    ("#named?where=pricee<3", ConfigError, "Did you mean 'price'"),
    ("#named?htps=true", ConfigError, "Did you mean 'https'"),
])  # fmt: skip
def test_what_cannot_be_is_refused_by_name(folder: Path, url: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        open_source(f"qdrant:{folder}{url}")


def test_distances_and_values_that_cannot_be_used_are_refused_by_name(folder: Path) -> None:
    source = open_source(f"qdrant:{folder}#named?vector=far")
    with pytest.raises(DataError, match="the distance Manhattan"):
        source.similarity("far")
    with pytest.raises(DataError, match="is no folder of Qdrant"):
        open_source(f"qdrant:{folder.parent / 'none'}#named")
    assert not (folder.parent / "none").exists()
    with pytest.raises(StoreError, match="does not answer"):
        open_source("qdrant://127.0.0.1:9/named")
    for url in ("qdrant://me:s3cret@127.0.0.1:9/named", "qdrant://:s3cret@127.0.0.1/named"):
        with pytest.raises(ConfigError, match="QDRANT_API_KEY") as caught:
            open_source(url)
        assert "s3cret" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the client leaves its file open
def test_a_folder_that_another_process_has_open_says_so(folder: Path) -> None:
    other = QdrantClient(path=str(folder))
    with pytest.raises(StoreError, match="Another process has"):
        open_source(f"qdrant:{folder}#named")
    other.close()
    assert open_source(f"qdrant:{folder}#named").rows == ROWS


class _Payload:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["named", "above/named"])
def test_code_in_a_folder_is_not_run(tmp_path: Path, name: str) -> None:
    client = QdrantClient(path=str(tmp_path / "data"))
    client.create_collection("named", SIZE)
    client.close()
    [file] = (tmp_path / "data").rglob("storage.sqlite")
    with sqlite3.connect(file) as database:
        key = base64.b64encode(pickle.dumps(1, protocol=4)).decode()
        database.execute("INSERT INTO points VALUES (?, ?)", (key, pickle.dumps(_Payload(tmp_path / "run"))))
    database.close()
    place = tmp_path / "data" / "collection"
    (place / "named").rename(place / "moved")
    (place / name).parent.mkdir(exist_ok=True)
    (place / "moved").rename(place / name)
    meta = tmp_path / "data" / "meta.json"
    meta.write_text(meta.read_text().replace('"named"', f'"{name}"'))
    with pytest.raises(DataError, match="something that Qdrant does not write"):
        open_source(f"qdrant:{tmp_path / 'data'}#named")
    assert not (tmp_path / "run").exists()


def test_a_folder_whose_process_was_killed_in_a_transaction_is_read(folder: Path, tmp_path: Path) -> None:
    """What SQLite has to undo then is undone, as the client of Qdrant would do; every point is there."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    file = copy / "collection/plain/storage.sqlite"
    before = file.read_bytes()
    code = (
        "import os, sqlite3, sys\n"
        "database = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "database.execute('PRAGMA cache_size = 1')\n"
        "database.execute('BEGIN')\n"
        "database.execute('UPDATE points SET point = zeroblob(20000)')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(file)]).returncode == -signal.SIGKILL
    assert file.with_name("storage.sqlite-journal").exists() and file.read_bytes() != before
    assert open_source(f"qdrant:{copy}#plain").rows == ROWS


def test_a_folder_whose_list_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text('{"collections"')
    with pytest.raises(DataError, match=r"meta\.json' cannot be read"):
        open_source(f"qdrant:{tmp_path}#named")
