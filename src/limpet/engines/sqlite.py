"""Ledgers in files: SQLite, which survives a power failure, and a lock that ends with its process."""

from __future__ import annotations

import ctypes
import fcntl  # filelock keeps the handle, by which a removed file is noticed and the holder is written, to itself
import os
import re
import shlex
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

from limpet.engines.database import SQLITE
from limpet.engines.forks import alone, at_fork, unforked
from limpet.errors import GalleryError, LastingStoreError, LockedError, StoreError
from limpet.support.disk import Disk, regular

DATABASE = "gallery.db"
LOCK = "writer.lock"
ROOM, ROOM_TO_READ = 2**20, 2**16
"""Bytes that must be free before a write, and before a read, on disks with small blocks; see `refuse_full_disk`."""
_FULL = 2  # value of the pragma "synchronous"
_WRITE_NOTHING = "PRAGMA incremental_vacuum(0)"  # fails if SQLite opened the file read-only; BEGIN does not
_PAGES_AT_ONCE = 4096  # Ctrl-C is handled between them
_ROWS_AT_ONCE = 250  # rows per insert: half the time of single rows; more are no faster
_INSERT = re.compile(r"(INSERT .*VALUES )(\((?:\?, )*\?\))(.*)", re.DOTALL)
_LOCKING = "a file system with locks; over a network, one that passes them on"

_databases: WeakSet[SqliteDatabase] = WeakSet()
_inherited: dict[object, list[sqlite3.Connection]] = {}  # connections of the parent, in use when it forked


class Advice(NamedTuple):
    """Advice for messages about a database.

    Args:
        failing: What to do if it fails or is damaged.
        copying: Another way to copy it, after "; or"; empty if there is none.
    """

    failing: str
    copying: str = ""


OF_GALLERIES = Advice(
    "check the disk and the path. `limpet doctor` looks closer.", "; or take copies by `limpet gallery backup`"
)


class SqliteDatabase:
    """One SQLite file in write-ahead mode, synced at every commit; any thread may use it.

    A connection serves one thread at a time. A file has one connection for each concurrent thread, and a statement sees
    the last commit before it. ":memory:" has a single connection, so that other threads wait for the end of a
    transaction. A connection that failed is closed. No connection to a file survives a fork: both processes open their
    own.

    Args:
        path: The file, or ":memory:" for a database that disappears with this object.
    """

    dialect = SQLITE

    def __init__(self, path: Path | str, disk: Disk, advice: Advice = OF_GALLERIES) -> None:
        self.path, self.disk, self.advice, self._file = path, disk, advice, Path(path)
        self._in_ram = path == ":memory:"
        self._idle: list[sqlite3.Connection] = []
        self._used: set[sqlite3.Connection] = set()
        self._own = threading.local()
        self._single = threading.RLock() if self._in_ram else nullcontext()
        self._closed = False
        _databases.add(self)
        at_fork(self, before=SqliteDatabase._let_go, in_child=SqliteDatabase._start_anew)
        with self.translated(), self._connection():
            pass  # a file that is no database is detected now

    @property
    def read_only(self) -> bool:
        """Whether this process may not write to the folder of the file."""
        return not self._in_ram and not _writable(self._file)

    def must_be_writable(self) -> None:
        """Refuse to write if this process may only read.

        Raises:
            StoreError: The folder is read-only.
        """
        if self.read_only:
            raise LastingStoreError(
                f"'{self._file.parent}' is read-only for this process.",
                expected="a folder that it may write to; reading needs no such right",
                to_do="mount it for writing, change its rights, or copy it.",
                intact="It is intact.",
            )

    @contextmanager
    def _connection(self, *begin: str) -> Iterator[sqlite3.Connection]:
        """Yield a connection for this thread, the one of its transaction if it is in one.

        Args:
            *begin: Statements to run first, on a new connection if SQLite treats an older one as read-only.
        """
        own: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if own is not None:
            for statement in begin:
                own.execute(statement)
            yield own
            return
        with self._single, unforked(), self._unchanged():
            try:
                connection = self._take(begin)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
                    raise
                with alone():  # the file and its shared memory are reopened after the last connection is closed
                    for database in list(_databases):
                        database._let_go()
                    connection = self._take(begin)
            sound = False
            try:
                yield connection
                sound = True
            finally:
                self._give(connection, sound=sound)

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Refuse data from a file that changed meanwhile, if no lock shows who writes to it."""
        before = None if self._in_ram else _unshared(self._file)
        yield
        if before is not None and _unshared(self._file) != before:
            raise StoreError(
                f"'{self.path}' changed while it was read without locks, from a folder that is read-only here.",
                expected="a database that nobody writes to, or one whose writer has it open",
                to_do="ask again.",
            )

    def _take(self, begin: Sequence[str]) -> sqlite3.Connection:
        if self._closed:
            raise StoreError(f"The database '{self.path}' was closed.", to_do="open it again.")
        connection = self._idle.pop() if self._idle else self._open()
        self._used.add(connection)
        try:
            for statement in begin:
                connection.execute(statement)
        except BaseException:
            self._give(connection, sound=False)
            raise
        return connection

    def _give(self, connection: sqlite3.Connection, *, sound: bool) -> None:
        if connection not in self._used:
            return  # of the parent of a fork
        self._used.remove(connection)
        if self._in_ram or (sound and not self.read_only):
            self._idle.append(connection)
        else:
            connection.close()
        if self._closed:
            self._close_idle()

    def _open(self) -> sqlite3.Connection:
        key = self._key()
        if key in _inherited:
            raise StoreError(
                f"This process was forked in the middle of a transaction of '{self.path}', and cannot use it.",
                to_do="start processes with multiprocessing's 'spawn', or fork while nothing is written.",
            )
        if self.read_only:
            return connect_read_only(self._file)
        if not self._in_ram:
            _refuse_special(self._file)
            refuse_full_disk(self._file, ROOM)
            _refuse_shared(self._file, self.advice)
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
        try:
            [mode] = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal" and not self._in_ram:
                raise sqlite3.OperationalError(f"it stays in journal mode '{mode}', which 'wal' was to replace")
            connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _key(self) -> object:
        return self if self._in_ram else os.path.realpath(self.path)

    def _let_go(self) -> None:
        """Close unused connections; a database in RAM has to stay."""
        if not self._in_ram:
            self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _start_anew(self) -> None:
        """Start without connections in a forked child; one in use is never used or closed."""
        self._own = threading.local()
        self._single = threading.RLock() if self._in_ram else nullcontext()
        for connection in self._used:
            _inherited.setdefault(self._key(), []).append(connection)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))  # it would be closed when the process ends
        self._used = set()

    def translated(self) -> AbstractContextManager[None]:
        """Convert errors of SQLite, and of the disk below it, to those of limpet."""
        return translated(self.path, self.advice)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        with self.translated(), self._connection() as connection:
            return connection.execute(statement, values).fetchall()

    def execute_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Run one statement for many rows of values; inserts take many rows at once."""
        insert = _INSERT.fullmatch(statement)
        with self.translated(), self._connection() as connection:
            if insert is None:
                connection.executemany(statement, values)
                return
            before, row, after = insert.groups()
            rest = iter(values)
            while rows := list(islice(rest, _ROWS_AT_ONCE)):
                many = f"{before}{', '.join([row] * len(rows))}{after}"
                connection.execute(many, list(chain.from_iterable(rows)))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a transaction, durable when the block ends without an error.

        Raises:
            StoreError: The folder is read-only, or the disk fails.
            GalleryError: SQLite's settings do not make commits durable.
        """
        self.must_be_writable()
        if not self._in_ram:
            refuse_full_disk(self._file, ROOM)
        with self._begun("BEGIN IMMEDIATE", _WRITE_NOTHING):
            self._must_be_durable()
            yield
            with self.translated():
                self.disk.reached("database.commit")
            self.execute("COMMIT")
            if not self._in_ram:
                self.disk.database_synced(self._file)

    def _must_be_durable(self) -> None:
        [(mode,)], [(synced,)] = self.execute("PRAGMA journal_mode"), self.execute("PRAGMA synchronous")
        if not self._in_ram and (mode != "wal" or synced < _FULL):
            raise GalleryError(
                f"The database '{self.path}' is in journal mode '{mode}' at synchronous={synced}: "
                "a power failure could take what was acknowledged, or all of it.",
                expected=f"journal mode 'wal' at synchronous={_FULL}, as limpet sets them",
                to_do="close other programs that have it open; keep it on a local file system that works.",
                intact="Nothing was written.",
            )

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let several statements see the same commit."""
        with self._begun("BEGIN"):
            yield
            self.execute("COMMIT")

    def wait_for_commits(self) -> None:
        """Wait for all transactions of any process that were open at the time of the call."""
        self.must_be_writable()
        with self._begun("BEGIN IMMEDIATE", _WRITE_NOTHING):
            pass

    def copy_to(self, path: Path, on_bytes: Callable[[int], None]) -> None:
        """Copy the database as this thread's transaction sees it into a new file, and check it; others may write.

        Raises:
            StoreError: The disk is full, or the copy is damaged.
        """
        [(page,)], done = self.execute("PRAGMA page_size"), 0

        def told(_: int, remaining: int, pages: int) -> None:
            nonlocal done
            on_bytes((pages - remaining - done) * page)
            done = pages - remaining

        with translated(path), closing(sqlite3.connect(path)) as copy, self._connection() as connection:
            connection.backup(copy, pages=_PAGES_AT_ONCE, progress=told)
            [(verdict,), *_] = copy.execute("PRAGMA quick_check(1)").fetchall()
            if verdict != "ok":
                raise sqlite3.DatabaseError(f"the copy of '{self.path}' is damaged, {verdict}")
            copy.execute("PRAGMA journal_mode = WAL").fetchall()

    def exclusive(self, name: str, who: str, kept: str, timeout: float) -> AbstractContextManager[None]:
        """Let one process at a time run such a block, whatever its name; a process that ends releases it.

        Raises:
            LockedError: Another process held it for longer.
        """
        return WriterLock(self, f"{self._file.name}.lock", kept).held(who, timeout)

    @contextmanager
    def _begun(self, *begin: str) -> Iterator[None]:
        """Keep one connection for this thread; what is not committed is rolled back."""
        with ExitStack() as stack:
            with self.translated():
                connection = stack.enter_context(self._connection(*begin))
            self._own.connection = connection
            try:
                yield
            finally:
                self._own.connection = None
                if connection in self._used and connection.in_transaction:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close every connection; one in use is closed after its statement."""
        self._closed = True
        self._close_idle()


def refuse_full_disk(path: Path, room: int) -> None:
    """Refuse a database if the disk may be too full for the index of its log.

    SQLite writes one byte of every 4 KiB of that index and maps the rest into memory. With smaller blocks, the file
    system looks for room only when the rest is touched, and on a full disk SIGBUS then ends the process.

    Args:
        path: The database.
        room: Bytes that must be free if blocks are smaller than 4 KiB.

    Raises:
        StoreError: Fewer bytes are free.
    """
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return  # SQLite reports the error
    free = (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail) * disk.f_frsize
    if disk.f_frsize < 4096 and free < room:
        raise StoreError(
            f"The disk of '{path}' is full: {free:,} bytes are free.",
            expected=f"at least {room:,} bytes",
            to_do="free some room, then repeat.",
        )


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Return a connection that changes neither the database nor its folder; use it inside `unforked`.

    Readers share a file with writers through "-shm", which must exist or be created. If "-shm" is missing and the
    folder is read-only, there is no writer, and the file is read without locks.

    Raises:
        StoreError: Commits are pending in "-wal" and cannot be read without writing; or see `refuse_full_disk`.
    """
    _refuse_special(path)
    refuse_full_disk(path, ROOM_TO_READ)
    alone_there = _unshared(path)
    if alone_there is not None and alone_there[-1]:
        raise StoreError(
            f"The last commits of '{path}' are in '{path.name}-wal', and '{path.name}-shm' is missing.",
            expected="both, or a database that was closed by its last writer",
            to_do="open it once where its folder may be written, such as in a copy.",
        )
    url = f"{path.absolute().as_uri()}?{'mode=ro' if alone_there is None else 'immutable=1'}"
    return sqlite3.connect(url, uri=True, timeout=30, isolation_level=None, check_same_thread=False)


def _refuse_special(path: Path) -> None:
    """Refuse a pipe or a device in the place of a file that SQLite would open.

    Raises:
        OSError: The file is one.
    """
    for suffix in ("", "-wal", "-shm", "-journal"):
        regular(f"{path}{suffix}")


def _refuse_shared(path: Path, advice: Advice) -> None:
    """Refuse to write to a database with a hard link in another folder.

    Each name has its own "-wal" and lock, so that writes under one name would be lost under the other.

    Raises:
        LastingStoreError: The file has another name.
    """
    links = 1
    for one in (path, path.with_name(f"{path.name}-wal")):
        with suppress(FileNotFoundError):  # the last process that closes the database removes the second file
            links = max(links, one.stat().st_nlink)
    if links > 1:
        folder = path.absolute().parent
        raise LastingStoreError(
            f"'{path}' is one file with {links} names, as `cp -l` or a backup by hard links makes it: what is written "
            "by one name, the other loses.",
            expected="a database that this folder alone has",
            to_do="end all processes that use either, make a copy with files of its own, "
            f"`{shlex.join(['cp', '-r', str(folder), f'{folder}.own'])}`, and open that{advice.copying}.",
            intact="Nothing was changed.",
        )


def _writable(path: Path) -> bool:
    return os.access(path.parent, os.W_OK, effective_ids=True) or not path.parent.exists()


def _unshared(path: Path) -> tuple[int, ...] | None:
    """Return the state of a file that is read without locks, last the size of its "-wal"; None if locks work."""
    if _writable(path):
        return None
    wal, shm = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    if wal.exists() and shm.exists():
        return None
    about = path.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns, wal.stat().st_size if wal.exists() else 0


_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@contextmanager
def translated(where: Path | str, advice: Advice = OF_GALLERIES) -> Iterator[None]:
    """Convert errors of SQLite, and of the disk below it, to those of limpet."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        raise (LastingStoreError if code in _DAMAGED else StoreError)(
            f"The database '{where}' fails: {error}.",
            expected="a readable database with room to write",
            to_do=advice.failing,
        ) from error


class WriterLock:
    """A file that one process at a time may lock; the operating system releases it when that process ends.

    Forked children do not keep it. If the file is removed, another writer may lock a new one: the first then commits no
    more, and the second begins after its last commit.

    Args:
        database: Database to write; the file is next to it, and names the holder.
        kept: Content of the database, for messages.
    """

    def __init__(self, database: SqliteDatabase, name: str = LOCK, kept: str = "this gallery") -> None:
        self.path, self._kept = Path(database.path).with_name(name), kept
        self._database = database
        self._handles: set[int] = set()
        self._holding = -1
        at_fork(self, in_child=WriterLock._start_anew)

    def _start_anew(self) -> None:
        """Close the parent's handles in a forked child: every process with an open handle holds the lock."""
        for handle in self._handles:
            os.close(handle)
        self._handles, self._holding = set(), -1

    @contextmanager
    def held(self, who: str, timeout: float) -> Iterator[None]:
        """Hold the lock.

        Raises:
            LockedError: Another process holds it for longer than ``timeout`` seconds.
            StoreError: The file cannot be written.
        """
        self._database.must_be_writable()
        until = time.monotonic() + timeout
        while True:
            with self._opened() as handle:
                self._wait(handle, who, until)
                with self._translated():
                    if not self._is_named(handle):
                        continue  # removed while this process waited
                    self._holding = handle
                    self._database.wait_for_commits()
                    os.ftruncate(handle, 0)
                    os.pwrite(handle, holder(who).encode(), 0)
                yield
                return

    @contextmanager
    def _opened(self) -> Iterator[int]:
        handles = self._handles
        with self._translated(), unforked():
            handle = os.open(regular(self.path), os.O_RDWR | os.O_CREAT, 0o644)
            handles.add(handle)
        try:
            yield handle
        finally:
            if handles is self._handles:  # otherwise this is a forked child, which closed it
                if self._holding == handle:
                    self._holding = -1
                    with suppress(OSError):
                        os.ftruncate(handle, 0)
                        fcntl.flock(handle, fcntl.LOCK_UN)  # a child may not have closed its handle yet
                with unforked():
                    handles.remove(handle)
                    os.close(handle)

    def _is_named(self, handle: int) -> bool:
        """Say whether the locked file is still the one that others would lock."""
        try:
            return os.path.samestat(os.fstat(handle), self.path.stat())
        except FileNotFoundError:
            return False

    def check(self) -> None:
        """Refuse to continue if the file was removed; called inside the transaction that is to be committed.

        Raises:
            GalleryError: The file was removed, or the lock is not held.
        """
        with self._translated():
            if self._holding < 0 or not self._is_named(self._holding):
                raise GalleryError(
                    f"The lock file '{self.path}' was removed or replaced while this process was writing.",
                    expected="nobody but its writer to touch it; another may be writing by now",
                    to_do="write again; leave the file alone.",
                    intact="What was committed before is intact, without this commit.",
                )

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self.path, self._database.advice)

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

    def _refusal(self, handle: int, who: str) -> LockedError:
        there = os.pread(handle, 1000, 0).decode(errors="replace")
        return writer_refused(who, there or "another process", self._kept)


def holder(who: str) -> str:
    """Describe this process as a writer, for waiting processes."""
    return f"process {os.getpid()} on {socket.gethostname()} ({who}), since {time.strftime('%Y-%m-%d %H:%M:%S')}"


def writer_refused(who: str, found: str, kept: str = "this gallery") -> LockedError:
    """Build the error for a second writer."""
    return LockedError(
        f"Cannot write ({who}): {found} is writing to {kept}.",
        to_do="wait until it is done, or end it: its lock ends with it.",
    )
