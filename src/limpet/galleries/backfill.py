"""Backfills of galleries, in a selectable order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from limpet.embeddings import EmbeddingSet
from limpet.engines.store import Changes, Fill, Items
from limpet.errors import GalleryError, unknown_name
from limpet.galleries.orders import ORDERS, order_ids
from limpet.galleries.rows import rows_of
from limpet.support.logs import logger
from limpet.support.ranges import NonNegative, PositiveInt, Seed, checked
from limpet.upgrade.filling import Backfilled, Fillable, Filling, FillOptions, LeftOut, check_source
from limpet.upgrade.vector_sources import VectorSource

if TYPE_CHECKING:
    from limpet.galleries.open_gallery import OpenGallery

_log = logger("galleries")

WAIT = 60.0  # seconds to wait for another writer, which may be in the middle of a batch
GROWTH = 1.5  # growth factor of the rows between two runs of tidy


class BackfillOptions(FillOptions, total=False):
    """Options of a backfill of a gallery; see `backfill`."""

    order: str | None
    pieces: PositiveInt
    wait: NonNegative | None
    seed: Seed


@checked
def backfill(
    gallery: OpenGallery,
    source: VectorSource,
    *,
    order: str | None = None,
    pieces: PositiveInt = 16,
    wait: NonNegative | None = None,
    seed: Seed = 0,
    **options: Unpack[FillOptions],
) -> Backfilled:
    """Write a vector of the started or active generation for items that lack one.

    Args:
        gallery: The gallery.
        source: Source of the vectors.
        order: Name in `ORDERS`. An interrupted backfill continues in its original order, unless "id" is given;
            by id when left out.
        pieces: Tidy the store after this many commits, once the rows have grown by half since the last time: this
            merges small files and updates approximate indexes.
        wait: Seconds that every commit waits for another writer; by default, the timeout of the gallery, and 60 at
            least.
        seed: Random seed of random orders.
        **options: See `Filling`; by default, a commit has 4,096 items.

    Raises:
        ConfigError: The order is unknown or not possible for this gallery, or a number is out of range.
        DataError: The source is of another model, or returns vectors that were not requested.
        StoreError: The store stayed unreachable; another run continues where this one stopped.
    """
    if order is not None and order not in ORDERS:
        raise unknown_name("order", order, ORDERS)
    place = _Generation(gallery, order, pieces, max(gallery.timeout, WAIT) if wait is None else wait, seed)
    return Filling(place, source, **options).run()


class _Generation(Fillable[Items]):
    """The started or active generation of a gallery; the arguments are those of `backfill`."""

    batch = 4096

    def __init__(self, gallery: OpenGallery, order: str | None, pieces: int, wait: float, seed: int) -> None:
        self.gallery, self.store, self.order, self.seed = gallery, gallery.store, order, seed
        self.pieces, self.wait = pieces, wait
        self.commits = 0
        self.kept_up = 0  # rows of the generation when tidy last ran
        self.state = gallery.state
        self.generation = self.state.target
        self.queue: Sequence[str] | None = None  # ids of the first pass
        self.ordered: Sequence[str] | None = None  # ids of this pass; None to go by id
        self.reached, self.after = 0, ""

    def begin(self, source: VectorSource) -> None:
        target = self.state.by_name[self.generation]
        check_source(source, target.fingerprint, target.geometry, of=target.name)
        self.gallery.fill_mapped()  # resume after an interruption
        self.total = self.lacking()
        self.queue = None if self.order == "id" else self.store.queue(self.generation)
        if self.queue is None and self.order not in (None, "id"):
            self.queue = order_ids(self.store, self.state, self.generation, self.order, seed=self.seed)
            self.store.set_queue(self.generation, self.queue)

    def begin_pass(self) -> None:
        self.ordered, self.queue = self.queue, None
        self.reached, self.after = 0, ""
        self.again = self.ordered is not None

    def next(self, limit: int) -> Items | None:
        if self.ordered is not None:
            return self._next_of(self.ordered, limit)
        if self.generation not in self.gallery.state.by_name:
            raise _cancelled(self.generation)
        items = self.store.scan(after=self.after, limit=limit, lacking=self.generation)
        if not len(items):
            return None
        self.after = items.ids[-1]
        return items

    def _next_of(self, ordered: Sequence[str], limit: int) -> Items | None:
        while self.reached < len(ordered):
            items = self.store.fetch(ordered[self.reached : self.reached + limit])
            self.reached += limit
            rows = [row for row, held in enumerate(items.generations) if self.generation not in held]
            if rows:
                return items.select(rows)
        return None

    def write(self, batch: Items, made: EmbeddingSet, start: int) -> int:
        generation = self.gallery.state.by_name.get(self.generation)
        if generation is None:
            raise _cancelled(self.generation)
        fill = Fill(rows_of(generation, made), batch.versions, batch)
        self.written += commit_fill(self.gallery, fill, self.wait)
        self.commits += 1
        return len(made)

    def keep_up(self) -> None:
        if self.commits >= self.pieces and self._rows() >= GROWTH * self.kept_up:
            self._tidy()

    def end(self, stopped: str, left_out: LeftOut, lacking: int) -> None:
        if stopped == "done":
            self.store.set_queue(self.generation, None)
            if self.commits and self.generation in self.gallery.state.by_name:
                self._tidy()

    def lacking(self) -> int:
        pointer = self.store.pointer()
        return pointer.items - pointer.covered([self.generation])

    def _rows(self) -> int:
        return self.store.pointer().covered([self.generation])

    def _tidy(self) -> None:
        """Let the store merge small files, and index new rows if the searched generations are indexed."""
        names = self.gallery.state.by_name
        if any(self.store.upkeep(name).indexed for name in names):
            self._index()
        else:
            self.store.keep_up(self.generation)
        self.commits, self.kept_up = 0, self._rows()

    def _index(self) -> None:
        try:
            self.gallery.index(self.generation)
        except GalleryError as error:  # no index can find neighbours among such vectors: searches compare all of them
            _log.info("%s gets no approximate index: %s", self.generation, error.given)
            self.store.keep_up(self.generation)


def commit_fill(gallery: OpenGallery, fill: Fill, wait: float) -> int:
    """Write vectors in one commit, and return their number, without items that were changed or deleted meanwhile.

    Raises:
        GalleryError: Another writer kept the lock, or the upgrade was cancelled.
        StoreError: The store is unreachable, full or failing.
    """
    target = fill.rows.generation
    event = {"kind": "backfill", "generation": target, "embedded": len(fill.rows.ids)}
    with gallery.writing("backfill", timeout=wait):
        state = gallery.state
        if target not in state.by_name:
            raise _cancelled(target)
        return int(gallery.record(Changes(fill=fill), state, event).filled.sum())


def _cancelled(target: str) -> GalleryError:
    return GalleryError(
        f"The upgrade to {target} was cancelled while it was filled.",
        to_do="`limpet upgrade start` begins it again.",
    )
