"""The folder of finished tasks: what counts as finished, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from limpet.errors import DataError
from limpet_bench.cache import TaskCache
from limpet_bench.tasks import Task

TASK = Task("train", {"epochs": 3}, {"old": Task("train", {})}, work=12.0, label="p2s (glyphs)")


@pytest.fixture
def cache(tmp_path: Path) -> TaskCache:
    return TaskCache(tmp_path / "tasks")


def test_a_task_that_was_begun_is_not_finished(cache) -> None:
    assert cache.record(TASK) is None and not cache.root.exists()
    folder = cache.folder(TASK)
    folder.mkdir(parents=True)
    (folder / "checkpoint.safetensors").write_bytes(b"half")
    (folder / ".cell.json.77.part").write_text('{"address":')
    assert cache.record(TASK) is None and cache.failure(TASK) is None and cache.records() == []


def test_a_finished_task_says_what_it_is_and_what_it_became(cache) -> None:
    cache.finish(TASK, {"map": 0.5}, 1.23456, "a machine")
    found = cache.record(Task("train", {"epochs": 3}, {"old": Task("train", {})}))
    assert json.loads((cache.folder(TASK) / "cell.json").read_text()) == found.model_dump() == {
        "address": TASK.address, **TASK.identity(), "label": "p2s (glyphs)", "work": 12.0, "seconds": 1.235,
        "machine": "a machine", "values": {"map": 0.5},
    }  # fmt: skip
    assert cache.records() == [found] and cache.record(Task("train", {"epochs": 4})) is None
    assert cache.folder(TASK).parent.name == "train" and [p.name for p in cache.folder(TASK).iterdir()] == ["cell.json"]


def test_a_failure_is_kept_until_it_is_forgotten_or_the_task_is_finished(cache) -> None:
    cache.fail(TASK, "the loss is not finite")
    assert cache.failure(TASK) == "the loss is not finite" and cache.record(TASK) is None
    cache.finish(TASK, {}, 1.0)
    assert cache.failure(TASK) is None and cache.record(TASK) is not None
    model, other = Task("train", {}), Task("train", {"of": "another suite"})
    embedded = Task("embed", {}, {"model": model})
    cache.fail(model, "one"), cache.fail(other, "two"), cache.fail(embedded, "three")
    assert cache.forget_failures([TASK, embedded]) == 2 and cache.forget_failures([TASK, embedded]) == 0
    assert cache.failure(model) is None and cache.failure(embedded) is None and cache.record(TASK) is not None
    assert cache.failure(other) == "two"


@pytest.mark.parametrize("content", ["", '{"address": "12', "[1, 2]", "null", "\x00\x00"])
@pytest.mark.parametrize("name", ["cell.json", "failure.json"])
def test_a_damaged_record_is_named_and_never_taken_for_a_result(cache, content, name) -> None:
    cache.finish(TASK, {}, 1.0), cache.fail(TASK, "why")
    (cache.folder(TASK) / name).write_text(content)
    with pytest.raises(DataError) as caught:
        (cache.record if name == "cell.json" else cache.failure)(TASK)
    assert str(cache.folder(TASK)) in caught.value.to_do and "run again" in caught.value.to_do


@pytest.mark.parametrize("name", ["cell.json", "failure.json"])
def test_a_record_without_what_records_have_is_damaged_too(cache, name) -> None:
    cache.folder(TASK).mkdir(parents=True)
    (cache.folder(TASK) / name).write_text("{}")
    with pytest.raises(DataError, match="Cannot read"):
        (cache.record if name == "cell.json" else cache.failure)(TASK)


@pytest.mark.parametrize(("key", "value"), [("seconds", "long"), ("seconds", None), ("values", []), ("work", "1")])
def test_a_record_of_values_of_another_type_is_damaged_too(cache, key: str, value: object) -> None:
    cache.finish(TASK, {"map": 0.5}, 1.0)
    path = cache.folder(TASK) / "cell.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    for read in (lambda: cache.record(TASK), cache.records):
        with pytest.raises(DataError, match=rf"Cannot read '.*cell\.json': {key}: Input should be a valid"):
            read()


def test_the_record_of_another_task_is_refused(cache) -> None:
    other = Task("train", {"epochs": 4})
    cache.finish(other, {"map": 0.9}, 1.0)
    cache.folder(other).rename(cache.folder(TASK))
    with pytest.raises(DataError, match=other.address[:24]):
        cache.record(TASK)


def test_a_removed_task_is_as_if_it_had_never_been(cache) -> None:
    cache.finish(TASK, {}, 1.0)
    (cache.folder(TASK) / "release").mkdir()
    cache.remove(TASK), cache.remove(TASK)
    assert cache.record(TASK) is None and not cache.folder(TASK).exists()


def test_a_record_is_written_whole_or_not_at_all(cache) -> None:
    cache.finish(TASK, {"map": 0.5}, 1.0)
    before = (cache.folder(TASK) / "cell.json").read_text()
    with pytest.raises(TypeError):
        cache.finish(TASK, {"map": object()}, 2.0)
    assert (cache.folder(TASK) / "cell.json").read_text() == before and json.loads(before)["seconds"] == 1.0
    assert [path.name for path in cache.folder(TASK).iterdir()] == ["cell.json"]


def test_a_cache_that_cannot_be_reached_says_so_and_names_another_way_out(tmp_path) -> None:
    (tmp_path / "file").write_text("in its way")
    cache = TaskCache(tmp_path / "file")
    for refused in (cache.record, cache.failure, lambda task: cache.held(task).__enter__()):
        with pytest.raises(DataError, match="file") as caught:
            refused(TASK)
        assert "--cache FOLDER" in caught.value.to_do and "remove" not in caught.value.to_do
    assert (tmp_path / "file").read_text() == "in its way"


def test_a_hold_leaves_nothing_that_counts_as_a_result(cache) -> None:
    with cache.held(TASK), pytest.raises(KeyError), cache.held(Task("embed", {})):
        raise KeyError
    with cache.held(Task("embed", {})):
        assert cache.record(TASK) is None and cache.failure(TASK) is None and cache.records() == []
