"""Galleries that several workers search in parts are ranked as one process ranks them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet, storage
from limpet.errors import ConfigError, DataError, SpaceMismatchError
from limpet.evaluation.ranking import sharded as sharding
from limpet.evaluation.ranking.engine import nearest_rows, rank
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.ranking.sharded import mapped_from, searching, sharded
from limpet.evaluation.ranking.vector_rows import EmbeddingRows, JoinedRows
from limpet.evaluation.retrieval import rank_metrics, top_k
from limpet.geometry import SPACES
from limpet.support.workers import Processes

from ...workers_here import Here


def items(rng: np.random.Generator, count: int, dim: int = 5) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Small whole numbers, so that most scores tie."""
    return rng.integers(-2, 3, (count, dim)).astype(np.float32)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("workers", [2, 3, 7, 16])
def test_ranks_ties_and_nearest_rows_are_those_of_one_process(
    workers: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr("limpet.evaluation.ranking.part.compiles", lambda *_: compiled)
    rng = np.random.default_rng(workers)
    query, gallery = items(rng, 40), items(rng, 90)
    labels, asked = rng.integers(0, 6, 90), rng.integers(0, 7, 40)
    ignore = RowLists.of([rng.choice(90, 9, replace=False) for _ in query])
    for relevant in (RowLists.by_label(asked, labels), RowLists.of([rng.choice(90, row % 5, replace=False)
                                                                   for row in range(40)])):  # fmt: skip
        alone = rank(query, gallery, relevant, ignore), nearest_rows(query, gallery, 20, ignore, block=7)
        with sharded(Here(workers)):
            ranked, nearest = rank(query, gallery, relevant, ignore, block=7), nearest_rows(query, gallery, 20, ignore)
        for name in ("ranks", "offsets", "gallery_sizes", "tied"):
            np.testing.assert_array_equal(getattr(ranked, name), getattr(alone[0], name), strict=True)
        assert (alone[0].tied > 1).mean() > 0.5
        for found, wanted in zip(nearest, alone[1], strict=True):
            np.testing.assert_array_equal(found, wanted, strict=True)
    assert not sharding._OPEN


def test_more_workers_than_items_and_fewer_items_than_asked() -> None:
    rng = np.random.default_rng(0)
    query, gallery = items(rng, 3), items(rng, 4)
    alone = nearest_rows(query, gallery, 9, RowLists.of([[0, 1, 2, 3], [2], []]))
    with sharded(Here(16)):
        found = nearest_rows(query, gallery, 9, RowLists.of([[0, 1, 2, 3], [2], []]))
    for one, other in zip(found, alone, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def test_the_limit_of_compiled_counting_is_that_of_all_workers_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query whose answers are few enough in every part may have too many in all."""
    seen: list[int] = []
    monkeypatch.setattr("limpet.evaluation.ranking.part.compiles", lambda _, counts: bool(seen.append(counts.max())))
    with sharded(Here(2)):
        rank(np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32), RowLists.of([[0, 1, 2, 3]] * 4))
    assert seen == [4, 4]


@pytest.mark.parametrize("key", SPACES)
@pytest.mark.parametrize("form", ["points", "features"])
def test_processes_read_files_and_arrays_of_every_space(key: str, form: Any, tmp_path: Path) -> None:
    rng, space = np.random.default_rng(0), SPACES[key](4)
    raw, labels = rng.normal(size=(60, 4)).astype(np.float32), rng.integers(0, 5, 60)
    points = raw if form == "features" else space.project_array(raw)
    whole = EmbeddingSet(points, model="m", space=space, form=form, labels=labels)
    mapped = storage.load(storage.save(whole, tmp_path / "items.safetensors"))
    assert mapped_from(mapped.vectors) is not None and mapped_from(whole.vectors) is None
    alone = rank_metrics(whole, whole, exclude_same_id=True), top_k(whole, whole, 5).rows
    with sharded(Here(3)):
        for given in (whole, mapped, mapped[5:50]):
            metrics, rows = rank_metrics(given, given, exclude_same_id=True), top_k(given, given, 5).rows
            if len(given) == len(whole):
                np.testing.assert_equal(metrics, alone[0])
                np.testing.assert_array_equal(rows, alone[1])
        joined = JoinedRows([EmbeddingRows(whole, "gallery")] * 2)
        assert len(rank(EmbeddingRows(whole, "query"), joined, RowLists.of([[0, 60]] * 60)).ranks) == 120


def test_files_of_sets_are_removed_with_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with sharded(Here(2)):
        session = sharding._SESSION.get()
        assert session is not None
        some = EmbeddingSet(items(rng, 9), model="m", labels=np.arange(9) % 2)
        rank_metrics(some, some)
        rank_metrics(some, some)
        files = list(session._folder.iterdir())
        assert len(files) == 2  # as queries and as gallery, once
        del some
        assert not list(session._folder.iterdir())
    assert not session._folder.exists()


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    some = EmbeddingSet(items(rng, 9), model="m", labels=np.arange(9) % 2)
    path = storage.save(some, tmp_path / "items.safetensors")
    mapped = storage.load(path)
    with sharded(Here(2)):
        rank_metrics(mapped, mapped)
        os.utime(path, ns=(1, 1))
        sharding._resident.cache_clear()
        with pytest.raises(DataError, match="changed"):
            rank_metrics(mapped, mapped)
    storage.save(some, path)
    assert mapped_from(mapped.vectors) is None  # another file has its name


@pytest.mark.parametrize(
    ("query", "gallery", "error"),
    [
        (np.empty((0, 2), np.float32), np.eye(2, dtype=np.float32), DataError),
        (np.eye(2, dtype=np.float32), np.empty((0, 2), np.float32), DataError),
        (np.eye(2, dtype=np.float32), np.eye(3, dtype=np.float32), SpaceMismatchError),
        (np.eye(2, dtype=np.float32), np.float32([[1, 0], [1e30, 1e30]]), DataError),
    ],
)
def test_what_one_process_refuses_workers_refuse(query: Any, gallery: Any, error: type[Exception]) -> None:
    relevant = RowLists.of([[]] * len(query))
    with pytest.raises(error) as alone:
        rank(query * np.float32(1e9), gallery, relevant)
    with sharded(Here(2)), pytest.raises(error) as found:
        rank(query * np.float32(1e9), gallery, relevant)
    assert str(found.value) == str(alone.value)
    assert not sharding._OPEN


def test_processes_hand_over_errors_and_their_own_end() -> None:
    query = np.eye(2, dtype=np.float32)
    with Processes(2) as processes, sharded(processes):
        with pytest.raises(SpaceMismatchError) as found:
            rank(query, np.eye(3, dtype=np.float32), RowLists.of([[0], [1]]))
        assert found.value.expected == "vectors of one space"
        assert rank(query, query, RowLists.of([[0], [1]])).ranks.tolist() == [0, 0]
        with searching(query, query, RowLists.of([[0], [1]]), RowLists.of([[], []])) as (part, _):
            os.kill(processes.submit(1, os.getpid).result(), signal.SIGKILL)
            for bounds in ((0, 1), (1, 2)):  # the second block meets a new process, which has no part
                with pytest.raises(ConfigError, match="ended before"):
                    part.counts(bounds)
    with pytest.raises(ConfigError), sharded(0):
        pass


def test_processes_end_with_the_one_that_started_them() -> None:
    code = """
import os, time
from limpet.support.workers import Processes
if __name__ == "__main__":
    processes = Processes(1)
    print(processes.submit(0, os.getpid).result(), flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        worker = int(started.stdout.readline())
        started.kill()
    until = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists() and "Z" not in Path(f"/proc/{worker}/stat").read_text().split()[2]:
        assert time.monotonic() < until
        time.sleep(0.05)
