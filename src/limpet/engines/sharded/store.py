"""A gallery of several stores: each item is in one of them, and a small document, the top, determines what exists.

A commit prepares every shard that it changes, and then replaces the top, which decides. The top stores the undo data
first: nothing remains of a commit that was never decided. Readers request from each shard exactly the commit that the
top names. If a shard cannot answer, they read the top again.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import replace
from itertools import chain, islice
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from limpet.engines.backup_files import Contents
from limpet.engines.checks import damaged
from limpet.engines.digested_folder import DigestedFolder
from limpet.engines.filters import Filter
from limpet.engines.ledger import reading
from limpet.engines.ledger_store import SingleWriterStore
from limpet.engines.planning import check, unknown_generation
from limpet.engines.promises import Promises
from limpet.engines.sharded.copies import copy_in, copy_out
from limpet.engines.sharded.layout import ShardedLayout
from limpet.engines.sharded.record import (
    START,
    Remainder,
    ShardState,
    TopRecord,
    Unfinished,
    commit_of,
    plain_remainders,
    undo_of,
    undoing,
)
from limpet.engines.sqlite import translated
from limpet.engines.store import (
    Changes,
    Commit,
    Committed,
    Document,
    Fill,
    Hits,
    Items,
    JournalEntry,
    Pointer,
    Rows,
    Store,
    Tidied,
    Upkeep,
    Upsert,
    Vectors,
    digest_of,
)
from limpet.engines.stores import open_store
from limpet.engines.top import KIND, Beside, Stamped, Top
from limpet.errors import GalleryError, LimpetError, LockedError, StoreError
from limpet.support.disk import Disk

Result = TypeVar("Result")

_KEPT = 256  # commits whose pointers in the shards are cached
_LOOK = 0.005  # seconds between two checks of a commit that is being written
_QUIET = 1.0  # seconds after which a reader of all shards as of one commit asks writers to wait
_PATIENCE = 60.0  # timeout in seconds of a reader that waits for a writer


def shards_of(ids: Sequence[str], shards: int) -> NDArray[np.uint64]:
    """Return the number of the shard that each item belongs to, which never changes, uint64 (N,).

    >>> shards_of(["a", "b", "Zoë"], 4).tolist()
    [2, 2, 0]
    """
    hashes = b"".join([hashlib.sha256(identifier.encode()).digest()[:8] for identifier in ids])
    return np.frombuffer(hashes, ">u8") % np.uint64(shards)


class ShardedStore(SingleWriterStore):
    """Items by a hash of their ids in several stores of this machine; a commit applies to all of them, or to none.

    Use it for galleries whose rows exceed one ledger, or one disk.

    Args:
        layout: Places of top and shards.
        top: Determines what exists.
        shards: The shards, in an order that never changes.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> import numpy as np
    >>> from limpet import EmbeddingSet, Gallery
    >>> file = Path(mkdtemp()) / "shards.json"
    >>> file.write_text('{"format_version": 1, "top": "top", "shards": ["memory:shard0", "memory:shard1"]}')
    81
    >>> items, url = EmbeddingSet(np.eye(4, dtype=np.float32), model="v1"), f"sharded:{file}"
    >>> with Gallery.create(url, fingerprint=items.fingerprint, space=items.space) as gallery:
    ...     print(gallery.add(items), "added; found", gallery.search(items[:1], k=1).hits[0][0].id)
    4 added; found 0
    """

    kind: ClassVar[str] = KIND
    in_folder: ClassVar[bool] = False
    in_memory: ClassVar[str | None] = None
    promises: ClassVar[Promises] = Promises.of_gallery("clusters")

    def __init__(self, layout: ShardedLayout, top: Top, shards: Sequence[Store], disk: Disk) -> None:
        elsewhere = f"?top={top.url}" if layout.elsewhere else ""
        self._known: dict[Commit, list[Pointer]] = {}
        self._guard = threading.Lock()
        super().__init__(f"{KIND}:{layout.file}{elsewhere}", top.lock, top.folder)
        self.top, self.shards, self.disk = top, shards, disk

    def _start_anew(self) -> None:
        super()._start_anew()
        self._guard = threading.Lock()

    @classmethod
    def create(cls, place: str, disk: Disk) -> ShardedStore:
        """Create all shards in the file of a url, and then the top, without which the gallery does not exist.

        Raises:
            GalleryError: The file does not exist, or a place is not empty.
        """
        layout = ShardedLayout(place)
        with ExitStack() as opened:
            shards = [opened.enter_context(closing(_new_shard(url, disk))) for url in layout.shards]
            first = TopRecord(secrets.token_hex(16), [ShardState()] * len(shards))
            top = layout.top(disk, first.plain())
            opened.pop_all()
        return cls(layout, top, shards, disk)

    @classmethod
    def open(cls, place: str, disk: Disk) -> ShardedStore:
        """Open the gallery of a file.

        Raises:
            GalleryError: The gallery does not exist, or a shard is missing.
        """
        layout = ShardedLayout(place)
        with ExitStack() as opened:
            top = opened.enter_context(closing(layout.top(disk)))
            number = len(TopRecord.read(top.read().document).shards)
            if not number:
                raise GalleryError(
                    f"The gallery of '{layout.file}' was not restored to its end.",
                    to_do="repeat `limpet gallery restore`.",
                )
            if number != len(layout.shards):
                raise GalleryError(
                    f"'{layout.file}' names {len(layout.shards)} shards, and the gallery was created with {number}.",
                    expected=f"the same {number}, in the order that they had",
                    to_do="correct the file; for another number, create a gallery and import what `limpet gallery "
                    "export` writes.",
                )
            shards: list[Store] = []
            try:
                for url in layout.shards:
                    shards.append(opened.enter_context(closing(open_store(url, disk=disk))))
            except GalleryError as error:
                raise type(error)(
                    f"Shard {len(shards)} of '{layout.file}' cannot be opened: {error.given}",
                    error.expected,
                    "check the folder that the file names.",
                ) from error
            opened.pop_all()
        return cls(layout, top, shards, disk)

    # What exists

    def _read(self) -> tuple[Stamped, TopRecord]:
        """Return the current top, after undoing what a dead writer left, if possible."""
        stamped = self.top.read()
        record = TopRecord.read(stamped.document)
        if record.unfinished is None:
            return stamped, record
        if self._is_writer:
            return self._recovered()
        with suppress(GalleryError), self.writing("take back", timeout=0.0):
            pass  # unless a commit is being written, or this process may only read
        stamped = self.top.read()
        return stamped, TopRecord.read(stamped.document)

    def exclusive(self, who: str, *, timeout: float) -> AbstractContextManager[Callable[[], object]]:
        """Hold a lock of this kind at the top, see `Store.exclusive`."""
        return self.top.exclusive(who, timeout)

    @property
    def _is_writer(self) -> bool:
        return self._writer == threading.get_ident()

    def pointer(self) -> Pointer:
        """Return the current pointer, after checking that every shard can be searched at it."""
        quiet, until = time.monotonic() + _QUIET, time.monotonic() + _PATIENCE
        while True:
            stamped, record = self._read()
            places = self._places(record)
            if places is not None:
                with self._guard:
                    self._known[record.commit] = places
                    while len(self._known) > _KEPT:
                        del self._known[next(iter(self._known))]
                return record.pointer
            if record.unfinished is None and self.top.read().tag == stamped.tag:
                raise self._torn(record)
            if time.monotonic() > quiet:
                with suppress(LockedError), self.writing("reading", timeout=_QUIET) as pointer:
                    return pointer
            self._wait(until)

    def _wait(self, until: float) -> None:
        if time.monotonic() > until:
            raise LockedError(
                f"A commit of '{self.url}' is being written for longer than {_PATIENCE:.0f} s.",
                to_do="wait until it is done, or end its process.",
            )
        time.sleep(_LOOK)

    def _places(self, record: TopRecord) -> list[Pointer] | None:
        """Return the pointer of every shard for a record; None if a shard cannot answer at it now."""
        places = []
        for number, state in enumerate(record.shards):
            pointer = self.shards[number].pointer()
            if self._commit_of(number, pointer, record) == state.commit:
                places.append(pointer)
            elif record.unfinished is not None and self.shards[number].keeps(state.sequence):
                places.append(Pointer(state.sequence, {}))
            else:
                return None
        return places

    def _commit_of(self, number: int, pointer: Pointer, record: TopRecord) -> Commit:
        """Return the last commit of the gallery that a shard has.

        Raises:
            GalleryError: The shard belongs to another gallery, or is another shard of this one.
        """
        if not pointer.sequence:
            return START
        says: Any = pointer.manifest
        if says.get("gallery") != record.gallery or says.get("shard") != number:
            raise GalleryError(
                f"'{self.shards[number].url}' is not shard {number} of '{self.url}'.",
                expected="the shards of this gallery, in the order in which it was created",
                to_do="correct the file that names them.",
            )
        with reading(f"What '{self.shards[number].url}' says of itself"):
            return commit_of(says["commit"])

    def _torn(self, record: TopRecord) -> StoreError:
        torn = [
            shard.url
            for number, (shard, state) in enumerate(zip(self.shards, record.shards, strict=True))
            if self._commit_of(number, shard.pointer(), record) != state.commit
        ]
        why = f"commit {record.commit.sequence} of the top and what is in {', '.join(torn)} do not belong together"
        return damaged(f"The gallery '{self.url}'", why, "restore a backup of all of it: top and shards.")

    # Commits

    def commit(self, changes: Changes, manifest: Document, event: Document) -> Committed:
        """Apply changes, add the event to the journal, and update the pointer, see `Store.commit`."""
        self._must_be_writing()
        stamped, before = self._recovered()
        check(changes, before.generations)
        if changes.create:
            self._clear(stamped)  # removes earlier generations with these names
        commit = Commit(before.commit.sequence + 1, time.time())
        parts, rows_of_fill = self._parts(changes, before, commit)
        stamped = self._prepare(stamped, before, commit, parts)
        done = {number: self._apply(number, part, commit, before, stamped) for number, part in parts.items()}
        self._reached("sharded.decide")
        after = _after(before, commit, changes, manifest, {number: one.pointer for number, one in done.items()})
        kept = changes.keep_files if changes.keep_files is not None else self.top.digests() - _undoes(stamped)
        entry = JournalEntry(commit.sequence, commit.time, event)
        stamped = self.top.move(after.plain(), stamped, secrets.token_hex(8), Beside([entry], changes.files, kept))
        if changes.drop or changes.remainders is not None:
            with suppress(GalleryError):  # the commit is decided; `tidy` removes the rest
                self._clear(stamped)
        filled = np.zeros(len(changes.fill.rows.ids) if changes.fill else 0, np.bool_)
        for number, rows in rows_of_fill.items():
            filled[rows] = done[number].filled
        return Committed(after.pointer, [name for one in done.values() for name in one.deleted], filled)

    def _parts(
        self, changes: Changes, before: TopRecord, commit: Commit
    ) -> tuple[dict[int, Changes], dict[int, list[int]]]:
        """Return the changes of each shard, and the rows of the fill that it gets, both by number.

        Remainders in use stay until the commit is decided; removals are applied afterwards.
        """
        parts: dict[int, dict[str, Any]] = {}
        new = [pair for pair in changes.remainders or () if pair[1] and pair not in before.remainders]
        if changes.create or new:
            whole = {"create": changes.create, "remainders": [*before.remainders, *new]}
            parts = {number: dict(whole) for number in range(len(self.shards))}
        for number, rows in self._by_shard(changes.delete).items():
            parts.setdefault(number, {})["delete"] = [changes.delete[row] for row in rows]
        if changes.upsert:
            for number, upsert in self._upserts(changes.upsert, commit).items():
                parts.setdefault(number, {})["upsert"] = upsert
        of_fill: dict[int, list[int]] = {}
        if changes.fill:
            for number, every in self._by_shard(changes.fill.rows.ids).items():
                fill, rows = self._fill(changes.fill, number, every, before)
                if rows:
                    parts.setdefault(number, {})["fill"], of_fill[number] = fill, rows
        return {number: Changes(**part) for number, part in parts.items()}, of_fill

    def _by_shard(self, ids: Sequence[str]) -> dict[int, list[int]]:
        """Return the positions of ids by their shard, for shards that have any."""
        numbers = shards_of(ids, len(self.shards))
        return {int(number): np.flatnonzero(numbers == number).tolist() for number in np.unique(numbers)}

    def _upserts(self, upsert: Upsert, commit: Commit) -> dict[int, Upsert]:
        of_items, ids, versions = self._by_shard(upsert.ids), list(upsert.ids), upsert.versions_in(commit.sequence)
        routed = [(rows, of_items if list(rows.ids) == ids else self._by_shard(rows.ids)) for rows in upsert.rows]
        return {
            number: Upsert(
                [upsert.ids[row] for row in items],
                [upsert.metadata[row] for row in items],
                [_some(rows, where[number]) for rows, where in routed if number in where],
                versions[items],
            )
            for number, items in of_items.items()
        }

    def _fill(self, fill: Fill, number: int, rows: list[int], before: TopRecord) -> tuple[Fill, list[int]]:
        """Return a shard's part of a fill, and its rows without those of items that do not exist any more."""
        pointer = self.shards[number].pointer()
        whole = self._says(number, pointer, before)["generations"] == sorted(before.generations)
        if whole and fill.seen is not None and fill.seen.as_of == before.commit:  # nothing is hidden of these items
            seen = replace(fill.seen.select(rows), as_of=pointer.commit)
        else:
            seen = self.shards[number].fetch([fill.rows.ids[row] for row in rows])  # for undo data and commit
            there = set(seen.ids)
            rows = [row for row in rows if fill.rows.ids[row] in there]
        return Fill(_some(fill.rows, rows), fill.versions[rows], seen), rows

    def _prepare(self, stamped: Stamped, before: TopRecord, commit: Commit, parts: Mapping[int, Changes]) -> Stamped:
        """Store the undo data of the parts of a commit, before a shard applies one."""
        if not parts:
            return stamped
        undoes = {number: undo_of(self.shards[number], part, before.generations) for number, part in parts.items()}
        shards = list(before.shards)
        for number in parts:  # shards may have tidied meanwhile
            shards[number] = replace(shards[number], sequence=self.shards[number].pointer().sequence)
        digests = {number: digest_of(undo) for number, undo in undoes.items()}
        prepared = replace(before, shards=shards, unfinished=Unfinished(commit, digests))
        files = {digests[number]: undo for number, undo in undoes.items()}
        return self.top.move(prepared.plain(), stamped, secrets.token_hex(8), Beside((), files))

    def _apply(self, number: int, part: Changes, commit: Commit, before: TopRecord, stamped: Stamped) -> Committed:
        shard = self.shards[number]
        with shard.writing("part of a commit") as pointer:
            self._reached("sharded.apply")
            self._refuse_taken_over(stamped)  # the top undoes this commit
            says = self._says(number, pointer, before) | {"commit": list(commit)}
            if part.remainders is not None:
                says["generations"] = sorted({*says["generations"], *(one.name for one in part.create)})
                says["remainders"] = plain_remainders(part.remainders)
            return shard.commit(part, says, {"kind": "part", "commit": list(commit)})

    def _refuse_taken_over(self, stamped: Stamped) -> None:
        """Refuse to write to a shard once the top has moved, since this writer lost its lock; only inside the shard's.

        What another writer has moved the top for, it writes to the shard after this.
        """
        if self.top.read().tag != stamped.tag:
            raise GalleryError(f"Another writer took over while '{self.url}' was written.", to_do="try again.")

    def _says(self, number: int, pointer: Pointer, record: TopRecord) -> dict[str, Any]:
        """Return a shard's description of itself: its gallery, its content and its remainders."""
        own = {"gallery": record.gallery, "shard": number, "commit": list(START), "generations": [], "remainders": []}
        says: dict[str, Any] = {**own, **pointer.manifest}
        with reading(f"What '{self.shards[number].url}' says of itself"):
            says["generations"] = sorted(map(str, says["generations"]))
        return says

    def _reached(self, point: str) -> None:
        with translated(self.url):
            self.disk.reached(point)

    def _recover(self) -> None:
        self._recovered()

    def _recovered(self) -> tuple[Stamped, TopRecord]:
        """Return the top, after undoing what an interrupted writer left in shards; repeatable at any point.

        Every shard that it may have written to is written to, so that none of its writes can appear later.
        """
        stamped = self.top.read()
        record = TopRecord.read(stamped.document)
        if record.unfinished is None:
            return stamped, record
        stamped = self.top.move(record.plain(), stamped, secrets.token_hex(8))  # what it still sends comes too late
        event = {"kind": "take back", "commit": list(record.unfinished.commit)}
        shards = list(record.shards)
        for number, digest in record.unfinished.shards.items():
            shard, state, back = self.shards[number], record.shards[number], Changes()
            with shard.writing("take back") as pointer:
                self._reached("sharded.take_back")
                says = self._says(number, pointer, record)
                if self._commit_of(number, pointer, record) == record.unfinished.commit:
                    back = undoing(shard, self.top.file(digest), record.remainders)
                    says |= {"commit": list(state.commit), "remainders": plain_remainders(record.remainders)}
                    says["generations"] = sorted(set(says["generations"]) - set(back.drop))
                shards[number] = replace(state, sequence=shard.commit(back, says, event).pointer.sequence)
        after = replace(record, shards=shards, unfinished=None)
        kept = self.top.digests() - _undoes(stamped)
        return self.top.move(after.plain(), stamped, secrets.token_hex(8), Beside(kept=kept)), after

    def _clear(self, stamped: Stamped) -> None:
        """Drop from every shard the generations and remainders that the top no longer names."""
        record = TopRecord.read(stamped.document)
        for number, shard in enumerate(self.shards):
            with shard.writing("clear") as pointer:
                says = self._says(number, pointer, record)
                left = sorted(set(says["generations"]) - record.generations.keys())
                wanted = plain_remainders(record.remainders)
                if left or says["remainders"] != wanted:
                    self._reached("sharded.clear")
                    self._refuse_taken_over(stamped)  # another one may have created what is not in this top
                    says |= {"generations": sorted(set(says["generations"]) - set(left)), "remainders": wanted}
                    shard.commit(Changes(drop=left, remainders=record.remainders), says, {"kind": "clear"})

    # Reads

    def search(
        self,
        queries: Vectors,
        k: int,
        *,
        generation: str,
        without: frozenset[str] = frozenset(),
        where: Filter | None = None,
        exact: bool = True,
        at: Pointer,
    ) -> Hits:
        """Find the rows with the largest inner products in all shards, see `Store.search`."""
        places = self._known.get(at.commit)
        while True:
            if places is None:
                if self.pointer().commit != at.commit:
                    raise GalleryError(
                        f"A search in '{self.url}' as of commit {at.sequence}.",
                        expected="a pointer that this store returned, and not long ago",
                        to_do="ask for the pointer again.",
                    )
                places = self._known[at.commit]
            try:
                return _best(
                    [
                        shard.search(
                            queries, k, generation=generation, without=without, where=where, exact=exact, at=place
                        )
                        for shard, place in zip(self.shards, places, strict=True)
                    ],
                    k,
                )
            except GalleryError:
                if self.pointer().commit != at.commit or places == (now := self._known[at.commit]):
                    raise
                places = now  # a shard tidied meanwhile, and its old commit is gone

    def _settled(self, read: Callable[[TopRecord], Result]) -> Result:
        """Return a read of shards while no commit is being written; writers wait if they leave no gap."""
        quiet, until = time.monotonic() + _QUIET, time.monotonic() + _PATIENCE
        while not self._is_writer:
            stamped, record = self._read()
            if record.unfinished is None:
                result = read(record)
                if self.top.read().tag == stamped.tag:
                    return result
            if time.monotonic() > quiet:
                with suppress(LockedError), self.writing("reading", timeout=_QUIET):
                    return self._settled(read)
            self._wait(until)
        return read(self._recovered()[1])

    def _known_generation(self, record: TopRecord, generation: str | None) -> None:
        if generation is not None and generation not in record.generations:
            raise unknown_generation(generation, record.generations)

    def fetch(self, ids: Sequence[str]) -> Items:
        """Return the items among these ids that exist, in the order given."""

        def read(record: TopRecord) -> Items:
            parts = [
                self.shards[number].fetch([ids[row] for row in rows]) for number, rows in self._by_shard(ids).items()
            ]
            found = {name: (part, row) for part in parts for row, name in enumerate(part.ids)}
            return _items([found[name] for name in dict.fromkeys(ids) if name in found], record)

        return self._settled(read)

    def scan(self, *, after: str = "", limit: int, lacking: str | None = None) -> Items:
        """Return the next items with an id above ``after``, by id; only those without a vector in ``lacking``."""
        share = limit // len(self.shards)
        size = min(limit, share + 4 * math.isqrt(share) + 1)  # by chance a shard has more than its share of a page

        def pages(shard: Store) -> Iterator[tuple[str, Items, int]]:
            last = after
            while len(page := shard.scan(after=last, limit=size, lacking=lacking)):
                yield from ((name, page, row) for row, name in enumerate(page.ids))
                last = page.ids[-1]

        def read(record: TopRecord) -> Items:
            self._known_generation(record, lacking)
            merged = islice(heapq.merge(*map(pages, self.shards), key=lambda one: one[0]), limit)
            return _items([(page, row) for _, page, row in merged], record)

        return self._settled(read)

    def vectors(self, generation: str, ids: Sequence[str]) -> tuple[list[str], Vectors]:
        """Return the vectors of a generation among these ids, and their ids, in the order given."""

        def read(record: TopRecord) -> tuple[list[str], Vectors]:
            self._known_generation(record, generation)
            routed = self._by_shard(ids).items()
            parts = [self.shards[number].vectors(generation, [ids[row] for row in rows]) for number, rows in routed]
            width = record.generations[generation][0]
            found = np.concatenate([np.empty((0, width), np.float32), *(vectors for _, vectors in parts)])
            rows = {name: row for row, name in enumerate(chain.from_iterable(names for names, _ in parts))}
            kept = [name for name in dict.fromkeys(ids) if name in rows]
            return kept, found[[rows[name] for name in kept]]

        return self._settled(read)

    def scan_rows(
        self, generation: str, *, batch: int = 8192
    ) -> Iterator[tuple[list[str], NDArray[np.int64], Vectors]]:
        """Yield all rows of a generation, shard by shard, as of one commit; the first rows of all shards are held."""

        def read(record: TopRecord) -> list[Iterator[tuple[list[str], NDArray[np.int64], Vectors]]]:
            self._known_generation(record, generation)
            return [_begun(shard.scan_rows(generation, batch=batch)) for shard in self.shards]

        yield from chain.from_iterable(self._settled(read))

    def journal(self, *, after: int = 0) -> list[JournalEntry]:
        """Return the entries with a number above ``after``, in order."""
        return self.top.journal(after)

    def file(self, digest: str) -> bytes:
        """Return the value of a digest, see `Store.file`."""
        return self.top.file(digest)

    # Maintenance, which every shard does for itself

    def build_index(self, generation: str, *, directions: bool = False) -> None:
        """Build an approximate index over a generation in every shard, or update it."""
        self._each(generation, lambda shard: shard.build_index(generation, directions=directions))

    def keep_up(self, generation: str) -> None:
        """Run the maintenance that keeps searches of a generation fast, in every shard."""
        self._each(generation, lambda shard: shard.keep_up(generation))

    def _each(self, generation: str, step: Callable[[Store], None]) -> None:
        with self.writing(f"upkeep of {generation}", timeout=60.0):
            self._known_generation(TopRecord.read(self.top.read().document), generation)
            for shard in self.shards:
                step(shard)

    def upkeep(self, generation: str) -> Upkeep:
        """Return rows, size and indexed rows of a generation in all shards."""

        def read(record: TopRecord) -> Upkeep:
            self._known_generation(record, generation)
            found = [shard.upkeep(generation) for shard in self.shards]
            rows, size, indexed = (sum(getattr(one, name) for one in found) for name in ("rows", "bytes", "indexed"))
            whole = all(one.indexed for one in found if one.rows)  # otherwise searches compare every row of a shard
            return Upkeep(rows, size, indexed if whole else 0)

        return self._settled(read)

    def damage(self) -> list[str]:
        """Read all data of all shards again; return what cannot be read, a sentence each."""
        return [f"{wrong} (in '{shard.url}')" for shard in self.shards for wrong in shard.damage()]

    def waiting(self) -> int:
        """Return the bytes of unneeded data in all shards."""
        return sum(shard.waiting() for shard in self.shards)

    def tidy(self, *, older_than: float = 3600.0) -> Tidied:
        """Drop what the top no longer names, and tidy every shard."""
        with self.writing("tidying"):
            self._clear(self._recovered()[0])
            found = [shard.tidy(older_than=older_than) for shard in self.shards]
        return Tidied(sum(one.freed for one in found), sum(one.waiting for one in found))

    def queue(self, generation: str) -> list[str] | None:
        """Return the stored order of a backfill, which the first shard keeps; None if there is none."""
        return self.shards[0].queue(generation)

    def set_queue(self, generation: str, ids: Sequence[str] | None) -> None:
        """Store the order of a backfill so that it can be resumed, or delete it; the pointer does not change."""
        self.shards[0].set_queue(generation, ids)

    def add_traffic(self, retrieved: Mapping[str, int]) -> None:
        """Add to the retrieval counts of items, which the first shard keeps; the pointer does not change."""
        self.shards[0].add_traffic(retrieved)

    def traffic(self) -> dict[str, int]:
        """Return the retrieval counts of items."""
        return self.shards[0].traffic()

    # Copies

    def backup(self, into: DigestedFolder) -> Pointer:
        """Write all data of one pointer into an empty folder, see `copy_out`."""
        return copy_out(self.top, self.shards, lambda: self.writing("backup"), into)

    @classmethod
    def restore(cls, place: str, backup: DigestedFolder, contents: Contents, disk: Disk) -> None:
        """Create the gallery of a backup in the places of a file, see `copy_in`."""
        copy_in(ShardedLayout(place), backup, contents, disk)

    def close(self) -> None:
        """Close the top and the shards."""
        for shard in self.shards:
            shard.close()
        self.top.close()


def _new_shard(url: str, disk: Disk) -> Store:
    """Return a shard without commits: a new one, or one that an interrupted creation left."""
    try:
        return open_store(url, create=True, disk=disk)
    except GalleryError as refusal:
        with suppress(LimpetError), ExitStack() as opened:
            store = opened.enter_context(closing(open_store(url, disk=disk)))
            if not store.pointer().sequence:
                opened.pop_all()
                return store
        raise refusal


def _after(
    before: TopRecord, commit: Commit, changes: Changes, manifest: Document, touched: Mapping[int, Pointer]
) -> TopRecord:
    """Return the record of the top after a commit whose parts these shards have applied."""
    shards = list(before.shards)
    for number, pointer in touched.items():
        shards[number] = ShardState(commit, pointer.sequence, pointer.held)
    created = {one.name: (one.width, one.columns) for one in changes.create}
    generations = {name: one for name, one in {**before.generations, **created}.items() if name not in changes.drop}
    wanted: Sequence[Remainder] = before.remainders if changes.remainders is None else changes.remainders
    remainders = [(name, others) for name, others in wanted if others and {name, *others} <= generations.keys()]
    return replace(
        before, shards=shards, commit=commit, manifest=manifest, generations=generations, remainders=remainders
    )


def _undoes(stamped: Stamped) -> set[str]:
    """Return the digests of the undo data of a top's unfinished commit."""
    unfinished = TopRecord.read(stamped.document).unfinished
    return set() if unfinished is None else set(unfinished.shards.values())


def _some(rows: Rows, places: Sequence[int]) -> Rows:
    return Rows(rows.generation, [rows.ids[row] for row in places], rows.vectors[list(places)])


def _begun(rows: Iterator[Any]) -> Iterator[Any]:
    """Read the first of some rows, which fixes the snapshot of all of them."""
    return chain(list(islice(rows, 1)), rows)


def _items(found: Sequence[tuple[Items, int]], record: TopRecord) -> Items:
    """Return items from several lists, in the order given."""
    holding = [part.generations[row] for part, row in found]
    known = {names: names.intersection(record.generations) for names in set(holding)}
    return Items(
        [part.ids[row] for part, row in found],
        np.array([part.versions[row] for part, row in found], np.int64),
        [known[names] for names in holding],
        [part.metadata[row] for part, row in found],
        record.commit,
    )


def _best(found: Sequence[Hits], k: int) -> Hits:
    """Return the best hits of several shards, best first, ties by id."""
    ids, scores, metadata = [], [], []
    for query in range(len(found[0].ids)):
        every = [
            (-float(score), identifier, known)
            for hits in found
            for identifier, score, known in zip(hits.ids[query], hits.scores[query], hits.metadata[query], strict=True)
        ]
        best = heapq.nsmallest(k, every, key=lambda hit: hit[:2])
        ids.append([identifier for _, identifier, _ in best])
        scores.append(np.array([-score for score, _, _ in best], np.float32))
        metadata.append([known for _, _, known in best])
    return Hits(ids, scores, metadata)
