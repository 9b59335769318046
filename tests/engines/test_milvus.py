"""Collections of Milvus as sources: Milvus Lite, and a real server."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pymilvus import DataType, MilvusClient

from limpet.engines.sources import open_source
from limpet.errors import ConfigError, DataError, StoreError

DIM, ROWS = 6, 40
VECTORS = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
Make = Callable[..., str]


def row(number: int) -> dict[str, Any]:
    further = {"tags": ["a"], "meta": {"topic": f"t{number % 4}"}} if number % 2 else {"tags": ["b"]}
    rare = {"rare": "here"} if number == ROWS - 1 else {}
    return {"key": f"k{number:02}", "vec": VECTORS[number], "text": f'it is "{number}"', "price": number / 10,
            "count": number, **further, **rare}  # fmt: skip


def filled(client: MilvusClient, name: str, metric: str = "IP", *, whole: bool = False) -> None:
    schema = client.create_schema(enable_dynamic_field=True)
    if whole:
        schema.add_field("key", DataType.INT64, is_primary=True)
    else:
        schema.add_field("key", DataType.VARCHAR, is_primary=True, max_length=20)
    schema.add_field("vec", DataType.FLOAT_VECTOR, dim=DIM)
    schema.add_field("text", DataType.VARCHAR, max_length=99)
    schema.add_field("price", DataType.FLOAT)
    schema.add_field("count", DataType.INT32)
    index = client.prepare_index_params()
    index.add_index("vec", index_type="FLAT", metric_type=metric)
    client.create_collection(name, schema=schema, index_params=index)
    client.insert(name, [row(number) | ({"key": number * 3} if whole else {}) for number in range(ROWS)])


def rows_of(batches: Iterator[Any]) -> list[dict[str, Any]]:
    return [one for batch in batches for one in batch.to_pylist()]


@pytest.fixture(scope="module")
def lite(tmp_path_factory: pytest.TempPathFactory) -> tuple[MilvusClient, str]:
    path = tmp_path_factory.mktemp("milvus") / "data.db"
    client = MilvusClient(str(path))
    filled(client, "items")
    filled(client, "by_number", "COSINE", whole=True)
    return client, f"milvus:{path}"


def check(url: str) -> None:
    """What a collection made by `filled` has to give, wherever it is."""
    source = open_source(f"{url}?label=rare")
    assert (source.rows, source.similarity("vec"), source.key) == (ROWS, "inner-product", "key")
    types = {name: str(one) for name, one in source.schema.items()}
    assert types.items() >= {"key": "string", "text": "string", "price": "float", "count": "int32", "tags": "string",
                             "meta.topic": "string", "rare": "string"}.items()  # fmt: skip
    batches = list(source.batches(["vec", "key", "meta.topic"], 16))
    assert [batch.num_rows for batch in batches] == [16, 16, 8]
    found = rows_of(iter(batches))
    assert [one["key"] for one in found] == [f"k{number:02}" for number in range(ROWS)]
    assert [one["meta.topic"] for one in found[:4]] == [None, "t1", None, "t3"]
    np.testing.assert_array_equal(np.array([one["vec"] for one in found], np.float32), VECTORS)
    some = rows_of(source.fetch(["k07", "no such key", "k39"], ["key", "rare", "tags", "vec"]))
    assert {one["key"]: (one["rare"], one["tags"]) for one in some} == {
        "k07": (None, '["a"]'),
        "k39": ("here", '["a"]'),
    }
    for where, rows in CONDITIONS:
        source = open_source(f"{url}?label=rare&where={where}")
        kept = sorted(one["count"] for one in rows_of(source.batches(["count"], 7)))
        assert kept == sorted(rows), where


CONDITIONS: list[tuple[str, Any]] = [
    ("price<0.35", range(4)), ("count>=37", range(37, 40)), ("meta.topic=t1", range(1, 40, 4)),
    ("meta.topic!=t1", range(3, 40, 4)), ("rare=here", [39]), ("rare!=x", [39]), ('text=it is "7"', [7]),
    ("key>k37", [38, 39]), ("price=0.5", [5]),
]  # fmt: skip


def test_what_was_put_in_comes_out(lite: tuple[MilvusClient, str]) -> None:
    check(f"{lite[1]}#items")


@pytest.mark.slow
def test_what_was_put_in_comes_out_of_a_server(milvus_url: str) -> None:
    client, name = MilvusClient(milvus_url), f"t{uuid.uuid4().hex}"
    url = f"{milvus_url.replace('http', 'milvus')}/{name}"
    filled(client, name)
    try:
        check(url)
        client.insert(name, [row(3)])
        with pytest.raises(DataError, match=r"1 primary keys .* are there twice"):
            list(open_source(url).batches(["key"], 99))
        client.release_collection(name)
        with pytest.raises(StoreError, match="is not loaded"):
            open_source(url)
    finally:
        client.drop_collection(name)
        client.close()


def test_a_file_that_another_process_made_is_read(tmp_path: Path) -> None:
    """What was loaded there is forgotten with that process."""
    code = (
        "import sys; from pymilvus import MilvusClient; client = MilvusClient(sys.argv[1]); "
        "client.create_collection('items', dimension=2); client.insert('items', [{'id': 7, 'vector': [0.6, 0.8]}])"
    )
    place = tmp_path / "made.db"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(place)], check=True)
    assert rows_of(open_source(f"milvus:{place}#items").batches(["id"], 9)) == [{"id": 7}]


def test_whole_numbers_as_keys_and_a_sample(lite: tuple[MilvusClient, str]) -> None:
    url = f"{lite[1]}#by_number"
    source = open_source(url)
    assert source.similarity("vec") == "cosine" and str(source.schema["key"]) == "int64"
    assert [one["count"] for one in rows_of(source.fetch(["9", "x", "-1", "--1", "9" * 30], ["count"]))] == [3]
    samples = [rows_of(open_source(f"{url}?sample=9&seed={seed}&where=count<30").batches(["count"], 5))
               for seed in (1, 1, 2)]  # fmt: skip
    assert len(samples[0]) == 9 and samples[0] == samples[1] != samples[2]
    assert max(one["count"] for one in samples[0]) < 30


def test_what_was_acknowledged_is_read_at_once(lite: tuple[MilvusClient, str]) -> None:
    client, url = lite
    filled(client, "changing")
    source = open_source(f"{url}#changing")
    client.upsert("changing", [row(3) | {"text": "edited"}])
    client.delete("changing", ids=["k04"])
    found = {one["key"]: one["text"] for one in rows_of(source.batches(["key", "text"], 99))}
    assert found["k03"] == "edited" and "k04" not in found and len(found) == source.rows == ROWS - 1


def test_what_cannot_be_is_refused_by_name(
    lite: tuple[MilvusClient, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    client, url = lite
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("thin", DataType.SPARSE_FLOAT_VECTOR)
    index = client.prepare_index_params()
    index.add_index("thin", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
    client.create_collection("sparse", schema=schema, index_params=index)
    capfd.readouterr()
    (tmp_path / "bad.db").write_bytes(b"no database")
    for wrong, error, words in (
        (f"{url}#sparse", DataError, "'thin' .* is sparse"),
        (f"{url}#itmes", ConfigError, "Did you mean 'items'"),
        (f"{url}#items?where=coutn<3", ConfigError, "Did you mean 'count'"),
        (f"milvus:{tmp_path / 'none.db'}#items", DataError, "There is no"),
        (f"milvus:{tmp_path / 'bad.db'}#items", StoreError, "Open local milvus failed"),
        ("milvus://127.0.0.1:9/items", StoreError, "Milvus at"),
        ("milvus://me:s3cret@127.0.0.1:9/items", ConfigError, "MILVUS_TOKEN"),
    ):
        with pytest.raises(error, match=words) as caught:
            open_source(wrong)
        assert "s3cret" not in str(caught.value)
    assert not (tmp_path / "none.db").exists()
    assert capfd.readouterr() == ("", "")  # the client prints its errors, and we tell them
