"""The single writer of a service: concurrent requests become one commit, and each request is applied once."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.engines.store import Document, JournalEntry
from limpet.errors import DataError, LimpetError, ServiceError
from limpet.galleries import Gallery
from limpet.galleries.rows import ItemBatch, batches
from limpet.galleries.state import GalleryState, Generation
from limpet.service import metrics
from limpet.service.documents import array_of
from limpet.service.gathering import Gathering

REMEMBERED = 10_000
"""Number of last commits in which an Idempotency-Key is looked up."""
_KEYS = 100_000
_AGAIN = 1.0  # seconds until the lock is tried again, and checked


@dataclass(frozen=True)
class Upsertion:
    """Items of a request to replace completely.

    Args:
        vectors: Vectors by fingerprint or generation.
        metadata: Values by column, in the order of the ids.
    """

    ids: list[str]
    vectors: Mapping[str, list[list[float]] | str | NDArray[np.float32]]
    metadata: Mapping[str, list[Any]] | None = None

    @property
    def even(self) -> bool:
        """Whether every column has a value for each item."""
        return all(len(values) == len(self.ids) for values in (self.metadata or {}).values())

    def points(self, model: str, generation: Generation) -> NDArray[np.float32]:
        """Return its vectors of a model, float32 (N, D).

        Raises:
            DataError: Their number differs from that of the items, or they have another dimension.
        """
        given = self.vectors[model]
        points = given if isinstance(given, np.ndarray) else array_of(given, generation.geometry.dim)
        if len(points) != len(self.ids):
            raise DataError(
                f"{len(points)} vectors of {model} for {len(self.ids)} ids.", expected="one for each, in their order"
            )
        return points


@dataclass(frozen=True)
class Write:
    """The write of a request: items, or ids to delete.

    Args:
        content: The items, or the ids.
        noted: Journal fields of the request.
    """

    content: Upsertion | Sequence[str]
    noted: Document

    @property
    def size(self) -> int:
        """Number of items that it writes or deletes."""
        return len(self.content.ids if isinstance(self.content, Upsertion) else self.content)


@dataclass(frozen=True)
class Written:
    """How many items were written or deleted, by which commit."""

    items: int
    commit: int


class GalleryWriter:
    """Writes into a gallery while no other service does; created inside the event loop.

    Args:
        gallery: Gallery, opened for writing.
        room: Maximum number of waiting items.

    `notice` is "here", or why this service only reads; `settled` is set once that is known.
    """

    def __init__(self, gallery: Gallery, *, room: int) -> None:
        self.gallery, self.notice, self.settled = gallery, "starting", asyncio.Event()
        self._gathering = Gathering(self._written, what="items to write", room=room)
        self._known = OrderedDict[tuple[str, str], tuple[str, asyncio.Future[Written]]]()
        self.jobs: dict[str, JournalEntry] = {}
        self._loop, self._closing = asyncio.get_running_loop(), threading.Event()
        self._seen, self._unsure = 0, False  # last commit read from the journal, and whether a commit failed since
        self._turn = threading.Thread(target=self._hold, name="service lock", daemon=True)
        self._turn.start()

    # Lock of the writing service

    def _hold(self) -> None:
        """Hold the lock of the single writing service; wait while another one has it."""
        while not self._closing.is_set():
            try:
                with self.gallery.store.exclusive("serve", timeout=0.2) as check:
                    self._remember()
                    self._settle("here")
                    while not self._closing.wait(_AGAIN):
                        check()
            except LimpetError as error:
                self._settle(f"This service only reads: {error.given}")
                self._closing.wait(_AGAIN)

    def _settle(self, notice: str) -> None:
        self.notice = notice
        self._loop.call_soon_threadsafe(self.settled.set)

    def _remember(self) -> dict[object, Written]:
        """Read answered requests from the journal, and return the newly read ones, by name."""
        found = dict[object, Written]()
        sequence = self.gallery.store.pointer().sequence
        for entry in self.gallery.store.journal(after=max(self._seen, sequence - REMEMBERED)):
            if "job" in entry.event:
                self.jobs[str(entry.event["job"])] = entry
            for noted in _requests(entry):
                if (name := _name(noted)) is not None:
                    found[name] = written = Written(noted["items"], entry.sequence)
                    self._loop.call_soon_threadsafe(self._know, name, noted["digest"], written)
        self._seen = sequence
        return found

    def _know(self, name: tuple[str, str], digest: str, written: Written) -> None:
        future = self._loop.create_future()
        future.set_result(written)
        self._known[name] = digest, future

    def refuse_reader(self) -> None:
        """Refuse to write if another service does.

        Raises:
            ServiceError: Another service writes.
        """
        if self.notice != "here":
            raise ServiceError(
                503, self.notice, expected="one service that writes into a gallery",
                to_do="ask the other service, or this one again once it has ended.", intact="Nothing was changed.",
            )  # fmt: skip

    # Writes

    async def write(
        self, content: Upsertion | Sequence[str], body: bytes, *, who: str = "", key: str | None = None
    ) -> Written:
        """Write items or delete ids, or return the result of an identical earlier request.

        Args:
            content: The items, or the ids.
            body: Body of the request, which detects another request with the same key.
            who: Name of the caller; keys are per caller.
            key: Idempotency key of the request.

        Raises:
            ServiceError: Another service writes, or the key was used with another body.
        """
        self.refuse_reader()
        noted = {"who": who} if who else {}
        if key is None:
            return await self._ask(Write(content, noted))
        digest = hashlib.sha256(body).hexdigest()[:16]
        known = self._known.get((who, key))
        if known is None:
            asked = self._ask(Write(content, {**noted, "key": key, "digest": digest}))
            known = self._known[who, key] = digest, asyncio.ensure_future(asked)
            while len(self._known) > _KEYS:
                self._known.popitem(last=False)
        if known[0] != digest:
            raise ServiceError(
                422, f"The Idempotency-Key '{key}' was given with another request.", expected="a key of its own",
                to_do="send a new key.", intact="Nothing was changed.",
            )  # fmt: skip
        try:
            return await asyncio.shield(known[1])
        except Exception:
            if self._known.get((who, key)) is known:
                del self._known[who, key]  # it may be retried
            raise

    async def _ask(self, write: Write) -> Written:
        kind = "upsert" if isinstance(write.content, Upsertion) else None
        return await self._gathering.ask(write, write.size, kind)

    def _written(self, writes: list[Write]) -> Sequence[Written | Exception]:
        """Commit upserts together, or one deletion; do not repeat a commit that succeeded despite an error."""
        done = self._remember() if self._unsure else {}
        left = [one for one in writes if _name(one.noted) not in done]
        self._unsure = True
        try:
            answers = iter(self._committed(left) if left else ())
        except Exception as error:
            with suppress(LimpetError):
                done |= self._remember()
            if not any(_name(one.noted) in done for one in left):
                raise
            answers = iter([error] * len(left))
        self._unsure = False
        return [done.get(_name(one.noted)) or next(answers) for one in writes]

    def _committed(self, writes: list[Write]) -> Sequence[Written | Exception]:
        contents = [one.content for one in writes if isinstance(one.content, Upsertion)]
        return self._upserted(writes, contents) if contents else [self._deleted(writes[0])]

    def _upserted(self, writes: list[Write], contents: list[Upsertion]) -> list[Written | Exception]:
        state, errors = self.gallery.state, dict[int, Exception]()
        noted = [{**one.noted, "items": one.size} if one.noted else None for one in writes]
        try:
            some = [_batch(state, contents, noted, numbers) for numbers in _alike(contents)]
        except LimpetError:  # one of them is at fault: the others are written without it
            some = []
            for number in range(len(contents)):
                try:
                    some.append(_batch(state, contents, noted, [number]))
                except LimpetError as error:
                    errors[number] = error
        if some:
            with metrics.timed(metrics.STORE, "commit"):
                self._seen = self.gallery.upsert_batches(some).pointer.sequence
        return [errors.get(number) or Written(one.size, self._seen) for number, one in enumerate(writes)]

    def _deleted(self, write: Write) -> Written:
        ids = write.content
        assert not isinstance(ids, Upsertion)
        with self.gallery.writing("delete"):
            count = len(self.gallery.store.fetch(ids))
            self.gallery.delete(ids, noted={**write.noted, "items": count} if write.noted else None)
            self._seen = self.gallery.store.pointer().sequence
        return Written(count, self._seen)

    async def close(self) -> None:
        """Write waiting items, and let another service write."""
        await self._gathering.close()
        self._closing.set()
        await asyncio.to_thread(self._turn.join)


def _alike(contents: Sequence[Upsertion]) -> list[list[int]]:
    """Return which requests can share a batch: same models and columns; each is alone if they share an item."""
    if len({name for one in contents for name in one.ids}) < sum(len(one.ids) for one in contents):
        return [[number] for number in range(len(contents))]  # in order: the last one wins
    groups = dict[object, list[int]]()
    for number, one in enumerate(contents):
        alike = (tuple(one.vectors), None if one.metadata is None else tuple(one.metadata)) if one.even else number
        groups.setdefault(alike, []).append(number)
    return list(groups.values())


def _batch(
    state: GalleryState, contents: Sequence[Upsertion], noted: Sequence[Document | None], numbers: Sequence[int]
) -> ItemBatch:
    """Return the batch of compatible requests; checking many items at once costs as much as checking one."""
    some = [contents[number] for number in numbers]
    ids, sets = [name for one in some for name in one.ids], []
    for model in some[0].vectors:
        generation = state.by_name.get(model) or state.made_by(model)
        points = np.concatenate([one.points(model, generation) for one in some])
        sets.append(EmbeddingSet(points, ids, generation.fingerprint, generation.geometry, role="document"))
    columns = some[0].metadata
    metadata = columns and {name: [value for one in some for value in (one.metadata or {})[name]] for name in columns}
    [batch] = batches(state, sets, metadata, len(ids))
    return replace(batch, noted=[one for one in (noted[number] for number in numbers) if one is not None])


def _name(noted: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return sender and key of a request; None without a key."""
    return (noted.get("who", ""), noted["key"]) if "key" in noted else None


def _requests(entry: JournalEntry) -> list[dict[str, Any]]:
    listed = entry.event.get("requests", [])
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
