"""The common loop of all backfills, at the pace and within the limits of its options."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, Protocol, Self, TypedDict, TypeVar

from annotated_types import Gt, Le

from limpet.embeddings import EmbeddingSet
from limpet.errors import (
    BudgetError,
    DataError,
    LastingStoreError,
    LockedError,
    SpaceMismatchError,
    StoreError,
    shown,
)
from limpet.geometry import Space
from limpet.support.progress import Progress, Told, listener
from limpet.support.progress import shown as shown_progress
from limpet.support.ranges import Count, NonNegative, Positive, PositiveInt, checked
from limpet.upgrade.vector_sources import VectorSource, without_text

PASSES = 4
"""Passes of one run; items that still change afterwards are left for the next run."""
_LONGEST_PAUSE = 16.0  # seconds between two attempts
_NAMED = 20  # ids to keep of each kind of items without a vector
ShareOfTime = Annotated[float, Gt(0), Le(1)]
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Backfilled:
    """Result of one run of a backfill.

    Args:
        generation: The generation, or the model, whose vectors were made.
        embedded: Items that the source embedded.
        written: Items that have a new vector now; the others were written or deleted meanwhile.
        missing: Items that the source does not have.
        without_text: Items whose text is blank, or has no token known to the model; they get no vector.
        lacking: Items that still have no vector of the generation.
        stopped: Why the run stopped: "done", "budget", "time", or "interrupted".
    """

    generation: str
    embedded: int
    written: int
    missing: int
    missing_ids: tuple[str, ...]
    without_text: int
    without_text_ids: tuple[str, ...]
    lacking: int
    seconds: float
    stopped: str


class FillInterruptedError(Exception):
    """A callback for progress raises this to end the backfill after the current batch."""


class Counted:
    """The number of some items, and the first of their ids; all ids could exceed memory."""

    def __init__(self) -> None:
        self.first: list[str] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, ids: Collection[str]) -> None:
        """Add items that were not added before."""
        self._count += len(ids)
        self.first = heapq.nsmallest(_NAMED, [*self.first, *ids])


class LeftOut:
    """The items of one pass for which a source made no vectors."""

    def __init__(self, source: VectorSource) -> None:
        self._source, self.missing, self.without_text = source, Counted(), Counted()

    def __len__(self) -> int:
        return len(self.missing) + len(self.without_text)

    def add(self, ids: Collection[str]) -> None:
        """Add items that the source was just asked for."""
        said_nothing = without_text(self._source, ids)
        self.without_text.add(said_nothing)
        self.missing.add([one for one in ids if one not in said_nothing])


def check_source(source: VectorSource, fingerprint: str, space: Space | int, *, of: str) -> None:
    """Refuse a source whose model or space is not the expected one.

    Raises:
        DataError: The source is of another model.
        SpaceMismatchError: The source is on another space.
    """
    if source.fingerprint != fingerprint:
        raise DataError(
            f"The source makes vectors of {source.fingerprint}.",
            expected=f"those of {of}: {fingerprint}",
            to_do="give that model, or files of its vectors; or begin an upgrade to this model.",
            intact="Nothing was changed.",
        )
    made = source.space
    if isinstance(space, int):
        wrong, expected = made.dim != space or made.curvature is not None, f"dimension {space}, without curvature"
    else:
        wrong, expected = made != space, f"the {space}"
    if wrong:
        raise SpaceMismatchError(f"The source is on the {made}.", expected=expected, intact="Nothing was changed.")


class FillBatch(Protocol):
    """Items that lack a vector, with the versions or digests that show whether they have changed since."""

    @property
    def ids(self) -> list[str]:
        """Ids of the items."""
        ...

    def select(self, rows: Sequence[int]) -> Self:
        """Return some of the items, in the order given."""
        ...


BatchT = TypeVar("BatchT", bound=FillBatch)


def embedded_items(source: VectorSource, batch: BatchT, made: EmbeddingSet) -> BatchT:
    """Return the items of a batch for which a source made vectors, in the order of the vectors.

    Raises:
        DataError: The vectors are of another model or space, or of items that were not asked for.
    """
    if (made.fingerprint, made.space, made.form) != (source.fingerprint, source.space, "points"):
        raise DataError(f"The source made {made}.", expected=f"points by {source.fingerprint}")
    asked, embedded = batch.ids, list(made.ids)
    if embedded == asked:
        return batch
    rows = {identifier: row for row, identifier in enumerate(asked)}
    strangers = [identifier for identifier in embedded if identifier not in rows]
    if strangers:
        raise DataError(f"The source made vectors of {shown(strangers)}.", expected="the items it was asked for")
    return batch.select([rows[identifier] for identifier in embedded])


class Fillable(Generic[BatchT]):
    """A place whose items are filled: a gallery, a table or a collection.

    Every method may raise `StoreError`, and is called again in that case.

    Args:
        generation: Display name of the generation or model that is filled.
        total: Number of items that lacked a vector at the last count, plus those written before.
        written: Number of items whose new vectors were written.
        again: Whether another pass is needed even if this one embeds nothing.
        batch: Items embedded and written at a time, unless the options set it.
    """

    generation: str
    total: int = 0
    written: int = 0
    again: bool = False
    batch: int

    def begin(self, source: VectorSource) -> None:
        """Check the source, count items that lack a vector, and record the start.

        Raises:
            DataError: The source is of another model.
            SpaceMismatchError: The source is on another space.
        """
        raise NotImplementedError

    def begin_pass(self) -> None:
        """Go back to the first item that lacks a vector."""
        raise NotImplementedError

    def next(self, limit: int) -> BatchT | None:
        """Return the next items that lack a vector, at most ``limit``; None at the end of the pass."""
        raise NotImplementedError

    def embed(self, source: VectorSource, batch: BatchT) -> EmbeddingSet:
        """Return the vectors that the source makes for a batch."""
        return source.embed(batch.ids)

    def write(self, batch: BatchT, made: EmbeddingSet, start: int) -> int:
        """Write vectors of items that have not changed since they were read, and count them in `written`.

        Returns:
            Position of the first vector that is left for another call.
        """
        raise NotImplementedError

    def keep_up(self) -> None:
        """Maintain the store after a batch."""

    def lacking(self) -> int:
        """Return the number of items that lack a vector."""
        raise NotImplementedError

    def end(self, stopped: str, left_out: LeftOut, lacking: int) -> None:
        """Record the end.

        Args:
            stopped: Why the run stopped, see `Backfilled`.
            left_out: Items for which the source made no vectors in the last pass.
            lacking: Number of items that lack a vector.
        """
        raise NotImplementedError


class FillOptions(TypedDict, total=False):
    """Options of every backfill; see `Filling`."""

    batch: PositiveInt | None
    budget: Count | None
    rate: Positive | None
    share: ShareOfTime | None
    seconds: NonNegative | None
    retries: Count
    pause: NonNegative
    progress: Progress[Told]


class Filling(Generic[BatchT]):
    """One run of a backfill, batch by batch.

    An interruption loses at most one batch that was embedded and not written. Items that change meanwhile keep the
    application's write and are filled in the next pass. Passes repeat until one embeds nothing, at most `PASSES` times.

    Args:
        source: Source of the vectors.
        batch: Items embedded and written at a time; the place decides when None.
        budget: Stop after embedding this many items.
        rate: Maximum number of items embedded per second.
        share: Maximum share of the time spent on writing; the run pauses after every write.
        seconds: Begin no further batch after this many seconds.
        retries: Number of retries while the place is unreachable, with pauses that double. Damage and missing rights
            are not retried.
        pause: Seconds of the first of these pauses.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "done", "total", "embedded",
            "written", "missing" and "seconds" after every batch, and also with "waiting", the seconds of the pause,
            while the place is unreachable. The batch is the last one if the function raises `FillInterruptedError`.

    Raises:
        ConfigError: A number is out of range.
    """

    @checked
    def __init__(
        self,
        place: Fillable[BatchT],
        source: VectorSource,
        *,
        batch: PositiveInt | None = None,
        budget: Count | None = None,
        rate: Positive | None = None,
        share: ShareOfTime | None = None,
        seconds: NonNegative | None = None,
        retries: Count = 7,
        pause: NonNegative = 0.5,
        progress: Progress[Told] = None,
    ) -> None:
        self.place, self.source, self.batch, self.budget = place, source, batch, budget
        self.rate, self.share, self.seconds = rate, share, seconds
        self.retries, self.pause, self.progress = retries, pause, progress
        self.embedded, self.stopped, self.left_out = 0, "done", LeftOut(source)
        self.started = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.started

    def run(self) -> Backfilled:
        """Fill the place, as far as budget and time permit.

        Raises:
            DataError: The source is of another model, or returns vectors that were not requested.
            SpaceMismatchError: The source is on another space.
            UpgradeStateError: The phase of the upgrade permits no backfill.
            StoreError: The place stayed unreachable; another run continues where this one stopped.
        """
        with shown_progress(self.progress, "backfill") as self.progress:
            return self._run()

    def _run(self) -> Backfilled:
        self._reach(lambda: self.place.begin(self.source))
        for _ in range(PASSES):
            embedded, self.left_out = self.embedded, LeftOut(self.source)
            self._reach(self.place.begin_pass)
            if not self._fill() or (self.embedded == embedded and not self.place.again):
                break
        lacking = self._reach(self.place.lacking)
        self.stopped = self.stopped if lacking else "done"
        self._reach(lambda: self.place.end(self.stopped, self.left_out, lacking))
        missing, blank = self.left_out.missing, self.left_out.without_text
        return Backfilled(
            self.place.generation, self.embedded, self.place.written, len(missing), tuple(missing.first), len(blank),
            tuple(blank.first), lacking, self.elapsed, self.stopped,
        )  # fmt: skip

    def _fill(self) -> bool:
        """Fill the items of one pass; return False if budget or time ended it."""
        while True:
            most = self.batch or self.place.batch
            left = most if self.budget is None else min(most, self.budget - self.embedded)
            late = self.seconds is not None and self.elapsed >= self.seconds
            if late or left < 1:
                self.stopped = "time" if late else "budget"
                return False
            batch = self._reach(lambda: self.place.next(left))  # noqa: B023
            if batch is None:
                return True
            try:
                made = self.place.embed(self.source, batch)
            except BudgetError:  # of the source: embedded items that it cached cost nothing next time
                self.stopped = "budget"
                return False
            items = embedded_items(self.source, batch, made)
            self.embedded += len(made)
            self.left_out.add(set(batch.ids) - set(made.ids))
            self._write(items, made)
            try:
                self._tell()
            except FillInterruptedError:
                self.stopped = "interrupted"
                return False

    def _write(self, items: BatchT, made: EmbeddingSet) -> None:
        start = 0
        while start < len(made):
            began = time.monotonic()
            start = self._reach(lambda: self.place.write(items, made, start))  # noqa: B023
            taken = time.monotonic() - began
            self._wait(self.embedded - len(made) + start, 0.0 if self.share is None else taken * (1 / self.share - 1))
        if start:
            self._reach(self.place.keep_up)

    def _wait(self, done: int, rest: float) -> None:
        wait = max(rest, 0.0 if self.rate is None else done / self.rate - self.elapsed)
        time.sleep(max(0.0, wait if self.seconds is None else min(wait, self.seconds - self.elapsed)))

    def _reach(self, call: Callable[[], _Result]) -> _Result:
        pause = self.pause
        for _ in range(self.retries):
            try:
                return call()
            except (LastingStoreError, LockedError):
                raise
            except StoreError:
                self._tell(pause)
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        return call()

    def _tell(self, waiting: float | None = None) -> None:
        left_out = len(self.left_out)
        told: Told = {
            "done": self.place.written + left_out, "total": self.place.total, "embedded": self.embedded,
            "written": self.place.written, "missing": left_out, "seconds": self.elapsed,
        }  # fmt: skip
        listener(self.progress)(told if waiting is None else {**told, "waiting": waiting})
