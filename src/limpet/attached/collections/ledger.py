"""The ledger of attached collections: pointer, journal and pairs of digests, in an SQLite file or in PostgreSQL.

The pointer of an upgrade is one row here, and moves in one transaction with the journal. Aliases of the engines are
set after it, as a courtesy to programs that know nothing of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock
from pydantic import TypeAdapter

from limpet.attached.collections.due import DigestPair
from limpet.attached.state import AttachmentEvent, AttachmentState, advance
from limpet.engines.collection import Target
from limpet.engines.sqlite import SqliteDatabase
from limpet.errors import GalleryError, StoreError, reason
from limpet.support.disk import Disk
from limpet.support.extras import needing
from limpet.upgrade.model import UpgradeModel

_FORMAT_VERSION = 1
_TABLES = (
    "CREATE TABLE IF NOT EXISTS limpet_collections_format (version INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS limpet_collections "
    "(id INTEGER PRIMARY KEY, started TEXT NOT NULL, record TEXT NOT NULL, state TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS limpet_collections_journal "
    "(attachment INTEGER NOT NULL, number INTEGER NOT NULL, at TEXT NOT NULL, event TEXT NOT NULL, "
    "PRIMARY KEY (attachment, number))",
    "CREATE TABLE IF NOT EXISTS limpet_collections_pairs "
    "(attachment INTEGER NOT NULL, id TEXT NOT NULL, old BLOB, new BLOB, PRIMARY KEY (attachment, id))",
)


class AttachmentDatabase(Protocol):
    """What the ledger asks of a database; values stand for question marks."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""

    def execute_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Run one statement for many rows of values."""

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing; durable on leaving it without an error, and one after another."""

    def close(self) -> None:
        """Let go of connections."""


class PostgresAttachmentDatabase:
    """A PostgreSQL database that keeps a ledger.

    Args:
        url: ``postgresql://…``.
    """

    def __init__(self, url: str) -> None:
        with needing("A ledger in PostgreSQL"):
            import psycopg

            from limpet.engines.postgres.address import read_address
        self._error = psycopg.Error
        with self._translated():
            self._connection = read_address(url).connect(autocommit=True)
        self._connection.isolation_level = (
            psycopg.IsolationLevel.READ_COMMITTED
        )  # one after another, and seen by the next

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        with self._translated():
            cursor = self._connection.execute(_of_postgres(statement), list(values))
            return cursor.fetchall() if cursor.description else []

    def execute_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Run one statement for many rows of values."""
        with self._translated(), self._connection.cursor() as cursor:
            cursor.executemany(_of_postgres(statement), list(values))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, one after another."""
        with self._translated(), self._connection.transaction():
            self._connection.execute("SELECT pg_advisory_xact_lock(hashtext('limpet_collections'))")
            yield

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._error as error:
            raise StoreError(
                f"The ledger in PostgreSQL: {reason(error)}.", expected="a database that answers"
            ) from error


def _of_postgres(statement: str) -> bytes:
    return statement.replace("?", "%s").replace("BLOB", "BYTEA").encode()


@dataclass(frozen=True)
class CollectionRecord:
    """What an attachment is made of.

    Args:
        source: The service, or the folder, without secrets.
        old: The model whose vectors were there.
        new: The model that takes over.
        old_target: What holds the old vectors.
        new_target: What holds the new ones.
        alias: What is set after every swap; None for none.
        version: What the application changes with every write; None where rows are compared as a whole.
        text: What vectors are made of, by name; None where nothing was named.
    """

    source: str
    old: UpgradeModel
    new: UpgradeModel
    old_target: Target
    new_target: Target
    alias: str | None = None
    version: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class CollectionEntry:
    """An attachment as the ledger has it.

    Args:
        id: Its number.
        record: What it is made of.
        state: Where it stands.
        started: When it began, as text.
    """

    id: int
    record: CollectionRecord
    state: AttachmentState
    started: str

    @property
    def serving(self) -> Target:
        """What queries are to name."""
        return self.record.new_target if self.state.serving == "new" else self.record.old_target

    @property
    def writing(self) -> Target:
        """What writes are to name."""
        return self.record.new_target if self.state.writes == "new" else self.record.old_target


_RECORD, _STATE = TypeAdapter(CollectionRecord), TypeAdapter(AttachmentState)


class NoLedgerError(GalleryError):
    """There is no ledger at a place."""


class CollectionLedger:
    """The ledger at a place, which is made where it is not there.

    Args:
        place: Path of an SQLite file, or the URL of a PostgreSQL database.
        make: Whether to make it.

    Raises:
        NoLedgerError: There is none.
        GalleryError: It has another format.
        StoreError: It is out of reach.
    """

    def __init__(self, place: str, *, make: bool = True) -> None:
        self.place = place
        postgres = place.startswith(("postgresql:", "postgres:"))
        missing = NoLedgerError(
            f"There is no ledger '{place}'.",
            to_do="name it: ledger=FILE in the URL.",
        )
        if not postgres and not make and not Path(place).is_file():
            raise missing
        self.database: AttachmentDatabase = (
            PostgresAttachmentDatabase(place) if postgres else SqliteDatabase(Path(place), Disk())
        )
        if postgres and not make:
            [(known,)] = self.database.execute("SELECT to_regclass('limpet_collections_format') IS NOT NULL")
            if not known:
                self.database.close()
                raise missing
        with self.database.transaction():
            for statement in _TABLES:
                self.database.execute(statement)
            found = self.database.execute("SELECT version FROM limpet_collections_format")
            if not found:
                self.database.execute("INSERT INTO limpet_collections_format VALUES (?)", [_FORMAT_VERSION])
        if found and found != [(_FORMAT_VERSION,)]:
            self.database.close()
            raise GalleryError(
                f"The ledger '{place}' has the format version {found[0][0]}.",
                expected=f"{_FORMAT_VERSION}",
                to_do="use the version of limpet that attached here.",
                intact="Nothing was changed.",
            )

    def entries(self) -> list[CollectionEntry]:
        """Return all attachments, those that ended too, in the order they began in."""
        rows = self.database.execute("SELECT id, record, state, started FROM limpet_collections ORDER BY id")
        return [
            CollectionEntry(int(number), _RECORD.validate_json(record), _STATE.validate_json(state), started)
            for number, record, state, started in rows
        ]

    def entry(self, number: int) -> CollectionEntry:
        """Return one attachment."""
        return next(one for one in self.entries() if one.id == number)

    def add(self, record: CollectionRecord, event: AttachmentEvent) -> CollectionEntry:
        """Add an attachment; within a transaction."""
        number = max((one.id for one in self.entries()), default=0) + 1
        state = advance(AttachmentState(), event)
        self.database.execute(
            "INSERT INTO limpet_collections VALUES (?, ?, ?, ?)",
            [number, _now(), json.dumps(asdict(record)), json.dumps(asdict(state))],
        )
        self._note(number, event)
        return self.entry(number)

    def step(self, number: int, event: AttachmentEvent) -> CollectionEntry:
        """Apply an event to the state as it is now, and write both down at once.

        Raises:
            UpgradeStateError: The step is not possible.
        """
        with self.database.transaction():
            entry = self.entry(number)
            state = advance(entry.state, event)
            self.database.execute(
                "UPDATE limpet_collections SET state = ? WHERE id = ?", [json.dumps(asdict(state)), number]
            )
            self._note(number, event)
            if state.phase == "steady":
                self.database.execute("DELETE FROM limpet_collections_pairs WHERE attachment = ?", [number])
        return self.entry(number)

    def _note(self, number: int, event: AttachmentEvent) -> None:
        [(last,)] = self.database.execute(
            "SELECT max(number) FROM limpet_collections_journal WHERE attachment = ?", [number]
        )
        self.database.execute(
            "INSERT INTO limpet_collections_journal VALUES (?, ?, ?, ?)",
            [number, (last or 0) + 1, _now(), json.dumps(dict(event))],
        )

    def journal(self, number: int) -> list[Mapping[str, object]]:
        """Return what was done, the last event last."""
        rows = self.database.execute(
            "SELECT at, event FROM limpet_collections_journal WHERE attachment = ? ORDER BY number", [number]
        )
        return [{**json.loads(event), "at": at} for at, event in rows]

    def pairs(self, number: int) -> Iterator[tuple[str, DigestPair]]:
        """Yield the digests of all items that both sides have had, or were to have."""
        after, most = "", 10_000
        while rows := self.database.execute(
            "SELECT id, old, new FROM limpet_collections_pairs WHERE attachment = ? AND id > ? ORDER BY id LIMIT ?",
            [number, after, most],
        ):
            yield from ((identifier, DigestPair(_bytes(old), _bytes(new))) for identifier, old, new in rows)
            after = rows[-1][0]

    def keep(self, number: int, pairs: Mapping[str, DigestPair]) -> None:
        """Write down digests of items."""
        with self.database.transaction():
            self.database.execute_many(
                "INSERT INTO limpet_collections_pairs VALUES (?, ?, ?, ?) "
                "ON CONFLICT (attachment, id) DO UPDATE SET old = excluded.old, new = excluded.new",
                [(number, identifier, *pair) for identifier, pair in pairs.items()],
            )

    @contextmanager
    def alone(self, number: int) -> Iterator[None]:
        """Let one process at a time write rows of an attachment, or declare who writes them; it ends with the process.

        Between reading a row and writing its copy no other pass may write it, and no declaration may change whose copy
        it is: the engines have no transaction that would say so.
        """
        if isinstance(self.database, PostgresAttachmentDatabase):
            self.database.execute("SELECT pg_advisory_lock(hashtext('limpet_collections'), ?)", [number])
            try:
                yield
            finally:
                self.database.execute("SELECT pg_advisory_unlock(hashtext('limpet_collections'), ?)", [number])
            return
        # a soft lock would outlive a killed process
        with FileLock(f"{self.place}.lock", poll_interval=0.01, fallback_to_soft=False):
            yield

    def forget(self, number: int, ids: Sequence[str]) -> None:
        """Forget items."""
        with self.database.transaction():
            self.database.execute_many(
                "DELETE FROM limpet_collections_pairs WHERE attachment = ? AND id = ?", [(number, one) for one in ids]
            )

    def close(self) -> None:
        """Let go of connections."""
        self.database.close()


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _now() -> str:
    return datetime.now(UTC).isoformat()
