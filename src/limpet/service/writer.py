"""The one writer of a service: what arrives within a moment becomes one commit, and a request is done once."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from limpet.engines.store import Document, JournalEntry
from limpet.errors import LimpetError, ServiceError
from limpet.galleries import Gallery
from limpet.galleries.rows import ItemBatch
from limpet.service import metrics
from limpet.service.gathering import Gathering

REMEMBERED = 10_000
"""Commits back to which an Idempotency-Key is known."""
_KEYS = 100_000
_AGAIN = 1.0  # seconds until the lock is tried again, and looked after


@dataclass(frozen=True)
class Write:
    """What a request writes: items, or ids to delete.

    Args:
        content: The items, or the ids.
        noted: What the journal is to say of the request.
    """

    content: ItemBatch | Sequence[str]
    noted: Document

    @property
    def size(self) -> int:
        """How many items it writes or deletes."""
        return len(self.content.ids if isinstance(self.content, ItemBatch) else self.content)


@dataclass(frozen=True)
class Written:
    """How many items were written or deleted, by which commit."""

    items: int
    commit: int


class GalleryWriter:
    """Writes into a gallery while no other service does; made inside the event loop.

    Args:
        gallery: Opened for writing.
        room: Items that may wait.

    `notice` is "here", or why this service only reads; `settled` is set once that is known.
    """

    def __init__(self, gallery: Gallery, *, room: int) -> None:
        self.gallery, self.notice, self.settled = gallery, "starting", asyncio.Event()
        self._gathering = Gathering(self._written, what="items to write", room=room)
        self._known = OrderedDict[tuple[str, str], tuple[str, asyncio.Future[Written]]]()
        self.jobs: dict[str, JournalEntry] = {}
        self._loop, self._closing = asyncio.get_running_loop(), threading.Event()
        self._seen = 0
        self._turn = threading.Thread(target=self._hold, name="service lock", daemon=True)
        self._turn.start()

    # Which service writes

    def _hold(self) -> None:
        """Hold the lock of the one service that writes; wait for it where another has it."""
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

    def _remember(self) -> None:
        """Read which requests were answered, from the journal."""
        sequence = self.gallery.store.pointer().sequence
        for entry in self.gallery.store.journal(after=max(self._seen, sequence - REMEMBERED)):
            if "job" in entry.event:
                self.jobs[str(entry.event["job"])] = entry
            for noted in _requests(entry):
                self._loop.call_soon_threadsafe(self._know, noted, Written(noted["items"], entry.sequence))
        self._seen = sequence

    def _know(self, noted: Mapping[str, Any], written: Written) -> None:
        if "key" in noted:
            future = self._loop.create_future()
            future.set_result(written)
            self._known[noted.get("who", ""), noted["key"]] = noted["digest"], future

    def refuse_reader(self) -> None:
        """Refuse to write where another service does.

        Raises:
            ServiceError: It does.
        """
        if self.notice != "here":
            raise ServiceError(
                503, self.notice, expected="one service that writes into a gallery",
                to_do="ask the other service, or this one again once it has ended.", intact="Nothing was changed.",
            )  # fmt: skip

    # Writes

    async def write(
        self, content: ItemBatch | Sequence[str], body: bytes, *, who: str = "", key: str | None = None
    ) -> Written:
        """Write items or delete ids, or return what the same request did before.

        Args:
            content: The items, or the ids.
            body: Of the request, by which another one with the same key is noticed.
            who: Who asks; a key is one of theirs.
            key: Of the request.

        Raises:
            ServiceError: Another service writes, or the key was given with another body.
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
                del self._known[who, key]  # it may be tried again
            raise

    async def _ask(self, write: Write) -> Written:
        return await self._gathering.ask(write, write.size)

    def _written(self, writes: list[Write]) -> list[Written | Exception]:
        """Commit writes in their order; those of items that follow each other together."""
        answers: list[Written | Exception] = []
        for of_items, group in groupby(writes, lambda one: isinstance(one.content, ItemBatch)):
            some = list(group)
            answers += self._upserted(some) if of_items else [self._tried(self._delete, one) for one in some]
        return answers

    def _upserted(self, writes: list[Write]) -> list[Written | Exception]:
        found = self._tried(self._upsert, *writes)
        if len(writes) == 1:
            return [found]
        if isinstance(found, Exception):  # only one of them may be at fault
            return [self._tried(self._upsert, one) for one in writes]
        return [Written(one.size, found.commit) for one in writes]

    def _upsert(self, *writes: Write) -> Written:
        batches = [
            replace(one.content, noted={**one.noted, "items": one.size} if one.noted else None)
            for one in writes
            if isinstance(one.content, ItemBatch)
        ]
        with metrics.timed(metrics.STORE, "commit"):
            self._seen = self.gallery.upsert_batches(batches).pointer.sequence
        return Written(writes[0].size, self._seen)

    def _delete(self, write: Write) -> Written:
        ids = write.content.ids if isinstance(write.content, ItemBatch) else write.content
        with self.gallery.writing("delete"):
            count = len(self.gallery.store.fetch(ids))
            self.gallery.delete(ids, noted={**write.noted, "items": count} if write.noted else None)
            self._seen = self.gallery.store.pointer().sequence
        return Written(count, self._seen)

    def _tried(self, function: Callable[..., Written], *writes: Write) -> Written | Exception:
        try:
            return function(*writes)
        except Exception as error:
            noted = writes[0].noted
            if "key" not in noted or len(writes) > 1:
                return error
            with suppress(LimpetError):  # the place may have failed after the commit
                for entry in self.gallery.store.journal(after=self._seen):
                    if any(noted.items() <= one.items() for one in _requests(entry)):
                        return Written(writes[0].size, entry.sequence)
            return error

    async def close(self) -> None:
        """Write what waits, and let another service write."""
        await self._gathering.close()
        self._closing.set()
        await asyncio.to_thread(self._turn.join)


def _requests(entry: JournalEntry) -> list[dict[str, Any]]:
    listed = entry.event.get("requests", [])
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
