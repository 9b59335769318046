"""One run of filling, wherever the vectors are: whose they have to be, how far it came, and how fast it goes on."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypedDict

from limpet.engines.sides import ModelSide
from limpet.errors import DataError, SpaceMismatchError, refuse, unknown_name
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.progress import Progress
from limpet.upgrade.vector_sources import VectorSource, without_text


@dataclass(frozen=True)
class Backfilled:
    """What one run of a backfill did.

    Args:
        generation: Which generation it filled.
        embedded: Items that the source embedded.
        written: Items that have a new vector now; the others were written or deleted meanwhile.
        missing: Items that the source does not have.
        missing_ids: The first of them.
        without_text: Items whose text is blank, or says nothing to the model; nothing can be made of them.
        without_text_ids: The first of them.
        lacking: Items that still have no vector of the generation.
        seconds: How long it took.
        stopped: Why it stopped: "done", "budget", or "time".
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


class LeftOut:
    """The items of one pass that a source made no vectors of.

    Args:
        source: Which.
    """

    def __init__(self, source: VectorSource) -> None:
        self._source, self.missing, self.without_text = source, set[str](), set[str]()

    def __len__(self) -> int:
        return len(self.missing) + len(self.without_text)

    def add(self, ids: Collection[str]) -> None:
        """Add items that the source was just asked for."""
        said_nothing = without_text(self._source, ids)
        self.without_text |= said_nothing
        self.missing.update(one for one in ids if one not in said_nothing)

    def backfilled(
        self, generation: str, embedded: int, written: int, lacking: int, seconds: float, stopped: str
    ) -> Backfilled:
        """Return what a run came to, see `Backfilled`."""
        missing, blank = sorted(self.missing), sorted(self.without_text)
        return Backfilled(
            generation, embedded, written, len(missing), tuple(missing[:20]), len(blank), tuple(blank[:20]), lacking,
            seconds, stopped,
        )  # fmt: skip


def rest_after(seconds: float, share: float | None) -> float:
    """Return how many seconds to rest after work of so many, so that work is a share of the time.

    >>> rest_after(0.5, 0.25), rest_after(0.5, None)
    (1.5, 0.0)
    """
    return 0.0 if share is None else seconds * (1 / share - 1)


class FillOptions(TypedDict, total=False):
    """How rows are filled; what is left out is chosen.

    Args:
        batch: Rows embedded and written at a time; None for as many as are measured to be fast.
        budget: Embed at most so many in this run.
        rate: Embed at most so many a second.
        share: Work in the place of the vectors for at most such a share of the time, and rest after every write: the
            longer, the slower the place is, so that an application that keeps it busy is made room for.
        seconds: Begin no further batch after so many seconds.
        on_step: Told "done", "total", "embedded", "written", "missing" and "seconds" after every batch.
    """

    batch: int | None
    budget: int | None
    rate: float | None
    share: float | None
    seconds: float | None
    on_step: Progress | None


def check_model(source: VectorSource, model: UpgradeModel, side: ModelSide, *, attached: str, ranked: str) -> None:
    """Refuse a source of another model, or whose vectors the table or the collection cannot rank: say so in its words.

    Raises:
        DataError: It is of another model.
        SpaceMismatchError: It is of another dimension, or of a curved space.
    """
    if source.fingerprint != model.fingerprint:
        raise DataError(
            f"The source makes vectors of {source.fingerprint}.",
            expected=f"those of the {side} model, {model.note + ', ' if model.note else ''}{model.fingerprint}",
            to_do=f"give the model or the files that were named when the {attached} was attached.",
            intact="Nothing was changed.",
        )
    if source.space.dim != model.dim or source.space.curvature is not None:
        raise SpaceMismatchError(
            f"The source is on the {source.space}.", expected=f"vectors of dimension {model.dim}{ranked}",
            intact="Nothing was changed.",
        )  # fmt: skip


class Run:
    """How far one run came, and how fast it may go on.

    Args:
        source: Where vectors come from.
        side: Of which model.
        options: See `FillOptions`.
        batch: Embedded and written at a time, where the options do not say.
        items: What those are called that are filled.
    """

    def __init__(self, source: VectorSource, side: ModelSide, options: FillOptions, *, batch: int, items: str) -> None:
        for name in options:
            if name not in FillOptions.__annotations__:
                raise unknown_name("option of a backfill", name, FillOptions.__annotations__)
        self.source, self.side, self.batch = source, side, batch if (said := options.get("batch")) is None else said
        self.budget, self.rate, self.seconds = options.get("budget"), options.get("rate"), options.get("seconds")
        self.share, self.on_step = options.get("share"), options.get("on_step")
        refuse(self.batch < 1, f"batch={self.batch}", "at least 1")
        refuse(self.rate is not None and self.rate <= 0, f"rate={self.rate}", f"more than 0 {items} a second")
        refuse(self.share is not None and not 0 < self.share <= 1, f"share={self.share}", "more than 0, and at most 1")
        refuse(self.budget is not None and self.budget < 0, f"budget={self.budget}", f"at least 0 {items}")
        self.total = self.embedded = self.written = 0
        self.left_out = LeftOut(source)
        self.started, self.stopped = time.monotonic(), "done"

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.started

    def in_time(self) -> bool:
        """Return whether there is time left; without, it stops for that."""
        if self.seconds is None or self.elapsed < self.seconds:
            return True
        self.stopped = "time"
        return False

    def pace(self, done: int, rest: float) -> None:
        """Wait until so many are due at the rate, and no shorter than a rest, or until the time is up."""
        wait = max(rest, 0.0 if self.rate is None else done / self.rate - self.elapsed)
        time.sleep(max(0.0, wait if self.seconds is None else min(wait, self.seconds - self.elapsed)))

    def tell(self) -> None:
        """Tell who asked how far it came."""
        if self.on_step is not None:
            self.on_step({
                "done": self.written + len(self.left_out), "total": self.total, "embedded": self.embedded,
                "written": self.written, "missing": len(self.left_out), "seconds": self.elapsed,
            })  # fmt: skip

    def backfilled(self, model: str, lacking: int) -> Backfilled:
        """Return what it came to: vectors of a model, which so many lack in the end."""
        return self.left_out.backfilled(model, self.embedded, self.written, lacking, self.elapsed, self.stopped)
