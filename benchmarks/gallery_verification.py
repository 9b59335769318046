"""What reading back all that a commit wrote costs LanceDB galleries, beside an earlier revision in the same run.

    python benchmarks/gallery_verification.py                    # about 30 minutes on two cores
    python benchmarks/gallery_verification.py --rows 100000      # a smaller one
    python benchmarks/gallery_verification.py --against a8099fe  # or any other revision

The earlier revision is checked out into a temporary worktree of git, and takes what it needs (lancedb) from the same
environment. Sides take turns, each repetition in a process of its own, on the same vectors. A table states medians over
repetitions of what each side measured, with the smallest and largest; ratios are of repetitions side by side. "Reading
back" is the share of an operation that the present code spends comparing what it wrote. The exit code is 1 if that adds
more than a tenth to an import. Writes gallery_verification.json and gallery_verification.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gallery import write_vectors
from gallery_verification_tasks import NEW, OLD
from machine import describe
from task_pool import write_json

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
TASKS = Path(__file__).with_name("gallery_verification_tasks.py")
AGAINST = "a8099fe"
IMPORT = "import, 1,000 rows"
MOST_ADDED = 0.1

Measured = dict[str, dict[str, float]]


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """Check a revision out, and remove it afterwards."""
    git = ["git", "-C", str(ROOT), "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def measured(tree: Path, folder: Path) -> Measured:
    """Run all operations with the code of a tree, in a fresh gallery."""
    environment = {"OMP_NUM_THREADS": "2", **os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run([sys.executable, TASKS, folder], env=environment, stdout=subprocess.PIPE, check=True)
    shutil.rmtree(folder / "gallery")
    result: Measured = json.loads(done.stdout)
    return result


def spread(values: list[float]) -> dict[str, float]:
    return {"median": float(np.median(values)), "min": min(values), "max": max(values)}


def summary(before: list[Measured], now: list[Measured]) -> dict[str, dict[str, dict[str, float]]]:
    """Return spreads over repetitions by operation."""
    table = {}
    for operation in now[0]:
        was, is_now = ([one[operation]["ms"] for one in side] for side in (before, now))
        table[operation] = {
            "before_ms": spread(was),
            "now_ms": spread(is_now),
            "ratio": spread([new / old for old, new in zip(was, is_now, strict=True)]),
            "reading_back": spread([one[operation]["reading"] for one in now]),
        }
    return table


def page(document: dict[str, Any]) -> str:
    lines = [
        document["command"], document["machine"], "",
        f"{document['rows']} rows of 128 dimensions, {document['repetitions']} repetitions in turn; milliseconds at "
        f"{document['against']} and now, median (smallest to largest)", "",
        f"{'':26} {document['against']:>25} {'now':>25} {'ratio':>19} {'reading back':>19}",
    ]  # fmt: skip
    for operation, row in document["operations"].items():
        times = (f"{one['median']:.2f} ({one['min']:.2f} to {one['max']:.2f})"
                 for one in (row["before_ms"], row["now_ms"], row["ratio"]))  # fmt: skip
        share = row["reading_back"]
        read = f"{share['median']:.0%} ({share['min']:.0%} to {share['max']:.0%})"
        lines.append("{:26} {:>25} {:>25} {:>19} {:>19}".format(operation, *times, read))
    added = document["added_to_imports"]
    lines += ["", f"Reading back adds {added['median']:.1%} to an import ({added['min']:.1%} to {added['max']:.1%}); "
              f"the goal is {MOST_ADDED:.0%} at most: {'kept' if document['kept'] else 'broken'}"]  # fmt: skip
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--against", default=AGAINST, help=f"revision to compare with (default: {AGAINST})")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    before: list[Measured] = []
    now: list[Measured] = []
    with checked_out(arguments.against) as tree, tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, model in (("old", OLD), ("new", NEW)):
            write_vectors(model, arguments.rows, folder / f"{name}.safetensors")
        for number in range(arguments.repetitions):
            for side, code in ((before, tree), (now, ROOT)):
                side.append(measured(code, folder))
                print(f"repetition {number + 1}, {code.name}: {side[-1]}", flush=True)
    shares = [one[IMPORT]["reading"] for one in now]
    added = spread([share / (1 - share) for share in shares])
    document = {
        "command": f"python benchmarks/gallery_verification.py --rows {arguments.rows} "
        f"--repetitions {arguments.repetitions} --against {arguments.against}",
        "machine": describe("pylance", "lancedb"), "rows": arguments.rows, "repetitions": arguments.repetitions,
        "against": arguments.against, "operations": summary(before, now), "added_to_imports": added,
        "kept": added["median"] <= MOST_ADDED,
    }  # fmt: skip
    write_json(arguments.out / "gallery_verification.json", document)
    (arguments.out / "gallery_verification.txt").write_text(page(document))
    print(page(document))
    if not document["kept"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
