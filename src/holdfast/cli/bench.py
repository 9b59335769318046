"""``holdfast bench``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.choices import data_root as root_of
from holdfast.cli.console import console, print_json, print_table
from holdfast.cli.parsing import parse
from holdfast.errors import refuse

if TYPE_CHECKING:
    from holdfast.bench.pool import Progress
    from holdfast.bench.run import Bench, Estimate
    from holdfast.bench.suite import Suite

OF_A_MINUTE, OF_AN_HOUR = 60, 3600


def bench(
    suite: str | None = None,
    out: Path | None = None,
    cache: Path = Path("runs/bench/cells"),
    seeds: list[int] = [],  # noqa: B006 - read only
    processes: int | None = None,
    device: list[str] = [],  # noqa: B006
    dry_run: bool = False,
    retry_failed: bool = False,
    data_root: Path | None = None,
    json: bool = False,
) -> None:
    """Compare methods over data sets, scenarios and seeds, from one file, and end with a leaderboard.

    ``holdfast bench SUITE`` runs what is not finished of a suite: models to train, embeddings, scores. Finished cells
    are kept by their contents, so suites share old and independent models, an interrupted run continues, and a changed
    option reruns only what hangs on it. ``holdfast bench`` alone lists the suites that come with holdfast.

    Args:
        suite: One of the suites that come with holdfast, or a YAML file.
        out: Folder for results.json, leaderboard.html and the tables; runs/bench/SUITE when left out.
        cache: Folder of finished cells, shared by suites.
        seeds: Other seeds than those of the suite.
        processes: Cells at once; as many as there are devices, or processor cores, when left out.
        device: Where models are trained, taken in turn: cpu, cuda:0, cuda:1, …; every accelerator found when left out.
        dry_run: Say what would be run, and about how long it takes by what was measured before.
        retry_failed: Run again what failed.
        data_root: Folder of the named data sets; the environment variable HOLDFAST_DATA when left out.
        json: Print one JSON document.
    """


def main(words: list[str]) -> int:
    """Run a suite, write its leaderboard and show it; 1 if something failed."""
    from holdfast.bench.cache import CellCache
    from holdfast.bench.recipes import recipe_named
    from holdfast.bench.run import Bench, estimate

    if words and not words[0].startswith("-"):
        words = ["--suite", *words]
    arguments, _ = parse(bench, words, "bench")
    if arguments["suite"] is None:
        return _list_suites(arguments["json"])
    suite = recipe_named(arguments["suite"])
    if arguments["seeds"]:
        suite = suite.model_copy(update={"seeds": tuple(arguments["seeds"])})
    cache, root = CellCache(arguments["cache"]), root_of(arguments["data_root"])
    if arguments["retry_failed"]:
        cache.forget_failures()
    if arguments["dry_run"]:
        with console.status("reading data"):
            found = estimate(suite, cache, root)
        return _show_plan(suite, found, arguments["json"])
    devices = arguments["device"] or _devices()
    processes = _processes(arguments["processes"], devices)
    return _run(suite, Bench(cache, root, processes, devices), arguments, words)


def _run(suite: Suite, bench: Bench, arguments: dict[str, Any], words: list[str]) -> int:
    """Run to the end, write the board, and say what was found."""
    from dataclasses import replace

    from holdfast.bench.board import board_document
    from holdfast.cli.bench_progress import cells_progress, worked_before
    from holdfast.reports.leaderboard_files import leaderboard_text, write_tables
    from holdfast.reports.leaderboard_page import write_leaderboard_page
    from holdfast.reports.leaderboard_results import leaderboard_document, write_leaderboard

    out = arguments["out"] or Path("runs/bench") / suite.name
    with worked_before(out) as worked, cells_progress(suite.title) as watch:

        def after(progress: Progress) -> None:
            watch(progress)
            worked.note()

        found = replace(bench, watch=after).run(suite)
    document = leaderboard_document(
        board_document(
            found["rows"],
            found["suite"],
            machine=found["machine"],
            command=shlex.join(["holdfast", "bench", *(word for word in words if word != "--suite")]),
            wall_seconds=worked.seconds,
            tuning=found["tuning"],
            references=_references(suite),
        )
    )
    results = write_leaderboard(document, out)
    tables = write_tables(document, out)
    page = write_leaderboard_page(document, out)
    if arguments["json"]:
        print_json(document)
    console.print(leaderboard_text(document))
    console.print(
        f"results  {results}\ntables   {', '.join(map(str, tables))}\nboard    {page}  (open it in a browser)"
    )
    return int(any(row["failure"] is not None for row in found["rows"]))


def _references(suite: Suite) -> dict[str, str]:
    """Return the rows that are shown and not ranked: they align nothing, or are bounds."""
    from holdfast.methods import METHODS

    known = {label: METHODS[suite.method_of(label)] for label in suite.methods}
    bounds = {label: f"the {method.bound} bound" for label, method in known.items() if method.bound}
    alone = {label: "not aligned" for label in suite.methods if suite.method_of(label) == "independent"}
    return {**alone, **bounds}


def _list_suites(as_json: bool) -> int:
    from holdfast.bench.recipes import RECIPES, recipe_named

    suites = {name: recipe_named(name) for name in RECIPES}
    if as_json:
        print_json({"suites": {name: suite.model_dump(mode="json") for name, suite in suites.items()}})
        return 0
    rows = [
        [name, suite.title, ", ".join(suite.data), str(len(suite.methods)), str(len(suite.seeds))]
        for name, suite in suites.items()
    ]
    print_table("Suites", ["suite", "what it compares", "data", "rows", "seeds"], rows)
    return 0


def _show_plan(suite: Suite, found: Estimate, as_json: bool) -> int:
    """Say what would be run."""
    kinds: dict[str, int] = {}
    for cell in found.unfinished:
        kinds[cell.kind] = kinds.get(cell.kind, 0) + 1
    if as_json:
        cells = [{"kind": cell.kind, "label": cell.label, "work": cell.work} for cell in found.unfinished]
        print_json({"suite": suite.name, "finished": found.finished, "unfinished": cells, "seconds": found.seconds,
                    "unknown": found.unknown})  # fmt: skip
        return 0
    rows = [[kind, str(count)] for kind, count in kinds.items()]
    print_table(
        f"{suite.title}: {len(found.unfinished)} cells to run, {found.finished} finished", ["kind", "cells"], rows
    )
    for cell in found.unfinished:
        console.print(f"  {cell.label}", highlight=False)
    if found.seconds is not None:
        words = f"About {in_words(found.seconds)} one after another, by what was measured here before"
        console.print(f"{words}{f'; nothing is known of {found.unknown} cells' if found.unknown else ''}.")
    elif found.unfinished:
        console.print("Nothing like these cells was run here yet, so nobody can say how long they take.")
    return 0


def in_words(seconds: float) -> str:
    """Write a time.

    >>> in_words(42), in_words(200), in_words(9000)
    ('42 seconds', '3 minutes', '2.5 hours')
    """
    if seconds < OF_A_MINUTE:
        return f"{seconds:.0f} seconds"
    if seconds < OF_AN_HOUR:
        return f"{seconds / OF_A_MINUTE:.0f} minutes"
    return f"{seconds / OF_AN_HOUR:.1f} hours"


def _devices() -> list[str]:
    """Return every accelerator of this machine, or the processor."""
    import torch

    return [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cpu"]


def _processes(asked: int | None, devices: list[str]) -> int:
    from holdfast.evaluation.side_by_side import available_cores

    refuse(asked is not None and asked < 1, f"--processes {asked}.", "at least 1")
    if asked is not None:
        return asked
    return available_cores() if devices == ["cpu"] else len(devices)
