"""``holdfast gallery backfill`` and ``plan``."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.console import console, print_json, rate_progress
from holdfast.cli.gallery.common import duration, opened
from holdfast.cli.gallery.sources import NewVectors
from holdfast.cli.options import DataSets
from holdfast.embeddings.embedding_set import shown
from holdfast.errors import ConfigError, refuse

if TYPE_CHECKING:
    from holdfast.galleries import Gallery
    from holdfast.galleries.sources import VectorSource

LISTED = 1000  # missing ids in --json


def backfill(
    gallery: str,
    source: NewVectors,
    sets: DataSets,
    adapter: Path | None = None,
    order: str | None = None,
    batch: int = 4096,
    budget: int | None = None,
    price_per_thousand: float | None = None,
    max_cost: float | None = None,
    rate: float | None = None,
    seconds: float | None = None,
    class_column: str = "label",
    missing_out: Path | None = None,
    retries: int = 6,
    workers: int = 0,
    seed: int = 0,
    json: bool = False,
) -> int:
    """Give items that lack one a vector of the prepared or active model.

    Every batch is one commit: stopped anywhere, by Ctrl-C, a budget or a failure, the same command goes on. Items that
    are written or deleted meanwhile stay as they were written. The exit code is 1 if the source does not have some of
    the items, and 0 if all are done or a budget was reached.

    Args:
        gallery: Where it is.
        source: Where new vectors come from.
        sets: How data is read.
        adapter: Folder of an adapter that maps these vectors into the new model's space.
        order: Which items come first: id, random, uncertainty (old vectors that serve the new model worst), traffic
            (most retrieved), class-balanced. That of an interrupted backfill, else id, when left out.
        batch: Items per commit.
        budget: Give at most so many items a new vector now.
        price_per_thousand: Of embedding 1,000 items, in any currency.
        max_cost: With it: embed at most for so much now.
        rate: Embed at most so many items a second.
        seconds: Begin no further batch after so many seconds.
        class_column: Metadata column of the class, for the orders class-balanced and uncertainty.
        missing_out: File for the ids of all items that the source does not have, one a line; written at the end.
        retries: How often a commit is tried again, with growing pauses, while the store is out of reach.
        workers: Threads that embed parts of a batch at once.
        seed: Of random orders.
        json: Print one JSON document.

    Examples:
        holdfast gallery backfill --gallery live --release runs/link/head --texts requests.csv --budget 200
    """
    from holdfast.cli.gallery.words import fill_command, next_commands

    limit = allowed(budget, price_per_thousand, max_cost)
    with opened(gallery) as it:
        found = source.opened(it, sets, adapter=adapter, workers=workers)
        if found is None:
            status = it.status()
            fill = ("give the others new vectors", fill_command(status, gallery))
            [(purpose, typed), *_] = [fill] if status.lacking else next_commands(status, gallery)
            raise ConfigError(
                "Nothing to embed with was given.",
                expected="--release NEW --data DATA; --release HEAD --texts TEXTS; or --vectors FILE …",
                to_do=f"to {purpose}: {typed} (`holdfast gallery backfill --help` lists the options); the gallery is "
                "intact.",
            )
        options = {"order": order, "batch": batch, "budget": limit, "rate": rate, "seconds": seconds,
                   "class_column": class_column, "retries": retries, "seed": seed}  # fmt: skip
        done = _run(it, found, options)
        missing = list(_lacking(it, done["generation"])) if done["missing"] and done["stopped"] == "done" else []
        steps = next_commands(it.status(), gallery)
    cost = None if price_per_thousand is None else done["embedded"] * price_per_thousand / 1000
    verb = "read" if source.vectors else "embedded"  # vectors of files are not embedded
    _tell(done, missing, cost, steps, "carried over" if source.vectors and (source.release or adapter) else verb)
    if missing_out is not None and done["stopped"] == "done":
        _write_ids(missing_out, missing)
    if json:
        print_json({**done, "missing_ids": missing[:LISTED] or list(done["missing_ids"]), "cost": cost})
    return {"interrupted": 130, "done": int(bool(missing))}.get(done["stopped"], 0)


def allowed(budget: int | None, price: float | None, max_cost: float | None) -> int | None:
    """Return how many items a number and a sum of money allow; None for as many as there are.

    >>> allowed(None, 0.02, 1.0), allowed(100, 0.02, 1.0), allowed(100, None, None)
    (50000, 100, 100)
    """
    refuse(budget is not None and budget < 0, f"--budget {budget}.", "at least 0 items")
    refuse(price is not None and not 0 < price < math.inf, f"--price-per-thousand {price}.", "a number above 0")
    refuse(max_cost is not None and not 0 <= max_cost < math.inf, f"--max-cost {max_cost}.", "a number of at least 0")
    refuse(max_cost is not None and price is None, "--max-cost without a price.", "--price-per-thousand, too")
    by_cost = [] if max_cost is None or price is None else [math.floor(1000 * max_cost / price)]
    return min([*([] if budget is None else [budget]), *by_cost], default=None)


def _run(gallery: Gallery, source: VectorSource, options: Mapping[str, Any]) -> dict[str, Any]:
    """Run a backfill with a live bar, and return what it did, also where Ctrl-C ended it."""
    found = gallery.status()
    seen: dict[str, Any] = {"embedded": 0, "written": 0, "missing": 0, "seconds": 0.0}
    with rate_progress(f"backfill of {found.target}", found.lacking) as show, _stopping() as stop:

        def on_step(event: dict[str, Any]) -> None:
            seen.update({name: event[name] for name in seen if name in event})
            paused = event.get("waiting")
            state = f"store out of reach, trying again in {paused:g} s" if paused else ""
            show({"done": seen["embedded"] + seen["missing"], "state": state})
            stop()

        try:
            return dict(vars(gallery.backfill(source, on_step=on_step, **options)))
        except KeyboardInterrupt:
            lacking = gallery.status().lacking
    return {"generation": found.target, **seen, "missing_ids": (), "lacking": lacking, "stopped": "interrupted"}


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


def _lacking(gallery: Gallery, generation: str) -> Iterator[str]:
    after = ""
    while len(items := gallery.store.scan(after=after, limit=10_000, lacking=generation)):
        after = items.ids[-1]
        yield from items.ids


def _write_ids(path: Path, ids: list[str]) -> None:
    from holdfast.embeddings.storage import write_atomically

    write_atomically(path, lambda part: part.write_text("".join(f"{one}\n" for one in ids), encoding="utf-8"))


def _tell(
    done: Mapping[str, Any], missing: list[str], cost: float | None, steps: Sequence[tuple[str, str]], verb: str
) -> None:
    """Say what was done, what is left, and what to type next."""
    speed = f", {done['embedded'] / done['seconds']:,.0f} items/s" if done["seconds"] > 0 and done["embedded"] else ""
    paid = "" if cost is None else f" for {cost:,.2f}"
    if done["embedded"] or done["lacking"]:
        console.print(
            f"{done['generation']}: {done['embedded']:,} items {verb}{paid}, {done['written']:,} written, "
            f"in {duration(done['seconds'])}{speed}."
        )
    if done["stopped"] != "done":
        why = {"budget": "The budget is used up", "time": "The time is over"}.get(done["stopped"], "Interrupted")
        console.print(f"{why}: {done['lacking']:,} items are left. The same command continues.")
    elif missing:
        console.print(
            f"{len(missing):,} items are not in the source: {shown(missing)}. Their other vectors are kept, and answer "
            "where a report or an adapter allows it. Give a source that has them, delete them, or `complete` with "
            "--allow-missing."
        )
    else:
        console.print(f"Every item has a vector of {done['generation']}.")
        for purpose, typed in steps[:1]:
            console.print(f"Next, to {purpose}: {typed}")
