"""Programs that fork while they have a gallery open: neither process takes anything from the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.engines import forks
from limpet.engines.sqlite import SqliteDatabase
from limpet.engines.store import Changes, NewGeneration, Rows, Store, Upsert
from limpet.engines.stores import open_store
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere
from limpet.support.disk import Disk

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
QUERY = np.ones((1, 2), np.float32)


class Child:
    """A forked child that works, and hands its result back.

    Args:
        work: What it does, and then ends without any cleaning up, as multiprocessing's children do.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        self._result, result = os.pipe()
        wait, self._go = os.pipe()
        self._process = os.fork()
        if not self._process:
            try:
                os.read(wait, 1)
                os.write(result, json.dumps(work()).encode())
            except BaseException as error:  # whatever it is, the parent is told
                os.write(result, json.dumps(f"{type(error).__name__}: {error}").encode())
            finally:
                os._exit(0)
        os.close(result)
        os.close(wait)

    def result(self) -> Any:
        """Let it work, and return what came of it."""
        os.write(self._go, b"go")
        os.close(self._go)
        with os.fdopen(self._result) as result:
            answer = result.read()
        os.waitpid(self._process, 0)
        return json.loads(answer)


@contextmanager
def in_thread(work: Callable[[threading.Event, threading.Event], None]) -> Iterator[threading.Event]:
    """Let a thread work that sets the first event when it is where it is to be, until the second is set."""
    begun, end = threading.Event(), threading.Event()
    thread = threading.Thread(target=work, args=(begun, end))
    thread.start()
    begun.wait()
    try:
        yield end
    finally:
        end.set()
        thread.join()


def write(store: Store, *ids: str) -> int:
    create = () if store.pointer().sequence else [NewGeneration("g1", 2, {})]
    upsert = Upsert(ids, [{}] * len(ids), [Rows("g1", ids, np.ones((len(ids), 2), np.float32))])
    with store.writing("a test", timeout=120):
        return store.commit(Changes(create, upsert=upsert), {}, {"kind": "test"}).pointer.sequence


def ids(store: Store) -> list[str]:
    return sorted(store.search(QUERY, 10**6, generation="g1", at=store.pointer()).ids[0])


@pytest.fixture(params=["memory:{}/gallery", "memory://"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = open_store(request.param.format(tmp_path), create=True)
    write(opened, "a")
    yield opened
    opened.close()


@pytest.mark.parametrize("kind", ["memory", "lance"])
def test_a_child_does_not_keep_the_lock_of_a_thread_that_wrote(kind: str, tmp_path: Path) -> None:
    store = open_store(f"{kind}:{tmp_path}", create=True)

    def hold(begun: threading.Event, end: threading.Event) -> None:
        with store.writing("a thread"):
            begun.set()
            end.wait()

    with in_thread(hold):
        child = Child(lambda: None)
    with store.writing("the parent, while its child lives", timeout=0.0):
        pass
    child.result()
    store.close()


def test_a_child_is_not_the_writer_that_its_parent_is(store: Store) -> None:
    with store.writing("the parent"):
        child = Child(lambda: commit_as_if_writing(store))
        assert "one that is not the writer" in child.result()
        if store.url != "memory://":
            assert f"process {os.getpid()}" in Child(lambda: wait_for_the_lock(store)).result()
    assert write(store, "b") == 2, "the lock was left as it was"


def commit_as_if_writing(store: Store) -> None:
    store.commit(Changes(delete=["a"]), {}, {"kind": "test"})


def wait_for_the_lock(store: Store) -> None:
    with store.writing("a child", timeout=0.0):
        pass


def test_a_child_that_leaves_its_parents_block_takes_nothing_with_it(tmp_path: Path) -> None:
    store = open_store(f"memory:{tmp_path}", create=True)
    child = None
    with store.writing("the parent"):
        result, written = os.pipe()
        child = os.fork()
    if not child:
        try:
            with store.writing("the child", timeout=120):
                os.write(written, b"wrote")
        finally:
            os._exit(0)
    os.close(written)
    with os.fdopen(result) as answer:
        assert answer.read() == "wrote"
    os.waitpid(child, 0)
    store.close()


def test_what_a_child_acknowledged_survives_the_end_of_its_parents_store(tmp_path: Path) -> None:
    store = open_store(f"memory:{tmp_path}", create=True)
    write(store, "a")

    child = Child(lambda: [ids(store), child_wrote(store)])
    store.close()
    assert child.result() == [["a"], ["a", "of the child"]]
    assert ids(open_store(f"memory:{tmp_path}")) == ["a", "of the child"]


def child_wrote(store: Store) -> list[str]:
    write(store, "of the child")
    return ids(store)


def test_children_use_the_store_that_they_were_forked_with(store: Store) -> None:
    """While a thread of the parent writes all the time, as under a DataLoader."""
    acknowledged: list[str] = []

    def keep_writing(begun: threading.Event, end: threading.Event) -> None:
        while not end.is_set():
            write(store, f"p{len(acknowledged)}")
            acknowledged.append(f"p{len(acknowledged)}")
            begun.set()

    with in_thread(keep_writing):
        children = [Child(lambda number=number: child_writes(store, number)) for number in range(10)]
        seen = [child.result() for child in children]
    shared = store.url != "memory://"
    assert all("a" in one and f"c{number}" in one for number, one in enumerate(seen)), seen
    expected = {"a", *acknowledged, *(f"c{number}" for number in range(10) if shared)}
    assert set(ids(store)) == expected
    if shared:
        assert set(ids(open_store(store.url))) == expected


def child_writes(store: Store, number: int) -> list[str]:
    ids(store)
    write(store, f"c{number}")
    return ids(store)


def test_a_fork_waits_for_a_transaction_of_another_thread(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "gallery.db", Disk())
    database.execute("CREATE TABLE numbers (number bigint)")

    def transact(begun: threading.Event, end: threading.Event) -> None:
        with database.transaction():
            database.execute("INSERT INTO numbers VALUES (1)")
            begun.set()
            while not forks._waiting:
                end.wait(0.001)

    with in_thread(transact):
        child = Child(lambda: database.execute("SELECT count(*) FROM numbers"))
    assert child.result() == [[1]]
    database.close()


@pytest.mark.parametrize("place", ["gallery.db", ":memory:"])
def test_a_child_does_without_a_database_whose_transaction_took_too_long(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "_LONGEST", 0.05)
    database = SqliteDatabase(place if place == ":memory:" else tmp_path / place, Disk())
    database.execute("CREATE TABLE numbers (number bigint)")

    def transact(begun: threading.Event, end: threading.Event) -> None:
        with database.transaction():
            database.execute("INSERT INTO numbers VALUES (1)")
            begun.set()
            end.wait()

    with in_thread(transact):
        assert "forked in the middle of a transaction" in Child(lambda: database.execute("SELECT 1")).result()
    assert database.execute("SELECT count(*) FROM numbers") == [(1,)]
    with database.transaction():
        child = Child(lambda: database.execute("SELECT 1"))  # in the very thread
        assert "forked in the middle of a transaction" in child.result()
        database.execute("INSERT INTO numbers VALUES (2)")
    assert database.execute("SELECT count(*) FROM numbers") == [(2,)]
    assert Child(lambda: database.execute("SELECT count(*) FROM numbers")).result() == [[2]]
    database.close()


def test_a_child_reads_tables_again_that_a_thread_was_changing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, end = threading.Event(), threading.Event()
    publish = type(store)._publish  # type: ignore[attr-defined]

    def slow(self: Any, pointer: Any) -> None:
        begun.set()
        end.wait()
        publish(self, pointer)

    monkeypatch.setattr(type(store), "_publish", slow)
    thread = threading.Thread(target=write, args=(store, "b"))
    thread.start()
    begun.wait()
    monkeypatch.setattr(type(store), "_publish", publish)
    child = Child(lambda: ids(store))
    assert child.result() == ["a", "b"]
    end.set()
    thread.join()
    assert ids(store) == ["a", "b"]


def test_what_was_counted_before_a_fork_is_written_once(tmp_path: Path) -> None:
    space = Hypersphere(2)
    points = EmbeddingSet(ids=["a"], vectors=QUERY / np.sqrt(np.float32(2)), fingerprint="declared:m", space=space)
    gallery = Gallery.create(f"memory:{tmp_path}", fingerprint="declared:m", space=space, count_traffic=True)
    gallery.add(points)
    gallery.search(points.vectors, 1)
    assert Child(gallery.close).result() is None
    gallery.close()
    assert open_store(f"memory:{tmp_path}").traffic() == {"a": 1}


def test_what_is_gone_is_not_called_at_a_fork() -> None:
    class Told:
        def __init__(self) -> None:
            forks.at_fork(self, before=Told.tell)

        def tell(self) -> None:
            told.append(self)

    told: list[Told] = []
    kept, before = Told(), len(forks._before)
    Told()
    Child(lambda: None).result()
    assert told == [kept] and len(forks._before) == before


def test_threads_that_wait_to_be_alone_do_not_wait_for_each_other() -> None:
    done = []

    def work(begun: threading.Event, end: threading.Event) -> None:
        with forks.unforked(), forks.unforked():
            begun.set()
            while not forks._waiting:
                end.wait(0.001)
            with forks.alone():
                done.append("thread")

    with in_thread(work), forks.unforked(), forks.alone():
        done.append("test")
    assert sorted(done) == ["test", "thread"]


ENDS = """
import os, sys
from pathlib import Path
from limpet.support.disk import Disk
from limpet.engines.sqlite import SqliteDatabase
database = SqliteDatabase(Path(sys.argv[1]), Disk())
database.execute("CREATE TABLE numbers (number bigint, filler blob)")
rows = [[number, bytes(3000)] for number in range(500)]
with database.transaction():
    database.execute("PRAGMA cache_size = 10")
    database.execute_many("INSERT INTO numbers VALUES (?, ?)", rows)
    child = os.fork()
    if not child:
        sys.exit()
    os.waitpid(child, 0)
    database.execute_many("INSERT INTO numbers VALUES (?, ?)", rows)
print(database.execute("SELECT count(*) FROM numbers"), database.execute("PRAGMA integrity_check"))
"""


def test_a_child_that_ends_in_the_middle_of_its_parents_transaction_leaves_it_alone(tmp_path: Path) -> None:
    """It ends as programs do, through every block it is in: nothing is rolled back or closed, and nothing is said."""
    done = subprocess.run(
        [sys.executable, "-c", ENDS, tmp_path / "gallery.db"], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("[(1000,)] [('ok',)]\n", "")
