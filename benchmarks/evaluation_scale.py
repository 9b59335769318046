"""Ranking metrics at 10,000 queries on 50,000 and on a million items: time and memory against the bare product.

For every size there are two difficulties of clustered data with 50 relevant items a query: in the easy one at most 1 %
of the scores lie above a query's lowest relevant one, in the hard one at least half. Every run is a process of its own
over the same files; contenders alternate. Other libraries keep several arrays of queries x gallery or work query by
query, so they are measured on some of the queries, beside limpet on the same ones; those that are not installed, or
run out of the memory they are given, are said to be so.
With --workers, limpet alone ranks some queries, by itself and by that many processes: processor time of all of them and
the highest memory of each. The vectors are those of files, as of the commands.
Usage: python benchmarks/evaluation_scale.py [--items 50000 1000000] [--repeats 3]
       python benchmarks/evaluation_scale.py --workers 2 --items 10000000 --some 1000 --name evaluation_sharded
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation import RESULTS, peak_memory

QUERIES, DIM, RELEVANT = 10_000, 128, 50
NOISE = {"easy": 1.0, "hard": 2.3}
NAMES = ("map", "cmc@1", "cmc@5", "map@r")
SOME = {50_000: 500, 1_000_000: 100}  # queries that other libraries get
PIECE = 50  # of these at a time
MEMORY = 16 * 2**30  # what a process may take in all
PACKAGES = ("pytorch-metric-learning", "torchmetrics", "open-metric-learning")

NOTES = """\
Medians of {repeats} alternating runs, each a process of its own, after a small warm-up; in brackets the range.
Bare is the product of float32 alone, 512 queries x 16,384 items at a time, all threads, nothing done with it.
Extra memory: peak above the level after imports and data ({data} MB of vectors at a million items).
The other libraries rank {piece} queries per call, and were measured once; they offer other subsets of the metrics.
torchmetrics leaves relevant items with scores of 0 or less out of average precision, hence its other mAP.
Largest difference of any other of their values from limpet's on the same queries: {worst:.1e}.
"""

Vectors = NDArray[np.float32]
Labels = NDArray[np.int64]
Values = dict[str, float]


def unit(vectors: Vectors) -> Vectors:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def write_data(folder: Path, items: int, noise: float, seed: int) -> None:
    """Write clustered unit vectors, items // 50 classes, each with 50 items."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((items // RELEVANT, DIM), dtype=np.float32)
    labels = np.arange(items) % len(centres)
    gallery = np.empty((items, DIM), np.float32)
    for start in range(0, items, 100_000):
        own = centres[labels[start : start + 100_000]]
        gallery[start : start + len(own)] = unit(own + noise * rng.standard_normal(own.shape, dtype=np.float32))
    asked = rng.integers(len(centres), size=QUERIES)
    query = unit(centres[asked] + noise * rng.standard_normal((QUERIES, DIM), dtype=np.float32))
    for name, values in {"query": query, "asked": asked, "gallery": gallery, "labels": labels}.items():
        np.save(folder / f"{name}.npy", values)


def read_data(folder: Path, some: int | None) -> tuple[Vectors, Labels, Vectors, Labels]:
    query, asked, gallery, labels = (
        np.load(folder / f"{name}.npy") for name in ("query", "asked", "gallery", "labels")
    )
    return query[:some], asked[:some], gallery, labels


def share_above(folder: Path) -> float:
    """Return the mean share of scores above a query's lowest relevant one, over 200 queries."""
    query, asked, gallery, labels = read_data(folder, 200)
    scores = query @ gallery.T
    return float(np.mean([(row > row[labels == own].min()).mean() for row, own in zip(scores, asked, strict=True)]))


def bare(query: Vectors, asked: Labels, gallery: Vectors, labels: Labels) -> Values:
    products = np.empty((512, 16_384), np.float32)
    for start in range(0, len(query), 512):
        block = query[start : start + 512]
        for first in range(0, len(gallery), 16_384):
            part = gallery[first : first + 16_384]
            np.matmul(block, part.T, out=products[: len(block), : len(part)])
    return {}


def limpet(query: Vectors, asked: Labels, gallery: Vectors, labels: Labels) -> Values:
    """Measure through the public function; `embedding_sets` were built before, as the others' arrays were."""
    from limpet.evaluation.retrieval import rank_metrics

    found = rank_metrics(*BUILT.pop(), NAMES)
    return {name: float(values.mean()) for name, values in found.items()}


def embedding_sets(query: Vectors, asked: Labels, gallery: Vectors, labels: Labels) -> tuple[Any, Any]:
    from limpet.embeddings import EmbeddingSet, StringArray
    from limpet.geometry import Hypersphere

    def built(vectors: Vectors, classes: Labels) -> EmbeddingSet:
        ids = StringArray.of(map(str, range(len(classes))))
        return EmbeddingSet(vectors, ids, "declared:benchmark", Hypersphere(DIM), labels=classes)

    return built(query, asked), built(gallery, labels)


BUILT: list[tuple[Any, Any]] = []


def pieces(query: Vectors, asked: Labels) -> Iterator[tuple[Vectors, Labels]]:
    for start in range(0, len(query), PIECE):
        yield query[start : start + PIECE], asked[start : start + PIECE]


def pytorch_metric_learning(query: Vectors, asked: Labels, gallery: Vectors, labels: Labels) -> Values:
    import torch
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN

    ours = {"precision_at_1": "cmc@1", "mean_average_precision": "map", "mean_average_precision_at_r": "map@r"}
    calculator = AccuracyCalculator(
        include=tuple(ours), k=len(gallery), device=torch.device("cpu"), knn_func=CustomKNN(CosineSimilarity())
    )
    sums = dict.fromkeys(ours.values(), 0.0)
    for block, own in pieces(query, asked):
        found = calculator.get_accuracy(block, own, gallery, labels, ref_includes_query=False)
        for theirs, name in ours.items():
            sums[name] += found[theirs] * len(block)
    return {name: value / len(query) for name, value in sums.items()}


def torchmetrics(query: Vectors, asked: Labels, gallery: Vectors, labels: Labels) -> Values:
    import torch
    from torchmetrics.retrieval import RetrievalHitRate, RetrievalMAP

    measures = {"map": RetrievalMAP(), "cmc@1": RetrievalHitRate(top_k=1), "cmc@5": RetrievalHitRate(top_k=5)}
    sums = dict.fromkeys(measures, 0.0)
    for block, own in pieces(query, asked):
        scores = torch.from_numpy(block) @ torch.from_numpy(gallery).T
        relevant = torch.from_numpy(own)[:, None] == torch.from_numpy(labels)
        rows = torch.arange(len(block))[:, None].expand_as(scores)
        for name, measure in measures.items():
            value = measure(scores.ravel(), relevant.ravel(), indexes=rows.ravel())
            sums[name] += float(value) * len(block)
            measure.reset()
    return {name: value / len(query) for name, value in sums.items()}


def open_metric_learning(query: Vectors, asked: Labels, gallery: Vectors, labels: Labels) -> Values:
    import torch
    from oml.functional.knn import batched_knn_qg
    from oml.functional.metrics import calc_retrieval_metrics

    sums = dict.fromkeys(("map", "cmc@1", "cmc@5"), 0.0)
    items, own_labels = torch.from_numpy(gallery), torch.from_numpy(labels)
    for block, own in pieces(query, asked):
        _, found, relevant = batched_knn_qg(
            torch.from_numpy(block), items, len(gallery), torch.from_numpy(own), own_labels
        )
        values = calc_retrieval_metrics(
            found, relevant, cmc_top_k=(1, 5), precision_top_k=(), map_top_k=(len(gallery),), verbose=False
        )
        sums["map"] += float(values["map"][len(gallery)]) * len(block)
        for k in (1, 5):
            sums[f"cmc@{k}"] += float(values["cmc"][k]) * len(block)
    return {name: value / len(query) for name, value in sums.items()}


def ranked_by(workers: int, folder: Path, some: int) -> dict[str, Any]:
    """Rank with so many processes; none are started for one, which ranks in two threads."""
    from limpet.embeddings import storage
    from limpet.evaluation import sharded
    from limpet.evaluation.ranking import sharded as sharding
    from limpet.evaluation.retrieval import rank_metrics

    query, gallery = (storage.load(folder / f"{side}.safetensors") for side in ("query", "gallery"))
    started = time.perf_counter()
    with sharded(workers):
        values = rank_metrics(query[:some], gallery, NAMES)
        session = sharding._SESSION.get()
        memory = [peak_memory()]
        if session is not None:
            memory += [session.workers.submit(one, peak_memory).result() for one in range(workers)]
    spent = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "workers": workers,
        "seconds": round(time.perf_counter() - started, 1),
        "processor_seconds": round(sum(one.ru_utime + one.ru_stime for one in spent), 1),
        "memory_mb": [round(peak / 1e6) for peak in memory],
        "digest": hashlib.sha256(b"".join(values[name].tobytes() for name in NAMES)).hexdigest()[:16],
        "map": float(values["map"].mean()),
    }


def write_sets(folder: Path, items: int, seed: int) -> None:
    """Write queries and gallery as `limpet embed` would."""
    from limpet.embeddings import storage

    folder.mkdir(exist_ok=True)
    write_data(folder, items, NOISE["easy"], seed)
    for side, built in zip(("query", "gallery"), embedding_sets(*read_data(folder, None)), strict=True):
        storage.save(built, folder / f"{side}.safetensors")
    for path in folder.glob("*.npy"):
        path.unlink()


def measure_workers(folder: Path, some: int, workers: int, repeats: int) -> list[dict[str, Any]]:
    """Alternate between one process and several; every run is a process of its own."""
    runs = []
    for _ in range(repeats):
        for count in (1, workers):
            command = [sys.executable, __file__, "--ranked-by", str(count), "--data", str(folder), "--some", str(some)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
            print(runs[-1], flush=True)
    return runs


def write_workers(options: argparse.Namespace) -> None:
    from limpet.embeddings.room import spool_folder
    from machine import describe

    lines, found = [describe(), ""], {}
    for items in options.items:
        with tempfile.TemporaryDirectory(dir=spool_folder()) as place:
            folder = options.data or Path(place)
            if not (folder / "gallery.safetensors").exists():
                write_sets(folder, items, options.seed)
            runs = found[items] = measure_workers(folder, options.some, options.workers, options.repeats)
        alone, apart = ([run for run in runs if run["workers"] == count] for count in (1, options.workers))
        best = [min(run["processor_seconds"] for run in some) for some in (alone, apart)]
        lines += [
            f"{options.some:,} queries x {items:,} items x {DIM}, {RELEVANT} relevant each",
            "workers  seconds  processor s  highest memory of each process, MB",
            *(
                f"{run['workers']:7}{run['seconds']:9.1f}{run['processor_seconds']:13.1f}  "
                + ", ".join(f"{peak:,}" for peak in run["memory_mb"])
                for run in runs
            ),
            f"processor time, {options.workers} processes by one: {best[1] / best[0]:.2f} (best runs)",
            f"all values equal, bit for bit: {len({run['digest'] for run in runs}) == 1}; mAP {runs[0]['map']:.5f}",
            "",
        ]
    lines += [
        "Memory is the highest resident size of a process, pages of the mapped file included; of several processes the",
        "first asks and holds labels and ranks, the others hold a part of the gallery each.",
    ]
    record = {"machine": lines[0], "seed": options.seed, "runs": found}
    (RESULTS / f"{options.name}.json").write_text(json.dumps(record, indent=2) + "\n")
    (RESULTS / f"{options.name}.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


Contender = Callable[[Vectors, Labels, Vectors, Labels], Values]
WHOLE: dict[str, Contender] = {"bare": bare, "limpet": limpet}
OTHERS: dict[str, Contender] = {
    "pytorch-metric-learning": pytorch_metric_learning,
    "torchmetrics": torchmetrics,
    "open-metric-learning": open_metric_learning,
}


def run_here(name: str, folder: Path, some: int | None) -> dict[str, Any]:
    """Run one contender in this process; memory it is not given is told as such."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    contender = (WHOLE | OTHERS)[name]
    data = read_data(folder, some)
    small = data[0][:20], data[1][:20] % 40, data[2][:2_000], data[3][:2_000] % 40
    if contender is limpet:
        BUILT.extend((embedding_sets(*data), embedding_sets(*small)))
    contender(*small)  # imports and first calls
    before, start = peak_memory(), time.perf_counter()
    values = contender(*data)
    return {"seconds": time.perf_counter() - start, "extra_memory": peak_memory() - before, "values": values}


def run_apart(name: str, folder: Path, some: int | None = None) -> dict[str, Any]:
    command = [sys.executable, __file__, "--contender", name, "--data", str(folder)]
    command += [] if some is None else ["--some", str(some)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"failed": "not installed" if "No module named" in reason else reason[:100]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measured(folder: Path, items: int, repeats: int) -> dict[str, Any]:
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in WHOLE}
    for _ in range(repeats):
        for name, of_one in runs.items():
            of_one.append(run_apart(name, folder))
    some = SOME.get(items, 100)
    part = {"limpet": run_apart("limpet", folder, some)}
    part |= {name: run_apart(name, folder, some) for name in OTHERS}
    medians = {name: statistics.median(run["seconds"] for run in of_one) for name, of_one in runs.items()}
    return {
        "share_above": share_above(folder),
        "some": some,
        "whole": {
            name: {
                "seconds": [round(run["seconds"], 3) for run in of_one],
                "median_seconds": round(medians[name], 3),
                "times_bare": round(medians[name] / medians["bare"], 2),
                "extra_memory_mb": round(max(run["extra_memory"] for run in of_one) / 1e6),
                "values": of_one[0]["values"],
            }
            for name, of_one in runs.items()
        },
        "part": part,
    }


def lines_of(items: int, difficulty: str, found: dict[str, Any]) -> list[str]:
    lines = [
        f"{QUERIES:,} queries x {items:,} items x {DIM}, {difficulty}: "
        f"{found['share_above']:.2%} of the scores above a query's lowest relevant one",
        f"{'':26}{'median s':>10}{'range':>18}{'x bare':>8}{'extra MB':>10}  " + " ".join(f"{n:>8}" for n in NAMES),
    ]
    for name, row in found["whole"].items():
        spread = f"[{min(row['seconds']):.2f}, {max(row['seconds']):.2f}]"
        lines.append(
            f"{name:26}{row['median_seconds']:10.2f}{spread:>18}{row['times_bare']:8.2f}{row['extra_memory_mb']:10}  "
            + values_of(row["values"])
        )
    lines.append(f"on {found['some']} of these queries, once{'':8}s{'':10}x limpet{'':8}extra MB")
    own = found["part"]["limpet"]["seconds"]
    for name, run in found["part"].items():
        if "failed" in run:
            lines.append(f"{name:26}{run['failed']}")
            continue
        ratio = f"{run['seconds'] / own:.1f}"
        lines.append(
            f"{name:26}{run['seconds']:10.2f}{'':18}{ratio:>8}{round(run['extra_memory'] / 1e6):10}  "
            + values_of(run["values"])
        )
    return [*lines, ""]


def values_of(values: Values) -> str:
    return " ".join(f"{values[n]:8.5f}" if n in values else f"{'-':>8}" for n in NAMES)


def versions() -> str:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} not installed")
    return ", ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", default=[50_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="evaluation_scale", help="of the files of results")
    parser.add_argument("--workers", type=int, help="compare one process with so many")
    parser.add_argument("--some", type=int, help="queries to rank with --workers")
    parser.add_argument("--data", type=Path, help="folder that keeps the vectors of --workers, for another run")
    for hidden, kind in (("contender", str), ("ranked-by", int)):
        parser.add_argument(f"--{hidden}", type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ranked_by:
        print(json.dumps(ranked_by(options.ranked_by, options.data, options.some)))
        return
    if options.workers:
        write_workers(options)
        return
    if options.contender:
        print(json.dumps(run_here(options.contender, options.data, options.some)))
        return
    from machine import describe  # no run that is measured pays for it

    tasks: dict[str, dict[str, Any]] = {}
    lines = [describe(), versions(), ""]
    for items in options.items:
        for difficulty, noise in NOISE.items():
            with tempfile.TemporaryDirectory() as folder:
                write_data(Path(folder), items, noise, options.seed)
                found = measured(Path(folder), items, options.repeats)
            tasks[f"{items} {difficulty}"] = found
            lines += lines_of(items, difficulty, found)
            print("\n".join(lines[-12:]), flush=True)
    worst = max(
        (
            abs(value - found["part"]["limpet"]["values"][name])
            for found in tasks.values()
            for contender, run in found["part"].items()
            for name, value in run.get("values", {}).items()
            if (contender, name) != ("torchmetrics", "map")
        ),
        default=0.0,
    )
    notes = NOTES.format(repeats=options.repeats, data=4 * DIM, piece=PIECE, worst=worst).splitlines()
    RESULTS.mkdir(exist_ok=True)
    record = {"machine": describe(), "packages": versions(), "seed": options.seed, "tasks": tasks, "notes": notes}
    (RESULTS / f"{options.name}.json").write_text(json.dumps(record, indent=2) + "\n")
    (RESULTS / f"{options.name}.txt").write_text("\n".join([*lines, *notes]) + "\n")
    print("\n".join(notes))


if __name__ == "__main__":
    main()
