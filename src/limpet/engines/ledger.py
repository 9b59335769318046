"""The ledger of a gallery in SQL tables: items, journal and pointer, for SQLite and PostgreSQL."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.engines.checks import OF_GALLERIES, damaged
from limpet.engines.database import ClosableDatabase, Database
from limpet.engines.filters import COLUMN_TYPES, Metadata
from limpet.engines.planning import MOST_GENERATIONS, CommitPlan, check, planned, unknown_generation
from limpet.engines.store import Changes, Commit, Committed, Document, Items, JournalEntry, Pointer, Vectors, digest_of
from limpet.errors import GalleryError, LimpetError

_FORMAT_VERSION = 1

_LATEST = 253_402_300_799.0  # end of the year 9999, in seconds since 1970
_MOST = 2**63 - 1
_WIDEST = 2**31 - 1
_LOWEST = np.finfo(np.float32).min

_TIME = "coalesce((SELECT time FROM journal WHERE journal.sequence = pointer.sequence), 0)"

_TABLES = (
    "meta (name text PRIMARY KEY, value text NOT NULL)",
    "generations (name text PRIMARY KEY, bit bigint NOT NULL, width bigint NOT NULL, columns text NOT NULL)",
    "items (id {0.text} PRIMARY KEY, version bigint NOT NULL, mask bigint NOT NULL, metadata text NOT NULL)",
    "journal (sequence bigint PRIMARY KEY, time double precision NOT NULL, event text NOT NULL)",
    "pointer (one bigint PRIMARY KEY, sequence bigint NOT NULL, manifest text NOT NULL, held text NOT NULL, "
    "places text NOT NULL)",
    "queue (generation text NOT NULL, position bigint NOT NULL, id text NOT NULL, PRIMARY KEY (generation, position))",
    "traffic (id text PRIMARY KEY, retrieved bigint NOT NULL)",
    "files (digest text PRIMARY KEY, content {0.bytes} NOT NULL)",
)


class GalleryLedger:
    """Items, journal and pointer."""

    def __init__(self, database: ClosableDatabase) -> None:
        self.database = database

    def create(self, kind: str = "", more: Sequence[str] = ()) -> None:
        """Create the tables and an empty pointer if they are missing.

        Args:
            kind: Kind of the store that the ledger belongs to, which is read when the store is opened.
            more: Statements that create further tables of the store.
        """
        with self.database.transaction():
            for table in _TABLES:
                self.database.execute(f"CREATE TABLE IF NOT EXISTS {table.format(self.database.dialect)}")
            for statement in more:
                self.database.execute(statement)
            if not self.database.execute("SELECT one FROM pointer"):
                self.database.execute("INSERT INTO pointer VALUES (1, 0, '{}', '{}', '{}')")
                for name, value in (("format_version", str(_FORMAT_VERSION)), ("kind", kind)):
                    self.database.execute("INSERT INTO meta VALUES (?, ?)", [name, value])

    def format_version(self) -> int:
        """Return the version of the format in which the tables were written."""
        rows = self.database.execute("SELECT value FROM meta WHERE name = 'format_version'")
        with reading("The format version of the gallery"):
            [(version,)] = rows
            return int(version)

    def check_format(self, where: str) -> None:
        """Refuse tables that another version of limpet wrote and this one cannot read.

        Raises:
            GalleryError: They have another format version.
        """
        version = self.format_version()
        if version != _FORMAT_VERSION:
            raise GalleryError(
                f"The gallery '{where}' has format version {version}.",
                expected=f"{_FORMAT_VERSION}, which this version of limpet reads",
                to_do="install the limpet that wrote it.",
            )

    def pointer(self) -> tuple[Pointer, Document]:
        """Return the pointer, and the data that the store wrote with it."""
        rows = self.database.execute(f"SELECT sequence, manifest, held, places, {_TIME} FROM pointer WHERE one = 1")
        with reading("The pointer of the gallery"):
            [(sequence, manifest, held, places, moment)] = rows
            counts = {frozenset(names.split()): _whole(count) for names, count in _mapping(held).items()}
            return Pointer(_whole(sequence), _mapping(manifest), counts, float(moment)), _mapping(places)

    def bits(self) -> dict[str, int]:
        """Return the bit of every generation in the masks of items."""
        rows = self.database.execute("SELECT name, bit FROM generations")
        with reading("The list of generations"):
            bits = {_name(name): 1 << _whole(bit, most=MOST_GENERATIONS - 1) for name, bit in rows}
            if len(set(bits.values())) < len(bits):
                raise ValueError("two of them share a bit")
            return bits

    def generations(self) -> dict[str, tuple[int, dict[str, str]]]:
        """Return width and metadata columns of every generation."""
        rows = self.database.execute("SELECT name, width, columns FROM generations")
        with reading("The list of generations"):
            return {_name(name): (_whole(width, 1, _WIDEST), _columns(columns)) for name, width, columns in rows}

    def plan(self, changes: Changes) -> CommitPlan:
        """Return the changes of the vectors that a commit needs, without changing anything.

        Raises:
            GalleryError: The changes name missing generations, or create an existing one.
            DataError: Vectors have another width, or no column can hold the metadata.
        """
        check(changes, self.generations())
        return planned(changes, self._last(), self.fetch, self.has)

    def record(
        self,
        plan: CommitPlan,
        changes: Changes,
        manifest: Document,
        event: Document,
        places: Document,
    ) -> Committed:
        """Record a planned commit; inside a transaction of the database, which makes it durable.

        Raises:
            GalleryError: Another commit was recorded since the plan was made.
        """
        pointer, _ = self.pointer()
        if pointer.sequence + 1 != plan.sequence:
            raise GalleryError(
                f"Commit {plan.sequence} comes after {pointer.sequence}: another writer was faster.",
                to_do="try again.",
                intact="Nothing was changed.",
            )
        self.keep_files(changes.files, changes.keep_files)
        held = Counter(pointer.held)
        self._create_generations(changes)
        self._remove_items(plan.gone, held)
        self._write_items(plan, changes, held)
        self._mark_filled(plan, changes, held)
        for name in changes.drop:
            held = self._drop_generation(name, held)
        self.note(JournalEntry(plan.sequence, time.time(), event))
        counts = {" ".join(sorted(names)): count for names, count in held.items() if count}
        self.database.execute(
            "UPDATE pointer SET sequence = ?, manifest = ?, held = ?, places = ? WHERE one = 1",
            [plan.sequence, json.dumps(manifest), json.dumps(counts), json.dumps(places)],
        )
        return Committed(self.pointer()[0], plan.deleted, plan.filled)

    def keep_files(self, files: Mapping[str, bytes], kept: Collection[str] | None) -> None:
        """Store values by digest, see `Changes.files`; keep only ``kept`` of the existing ones, or all if None."""
        if kept is not None:
            clause, value = self.database.dialect.among("digest", list(kept))
            self.database.execute(f"DELETE FROM files WHERE NOT ({clause})", [value])
        for digest, content in files.items():
            self.database.execute(
                "INSERT INTO files VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET content = excluded.content",
                [digest, content],
            )

    def file(self, digest: str) -> bytes:
        """Return a value that `Changes.files` stored, see `Store.file`."""
        rows = self.database.execute("SELECT content FROM files WHERE digest = ?", [digest])
        return kept_file(digest, rows[0][0] if rows else None)

    def _create_generations(self, changes: Changes) -> None:
        used = self.bits().values()
        free = (number for number in range(MOST_GENERATIONS) if 1 << number not in used)
        for generation in changes.create:
            values = [generation.name, next(free), generation.width, json.dumps(dict(generation.columns))]
            self.database.execute("INSERT INTO generations VALUES (?, ?, ?, ?)", values)

    def _remove_items(self, gone: Items, held: Counter[frozenset[str]]) -> None:
        if len(gone):
            held.subtract(gone.generations)
            clause, value = self.database.dialect.among("id", gone.ids)
            self.database.execute(f"DELETE FROM items WHERE {clause}", [value])

    def _write_items(self, plan: CommitPlan, changes: Changes, held: Counter[frozenset[str]]) -> None:
        if changes.upsert is None:
            return
        bits = self.bits()
        masks = {names: sum(bits[name] for name in names) for names in set(plan.holding.values())}
        versions = changes.upsert.versions_in(plan.sequence).tolist()
        self.database.execute_many(
            "INSERT INTO items VALUES (?, ?, ?, ?)",
            (
                (identifier, version, masks[plan.holding[identifier]], json.dumps(dict(known)) if known else "{}")
                for identifier, version, known in zip(
                    changes.upsert.ids, versions, changes.upsert.metadata, strict=True
                )
            ),
        )
        held.update(plan.holding.values())

    def _mark_filled(self, plan: CommitPlan, changes: Changes, held: Counter[frozenset[str]]) -> None:
        if changes.fill is None or not plan.filled.any():
            return
        written, name = plan.append[-1], changes.fill.rows.generation  # the rows of a fill are last
        clause, value = self.database.dialect.among("id", written.rows.ids)
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
        clause, value = self.database.dialect.among("id", ids)
        as_of = self._last()
        rows, bits = self._rows(clause, lambda bits: [value])
        by_id = {row[0]: row for row in rows}
        return _items([by_id[identifier] for identifier in dict.fromkeys(ids) if identifier in by_id], bits, as_of)

    def scan(self, after: str, limit: int, lacking: str | None) -> Items:
        """Return the next items by id; only those without a vector in ``lacking``."""

        def values(bits: Mapping[str, int]) -> list[Any]:
            if lacking is not None and lacking not in bits:
                raise unknown_generation(lacking, bits)
            return [after, 0 if lacking is None else bits[lacking], limit]

        as_of = self._last()
        return _items(*self._rows("id > ? AND mask & ? = 0 ORDER BY id LIMIT ?", values), as_of)

    def sequence(self) -> int:
        """Return the number of the last commit."""
        return self._last().sequence

    def _last(self) -> Commit:
        """Return the last commit; later reads include at least its writes."""
        rows = self.database.execute(f"SELECT sequence, {_TIME} FROM pointer WHERE one = 1")
        with reading("The pointer of the gallery"):
            [(sequence, moment)] = rows
            return Commit(_whole(sequence), float(moment))

    def has(self, commit: Commit) -> bool:
        """Say whether a commit belongs to the history of this gallery."""
        known = "SELECT 1 FROM journal WHERE sequence = ? AND time = ?"
        return commit.sequence == 0 or bool(self.database.execute(known, list(commit)))

    def _rows(
        self, condition: str, values: Callable[[Mapping[str, int]], Sequence[Any]]
    ) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
        """Return rows of items, and the generations of the bits in their masks at that time."""
        bits = self.bits()
        while True:
            rows = self.database.execute(
                f"SELECT id, version, mask, metadata FROM items WHERE {condition}", values(bits)
            )
            before, bits = bits, self.bits()
            if before == bits:
                return rows, bits

    def note(self, entry: JournalEntry) -> None:
        """Add an entry to the journal."""
        values = [entry.sequence, entry.time, json.dumps(entry.event)]
        self.database.execute("INSERT INTO journal VALUES (?, ?, ?)", values)

    def journal(self, after: int) -> list[JournalEntry]:
        """Return the entries with a number above ``after``, in order."""
        return read_journal(self.database, "journal", "sequence > ?", after)

    def queue(self, generation: str) -> list[str] | None:
        """Return the order of a backfill, or None."""
        rows = self.database.execute("SELECT id FROM queue WHERE generation = ? ORDER BY position", [generation])
        with reading("The order of a backfill"):
            return [_text(row[0]) for row in rows[1:]] if rows else None

    def set_queue(self, generation: str, ids: Sequence[str] | None) -> None:
        """Store the order of a backfill, or delete it."""
        with self.database.transaction():
            self.database.execute("DELETE FROM queue WHERE generation = ?", [generation])
            if ids is not None:  # the first entry marks the order as present, even if it is empty
                values = ((generation, position, identifier) for position, identifier in enumerate(["", *ids]))
                self.database.execute_many("INSERT INTO queue VALUES (?, ?, ?)", values)

    def add_traffic(self, retrieved: Mapping[str, int]) -> None:
        """Add to the retrieval counts of items."""
        with self.database.transaction():
            self.database.execute_many(
                "INSERT INTO traffic VALUES (?, ?) "
                "ON CONFLICT (id) DO UPDATE SET retrieved = traffic.retrieved + excluded.retrieved",
                sorted(retrieved.items()),
            )

    def traffic(self) -> dict[str, int]:
        """Return the retrieval counts of items."""
        rows = self.database.execute("SELECT id, retrieved FROM traffic")
        with reading("The count of retrieved items"):
            return {_text(identifier): _whole(retrieved) for identifier, retrieved in rows}


def kept_file(digest: str, content: Any) -> bytes:
    """Return a value stored by its digest, after verifying the digest.

    Args:
        digest: Digest of the value.
        content: The stored bytes; None if there are none.

    Raises:
        GalleryError: The value is missing.
        StoreError: The value is damaged.
    """
    if content is None:
        raise GalleryError(
            f"The gallery has no file {digest}.",
            to_do="ask again: gc removes what no state names any more. If it stays so, `limpet doctor` "
            "says what needs it. The gallery is as it was.",
        )
    if not isinstance(content, bytes) or digest_of(content) != digest:
        raise damaged(f"The file {digest} of the gallery", "its contents have another digest")
    return content


def read_journal(
    database: Database, table: str, condition: str, value: int, to_do: str = OF_GALLERIES
) -> list[JournalEntry]:
    """Return entries of the journal of a gallery, or of attachments, in order.

    Raises:
        StoreError: An entry is damaged.
    """
    entries = []
    for sequence, when, event in database.execute(
        f"SELECT sequence, time, event FROM {table} WHERE {condition} ORDER BY sequence", [value]
    ):
        with reading(f"Entry {sequence!r:.60} of the journal", to_do):
            entries.append(JournalEntry(_whole(sequence), _moment(when), _event(event)))
    return entries


@contextmanager
def reading(what: str, to_do: str = OF_GALLERIES) -> Iterator[None]:
    """Convert errors while a record is parsed to the error for a damaged one."""
    try:
        yield
    except LimpetError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged(what, str(error), to_do) from error


def _whole(value: Any, least: int = 0, most: int = _MOST) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{value!r:.60} is no whole number from {least} to {most}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.60} is no text")
    return value


def _name(value: Any) -> str:
    if not (_text(value).isascii() and value.isalnum()):
        raise ValueError(f"{value!r:.60} is no name of a generation")
    return str(value)


def _moment(value: Any) -> float:
    if not isinstance(value, float) or not 0 <= value <= _LATEST:
        raise ValueError(f"{value!r:.60} is no time")
    return value


def _mapping(text: Any) -> dict[str, Any]:
    value = json.loads(_text(text))
    if not isinstance(value, dict):
        raise ValueError(f"{text!r:.60} is no JSON object")
    return value


def _columns(text: Any) -> dict[str, str]:
    columns = _mapping(text)
    if not all(isinstance(kind, str) and kind in COLUMN_TYPES for kind in columns.values()):
        raise ValueError(f"{text!r:.60} are no types of columns")
    return columns


def _event(text: Any) -> dict[str, Any]:
    event = _mapping(text)
    _text(event.get("kind"))
    return event


def _items(rows: Sequence[tuple[Any, ...]], bits: Mapping[str, int], as_of: Commit | None) -> Items:
    with reading("The list of items"):
        ids = [_text(row[0]) for row in rows]
        known = {mask: _names(_whole(mask), bits) for mask in {row[2] for row in rows}}
        versions = read_versions([row[1] for row in rows])
        return Items(
            ids, versions, [known[row[2]] for row in rows], read_metadata(ids, [row[3] for row in rows]), as_of
        )


def read_versions(values: Sequence[Any]) -> NDArray[np.int64]:
    """Return versions of items from their stored form.

    Raises:
        ValueError: A version is no integer.
    """
    versions = np.array(values) if values else np.empty(0, np.int64)
    if versions.dtype != np.int64:
        raise ValueError("a version is no whole number")
    return versions


def read_metadata(ids: Sequence[str], texts: Sequence[Any]) -> list[Metadata]:
    """Return metadata of items from their stored form.

    Raises:
        ValueError: The metadata of an item is no JSON object.
    """
    try:
        values: list[Metadata] = json.loads(f"[{','.join(texts)}]")  # at once: three times faster than one by one
    except (ValueError, TypeError, RecursionError):
        values = []
    if len(values) != len(ids) or not all(isinstance(value, dict) for value in values):
        for identifier, text in zip(ids, texts, strict=True):
            with reading(f"The metadata of item {identifier!r:.60}"):
                _mapping(text)
    return values


def _names(mask: int, bits: Mapping[str, int]) -> frozenset[str]:
    if mask & ~sum(bits.values()):
        raise ValueError(f"an item has vectors of generations that are not there (mask {mask})")
    return frozenset(name for name, bit in bits.items() if mask & bit)


def best_first(ids: Sequence[str], scores: Vectors, k: int) -> NDArray[np.int64]:
    """Return the positions of the k largest scores, ties by id.

    Args:
        ids: One per score; more may follow.
        scores: float32 (N,); minus infinity for items that must not be found.
        k: Maximum number of positions.
    """
    k = min(k, len(scores))
    if k < 1:
        return np.empty(0, np.int64)
    least = max(np.partition(scores, len(scores) - k)[len(scores) - k], _LOWEST)
    candidates = np.flatnonzero(scores >= least).tolist()
    return np.array(sorted(candidates, key=lambda place: (-scores[place], ids[place]))[:k], np.int64)
