"""Full-ranking metrics, leave-one-out: limpet against sorting everything and against pytorch-metric-learning.

Every run is a process of its own over the same file of vectors, so that its memory can be told; runs of the
contenders alternate. Usage: python benchmarks/evaluation.py [--items 13180] [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESULTS = Path(__file__).parent / "results"
NAMES = ("map", "map@r", "recall@1", "recall@5", "recall@10")
SLICE = 1318  # queries per call of pytorch-metric-learning, which holds several arrays of queries x gallery
SAMPLE = 50  # queries compared with sklearn.metrics.average_precision_score

NOTES = """\
Medians of {repeats} alternating runs, each a process of its own, after a small warm-up.
Ratio: median over that of limpet. Extra memory: peak above the level after imports, data and warm-up.
Stable is the sort that scikit-learn uses and that our rule for ties needs; unstable leaves ties open.
pytorch-metric-learning ranks {slice:,} queries per call, because it holds several arrays of queries x
gallery: all at once was not run. Its search is its exact CustomKNN (faiss is not installed); it offers no
recall@5 and recall@10.
Largest difference of any value: {worst:.1e}; of average precision from scikit-learn's on {sample} queries:
{exactness:.1e}.
"""

Vectors = NDArray[np.float32]
Labels = NDArray[np.int64]


def clustered(items: int, classes: int, dim: int, seed: int) -> tuple[Vectors, Labels]:
    rng = np.random.default_rng(seed)
    labels = np.arange(items) % classes
    vectors = rng.normal(size=(classes, dim))[labels] + 1.5 * rng.normal(size=(items, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), labels


def limpet_metrics(vectors: Vectors, labels: Labels) -> dict[str, float]:
    from limpet.embeddings import EmbeddingSet, StringArray
    from limpet.evaluation.retrieval import rank_metrics
    from limpet.geometry import Hypersphere

    ids = StringArray.of(map(str, range(len(labels))))
    items = EmbeddingSet(vectors, ids, "declared:benchmark", Hypersphere(vectors.shape[1]), labels=labels)
    found = rank_metrics(items, items, NAMES, exclude_same_id=True)
    return {name: float(values.mean()) for name, values in found.items()}


def by_sorting(vectors: Vectors, labels: Labels, kind: Any) -> dict[str, float]:
    """Sort the gallery of every query, mark the relevant places, average the precision there."""
    size, sums = len(labels), dict.fromkeys(NAMES, 0.0)
    places = np.arange(1, size)
    for start in range(0, size, 256):
        rows = np.arange(start, min(start + 256, size))
        scores = vectors[rows] @ vectors.T
        scores[np.arange(len(rows)), rows] = -np.inf
        order = np.argsort(-scores, axis=1, kind=kind)[:, :-1]
        hits = labels[order] == labels[rows, None]
        precision = np.cumsum(hits, axis=1) / places
        relevant = hits.sum(axis=1)
        sums["map"] += ((precision * hits).sum(axis=1) / relevant).sum()
        within = hits & (places <= relevant[:, None])
        sums["map@r"] += ((precision * within).sum(axis=1) / relevant).sum()
        for k in (1, 5, 10):
            sums[f"recall@{k}"] += hits[:, :k].any(axis=1).sum()
    return {name: float(value / size) for name, value in sums.items()}


def pytorch_metric_learning_metrics(vectors: Vectors, labels: Labels) -> dict[str, float]:
    """Three metrics of AccuracyCalculator over the whole ranking, slice by slice of queries; no recall@5 or @10."""
    import torch
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN

    ours = {"precision_at_1": "recall@1", "mean_average_precision": "map", "mean_average_precision_at_r": "map@r"}
    size = len(labels)
    calculator = AccuracyCalculator(
        include=tuple(ours), k=size - 1, device=torch.device("cpu"), knn_func=CustomKNN(CosineSimilarity())
    )
    sums = dict.fromkeys(ours.values(), 0.0)
    for start in range(0, size, SLICE):
        own = np.arange(start, min(start + SLICE, size))
        order = np.concatenate([own, np.delete(np.arange(size), own)])  # it wants the queries first
        found = calculator.get_accuracy(
            vectors[own], labels[own], vectors[order], labels[order], ref_includes_query=True
        )
        for theirs, name in ours.items():
            sums[name] += found[theirs] * len(own)
    return {name: value / size for name, value in sums.items()}


CONTENDERS: dict[str, Callable[[Vectors, Labels], dict[str, float]]] = {
    "limpet": limpet_metrics,
    "full sort, stable": lambda vectors, labels: by_sorting(vectors, labels, "stable"),
    "full sort, unstable": lambda vectors, labels: by_sorting(vectors, labels, None),
    "pytorch-metric-learning": pytorch_metric_learning_metrics,
}


def peak_memory() -> int:
    """Return the highest memory of this process in bytes so far."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def run_here(name: str, path: Path) -> dict[str, Any]:
    with np.load(path) as content:
        vectors, labels = content["vectors"], content["labels"]
    CONTENDERS[name](vectors[:400], labels[:400] % 7)  # imports and first calls
    before, start = peak_memory(), time.perf_counter()
    values = CONTENDERS[name](vectors, labels)
    return {"seconds": time.perf_counter() - start, "extra_memory": peak_memory() - before, "values": values}


def run_apart(name: str, path: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--contender", name, "--data", str(path)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]))


def compare_with_scikit_learn(vectors: Vectors, labels: Labels) -> float:
    """Return the largest difference of average precision over a sample of queries."""
    from sklearn.metrics import average_precision_score

    from limpet.evaluation.metrics import average_precision
    from limpet.evaluation.ranking.engine import rank
    from limpet.evaluation.ranking.row_lists import RowLists

    rows = np.arange(0, len(labels), -(-len(labels) // SAMPLE))
    ranked = rank(vectors[rows], vectors, RowLists.by_label(labels[rows], labels), RowLists.single(rows))
    others = [np.delete(np.arange(len(labels)), row) for row in rows]
    expected = [
        average_precision_score(labels[kept] == labels[row], vectors[kept] @ vectors[row])
        for row, kept in zip(rows, others, strict=True)
    ]
    return float(np.abs(average_precision(ranked) - expected).max())


def summary(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    seconds = {name: statistics.median(run["seconds"] for run in of_one) for name, of_one in runs.items()}
    return {
        name: {
            "median_seconds": round(seconds[name], 3),
            "seconds": [round(run["seconds"], 3) for run in of_one],
            "times_limpet": round(seconds[name] / seconds["limpet"], 2),
            "extra_memory_mb": round(max(run["extra_memory"] for run in of_one) / 1e6),
            "values": of_one[0]["values"],
        }
        for name, of_one in runs.items()
    }


def table(record: dict[str, Any]) -> str:
    lines = [
        record["task"],
        record["machine"],
        "",
        f"{'':26}{'median s':>10}{'ratio':>8}{'extra MB':>10}  " + " ".join(f"{n:>9}" for n in NAMES),
    ]
    for name, row in record["contenders"].items():
        values = " ".join(f"{row['values'][n]:9.5f}" if n in row["values"] else f"{'-':>9}" for n in NAMES)
        lines.append(
            f"{name:26}{row['median_seconds']:10.2f}{row['times_limpet']:8.1f}{row['extra_memory_mb']:10}  {values}"
        )
    return "\n".join([*lines, "", *record["notes"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=13_180)
    parser.add_argument("--classes", type=int, default=659)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        print(json.dumps(run_here(options.contender, options.data)))
        return
    from machine import describe  # no run that is measured pays for it

    vectors, labels = clustered(options.items, options.classes, options.dim, options.seed)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, vectors=vectors, labels=labels)
        for _ in range(options.repeats):
            for name, of_one in runs.items():
                of_one.append(run_apart(name, path))
    contenders = summary(runs)
    worst = max(
        abs(row["values"][n] - contenders["limpet"]["values"][n]) for row in contenders.values() for n in row["values"]
    )
    exactness = compare_with_scikit_learn(vectors, labels)
    record = {
        "task": f"{options.items:,} items x {options.dim}, {options.classes} classes, each item against all others",
        "machine": describe("scikit-learn", "pytorch-metric-learning"),
        "seed": options.seed,
        "contenders": contenders,
        "largest_difference": worst,
        "largest_difference_from_scikit_learn": exactness,
        "notes": NOTES.format(
            repeats=options.repeats, slice=SLICE, sample=SAMPLE, worst=worst, exactness=exactness
        ).splitlines(),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "evaluation.json").write_text(json.dumps(record, indent=2) + "\n")
    text = table(record)
    (RESULTS / "evaluation.txt").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
