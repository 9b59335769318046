"""The ledger of attachments in SQLite or PostgreSQL: their records, states and journals."""

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
"""What to do if the ledger fails."""
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
        record: Fixed properties of the attachment.
    """

    id: int
    record: AttachmentRecord
    state: AttachmentState
    started: datetime


class AttachmentLedger(Generic[AttachmentRecord]):
    """The part of a ledger that does not depend on what is attached; every call must be in a transaction."""

    records: TypeAdapter[AttachmentRecord]
    """Reads records."""
    prefix: str
    """Prefix of the names of its tables, such as a schema."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @staticmethod
    def statements(dialect: Dialect, prefix: str, further: str = "") -> list[str]:
        """Return the statements that create an empty ledger."""
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
        """Prevent others from adding attachments in this transaction; only roles that may write the ledger can."""
        self.database.execute(f"SELECT version FROM {self.prefix}format{self.database.dialect.lock}")

    def read(self, row: Sequence[Any]) -> AttachmentEntry[AttachmentRecord]:
        """Return an attachment from its columns id, record, state and started."""
        number, record, state, started = row
        with reading(f"Upgrade {number!r:.60} of the ledger", FAILING):
            return AttachmentEntry(
                int(number), self.records.validate_json(record), _STATE.validate_json(state),
                datetime.fromtimestamp(started, UTC),
            )  # fmt: skip

    def add(self, record: AttachmentRecord, event: AttachmentEvent, **further: tuple[str, Any]) -> int:
        """Add an attachment, and return its number; call `lock` first."""
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
        """Apply an event to the state that an attachment has in this transaction, and store both.

        Raises:
            UpgradeStateError: The step is not possible.
        """
        state = advance(entry.state, event)
        self.database.execute(f"UPDATE {self.prefix}attachments SET state = ? WHERE id = ?", [written(state), entry.id])
        self.note(entry.id, event)
        return state

    def note(self, number: int, event: AttachmentEvent) -> None:
        """Write an event to the journal."""
        self.database.execute(
            f"INSERT INTO {self.prefix}journal (attachment, event) VALUES (?, ?)", [number, json.dumps(dict(event))]
        )

    def journal(self, number: int) -> list[dict[str, object]]:
        """Return the events of the journal in order, each with "at", a time, and "kind"."""
        entries = read_journal(self.database, f"{self.prefix}journal", "attachment = ?", number, FAILING)
        return [one.to_dict() for one in entries]


def written(value: Any) -> str:
    """Return a record, or a state, in the format of the ledger."""
    return json.dumps(asdict(value))
