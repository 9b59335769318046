"""What an application notices of a backfill at several paces: its p99 beside each, in turns with rests.

    python benchmarks/attached_pace.py                                   # 200,000 rows of 384 numbers
    python benchmarks/attached_pace.py --rows 5000 --dim 64 --part 2 --out /tmp    # a try

Table and clients are those of `attached_tables.py`. After they have warmed up they are measured before the table is
attached; then rests and paces take turns, so that checkpoints and whatever else goes on count in all of them. A pace
writes small batches, and a part ends with the batch that it is at. Writes attached_pace.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from all_methods_tables import markdown
from attached_tables import PATIENCE, RESULTS, Ready, Run, configured_server
from attached_tables_shop import DECLARED, Table, Told, client, fill, reader, vectors
from crash.server import Server
from holdfast.attached.base import ModelIdentity
from holdfast.attached.postgres.attachment import attach
from machine import describe

CLIENTS, PAUSE, BATCH = 2, 0.01, 32
PACES: dict[str, dict[str, Any]] = {
    "150 rows a second": {"rate": 150.0},
    "a tenth of the time": {"share": 0.1},
    "as fast as it can": {},
}
REST, BEFORE = "at rest", "before"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--part", type=float, default=8.0, help="seconds of a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with configured_server() as server:
        lines = measure(server, options)
    (options.out / "attached_pace.md").write_text("\n".join(lines))
    print("\n".join(lines))


def measure(server: Server, options: argparse.Namespace) -> list[str]:
    """Return what clients noticed as a page."""
    server.execute("CREATE DATABASE pace")
    table = Table(server.url("pace"), options.rows, options.dim)
    found = {side: vectors(side, options.rows, options.dim) for side in DECLARED}
    fill(table, found["old"])
    context = multiprocessing.get_context("spawn")
    told = Told(context.Event(), context.Event(), context.Queue(), context.Queue())
    processes = [context.Process(target=reader, args=(table, told), daemon=True)] + [
        context.Process(target=client, args=(table, one, CLIENTS, PAUSE, told), daemon=True) for one in range(CLIENTS)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        told.heard.get(timeout=PATIENCE)
    run, written = Run(table, options.part), dict.fromkeys(PACES, 0)
    seconds = dict.fromkeys(PACES, 0.0)
    run.step("warming up", lambda: time.sleep(15))
    for _ in range(options.turns):
        run.step(BEFORE)
    old, new = (ModelIdentity(DECLARED[side], options.dim) for side in DECLARED)
    with attach(f"{table.url}&table=items&text=title", old=old, new=new) as it:
        ready = Ready(it, "new", found["new"])

        def fill_at(pace: str) -> None:
            done = it.backfill(ready, batch=BATCH, seconds=options.part, **PACES[pace])
            written[pace] += done.written

        for _ in range(options.turns):
            for pace in PACES:
                run.step(REST)
                seconds[pace] += run.step(pace, lambda: fill_at(pace))  # noqa: B023
    told.ended.set()
    parts = [told.answers.get(timeout=PATIENCE) for _ in processes]
    for process in processes:
        process.join()
    run.watch.close()
    run.take([one for of_client, *_ in parts for one in of_client])
    errors = [when for _, of_client, _, _ in parts for when, _ in of_client]
    mixed = sum(len(of_client) for _, _, of_client, _ in parts)
    return [
        "# What an application notices of a backfill, by its pace",
        "",
        f"`python {' '.join(['benchmarks/attached_pace.py', *sys.argv[1:]])}` on {describe('psycopg', 'pgvector')}. "
        f"{options.rows:,} rows of {options.dim} numbers; {CLIENTS} clients that pause {1000 * PAUSE:g} ms after every "
        f"statement; batches of {BATCH}; {options.turns} turns of {options.part:g} s. Errors: {len(errors)}; answers "
        f"that mix models: {mixed}.",
        "",
        "## Paces",
        "",
        *markdown(
            ["backfill", "rows/s", "p99 of searches, times that at rest", "of writes", "of searches, times that before",
             "of writes"],
            [[pace, f"{written[pace] / seconds[pace]:,.0f}", *(
                f"{run.ratio(pace, base, kind):.2f}" for base in (REST, BEFORE) for kind in ("search", "write")
            )] for pace in PACES]
            + [["none, attached", "", *["1.00"] * 2, *(
                f"{run.ratio(REST, BEFORE, kind):.2f}" for kind in ("search", "write"))]], 1),
        "",
        "## Milliseconds",
        "",
        *run.page(errors),
        "",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
