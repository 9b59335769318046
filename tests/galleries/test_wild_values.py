"""Numbers that no column can hold, counts that are none, tables that others damaged: refused, and nothing written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limpet.cli import main
from limpet.embeddings import EmbeddingSet
from limpet.engines.filters import Condition
from limpet.engines.sources import open_source
from limpet.errors import ConfigError, DataError
from limpet.evaluation.metrics import metrics_named, recall_at
from limpet.evaluation.retrieval import top_k
from limpet.galleries import Gallery
from limpet.galleries.transfer import import_table
from limpet.geometry import Hypersphere

SPHERE = Hypersphere(4)
COLUMNS = {"price": "number", "stock": "integer", "label": "text", "new": "truth"}

WILD_VALUES = {
    "price": [10**400, 10**5000, -(2**63) - 1, float("nan"), float("inf"), "5", True, 1 + 2j, [1], np.float64("nan")],
    "stock": [10**400, 10**5000, 2**63, -(2**63) - 1, 1.0, "1", True, int, np.uint64(2**63)],
    "label": [10**400, "a\0b", "\ud800", b"a", 1.5, True, ["a"]],
    "new": [1, 0, "true", 10**400, "\ud800"],
}
WILD_COUNTS = ["5", None, 2.5, 2.0, True, False, np.True_, 0, -1, [5], float("nan"), float("inf"), -(10**5000)]


def points(ids: list[str]) -> EmbeddingSet:
    drawn = np.random.default_rng(0).normal(size=(len(ids), 4)).astype(np.float32)
    return EmbeddingSet(ids=ids, vectors=drawn, fingerprint="declared:v1", space=SPHERE)


@pytest.fixture(params=["memory", "lance"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gallery]:
    url = f"{request.param}:{tmp_path / 'g'}"
    with Gallery.create(url, fingerprint="declared:v1", space=SPHERE, columns=COLUMNS) as made:
        made.add(points(["a", "b", "c"]), metadata={"price": [1.0, 2.0, 3.0], "stock": [2**63 - 1, -(2**63), 0]})
        yield made


def test_values_that_no_column_can_hold_are_refused_and_nothing_is_written(shop: Gallery) -> None:
    before = shop.store.pointer()
    for column, values in WILD_VALUES.items():
        for value in values:
            for write in (shop.add, shop.upsert):
                with pytest.raises(DataError, match=f"in the column '{column}'(.|\n)*The gallery is intact"):
                    write(points(["z"]), metadata={column: [value]})
            with pytest.raises(ConfigError, match=f"The condition '{column} = "):
                shop.search(points(["q"]), where=[Condition(column, "=", value)])
    assert shop.store.pointer() == before
    assert {hit.metadata["stock"] for hit in shop.search(points(["q"])).hits[0]} == {2**63 - 1, -(2**63), 0}


def test_counts_that_are_none_are_refused(shop: Gallery) -> None:
    for k in WILD_COUNTS:
        for asks in (
            lambda k: shop.search(points(["q"]), k),
            lambda k: top_k(points(["q"]), points(["a", "b"]), k),
            recall_at,
        ):
            with pytest.raises(ConfigError, match=r"k=.*\nExpected: a whole number of at least 1"):
                asks(k)


def test_counts_above_all_items_are_all_items(shop: Gallery) -> None:
    for k in (3, 4, 2**31, 2**40, 2**63, 10**400, np.int64(5), np.uint8(200)):
        assert {hit.id for hit in shop.search(points(["q"]), k).hits[0]} == {"a", "b", "c"}
        assert top_k(points(["q"]), points(["a", "b"]), k).rows.shape == (1, 2)


@pytest.mark.parametrize("name", ["recall@0", "recall@-1", "recall@1.5", "map@" + "9" * 5000, "recall@9" * 2, "cmc@"])
def test_metrics_with_counts_that_are_none_are_unknown(name: str) -> None:
    with pytest.raises(ConfigError, match="Unknown metric"):
        metrics_named([name])


@pytest.mark.parametrize("k", ["five", "2.5", "true", "null", "0", "-1", "[5]", "9" * 5000, "1e400", "0x" + "f" * 5000])
def test_the_command_refuses_counts_that_are_none(k: str, shop: Gallery, capsys) -> None:
    assert main(["gallery", "search", shop.store.url, "--like", "a", "--k", k]) == 2
    assert "limpet gallery: " in capsys.readouterr().err


def test_the_command_shows_all_items_where_more_are_asked_for(shop: Gallery, capsys) -> None:
    assert main(["gallery", "search", shop.store.url, "--like", "a", "--k", str(2**40)]) == 0
    assert "Searched 3 of 3 items" in capsys.readouterr().err


def damaged_text() -> pa.Array:
    """Return an Arrow array of texts that are no UTF-8, as a file can hold them."""
    data = pa.py_buffer(b"\xff\xfe")
    return pa.StringArray.from_buffers(2, pa.py_buffer(np.array([0, 1, 2], np.int32)), data)


TABLES: dict[str, dict[str, Any]] = {
    "ids that are no text": {"id": damaged_text()},
    "values that are no text": {"label": damaged_text()},
    "whole numbers beyond 64 bits": {"stock": pa.array([2**63, 1], pa.uint64())},
    "numbers that are none": {"price": [float("inf"), 1.0]},
}


@pytest.mark.parametrize("what", TABLES)
def test_tables_with_values_that_nobody_can_read_are_refused(what: str, shop: Gallery, tmp_path: Path) -> None:
    vectors = pa.array([[1.0, 0, 0, 0], [0.0, 1, 0, 0]], pa.list_(pa.float32()))
    pq.write_table(pa.table({"id": ["x", "y"], "vector": vectors, **TABLES[what]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet"):
        import_table(shop, open_source(f"parquet:{tmp_path / 't.parquet'}"))
    assert len(shop) == 3


@pytest.mark.parametrize("said", [b"{", b"[]", b"[" * 100_000, b'{"space": 5}', b'{"space": {"dim": 1e999}}', b"\xff"])
def test_tables_that_say_nonsense_of_their_vectors_are_refused(said: bytes, shop: Gallery, tmp_path: Path) -> None:
    vectors = pa.array([[1.0, 0, 0, 0]], pa.list_(pa.float32()))
    table = pa.table({"id": ["x"], "vector": vectors}).replace_schema_metadata({b"limpet": said})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet' says of its vectors"):
        import_table(shop, open_source(f"parquet:{tmp_path / 't.parquet'}"))


def test_tables_with_a_name_twice_are_refused(shop: Gallery, tmp_path: Path) -> None:
    vectors = pa.array([[1.0, 0, 0, 0]], pa.list_(pa.float32()))
    table = pa.Table.from_arrays([pa.array(["x"]), vectors, vectors], ["id", "vector", "vector"])
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match="two columns 'vector'"):
        import_table(shop, open_source(f"parquet:{tmp_path / 't.parquet'}"))
