"""Protocol of a database with a ledger, SQLite or PostgreSQL, and the differences of their SQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Dialect:
    """Differences in SQL.

    Args:
        text: Column type of texts that are ordered by their bytes.
        bytes: Column type of bytes.
        number: Definition of an auto-increment primary key.
        moment: Definition of a column of seconds since 1970 (UTC), which the database sets to the current time.
        member: Condition that a column is one of some texts, with one ``?``.
        members: Makes the value for it.
        exists: Query that returns a row if a table of the name ``?`` exists.
        schema: Statements that create a schema ``{}`` if it is missing; none if the database has no schemas.
        lock: Suffix of a query that locks the rows, within a transaction that does not do so itself.
    """

    text: str
    bytes: str
    number: str
    moment: str
    member: str
    members: Callable[[list[str]], Any]
    exists: str
    schema: tuple[str, ...]
    lock: str

    def among(self, column: str, texts: Sequence[str]) -> tuple[str, Any]:
        """Return a condition that a column is one of these texts, with one ``?``, and the value for it."""
        return self.member.format(column), self.members(list(texts))


SQLITE = Dialect(
    text="text",
    bytes="blob",
    number="integer PRIMARY KEY AUTOINCREMENT",
    moment="double precision NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0)",
    member="{} IN (SELECT value FROM json_each(?))",
    members=json.dumps,
    exists="SELECT 1 FROM sqlite_master WHERE name = ?",
    schema=(),
    lock="",
)
POSTGRES = Dialect(
    text='text COLLATE "C"',
    bytes="bytea",
    number="bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    moment="double precision NOT NULL DEFAULT extract(epoch FROM clock_timestamp())",
    member="{} = ANY(?)",
    members=list,
    exists="SELECT 1 WHERE to_regclass(?) IS NOT NULL",
    schema=("SELECT pg_advisory_xact_lock(hashtext('{0}'))", "CREATE SCHEMA IF NOT EXISTS {0}"),
    lock=" FOR UPDATE",
)


class Database(Protocol):
    """A connection as a ledger needs it. Statements have ``?`` for values."""

    @property
    def dialect(self) -> Dialect:
        """Differences in SQL."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""

    def execute_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Run one statement for many rows of values."""

    def transaction(self) -> AbstractContextManager[object]:
        """Run a transaction, durable when the block ends without an error."""


class ClosableDatabase(Database, Protocol):
    """A database that can be closed."""

    def exclusive(self, name: str, who: str, kept: str, timeout: float) -> AbstractContextManager[None]:
        """Let one process at a time run a block of this name; a process that ends releases it.

        Raises:
            LockedError: Another process held it for longer.
        """

    def close(self) -> None:
        """Close its connections."""
