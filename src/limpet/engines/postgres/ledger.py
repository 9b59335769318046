"""The ledger of stores that are databases: PostgreSQL, by psycopg, with a pool of connections."""

from __future__ import annotations

import os
import re
import select
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet

import psycopg
from pgvector.psycopg.vector import register_vector_info
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.types import TypeInfo

from limpet.engines.database import POSTGRES
from limpet.engines.forks import at_fork, unforked
from limpet.engines.postgres.address import Connection, PostgresAddress
from limpet.errors import LastingStoreError, StoreError
from limpet.support.disk import Disk

BEGIN, SNAPSHOT = "BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
EXTENSION = """(SELECT quote_ident(nspname) FROM pg_catalog.pg_extension
    JOIN pg_catalog.pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector')"""
"""The schema of pgvector, in SQL."""

_KEPT_CONNECTIONS = 8
_INSERT = re.compile(r"INSERT INTO (\w+) VALUES \((?:\?, )*\?\)")
_SETTINGS = f"""
SELECT set_config('search_path', quote_ident('%s') || coalesce(', ' || {EXTENSION}, ''), true),
    set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true),
    set_config('jit', 'off', true)
"""


class PostgresDatabase:
    """The schema of one gallery in a PostgreSQL database; any thread may use it.

    A connection serves one thread at a time; one that broke is replaced by the next call. Everything is done in
    transactions, with settings that end with them: a pooler may give each of them another session of the server.

    Args:
        address: Where it is.
        disk: Told of every commit.
    """

    dialect = POSTGRES

    def __init__(self, address: PostgresAddress, disk: Disk) -> None:
        self.address, self.disk = address, disk
        self._opened: WeakSet[Connection] = WeakSet()
        self._knowing: WeakSet[Connection] = WeakSet()  # what a vector is, which one from before its extension does not
        self._idle: list[Connection] = []
        self._own = threading.local()
        self._vector: TypeInfo | None = None
        self._closed = False
        at_fork(self, in_child=PostgresDatabase._break_connections)

    def _break_connections(self) -> None:
        """In a forked child, let go of connections: the parent goes on with them, and its server is not to notice."""
        broken, other_end = socket.socketpair()
        with broken, other_end:
            for connection in self._opened:
                if not connection.closed:
                    os.dup2(broken.fileno(), connection.fileno(), inheritable=False)
                    connection.close()

    def take(self) -> Connection:
        """Return a connection that nobody else uses, to be given back by `give`."""
        while not self._closed:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._open()
            if _alive(connection):
                return connection
            connection.close()
        raise StoreError(f"The gallery '{self.address.url}' was closed.", to_do="open it again.")

    def give(self, connection: Connection) -> None:
        """Take a connection back; one that broke, is in the middle of something, or knows no vectors, is closed."""
        idle = connection.info.transaction_status == TransactionStatus.IDLE and connection in self._knowing
        if self._closed or not idle or len(self._idle) >= _KEPT_CONNECTIONS:
            connection.close()
        else:
            self._idle.append(connection)

    def _open(self) -> Connection:
        with translated(self.address.url):
            with unforked():
                connection = self.address.connect(autocommit=True, prepare_threshold=None)
                self._opened.add(connection)
            try:
                if self._vector is None:
                    with self._begun(connection, BEGIN):
                        self._vector = TypeInfo.fetch(connection, "vector")
                if self._vector is not None:
                    register_vector_info(connection, self._vector)
                    self._knowing.add(connection)
            except BaseException:
                connection.close()
                raise
            return connection

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Give this thread the connection that it is using, or one with a transaction of its own."""
        own: Connection | None = getattr(self._own, "connection", None)
        if own is not None:
            yield own
            return
        connection = self.take()
        try:
            with self._begun(connection, BEGIN):
                with self.using(connection):
                    yield connection
                self._commit(connection, b"COMMIT")
        finally:
            self.give(connection)

    @contextmanager
    def using(self, connection: Connection, *, between: bool = False) -> Iterator[None]:
        """Let all that this thread does go through one connection, in which a transaction has begun.

        Args:
            connection: Which.
            between: `transaction` commits that one and begins the next; otherwise it is part of it.
        """
        before = getattr(self._own, "connection", None), getattr(self._own, "between", False)
        self._own.connection, self._own.between = connection, between
        try:
            yield
        finally:
            self._own.connection, self._own.between = before

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        query = statement.replace("?", "%s") if values else statement
        with self.connection() as connection, translated(self.address.url):
            cursor = connection.execute(query.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def execute_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Run one statement for many rows of values; plain inserts are copied in."""
        insert = _INSERT.fullmatch(statement)
        with self.connection() as connection, translated(self.address.url), connection.cursor() as cursor:
            if insert is None:
                cursor.executemany(statement.replace("?", "%s").encode(), values)
                return
            with cursor.copy(f"COPY {insert[1]} FROM STDIN".encode()) as copy:
                for row in values:
                    copy.write_row(row)

    def execute_alone(self, statement: str) -> None:
        """Run one statement that no transaction may hold, and that names the schema of everything in it."""
        connection = self.take()
        try:
            with translated(self.address.url):
                connection.execute(statement.encode())
        finally:
            self.give(connection)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; durable on leaving it without an error. One inside another is part of it."""
        chained = getattr(self._own, "between", False)
        begun = getattr(self._own, "connection", None) is not None and not chained
        with self.connection() as connection:
            try:
                with self.using(connection):
                    yield
                    if not begun:
                        with translated(self.address.url):
                            self.disk.reached("database.commit")
                if chained:
                    self._commit(connection, self.started("COMMIT AND CHAIN"))
            except BaseException:
                if chained:
                    with suppress(psycopg.Error):
                        connection.execute(self.started("ROLLBACK AND CHAIN"))
                raise

    def started(self, statement: str) -> bytes:
        """Return a statement that starts a transaction, with the settings of the gallery."""
        return f"{statement};{_SETTINGS % self.address.schema}".encode()

    @contextmanager
    def streaming(self) -> Iterator[Connection]:
        """Give a connection of its own that sees one moment, for reading over a long time."""
        connection = self.take()
        try:
            with self._begun(connection, SNAPSHOT):
                yield connection
        finally:
            self.give(connection)

    @contextmanager
    def _begun(self, connection: Connection, statement: str) -> Iterator[None]:
        """Begin something that is rolled back if it is not committed."""
        with translated(self.address.url):
            connection.execute(self.started(statement))
        try:
            yield
        finally:
            if connection.info.transaction_status != TransactionStatus.IDLE:
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK")

    def _commit(self, connection: Connection, statement: bytes) -> None:
        try:
            done = connection.execute(statement).statusmessage
        except psycopg.Error as error:
            raise StoreError(
                f"The connection to '{self.address.url}' was lost while it committed: {_words(error)}",
                to_do="look whether this write is there before you repeat it: it is there whole, or not at all.",
                intact="What was acknowledged before is intact.",
            ) from error
        if done != "COMMIT":
            raise StoreError(
                f"The database '{self.address.url}' rolled back instead of committing.",
                to_do="try again; nothing of this commit was written.",
            )

    def close(self) -> None:
        """Close every connection; one in use is closed when it is given back."""
        self._closed = True
        self.forget()

    def forget(self) -> None:
        """Close the connections that nobody uses; new ones see what changed in the database."""
        self._vector = None
        while self._idle:
            self._idle.pop().close()


def _alive(connection: Connection) -> bool:
    """Say whether the server still listens; one that stopped has closed its end, which then has something to read."""
    if connection.closed:
        return False
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return not waiting.poll(0)


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn errors of psycopg, and of the network below it, into those of limpet."""
    try:
        yield
    except (psycopg.Error, OSError) as error:
        expected, to_do = next((advice for kind, *advice in _ADVICE if isinstance(error, kind)), _OTHERWISE)
        kind = LastingStoreError if isinstance(error, _LASTING) else StoreError
        raise kind(f"The database '{where}' fails: {_words(error)}", expected, to_do) from error


_LASTING = (
    errors.DataCorrupted, errors.IndexCorrupted, errors.InsufficientPrivilege, errors.FeatureNotSupported,
    errors.UndefinedTable,
)  # fmt: skip
_OTHERWISE = (
    "a database as `limpet gallery create` makes it",
    "`limpet gallery doctor` looks closer.",
)
_ADVICE: list[tuple[type[Exception], str, str]] = [
    (errors.DiskFull, "room to write", "make room on the server's disk, then repeat."),
    (errors.InsufficientPrivilege, "a role with the rights for it",
     "let the database's owner grant them, or create the gallery's schema and CREATE EXTENSION vector."),
    (errors.ReadOnlySqlTransaction, "a server that accepts writes", "name the primary, not a standby."),
    (errors.FeatureNotSupported, "a server with the extension 'vector' (pgvector) installed",
     "install pgvector on the server."),
    (errors.UndefinedTable, "a generation that is there",
     "`limpet upgrade status` lists them; gc may have removed it just now."),
    (errors.LockNotAvailable, "no reader of what is to be removed", "repeat in a moment."),
    (errors.QueryCanceled, "enough time", "raise statement_timeout of this role, or ask for less at once."),
    (psycopg.OperationalError, "a PostgreSQL server that answers",
     "start the server, or check address, user and password, then repeat."),
]  # fmt: skip


def _words(error: Exception) -> str:
    """Return what went wrong as one sentence on one line."""
    text = " ".join(str(error).split())
    return text if text.endswith(".") else f"{text}."
