"""Several readers and one writer of a gallery in PostgreSQL: snapshots for searches, and the writer's lock."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.pq import TransactionStatus

from limpet.engines.forks import at_fork
from limpet.engines.postgres.address import Connection
from limpet.engines.postgres.database import BEGIN, SNAPSHOT, PostgresDatabase, translated
from limpet.engines.sqlite import holder, writer_refused
from limpet.engines.store import Commit
from limpet.errors import LockedError

KEPT_SECONDS = 5.0
"""How long a snapshot waits for a further search: the server cleans up nothing that it could see."""


class Snapshot:
    """One moment of the database, which several searches see."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self.lock = threading.Lock()
        self.used = time.monotonic()
        self.commit: Commit | None = None  # of the pointer that it shows
        self.connection = database.take()
        self.open = True
        try:
            with translated(database.address.url):
                self.connection.execute(database.started(SNAPSHOT))
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Let go of the moment and the connection."""
        if self.open:
            self.open = False
            finish(self._database, self.connection, "ROLLBACK")


class Snapshots:
    """The snapshots of the threads that search: for each, of the last two pointers that it asked for."""

    def __init__(self, database: PostgresDatabase) -> None:
        self.database = database
        self._start_anew()
        at_fork(self, in_child=Snapshots._start_anew)

    def _start_anew(self) -> None:
        """Have no snapshots; in a forked child, those that there are belong to threads of the parent."""
        self._own = threading.local()
        self._guard = threading.Lock()
        self._all: set[Snapshot] = set()
        self._watched = False

    @contextmanager
    def showing(self, commit: Commit | None = None) -> Iterator[Snapshot]:
        """Let all that this thread does see one moment.

        Args:
            commit: Of the pointer to see, where this thread asked for it just now; otherwise it sees what is now.
        """
        snapshot = self._locked(commit)
        try:
            with self.database.using(snapshot.connection):
                yield snapshot
        finally:
            snapshot.used = time.monotonic()
            if snapshot.connection.info.transaction_status != TransactionStatus.INTRANS:
                snapshot.end()  # a statement failed, and with it the transaction
            snapshot.lock.release()

    def _locked(self, commit: Commit | None) -> Snapshot:
        mine: list[Snapshot] = getattr(self._own, "snapshots", [])
        for snapshot in reversed(mine):
            snapshot.lock.acquire()
            if snapshot.open and commit is not None and snapshot.commit == commit:
                return snapshot
            snapshot.lock.release()
        snapshot = Snapshot(self.database)
        snapshot.lock.acquire()
        self._own.snapshots = [*mine, snapshot]
        with self._guard:
            self._all.add(snapshot)
            if not self._watched:
                self._watched = True
                threading.Thread(target=self._watch, name="limpet snapshots", daemon=True).start()
        return snapshot

    def name(self, snapshot: Snapshot, commit: Commit) -> None:
        """Note which pointer the newest snapshot shows, and end all older ones but the last of another pointer."""
        snapshot.commit = commit
        others = [one for one in self._own.snapshots if one.open and one.commit not in (commit, None)]
        self._keep([*others[-1:], snapshot])

    def forget(self) -> None:
        """End the snapshots of this thread."""
        self._keep([])

    def _keep(self, kept: list[Snapshot]) -> None:
        mine, self._own.snapshots = getattr(self._own, "snapshots", []), kept
        for snapshot in mine:
            if snapshot not in kept:
                with snapshot.lock:
                    snapshot.end()

    def _watch(self) -> None:
        while True:
            time.sleep(KEPT_SECONDS / 5)
            for snapshot in list(self._all):
                if snapshot.lock.acquire(blocking=False):
                    if snapshot.used < time.monotonic() - KEPT_SECONDS:
                        snapshot.end()
                    snapshot.lock.release()
            with self._guard:
                self._all = {snapshot for snapshot in self._all if snapshot.open}
                self._watched = bool(self._all)
                if not self._watched:
                    return

    def close(self) -> None:
        """End all snapshots."""
        for snapshot in list(self._all):
            with snapshot.lock:
                snapshot.end()


class ConnectionLock:
    """What only one writer holds: a lock of the session that it writes with, so that neither outlives the other.

    One transaction follows the other without a gap for as long as it is held. So a pooler in between, which may give
    every transaction another session of the server, gives it one and the same; the server ends that if the writer dies.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self.database = database
        self._key = lock_key(database.address.schema)

    @contextmanager
    def held(self, who: str, timeout: float) -> Iterator[None]:
        """Hold the lock, and let all that this thread does go through its connection, in transactions.

        Raises:
            LockedError: Somebody else holds it for longer than ``timeout`` seconds.
        """
        connection = self.database.take()
        end = "ROLLBACK"
        try:
            with translated(self.database.address.url):
                connection.execute(self.database.started(BEGIN))
                self._wait(connection, who, time.monotonic() + timeout)
                end = f"ROLLBACK AND CHAIN; SELECT pg_advisory_unlock({self._key}); COMMIT"
                self._sign(connection, who)
            with self.database.using(connection, between=True):
                yield
        finally:
            finish(self.database, connection, end)

    def check(self) -> None:
        """The lock is of the connection that commits: both end together."""

    def _wait(self, connection: Connection, who: str, until: float) -> None:
        while not connection.execute("SELECT pg_try_advisory_lock(%s)", [self._key]).fetchall()[0][0]:
            if time.monotonic() > until:
                raise self._refusal(connection, who)
            time.sleep(0.01)

    def _sign(self, connection: Connection, who: str) -> None:
        """Write who holds the lock, for others that wait; this need not survive anything."""
        connection.execute(
            "INSERT INTO meta SELECT 'writer', %s || ' (served by process ' || pg_backend_pid() || ' of the database)' "
            "FROM (SELECT set_config('synchronous_commit', 'off', true)) AS quick "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [holder(who)],
        )
        connection.execute(self.database.started("COMMIT AND CHAIN"))

    def _refusal(self, connection: Connection, who: str) -> LockedError:
        found = connection.execute("SELECT value FROM meta WHERE name = 'writer'").fetchall()
        return writer_refused(who, found[0][0] if found else "another process")


def lock_key(schema: str) -> int:
    """Return the number of the writer's lock of a gallery."""
    return int.from_bytes(hashlib.sha256(f"limpet {schema}".encode()).digest()[:8], "big", signed=True)


def finish(database: PostgresDatabase, connection: Connection, statement: str) -> None:
    """Run a last statement and give a connection back; close it if it did not work."""
    try:
        connection.execute(statement.encode())
    except BaseException as error:
        connection.close()  # by which the server ends the transaction, and lets go of the lock
        if not isinstance(error, psycopg.Error):
            raise
    finally:
        database.give(connection)
