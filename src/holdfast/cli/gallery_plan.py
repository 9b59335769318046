"""``holdfast gallery plan``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.console import console, print_json
from holdfast.cli.gallery_common import command, duration, opened, size
from holdfast.embeddings.embedding_set import shown

if TYPE_CHECKING:
    from holdfast.galleries.plan import Plan
    from holdfast.galleries.status import Status


def plan(
    gallery: str,
    release: Path | None = None,
    data: str | None = None,
    texts: str | None = None,
    vectors: list[Path] = [],  # noqa: B006 - read only, shown as the default
    text_model: str | None = None,
    adapter: Path | None = None,
    model: str | None = None,
    report: list[Path] = [],  # noqa: B006
    sample: int = 256,
    batch: int = 4096,
    price_per_thousand: float | None = None,
    max_cost: float | None = None,
    seconds: float | None = None,
    workers: int = 0,
    batch_size: int | None = None,
    document_prefix: str | None = None,
    max_length: int | None = None,
    truncate_dim: int | None = None,
    device: str = "cpu",
    data_root: Path | None = None,
    data_options: dict[str, Any] = {},  # noqa: B006
    cast: bool = False,
    seed: int = 0,
    json: bool = False,
) -> int:
    """Say what a backfill would take: items, time, cost, room, and how search is meanwhile. Nothing is changed.

    A random sample of the items is embedded and timed. The new model need not be prepared yet.

    Args:
        gallery: Where it is.
        release: Release of the new model, with --data; a head over a frozen model, with --texts or --vectors.
        data: The images by name or folder, whose ids are those of the gallery.
        texts: The texts by name, or a .csv, .parquet, .jsonl or .txt file.
        vectors: Embeddings by the new model that are there already: files, or folders of `holdfast embed`.
        text_model: Frozen model that embeds the texts; a head names its own.
        adapter: Folder of an adapter that maps these vectors into the new model's space.
        model: What you call the model of .npz, .npy and .parquet files; or a generation, such as g2.
        report: results.json of `holdfast evaluate` of a model that is not prepared yet, to say how search would be.
        sample: Items to embed, at least 2.
        batch: Items that are embedded at a time.
        price_per_thousand: Of embedding 1,000 items, in any currency.
        max_cost: With it: how far so much would reach.
        seconds: How far so many seconds would reach.
        workers: Threads that embed parts of a batch at once.
        batch_size: Items that the model takes at a time; 512 images or 64 texts when left out.
        document_prefix: Text before every text; what the model asks for when left out.
        max_length: Tokens that count of every text.
        truncate_dim: Keep so many of the first values of every vector.
        device: Where to compute: cpu, cuda, cuda:1, mps.
        data_root: Folder of the named data sets; the environment variable HOLDFAST_DATA when left out.
        data_options: Options of the data set.
        cast: Accept other floating types than float32 in .npz, .npy and .parquet files.
        seed: Of the sample.
        json: Print one JSON document.
    """
    from holdfast.cli.gallery_sources import source_of
    from holdfast.galleries.plan import plan as planned

    arguments = dict(locals())
    budget: dict[str, Any] = {"price_per_thousand": price_per_thousand, "budget_cost": max_cost}
    with opened(gallery) as it:
        source = source_of(arguments, it)
        with console.status("embedding a sample"):
            numbers: dict[str, Any] = {"sample": sample, "batch": batch, "seed": seed}
            found = planned(it, source, reports=report, budget_seconds=seconds, **numbers, **budget)
        status = it.status()
    for line in told(found) if found.rows or not found.items else [f"Every item has a vector of {found.generation}."]:
        console.print(line)
    for purpose, typed in following(found, status, gallery, arguments):
        console.print(f"Next, to {purpose}: {typed}")
    if json:
        print_json(found.to_dict())
    return 0


def following(found: Plan, status: Status, url: str, arguments: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Return what to type next, each with what it is for: what was planned, or else what would be a plan.

    Args:
        found: The plan.
        status: Of the gallery as it is.
        url: Where it is.
        arguments: Of the command, whose sources are those of the next one.
    """
    from holdfast.cli.gallery_words import fill_command, next_commands

    given = [
        word
        for name in _SOURCES
        if arguments[name]
        for word in (f"--{name.replace('_', '-')}", *_words(arguments[name]))
    ]
    if found.generation not in {one.name for one in status.generations}:
        named = ["--model"] if arguments["model"] else []
        identity = (
            ["--release", arguments["release"]]
            if arguments["release"]
            else (
                [
                    "--embeddings",
                    arguments["vectors"][0] if arguments["vectors"] else "EMBEDDINGS",
                    *named,
                    *_words(arguments["model"]),
                ]
            )
        )
        reports = ["--report", *arguments["report"]] if arguments["report"] else []
        return [("make room for it", command("prepare", url, *identity, *reports))]
    if found.rows and given:
        return [("do it", command("backfill", url, *given))]
    if found.rows:
        typed = fill_command(status, url)
        return [("have a sample timed", typed.replace(" backfill ", " plan ", 1)), ("do it", typed)]
    other = command("plan", url, "--vectors", "FILE", "--model", "NEW")
    return [("plan an upgrade, name the new model", other), *next_commands(status, url)]


_SOURCES = ("release", "data", "texts", "text_model", "vectors", "model", "adapter")


def _words(value: Any) -> list[str]:
    return [str(one) for one in (value if isinstance(value, list) else [value]) if one is not None]


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
