"""How much slower limpet is than the bare engine or library below it, and how its time grows.

    python benchmarks/ratios.py                          # all rows, five turns
    python benchmarks/ratios.py --only lance             # rows whose name contains a word
    python benchmarks/ratios.py --beside ../before       # in turns with another checkout
    make ratios                                          # compare with the committed record

`ROWS` is the list. A turn is one process; it measures every row, and the order changes from turn to turn. Times are
processor seconds, those of commands and of the database server included; latencies are seconds on the clock. A row is:

- a ratio: our function, and the bare one beside it (see `ratios_galleries.py` and `ratios_training.py`; of metrics of
  512 queries, the product of their vectors with the gallery), both of one turn;
- milliseconds of one upsert, or of as many as there are threads, or seconds of a command (`ratios_commands.py`);
- the exponent of a growth: the slope of the logarithm of time over that of what grows.

The exit code is 1 if a row got worse than in the record. `--record` writes ratios.json and ratios.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import ratios_commands as commands
import ratios_galleries as galleries
import ratios_metrics as metrics
from ratios_galleries import Prepare, Scene, Timed, backfilling, importing, querying, selecting, upserting
from ratios_metrics import EASY, HARD, multiplying, ranking

RESULTS = Path(__file__).parent / "results"
CHECKOUT = Path(__file__).parents[1]
WARM = 1000  # items of the first, untimed call of both functions
WORSE = 1.15  # times the record, and above its range: what counts as worse

Measure = Callable[[Scene, int, bool], float]
"""Measures a row in a scene, for so many items; whether the bare function comes first."""


def ratio(ours: Prepare, bare: Prepare, warm: int = WARM) -> Measure:
    """Divide seconds of our function by those of the bare one, after a small call of both."""

    def measure(scene: Scene, size: int, bare_first: bool) -> float:
        for function in (ours, bare):
            function(scene, warm)()
        if bare_first:
            below = seconds(scene, size, bare)
            return seconds(scene, size, ours) / below
        return seconds(scene, size, ours) / seconds(scene, size, bare)

    return measure


def each(ours: Prepare, calls: int) -> Measure:
    """Return milliseconds of one of so many calls, after a small one."""

    def measure(scene: Scene, size: int, _: bool) -> float:
        ours(scene, WARM)()
        return 1000 * seconds(scene, size, ours) / calls

    return measure


def again(ours: Prepare) -> Measure:
    """Return seconds of the second of two calls."""

    def measure(scene: Scene, size: int, _: bool) -> float:
        prepared = ours(scene, size)
        prepared()
        return spent(scene, prepared)

    return measure


def growth(ours: Prepare, sizes: Sequence[int]) -> Measure:
    """Return the exponent by which seconds grow, after a call of the smallest size."""

    def measure(scene: Scene, _: int, __: bool) -> float:
        ours(scene, sizes[0])()
        took = [seconds(scene, size, ours) for size in sizes]
        return float(np.polyfit(np.log(sizes), np.log(took), 1)[0])

    return measure


def beside_backfill(engine: str) -> Measure:
    """Divide the slowest per cent of queries while a thread backfills by that of queries before."""
    return lambda scene, size, _: galleries.latency_beside_backfill(engine)(scene, size)


def seconds(scene: Scene, size: int, function: Prepare) -> float:
    """Return the processor seconds of one call."""
    return spent(scene, function(scene, size))


def spent(scene: Scene, prepared: Timed) -> float:
    """Return the processor seconds of a call of what is prepared."""
    began = scene.worked()
    prepared()
    return scene.worked() - began


def training(name: str, *options: str) -> Prepare:
    """Return a function of `ratios_training`, which imports torch where a row is measured that needs it."""

    def prepare(scene: Scene, size: int) -> Timed:
        timed: Timed = getattr(import_module("ratios_training"), name)(*options, scene, size)
        return timed

    return prepare


@dataclass(frozen=True)
class Row:
    """One number.

    Args:
        name: What is measured; names of rows that need a server contain "PostgreSQL".
        size: Of what `of` says; 0 where the name says it.
        measure: Measures it.
        goal: At most; None where there is none.
        unit: Of the number; empty for a ratio.
        of: What `size` counts.
    """

    name: str
    size: int
    measure: Measure
    goal: float | None = None
    unit: str = ""
    of: str = "items"

    @property
    def title(self) -> str:
        """Name and size."""
        return (
            self.name + (f", {self.size:,} {self.of}" if self.size else "") + (f" ({self.unit})" if self.unit else "")
        )


def exponent(what: str, sizes: Sequence[int], of: str, ours: Prepare, goal: float) -> Row:
    """Return the row of a growth."""
    return Row(f"{what}, {sizes[0]:,} to {sizes[-1]:,} {of}", 0, growth(ours, sizes), goal, "exponent")


ms, s = partial(Row, unit="ms"), partial(Row, unit="s")
ITEMS, CLASSES = (10_000, 20_000, 40_000, 80_000), (2_000, 4_000, 8_000, 16_000)
AUTO, RAND = (
    ratio(training("augmenting", label), training("augmenting_by_pillow", label), 1)
    for label in ("AutoAugment (CIFAR-10)", "RandAugment (2, 9 of 10)")
)

ROWS = (
    Row("import, Lance", 20_000, ratio(importing("lance"), galleries.lance_write), 2.5),
    Row("import, Lance", 100_000, ratio(importing("lance"), galleries.lance_write), 2.5),
    Row("import, Lance", 1_000_000, ratio(importing("lance"), galleries.lance_write), 2.5),
    Row("backfill, Lance", 20_000, ratio(backfilling("lance"), galleries.lance_append), 3.0),
    Row("backfill, Lance", 100_000, ratio(backfilling("lance"), galleries.lance_append), 3.0),
    Row("import, PostgreSQL", 20_000, ratio(importing("postgresql"), galleries.copying), 2.0),
    Row("import, PostgreSQL", 100_000, ratio(importing("postgresql"), galleries.copying), 2.0),
    ms("upsert, Lance", 20_000, each(upserting("lance"), galleries.UPSERTS), 12.0),
    ms("64 upserts at a time, Lance", 20_000, each(upserting("lance", 64), galleries.UPSERTS), 64.0),
    ms("upsert, PostgreSQL", 20_000, each(upserting("postgresql"), galleries.UPSERTS)),
    ms("upsert, memory", 20_000, each(upserting("memory"), galleries.UPSERTS)),
    Row("query, memory", 20_000, ratio(querying("memory"), galleries.numpy_query), 1.1),
    Row("query, memory", 100_000, ratio(querying("memory"), galleries.numpy_query), 1.1),
    Row("query, Lance", 20_000, ratio(querying("lance"), galleries.lance_query), 1.1),
    Row("query, PostgreSQL", 20_000, ratio(querying("postgresql"), galleries.postgres_query), 1.3),
    Row("query, half backfilled, memory", 20_000, ratio(querying("memory", 0.5), querying("memory", 1.0)), 1.3),
    Row("query, half backfilled, Lance", 20_000, ratio(querying("lance", 0.5), querying("lance", 1.0)), 1.3),
    Row("query, IN of 1,000 values, memory", 20_000, ratio(selecting("memory"), galleries.numpy_select), 1.3),
    Row("query, IN of 1,000 values, Lance", 20_000, ratio(selecting("lance"), galleries.lance_select), 1.3),
    Row("p99 of a query beside a backfill, memory", 50_000, beside_backfill("memory"), 1.5),
    Row("p99 of a query beside a backfill, Lance", 20_000, beside_backfill("lance"), 1.5),
    Row("metrics, easy, 50 relevant", 50_000, ratio(ranking(50, EASY), multiplying(50, EASY)), 1.5),
    Row("metrics, hard, 50 relevant", 50_000, ratio(ranking(50, HARD), multiplying(50, HARD)), 1.5),
    Row("metrics, hard, 5 relevant", 50_000, ratio(ranking(5, HARD), multiplying(5, HARD)), 1.5),
    Row("metrics, hard, Zipf class sizes", 50_000, ratio(ranking(None, HARD), multiplying(None, HARD)), 1.5),
    Row("metrics, hard, 2,500 relevant", 50_000, ratio(ranking(2500, HARD), multiplying(2500, HARD)), 2.0),
    s("gallery status, Lance", 1_000, again(commands.status("lance")), 0.3),
    s("gallery status, memory", 1_000, again(commands.status("memory")), 0.3),
    s("evaluate, 500 queries", 2_000, again(commands.evaluation(500, "--curve", "no")), 0.8),
    s("evaluate with curve, 4,000 queries", 16_000, again(commands.evaluation(4_000, "--curve", "yes")), 5.0),
    s("adapt", 1_200, again(commands.adaptation), 2.5),
    exponent("query, memory", ITEMS, "items", querying("memory"), 1.1),
    exponent("metrics", ITEMS, "items", ranking(50, HARD), 1.1),
    exponent("metrics", (128, 512, 2_048), "queries", metrics.of_queries, 1.1),
    exponent("metrics", (5, 50, 500), "relevant", metrics.of_relevant, 0.3),
    exponent("query, memory", (2, 4, 8), "generations", galleries.of_generations, 0.5),
    exponent("query, Lance", (4, 16, 64), "commits", galleries.after_commits, 0.1),
    exponent("query, memory", (10, 300, 10_000), "deletes", galleries.after_deletes, 0.1),
    exponent("query, memory", (10, 100, 1_000), "values of IN", galleries.under_values, 0.1),
    exponent("epoch start of nccl", CLASSES, "classes", training("epoch_start", "nccl"), 1.2),
    exponent("epoch start of ndpp", CLASSES, "classes", training("epoch_start", "ndpp"), 1.2),
    Row("loss of nccl", 1_000, ratio(training("loss", "nccl"), training("loss", "independent")), 4.0, of="classes"),
    Row("training, batch 32", 60, ratio(training("fitting"), training("looping"), 5), 1.03, of="steps"),
    Row("adapter", 20_000, ratio(training("mapping"), training("product")), 1.3, of="vectors"),
    Row("AutoAugment, 256 pixels", 5, AUTO, 1.0, of="batches"),
    Row("RandAugment, 256 pixels", 5, RAND, 1.0, of="batches"),
)


# Turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="words; rows whose title contains all of them")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--beside", type=Path, help="another checkout")
    parser.add_argument("--record", action="store_true", help="write the record instead of comparing with it")
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(turn(**json.loads(options.turn))))
        return
    rows = [number for number, row in enumerate(ROWS) if all(word in row.title for word in options.only)]
    checkouts = {"": CHECKOUT} | ({"before": options.beside} if options.beside else {})
    found: dict[str, dict[str, list[float]]] = {name: {} for name in checkouts}
    with a_server(any("PostgreSQL" in ROWS[number].name for number in rows)) as server:
        for number in range(options.turns):
            for name, folder in reversed(checkouts.items()) if number % 2 else checkouts.items():
                for title, value in run(folder, rows=rows, bare_first=bool(number // 2 % 2), **server).items():
                    found[name].setdefault(title, []).append(value)
            print(f"turn {number + 1}", file=sys.stderr)
    record = RESULTS / "ratios.json"
    known = json.loads(record.read_text()) if record.exists() else {}
    lines, worse = table(found, known)
    print("\n".join([*lines, "", *(f"worse than the record: {name}" for name in worse)]))
    if options.record:
        from machine import describe

        known |= {title: sorted(values) for title, values in found[""].items()}
        record.write_text(json.dumps(known, indent=1) + "\n")
        told = f"`python benchmarks/ratios.py --turns {options.turns}` on {describe('psycopg', 'pgvector', 'pylance')}."
        lines, _ = table({"": known}, {})
        record.with_suffix(".md").write_text("\n".join(["# Ratios to the bare engine", "", told, "", *lines, ""]))
    elif worse:
        sys.exit(1)


@contextmanager
def a_server(needed: bool) -> Iterator[dict[str, Any]]:
    """Start a PostgreSQL server where one is needed."""
    if not needed:
        yield {}
        return
    sys.path.insert(0, str(CHECKOUT / "tools"))
    from attached_tables import configured_server

    with configured_server() as server:
        server.execute("CREATE EXTENSION vector")
        postmaster = int((server.folder / "postmaster.pid").read_text().splitlines()[0])
        yield {"server": server.url(), "postmaster": postmaster}


def run(folder: Path, **told: Any) -> dict[str, float]:
    """Let a process with the limpet of a checkout do one turn."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, __file__, "--turn", json.dumps(told)]
    said = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(said))


def turn(rows: Sequence[int], bare_first: bool, server: str = "", postmaster: int = 0) -> dict[str, float]:
    """Return what each row gives in this process, by title."""
    found = {}
    for row in (ROWS[number] for number in rows):
        with tempfile.TemporaryDirectory(prefix="limpet-ratios-") as folder:
            scene = Scene(Path(folder), server, postmaster)
            with scene.opened:
                found[row.title] = row.measure(scene, row.size, bare_first)
    return found


def table(found: dict[str, dict[str, list[float]]], known: dict[str, list[float]]) -> tuple[list[str], list[str]]:
    """Return lines of a table in Markdown, and the titles of rows that got worse than the record."""
    before, worse = found.get("before"), []
    heads = ["row", *(["before"] if before else []), "min", "median", "max", "goal", *(["record"] if known else [])]
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    for row in ROWS:
        values = found[""].get(row.title)
        if values is None:
            continue
        median, record = statistics.median(values), known.get(row.title)
        if record and median > max(WORSE * statistics.median(record), max(record)):
            worse.append(row.title)
        cells = [row.title]
        cells += [f"{statistics.median(before[row.title]):.2f}"] if before else []
        cells += [f"{value:.2f}" for value in (min(values), median, max(values))]
        cells += ["" if row.goal is None else f"≤ {row.goal:g}"]
        cells += [f"{statistics.median(record):.2f}" if record else ""] if known else []
        lines.append(f"| {' | '.join(cells)} |")
    return lines, worse


if __name__ == "__main__":
    main()
