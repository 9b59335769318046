"""``limpet upgrade backfill`` of a gallery."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from limpet.cli.console import console, long_texts, print_json, rate_progress
from limpet.cli.gallery.options import GalleryUrl, Spending
from limpet.cli.gallery.sources import KINDS, NewVectors
from limpet.cli.options import DataSets, FillLimits
from limpet.errors import ConfigError, shown
from limpet.support.wording import duration

if TYPE_CHECKING:
    from limpet.galleries import Gallery
    from limpet.upgrade.filling import Backfilled
    from limpet.upgrade.progress import Progress, Told

WAIT_FOR_BATCHES = 60.0  # seconds for another writer, who may be in the middle of a batch


def backfill(
    gallery: GalleryUrl,
    *,
    source: NewVectors,
    sets: DataSets,
    spending: Spending,
    limits: FillLimits,
    order: str | None,
    seed: int,
) -> int:
    """Give items new vectors; see `limpet upgrade backfill`."""
    from limpet.cli.gallery.words import fill_command, next_commands, tell_next, typed
    from limpet.galleries.items import pages
    from limpet.galleries.next_steps import one_scale
    from limpet.upgrade.vector_sources import without_text

    limits = replace(limits, budget=spending.items(limits.budget))
    with gallery.opened(WAIT_FOR_BATCHES) as it:
        found = source.opened(it, sets)
        if found is None:
            status = it.status()
            fill = ("give the others new vectors", fill_command(status, gallery))
            [(purpose, command), *_] = [fill] if status.lacking else next_commands(status, gallery)
            raise ConfigError(
                "Nothing to embed with was given.",
                expected=KINDS,
                to_do=f"to {purpose}: {command} (`limpet upgrade backfill --help` lists the options).",
            )
        done = _run(
            it,
            lambda on_step: it.backfill(
                found, order=order, wait=WAIT_FOR_BATCHES, seed=seed, **limits.options(on_step)
            ),
        )
        missing = []
        if done.missing and done.stopped == "done":
            lacking = [one for items in pages(it.store, lacking=done.generation) for one in items.ids]
            blank = without_text(found, lacking)
            missing = [one for one in lacking if one not in blank]
        status = it.status()
    source.tell()
    cost = spending.cost(done.embedded)
    below = source.over is not None and source.over.vectors is not None
    read = source.model is not None and source.model.vectors is not None
    _tell(done, missing, cost, "carried over" if below else "read" if read else "embedded")
    tell_next(typed(one_scale(status), gallery) if status.lacking else next_commands(status, gallery)[:1])
    facts = {"missing_ids": missing or list(done.missing_ids), "cost": cost}
    print_json({**vars(done), **facts, "long_texts": [one.to_dict() for one in long_texts()]})
    return {"interrupted": 130, "done": int(bool(missing))}.get(done.stopped, 0)


def _run(gallery: Gallery, fill: Callable[[Progress], Backfilled]) -> Backfilled:
    """Run a backfill with a live bar, and return what it did, also where Ctrl-C ended it."""
    found = gallery.status()
    told: Told = {"embedded": 0, "written": 0, "missing": 0, "seconds": 0.0}
    with rate_progress(f"backfill of {found.target}", found.lacking) as show, _stopping() as stop:

        def on_step(event: Told) -> None:
            told.update(event)
            show(event)
            stop()

        try:
            return fill(on_step)
        except KeyboardInterrupt:
            lacking = gallery.status().lacking
    from limpet.upgrade.filling import Backfilled

    return Backfilled(
        found.target, told["embedded"], told["written"], told["missing"], (), 0, (), lacking, told["seconds"],
        "interrupted",
    )  # fmt: skip


@contextmanager
def _stopping() -> Iterator[Callable[[], None]]:
    """Let the first Ctrl-C wait for the end of a batch: yields a function that then raises, where it is called."""
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        console.print("\nStopping after this batch; Ctrl-C again stops at once, which loses this batch only.")

    def stop() -> None:
        if asked:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _tell(done: Backfilled, missing: list[str], cost: float | None, verb: str) -> None:
    """Say what was done, and what is left."""
    speed = f", {done.embedded / done.seconds:,.0f} items/s" if done.seconds > 0 and done.embedded else ""
    paid = "" if cost is None else f" for {cost:,.2f}"
    if done.embedded or done.lacking:
        console.print(
            f"{done.generation}: {done.embedded:,} items {verb}{paid}, {done.written:,} written, "
            f"in {duration(done.seconds)}{speed}."
        )
    if done.without_text:
        console.print(
            f"{done.without_text:,} items are without text and get no vector: "
            f"{shown(done.without_text_ids, done.without_text)}. Give them a text, delete them, or `finish` with "
            "--allow-missing."
        )
    if done.stopped != "done":
        why = {"budget": "The budget is used up", "time": "The time is over"}.get(done.stopped, "Interrupted")
        console.print(f"{why}: {done.lacking:,} items are left. The same command continues.")
    elif missing:
        console.print(
            f"{len(missing):,} items are not in the source: {shown(missing)}. Their other vectors are kept, and answer "
            "where a report or an adapter allows it. Give a source that has them, delete them, or `finish` with "
            "--allow-missing."
        )
    elif done.lacking > done.without_text:
        console.print(f"{done.lacking:,} items were written meanwhile and are left. The same command continues.")
    elif not done.without_text:
        console.print(f"Every item has a vector of {done.generation}.")
