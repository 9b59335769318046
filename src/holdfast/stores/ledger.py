"""The one truth of a gallery in SQL tables: items, journal and pointer, for SQLite and PostgreSQL alike.

Vectors are the stores' business. A commit has three parts: `Ledger.plan` says what must become of the vectors, the
store does it, and `Ledger.record` makes it exist.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import GalleryError
from holdfast.stores.base import Changes, Committed, Entry, Items, Pointer, Vectors
from holdfast.stores.planning import MOST_GENERATIONS, check, planned, unknown_generation
from holdfast.stores.planning import Appended as Appended
from holdfast.stores.planning import Plan as Plan

FORMAT_VERSION = 1

_TABLES = (
    "meta (name text PRIMARY KEY, value text NOT NULL)",
    "generations (name text PRIMARY KEY, bit bigint NOT NULL, width bigint NOT NULL, columns text NOT NULL)",
    "items (id {text} PRIMARY KEY, version bigint NOT NULL, mask bigint NOT NULL, metadata text NOT NULL)",
    "journal (sequence bigint PRIMARY KEY, time double precision NOT NULL, event text NOT NULL)",
    "pointer (one bigint PRIMARY KEY, sequence bigint NOT NULL, manifest text NOT NULL, held text NOT NULL, "
    "places text NOT NULL)",
    "queue (generation text NOT NULL, position bigint NOT NULL, id text NOT NULL, PRIMARY KEY (generation, position))",
    "traffic (id text PRIMARY KEY, retrieved bigint NOT NULL)",
)


class Database(Protocol):
    """What the ledger needs of a connection. Statements have ``?`` for values."""

    text_type: str
    """Column type of texts that are ordered by their bytes."""
    keeps_commits: bool
    """Whether no commit is ever lost again, so that its number tells it from every other."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""

    def execute_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Run one statement for many rows of values."""

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing; durable on leaving it without an error."""

    def among(self, column: str, ids: Sequence[str]) -> tuple[str, Any]:
        """Return a condition that a column is one of these ids, with one ``?``, and the value for it."""


class Ledger:
    """Items, journal and pointer.

    Args:
        database: Where they are.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    def create(self, kind: str = "", more: Sequence[str] = ()) -> None:
        """Create the tables, and the pointer to nothing, where they are missing.

        Args:
            kind: Of the store that the ledger belongs to, for whoever opens it.
            more: Statements that create what the store keeps beside it.
        """
        with self.database.transaction():
            for table in _TABLES:
                self.database.execute(f"CREATE TABLE IF NOT EXISTS {table.format(text=self.database.text_type)}")
            for statement in more:
                self.database.execute(statement)
            if not self.database.execute("SELECT one FROM pointer"):
                self.database.execute("INSERT INTO pointer VALUES (1, 0, '{}', '{}', '{}')")
                for name, value in (("format_version", str(FORMAT_VERSION)), ("kind", kind)):
                    self.database.execute("INSERT INTO meta VALUES (?, ?)", [name, value])

    def check_format(self, where: str) -> None:
        """Refuse tables that another version of holdfast wrote and this one cannot read.

        Raises:
            GalleryError: They have another format version.
        """
        found = self.database.execute("SELECT value FROM meta WHERE name = 'format_version'")
        version = found[0][0] if found else "none"
        if version != str(FORMAT_VERSION):
            raise GalleryError(
                f"The gallery '{where}' has format version {version}.",
                expected=f"{FORMAT_VERSION}, which this version of holdfast reads and writes",
                to_do="install the holdfast that wrote it, or a newer one; the gallery is intact.",
            )

    def pointer(self) -> tuple[Pointer, dict[str, Any]]:
        """Return the pointer, and what the store wrote beside it."""
        [(sequence, manifest, held, places)] = self.database.execute(
            "SELECT sequence, manifest, held, places FROM pointer WHERE one = 1"
        )
        found = {frozenset(names.split()): count for names, count in json.loads(held).items()}
        return Pointer(int(sequence), json.loads(manifest), found), json.loads(places)

    def bits(self) -> dict[str, int]:
        """Return the bit of every generation in the masks of items."""
        return {name: 1 << int(bit) for name, bit in self.database.execute("SELECT name, bit FROM generations")}

    def generations(self) -> dict[str, tuple[int, dict[str, str]]]:
        """Return width and metadata columns of every generation."""
        rows = self.database.execute("SELECT name, width, columns FROM generations")
        return {name: (int(width), json.loads(columns)) for name, width, columns in rows}

    def plan(self, changes: Changes) -> Plan:
        """Return what must become of the vectors, as of now; nothing is changed.

        Raises:
            GalleryError: The changes name generations that are not there, or create one that is.
            DataError: Vectors of another width, or metadata that no column can hold.
        """
        check(changes, self.generations())
        return planned(changes, self._sequence(), self.fetch)

    def record(
        self,
        plan: Plan,
        changes: Changes,
        manifest: Mapping[str, Any],
        event: Mapping[str, Any],
        places: Mapping[str, Any],
    ) -> Committed:
        """Make a planned commit exist; inside a transaction of the database, which makes it durable.

        Args:
            plan: Of these changes; nothing else was recorded since.
            changes: See `Changes`.
            manifest: New state of the gallery.
            event: What the journal is to say.
            places: What the store wants to find beside the pointer.

        Raises:
            GalleryError: Something else was recorded since the plan was made.
        """
        pointer, _ = self.pointer()
        if pointer.sequence + 1 != plan.sequence:
            raise GalleryError(
                f"Commit {plan.sequence} comes after {pointer.sequence}: another writer was faster.",
                expected="one writer at a time",
                to_do="try again; nothing was changed.",
            )
        held = Counter(pointer.held)
        self._create_generations(changes)
        self._remove_items([*changes.delete], held)
        self._write_items(plan, changes, held)
        self._mark_filled(plan, changes, held)
        for name in changes.drop:
            held = self._drop_generation(name, held)
        self.database.execute("INSERT INTO journal VALUES (?, ?, ?)", [plan.sequence, time.time(), json.dumps(event)])
        counts = {" ".join(sorted(names)): count for names, count in held.items() if count}
        self.database.execute(
            "UPDATE pointer SET sequence = ?, manifest = ?, held = ?, places = ? WHERE one = 1",
            [plan.sequence, json.dumps(manifest), json.dumps(counts), json.dumps(places)],
        )
        return Committed(self.pointer()[0], plan.deleted, plan.filled)

    def _create_generations(self, changes: Changes) -> None:
        used = self.bits().values()
        free = (number for number in range(MOST_GENERATIONS) if 1 << number not in used)
        for generation in changes.create:
            values = [generation.name, next(free), generation.width, json.dumps(dict(generation.columns))]
            self.database.execute("INSERT INTO generations VALUES (?, ?, ?, ?)", values)

    def _counted(self, ids: Sequence[str]) -> Counter[frozenset[str]]:
        """Return how many of these items have vectors in exactly which generations."""
        clause, value = self.database.among("id", ids)
        rows = self.database.execute(f"SELECT mask, count(*) FROM items WHERE {clause} GROUP BY mask", [value])
        names = self.bits()
        return Counter({_names(mask, names): int(count) for mask, count in rows})

    def _remove_items(self, ids: Sequence[str], held: Counter[frozenset[str]]) -> None:
        if ids:
            held.subtract(self._counted(ids))
            clause, value = self.database.among("id", ids)
            self.database.execute(f"DELETE FROM items WHERE {clause}", [value])

    def _write_items(self, plan: Plan, changes: Changes, held: Counter[frozenset[str]]) -> None:
        upsert = changes.upsert
        if upsert is None or not len(upsert.ids):
            return
        self._remove_items(list(upsert.ids), held)
        bits, masks = self.bits(), dict.fromkeys(upsert.ids, 0)
        for rows in upsert.rows:
            for identifier in rows.ids:
                masks[identifier] |= bits[rows.generation]
        self.database.execute_many(
            "INSERT INTO items VALUES (?, ?, ?, ?)",
            (
                (identifier, plan.sequence, masks[identifier], json.dumps(dict(metadata)) if metadata else "{}")
                for identifier, metadata in zip(upsert.ids, upsert.metadata, strict=True)
            ),
        )
        held.update({_names(mask, bits): count for mask, count in Counter(masks.values()).items()})

    def _mark_filled(self, plan: Plan, changes: Changes, held: Counter[frozenset[str]]) -> None:
        if changes.fill is None or not plan.filled.any():
            return
        written, name = plan.append[-1], changes.fill.rows.generation  # the rows of a fill come last
        clause, value = self.database.among("id", written.rows.ids)
        self.database.execute(f"UPDATE items SET mask = mask | ? WHERE {clause}", [self.bits()[name], value])
        for names, count in Counter(written.holding).items():
            held[names - {name}] -= count
            held[names] += count

    def _drop_generation(self, name: str, held: Counter[frozenset[str]]) -> Counter[frozenset[str]]:
        bit = self.bits()[name]
        self.database.execute("UPDATE items SET mask = mask & ~CAST(? AS bigint) WHERE mask & ? != 0", [bit, bit])
        self.database.execute("DELETE FROM generations WHERE name = ?", [name])
        self.database.execute("DELETE FROM queue WHERE generation = ?", [name])
        left: Counter[frozenset[str]] = Counter()
        for names, count in held.items():
            left[names - {name}] += count
        return left

    def fetch(self, ids: Sequence[str]) -> Items:
        """Return the items among these ids that exist, in the order given."""
        if not len(ids):
            return _items([], {}, None)
        clause, value = self.database.among("id", ids)
        as_of = self._as_of()
        rows, bits = self._rows(clause, lambda bits: [value])
        by_id = {row[0]: row for row in rows}
        return _items([by_id[identifier] for identifier in dict.fromkeys(ids) if identifier in by_id], bits, as_of)

    def scan(self, after: str, limit: int, lacking: str | None) -> Items:
        """Return the next items by id; only those without a vector in ``lacking``."""

        def values(bits: Mapping[str, int]) -> list[Any]:
            if lacking is not None and lacking not in bits:
                raise unknown_generation(lacking, bits)
            return [after, 0 if lacking is None else bits[lacking], limit]

        as_of = self._as_of()
        return _items(*self._rows("id > ? AND mask & ? = 0 ORDER BY id LIMIT ?", values), as_of)

    def _sequence(self) -> int:
        """Return the number of the last commit."""
        [(sequence,)] = self.database.execute("SELECT sequence FROM pointer WHERE one = 1")
        return int(sequence)

    def _as_of(self) -> int | None:
        """Return which commit rows will hold that are read from now on, at least; None where numbers may come again."""
        return self._sequence() if self.database.keeps_commits else None

    def _rows(
        self, condition: str, values: Callable[[Mapping[str, int]], Sequence[Any]]
    ) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
        """Return rows of items, and what the bits of their masks meant at that moment."""
        bits = self.bits()
        while True:
            rows = self.database.execute(
                f"SELECT id, version, mask, metadata FROM items WHERE {condition}", values(bits)
            )
            before, bits = bits, self.bits()
            if before == bits:
                return rows, bits

    def journal(self, after: int) -> list[Entry]:
        """Return the entries with a number above ``after``, in order."""
        rows = self.database.execute(
            "SELECT sequence, time, event FROM journal WHERE sequence > ? ORDER BY sequence", [after]
        )
        return [Entry(int(sequence), float(when), json.loads(event)) for sequence, when, event in rows]

    def queue(self, generation: str) -> list[str] | None:
        """Return the order of a backfill, or None."""
        rows = self.database.execute("SELECT id FROM queue WHERE generation = ? ORDER BY position", [generation])
        return [row[0] for row in rows[1:]] if rows else None

    def set_queue(self, generation: str, ids: Sequence[str] | None) -> None:
        """Keep the order of a backfill, or forget it."""
        with self.database.transaction():
            self.database.execute("DELETE FROM queue WHERE generation = ?", [generation])
            if ids is not None:  # the first entry says that there is an order, even an empty one
                values = ((generation, position, identifier) for position, identifier in enumerate(["", *ids]))
                self.database.execute_many("INSERT INTO queue VALUES (?, ?, ?)", values)

    def add_traffic(self, retrieved: Mapping[str, int]) -> None:
        """Add to how often items were retrieved."""
        with self.database.transaction():
            self.database.execute_many(
                "INSERT INTO traffic VALUES (?, ?) "
                "ON CONFLICT (id) DO UPDATE SET retrieved = traffic.retrieved + excluded.retrieved",
                sorted(retrieved.items()),
            )

    def traffic(self) -> dict[str, int]:
        """Return how often items were retrieved."""
        return {row[0]: int(row[1]) for row in self.database.execute("SELECT id, retrieved FROM traffic")}


def _items(rows: Sequence[tuple[Any, ...]], bits: Mapping[str, int], as_of: int | None) -> Items:
    known = {mask: _names(mask, bits) for mask in {row[2] for row in rows}}
    holding = [known[row[2]] for row in rows]
    versions = np.array([row[1] for row in rows], np.int64)
    metadata = json.loads(f"[{','.join(row[3] for row in rows)}]")  # at once: three times faster than one by one
    return Items([row[0] for row in rows], versions, holding, metadata, as_of)


def _names(mask: int, bits: Mapping[str, int]) -> frozenset[str]:
    return frozenset(name for name, bit in bits.items() if mask & bit)


def best_first(ids: Sequence[str], scores: Vectors, k: int) -> NDArray[np.int64]:
    """Return the places of the k largest scores, of equal ones the smaller id first.

    Args:
        ids: One per score; more may follow.
        scores: float32 (N,); what must not be found is minus infinity.
        k: How many; fewer where there are fewer.
    """
    k = min(k, len(scores))
    if k < 1:
        return np.empty(0, np.int64)
    least = max(np.partition(scores, len(scores) - k)[len(scores) - k], np.finfo(np.float32).min)
    candidates = np.flatnonzero(scores >= least).tolist()
    return np.array(sorted(candidates, key=lambda place: (-scores[place], ids[place]))[:k], np.int64)
