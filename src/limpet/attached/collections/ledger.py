"""The ledger of attached collections: state, journal and pairs of digests, in an SQLite file or in PostgreSQL.

The pointer of an upgrade is one row here, and changes in one transaction with the journal. Aliases of the engines are
set afterwards, for programs that do not read the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from limpet.attached.base import NotStartedError
from limpet.attached.collections.due import DigestPair
from limpet.attached.ledger import FAILING, AttachmentEntry, AttachmentLedger
from limpet.attached.state import AttachmentEvent
from limpet.engines.collection import Target
from limpet.engines.sqlite import Advice, SqliteDatabase
from limpet.errors import LockedError
from limpet.support.disk import Disk
from limpet.support.extras import needing
from limpet.upgrade.model import UpgradeModel

if TYPE_CHECKING:
    from limpet.engines.postgres.database import PostgresDatabase

NOTICE, LONGEST = 2.0, 120.0
"""Seconds that an upgrade waits for another process before it reports that, and before it fails."""
_SCHEMA = "limpet_collections"
_PAIRS = (
    "(attachment bigint NOT NULL, id {0.text} NOT NULL, old {0.bytes}, new {0.bytes}, PRIMARY KEY (attachment, id))"
)
_log = logging.getLogger("limpet")


@dataclass(frozen=True)
class CollectionRecord:
    """Fixed properties of an attachment.

    Args:
        source: The folder, or the database of a service, without secrets.
        old: The model of the existing vectors.
        new: The new model.
        old_target: Collection or vector name of the old vectors.
        new_target: Collection or vector name of the new vectors.
        alias: Alias that is set after every swap; None for none.
        version: Field that the application changes with every write; None to compare whole rows.
        text: Name of the field of the embedded text; None if none was named.
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
class CollectionEntry(AttachmentEntry[CollectionRecord]):
    """An attachment as the ledger has it."""

    @property
    def serving(self) -> Target:
        """The target that queries must name."""
        return self.record.new_target if self.state.serving == "new" else self.record.old_target

    @property
    def writing(self) -> Target:
        """The target that writes must name."""
        return self.record.new_target if self.state.writes == "new" else self.record.old_target


class NoLedgerError(NotStartedError):
    """A place has no ledger."""


class CollectionLedger(AttachmentLedger[CollectionRecord]):
    """The ledger at a place, which is created if it does not exist.

    Args:
        place: Path of an SQLite file, or the URL of a PostgreSQL database.

    Raises:
        NoLedgerError: The ledger does not exist.
        GalleryError: The ledger has another format.
        StoreError: The ledger is unreachable.
    """

    records = TypeAdapter(CollectionRecord)
    database: PostgresDatabase | SqliteDatabase

    def __init__(self, place: str, *, make: bool = True) -> None:
        served = place.startswith(("postgresql:", "postgres:"))
        missing = NoLedgerError(f"There is no ledger '{place}'.", to_do="name it: ledger=FILE in the URL.")
        if not served and not make and not Path(place).is_file():
            raise missing
        database = _served(place) if served else SqliteDatabase(Path(place), Disk(), Advice(FAILING))
        super().__init__(database)
        self.prefix = f"{_SCHEMA}." if served else ""
        try:
            if not self._is_there():
                if not make:
                    raise missing
                self._make()
            self.check_format(f"The ledger '{place}'")
        except BaseException:
            database.close()
            raise

    def _is_there(self) -> bool:
        return bool(self.database.execute(self.database.dialect.exists, [f"{self.prefix}format"]))

    def _make(self) -> None:
        dialect = self.database.dialect
        pairs = f"CREATE TABLE {self.prefix}pairs {_PAIRS.format(dialect)}"
        with self.database.transaction():
            for statement in dialect.schema:
                self.database.execute(statement.format(_SCHEMA))
            if not self._is_there():  # another process may have created it
                for statement in (*self.statements(dialect, self.prefix), pairs):
                    self.database.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a transaction; transactions are serialized."""
        with self.database.transaction():
            self.lock()
            yield

    def entries(self) -> list[CollectionEntry]:
        """Return all attachments, including ended ones, in the order in which they started."""
        rows = self.database.execute(f"SELECT id, record, state, started FROM {self.prefix}attachments ORDER BY id")
        return [CollectionEntry(**vars(self.read(row))) for row in rows]

    def entry(self, number: int) -> CollectionEntry:
        """Return one attachment."""
        return next(one for one in self.entries() if one.id == number)

    def step(self, number: int, event: AttachmentEvent) -> None:
        """Apply an event to the state as it is now, in a transaction of its own.

        Raises:
            UpgradeStateError: The step is not possible.
        """
        with self.transaction():
            state = self.apply(self.entry(number), event)
            if state.phase == "steady":
                self.database.execute(f"DELETE FROM {self.prefix}pairs WHERE attachment = ?", [number])

    def pairs(self, number: int) -> Iterator[tuple[str, DigestPair]]:
        """Yield the digests of all items that both sides have had, or were to have."""
        after, most = "", 10_000
        while rows := self.database.execute(
            f"SELECT id, old, new FROM {self.prefix}pairs WHERE attachment = ? AND id > ? ORDER BY id LIMIT ?",
            [number, after, most],
        ):
            yield from ((identifier, DigestPair(old, new)) for identifier, old, new in rows)
            after = rows[-1][0]

    def keep(self, number: int, pairs: Mapping[str, DigestPair]) -> None:
        """Store digests of items."""
        with self.transaction():
            self.database.execute_many(
                f"INSERT INTO {self.prefix}pairs VALUES (?, ?, ?, ?) "
                "ON CONFLICT (attachment, id) DO UPDATE SET old = excluded.old, new = excluded.new",
                [(number, identifier, *pair) for identifier, pair in pairs.items()],
            )

    def forget(self, number: int, ids: Sequence[str]) -> None:
        """Delete the digests of items."""
        with self.transaction():
            self.database.execute_many(
                f"DELETE FROM {self.prefix}pairs WHERE attachment = ? AND id = ?", [(number, one) for one in ids]
            )

    @contextmanager
    def alone(self, number: int) -> Iterator[None]:
        """Let one process at a time write rows of an attachment, or declare who writes them; the lock ends with it.

        Between reading a row and writing its copy, no other pass may write the row, and no declaration may change the
        direction of the copy; the engines have no transactions for that.

        Raises:
            LockedError: Another process held the lock for `LONGEST` seconds.
        """

        def lock(seconds: float) -> AbstractContextManager[None]:
            return self.database.exclusive(f"{_SCHEMA} {number}", "upgrade", "this collection", seconds)

        with ExitStack() as held:
            try:
                held.enter_context(lock(NOTICE))
            except LockedError as error:
                _log.warning("%s This process waits for up to %g seconds.", error.given, LONGEST)
                held.enter_context(lock(LONGEST - NOTICE))
            yield

    def close(self) -> None:
        """Close all connections."""
        self.database.close()


def _served(url: str) -> PostgresDatabase:
    with needing("A ledger in PostgreSQL"):
        from limpet.engines.postgres.address import read_address
        from limpet.engines.postgres.database import PostgresDatabase
    return PostgresDatabase(read_address(url))
