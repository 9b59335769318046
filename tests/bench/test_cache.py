"""The folder of finished cells: what counts as finished, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.bench.cache import CellCache
from holdfast.bench.cells import Cell
from holdfast.errors import DataError

CELL = Cell("train", {"epochs": 3}, {"old": Cell("train", {})}, work=12.0, label="p2s (glyphs)")


@pytest.fixture
def cache(tmp_path: Path) -> CellCache:
    return CellCache(tmp_path / "cells")


def test_a_cell_that_was_begun_is_not_finished(cache) -> None:
    assert cache.record(CELL) is None and not cache.root.exists()
    folder = cache.folder(CELL)
    folder.mkdir(parents=True)
    (folder / "checkpoint.safetensors").write_bytes(b"half")
    (folder / ".cell.json.77.part").write_text('{"address":')
    assert cache.record(CELL) is None and cache.failure(CELL) is None and cache.records() == []


def test_a_finished_cell_says_what_it_is_and_what_it_became(cache) -> None:
    cache.finish(CELL, {"map": 0.5}, 1.23456, "a machine")
    found = cache.record(Cell("train", {"epochs": 3}, {"old": Cell("train", {})}))
    assert found == {
        "address": CELL.address, **CELL.identity(), "label": "p2s (glyphs)", "work": 12.0, "seconds": 1.235,
        "machine": "a machine", "values": {"map": 0.5},
    }  # fmt: skip
    assert cache.records() == [found] and cache.record(Cell("train", {"epochs": 4})) is None
    assert cache.folder(CELL).parent.name == "train" and [p.name for p in cache.folder(CELL).iterdir()] == ["cell.json"]


def test_a_failure_is_kept_until_it_is_forgotten_or_the_cell_is_finished(cache) -> None:
    cache.fail(CELL, "the loss is not finite")
    assert cache.failure(CELL) == "the loss is not finite" and cache.record(CELL) is None
    cache.finish(CELL, {}, 1.0)
    assert cache.failure(CELL) is None and cache.record(CELL) is not None
    model, other = Cell("train", {}), Cell("train", {"of": "another suite"})
    embedded = Cell("embed", {}, {"model": model})
    cache.fail(model, "one"), cache.fail(other, "two"), cache.fail(embedded, "three")
    assert cache.forget_failures([CELL, embedded]) == 2 and cache.forget_failures([CELL, embedded]) == 0
    assert cache.failure(model) is None and cache.failure(embedded) is None and cache.record(CELL) is not None
    assert cache.failure(other) == "two"


@pytest.mark.parametrize("content", ["", '{"address": "12', "[1, 2]", "null", "\x00\x00"])
@pytest.mark.parametrize("name", ["cell.json", "failure.json"])
def test_a_damaged_record_is_named_and_never_taken_for_a_result(cache, content, name) -> None:
    cache.finish(CELL, {}, 1.0), cache.fail(CELL, "why")
    (cache.folder(CELL) / name).write_text(content)
    with pytest.raises(DataError) as caught:
        (cache.record if name == "cell.json" else cache.failure)(CELL)
    assert str(cache.folder(CELL)) in caught.value.to_do and "run again" in caught.value.to_do


@pytest.mark.parametrize("name", ["cell.json", "failure.json"])
def test_a_record_without_what_records_have_is_damaged_too(cache, name) -> None:
    cache.folder(CELL).mkdir(parents=True)
    (cache.folder(CELL) / name).write_text("{}")
    with pytest.raises(DataError, match="Cannot read"):
        (cache.record if name == "cell.json" else cache.failure)(CELL)


def test_the_record_of_another_cell_is_refused(cache) -> None:
    other = Cell("train", {"epochs": 4})
    cache.finish(other, {"map": 0.9}, 1.0)
    cache.folder(other).rename(cache.folder(CELL))
    with pytest.raises(DataError, match=other.address[:24]):
        cache.record(CELL)


def test_a_removed_cell_is_as_if_it_had_never_been(cache) -> None:
    cache.finish(CELL, {}, 1.0)
    (cache.folder(CELL) / "release").mkdir()
    cache.remove(CELL), cache.remove(CELL)
    assert cache.record(CELL) is None and not cache.folder(CELL).exists()


def test_a_record_is_written_whole_or_not_at_all(cache) -> None:
    cache.finish(CELL, {"map": 0.5}, 1.0)
    before = (cache.folder(CELL) / "cell.json").read_text()
    with pytest.raises(TypeError):
        cache.finish(CELL, {"map": object()}, 2.0)
    assert (cache.folder(CELL) / "cell.json").read_text() == before and json.loads(before)["seconds"] == 1.0
    assert [path.name for path in cache.folder(CELL).iterdir()] == ["cell.json"]


def test_a_cache_that_cannot_be_reached_says_so_and_names_another_way_out(tmp_path) -> None:
    (tmp_path / "file").write_text("in its way")
    cache = CellCache(tmp_path / "file")
    for refused in (cache.record, cache.failure, lambda cell: cache.held(cell).__enter__()):
        with pytest.raises(DataError, match="file") as caught:
            refused(CELL)
        assert "--cache FOLDER" in caught.value.to_do and "remove" not in caught.value.to_do
    assert (tmp_path / "file").read_text() == "in its way"


def test_a_hold_leaves_nothing_that_counts_as_a_result(cache) -> None:
    with cache.held(CELL), pytest.raises(KeyError), cache.held(Cell("embed", {})):
        raise KeyError
    with cache.held(Cell("embed", {})):
        assert cache.record(CELL) is None and cache.failure(CELL) is None and cache.records() == []
