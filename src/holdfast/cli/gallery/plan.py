"""``holdfast gallery plan``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.console import console, print_json
from holdfast.cli.gallery.common import command, duration, opened, size
from holdfast.cli.gallery.sources import NewVectors
from holdfast.cli.options import DataSets
from holdfast.embeddings.embedding_set import shown

if TYPE_CHECKING:
    from holdfast.galleries.plan import Plan
    from holdfast.galleries.status import Status


def plan(
    gallery: str,
    source: NewVectors,
    sets: DataSets,
    adapter: Path | None = None,
    report: list[Path] = [],  # noqa: B006
    sample: int = 256,
    batch: int = 4096,
    price_per_thousand: float | None = None,
    max_cost: float | None = None,
    seconds: float | None = None,
    workers: int = 0,
    seed: int = 0,
    json: bool = False,
) -> int:
    """Say what a backfill would take: items, time, cost, room, and how search is meanwhile. Nothing is changed.

    A random sample of the items is embedded and timed. The new model need not be prepared yet.

    Args:
        gallery: Where it is.
        source: Where new vectors come from.
        sets: How data is read.
        adapter: Folder of an adapter that maps these vectors into the new model's space.
        report: results.json of `holdfast evaluate` of a model that is not prepared yet, to say how search would be.
        sample: Items to embed, at least 2.
        batch: Items that are embedded at a time.
        price_per_thousand: Of embedding 1,000 items, in any currency.
        max_cost: With it: how far so much would reach.
        seconds: How far so many seconds would reach.
        workers: Threads that embed parts of a batch at once.
        seed: Of the sample.
        json: Print one JSON document.

    Examples:
        holdfast gallery plan --gallery live --release runs/link/head --texts requests.csv --price-per-thousand 0.02
    """
    from holdfast.galleries.plan import plan as planned

    budget: dict[str, Any] = {"price_per_thousand": price_per_thousand, "budget_cost": max_cost}
    with opened(gallery) as it:
        vectors = source.opened(it, sets, adapter=adapter, workers=workers)
        with console.status("embedding a sample"):
            numbers: dict[str, Any] = {"sample": sample, "batch": batch, "seed": seed}
            found = planned(it, vectors, reports=report, budget_seconds=seconds, **numbers, **budget)
        status = it.status()
    for line in told(found) if found.rows or not found.items else [f"Every item has a vector of {found.generation}."]:
        console.print(line)
    for purpose, typed in following(found, status, gallery, source, adapter, report):
        console.print(f"Next, to {purpose}: {typed}")
    if json:
        print_json(found.to_dict())
    return 0


def following(
    found: Plan, status: Status, url: str, source: NewVectors, adapter: Path | None, reports: Sequence[Path]
) -> Sequence[tuple[str, str]]:
    """Return what to type next, each with what it is for: what was planned, or else what would be a plan.

    Args:
        found: The plan.
        status: Of the gallery as it is.
        url: Where it is.
        source: Where vectors came from, which is that of the next command.
        adapter: What mapped them.
        reports: That were given.
    """
    from holdfast.cli.gallery.words import fill_command, next_commands

    chosen: dict[str, Sequence[object]] = {
        "release": [source.release], "data": [source.data], "texts": [source.texts], "text-model": [source.text_model],
        "vectors": source.vectors or [None], "model": [source.model], "adapter": [adapter],
    }  # fmt: skip
    given = [str(word) for name, (first, *more) in chosen.items() if first for word in (f"--{name}", first, *more)]
    if found.generation not in {one.name for one in status.generations}:
        vectors = str(source.vectors[0]) if source.vectors else "EMBEDDINGS"
        named = ["--model", source.model] if source.model else []
        identity = ["--embeddings", vectors, *named] if source.release is None else ["--release", str(source.release)]
        evidence = ["--report", *reports] if reports else []
        return [("make room for it", command("prepare", url, *identity, *evidence))]
    if found.rows and given:
        return [("do it", command("backfill", url, *given))]
    if found.rows:
        typed = fill_command(status, url)
        return [("have a sample timed", typed.replace(" backfill ", " plan ", 1)), ("do it", typed)]
    other = command("plan", url, "--vectors", "FILE", "--model", "NEW")
    return [("plan an upgrade, name the new model", other), *next_commands(status, url)]


def told(found: Plan) -> list[str]:
    """Say in words what a backfill takes."""
    lines = [
        f"{found.generation}: {found.rows:,} of {found.items:,} items need a new vector; {size(found.bytes_written)} "
        f"of vectors come, {size(found.bytes_until_gc)} of others stay until gc."
    ]
    if found.sampled:
        lines.append(_measured(found))
    if found.cost is not None:
        lines.append(f"Cost: {found.cost:,.2f}.")
    if found.rows_within_budget is not None:
        lines.append(f"Within the budget: {found.rows_within_budget:,} of {found.found_rows:,} items.")
    return [*lines, *map(_promised, found.promises)]


def _measured(found: Plan) -> str:
    lacks = f" The source lacks {found.missing} of {found.sampled} sampled items: "
    missing = f"{lacks}{shown(found.missing_ids, found.missing)}." if found.missing else ""
    if found.items_per_second is None or found.seconds is None:
        return f"The speed could not be measured.{missing}"
    return (
        f"Time: {duration(found.seconds)} of embedding at {found.items_per_second:,.0f} items/s, measured on "
        f"{found.sampled} items.{missing}"
    )


def _promised(promise: Any) -> str:
    """Say what searches are like meanwhile."""
    reason = f"Meanwhile new queries search vectors of {promise.gallery}, too ({promise.how}: {promise.reason})"
    if promise.metric is None or promise.now is None:
        return f"{reason}."
    scores = {"now": promise.now, "old queries": promise.before, "at the end": promise.at_the_end}
    known = ", ".join(f"{name} {value:.3f}" for name, value in scores.items() if value is not None)
    return f"{reason}: {promise.metric} {known}."
