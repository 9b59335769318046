"""SQLite below the ledger: transactions, threads, and the lock of the one writer."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from limpet.engines.ledger_store import ThreadLock
from limpet.engines.sqlite import SqliteDatabase, WriterLock
from limpet.errors import GalleryError, StoreError
from limpet.support.disk import Disk


class Watching(Disk):
    """A disk that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def reached(self, point: str) -> None:
        self.told.append(point)

    def database_synced(self, path: Path) -> None:
        self.told.append(path.name)


@pytest.fixture(params=[":memory:", "gallery.db"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteDatabase]:
    found = SqliteDatabase(request.param if request.param == ":memory:" else tmp_path / request.param, Watching())
    found.execute("CREATE TABLE numbers (number bigint PRIMARY KEY)")
    yield found
    found.close()


def numbers(database: SqliteDatabase) -> list[int]:
    return [row[0] for row in database.execute("SELECT number FROM numbers ORDER BY number")]


def in_thread(work: object) -> None:
    thread = threading.Thread(target=work)  # type: ignore[arg-type]
    thread.start()
    thread.join()


def test_a_transaction_is_all_or_nothing(database: SqliteDatabase) -> None:
    with database.transaction():
        database.execute_many("INSERT INTO numbers VALUES (?)", [[1], [2]])
    with pytest.raises(KeyError), database.transaction():
        database.execute("INSERT INTO numbers VALUES (3)")
        raise KeyError
    with pytest.raises(StoreError, match="UNIQUE"), database.transaction():
        database.execute_many("INSERT INTO numbers VALUES (?)", [[4], [1]])
    with pytest.raises(StoreError, match="within a transaction"), database.transaction(), database.transaction():
        database.execute("INSERT INTO numbers VALUES (5)")
    assert numbers(database) == [1, 2]


def test_every_commit_of_a_file_is_synced_and_told(database: SqliteDatabase) -> None:
    watching = database.disk
    assert isinstance(watching, Watching)
    assert database.execute("PRAGMA synchronous") == [(2,)]
    with database.transaction():
        assert watching.told == []
    lasting = database.path != ":memory:"
    assert watching.told == ["database.commit", "gallery.db"][: 1 + lasting]
    assert database.execute("PRAGMA journal_mode") == [("wal" if lasting else "memory",)]


def test_other_threads_never_see_half_a_transaction(database: SqliteDatabase) -> None:
    seen: list[list[int]] = []
    started, begun = threading.Event(), threading.Event()

    def read() -> None:
        begun.wait()
        started.set()
        for _ in range(50):
            seen.append(numbers(database))

    thread = threading.Thread(target=read)
    thread.start()
    with database.transaction():
        database.execute("INSERT INTO numbers VALUES (1)")
        begun.set()
        started.wait()
        assert numbers(database) == [1], "the thread itself sees it"
        database.execute("INSERT INTO numbers VALUES (2)")
    thread.join()
    assert len(seen) == 50 and all(found in ([], [1, 2]) for found in seen)


@pytest.mark.parametrize("database", ["gallery.db"], indirect=True)
def test_what_is_read_together_belongs_to_one_commit(database: SqliteDatabase) -> None:
    with database.reading():
        assert numbers(database) == []
        in_thread(lambda: database.execute("INSERT INTO numbers VALUES (1)"))
        assert numbers(database) == []
    assert numbers(database) == [1]


def test_threads_that_ended_leave_no_connection_behind(database: SqliteDatabase) -> None:
    for _ in range(20):
        in_thread(lambda: numbers(database))
    assert len(database._idle) == 1


def test_what_was_closed_says_so(database: SqliteDatabase) -> None:
    database.close()
    with pytest.raises(StoreError, match="was closed"):
        numbers(database)


def test_many_ids_are_found_whatever_is_in_them(database: SqliteDatabase) -> None:
    database.execute("CREATE TABLE items (id text PRIMARY KEY)")
    ids = ["it's", 'a"b', "ü", "[1]", "\\", "\n", *map(str, range(5000))]
    with database.transaction():
        database.execute_many("INSERT INTO items VALUES (?)", ([identifier] for identifier in ids))
    clause, value = database.dialect.among("id", [*ids[:100], "missing"])
    assert {row[0] for row in database.execute(f"SELECT id FROM items WHERE {clause}", [value])} == set(ids[:100])


@pytest.mark.parametrize("database", ["gallery.db"], indirect=True)
def test_the_lock_is_held_by_one_and_named_to_the_next(database: SqliteDatabase, tmp_path: Path) -> None:
    first, second = WriterLock(database), WriterLock(database)
    with first.held("an import", 0.0):
        with (
            pytest.raises(GalleryError, match=rf"process {os.getpid()} on .* \(an import\), since 20"),
            second.held("me", 0.0),
        ):
            pass
        assert "an import" in (tmp_path / "writer.lock").read_text(), "a refused writer leaves the holder's name"
    assert (tmp_path / "writer.lock").read_text() == ""
    with second.held("me", 0.0):
        pass


@pytest.mark.parametrize("database", ["gallery.db"], indirect=True)
def test_a_lock_is_waited_for(database: SqliteDatabase) -> None:
    for first, second in [[WriterLock(database), WriterLock(database)], [ThreadLock()] * 2]:
        held, order = threading.Event(), []

        def hold(lock: WriterLock | ThreadLock, held: threading.Event, order: list[str]) -> None:
            with lock.held("the first", 0.0):
                held.set()
                threading.Event().wait(0.1)
                order.append("first")

        thread = threading.Thread(target=hold, args=[first, held, order])
        thread.start()
        held.wait()
        with second.held("the second", 10.0):
            order.append("second")
        thread.join()
        assert order == ["first", "second"]


@pytest.mark.parametrize("database", ["gallery.db"], indirect=True)
def test_a_lock_that_cannot_be_made_is_an_error_of_the_store(database: SqliteDatabase, tmp_path: Path) -> None:
    (tmp_path / "writer.lock").mkdir()
    with pytest.raises(StoreError, match="Is a directory"), WriterLock(database).held("me", 0.0):
        pass


@pytest.mark.parametrize("database", ["gallery.db"], indirect=True)
def test_a_lock_file_that_is_removed_while_one_waits_is_not_what_it_gets(
    database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, wait = WriterLock(database), WriterLock._wait

    def replaced(self: WriterLock, *values: Any) -> None:
        monkeypatch.setattr(WriterLock, "_wait", wait)
        (tmp_path / "writer.lock").unlink()
        wait(self, *values)

    monkeypatch.setattr(WriterLock, "_wait", replaced)
    with lock.held("me", 0.0):
        lock.check()
        with pytest.raises(GalleryError, match=r"\(me\)"), WriterLock(database).held("another", 0.0):
            pass


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("database", ["gallery.db"], indirect=True)
def test_a_holder_whose_lock_file_was_removed_commits_no_more(
    replaced: bool, database: SqliteDatabase, tmp_path: Path
) -> None:
    first, second = WriterLock(database), WriterLock(database)
    with first.held("the first", 0.0):
        first.check()
        (tmp_path / "writer.lock").unlink()
        if replaced:
            with second.held("the second", 0.0):
                second.check()
                with pytest.raises(GalleryError, match="was removed or replaced") as refusal:
                    first.check()
            assert "intact, without this commit" in str(refusal.value)
        with pytest.raises(GalleryError, match="was removed or replaced"):
            first.check()
    with pytest.raises(GalleryError):
        first.check()


@pytest.mark.parametrize("database", ["gallery.db"], indirect=True)
def test_a_second_writer_begins_after_the_last_commit_of_the_first(database: SqliteDatabase, tmp_path: Path) -> None:
    """The first found its lock in place, inside its transaction; the file is removed before it commits."""
    first, second = WriterLock(database), WriterLock(database)
    begun, seen = threading.Event(), []

    def write_second() -> None:
        begun.set()
        with second.held("the second", 0.0):
            seen.extend(numbers(database))

    with first.held("the first", 0.0), database.transaction():
        first.check()
        (tmp_path / "writer.lock").unlink()
        thread = threading.Thread(target=write_second)
        thread.start()
        while not second._handles:
            begun.wait(0.001)
        database.execute("INSERT INTO numbers VALUES (1)")
    thread.join()
    assert seen == [1]


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM numbers").fetchall()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("parameters", ["mode=ro", "readonly_shm=1"])
def test_a_file_that_was_opened_for_reading_only_is_written_again(
    parameters: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What SQLite does on its own where opening a file for writing fails once: the file, or its shared memory."""
    path = tmp_path / "gallery.db"
    made = SqliteDatabase(path, Disk())
    made.execute("CREATE TABLE numbers (number bigint PRIMARY KEY)")
    connect = sqlite3.connect
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as another, monkeypatch.context() as patched:  # fmt: skip
        assert another.stdout is not None
        another.stdout.readline()
        made.close()
        patched.setattr(
            sqlite3, "connect", lambda _, **more: connect(f"{path.as_uri()}?{parameters}", uri=True, **more)
        )
        database, neighbour = SqliteDatabase(path, Disk()), SqliteDatabase(path, Disk())
        assert numbers(database) == numbers(neighbour) == []
        patched.undo()
        for number in range(3):
            with database.transaction():
                database.execute("INSERT INTO numbers VALUES (?)", [number])
        another.communicate()
    assert numbers(database) == numbers(neighbour) == [0, 1, 2]


@pytest.mark.parametrize("database", ["gallery.db"], indirect=True)
def test_a_connection_that_failed_is_not_used_again(database: SqliteDatabase) -> None:
    [before] = database._idle
    with pytest.raises(StoreError, match="no such table"):
        database.execute("SELECT * FROM missing")
    assert before not in database._idle
    assert numbers(database) == []


@pytest.mark.parametrize("pragma", ["journal_mode = MEMORY", "journal_mode = DELETE", "synchronous = NORMAL"])
def test_nothing_is_written_that_a_power_failure_could_take(
    pragma: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = SqliteDatabase(tmp_path / "gallery.db", Disk())
    database.execute("CREATE TABLE numbers (number bigint)")
    database.close()
    connection = sqlite3.connect(tmp_path / "gallery.db", isolation_level=None)
    connection.execute(f"PRAGMA {pragma}")
    monkeypatch.setattr(SqliteDatabase, "_open", lambda _: connection)
    database = SqliteDatabase(tmp_path / "gallery.db", Disk())
    with pytest.raises(GalleryError, match="a power failure could take") as refusal, database.transaction():
        database.execute("INSERT INTO numbers VALUES (1)")
    assert "Nothing was written" in str(refusal.value)
    monkeypatch.undo()
    assert numbers(SqliteDatabase(tmp_path / "gallery.db", Disk())) == []


def test_a_database_that_another_process_closes_at_this_moment_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever closes it last removes its "-wal", also right after somebody looked for it."""
    path = tmp_path / "ledger.db"
    SqliteDatabase(path, Disk()).close()
    Path(f"{path}-wal").touch()
    exists = Path.exists

    def removed(self: Path) -> bool:
        found = exists(self)
        if self.name.endswith("-wal"):
            self.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "exists", removed)
    SqliteDatabase(path, Disk()).close()
