"""Threads that wait for the writer share its next commit; each hears of its own batch alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError, GalleryError
from limpet.galleries import Gallery
from limpet.galleries.group_commit import ITEMS, GroupCommit
from limpet.galleries.rows import ItemBatch
from limpet.geometry import Hypersphere

SPHERE, WRITERS = Hypersphere(4), 12


@pytest.fixture
def gallery(place: str) -> Iterator[Gallery]:
    with Gallery.create(place, fingerprint="declared:old", space=SPHERE, columns={"count": "integer"}) as opened:
        yield opened


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(WRITERS) as made:
        yield made


def points(*ids: str, seed: int = 0) -> EmbeddingSet:
    made = np.random.default_rng(seed).normal(size=(len(ids), 4)).astype(np.float32)
    vectors = made / np.linalg.norm(made, axis=1, keepdims=True)
    return EmbeddingSet(ids=list(ids), vectors=vectors, fingerprint="declared:old", space=SPHERE)


def wait_until(holds: Callable[[], bool]) -> None:
    while not holds():
        threading.Event().wait(0.002)


def written_together(gallery: Gallery, pool: ThreadPoolExecutor, sets: Sequence[EmbeddingSet]) -> list[Future[int]]:
    """Let a thread write each set, in this order, while this one is the writer."""
    waiting, futures = gallery._group._waiting, []
    with gallery.writing("a test"):
        for number, one in enumerate(sets):
            futures.append(pool.submit(gallery.upsert, one, metadata={"count": [number] * len(one)}))
            wait_until(lambda: len(waiting) > number)  # noqa: B023
    return futures


def test_sets_of_several_threads_are_one_commit(gallery: Gallery, pool: ThreadPoolExecutor) -> None:
    before = gallery.store.pointer().sequence
    sets = [points(f"own {number}", "everybody's", seed=number) for number in range(WRITERS)]
    assert [one.result() for one in written_together(gallery, pool, sets)] == [2] * WRITERS
    entries = gallery.store.journal(after=before)
    assert [entry.event for entry in entries] == [{"kind": "upsert", "items": WRITERS + 1}]
    for number, one in enumerate(sets):
        [hit], [last] = (gallery.search(vector[None], 1, fingerprint="declared:old").hits for vector in one.vectors)
        assert hit[0].id == f"own {number}" and hit[0].score == pytest.approx(1.0)
        assert (last[0].id == "everybody's") == (number == WRITERS - 1) or last[0].score < 1 - 1e-6
    [own] = gallery.store.fetch(["everybody's"]).metadata
    assert own == {"count": WRITERS - 1}


def test_an_item_without_a_vector_of_the_last_set_has_none_of_an_earlier_one(gallery: Gallery, pool: Any) -> None:
    gallery.start("declared:new", SPHERE)
    both = [points("a", "b"), points("a", "b", seed=1).replace(fingerprint="declared:new")]
    waiting = gallery._group._waiting
    with gallery.writing("a test"):
        first = pool.submit(gallery.upsert, *both)
        wait_until(lambda: len(waiting) == 1)
        second = pool.submit(gallery.upsert, points("a", seed=2))
        wait_until(lambda: len(waiting) == 2)
    assert (first.result(), second.result()) == (2, 1)
    assert [set(one) for one in gallery.store.fetch(["a", "b"]).generations] == [{"g1"}, {"g1", "g2"}]


def test_a_thread_that_is_the_writer_waits_for_no_other(gallery: Gallery, pool: ThreadPoolExecutor) -> None:
    waiting = gallery._group._waiting
    with gallery.writing("a test"):
        other = pool.submit(gallery.upsert, points("later"))
        wait_until(lambda: len(waiting) == 1)
        assert gallery.upsert(points("now")) == 1
        assert len(gallery) == 1 and not other.done()
    assert other.result() == 1 and len(gallery) == 2


def test_whoever_holds_the_writer_for_too_long_is_named_to_all_that_wait(tmp_path: Path, pool: Any) -> None:
    url = f"memory:{tmp_path / 'gallery'}"
    holder = Gallery.create(url, fingerprint="declared:old", space=SPHERE)
    with holder, holder.writing("a long test"), Gallery.open(url, timeout=0.2) as opened:
        futures = [pool.submit(opened.upsert, points(f"own {number}")) for number in range(4)]
        for one in futures:
            with pytest.raises(GalleryError, match="a long test"):
                one.result()
        assert not opened._group._waiting


class Commits:
    """Notes what is committed, and fails where it is told to."""

    def __init__(self) -> None:
        self.made: list[list[str]] = []
        self.fails: dict[str, BaseException] = {}
        self.writer = threading.Lock()
        self.group = GroupCommit(lambda: self.writer, self.commit)

    def commit(self, batches: Sequence[ItemBatch]) -> None:
        ids = [name for batch in batches for name in batch.ids]
        for name in ids:
            if name in self.fails:
                raise self.fails[name]
        self.made.append(ids)

    def together(self, pool: ThreadPoolExecutor, names: list[str], size: int = 1) -> list[Future[None]]:
        futures = []
        with self.writer:
            for number, name in enumerate(names):
                futures.append(pool.submit(self.group.write, ItemBatch([name] * size, [], [], 0, 0)))
                wait_until(lambda: len(self.group._waiting) > number)  # noqa: B023
        return futures


def test_an_error_reaches_the_thread_whose_batch_is_at_fault(pool: ThreadPoolExecutor) -> None:
    it = Commits()
    it.fails["b"] = DataError("b")
    a, b, c = it.together(pool, ["a", "b", "c"])
    assert a.result() is None and c.result() is None
    with pytest.raises(DataError, match="b"):
        b.result()
    assert it.made == [["a"], ["c"]]


def test_an_interruption_ends_one_thread_and_loses_nothing_of_others(pool: ThreadPoolExecutor) -> None:
    it = Commits()
    it.fails["a"] = KeyboardInterrupt()
    a, b, c = it.together(pool, ["a", "b", "c"])
    with pytest.raises(KeyboardInterrupt):
        a.result()
    assert b.result() is None and c.result() is None
    assert it.made == [["b", "c"]] and not it.group._waiting


def test_a_commit_takes_no_further_batch_after_so_many_items(pool: ThreadPoolExecutor) -> None:
    it = Commits()
    futures = it.together(pool, list("abcd"), ITEMS // 2)
    assert [one.result() for one in futures] == [None] * 4
    assert ["".join(dict.fromkeys(ids)) for ids in it.made] == ["ab", "cd"]
