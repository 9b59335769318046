"""One connection that works in transactions only, so that a pooler may stand between, and is opened again when lost."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TypeVar

import psycopg
from pgvector.psycopg.vector import register_vector_info
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.sql import Identifier, Literal
from psycopg.types import TypeInfo

from limpet.engines.database import POSTGRES
from limpet.engines.postgres.address import Connection, PostgresAddress
from limpet.engines.postgres.ledger import EXTENSION
from limpet.engines.sqlite import writer_refused
from limpet.errors import GalleryError, LastingStoreError, LockedError, StoreError, reason

Result = TypeVar("Result")
Row = tuple[Any, ...]

logging.getLogger("psycopg").addHandler(logging.NullHandler())  # it repeats what is raised, on standard error
RETRIES = 8
"""How often to call again, with growing pauses, while the database is out of reach."""
_LONGEST_PAUSE = 8.0  # seconds between two attempts
WRITTEN_OUT = {
    "datestyle": "ISO", "extra_float_digits": "1", "timezone": "UTC", "intervalstyle": "postgres",
    "bytea_output": "hex",
}  # fmt: skip
"""By which dates, numbers and bytes are written as texts."""
_WRITTEN_OUT = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in WRITTEN_OUT.items())
_SETTINGS = f"""
SELECT set_config('search_path', coalesce({EXTENSION}, 'pg_catalog'), true),
    set_config('lock_timeout', '{{}}ms', true), set_config('statement_timeout', '0', true),
    set_config('idle_in_transaction_session_timeout', '0', true),
    set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true),
    set_config('jit', 'off', true), {_WRITTEN_OUT}
"""
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"  # after a lock, what was committed before it is seen
_TIMEOUTS = ("statement_timeout", "lock_timeout")
_LASTING = (psycopg.ProgrammingError, psycopg.DataError, psycopg.IntegrityError, psycopg.NotSupportedError)
_HOLDER = """
SELECT concat_ws(' ', 'process', pid, 'of the database', 'for ' || nullif(application_name, ''),
    'at ' || client_addr)
FROM pg_locks JOIN pg_stat_activity USING (pid), hashtextextended(?, 0) AS key
WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND datname = current_database()
    AND (classid, objid) = (((key >> 32) & 4294967295)::oid, (key & 4294967295)::oid)
"""


class Session:
    """A connection to a database, used by one thread at a time.

    Args:
        address: Of the database.
    """

    dialect = POSTGRES

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self._connection: Connection | None = None
        self._lock = threading.RLock()
        self._pipeline: psycopg.Pipeline | None = None
        self.committed: Callable[[], bool] = lambda: False
        """Whether the last transaction that ended is known to be committed; within a `pipeline` once that has ended."""
        self.kept: set[str] | None = None
        """Names of what this transaction has read, and so keeps from being removed; None outside of one."""

    @contextmanager
    def transaction(self, lock_timeout: float = 0.0) -> Iterator[None]:
        """All or nothing.

        Args:
            lock_timeout: Seconds to wait for a lock; as long as it takes when 0.

        Raises:
            LockedError: A lock was not to be had in that time.
            StoreError: The database fails, or refuses.
        """
        with self._lock, self._translated():
            connection, settings = self._opened(), _SETTINGS.format(round(1000 * lock_timeout))
            for statement in (_BEGIN, settings) if self._pipeline else (f"{_BEGIN}; {settings}",):
                connection.execute(statement.encode())
            self.kept = set()
            try:
                yield
                ended = connection.execute(b"COMMIT")
                self.committed = lambda: ended.statusmessage == "COMMIT"
            finally:
                self.kept = None
                if self._pipeline is None:
                    self._roll_back(connection)

    @contextmanager
    def pipeline(self) -> Iterator[None]:
        """Send the statements of transactions without waiting for answers: in one round trip, if none is asked for.

        What `send` returns is known afterwards. Nothing is done after a statement that fails: a transaction that was
        committed before stays so.

        Raises:
            StoreError: See `transaction`.
        """
        with self._lock, self._translated():
            connection = self._opened()
            try:
                with connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext() as self._pipeline:
                    yield
            finally:
                self._pipeline = None
                self._roll_back(connection)

    @staticmethod
    def _roll_back(connection: Connection) -> None:
        if connection.info.transaction_status != TransactionStatus.IDLE:
            with suppress(psycopg.Error):
                connection.execute(b"ROLLBACK")

    def send(self, statement: str, values: Sequence[Any] = ()) -> Callable[[], list[Row] | None]:
        """Run one statement within a transaction, whose rows are not needed yet.

        Returns:
            What returns the rows; within a `pipeline` known once that has ended: None where it was not got to.
        """
        with self._lock, self._translated():
            cursor = self._opened().execute(statement.encode(), values or None)
        return lambda: cursor.fetchall() if cursor.description else None

    def rows(self, statement: str, values: Sequence[Any] = (), *, binary: bool = False) -> list[Row]:
        """Run one statement within a transaction and return its rows, if it has any."""
        with self._lock, self._translated():
            cursor = self._opened().execute(statement.encode(), values or None, binary=binary)
            if self._pipeline is not None:
                self._pipeline.sync()
            return cursor.fetchall() if cursor.description else []

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement, with ``?`` for values, and return its rows: in a transaction of its own outside of one."""
        with self._joined():
            return self.rows(statement.replace("?", "%s") if values else statement, values)

    def execute_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Run one statement, with ``?`` for values, for many rows of these; see `execute`."""
        with self._joined(), self._translated(), self._opened().cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s").encode(), values)

    @contextmanager
    def _joined(self) -> Iterator[None]:
        with self._lock, self.transaction() if self.kept is None else nullcontext():
            yield

    @contextmanager
    def exclusive(self, name: str, who: str, kept: str, timeout: float) -> Iterator[None]:
        """Let one session at a time be in such a block of a name; one that ends leaves it.

        The server has to know the session: no pooler that shares it may stand between.

        Args:
            name: Of the block.
            who: What it wants to write, for messages.
            kept: What it writes to.
            timeout: Seconds to wait for another session.

        Raises:
            LockedError: Another session was in it for longer.
        """
        try:
            with self.transaction(lock_timeout=timeout):  # the lock is the session's, and outlives it
                self.execute("SELECT pg_advisory_lock(hashtextextended(?, 0))", [name])
        except LockedError:
            found = self.execute(_HOLDER, [name])
            raise writer_refused(who, found[0][0] if found else "another process", kept) from None
        try:
            yield
        finally:
            self.execute("SELECT pg_advisory_unlock(hashtextextended(?, 0))", [name])

    def count(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run one statement within a transaction and return how many rows it changed."""
        with self._lock, self._translated():
            return int(self._opened().execute(statement.encode(), values or None).rowcount)

    def alone(self, statement: str) -> None:
        """Run one statement that no transaction may hold, and that names the schema of everything in it.

        It may take hours, whatever timeouts the role has; behind a pooler, which gives our session to others, these
        count.
        """
        with self._lock, self._translated():
            connection = self._opened()
            [(own,)] = connection.execute(b"SELECT pg_backend_pid()").fetchall()
            direct = own == connection.info.backend_pid
            for setting in _TIMEOUTS if direct else ():
                connection.execute(f"SELECT set_config('{setting}', '0', false)".encode())
            try:
                connection.execute(statement.encode())
            finally:
                for setting in _TIMEOUTS if direct and not connection.closed else ():
                    connection.execute(f"RESET {setting}".encode())

    def patiently(self, attempt: Callable[[], Result], attempts: int, *, pause: float = 0.2) -> Result:
        """Call again with growing pauses while a lock is not to be had; nobody waits for us meanwhile.

        Raises:
            LockedError: It never was.
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
        """Call again with growing pauses while the database is out of reach: not where it refuses."""
        for _ in range(retries):
            try:
                return call()
            except (LastingStoreError, LockedError):
                raise
            except StoreError:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        return call()

    def close(self) -> None:
        """Close the connection; the next call opens another one."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _opened(self) -> Connection:
        if self._connection is None or self._connection.closed:
            connection = self.address.connect(autocommit=True, prepare_threshold=None)
            try:
                [(standby,)] = connection.execute(b"SELECT pg_is_in_recovery()").fetchall()
                if standby:
                    raise GalleryError(
                        "This server is a standby, which cannot be written to.",
                        to_do="name the primary in the URL; what is done there arrives here by itself. Nothing was "
                        "changed.",
                    )
                connection.execute(f"{_BEGIN}; {_SETTINGS.format(0)}".encode())
                vector = TypeInfo.fetch(connection, "vector")
                connection.execute(b"COMMIT")
                if vector is not None:
                    register_vector_info(connection, vector)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn errors of psycopg, and of the network below it, into those of limpet."""
        try:
            yield
        except (errors.LockNotAvailable, errors.DeadlockDetected) as error:
            raise locked() from error
        except errors.QueryCanceled as error:
            raise StoreError(
                f"The database '{self.address.url}' ended a statement: {reason(error)}.",
                expected="a statement that is done before others have waited for it too long",
                to_do="repeat the same command when the server has less to do.",
            ) from error
        except (psycopg.Error, OSError) as error:
            kind = LastingStoreError if isinstance(error, _LASTING) else StoreError
            raise kind(
                f"The database '{self.address.url}' fails: {reason(error)}.",
                to_do="correct that and repeat the same command, which goes on.",
                intact="What was committed is intact.",
            ) from error


def locked() -> LockedError:
    """Return the error for a lock that was not to be had."""
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
    return Identifier(*names).as_string()


def literal(text: str) -> str:
    """Return a text in SQL.

    >>> literal("it's")
    "'it''s'"
    """
    return Literal(text).as_string()
