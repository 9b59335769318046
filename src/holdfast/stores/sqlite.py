"""The ledger of stores that are files: SQLite, which survives a power failure, and a lock that ends with a process."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from holdfast.errors import GalleryError, StoreError
from holdfast.stores.disk import Disk

DATABASE = "gallery.db"
LOCK = "writer.lock"
_LOCKING = "a file system with locks; over a network, one that passes them on. The gallery is intact"


class SqliteDatabase:
    """One SQLite file, in write-ahead mode, synced at every commit; any thread may use it.

    A connection serves one thread at a time. A file has as many as threads ask at once, and a statement sees the last
    commit before it; ":memory:" has one, so that other threads wait for the end of a transaction.

    Args:
        path: The file, or ":memory:" for one that vanishes with this object.
        disk: Told of every commit.
    """

    text_type = "text"
    keeps_commits = True

    def __init__(self, path: Path | str, disk: Disk) -> None:
        self.path, self.disk = path, disk
        self._idle: list[sqlite3.Connection] = []
        self._own = threading.local()
        self._single = threading.RLock() if path == ":memory:" else nullcontext()
        self._closed = False
        with self._connection():
            pass  # a file that is no database is found now

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Give this thread a connection, the one of its transaction if it is in one."""
        own: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if own is not None:
            yield own
            return
        with self._single:
            connection = self._take()
            try:
                yield connection
            finally:
                self._give(connection)

    def _take(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreError(f"The gallery '{self.path}' was closed.", to_do="open it again.")
        try:
            return self._idle.pop()
        except IndexError:
            return self._open()

    def _give(self, connection: sqlite3.Connection) -> None:
        if self._closed or connection.in_transaction:
            connection.close()
        else:
            self._idle.append(connection)

    def _open(self) -> sqlite3.Connection:
        with translated(self.path):
            connection = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
            except sqlite3.Error:
                connection.close()
                raise
            return connection

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        with translated(self.path), self._connection() as connection:
            return connection.execute(statement, values).fetchall()

    def execute_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Run one statement for many rows of values."""
        with translated(self.path), self._connection() as connection:
            connection.executemany(statement, values)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; durable on leaving it without an error."""
        with self._begun("BEGIN IMMEDIATE"):
            yield
            with translated(self.path):
                self.disk.reached("database.commit")
            self.execute("COMMIT")
            if self.path != ":memory:" and self.execute("PRAGMA synchronous")[0][0] >= 2:
                self.disk.database_synced(Path(self.path))

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let several statements see the same commit."""
        with self._begun("BEGIN"):
            yield
            self.execute("COMMIT")

    @contextmanager
    def _begun(self, statement: str) -> Iterator[None]:
        """Keep one connection for this thread; what is not committed is rolled back."""
        with self._connection() as connection:
            with translated(self.path):
                connection.execute(statement)
            self._own.connection = connection
            try:
                yield
            finally:
                self._own.connection = None
                if connection.in_transaction:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")

    def among(self, column: str, ids: Sequence[str]) -> tuple[str, Any]:
        """Return a condition that a column is one of these ids, and the value for it."""
        return f"{column} IN (SELECT value FROM json_each(?))", json.dumps(list(ids))

    def close(self) -> None:
        """Close every connection; one in use is closed after its statement."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()


@contextmanager
def translated(where: Path | str) -> Iterator[None]:
    """Turn errors of SQLite, and of the disk below it, into those of holdfast."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StoreError(
            f"The database '{where}' fails: {error}.",
            expected="a readable database with room to write, as `holdfast gallery create` makes it",
            to_do="check the disk and the path; what was acknowledged is intact. "
            "`holdfast gallery doctor` looks closer.",
        ) from error


class WriterLock:
    """A file that one process at a time may lock; the operating system lets go of it when that process ends.

    Args:
        path: The file; it says who holds it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def held(self, who: str, timeout: float) -> Iterator[None]:
        """Hold the lock.

        Raises:
            GalleryError: Somebody else holds it for longer than ``timeout`` seconds.
            StoreError: The file cannot be written.
        """
        with translated(self.path):
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._wait(handle, who, time.monotonic() + timeout)
            try:
                with translated(self.path):
                    os.ftruncate(handle, 0)
                    os.pwrite(handle, holder(who).encode(), 0)
                yield
            finally:
                with suppress(OSError):
                    os.ftruncate(handle, 0)
        finally:
            os.close(handle)

    def _wait(self, handle: int, who: str, until: float) -> None:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > until:
                    raise self._refusal(handle, who) from None
                time.sleep(0.01)
            except OSError as error:
                raise StoreError(f"The file '{self.path}' cannot be locked: {error}.", _LOCKING) from error

    def _refusal(self, handle: int, who: str) -> GalleryError:
        return writer_refused(who, os.pread(handle, 1000, 0).decode(errors="replace") or "another process")


def holder(who: str) -> str:
    """Describe this process as a writer, for others that wait."""
    return f"process {os.getpid()} on {socket.gethostname()} ({who}), since {time.strftime('%Y-%m-%d %H:%M:%S')}"


def writer_refused(who: str, found: str) -> GalleryError:
    """Build the error for a second writer.

    Args:
        who: What it wanted to write.
        found: The one that writes, see `holder`.
    """
    return GalleryError(
        f"Cannot write ({who}): {found} is writing to this gallery.",
        expected="one writer at a time",
        to_do="wait until it is done, or end it: its lock ends with it. The gallery is intact.",
    )
