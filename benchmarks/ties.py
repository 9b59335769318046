"""What ties cost: the time of all metrics with and without tied items, of this code and of an earlier commit.

Every run is a process of its own over the same file of vectors; runs of both codes alternate. The earlier code orders
tied items by their row in the gallery, so that its scores depend on the order of the file: both orders are shown.
Usage: python benchmarks/ties.py [--items 13180] [--repeats 3] [--before d79955e]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
NAMES = ("map", "map@r", "recall@1", "recall@10", "ndcg", "mrr")

NOTES = """\
Every item searches all others. All of {names} are measured at once.
Seconds: medians of {repeats} alternating runs (three times as many of the first two rows), each a process of its own,
after a small warm-up. Processor seconds are those of all threads together, which other work on the machine changes
less; other work ran beside these.
mAP: of the gallery in a file sorted by class / in the same file shuffled.
"""

Vectors = NDArray[np.float32]


def untied(labels: NDArray[np.int64], dim: int, rng: np.random.Generator) -> Vectors:
    centres = rng.normal(size=(labels.max() + 1, dim))
    return (centres[labels] + 1.5 * rng.normal(size=(len(labels), dim))).astype(np.float32)


KINDS: dict[str, Callable[[NDArray[np.int64], int, np.random.Generator], Vectors]] = {
    "no ties": untied,
    "every vector twice": lambda labels, dim, rng: untied(labels, dim, rng)[np.arange(len(labels)) // 2 * 2],
    "signs of 128 numbers": lambda labels, dim, rng: np.sign(untied(labels, dim, rng)),
    "signs of 16 numbers": lambda labels, dim, rng: np.sign(untied(labels, 16, rng)),
    "one vector for all": lambda labels, dim, rng: np.ones((len(labels), dim), np.float32),
}


FAST = ("no ties", "every vector twice")
"""These are measured three times as often."""
PARTS = {"signs of 128 numbers": 2, "signs of 16 numbers": 2, "one vector for all": 8}
"""What part of the items is taken where many tie: equal scores are scored again, one by one."""


def measured(vectors: Vectors, labels: NDArray[np.int64]) -> dict[str, float]:
    from limpet.embeddings import EmbeddingSet
    from limpet.evaluation.retrieval import rank_metrics
    from limpet.geometry import Hypersphere

    items = EmbeddingSet(
        vectors,
        [str(row) for row in range(len(labels))],
        "declared:benchmark",
        Hypersphere(vectors.shape[1]),
        labels=labels,
    )
    found = rank_metrics(items, items, NAMES, exclude_same_id=True)
    return {name: float(values.mean()) for name, values in found.items()}


def run_here(path: Path) -> dict[str, Any]:
    with np.load(path) as content:
        vectors, labels = content["vectors"], content["labels"]
    measured(vectors[:400], labels[:400] // 10)  # imports and first calls
    wall, processor = time.perf_counter(), time.process_time()
    values = measured(vectors, labels)
    return {
        "seconds": time.perf_counter() - wall,
        "processor_seconds": time.process_time() - processor,
        "values": values,
    }


def run_apart(source: Path, path: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--data", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    answer = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    return dict(json.loads(answer.splitlines()[-1]))


def unpacked(commit: str, folder: Path) -> Path:
    """Return the source folder of an earlier commit."""
    archive = subprocess.run(["git", "archive", commit, "src"], check=True, capture_output=True, cwd=HERE.parent).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(folder, filter="data")
    return folder / "src"


def table(record: dict[str, Any]) -> str:
    head = (
        f"{'':24}{'before':>9}{'now':>9}{'ratio':>8}   {'before':>9}{'now':>9}{'ratio':>8}   mAP before       mAP now"
    )
    lines = [record["task"], record["machine"], "", f"{'':28}{'seconds':>26}   {'processor seconds':>26}", head]
    for kind, row in record["kinds"].items():
        kind = f"{kind}, {row['items']:,}"
        times = "   ".join(
            f"{row[unit]['before']:9.2f}{row[unit]['now']:9.2f}{row[unit]['now'] / row[unit]['before']:8.2f}"
            for unit in ("seconds", "processor_seconds")
        )
        maps = "   ".join(f"{row['map'][code][0]:.4f} / {row['map'][code][1]:.4f}" for code in ("before", "now"))
        lines.append(f"{kind:28}{times}   {maps}")
    return "\n".join([*lines, "", *record["notes"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=13_180)
    parser.add_argument("--classes", type=int, default=659)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--before", default="d79955e", help="a commit to compare with")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="the others stay as they are")
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.data:
        print(json.dumps(run_here(options.data)))
        return
    from machine import describe

    earlier = HERE / "results" / "ties.json"
    kinds: dict[str, Any] = {}
    if len(options.kinds) < len(KINDS):
        kinds |= json.loads(earlier.read_text())["kinds"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = {"before": unpacked(options.before, folder), "now": HERE.parent / "src"}
        for kind in options.kinds:
            draw = KINDS[kind]
            items, repeats = options.items // PARTS.get(kind, 1), options.repeats * (3 if kind in FAST else 1)
            labels, rng = np.sort(np.arange(items) % options.classes), np.random.default_rng(0)
            vectors, order = draw(labels, options.dim, rng), rng.permutation(items)
            for path, rows in (("sorted", np.arange(items)), ("shuffled", order)):
                np.savez(folder / f"{path}.npz", vectors=vectors[rows], labels=labels[rows])
            runs: dict[str, list[dict[str, Any]]] = {code: [] for code in sources}
            for _ in range(repeats):
                for code, source in sources.items():
                    runs[code].append(run_apart(source, folder / "sorted.npz"))
            shuffled = {code: run_apart(source, folder / "shuffled.npz") for code, source in sources.items()}
            kinds[kind] = {
                "items": items,
                "repeats": repeats,
                **{
                    unit: {code: statistics.median(run[unit] for run in of_code) for code, of_code in runs.items()}
                    for unit in ("seconds", "processor_seconds")
                },
                "map": {
                    code: (of_code[0]["values"]["map"], shuffled[code]["values"]["map"])
                    for code, of_code in runs.items()
                },
            }
            print(kind, kinds[kind], file=sys.stderr)
    record = {
        "task": f"Items of {options.dim} dimensions in {options.classes} classes; before: commit {options.before}",
        "machine": describe(),
        "kinds": kinds,
        "notes": NOTES.format(names=", ".join(NAMES), repeats=options.repeats).splitlines(),
    }
    earlier.write_text(json.dumps(record, indent=2) + "\n")
    text = table(record)
    (HERE / "results" / "ties.txt").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
