"""A PostgreSQL database by psycopg; connections use transactions only, so that a pooler may be in between."""

from __future__ import annotations

import logging
import os
import random
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar
from weakref import WeakSet

import psycopg
from pgvector.psycopg.vector import register_vector_info
from psycopg import errors, sql
from psycopg.pq import TransactionStatus
from psycopg.types import TypeInfo

from limpet.engines.database import POSTGRES
from limpet.engines.forks import at_fork, unforked
from limpet.engines.postgres.address import Connection, PostgresAddress
from limpet.engines.sqlite import writer_refused
from limpet.errors import GalleryError, LastingStoreError, LockedError, StoreError, reason
from limpet.support.disk import Disk

Result = TypeVar("Result")
Row = tuple[Any, ...]

logging.getLogger("psycopg").addHandler(logging.NullHandler())  # it would repeat raised errors on standard error
RETRIES = 8
"""Number of retries, with growing pauses, while the database is unreachable."""
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"  # after waiting for a lock, earlier commits are visible
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
EXTENSION = """(SELECT quote_ident(nspname) FROM pg_catalog.pg_extension
    JOIN pg_catalog.pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector')"""
"""The schema of pgvector, in SQL."""
OWN_PATH = "current_setting('search_path')"
"""The schemas of the role's search path, in SQL."""
WRITTEN_OUT = {
    "datestyle": "ISO", "extra_float_digits": "1", "timezone": "UTC", "intervalstyle": "postgres",
    "bytea_output": "hex",
}  # fmt: skip
"""Settings that determine how dates, numbers and bytes are written as texts."""

_OLDEST_PGVECTOR = 0, 8  # continues an index scan until enough rows match a condition
_LONGEST_PAUSE = 8.0  # seconds between two attempts
_KEPT_CONNECTIONS = 8
_INSERT = re.compile(r"INSERT INTO (\w+) VALUES \((?:\?, )*\?\)")
_WRITTEN_OUT = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in WRITTEN_OUT.items())
_SETTINGS = f"""
SELECT set_config('search_path', {{path}}, true), set_config('lock_timeout', '{{timeout}}ms', true),
    set_config('statement_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true),
    set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true),
    set_config('jit', 'off', true), {_WRITTEN_OUT}
"""
_TIMEOUTS = ("statement_timeout", "lock_timeout")
_HOLDER = """
SELECT concat_ws(' ', 'process', pid, 'of the database', 'for ' || nullif(application_name, ''),
    'at ' || client_addr)
FROM pg_locks JOIN pg_stat_activity USING (pid), {key} AS key
WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND datname = current_database()
    AND (classid, objid) = (((key >> 32) & 4294967295)::oid, (key & 4294967295)::oid)
"""


@dataclass
class _Use:
    """Use of a connection by a thread.

    Args:
        between: State before the next transaction: none has begun ("idle"), or `transaction` commits one to begin the
            next ("chained"); None within a transaction.
        pipeline: Pipeline in which statements are sent, if any.
        kept: Names of the tables that this transaction has read, and so keeps from being removed.
    """

    connection: Connection
    between: Literal["idle", "chained"] | None
    pipeline: psycopg.Pipeline | None = None
    kept: set[str] = field(default_factory=set)


class PostgresDatabase:
    """A PostgreSQL database; any thread may use it.

    A connection serves one thread at a time; a broken one is replaced at the next call. All work is done in
    transactions, with settings that end with them: a pooler may use another server session for each of them.

    Args:
        schema: Schema of the gallery, in which names are looked up. Without one, a standby is refused.
        path: In SQL, the schemas in which names are looked up if there is no gallery; that of pgvector by default.
    """

    dialect = POSTGRES

    def __init__(self, address: PostgresAddress, *, schema: str = "", path: str = "", disk: Disk | None = None) -> None:
        self.address, self.disk, self._url = address, disk or Disk(), address.url
        self._schema = schema
        own = [f"quote_ident('{schema}')"] if schema else []
        self.path = path or f"coalesce(nullif(concat_ws(', ', {', '.join([*own, EXTENSION])}), ''), 'pg_catalog')"
        self._reading_will_do = bool(schema or path)
        self._opened: WeakSet[Connection] = WeakSet()
        self._idle: list[Connection] = []
        self._own = threading.local()
        self._vector: TypeInfo | None = None
        self._closed = False
        at_fork(self, in_child=PostgresDatabase._break_connections)

    def _break_connections(self) -> None:
        """In a forked child, drop connections: the parent continues to use them, and its server must not notice."""
        broken, other_end = socket.socketpair()
        with broken, other_end:
            for connection in self._opened:
                if not connection.closed:
                    os.dup2(broken.fileno(), connection.fileno(), inheritable=False)
                    connection.close()

    def take(self) -> Connection:
        """Return a connection for exclusive use; `give` returns it to the pool."""
        while not self._closed:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._open()
            if _alive(connection):
                return connection
            connection.close()
        raise StoreError(f"The database '{self.address.url}' was closed.", to_do="open it again.")

    def give(self, connection: Connection) -> None:
        """Return a connection to the pool; close it if it is broken or inside a transaction."""
        idle = connection.info.transaction_status == TransactionStatus.IDLE
        if self._closed or not idle or len(self._idle) >= _KEPT_CONNECTIONS:
            connection.close()
        else:
            self._idle.append(connection)

    def _open(self) -> Connection:
        with translated(self._url):
            with unforked():
                connection = self.address.connect(autocommit=True, prepare_threshold=None)
                self._opened.add(connection)
            try:
                if not self._reading_will_do:
                    _refuse_standby(connection)
                if self._vector is None:
                    with self._begun(connection, BEGIN):
                        self._vector = TypeInfo.fetch(connection, "vector")
                if self._vector is not None:
                    register_vector_info(connection, self._vector)
            except BaseException:
                connection.close()
                raise
            return connection

    @property
    def _use(self) -> _Use | None:
        use: _Use | None = getattr(self._own, "use", None)
        return use

    @contextmanager
    def _used(self, use: _Use) -> Iterator[_Use]:
        before, self._own.use = self._use, use
        try:
            yield use
        finally:
            self._own.use = before

    def using(self, connection: Connection, *, between: bool = False) -> AbstractContextManager[_Use]:
        """Run all statements of this thread on one connection, in which a transaction has begun."""
        return self._used(_Use(connection, "chained" if between else None))

    @contextmanager
    def _held(self) -> Iterator[_Use]:
        if self._use is not None:
            yield self._use
            return
        connection = self.take()
        try:
            with self._used(_Use(connection, "idle")) as use:
                yield use
        finally:
            self.give(connection)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Yield the connection that this thread is using, or one with a transaction of its own."""
        if self._use is not None and self._use.between != "idle":
            yield self._use.connection
            return
        with self._outermost(0.0) as (connection, _):
            yield connection

    @contextmanager
    def transaction(self, lock_timeout: float = 0.0) -> Iterator[Callable[[], bool]]:
        """Run a transaction, durable when the block ends without an error; a nested one is part of the outer one.

        Args:
            lock_timeout: Seconds to wait for a lock; no limit if 0.

        Returns:
            Function that returns afterwards whether the commit is confirmed; in a `pipeline`, after that has ended.

        Raises:
            LockedError: A lock was not available in that time.
            StoreError: The database fails, or refuses.
        """
        if self._use is not None and self._use.between is None:
            yield lambda: False
            return
        with self._outermost(lock_timeout) as (_, committed):
            yield committed
            with translated(self._url):
                self.disk.reached("database.commit")

    @contextmanager
    def _outermost(self, lock_timeout: float) -> Iterator[tuple[Connection, Callable[[], bool]]]:
        ended: list[psycopg.Cursor[Row]] = []
        with self._held() as use:
            connection, chained = use.connection, use.between == "chained"
            if not chained:
                with translated(self._url):
                    self._begin(connection, lock_timeout, use.pipeline)
            try:
                with self._used(_Use(connection, None, use.pipeline)):
                    yield connection, lambda: bool(ended) and ended[0].statusmessage == "COMMIT"
                end = self.started("COMMIT AND CHAIN") if chained else b"COMMIT"
                ended.append(self._commit(connection, end, answered=use.pipeline is None))
            except BaseException:
                if use.pipeline is None:
                    _roll_back(connection, self.started("ROLLBACK AND CHAIN") if chained else b"ROLLBACK")
                raise

    def _begin(self, connection: Connection, lock_timeout: float, pipeline: psycopg.Pipeline | None) -> None:
        begin = BEGIN if self._reading_will_do else f"{BEGIN} READ WRITE"
        started = self.started(begin, lock_timeout)
        for statement in started.split(b";") if pipeline else (started,):
            connection.execute(statement)

    def _commit(self, connection: Connection, statement: bytes, *, answered: bool) -> psycopg.Cursor[Row]:
        with translated(self._url):
            try:
                done = connection.execute(statement)
            except psycopg.Error as error:
                if not connection.closed:
                    raise
                raise StoreError(
                    f"The connection to '{self.address.url}' was lost while it committed: {reason(error)}.",
                    to_do="look whether this write is there before you repeat it: it is there whole, or not at all.",
                    intact="What was acknowledged before is intact.",
                ) from error
        if answered and done.statusmessage != "COMMIT":
            raise StoreError(
                f"The database '{self.address.url}' rolled back instead of committing.",
                to_do="try again; nothing of this commit was written.",
            )
        return done

    @contextmanager
    def pipeline(self) -> Iterator[None]:
        """Send statements of transactions without waiting for responses: in one round trip, if none is needed.

        Results of `send` are available afterwards. Nothing runs after a failing statement: transactions that were
        committed before it stay committed.

        Raises:
            StoreError: See `transaction`.
        """
        with self._held() as use, translated(self._url):
            try:
                sent = use.connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext()
                with sent as pipeline, self._used(_Use(use.connection, "idle", pipeline)):
                    yield
            finally:
                _roll_back(use.connection)

    @property
    def kept(self) -> set[str] | None:
        """Names of the tables that this transaction has read, and so keeps from being removed; None outside of one."""
        return self._use.kept if self._use is not None and self._use.between is None else None

    def send(self, statement: str, values: Sequence[Any] = ()) -> Callable[[], list[Row] | None]:
        """Run one statement within a transaction, whose rows are not needed yet.

        Returns:
            Function that returns the rows; in a `pipeline`, after that has ended: None if the statement did not run.
        """
        with self.connection() as connection, translated(self._url):
            cursor = connection.execute(statement.encode(), values or None)
        return lambda: cursor.fetchall() if cursor.description else None

    def rows(self, statement: str, values: Sequence[Any] = (), *, binary: bool = False) -> list[Row]:
        """Run one statement, with ``%s`` for values, and return its rows, if it has any."""
        with self.connection() as connection, translated(self._url):
            cursor = connection.execute(statement.encode(), values or None, binary=binary)
            if self._use is not None and self._use.pipeline is not None:
                self._use.pipeline.sync()
            return cursor.fetchall() if cursor.description else []

    def count(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run one statement, with ``%s`` for values, and return the number of rows that it changed."""
        with self.connection() as connection, translated(self._url):
            return int(connection.execute(statement.encode(), values or None).rowcount)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement, with ``?`` for values, and return its rows; outside of a transaction, in its own."""
        return self.rows(statement.replace("?", "%s") if values else statement, values)

    def execute_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Run one statement, with ``?`` for values, for many rows of values; plain inserts use COPY."""
        insert = _INSERT.fullmatch(statement)
        if insert is not None:
            with self.copying(f"COPY {insert[1]} FROM STDIN") as copy:
                for row in values:
                    copy.write_row(row)
            return
        with self.connection() as connection, translated(self._url), connection.cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s").encode(), values)

    @contextmanager
    def copying(self, statement: str) -> Iterator[psycopg.Copy]:
        """Yield the object that reads, or writes, the rows of a COPY."""
        with (
            self.connection() as connection,
            translated(self._url),
            connection.cursor() as cursor,
            cursor.copy(statement.encode()) as copy,
        ):
            yield copy

    def alone(self, statement: str) -> None:
        """Run one statement that cannot run in a transaction, and that qualifies all names with their schema.

        It may take hours: the role's timeouts are disabled, except behind a pooler, which shares our session.
        """
        connection = self.take()
        try:
            with translated(self._url):
                [(own,)] = connection.execute(b"SELECT pg_backend_pid()").fetchall()
                direct = own == connection.info.backend_pid
                for setting in _TIMEOUTS if direct else ():
                    connection.execute(f"SELECT set_config('{setting}', '0', false)".encode())
                try:
                    connection.execute(statement.encode())
                finally:
                    for setting in _TIMEOUTS if direct and not connection.closed else ():
                        connection.execute(f"RESET {setting}".encode())
        finally:
            self.give(connection)

    @contextmanager
    def exclusive(self, name: str, who: str, kept: str, timeout: float) -> Iterator[None]:
        """Let one session at a time run a block of this name; a session that ends releases it.

        The gallery's schema is part of the name, which processes that know it by other URLs share. The block's
        statements on this thread run in transactions that follow each other without a gap, see `ConnectionLock`.

        Raises:
            LockedError: Another session held it for longer.
        """
        key = f"hashtextextended({literal(f'{name} {self._schema}')}, 0)"
        connection, end = self.take(), "ROLLBACK"
        try:
            try:
                with translated(self._url):
                    self._begin(connection, timeout, None)
                    connection.execute(f"SELECT pg_advisory_lock({key})".encode())  # the session's: outlives commits
                    end = f"ROLLBACK AND CHAIN; SELECT pg_advisory_unlock({key}); COMMIT"
                    connection.execute(self.started("COMMIT AND CHAIN"))
            except LockedError:
                found = self.execute(_HOLDER.format(key=key))
                raise writer_refused(who, found[0][0] if found else "another process", kept) from None
            with self.using(connection, between=True):
                yield
        finally:
            self.finish(connection, end)

    def finish(self, connection: Connection, statement: str) -> None:
        """Run a last statement and return a connection to the pool; close it on failure."""
        try:
            connection.execute(statement.encode())
        except BaseException as error:
            connection.close()  # then the server ends the transaction and releases the lock
            if not isinstance(error, psycopg.Error):
                raise
        finally:
            self.give(connection)

    def patiently(self, attempt: Callable[[], Result], attempts: int, *, pause: float = 0.2) -> Result:
        """Retry with growing pauses while a lock is unavailable; no other session waits for ours during a pause.

        Raises:
            LockedError: The lock was unavailable in every attempt.
        """
        for number in range(attempts):
            try:
                return attempt()
            except LockedError:
                if number == attempts - 1:
                    raise
                time.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(2 * pause, _LONGEST_PAUSE)
        raise AssertionError("at least one attempt")  # pragma: no cover

    def reached(self, call: Callable[[], Result], retries: int, pause: float = 0.5) -> Result:
        """Retry with growing pauses while the database is unreachable, but not if it refuses."""
        for _ in range(retries):
            try:
                return call()
            except (LastingStoreError, LockedError):
                raise
            except StoreError:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        return call()

    def started(self, statement: str, lock_timeout: float = 0.0) -> bytes:
        """Return a statement that starts a transaction, with its settings."""
        settings = _SETTINGS.format(path=self.path, timeout=round(1000 * lock_timeout))
        return f"{statement};{settings}".encode()

    @contextmanager
    def streaming(self, snapshot: str = "") -> Iterator[Connection]:
        """Yield a connection of its own with one snapshot, for long reads.

        Args:
            snapshot: Snapshot that another connection exported; the current one when empty.
        """
        moment = f"; SET TRANSACTION SNAPSHOT {literal(snapshot)}" if snapshot else ""
        connection = self.take()
        try:
            with self._begun(connection, SNAPSHOT + moment):
                yield connection
        finally:
            self.give(connection)

    @contextmanager
    def _begun(self, connection: Connection, statement: str) -> Iterator[None]:
        with translated(self._url):
            connection.execute(self.started(statement))
        try:
            yield
        finally:
            _roll_back(connection)

    def close(self) -> None:
        """Close every connection; one in use is closed when it is given back."""
        self._closed = True
        self.forget()

    def forget(self) -> None:
        """Close the idle connections; new connections see what changed in the database."""
        self._vector = None
        while self._idle:
            self._idle.pop().close()


def check_extension(database: PostgresDatabase) -> None:
    """Refuse a pgvector that is too old.

    Raises:
        GalleryError: pgvector is missing, or lacks features that searches need.
    """
    found = database.rows("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    version = str(found[0][0]) if found else "none"
    if not found or tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < _OLDEST_PGVECTOR:
        raise GalleryError(
            f"The database of '{database.address.url}' has pgvector {version}.",
            expected=f"{'.'.join(map(str, _OLDEST_PGVECTOR))} or newer",
            to_do="install it on the server, then ALTER EXTENSION vector UPDATE in the database.",
            intact="Nothing was changed.",
        )


def _roll_back(connection: Connection, statement: bytes = b"ROLLBACK") -> None:
    if connection.info.transaction_status != TransactionStatus.IDLE:
        with suppress(psycopg.Error):
            connection.execute(statement)


def _alive(connection: Connection) -> bool:
    """Say whether the server is still connected; a stopped one has closed its end, which is then readable."""
    if connection.closed:
        return False
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return not waiting.poll(0)


def _refuse_standby(connection: Connection) -> None:
    [(standby,)] = connection.execute(b"SELECT pg_is_in_recovery()").fetchall()
    if standby:
        raise GalleryError(
            "This server is a standby, which cannot be written to.",
            to_do="name the primary in the URL; what is done there arrives here by itself. Nothing was changed.",
        )


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Convert errors of psycopg, and of the network below it, to those of limpet."""
    try:
        yield
    except (errors.LockNotAvailable, errors.DeadlockDetected) as error:
        raise locked() from error
    except (psycopg.Error, OSError) as error:
        expected, to_do = next((advice for kind, *advice in _ADVICE if isinstance(error, kind)), _OTHERWISE)
        kind = LastingStoreError if isinstance(error, _LASTING) else StoreError
        raise kind(
            f"The database '{where}' fails: {reason(error)}.",
            expected,
            to_do,
            intact="What was committed is intact.",
        ) from error


_LASTING = (
    errors.DataCorrupted, errors.IndexCorrupted, psycopg.ProgrammingError, psycopg.DataError, psycopg.IntegrityError,
    psycopg.NotSupportedError,
)  # fmt: skip
_OTHERWISE = ("", "correct that and repeat the same command, which goes on.")
_ADVICE: list[tuple[type[Exception], str, str]] = [
    (errors.DiskFull, "room to write", "make room on the server's disk, then repeat."),
    (errors.InsufficientPrivilege, "a role with the rights for it",
     "let the database's owner grant them, or create the gallery's schema and CREATE EXTENSION vector."),
    (errors.ReadOnlySqlTransaction, "a server that accepts writes", "name the primary, not a standby."),
    (errors.FeatureNotSupported, "a server with the extension 'vector' (pgvector) installed",
     "install pgvector on the server, if that is what it lacks."),
    (errors.UndefinedTable, "a table that is there",
     "`limpet upgrade status` shows what is; another process may have removed it just now."),
    (errors.DataCorrupted, "data that the server can read", "`limpet doctor` looks closer."),
    (errors.IndexCorrupted, "an index that the server can read", "`limpet doctor` looks closer."),
    (errors.QueryCanceled, "a statement that is done before others have waited for it too long",
     "repeat the same command when the server has less to do."),
    (psycopg.OperationalError, "a PostgreSQL server that answers",
     "start the server, or check address, user and password, then repeat the same command, which goes on."),
]  # fmt: skip


def locked() -> LockedError:
    """Return the error for an unavailable lock."""
    return LockedError(
        "The table is in use by a long transaction or statement: its lock was not to be had in time.",
        to_do="find it in pg_stat_activity, or repeat later.",
        intact="Nothing was changed.",
    )


def quoted(*names: str) -> str:
    """Return a name in SQL.

    >>> quoted("shop", "My items")
    '"shop"."My items"'
    """
    return sql.Identifier(*names).as_string()


def literal(text: str) -> str:
    """Return a text in SQL.

    >>> literal("it's")
    "'it''s'"
    """
    return sql.Literal(text).as_string()
