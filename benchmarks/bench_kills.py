"""Suites of two papers at a small size on the CPU: killed at random five times, and compared with an uninterrupted run.

    python benchmarks/bench_kills.py            # about 10 minutes on two cores
    python benchmarks/bench_kills.py --suites hbct-table-1 --kills 2

The suites are those that come with limpet, with their networks, methods and precision; smaller are the data (a few
classes of Tiny-ImageNet at 32 pixels), the epochs (one) and the number of rows. SIGKILL ends the bench and all its
worker processes at a random moment of what is left. Writes bench_kills.json and bench_kills.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import describe
from task_pool import write_json

RESULTS = Path(__file__).parent / "results"
OF_MACHINE = ("seconds", "images_per_second", "waiting")
SUITE = """
from dataclasses import replace

from limpet_bench.suite import Data, Scenario, Suite
from limpet_bench.suites import suite_named

PLAN = {"first_classes": 4, "new_classes": 3, "old_share": 0.3, "sessions": 3, "validation": 0.05}
RECIPE = {"epochs": 1, "batch_size": 32, "learning_rate": 0.02}
ROWS = ("joint", "finetune", "ewc", "cvs")


def smaller(run, sessions):
    model = {"image_size": 32} if sessions else {}
    return replace(
        run,
        data=Data("tiny-imagenet-32", {"class_share": 0.05, "image_share": 0.06}),
        scenario=Scenario("general-incremental", PLAN) if sessions else run.scenario,
        training=run.training.but(model=model, recipe=RECIPE),
        old=run.old and run.old.but(recipe=RECIPE),
        independent=run.independent and run.independent.but(recipe=RECIPE),
        budget=40 if sessions else None,
    )


def suite() -> Suite:
    whole = suite_named(NAME)
    sessions = whole.track == "sessions"
    kept = [
        run
        for run in whole.runs
        if run.scenario.kind in ("general-incremental", "extended-data", "extended-class")
        and (not sessions or run.label in ROWS)
    ]
    return replace(whole, runs=[smaller(run, sessions) for run in kept], seeds=(0,), published=[])
"""
"""A suite as it comes, at a size for the CPU."""


def bench(folder: Path) -> subprocess.Popen[bytes]:
    """Start the command in a folder, with worker processes of its own."""
    words = ["limpet-bench", "run", "suite.py", "--processes", "2", "--out", "board"]
    words += ["--cache", "cells"]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(words, cwd=folder, stdout=log, stderr=log, start_new_session=True)


def finished(folder: Path) -> float:
    """Run to the end, and return the seconds it took."""
    started = time.monotonic()
    if (code := bench(folder).wait()) not in (0, 1):
        raise SystemExit(f"The bench ended with {code}: {(folder / 'log').read_text()[-2000:]}")
    return time.monotonic() - started


def killed(folder: Path, kills: int, seconds: float, chance: random.Random) -> list[int]:
    """Kill the bench so many times at random, and return how many cells were finished at each."""
    found: list[int] = []
    while len(found) < kills:
        process = bench(folder)
        time.sleep(chance.uniform(0.15, 0.6) * seconds)
        if process.poll() is not None:
            raise SystemExit(f"The bench ended before kill {len(found) + 1}: take fewer kills.")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        found.append(len(list(folder.glob("cells/*/*/cell.json"))))
        seconds *= 0.8  # less is left
    return found


def comparable(folder: Path) -> dict[str, Any]:
    """Return what a board says, without what is of the machine."""
    document = json.loads((folder / "board" / "results.json").read_text(encoding="utf-8"))
    rows = [{name: value for name, value in row.items() if name not in OF_MACHINE} for row in document["rows"]]
    labels = [
        {"label": one["label"], "rank": one["rank"], "means": one["means"]} for one in document["board"]["labels"]
    ]
    return {"rows": rows, "labels": labels, "tuning": document["tuning"], "tests": document["board"]["friedman"]}


def measured(name: str, kills: int, chance: random.Random, folder: Path) -> dict[str, Any]:
    """Compare a suite that is killed with the same one uninterrupted."""
    places = [folder / name / kind for kind in ("whole", "killed")]
    for place in places:
        place.mkdir(parents=True)
        (place / "suite.py").write_text(f"NAME = {name!r}\n{SUITE}", encoding="utf-8")
    whole, other = places
    seconds = finished(whole)
    cells = len(list(whole.glob("cells/*/*/cell.json")))
    at = killed(other, kills, seconds, chance)
    finished(other)
    first, second = comparable(whole), comparable(other)
    return {
        "suite": name, "rows": len(first["rows"]), "failed": sum(bool(row["failure"]) for row in first["rows"]),
        "cells": cells, "cells_of_the_killed": len(list(other.glob("cells/*/*/cell.json"))),
        "seconds": round(seconds, 1), "killed_after_cells": at, "equal": first == second,
    }  # fmt: skip


def page(document: dict[str, Any]) -> str:
    lines = [
        document["command"], document["machine"], "",
        "suite                     rows  failed  cells  seconds uninterrupted  killed after so many cells  same board",
    ]  # fmt: skip
    for row in document["suites"]:
        at = ", ".join(map(str, row["killed_after_cells"]))
        same = "yes" if row["equal"] else "NO"
        counts = f"{row['rows']:4}  {row['failed']:6}  {row['cells']:5}  {row['seconds']:21.1f}"
        lines.append(f"{row['suite']:24}  {counts}  {at:>26}  {same}")
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ["hbct-table-1", "hbct-table-1-hyperbolic", "cvs-table-1-tiny-imagenet"]
    parser.add_argument("--suites", nargs="+", choices=known, default=known)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        found = [measured(name, arguments.kills, chance, Path(folder)) for name in arguments.suites]
    document = {"command": " ".join(["python", "benchmarks/bench_kills.py", *sys.argv[1:]]), "machine": describe(),
                "suites": found}  # fmt: skip
    write_json(arguments.out / "bench_kills.json", document)
    (arguments.out / "bench_kills.txt").write_text(page(document), encoding="utf-8")
    print(page(document))
    return 0 if all(row["equal"] and not row["failed"] for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
