"""Rows of Parquet files by id: all of them, read from the files once."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limpet.engines.files import parquet
from limpet.engines.files.parquet import RowsById
from limpet.engines.sources import open_source
from limpet.errors import DataError

ROWS = 20_000


def goods(rows: int = ROWS) -> pa.Table:
    numbers = np.random.default_rng(0).permutation(rows)
    return pa.table({
        "sku": numbers, "title": [None if number % 9 == 0 else f"thing {number}" for number in numbers],
        "kind": pa.array([f"k{number % 5000}" for number in numbers]).dictionary_encode(),
        "emb": pa.array(list(numbers[:, None].repeat(3, 1).astype(np.float32)), pa.list_(pa.float32())),
    })  # fmt: skip


def test_every_row_is_found_and_the_files_are_read_once(tmp_path: Path) -> None:
    table = goods()
    for number, part in enumerate((table[:12_345], table[12_345:])):
        pq.write_table(part, tmp_path / f"{number}.parquet", row_group_size=3000)
    source = open_source(f"parquet:{tmp_path}?id=sku&vector=emb&text=title")
    columns = ["title", "sku", "kind", "emb"]

    def rows(ids: list[str]) -> list[dict[str, object]]:
        batches = list(source.fetch(ids, columns))
        assert all(batch.schema.names == columns for batch in batches)
        assert all(batch.schema.types == [source.schema[name] for name in columns] for batch in batches)
        return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["sku"])

    first = rows(["7", "nothing", "07"])
    for path in tmp_path.iterdir():
        path.unlink()
    assert [row["sku"] for row in first] == [7]
    expected = {row["sku"]: row for row in table.select(columns).to_pylist()}
    drawn = np.random.default_rng(1).choice(ROWS, 300, replace=False).tolist()
    assert rows([str(one) for one in drawn]) == [expected[one] for one in sorted(drawn)]
    assert rows([]) == []
    with pytest.raises(DataError, match="Cannot read"):
        list(source.fetch(["7"], ["kind"]))  # another column, which was not copied


def test_rows_of_one_id_and_several_threads_at_once(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a", "b", "a"], "text": ["1", "2", "3"]}), tmp_path / "t.parquet")
    source = open_source(f"parquet:{tmp_path / 't.parquet'}")
    found: list[list[str]] = []

    def read() -> None:
        found.append(sorted(one for batch in source.fetch(["a"], ["text"]) for one in batch.column(0).to_pylist()))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [["1", "3"]] * 4


def test_no_room_for_the_copy_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("id", pa.string())])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"The columns id of 'a\.parquet' do not fit") as refused:
        RowsById(schema, [], "'a.parquet'")
    assert "TMPDIR" in refused.value.to_do


def test_missing_ids_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a", None], "text": ["1", "2"]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="1 ids are missing"):
        list(open_source(f"parquet:{tmp_path / 't.parquet'}").fetch(["a"], ["text"]))


def test_rows_of_ids_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_hashes", lambda ids: np.zeros(len(ids), np.int64))
    batch = pa.record_batch({"id": ["a", "b", "c"], "text": ["1", "2", "3"]})
    found = list(RowsById(batch.schema, [batch], "rows").fetch(["b", "d"]))
    assert [row for part in found for row in part.to_pylist()] == [{"id": "b", "text": "2"}]
