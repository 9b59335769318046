"""How fast an upgrade is, beside another checkout and beside what one would do without limpet.

    python benchmarks/lifecycle_speed.py                       # this checkout and the bare stores
    python benchmarks/lifecycle_speed.py --beside ../before    # in turns with another checkout
    python benchmarks/lifecycle_speed.py --only memory table --turns 3

A gallery of each engine is imported, searched, written to, backfilled to a half, searched, backfilled, and searched; a
table of PostgreSQL is filled, near the server and far from it. Vectors are at hand, so no model takes time. Every turn
of a checkout is a process of its own, and checkouts change places after every turn. Seconds are by the clock and of
processors, those of the database server included; a ratio is of one turn, this checkout's seconds over the other's.

Bare is, in the same run: the product of NumPy with `argpartition`; a write and appends of a Lance data set without
syncing and without reading back; a binary COPY into a table with a primary key, and a search in it; and an UPDATE of
the rows of a table that is not attached, in arrays of as many rows as a batch has, in a transaction for each. No table
has an index over vectors. A program between client and server delays every byte by half of a round trip.

Writes lifecycle_speed.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from all_methods_tables import markdown
from attached_tables import RESULTS, configured_server
from crash.distance import Distance
from crash.server import Server
from lifecycle_speed_steps import SIZE, fresh_tables, vectors_of
from machine import describe

HERE = Path(__file__).parents[1]
ENGINES = ("memory", "lance", "postgresql")
STEPS = Path(__file__).with_name("lifecycle_speed_steps.py")
GOALS = (  # engine, step, step that it is divided by, at most
    ("memory", "query", "bare query", 1.1),
    ("memory", "query, half backfilled", "query, backfilled", 1.3),
    ("lance", "import", "bare import", 2.5),
    ("lance", "backfill of a half", "bare backfill of a half", 3.0),
    ("lance", "query, half backfilled", "query, backfilled", 1.3),
    ("postgresql", "import", "bare import", 2.0),
    ("postgresql", "query", "bare query", 1.3),
)
Turns = dict[tuple[str, str], dict[str, list[tuple[float, float]]]]
"""Seconds by the clock and of processors, of every turn, by checkout, by engine and step."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, help="another checkout")
    parser.add_argument("--only", nargs="+", choices=[*ENGINES, "table"], default=[*ENGINES, "table"])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--upserts", type=int, default=40)
    parser.add_argument("--table-dim", type=int, default=64)
    parser.add_argument("--delays", type=float, nargs="+", default=[0.0, 2.0, 11.0], help="round trips in ms")
    parser.add_argument("--seconds", type=float, default=20.0, help="after which a fill of a table is stopped")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    checkouts = {"this": HERE} | ({"before": options.beside} if options.beside else {})
    turns: Turns = {}
    with configured_server() as server:
        server.execute("CREATE EXTENSION vector")
        for number in range(options.turns):
            order = dict(reversed(checkouts.items())) if number % 2 else checkouts
            for engine in options.only:
                if engine == "table":
                    time_tables(turns, server, order, options)
                else:
                    time_galleries(turns, server, engine, order, options)
                print(f"turn {number + 1} of {engine}", file=sys.stderr)
    lines = page(turns, options)
    (options.out / "lifecycle_speed.md").write_text("\n".join(lines))
    print("\n".join(lines))


def run(turns: Turns, engine: str, name: str, folder: Path, **told: Any) -> None:
    """Let a process with the limpet of a checkout time steps, and note them."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(STEPS), json.dumps(told)]
    said = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    for step, took in json.loads(said).items():
        turns.setdefault((engine, step), {}).setdefault(name, []).append(tuple(took))


def time_galleries(
    turns: Turns, server: Server, engine: str, checkouts: dict[str, Path], options: argparse.Namespace
) -> None:
    """Time a turn of a gallery in an engine by every checkout."""
    sizes = {name: getattr(options, name) for name in ("rows", "dim", "queries", "upserts")}
    for name, folder in checkouts.items():
        place, postmaster = tempfile.mkdtemp(prefix="limpet-speed-"), None
        url = f"{engine}:{place}/gallery"
        if engine == "postgresql":
            server.execute("DROP SCHEMA IF EXISTS limpet CASCADE")
            server.execute("CHECKPOINT")
            url, postmaster = f"{server.url()}&schema=limpet", pid_of(server)
        try:
            run(turns, engine, name, folder, what="gallery", server=postmaster, url=url, bare=name == "this", **sizes)
        finally:
            shutil.rmtree(place, ignore_errors=True)


def time_tables(turns: Turns, server: Server, checkouts: dict[str, Path], options: argparse.Namespace) -> None:
    """Time a turn of a fill at every distance by every checkout, and of the bare UPDATE."""
    made = vectors_of(options.rows, options.table_dim, 1)
    distance = Distance(server.sockets)
    try:
        for delay in options.delays:
            distance.set(delay / 1000)
            for name, folder in {"bare": HERE, **checkouts}.items():
                fresh_tables(server.url(), made)
                run(turns, f"table, {delay:g} ms", name, folder, what="table", server=pid_of(server),
                    url=distance.url("postgres"), rows=options.rows, dim=options.table_dim, seconds=options.seconds,
                    bare=name == "bare")  # fmt: skip
    finally:
        distance.close()


def pid_of(server: Server) -> int:
    """Return the number of the first process of a server."""
    return int((server.folder / "postmaster.pid").read_text().splitlines()[0])


def page(turns: Turns, options: argparse.Namespace) -> list[str]:
    """Return what was measured as a page."""
    with_before = any("before" in by_name for by_name in turns.values())
    titles = ["", "step", "this, ms", "processor, ms"]
    titles += ["before, ms", "this / before (range)", "processor: this / before (range)"] * with_before
    rows = []
    for (engine, step), by_name in turns.items():
        if "this" not in by_name:
            continue
        this, before = by_name["this"], by_name.get("before")
        cells = [engine, step, *(shown(1000 * median(this, which)) for which in (0, 1))]
        if with_before:
            cells += [shown(1000 * median(before, 0)), *(ratio(this, before, which) for which in (0, 1))] \
                if before else [""] * 3  # fmt: skip
        rows.append(cells)
    return [
        "# The speed of upgrades",
        "",
        f"`python benchmarks/lifecycle_speed.py` on {describe('psycopg', 'pgvector', 'pylance')}. Galleries of "
        f"{options.rows:,} rows of {options.dim} numbers, {options.queries} queries; a table of {options.rows:,} rows "
        f"of {options.table_dim} numbers, {SIZE} at a time, after a round trip of so many milliseconds. Medians of "
        f"{options.turns} turns, of one import, query, upsert or row.",
        "",
        *markdown(titles, rows, 2),
        "",
        "## Beside what is bare",
        "",
        *markdown(["", "step", "divided by", "ratio (range)", "of processors' time", "goal"], goals(turns), 3),
        "",
    ]


def goals(turns: Turns) -> list[list[str]]:
    """Return a row for each ratio that has a goal."""
    rows = []
    for engine, step, divisor, most in GOALS:
        if (engine, step) in turns:
            these = turns[engine, step]["this"], turns[engine, divisor]["this"]
            rows.append([engine, step, divisor, ratio(*these, 0), ratio(*these, 1), f"at most {most:g}"])
    for (engine, _), by_name in turns.items():
        if "bare" in by_name:
            least = "0.5" if engine == "table, 0 ms" else "0.25"
            for name in sorted(set(by_name) - {"bare"}, reverse=True):
                these = by_name["bare"], by_name[name]
                rows.append([engine, "rows a second" + ", before" * (name == "before"), "a bare UPDATE's",
                             ratio(*these, 0), ratio(*these, 1), f"at least {least}"])  # fmt: skip
    if ("lance", "upsert") in turns:
        took = [f"{1000 * median(turns['lance', 'upsert']['this'], which):.1f} ms" for which in (0, 1)]
        rows.append(["lance", "upsert", "", *took, "at most 12 ms"])
    return rows


def median(turns: list[tuple[float, float]], which: int) -> float:
    return statistics.median(turn[which] for turn in turns)


def ratio(these: list[tuple[float, float]], others: list[tuple[float, float]], which: int) -> str:
    """Return the median and the range of the ratios of turns."""
    ratios = [one[which] / max(other[which], 1e-9) for one, other in zip(these, others, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def shown(ms: float) -> str:
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


if __name__ == "__main__":
    main()
