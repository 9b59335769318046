"""What an application notices of a backfill at several paces: its p99 beside each, in turns with rests.

    python benchmarks/attached_pace.py                                   # 200,000 rows of 384 numbers
    python benchmarks/attached_pace.py --rows 5000 --dim 64 --part 2 --out /tmp    # a try

Table and clients are those of `attached_tables.py`. The same application has a twin of the table on the same server,
which nobody attaches, and its clients send statements in turns with those of the table: a table that has just been
filled, and a server that has just started, are faster than ones that have been written to for minutes, and the twin
grows old with the table. It stands for the time before; how far the two are apart before one is attached says how far
the measure may be trusted. Every pace is measured alone, in turns with the twin and with the attached table at rest,
each after a pause, in which what the former turn left to be written is written. A pace writes small batches, and a part
ends with the batch that it is at. Intervals are of p99 over resampled turns.

Writes attached_pace.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from all_methods_tables import markdown
from attached_tables import RESULTS, Ready, Run, configured_server
from attached_tables_shop import DECLARED, PATIENCE, Table, fill, open_shop, vectors
from crash.server import Server
from limpet.attached.postgres.attachment import start
from limpet.upgrade.model import UpgradeModel
from machine import describe

CLIENTS, PAUSE, BATCH = 2, 0.01, 32
PACES: dict[str, dict[str, Any]] = {
    "a twentieth of the time": {"share": 0.05},
    "a tenth of the time": {"share": 0.1},
    "150 rows a second": {"rate": 150.0},
    "as fast as it can": {},
}
TWIN, REST = "twin", "attached, at rest"
BEFORE = "before the attach"
PAUSED = 2.0  # seconds before every turn
RESAMPLES = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--part", type=float, default=8.0, help="seconds of a turn")
    parser.add_argument("--turns", type=int, default=6, help="of every pace")
    parser.add_argument("--warm", type=float, default=30.0, help="seconds for each of the tables to warm up")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with configured_server() as server:
        lines = measure(server, options)
    (options.out / "attached_pace.md").write_text("\n".join(lines))
    print("\n".join(lines))


def interval(now: list[NDArray[np.float64]], then: list[NDArray[np.float64]]) -> str:
    """Return how many times one p99 is the other with its interval of 95 %, turns being drawn again in pairs."""
    draw = np.random.default_rng(0)

    def ratio(turns: NDArray[np.int64]) -> float:
        upper, lower = (np.percentile(np.concatenate([of[turn] for turn in turns]), 99) for of in (now, then))
        return float(upper / lower)

    low, high = np.percentile([ratio(draw.integers(0, len(now), len(now))) for _ in range(RESAMPLES)], [2.5, 97.5])
    return f"{ratio(np.arange(len(now))):.2f} [{low:.2f}, {high:.2f}]"


def measure(server: Server, options: argparse.Namespace) -> list[str]:
    """Return what clients noticed as a page."""
    server.execute("CREATE DATABASE pace")
    table, twin = (Table(server.url(name), options.rows, options.dim) for name in ("pace", "twin"))
    found = {side: vectors(side, options.rows, options.dim) for side in DECLARED}
    fill(table, found["old"])
    server.execute("CREATE DATABASE twin TEMPLATE pace STRATEGY file_copy")
    shops = {one: open_shop(one, CLIENTS, PAUSE) for one in (table, twin)}
    run, written, seconds = Run(table, options.part), dict.fromkeys(PACES, 0), dict.fromkeys(PACES, 0.0)

    def let(awake: Table | None) -> None:
        for one, (told, _) in shops.items():
            (told.awake.set if one == awake else told.awake.clear)()

    def turn(name: str, of: Table, call: Callable[[], object] | None = None) -> float:
        let(None)
        time.sleep(PAUSED)
        let(of)
        time.sleep(PAUSED)
        return run.step(name, call)

    for one in shops:
        let(one)
        time.sleep(options.warm)

    def take_turns(number: int, names: list[tuple[str, Table]]) -> None:
        for name, of in names[:: -1 if number % 2 else 1]:
            turn(name, of)

    for number in range(options.turns):
        take_turns(number, [(f"{TWIN} of {BEFORE}", twin), (BEFORE, table)])
    old, new = (UpgradeModel(DECLARED[side], options.dim) for side in DECLARED)
    with start(f"{table.url}&table=items&text=title", old=old, new=new) as it:
        ready = Ready(it, "new", found["new"])

        def fill_at(pace: str) -> None:
            done = it.backfill(ready, batch=BATCH, seconds=options.part, **PACES[pace])
            written[pace] += done.written

        for pace in PACES:
            for number in range(options.turns):
                take_turns(number, [(f"{TWIN} of {pace}", twin), (f"{REST}, of {pace}", table)])
                seconds[pace] += turn(pace, table, lambda: fill_at(pace))  # noqa: B023
    for told, _ in shops.values():
        told.ended.set()
        told.awake.set()
    parts = [told.answers.get(timeout=PATIENCE) for told, processes in shops.values() for _ in processes]
    for _, processes in shops.values():
        for process in processes:
            process.join()
    run.watch.close()
    run.take([one for of_client, *_ in parts for one in of_client])
    errors = [when for _, of_client, _, _ in parts for when, _ in of_client]
    mixed = sum(len(of_client) for _, _, of_client, _ in parts)

    def times(now: str, then: str) -> list[str]:
        return [interval(run.turns(now, kind), run.turns(then, kind)) for kind in ("search", "write")]

    return [
        "# What an application notices of a backfill, by its pace",
        "",
        f"`python {' '.join(['benchmarks/attached_pace.py', *sys.argv[1:]])}` on {describe('psycopg', 'pgvector')}. "
        f"{options.rows:,} rows of {options.dim} numbers; {CLIENTS} clients that pause {1000 * PAUSE:g} ms after every "
        f"statement; batches of {BATCH}; {options.turns} turns of {options.part:g} s for every pace, as many of the "
        f"twin that nobody attached, and as many of the attached table at rest. Errors: {len(errors)}; answers that "
        f"mix models: {mixed}.",
        "",
        "## Paces",
        "",
        *markdown(
            ["backfill", "rows/s", "p99 of searches, times that of the twin", "of writes",
             "p99 of searches at rest, times that of the twin", "of writes"],
            [[pace, f"{written[pace] / seconds[pace]:,.0f}", *times(pace, f"{TWIN} of {pace}"),
              *times(f"{REST}, of {pace}", f"{TWIN} of {pace}")] for pace in PACES]
            + [["none, before the attach", "", *times(BEFORE, f"{TWIN} of {BEFORE}"), "", ""]], 1),
        "",
        "## Milliseconds",
        "",
        *run.page(errors),
        "",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
