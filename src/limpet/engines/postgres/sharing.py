"""Concurrent readers and one writer of a gallery in PostgreSQL: snapshots for searches, and the writer's lock."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg.pq import TransactionStatus

from limpet.engines.forks import at_fork
from limpet.engines.postgres.address import Connection
from limpet.engines.postgres.database import BEGIN, SNAPSHOT, PostgresDatabase, translated
from limpet.engines.sqlite import holder, writer_refused
from limpet.engines.store import Commit
from limpet.errors import LockedError

KEPT_SECONDS = 5.0
"""Seconds that a snapshot is kept for further searches; meanwhile the server cannot vacuum rows visible to it."""


class Snapshot:
    """A database snapshot that several searches share."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self.lock = threading.Lock()
        self.used = time.monotonic()
        self.commit: Commit | None = None  # commit of the pointer that it shows
        self.connection = database.take()
        self.open = True
        try:
            with translated(database.address.url):
                self.connection.execute(database.started(SNAPSHOT))
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Release the snapshot and the connection."""
        if self.open:
            self.open = False
            self._database.finish(self.connection, "ROLLBACK")


class Snapshots:
    """The snapshots of all searching threads: per thread, those of the last two pointers that it requested."""

    def __init__(self, database: PostgresDatabase) -> None:
        self.database = database
        self._start_anew()
        at_fork(self, in_child=Snapshots._start_anew)

    def _start_anew(self) -> None:
        """Start without snapshots; in a forked child, the existing ones belong to threads of the parent."""
        self._own = threading.local()
        self._guard = threading.Lock()
        self._all: set[Snapshot] = set()
        self._watched = False

    @contextmanager
    def showing(self, commit: Commit | None = None) -> Iterator[Snapshot]:
        """Let all queries of this thread see one snapshot.

        Args:
            commit: Commit of the pointer to see, if this thread just requested it; otherwise the current data.
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
        """Record the pointer of the newest snapshot, and end all older ones but the last of another pointer."""
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
    """Lock of the single writer: a lock of the session that it writes with, so that neither outlives the other.

    While it is held, transactions follow each other without a gap. So a pooler, which may use another server session
    for every transaction, uses the same one throughout; the server ends it if the writer dies.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self.database = database
        self._key = lock_key(database.address.schema)

    @contextmanager
    def held(self, who: str, timeout: float) -> Iterator[None]:
        """Hold the lock, and run all statements of this thread on its connection, in transactions.

        Raises:
            LockedError: Another session holds it for longer than ``timeout`` seconds.
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
            self.database.finish(connection, end)

    def check(self) -> None:
        """Do nothing: the lock belongs to the connection that commits, and both end together."""

    def _wait(self, connection: Connection, who: str, until: float) -> None:
        while not connection.execute("SELECT pg_try_advisory_lock(%s)", [self._key]).fetchall()[0][0]:
            if time.monotonic() > until:
                raise self._refusal(connection, who)
            time.sleep(0.01)

    def _sign(self, connection: Connection, who: str) -> None:
        """Record who holds the lock, for waiting processes; this need not be durable."""
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
    """Return the key of a gallery's writer lock."""
    return int.from_bytes(hashlib.sha256(f"limpet {schema}".encode()).digest()[:8], "big", signed=True)
