"""Six bugs that the harness has to catch, each planted in the processes of a trial only.

A bug is a change of a class of a store, made before the gallery is opened. Those that a kill reveals have a point of
their own in the gap that they open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from crash.script import BATCH
from holdfast.stores.base import Changes, Items, Rows, Upsert
from holdfast.stores.ledger_store import LedgerStore

Commit = Callable[..., Any]


def plant(name: str | None, kind: str) -> None:
    """Plant a bug in this process.

    Args:
        name: Name in `BUGS`; None for none.
        kind: Of the store.
    """
    if name is not None:
        BUGS[name](_store(kind))


def _store(kind: str) -> Any:
    from importlib import import_module

    module, name = {
        "memory": ("memory", "MemoryStore"), "lance": ("lance", "LanceStore"), "pgvector": ("pgvector", "PgvectorStore")
    }[kind]  # fmt: skip
    return getattr(import_module(f"holdfast.stores.{module}"), name)


def stamp_before_write(store: Any) -> None:
    """Items are marked as having a vector, durably, before it is written."""
    commit: Commit = store.commit

    def wrong(self: Any, changes: Changes, manifest: Any, event: Any) -> Any:
        if changes.fill is None:
            return commit(self, changes, manifest, event)
        plan = self.ledger.plan(changes)
        with self.database.transaction():
            self.ledger._mark_filled(plan, changes, Counter())
        self._disk_of_trial.reached("bug.stamped")
        self.ledger.plan = lambda _: plan
        try:
            return commit(self, changes, manifest, event)
        finally:
            del self.ledger.plan

    store.commit = wrong
    _remember_disk(store)


def pointer_before_data(store: Any) -> None:
    """The pointer moves before the vectors that it names are there; with Lance, before they are synced."""
    commit: Commit = store.commit

    def wrong(self: Any, changes: Changes, manifest: Any, event: Any) -> Any:
        place, step, others = _writer(self)
        right, put_off = getattr(place, step), []
        setattr(place, step, lambda *values: put_off.append(values))
        for other in others:
            setattr(place, other, lambda *values: None)
        try:
            committed = commit(self, changes, manifest, event)
        finally:
            for name in (step, *others):
                delattr(place, name)
        self._disk_of_trial.reached("bug.moved")
        with nullcontext() if self.kind == "lance" else self.database.transaction():
            for values in put_off:
                right(*values)
        return committed

    store.commit = wrong
    _remember_disk(store)


def _writer(store: Any) -> tuple[Any, str, tuple[str, ...]]:
    """Return what makes vectors durable: an object, its method, and methods that look at the result."""
    if store.kind == "lance":
        return store._tables, "sync", ()
    return (store._rows, "write", ("read_back",)) if store.kind == "memory" else (store, "_write", ())


def journal_not_synced(store: Any) -> None:
    """The database does not make its commits durable."""
    if store.kind == "postgresql":
        from holdfast.stores import postgres

        postgres._SETTINGS = postgres._SETTINGS.replace("'off', 'on'", "'on', 'off'")
        return
    from holdfast.stores import sqlite

    opened_file = sqlite.SqliteDatabase._open

    def careless(self: Any) -> Any:
        connection = opened_file(self)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    sqlite.SqliteDatabase._open = careless  # type: ignore[method-assign]


def deleted_id_resurrected(store: Any) -> None:
    """A backfill writes its batch back whole, also items that were deleted since it read them."""
    commit: Commit = store.commit
    deleted: dict[str, Any] = {}

    def wrong(self: Any, changes: Changes, manifest: Any, event: Any) -> Any:
        found = self.fetch(changes.delete) if changes.delete else Items([], np.empty(0, np.int64), [], [])
        deleted.update(zip(found.ids, found.metadata, strict=True))
        back = [] if changes.fill is None else [one for one in changes.fill.rows.ids if one in deleted]
        if back and not len(self.fetch(back)):
            rows = changes.fill.rows  # type: ignore[union-attr]
            place = {identifier: row for row, identifier in enumerate(rows.ids)}
            vectors = rows.vectors[[place[identifier] for identifier in back]]
            upsert = Upsert(back, [deleted[one] for one in back], [Rows(rows.generation, back, vectors)])
            changes = replace(changes, upsert=upsert)
        return commit(self, changes, manifest, event)

    store.commit = wrong


def row_encoded_twice(store: Any) -> None:
    """A backfill that is resumed begins with a batch that was done already."""
    scan = store.scan

    def wrong(self: Any, *, after: str = "", limit: int, lacking: str | None = None) -> Items:
        found = scan(self, after=after, limit=limit, lacking=lacking)
        if lacking is None or after or getattr(self, "_resumed", False):
            return found
        self._resumed = True
        every = scan(self, after="", limit=10**6)
        done = [row for row, holding in enumerate(every.generations) if lacking in holding][:BATCH]
        rows = [*done, *(every.ids.index(identifier) for identifier in found.ids)]
        return Items(
            [every.ids[row] for row in rows], every.versions[rows],
            [every.generations[row] for row in rows], [every.metadata[row] for row in rows],
        )  # fmt: skip

    store.scan = wrong


def rollback_drops_later_writes(store: Any) -> None:
    """A rollback also takes away what was written since the swap, and has no vector of the older model."""
    commit: Commit = store.commit

    def wrong(self: Any, changes: Changes, manifest: Any, event: Any) -> Any:
        if event["kind"] == "rollback":
            later = LedgerStore.scan(self, limit=10**6, lacking=manifest["active"]).ids
            changes = replace(changes, delete=later)
        return commit(self, changes, manifest, event)

    store.commit = wrong


def _remember_disk(store: Any) -> None:
    """Let the store know the disk of the trial, whatever it calls it itself."""
    start = store.__init__

    def begin(self: Any, place: Any, *rest: Any) -> None:
        self._disk_of_trial = rest[-1] if rest else nullcontext()
        start(self, place, *rest)

    store.__init__ = begin


BUGS: dict[str, Callable[[Any], None]] = {
    "stamp before write": stamp_before_write,
    "pointer before data": pointer_before_data,
    "journal not synced": journal_not_synced,
    "deleted id resurrected": deleted_id_resurrected,
    "row encoded twice": row_encoded_twice,
    "rollback drops a later write": rollback_drops_later_writes,
}
FAVOURED: dict[str, tuple[str, str | None]] = {
    "stamp before write": ("bug.stamped", "backfill"),
    "pointer before data": ("bug.moved", None),
    "journal not synced": ("driver.acknowledge", None),
    "deleted id resurrected": ("driver.acknowledge", "backfill"),
    "row encoded twice": ("driver.acknowledge", "backfill"),
    "rollback drops a later write": ("driver.acknowledge", "rollback"),
}
"""Where a kill is most likely to show a bug: point and operation."""
