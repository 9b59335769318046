"""Giving items the vectors of another model, batch by batch, in an order of choice, as often interrupted as you like.

A batch is embedded, written, read back, and only then do its items know of their new vectors, all in one commit. What
an interruption loses is one batch that was embedded and not committed. An item that was written or deleted meanwhile
keeps what was written: the store passes over rows made of an earlier version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypedDict, TypeVar

from limpet.embeddings import EmbeddingSet
from limpet.engines.store import Changes, Fill, Items
from limpet.errors import (
    BudgetError,
    DataError,
    GalleryError,
    LastingStoreError,
    SpaceMismatchError,
    StoreError,
    shown,
    unknown_name,
)
from limpet.galleries.orders import ORDERS, order_ids
from limpet.galleries.rows import rows_of
from limpet.galleries.state import Generation
from limpet.support.logs import logger
from limpet.support.ranges import Count, NonNegative, Positive, PositiveInt, Seed, checked
from limpet.upgrade.filling import Backfilled, LeftOut
from limpet.upgrade.progress import Progress, Told
from limpet.upgrade.vector_sources import VectorSource

if TYPE_CHECKING:
    from limpet.galleries.open_gallery import OpenGallery

_Result = TypeVar("_Result")

_log = logger("galleries")

_LONGEST_PAUSE = 16.0  # seconds between two repetitions
GROWTH = 1.5  # of the rows between two times that the store is seen to
FRUITLESS_PASSES = 3  # in a row, after which what others keep rewriting is left lacking


def check_source(source: VectorSource, target: Generation) -> None:
    """Refuse a source whose vectors are not those of a generation.

    Raises:
        DataError: It is of another model.
        SpaceMismatchError: It is on another space.
    """
    if source.fingerprint != target.fingerprint:
        raise DataError(
            f"The source makes vectors of {source.fingerprint}.",
            expected=f"those of {target.name}: {target.fingerprint}",
            to_do="give the release or the files of that model, or prepare a generation for this one.",
            intact="The gallery is intact.",
        )
    if source.space != target.geometry:
        raise SpaceMismatchError(
            f"The source is on the {source.space}, {target.name} on the {target.geometry}.",
            expected="one space",
            intact="The gallery is intact.",
        )


class BackfillOptions(TypedDict, total=False):
    """What may be said of a backfill; what it means, and what it is when left out, says `Backfill`."""

    order: str | None
    batch: PositiveInt
    budget: Count | None
    rate: Positive | None
    seconds: NonNegative | None
    pieces: PositiveInt
    retries: Count
    pause: NonNegative
    wait: NonNegative | None
    seed: Seed
    on_step: Progress | None


class Backfill:
    """One run of a backfill: it gives items that lack one a vector of the prepared or active generation.

    Args:
        gallery: Where.
        source: Where the vectors come from; of that generation's model.
        order: Name in `ORDERS`. An interrupted backfill goes on in the order it began with, unless that is "id" now;
            by id when left out.
        batch: Items per commit.
        budget: Embed at most so many items in this run.
        rate: Embed at most so many items a second.
        seconds: Begin no further batch after so many seconds.
        pieces: See to the store after so many commits, once the rows have grown by half since the last time: it merges
            small pieces and brings approximate indexes up to date.
        retries: How often the store is tried again, with pauses that double, while it is out of reach; what is damaged,
            or refused for want of rights, is not.
        pause: Seconds of the first of these pauses.
        wait: Seconds that every commit waits for another writer; as long as the gallery does, and 60 at least, when
            left out.
        seed: Of random orders.
        on_step: Told "done", "total", "embedded", "written", "missing" and "seconds" after every commit, and "waiting",
            the seconds of the pause, while the store is out of reach.

    Raises:
        ConfigError: An unknown order, or a number out of range.
        DataError: The source is of another model.
    """

    @checked
    def __init__(
        self,
        gallery: OpenGallery,
        source: VectorSource,
        *,
        order: str | None = None,
        batch: PositiveInt = 4096,
        budget: Count | None = None,
        rate: Positive | None = None,
        seconds: NonNegative | None = None,
        pieces: PositiveInt = 16,
        retries: Count = 6,
        pause: NonNegative = 0.5,
        wait: NonNegative | None = None,
        seed: Seed = 0,
        on_step: Progress | None = None,
    ) -> None:
        if order is not None and order not in ORDERS:
            raise unknown_name("order", order, ORDERS)
        self.gallery, self.store, self.source = gallery, gallery.store, source
        self.order, self.seed = order, seed
        self.batch, self.budget, self.rate, self.seconds = batch, budget, rate, seconds
        self.pieces, self.retries, self.pause, self.on_step = pieces, retries, pause, on_step
        self.wait = max(gallery.timeout, 60.0) if wait is None else wait
        self.total = self.embedded = self.written = self.commits = 0
        self.kept_up = 0  # rows of the generation when the store was last seen to
        self.left_out = LeftOut(source)
        self.started, self.stopped = time.monotonic(), "done"
        self.state = gallery.state
        self.target = self.state.target
        check_source(source, self.state.by_name[self.target])

    def run(self) -> Backfilled:
        """Fill the generation, as far as budget and time go.

        Raises:
            ConfigError: An order that cannot be had.
            DataError: What the source made is wrong.
            StoreError: The store stayed out of reach; another run goes on where this one stopped.
        """
        self._reach(self.gallery.fill_mapped)  # what an interruption left
        self.total = self._lacking()
        for items in self._batches():
            if not self._embed(items):
                break
        if self.commits and self.stopped == "done" and self.target in self.gallery.state.by_name:
            self._keep_up()
        return self.left_out.backfilled(
            self.target, self.embedded, self.written, self._lacking(), self.elapsed, self.stopped
        )

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.started

    def _lacking(self) -> int:
        """Return how many items have no vector of the generation."""
        pointer = self._reach(self.store.pointer)
        return pointer.items - pointer.covered([self.target])

    # Which items

    def _batches(self) -> Iterator[Items]:
        """Yield items without a vector: in the order, and then by id whatever came meanwhile."""
        order = self.order
        if order is None and self._reach(lambda: self.store.queue(self.target)) is not None:
            order = "random"  # any: what is queued comes first
        if order is not None and order != "id":
            yield from self._queued(order)
        fruitless = 0
        while fruitless < FRUITLESS_PASSES:
            embedded, written, self.left_out = self.embedded, self.written, LeftOut(self.source)
            yield from self._by_id()
            if self.embedded == embedded:
                break
            fruitless = 0 if self.written > written else fruitless + 1
        self._reach(lambda: self.store.set_queue(self.target, None))

    def _by_id(self) -> Iterator[Items]:
        after = ""

        def scan() -> Items:
            if self.target not in self.gallery.state.by_name:
                raise _abandoned(self.target)
            return self.store.scan(after=after, limit=self.batch, lacking=self.target)

        while len(items := self._reach(scan)):
            after = items.ids[-1]
            yield items

    def _queued(self, order: str) -> Iterator[Items]:
        store, state, target, seed = self.store, self.state, self.target, self.seed
        queue = self._reach(lambda: store.queue(target))
        if queue is None:
            queue = self._reach(lambda: order_ids(store, state, target, order, seed=seed))
            ordered = queue
            self._reach(lambda: store.set_queue(target, ordered))
        yield from self._named(queue)

    def _named(self, ids: Sequence[str]) -> Iterator[Items]:
        """Yield those of the items that lack a vector."""
        for start in range(0, len(ids), self.batch):
            items = self._reach(lambda: self.store.fetch(ids[start : start + self.batch]))  # noqa: B023
            yield _chosen(items, [row for row, held in enumerate(items.generations) if self.target not in held])

    # What becomes of them

    def _embed(self, items: Items) -> bool:
        """Embed and commit items; return whether to go on."""
        rows = range(len(items))
        while rows and self._in_time() and (left := self._within_budget(len(rows))):
            part, rows = _chosen(items, rows[:left]), rows[left:]
            try:
                made = self.source.embed(part.ids)
            except BudgetError:  # of the source: what it kept of this batch costs nothing next time
                self.stopped = "budget"
                return False
            self.embedded += len(made)
            self.left_out.add(set(part.ids) - set(made.ids))
            if len(made):
                self._commit(part, made)
            self._tell()
        return not rows

    def _within_budget(self, wanted: int) -> int:
        """Return how many of the items wanted the budget allows."""
        left = wanted if self.budget is None else min(wanted, self.budget - self.embedded)
        self.stopped = "done" if left else "budget"
        return left

    def _in_time(self) -> bool:
        """Keep the rate, and return whether there is time left."""
        due = 0.0 if self.rate is None else self.embedded / self.rate
        time.sleep(max(0.0, min(due, self.seconds or due) - self.elapsed))
        in_time = self.seconds is None or self.elapsed < self.seconds
        self.stopped = "done" if in_time else "time"
        return in_time

    def _commit(self, items: Items, made: EmbeddingSet) -> None:
        fill = fill_of(self.source, self.gallery.state.by_name.get(self.target), self.target, items, made)
        self.written += self._reach(lambda: commit_fill(self.gallery, fill, self.wait))
        self.commits += 1
        if self.commits >= self.pieces and self._rows() >= GROWTH * self.kept_up:
            self._keep_up()

    def _rows(self) -> int:
        return self._reach(self.store.pointer).covered([self.target])

    def _keep_up(self) -> None:
        """Let the store merge small pieces, and index new rows where the generations that are searched are indexed."""
        names = self.gallery.state.by_name
        indexed = any(self.store.upkeep(name).indexed for name in names)
        self._reach(lambda: self._index() if indexed else self.store.keep_up(self.target))
        self.commits, self.kept_up = 0, self._rows()

    def _index(self) -> None:
        try:
            self.gallery.build_index(self.target)
        except GalleryError as error:  # no index leads to what is near among such vectors: all of them are compared
            _log.info("%s gets no approximate index: %s", self.target, error.given)
            self.store.keep_up(self.target)

    def _reach(self, call: Callable[[], _Result]) -> _Result:
        """Call the store, again and again with growing pauses while it is out of reach: not where it is damaged."""
        pause = self.pause
        for _ in range(self.retries):
            try:
                return call()
            except LastingStoreError:
                raise
            except StoreError:
                self._tell(pause)
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        return call()

    def _tell(self, waiting: float | None = None) -> None:
        if self.on_step is not None:
            told: Told = {
                "done": self.written + len(self.left_out), "total": self.total, "embedded": self.embedded,
                "written": self.written, "missing": len(self.left_out), "seconds": self.elapsed,
            }  # fmt: skip
            self.on_step(told if waiting is None else {**told, "waiting": waiting})


def _chosen(items: Items, rows: Sequence[int]) -> Items:
    if rows == range(len(items)):
        return items
    return Items(
        [items.ids[row] for row in rows],
        items.versions[list(rows)],
        [items.generations[row] for row in rows],
        [items.metadata[row] for row in rows],
        items.as_of,
    )


def fill_of(source: VectorSource, generation: Generation | None, target: str, items: Items, made: EmbeddingSet) -> Fill:
    """Return what a source made of items, to be written where they are still what was read.

    Args:
        source: Where it comes from.
        generation: The generation to fill; None where it is gone.
        target: Its name.
        items: As they were read, without a vector of it.
        made: Vectors of some or all of them.

    Raises:
        DataError: The vectors are of another model or space, or of items that were not asked for.
        GalleryError: The generation was abandoned.
    """
    if (made.fingerprint, made.space, made.form) != (source.fingerprint, source.space, "points"):
        raise DataError(f"The source made {made}.", expected=f"points by {source.fingerprint}")
    seen = items if list(made.ids) == items.ids else _of(items, made.ids)
    if generation is None:
        raise _abandoned(target)
    return Fill(rows_of(generation, made), seen.versions, seen)


def commit_fill(gallery: OpenGallery, fill: Fill, wait: float) -> int:
    """Write vectors in one commit, and return how many were: not those of items that changed or vanished meanwhile.

    Args:
        gallery: Where.
        fill: The vectors.
        wait: Seconds to wait for another writer.

    Raises:
        GalleryError: Another writer stayed, or the generation was abandoned.
        StoreError: The store is out of reach, full or failing.
    """
    target = fill.rows.generation
    event = {"kind": "backfill", "generation": target, "embedded": len(fill.rows.ids)}
    with gallery.writing("backfill", timeout=wait):
        state = gallery.state
        if target not in state.by_name:
            raise _abandoned(target)
        return int(gallery.store.commit(Changes(fill=fill), state.to_record(), event).filled.sum())


def _of(items: Items, ids: Sequence[str]) -> Items:
    """Return those of the items that the source made vectors of, in its order."""
    place = {identifier: row for row, identifier in enumerate(items.ids)}
    strangers = [identifier for identifier in ids if identifier not in place]
    if strangers:
        raise DataError(f"The source made vectors of {shown(strangers)}.", expected="the items it was asked for")
    return _chosen(items, [place[identifier] for identifier in ids])


def _abandoned(target: str) -> GalleryError:
    return GalleryError(
        f"The generation {target} was abandoned while it was filled.",
        to_do="prepare it again.",
    )
