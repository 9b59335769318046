"""Fitting and applying every adapter on 100,000 pairs of 384 and 256 dimensions.

Two models see the same causes, partly through bends, with noise and a mean of their own. The closed forms must be
fitted within 5 seconds on two cores; the trained network is shown beside them. Quality is the mean cosine of images and
targets, over pairs that were not fitted on; it says that the work was done, and nothing about real models.

    python benchmarks/adapter_speed.py            # writes benchmarks/results/adapter_speed.json and .txt
    python benchmarks/adapter_speed.py --rows 10000 --out FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LIMIT_SECONDS = 5.0
HELD_OUT = 2_000
BLOCK = 16_384
RESULTS = Path(__file__).parent / "results"
TRAINED = {"residual_mlp"}


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class View:
    """What one model makes of causes: a linear part, a bent part, noise, and a mean."""

    def __init__(self, causes: int, dim: int, rng: np.random.Generator) -> None:
        self.straight = rng.normal(size=(causes, dim)) / causes**0.5
        self.into, self.out_of = rng.normal(size=(causes, causes)), rng.normal(size=(causes, dim)) / causes**0.5
        self.mean, self.rng = rng.normal(size=dim), rng

    def embed(self, causes: NDArray[np.float64]) -> NDArray[np.float32]:
        rows = causes @ self.straight + 0.5 * np.tanh(causes @ self.into) @ self.out_of
        rows += 0.3 * self.rng.normal(size=rows.shape) + self.mean
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def embeddings(rows: int, dims: tuple[int, int], causes: int, seed: int) -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    views = [View(causes, dim, rng) for dim in dims]
    spread = np.arange(1, causes + 1) ** -0.5  # a falling spectrum, as trained models have
    found = [np.empty((rows, dim), np.float32) for dim in dims]
    for start in range(0, rows, BLOCK):
        part = rng.normal(size=(min(BLOCK, rows - start), causes)) * spread * causes**0.5 / np.linalg.norm(spread)
        for vectors, view in zip(found, views, strict=True):
            vectors[start : start + len(part)] = view.embed(part)
    return found


def measure(name: str, sets: dict[str, Any], repeats: int) -> dict[str, Any]:
    from limpet.adapters import build_adapter

    seconds, cpu_seconds = [], []
    for _ in range(1 if name in TRAINED else repeats):
        start, cpu_start = time.perf_counter(), time.process_time()
        adapter = build_adapter(name, {}).fit(sets["old"], sets["new"])
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
    start = time.perf_counter()
    images = adapter.apply(sets["new_held_out"]).vectors
    applying = (time.perf_counter() - start) / len(images)
    cosine = float((images * sets["old_held_out"].vectors).sum(axis=1).mean())
    return {
        "adapter": name,
        "source_dim": sets["new"].dim,
        "seconds": [round(value, 3) for value in seconds],
        "median_seconds": round(statistics.median(seconds), 3),
        "median_cpu_seconds": round(statistics.median(cpu_seconds), 3),
        "rows_mapped_per_second": round(1 / applying),
        "mean_cosine_held_out": round(cosine, 4),
        "peak_gb": round(peak_gb(), 2),
    }


def as_sets(new: NDArray[np.float32], old: NDArray[np.float32], rows: int) -> dict[str, Any]:
    from limpet.embeddings import EmbeddingSet, StringArray
    from limpet.geometry import Hypersphere

    ids = StringArray.of([f"item{row}" for row in range(len(new))])
    both = {
        name: EmbeddingSet(vectors, ids, f"declared:{name}", Hypersphere(vectors.shape[1]))
        for name, vectors in (("old", old), ("new", new))
    }
    parts = {"": slice(0, rows), "_held_out": slice(rows, None)}
    return {f"{name}{suffix}": both[name][part] for name in both for suffix, part in parts.items()}


def table(record: dict[str, Any]) -> str:
    columns = f"{'adapter':<20}{'from':>6}{'median s':>10}{'CPU s':>8}{'rows/s mapped':>15}{'cosine':>9}{'peak GB':>9}"
    lines = [
        record["machine"],
        "",
        f"{record['rows']:,} pairs into {record['dims'][1]} dimensions, {record['threads']} threads; medians of "
        f"{record['repeats']} fits (one for {', '.join(sorted(TRAINED))}), with the matching of ids and the report.",
        "",
        columns,
    ]
    for row in record["adapters"]:
        lines.append(
            f"{row['adapter']:<20}{row['source_dim']:>6}{row['median_seconds']:>10.2f}{row['median_cpu_seconds']:>8.2f}"
            f"{row['rows_mapped_per_second']:>15,}{row['mean_cosine_held_out']:>9.4f}{row['peak_gb']:>9.2f}"
        )
    slowest = max(row["median_seconds"] for row in record["adapters"] if row["adapter"] not in TRAINED)
    verdict = "kept" if slowest <= LIMIT_SECONDS else "EXCEEDED"
    limit = f"Slowest closed form: {slowest:.2f} s (limit at 100,000 pairs {LIMIT_SECONDS:g} s: {verdict})."
    return "\n".join([
        *lines, "", limit,
        "CPU seconds are those of all threads together, also while they wait for each other on a busy machine.",
        "Peak memory is that of the process so far, with both sets in it.",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dims", type=int, nargs=2, default=(384, 256), help="of the source and of the target")
    parser.add_argument("--causes", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the two files")
    arguments = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != str(arguments.threads):  # read once, when NumPy is loaded
        environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)

    from limpet.adapters import ADAPTERS
    from machine import describe

    new, old, same = embeddings(
        arguments.rows + HELD_OUT, (*arguments.dims, arguments.dims[1]), arguments.causes, arguments.seed
    )
    sets, equal = as_sets(new, old, arguments.rows), as_sets(same, old, arguments.rows)
    measured = []
    for name in ADAPTERS:
        measured.append(measure(name, equal if ADAPTERS[name].equal_dimensions else sets, arguments.repeats))
        print(measured[-1], flush=True)
    values = {key: value for key, value in vars(arguments).items() if key != "out"}
    record = {"machine": describe(), **values, "adapters": measured}
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "adapter_speed.json").write_text(json.dumps(record, indent=1) + "\n")
    (arguments.out / "adapter_speed.txt").write_text(table(record) + "\n")
    print(table(record))


if __name__ == "__main__":
    main()
