"""One run of filling, wherever the vectors are: whose they have to be, how far it came, and how fast it goes on."""

from __future__ import annotations

import time

from limpet.attached.base import AttachedModel, FillOptions
from limpet.attached.state import ModelSide
from limpet.errors import DataError, SpaceMismatchError, refuse, unknown_name
from limpet.galleries.backfill import Backfilled, LeftOut
from limpet.galleries.sources import VectorSource


def check_model(source: VectorSource, model: AttachedModel, side: ModelSide, *, attached: str, ranked: str) -> None:
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
