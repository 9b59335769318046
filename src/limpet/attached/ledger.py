"""The ledger of attachments in SQLite or PostgreSQL: what each is made of, where it stands, and what was done."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

from limpet.attached.state import AttachmentEvent, AttachmentState, advance
from limpet.engines.database import Database, Dialect
from limpet.engines.ledger import read_journal, reading
from limpet.errors import GalleryError

FORMAT_VERSION = 1
FAILING = "check the disk and the path, and restore a damaged ledger from a copy; then `limpet upgrade status`."
"""What to do about a ledger that fails."""
_TABLES = (
    "format (version bigint NOT NULL)",
    "attachments (id {0.number}, started {0.moment}, record text NOT NULL, state text NOT NULL{1})",
    "journal (sequence {0.number}, attachment bigint NOT NULL, time {0.moment}, event text NOT NULL)",
)
_STATE = TypeAdapter(AttachmentState)

AttachmentRecord = TypeVar("AttachmentRecord")


@dataclass(frozen=True)
class AttachmentEntry(Generic[AttachmentRecord]):
    """An attachment as the ledger has it.

    Args:
        record: What it is made of.
    """

    id: int
    record: AttachmentRecord
    state: AttachmentState
    started: datetime


class AttachmentLedger(Generic[AttachmentRecord]):
    """The part of a ledger that does not depend on what is attached; every call belongs into a transaction."""

    records: TypeAdapter[AttachmentRecord]
    """Reads records."""
    prefix: str
    """What the names of its tables begin with, such as that of a schema."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @staticmethod
    def statements(dialect: Dialect, prefix: str, further: str = "") -> list[str]:
        """Return what makes an empty ledger."""
        return [
            *(f"CREATE TABLE {prefix}{table.format(dialect, further)}" for table in _TABLES),
            f"INSERT INTO {prefix}format VALUES ({FORMAT_VERSION})",
        ]

    def check_format(self, where: str) -> None:
        """Refuse a ledger that another version of limpet wrote.

        Raises:
            GalleryError: It has another format version.
        """
        found = self.database.execute(f"SELECT version FROM {self.prefix}format")
        if found != [(FORMAT_VERSION,)]:
            raise GalleryError(
                f"{where} has the format version {', '.join(str(version) for (version,) in found)}.",
                expected=f"{FORMAT_VERSION}",
                to_do="use the version of limpet that started the upgrades here.",
                intact="Nothing was changed.",
            )

    def lock(self) -> None:
        """Keep others from adding attachments during this transaction: only who may write into the ledger can."""
        self.database.execute(f"SELECT version FROM {self.prefix}format{self.database.dialect.lock}")

    def read(self, row: Sequence[Any]) -> AttachmentEntry[AttachmentRecord]:
        """Return an attachment of its columns id, record, state and started."""
        number, record, state, started = row
        with reading(f"Upgrade {number!r:.60} of the ledger", FAILING):
            return AttachmentEntry(
                int(number), self.records.validate_json(record), _STATE.validate_json(state),
                datetime.fromtimestamp(started, UTC),
            )  # fmt: skip

    def add(self, record: AttachmentRecord, event: AttachmentEvent, **further: tuple[str, Any]) -> int:
        """Add an attachment, and return its number; `lock` comes first."""
        state = advance(AttachmentState(), event)
        columns = {"record": ("?", written(record)), "state": ("?", written(state)), **further}
        self.database.execute(
            f"INSERT INTO {self.prefix}attachments ({', '.join(columns)}) "
            f"VALUES ({', '.join(expression for expression, _ in columns.values())})",
            [value for _, value in columns.values()],
        )
        [(number,)] = self.database.execute(f"SELECT max(id) FROM {self.prefix}attachments")
        self.note(int(number), event)
        return int(number)

    def apply(self, entry: AttachmentEntry[AttachmentRecord], event: AttachmentEvent) -> AttachmentState:
        """Apply an event to the state that an attachment has in this transaction, and write both down.

        Raises:
            UpgradeStateError: The step is not possible.
        """
        state = advance(entry.state, event)
        self.database.execute(f"UPDATE {self.prefix}attachments SET state = ? WHERE id = ?", [written(state), entry.id])
        self.note(entry.id, event)
        return state

    def note(self, number: int, event: AttachmentEvent) -> None:
        """Write an event down."""
        self.database.execute(
            f"INSERT INTO {self.prefix}journal (attachment, event) VALUES (?, ?)", [number, json.dumps(dict(event))]
        )

    def journal(self, number: int) -> list[dict[str, object]]:
        """Return what was done, the last event last, each with "at", a moment, and "kind"."""
        entries = read_journal(self.database, f"{self.prefix}journal", "attachment = ?", number, FAILING)
        return [one.to_dict() for one in entries]


def written(value: Any) -> str:
    """Return a record, or a state, as the ledger keeps it."""
    return json.dumps(asdict(value))
