"""Bugs that the trials must catch; each is planted only in the processes of a trial.

A bug changes a class of a store before the gallery is opened. Bugs that a kill reveals add a named point for that kill
between the steps that they separate.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crash import tops
from crash.script import BATCH
from crash.shards import SHARDS
from limpet.engines.ledger import GalleryLedger
from limpet.engines.ledger_store import LedgerStore
from limpet.engines.sqlite import WriterLock
from limpet.engines.store import Changes, Fill, Items, Rows, Tidied, Upsert
from limpet.errors import GalleryError, StoreError

Commit = Callable[..., Any]
STALE = 0.2  # seconds for which a stale pointer is used
AGE = 0.02  # seconds after which a lock is stolen
REPLIES = 0.05  # share of writes to a top whose reply is lost, in every trial of sharded galleries


def plant(name: str | None, kind: str) -> None:
    """Plant a bug in this process.

    Args:
        name: Name of the bug, from `BUGS`; None for none.
        kind: Kind of the store.
    """
    if kind == "sharded":
        tops.lose_replies(REPLIES)
    if name is not None:
        BUGS[name].plant(_store(kind))


def _store(kind: str) -> Any:
    from importlib import import_module

    module, name = {
        "memory": ("memory", "MemoryStore"), "lance": ("lance", "LanceStore"),
        "pgvector": ("postgres", "PgvectorStore"), "sharded": ("sharded", "ShardedStore"), "s3": ("s3", "S3Store"),
    }[kind]  # fmt: skip
    return getattr(import_module(f"limpet.engines.{module}.store"), name)


def stamp_before_write(store: Any) -> None:
    """Items are durably marked as having a vector before the vector is written."""
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
    """The pointer moves before its vectors are written; with Lance, before they are synced."""
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
    """Return an object, the name of its method that makes vectors durable, and names of methods that read them back."""
    if store.kind == "lance":
        return store._tables, "_sync", ()
    return (store._rows, "write", ("read_back",)) if store.kind == "memory" else (store, "_write", ())


def journal_not_synced(store: Any) -> None:
    """The database does not sync its commits."""
    if store.kind in ("postgresql", "s3"):
        from limpet.engines.postgres import database as postgres

        postgres._SETTINGS = postgres._SETTINGS.replace("'off', 'on'", "'on', 'off'")
        return
    _change_connections("PRAGMA synchronous = OFF")


def journal_in_memory(store: Any) -> None:
    """The database keeps its rollback journal only in memory."""
    _change_connections("PRAGMA journal_mode = MEMORY")


def _change_connections(statement: str) -> None:
    """Change a setting of every connection, and skip the check of that setting."""
    from limpet.engines import sqlite

    opened = sqlite.SqliteDatabase._open

    def careless(self: Any) -> Any:
        connection = opened(self)
        connection.execute(statement)
        return connection

    sqlite.SqliteDatabase._open = careless  # type: ignore[method-assign]
    sqlite.SqliteDatabase._must_be_durable = lambda self: None  # type: ignore[method-assign]


def deleted_id_resurrected(store: Any) -> None:
    """A backfill writes its whole batch, including items that were deleted after it read them."""
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
    """A resumed backfill begins with a batch that was already written."""
    scan = store.scan

    def wrong(self: Any, *, after: str = "", limit: int, lacking: str | None = None) -> Any:
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
    """A rollback also deletes items that were written after the swap and have no vector of the older model."""
    commit: Commit = store.commit

    def wrong(self: Any, changes: Changes, manifest: Any, event: Any) -> Any:
        if event["kind"] == "rollback":
            later = LedgerStore.scan(self, limit=10**6, lacking=manifest["active"]).ids
            changes = replace(changes, delete=later)
        return commit(self, changes, manifest, event)

    store.commit = wrong


def folders_not_synced(store: Any) -> None:
    """Files are synced, but the folders with their names are not."""
    from limpet.support.disk import Disk

    def files_only(self: Disk, paths: Iterable[Path]) -> None:
        for path in paths:
            if path.is_file():
                self.sync_one(path)

    Disk.sync = files_only  # type: ignore[method-assign]


def fill_ignores_versions(store: Any) -> None:
    """A backfill writes vectors of items although the items have changed since they were read."""
    plan = GalleryLedger.plan

    def wrong(self: GalleryLedger, changes: Changes) -> Any:
        if changes.fill is not None:
            now = self.fetch(changes.fill.rows.ids)
            versions = dict(zip(changes.fill.rows.ids, changes.fill.versions.tolist(), strict=True))
            versions |= dict(zip(now.ids, now.versions.tolist(), strict=True))
            fill = Fill(changes.fill.rows, np.array(list(versions.values()), np.int64))
            changes = replace(changes, fill=fill)
        return plan(self, changes)

    GalleryLedger.plan = wrong  # type: ignore[method-assign]


def pointer_stale_elsewhere(store: Any) -> None:
    """A process that has read the pointer uses it for a while without reading it again."""
    pointer, commit = store.pointer, store.commit

    def wrong(self: Any) -> Any:
        read, known = getattr(self, "_believed", (0.0, None))
        if time.monotonic() - read > STALE:
            self._believed = time.monotonic(), pointer(self)
            return self._believed[1]
        return known

    def right(self: Any, *values: Any) -> Any:
        committed = commit(self, *values)
        self._believed = time.monotonic(), committed.pointer
        return committed

    store.pointer, store.commit = wrong, right


def lock_stolen_by_age(store: Any) -> None:
    """A process that waits a moment for the lock assumes that a dead process left it."""
    held = WriterLock.held

    @contextmanager
    def wrong(self: WriterLock, who: str, timeout: float) -> Iterator[None]:
        with ExitStack() as stack:
            try:
                stack.enter_context(held(self, who, min(timeout, AGE)))
            except GalleryError:
                self.path.unlink(missing_ok=True)
                stack.enter_context(held(self, who, timeout))
            yield

    WriterLock.held = wrong  # type: ignore[method-assign]


def lock_kept_by_a_child(store: Any) -> None:
    """A child that is forked while the lock is held keeps the lock of its parent."""
    held = WriterLock.held

    @contextmanager
    def wrong(self: WriterLock, who: str, timeout: float) -> Iterator[None]:
        with held(self, who, timeout):
            handles = [int(path.name) for path in Path("/proc/self/fd").iterdir() if _names(path, self.path)]
            kept = [os.dup(handle) for handle in handles]
            try:
                yield
            finally:
                for handle in kept:
                    os.close(handle)

    WriterLock.held = wrong  # type: ignore[method-assign]


def _names(link: Path, path: Path) -> bool:
    with suppress(OSError):
        return link.resolve(strict=True) == path.resolve()
    return False


def gc_ignores_age(store: Any) -> None:
    """A gc removes vectors that readers still need, however recently they read the pointer."""
    tidy = store.tidy

    def wrong(self: Any, *, older_than: float = 3600.0) -> Any:
        return tidy(self, older_than=0.0)

    store.tidy = wrong


def finish_removes_rows_first(store: Any) -> None:
    """The old rows of an upgrade are removed before the commit that finishes it."""
    commit: Commit = store.commit

    def wrong(self: Any, changes: Changes, manifest: Any, event: Any) -> Any:
        if changes.drop:
            with self.database.transaction():
                for name in changes.drop:
                    statement, values = (
                        ("DELETE FROM rows WHERE generation = ?", [name])
                        if self.kind == "memory"
                        else (f"DELETE FROM rows_{name}", [])
                    )
                    self.database.execute(statement, values)
            self._disk_of_trial.reached("bug.removed")
        return commit(self, changes, manifest, event)

    store.commit = wrong
    _remember_disk(store)


def gc_leaves_what_finish_left(store: Any) -> None:
    """The files or tables of removed generations are never deleted."""
    store.tidy = lambda self, *, older_than=3600.0: Tidied(0, 0)


def reads_nothing_back(store: Any) -> None:
    """Vectors written to Lance are not read back before the commit."""
    from limpet.engines.lance import tables as lance_tables

    lance_tables.compare = lambda *values: None


def paths_that_do_not_move(store: Any) -> None:
    """A gallery stores the path at which it was first opened, and later opens that path."""
    opened = store.open.__func__

    def wrong(cls: Any, place: str, disk: Any) -> Any:
        home = Path(place) / "home"
        if not home.exists() and home.parent.exists():
            home.write_text(place)
        return opened(cls, home.read_text(), disk)

    store.open = classmethod(wrong)


def adapter_outside_the_commit(store: Any) -> None:
    """A gallery reads the adapter of queries from the folder that the user passed, not from its own copy."""
    from limpet.adapters.storage import load_adapter
    from limpet.galleries import links

    def wrong(self: Any, name: str) -> Any:
        return load_adapter(Path(self._store.url.partition(":")[2]).with_name("adapter"))

    links.Files.adapter = wrong  # type: ignore[method-assign]


def connection_stays_read_only(store: Any) -> None:
    """After one failure to open a file, the file is always opened read-only."""
    from limpet.engines import sqlite

    opened = sqlite.SqliteDatabase._open

    def wrong(self: Any) -> Any:
        try:
            connection = opened(self)
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("CREATE TABLE unseen (one)")
            connection.execute("ROLLBACK")
        except (sqlite3.Error, StoreError):
            self._stays = True
        if not hasattr(self, "_stays"):
            return connection
        return sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)

    sqlite.SqliteDatabase._open = wrong  # type: ignore[method-assign]


def shard_missing_from_the_census(store: Any) -> None:
    """The top counts the items of all shards but the last."""
    from limpet.engines.sharded.record import TopRecord

    pointer = TopRecord.pointer.fget

    def wrong(self: TopRecord) -> Any:
        return pointer(replace(self, shards=self.shards[:-1]))  # type: ignore[misc]

    TopRecord.pointer = property(wrong)  # type: ignore[assignment,method-assign]


def remainder_dropped_before_the_top(store: Any) -> None:
    """One shard drops data that searches may still need before the top does."""
    commit: Commit = store.commit

    def wrong(self: Any, changes: Changes, manifest: Any, event: Any) -> Any:
        if changes.remainders is not None and not changes.create:
            shard = self.shards[SHARDS.index("lance")]
            with shard.writing("too soon") as pointer:
                left = [pair for pair in changes.remainders if not {pair[0], *pair[1]} & set(changes.drop)]
                shard.commit(Changes(remainders=left), pointer.manifest, {"kind": "too soon"})
            self._disk_of_trial.reached("bug.forgot")
        return commit(self, changes, manifest, event)

    store.commit = wrong
    _remember_disk(store)


def no_way_back(store: Any) -> None:
    """Shards are written without recording how to undo the write."""
    store._prepare = lambda self, stamped, *rest: stamped


def half_taken_back(store: Any) -> None:
    """Only the first shard undoes its part of an interrupted commit."""
    from limpet.engines.sharded import store as sharded_store

    undoing = sharded_store.undoing

    def wrong(shard: Any, *values: Any) -> Any:
        return undoing(shard, *values) if shard.url.endswith("shard0") else Changes()

    sharded_store.undoing = wrong


def _remember_disk(store: Any) -> None:
    """Store the disk of the trial under one name in the store, for all kinds of stores."""
    start = store.__init__

    def begin(self: Any, place: Any, *rest: Any) -> None:
        self._disk_of_trial = rest[-1] if rest else nullcontext()
        start(self, place, *rest)

    store.__init__ = begin


@dataclass(frozen=True)
class Bug:
    """A bug, and the trials that reveal it best.

    Args:
        plant: Function that changes the class of a store.
        point: Point at which a trial kills; "" for bugs that only a fault in a system call reveals.
        kind: Operation during which it kills; None for any.
        stores: Kinds of stores that can have the bug.
        only: Part of the descriptions of the points of a sweep that reveal it.
        power: What happens to data that was not durable, see `Plan.power`; None for any.
        rest: Required remainder of the seed modulo 12, which selects further events of a trial; None for any.
    """

    plant: Callable[[Any], None]
    point: str = "driver.acknowledge"
    kind: str | None = None
    stores: tuple[str, ...] = ("memory", "lance", "pgvector")
    only: str = ""
    power: str | None = "lost"
    rest: int | None = None


FILES = ("memory", "lance")
OF_FILES = (*FILES, "sharded")
READ_BY_MANY = (*OF_FILES, "s3")
EVERY = ("memory", "lance", "pgvector", "sharded", "s3")
BUGS = {
    "stamp before write": Bug(stamp_before_write, "bug.stamped", "backfill", power=None),
    "pointer before data": Bug(pointer_before_data, "bug.moved"),
    "journal not synced": Bug(journal_not_synced, stores=EVERY),
    "deleted id resurrected": Bug(deleted_id_resurrected, kind="backfill", stores=EVERY),
    "row encoded twice": Bug(row_encoded_twice, kind="backfill", stores=EVERY),
    "rollback drops a later write": Bug(
        rollback_drops_later_writes, kind="rollback", stores=("memory", "lance", "pgvector", "s3")
    ),
    "fill ignores versions": Bug(fill_ignores_versions, kind="backfill", stores=EVERY),
    "pointer stale elsewhere": Bug(pointer_stale_elsewhere, stores=READ_BY_MANY),
    "lock stolen by age": Bug(lock_stolen_by_age, kind="backfill", stores=OF_FILES, power="kept"),
    "lock kept by a child": Bug(lock_kept_by_a_child, stores=OF_FILES, power="kept", rest=1),
    "gc ignores age": Bug(gc_ignores_age, kind="gc", stores=READ_BY_MANY, power="kept", rest=0),
    "finish removes rows first": Bug(
        finish_removes_rows_first, "bug.removed", "finish", stores=("memory", "pgvector"), power=None
    ),
    "gc leaves what finish left": Bug(gc_leaves_what_finish_left, kind="finish", stores=("lance", "pgvector", "s3")),
    "paths that do not move": Bug(paths_that_do_not_move, stores=FILES, power="kept"),
    "adapter outside the commit": Bug(adapter_outside_the_commit, kind="start", stores=FILES, power="kept"),
    "folders not synced": Bug(folders_not_synced, stores=("lance",)),
    "journal in memory": Bug(journal_in_memory, "", stores=FILES, only="kill at 'write gallery.db'"),
    "connection stays read-only": Bug(connection_stays_read_only, "", stores=FILES, only="at 'open gallery.db'"),
    "blind retry of the top": Bug(tops.blind_retry, stores=("sharded",)),
    "stale top": Bug(tops.stale_read, stores=("sharded",)),
    "shard missing from the census": Bug(shard_missing_from_the_census, stores=("sharded",)),
    "remainder dropped before the top": Bug(
        remainder_dropped_before_the_top, "bug.forgot", "finish", stores=("sharded",), power=None
    ),
    "no way back": Bug(no_way_back, "sharded.apply", stores=("sharded",), power=None),
    "half taken back": Bug(half_taken_back, "sharded.decide", stores=("sharded",), power=None),
    "nothing is read back": Bug(reads_nothing_back, "", stores=("lance",), only="at 'write g1-*.lance/_deletions"),
}


def shown_by(store: str, *, sweep: bool) -> list[str]:
    """Return the names of the bugs that trials of a store, or a sweep of it, must catch."""
    return [name for name, bug in BUGS.items() if store in bug.stores and sweep == (not bug.point)]
