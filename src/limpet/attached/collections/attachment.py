"""Upgrades of collections that an application continues to write: repeated passes compare both sides.

Engines of collections have no triggers. Changes are found by reading both sides and comparing digests with those of
the time when they last agreed; the next pass finds an edit or a deletion between two passes. A swap is refused until a
comparison finds nothing, so that everything acknowledged before that comparison began is on the new side; the next pass
copies later writes, before and after the swap alike.

The application writes one side, the one that `AttachmentState.writes` names. Before another one is declared, a pass
brings that side up to date, or the declaration is refused. Processes of the application may write the former side for a
short time longer: these writes are still copied, unless the same item was written on the declared side as well
(`due`). Rows are compared and written one by one: no step changes many at once.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple, Unpack

import numpy as np

from limpet.attached.base import Attachment
from limpet.attached.collections.due import DigestPair, Due, due, same_fields
from limpet.attached.collections.ledger import CollectionEntry, CollectionLedger
from limpet.attached.next_steps import next_steps
from limpet.attached.state import AttachmentEvent, advance
from limpet.embeddings import EmbeddingSet
from limpet.engines.address import Address
from limpet.engines.collection import AT_ONCE, CollectionRow, Engine, Pace
from limpet.engines.schemaless import value_at
from limpet.engines.sides import OTHER, SIDES, ModelSide
from limpet.errors import (
    ConfigError,
    GalleryError,
    UpgradeStateError,
    reason,
    refuse,
    shown,
)
from limpet.geometry import Hypersphere, Space
from limpet.upgrade.base import UpgradeVerification
from limpet.upgrade.filling import Backfilled, Fillable, Filling, FillOptions, LeftOut, check_source
from limpet.upgrade.lifecycle import check_step
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.status import ApplicationFacts, UpgradeStatus
from limpet.upgrade.vector_sources import VectorSource, WithText, points_of

_SAME = 1e-3
"""Maximum amount by which the cosine of a written vector and its read-back value is less than 1."""
_log = logging.getLogger("limpet")


@dataclass
class SideComparison:
    """Result of a comparison of both sides.

    Args:
        writes: The side that the application wrote when the comparison began.
        late: The side whose deletions counted as well, see `AttachmentState.late`.
        items: Number of items that have a vector on the written side, or were never on both.
        empty: Number of items without a vector on the written side.
        due: Ids by the action that they need.
        changed: Ids that were on both sides before, in another state.
        before: Digests of the present items on the side that needs an action, by id.
    """

    writes: ModelSide
    late: ModelSide | None = None
    items: int = 0
    empty: int = 0
    due: dict[Due, list[str]] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    before: dict[str, bytes] = field(default_factory=dict)

    def lacking(self, side: ModelSide) -> list[str]:
        """Return the items that lack an up-to-date vector of a side."""
        return self.due.get("fill old" if side == "old" else "fill new", [])

    def leftover(self, side: ModelSide) -> list[str]:
        """Return the items that a side still has, but the application has deleted."""
        return self.due.get("drop old" if side == "old" else "drop new", [])

    @property
    def leftovers(self) -> bool:
        """Whether either side has such items."""
        return bool(self.leftover("old") or self.leftover("new"))

    def behind(self, side: ModelSide) -> int:
        """Return the number of items by which a side is behind the other one."""
        return max(len(self.lacking(side)), len(self.leftover(side)))


class CollectionAttachment(Attachment):
    """An upgrade of a collection; use `start` or `open_attachment` of its engine's URL.

    Args:
        ledger: Ledger of the upgrade.
        url: URL that opens it, without secrets.
        rows: The collection as a source.
    """

    def __init__(self, engine: Engine, ledger: CollectionLedger, number: int, url: str, rows: Address) -> None:
        self.engine, self.ledger, self.number, self.url, self._rows = engine, ledger, number, url, rows
        record = self.entry.record
        self.dim = max(record.old.dim, record.new.dim)
        self.pace = Pace(self.dim)
        self._held: tuple[ModelSide, Mapping[str, CollectionRow]] = ("old", {})

    @property
    def entry(self) -> CollectionEntry:
        """The attachment as it is now."""
        return self.ledger.entry(self.number)

    @property
    def place(self) -> str:
        """Description of the attached collection."""
        return self.engine.place

    @property
    def rows(self) -> Address:
        """The collection, as a source."""
        return self._rows

    @property
    def texts(self) -> WithText:
        """Current texts of the items as the application keeps them, for models that re-embed them."""
        return WithText(StoredTexts(self))

    @property
    def stored(self) -> StoredVectors:
        """The current old vectors, for adapters and heads."""
        return StoredVectors(self, self.entry.record.old)

    @contextmanager
    def holding(self, side: ModelSide, rows: Mapping[str, CollectionRow]) -> Iterator[None]:
        """Let sources of texts and of stored vectors use rows that were just read, instead of reading them again."""
        self._held = side, rows
        try:
            yield
        finally:
            self._held = side, {}

    def rows_of(self, ids: Sequence[str], side: ModelSide | None = None) -> dict[str, CollectionRow]:
        """Return the existing rows of one side, or of the side that is filled from or written."""
        held, rows = self._held
        if side not in (None, held):
            rows = {}
        read = [one for one in ids if one not in rows]
        found = self.engine.fetch(side or self.state.writes, read) if read else []
        return {one: rows[one] for one in ids if one in rows} | {row.id: row for row in found}

    # Comparison

    def _compare(self) -> SideComparison:
        state = self.state
        writes, found = state.writes, SideComparison(state.writes, state.late)
        with closing(sqlite3.connect("")) as scratch:  # a temporary database
            scratch.execute("CREATE TABLE seen (id TEXT PRIMARY KEY, old BLOB, new BLOB, was_old BLOB, was_new BLOB, "
                            "paired INTEGER) WITHOUT ROWID")  # fmt: skip
            scratch.executemany(
                "INSERT INTO seen VALUES (?, NULL, NULL, ?, ?, 1)",
                ((identifier, *pair) for identifier, pair in self.ledger.pairs(self.number)),
            )
            again = scratch.execute("SELECT 1 FROM seen").fetchone() is not None  # without pairs, ids decide everything
            for side in (OTHER[writes], writes):
                for rows in self.engine.scan(side, self.pace, digests=again):
                    found.empty += sum(digest is None for _, digest in rows) if side == writes else 0
                    scratch.executemany(
                        f"INSERT INTO seen (id, {side}) VALUES (?, ?) "
                        f"ON CONFLICT (id) DO UPDATE SET {side} = excluded.{side}", rows,
                    )  # fmt: skip
            for identifier, old, new, was_old, was_new, paired in scratch.execute("SELECT * FROM seen ORDER BY id"):
                pair = DigestPair(was_old, was_new) if paired else None
                there = old if writes == "old" else new
                kind = due(old, new, pair, writes, late=found.late, shared=self.engine.shared)
                found.items += there is not None or kind in ("fill old", "fill new")
                if pair is not None and None not in pair and kind != "nothing":
                    found.changed.add(identifier)
                if kind != "nothing":
                    found.due.setdefault(kind, []).append(identifier)
                    before = new if kind in ("fill new", "drop new") else old
                    if before is not None and kind != "forget":
                        found.before[identifier] = before
        return found

    def _tidy(self, found: SideComparison) -> None:
        """Remove what the application deleted, after checking again."""
        for side in SIDES:
            for ids in _parts(found.leftover(side), AT_ONCE):
                with self.ledger.alone(self.number):
                    state = self.state
                    if state.phase == "steady" or state.writes != found.writes:
                        return  # another process ended or declared it: the next comparison decides
                    back = {row.id for row in self.engine.fetch(OTHER[side], ids) if row.digest is not None}
                    left = {row.id for row in self.engine.fetch(side, ids) if row.digest == found.before[row.id]}
                    gone = [one for one in ids if one in left and one not in back]
                    self.engine.remove(side, gone)
                    self.ledger.forget(self.number, gone)
        self.ledger.forget(self.number, found.due.get("forget", []))
        if found.late is not None:
            self.ledger.step(self.number, {"kind": "settled", "late": found.late})

    # Steps

    def status(self) -> UpgradeStatus:
        """Compare both sides, and return the status."""
        entry, found = self.entry, self._compare()
        state, lacking = entry.state, {side: len(found.lacking(side)) for side in SIDES}
        facts = ApplicationFacts(
            found.empty, {}, {side: self._without_text(side, count) for side, count in lacking.items()},
            entry.record.text is not None, queries=self._client_queries(),
        )  # fmt: skip
        status = UpgradeStatus(
            self.place, state.phase, entry.record.old, entry.record.new, state.serving, state.writes, found.items,
            lacking, self.engine.indexes(), application=facts, notes=self.notes,
        )  # fmt: skip
        return replace(status, next=next_steps(status, state))

    def _without_text(self, side: ModelSide, lacking: int) -> int:
        """Return how many of the items that lack a vector had no text in the last backfill of a side."""
        fills = [event for event in self.journal() if event["kind"] == "backfill" and event["of"] == side]
        told = [event["without_text"] for event in fills if "without_text" in event]
        return min(lacking, int(str(told[-1]))) if told else 0

    def some(self, limit: int) -> list[str]:
        """Return ids of at most `limit` items that have an old vector."""
        found: list[str] = []
        for rows in self.engine.scan("old", self.pace, digests=False):
            found += [identifier for identifier, digest in rows if digest is not None]
            if len(found) >= limit:
                break
        return found[:limit]

    def backfill(
        self,
        source: VectorSource,
        *,
        of: ModelSide = "new",
        made: datetime | None = None,
        **options: Unpack[FillOptions],
    ) -> Backfilled:
        """Write a vector of one of the models for items that lack one, and remove what the application deleted.

        An item lacks a vector if only the other side has it, or if this side has it from an earlier state of the item.
        Engines of collections do not store when an item changed. If vectors were ``made`` before or at the start, items
        that were filled once and changed since are skipped; with a later time, the source is assumed to know them.

        Raises:
            DataError: The source is of another model, or returns vectors that were not requested.
            UpgradeStateError: The phase of the attachment permits no backfill.
            StoreError: The service stayed unreachable; another run continues where this one stopped.
        """
        changed = made is None or made > self.started
        return Filling(_CollectionFill(self, of, changed=changed, noted=True), source, **options).run()

    def _check_source(self, source: VectorSource, side: ModelSide) -> None:
        record = self.entry.record
        model = record.new if side == "new" else record.old
        check_source(source, model.fingerprint, model.dim, of=f"the {side} model")

    def index(self) -> None:
        """Build the index over the new vectors like that over the old ones, without blocking reads and writes."""
        advance(self.state, {"kind": "index"})
        self.engine.build()
        self.ledger.step(self.number, {"kind": "index"})

    def swap(
        self, source: VectorSource | None = None, *, writes: ModelSide | None = None, allow_missing: int = 0
    ) -> None:
        """Make `current` return the new vectors, and then set the alias, if there is one; see `Attachment.swap`.

        Raises:
            UpgradeStateError: An index is missing, or items lack a new vector; also if the application changes items
                faster than passes find them.
        """
        self._turn("swap", "new", source, writes, allow_missing)

    def rollback(
        self, source: VectorSource | None = None, *, writes: ModelSide | None = None, allow_missing: int = 0
    ) -> None:
        """Make both lead to the old vectors again."""
        self._turn("rollback", "old", source, writes, allow_missing)

    def _turn(
        self, kind: str, side: ModelSide, source: VectorSource | None, writes: ModelSide | None, allow: int
    ) -> None:
        event: dict[str, object] = {"kind": kind, "allow_missing": allow} | ({"writes": writes} if writes else {})
        state = self.state
        written = state.side_of(writes) if writes else state.writes
        turned = state.serving == side and written == state.writes
        if turned and self._point_alias():
            return  # resumes what an interruption left
        advance(state, {**event, "behind": 0})
        found = self._pass(side, source)
        self._refuse_lacking(kind, side, found, allow)
        if written != state.writes:
            self._refuse_lacking(kind, written, found, allow)
        if side == "new" and not all(one.built for one in self.engine.indexes()):
            raise UpgradeStateError(
                f"Cannot swap: the index over {self.engine.target('new').collection} is not complete.",
                to_do="wait for it, or `limpet upgrade index`.",
            )
        self._turned({**event, "lacking": len(found.lacking(side)), "behind": found.behind(written)})
        _log.info("%s of %s: %s serves", kind, self.place, self.state.fingerprint(side))
        self._point_alias()
        self._settle(side, source)

    def _pass(self, side: ModelSide, source: VectorSource | None) -> SideComparison:
        """Bring a side up to date as far as possible, and return what is left to do; embed only with a source."""
        if source is not None:
            fill = _CollectionFill(self, side)
            Filling(fill, source).run()
            return fill.found
        found = self._compare()
        self._tidy(found)
        return self._compare() if found.leftovers else found

    def _turned(self, event: AttachmentEvent) -> None:
        with self.ledger.alone(self.number):  # not between a read and a write of another pass
            self.ledger.step(self.number, event)

    def _settle(self, side: ModelSide, source: VectorSource | None) -> None:
        """Copy what the application wrote between the last comparison and a declaration."""
        state = self.state
        if state.late is not None:
            self._pass(side, source if side == state.writes else None)

    def _refuse_lacking(self, kind: str, side: ModelSide, found: SideComparison, allow: int) -> None:
        lacking, step = found.lacking(side), {"writes": "declare it"}.get(kind, kind)
        if len(lacking) > allow:
            model = "MODEL" if side == "new" else "OLD_MODEL"
            embeds = "" if kind in ("finish", "cancel") else f"or let `{kind}` do it: add --model {model}; "
            raise UpgradeStateError(
                f"Cannot {step}: {len(lacking):,} items have no up-to-date vector of the {side} model, and would not "
                f"be found: {shown(lacking)}.",
                to_do=f"`limpet upgrade backfill --of {side} --model {model}` fills them; "
                f"{embeds}where the application writes faster than that, let it pause; or allow it: "
                f"--allow-missing {len(lacking)}.",
                intact="Nothing that serves was changed.",
            )
        leftover = found.leftover(side)
        if len(leftover) > allow:
            raise UpgradeStateError(
                f"Cannot {step}: {len(leftover):,} items that the application deleted would be found again: "
                f"{shown(leftover)}.",
                to_do=f"`limpet upgrade backfill --of {side} --model MODEL` removes them.",
            )

    def _point_alias(self) -> bool:
        """Point the alias to the serving side; return whether it had to change and was changed."""
        alias = self.entry.record.alias
        if alias is None:
            return False
        with self.ledger.alone(self.number):  # another process may swap meanwhile
            entry = self.entry
            if self.engine.aliased(alias) == entry.serving.collection:
                return False
            try:
                self.engine.set_alias(alias, entry.state.serving)
            except GalleryError as error:
                _log.warning("the alias %s could not be set: %s", alias, reason(error))
                return False
            return True

    def declare_writes(self, model: str, source: VectorSource | None = None, *, allow_missing: int = 0) -> ModelSide:
        """Declare which side the application writes, after a pass that copies what it wrote until now.

        Raises:
            UpgradeStateError: Items lack a vector.
        """
        state = self.state
        side = state.side_of(model)
        event: dict[str, object] = {"kind": "writes", "writes": side, "allow_missing": allow_missing}
        advance(state, {**event, "behind": 0})
        if side != state.writes:
            found = self._pass(side, source)
            self._refuse_lacking("writes", side, found, allow_missing)
            self._turned({**event, "behind": found.behind(side)})
        self._settle(side, source)
        return side

    def verify(self, *, watch: float = 0.0, source: VectorSource | None = None) -> UpgradeVerification:
        """Compare both sides, and check the alias; these engines do not report their queries."""
        refuse(
            source is not None, "A model for `verify` of a collection.", "none: rows of tables alone are embedded again"
        )
        entry, found = self.entry, self._compare()
        problems = []
        for kind, ids in found.due.items():
            if kind != "forget":
                problems.append(
                    f"{len(ids):,} items are due for '{kind}': {shown(ids)}; `limpet upgrade backfill --model MODEL`"
                )
        alias = entry.record.alias
        if alias is not None and (leads := self.engine.aliased(alias)) != entry.serving.collection:
            turn = "swap" if entry.state.serving == "new" else "rollback"
            problems.append(f"the alias {alias} leads to {leads}, and {entry.serving.collection} serves; repeat "
                            f"`limpet upgrade {turn}`")  # fmt: skip
        return UpgradeVerification(tuple(problems), (), "Collections do not tell which queries they are asked.")

    def finish(self, *, allow_missing: int = 0) -> None:
        """Compare both sides, and end the upgrade with the new vectors; this cannot be undone.

        The old side stays as it is: it existed before, and its owner may remove it. `current` continues to work.

        Raises:
            UpgradeStateError: The new vectors do not serve, items lack one, or the application writes the old side.
        """
        event = {"kind": "finish", "allow_missing": allow_missing}
        self._check_end(event, "new", allow_missing)
        self._turned(event)

    def cancel(self, *, allow_missing: int = 0, force: bool = False) -> None:
        """End the upgrade with the old vectors, and remove everything that was added. `current` continues to work.

        With ``force``, nothing is compared first.

        Raises:
            UpgradeStateError: The new vectors serve, items lack an old one, or the application writes the new side.
        """
        event = {"kind": "cancel", "allow_missing": allow_missing}
        if not self._cancelled():
            self._check_end(event, "old", allow_missing, compare=not force)
        with self.ledger.alone(self.number):  # a new side of the same name is created only after this one is removed
            if not self._cancelled():
                self.ledger.step(self.number, event)
            if not any(one["kind"] == "removed" for one in self.journal()):
                self.engine.drop()
                with self.ledger.transaction():
                    self.ledger.note(self.number, {"kind": "removed"})

    def _cancelled(self) -> bool:
        state = self.state
        return state.phase == "steady" and state.serving == "old"

    def _check_end(self, event: AttachmentEvent, stays: ModelSide, allow_missing: int, *, compare: bool = True) -> None:
        advance(self.state, event)
        if compare:
            self._refuse_lacking(str(event["kind"]), stays, self._pass(stays, None), allow_missing)

    def _client_queries(self) -> dict[str, str]:
        called = f"limpet.attached.collections.opening.current({self.url!r}"
        return {"to know which collection, and which vector, to search": f"{called})",
                "to know which one to write": f"{called}, for_='writes')"}  # fmt: skip

    def journal(self, last: int | None = None) -> Sequence[AttachmentEvent]:
        """Return the events of the journal in order, each with "at", a time, and "kind"."""
        return self.ledger.journal(self.number)[-(last or 0) :]

    def close(self) -> None:
        """Close all connections."""
        self.engine.close()
        self.ledger.close()


class StoredTexts:
    """Current texts of items as the application keeps them: an `ItemSource`."""

    def __init__(self, attachment: CollectionAttachment) -> None:
        self._attachment, self._name = attachment, attachment.entry.record.text

    def read(self, ids: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the existing ids, in the order given, and their texts; an empty text for an item without one.

        Raises:
            ConfigError: No text field was named.
        """
        if self._name is None:
            raise ConfigError(
                "No text was named when the upgrade was started.",
                to_do="cancel, and start with &text=NAME in the URL; or give vectors as files.",
            )
        found = {one: value_at(row.values, self._name) for one, row in self._attachment.rows_of(ids).items()}
        there = [one for one in ids if one in found]
        return there, [text if isinstance(text := found[one], str) else "" for one in there]


class StoredVectors:
    """The current old vectors of items, normalized: a `VectorSource`."""

    def __init__(self, attachment: CollectionAttachment, model: UpgradeModel) -> None:
        self._attachment, self.fingerprint = attachment, model.fingerprint
        self.space: Space = Hypersphere(model.dim)

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return the normalized vectors of the items with a nonzero vector, in the order given."""
        found = {one: row.vector for one, row in self._attachment.rows_of(ids, "old").items() if row.vector is not None}
        there = [one for one, vector in found.items() if np.linalg.norm(vector) > 0]
        vectors = np.array([found[one] for one in there], np.float32).reshape(-1, self.space.dim)
        return points_of(self, there, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


class _Rows(NamedTuple):
    """Items of the side that vectors are made from."""

    rows: list[CollectionRow]

    @property
    def ids(self) -> list[str]:
        return [row.id for row in self.rows]

    def select(self, rows: Sequence[int]) -> _Rows:
        return _Rows([self.rows[row] for row in rows])


class _CollectionFill(Fillable[_Rows]):
    """One side of a collection; every pass compares both sides and removes what the application deleted.

    Args:
        changed: Whether to include items that were filled before and have changed since.
        noted: Whether start and end are recorded in the ledger.
    """

    batch = AT_ONCE

    def __init__(
        self, attachment: CollectionAttachment, of: ModelSide, *, changed: bool = True, noted: bool = False
    ) -> None:
        self.at, self.side, self.changed, self.noted = attachment, of, changed, noted
        self.found = SideComparison(of)
        self.stale = True  # whether the comparison is outdated
        self.wanted: list[str] = []
        self.pace, self.taken, self.since = Pace(attachment.dim), 0, 0.0

    def begin(self, source: VectorSource) -> None:
        self.at._check_source(source, self.side)
        self.generation = self.at.state.fingerprint(self.side)
        if self.noted:
            self.at.ledger.step(self.at.number, {"kind": "backfill", "of": self.side})

    def begin_pass(self) -> None:
        self.found = self.at._compare()
        self.wanted = [one for one in self.found.lacking(self.side) if self.changed or one not in self.found.changed]
        self.total = self.written + len(self.wanted)
        self.again = self.stale = self.found.leftovers
        self.taken = 0
        self.at._tidy(self.found)

    def next(self, limit: int) -> _Rows | None:
        self._measure()
        while self.wanted and self.at.state.writes == self.found.writes:
            ids = self.wanted[:limit]
            found = {row.id: row for row in self.at.engine.fetch(OTHER[self.side], ids) if row.vector is not None}
            self.wanted, self.taken = self.wanted[limit:], len(ids)
            if found:
                return _Rows([found[one] for one in ids if one in found])
        if self.wanted:  # another process declared the other side: the next comparison decides
            self.again = self.stale = True
        return None

    def _measure(self) -> None:
        now = time.monotonic()
        if self.taken:
            self.pace.took(self.taken, now - self.since)
        self.batch, self.since = self.pace.rows, now

    def embed(self, source: VectorSource, batch: _Rows) -> EmbeddingSet:
        with self.at.holding(OTHER[self.side], {row.id: row for row in batch.rows}):
            return source.embed(batch.ids)

    def write(self, batch: _Rows, made: EmbeddingSet, start: int) -> int:
        self.stale = True
        with self.at.ledger.alone(self.at.number):
            state = self.at.state
            check_step("backfill", state.phase)  # another process may have ended the upgrade
            if state.writes == self.found.writes:
                self.written += self._write(batch.rows, made)
        return len(made)

    def _write(self, rows: Sequence[CollectionRow], made: EmbeddingSet) -> int:
        """Write vectors with the rows they were made from, and return their number; items changed meanwhile wait."""
        engine, ledger, number, found = self.at.engine, self.at.ledger, self.at.number, self.found
        other = OTHER[self.side]
        truth = self.side == found.writes  # nothing else overwrites what the application writes
        # Before the last check of the items: between that check and the write the application may write them, too.
        intended = [row for row in rows if row.id not in found.changed or (truth and engine.shared)]
        ledger.keep(number, {row.id: self._pair(row.digest, None) for row in intended})
        now = {row.id: row.values for row in engine.fetch(other, list(made.ids), vectors=False)}
        pairs = zip(rows, made.vectors, strict=True)
        put = [replace(row, vector=vector) for row, vector in pairs if now.get(row.id) == row.values]
        if truth:
            put = self._overwrite(put)
        elif put:
            engine.put(self.side, put)
        if not put:
            return 0
        read = {row.id: row for row in engine.fetch(self.side, [row.id for row in put])}
        agreed = {
            row.id: self._pair(row.digest, back.digest)
            for row in put
            if (back := read.get(row.id)) is not None
            and back.digest is not None
            and not (truth and self._rewritten(row, back))
        }  # fmt: skip
        ledger.keep(number, agreed)
        return len(agreed)

    def _overwrite(self, rows: Sequence[CollectionRow]) -> list[CollectionRow]:
        """Overwrite items that the application has not written since the comparison, and return what was written.

        No engine has conditional writes: a write of the application to an item between the check and the end of this
        write is lost, so nothing else is done in between.
        """
        engine, other = self.at.engine, OTHER[self.side]
        there = {row.id: row for row in engine.fetch(self.side, [row.id for row in rows])}
        own = {identifier: row.digest for identifier, row in there.items()}
        put = [row for row in rows if own.get(row.id) == self.found.before.get(row.id)]
        if put:
            engine.put(self.side, put, there)
        if put and not engine.shared:  # do not restore an item that was deleted everywhere meanwhile
            kept = {row.id for row in engine.fetch(other, [row.id for row in put], vectors=False)}
            engine.remove(self.side, [row.id for row in put if row.id not in kept])
        return put

    def _rewritten(self, put: CollectionRow, there: CollectionRow) -> bool:
        if put.vector is None or there.vector is None:
            return True
        length = float(np.linalg.norm(put.vector) * np.linalg.norm(there.vector))
        alike = float(put.vector @ there.vector) >= (1 - _SAME) * length
        return not alike or not same_fields(put.digest, there.digest)

    def _pair(self, other: bytes | None, own: bytes | None) -> DigestPair:
        return DigestPair(other, own) if self.side == "new" else DigestPair(own, other)

    def lacking(self) -> int:
        if self.stale:
            self.found, self.stale = self.at._compare(), False
        return len(self.found.lacking(self.side))

    def end(self, stopped: str, left_out: LeftOut, lacking: int) -> None:
        if self.noted:
            self.at.ledger.step(self.at.number, {
                "kind": "backfill", "of": self.side, "written": self.written, "lacking": lacking, "stopped": stopped,
                "missing": len(left_out.missing), "without_text": len(left_out.without_text),
            })  # fmt: skip


def _parts(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))
