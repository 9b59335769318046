"""Queries under load while a gallery changes its model: four reading processes, a swap, a backfill, and a rollback.

    python benchmarks/gallery_load.py            # about 10 minutes on two cores

Vectors are made from seeds, so that every process can compute what any hit must score. Readers ask one query after
another from start to end. In the first part all of them send queries of whichever model is active; in the second half
of them go on with the old model's queries throughout, which a link lets search new vectors, too. A reply counts as
mixed if one of its scores is not the inner product of its query with the vector that the generation named by the hit
has for that item, if an item comes twice, or if some item was not searched. Latencies are those of single queries on
shared cores; the backfill is limited in its rate, as one beside a service would be. Writes gallery_load.json and
gallery_load.txt.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere
from limpet.upgrade.vector_sources import CallableVectors
from machine import describe
from task_pool import write_json

RESULTS = Path(__file__).parent / "results"
DIM, CLASSES = 64, 200
OLD, NEW = "declared:old", "declared:new"
K = 10
PHASES = ("before", "backfill", "after", "rolled back")


def vectors_of(model: str, rows: int) -> NDArray[np.float32]:
    """Return unit vectors of all items: those of the new model are those of the old one, less noisy."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CLASSES, DIM), np.float32)
    noise = rng.standard_normal((rows, DIM), np.float32)
    vectors = centres[np.arange(rows) % CLASSES] + (1.0 if model == OLD else 0.5) * noise
    unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def names_of(rows: int) -> list[str]:
    return [f"item {row:07d}" for row in range(rows)]


def embedded(model: str, rows: int) -> EmbeddingSet:
    return EmbeddingSet(ids=names_of(rows), vectors=vectors_of(model, rows), fingerprint=model, space=Hypersphere(DIM))


def read(url: str, rows: int, number: int, always_old: bool, stop: Event, answers: Any) -> None:
    """Ask one query after another, and put what happened on the queue: (seconds since 1970, latency, verdict)."""
    made = {model: vectors_of(model, rows) for model in (OLD, NEW)}
    rng, found = np.random.default_rng(number), []
    gallery = Gallery.open(url)
    while not stop.is_set():
        state = gallery.state
        model = OLD if always_old else state.by_name[state.active].fingerprint
        query = made[model][int(rng.integers(rows))]
        started = time.perf_counter()
        try:
            reply = gallery.search(query, K, fingerprint=model)
            latency = time.perf_counter() - started
            found.append((time.time(), latency, "right" if _right(reply, query, made) else "mixed"))
        except Exception as error:  # every failure counts, of whatever kind
            found.append((time.time(), time.perf_counter() - started, f"failed: {error!r}"))
    gallery.close()
    answers.put((number, always_old, found))


def _right(reply: Any, query: NDArray[np.float32], made: dict[str, NDArray[np.float32]]) -> bool:
    by_generation = {"g1": made[OLD], "g2": made[NEW]}
    hits = reply.hits[0]
    exact = [float(by_generation[hit.generation][int(hit.id.split()[1])] @ query) for hit in hits]
    scores = [hit.score for hit in hits]
    names = {hit.id for hit in hits}
    return (
        len(names) == K
        and np.allclose(exact, scores, atol=1e-4)
        and scores == sorted(scores, reverse=True)
        and reply.covered == reply.items
    )


def part(name: str, rows: int, always_old: int, queries: int, rate: float) -> dict[str, Any]:
    """Run one upgrade and its rollback under four readers; return what they saw by phase."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder) / "gallery")
        gallery = Gallery.create(url, fingerprint=OLD, space=Hypersphere(DIM))
        gallery.add(embedded(OLD, rows))
        stop, answers = context.Event(), context.Queue()
        readers = [
            context.Process(target=read, args=(url, rows, number, number < always_old, stop, answers))
            for number in range(4)
        ]
        for reader in readers:
            reader.start()
        time.sleep(8)  # until all of them answer
        marks = {"before": time.time()}
        time.sleep(20)
        gallery.start(NEW, Hypersphere(DIM))
        gallery.link("g1", "g2", force="old and new vectors lie in one space here")
        gallery.swap(force="old and new vectors lie in one space here")
        marks["backfill"] = time.time()
        made, at = vectors_of(NEW, rows), {identifier: row for row, identifier in enumerate(names_of(rows))}
        source = CallableVectors(lambda ids: made[[at[one] for one in ids]], NEW, Hypersphere(DIM))
        done = gallery.backfill(source, batch=1000, rate=rate)
        marks["after"] = time.time()
        time.sleep(10)
        gallery.rollback()
        marks["rolled back"] = time.time()
        time.sleep(10)
        stop.set()
        found = [answers.get(timeout=120) for _ in readers]
        for reader in readers:
            reader.join()
        gallery.close()
    seen = [(when, latency, verdict) for _, _, of_reader in found for when, latency, verdict in of_reader]
    return {"part": name, "rows": rows, "written": done.written, "marks": marks, **_summary(seen, marks)}


def _summary(seen: list[tuple[float, float, str]], marks: dict[str, float]) -> dict[str, Any]:
    phases = {}
    borders = [*marks.values(), float("inf")]
    for number, name in enumerate(marks):
        latencies = [1000 * latency for when, latency, _ in seen if borders[number] <= when < borders[number + 1]]
        p50, p99 = np.percentile(latencies, [50, 99])
        phases[name] = {"queries": len(latencies), "p50_ms": float(p50), "p99_ms": float(p99)}
    failed = [verdict for _, _, verdict in seen if verdict.startswith("failed")]
    return {
        "queries": len(seen), "failed": len(failed), "failures": sorted(set(failed))[:3],
        "mixed": sum(verdict == "mixed" for _, _, verdict in seen), "phases": phases,
        "p99_ratio": phases["backfill"]["p99_ms"] / phases["before"]["p99_ms"],
    }  # fmt: skip


def page(document: dict[str, Any]) -> str:
    lines = [f"{document['command']}", document["machine"], ""]
    for record in document["parts"]:
        lines.append(
            f"{record['part']}: {record['rows']} rows, {record['queries']} queries, {record['failed']} failed, "
            f"{record['mixed']} mixed; p99 during the backfill is {record['p99_ratio']:.2f} times that before"
        )
        lines += [
            f"  {name:12} {phase['queries']:6} queries  p50 {phase['p50_ms']:7.1f} ms  p99 {phase['p99_ms']:7.1f} ms"
            for name, phase in record["phases"].items()
        ]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=10_000, help="at least so many per part, or it fails")
    parser.add_argument("--rate", type=float, default=100.0, help="items a second of the backfill (default: 100)")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parts = [
        part("all readers follow the active model", arguments.rows, 0, arguments.queries, arguments.rate),
        part("two of four readers keep to the old model", arguments.rows, 2, arguments.queries, arguments.rate),
    ]
    command = f"python benchmarks/gallery_load.py --rows {arguments.rows} --rate {arguments.rate:g}"
    document = {"command": command, "machine": describe(), "parts": parts}
    write_json(arguments.out / "gallery_load.json", document)
    (arguments.out / "gallery_load.txt").write_text(page(document))
    print(page(document))
    short = [record["part"] for record in parts if record["queries"] < arguments.queries]
    if short:
        raise SystemExit(f"Too few queries in: {', '.join(short)}.")


if __name__ == "__main__":
    main()
