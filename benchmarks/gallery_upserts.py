"""Ten thousand single upserts into a gallery of LanceDB in mid-upgrade, without gc: do searches stay fast, files few?

    python benchmarks/gallery_upserts.py                   # about 12 minutes on two cores
    python benchmarks/gallery_upserts.py --upserts 1500    # a shorter one

A fifth of the items has vectors of the new model, which is active, so that its queries search what is left of the old
one, too. Half of the upserts replace items, half bring new ones, with vectors of the new model, of both, or of the old
one in turn. Before the first and after every 500 upserts 50 queries are asked, exact and approximate, in three rounds;
medians and percentiles are medians over the rounds, the spread is that of the rounds. The exit code is 1 where a bound
is broken:

- Search: the median at the end is at most twice that of the start, exact and approximate.
- Fragments: at most the largest number of small ones that `PIECES` allows, beside large ones.
- Files: every fragment has at most two, every index four. Beside those of now there are files that kept commits alone
  need: three for a removal, three for added rows, and no more than two on average for merges, of every table. Commits
  are kept that came since the last trim (`TRIMMED_EVERY`) and those of the `KEPT_SECONDS` before it, at the highest
  rate that was measured, or the last 8.
- Bytes: at most four times those of the rows and indexes of now, as each of the three sizes in `PIECES` may just have
  been merged, and what was merged still waits.
- Memory: at most 384 MiB above that after the first 500 upserts: the caches of files of readers and writers, and that
  of indexes of writers, are 64 MiB each, and the allocator keeps as much again.

Writes gallery_upserts.json and gallery_upserts.txt.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import lance
import numpy as np
import psutil
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.engines.lance.care import PIECES
from limpet.engines.lance.store import KEPT_SECONDS, TRIMMED_EVERY
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere
from machine import describe
from task_pool import write_json

RESULTS = Path(__file__).parent / "results"
DIM, CENTRES = 128, 1000
OLD, NEW = "declared:old", "declared:new"
WRITERS = ((NEW,), (OLD, NEW), (OLD,))
STEP, QUERIES, ROUNDS, K = 500, 50, 3, 10
SPARED = 8  # last commits that are kept whatever their age
MEMORY = 384 << 20
FORCE = "the new vectors are those of the old model with less noise"


def vectors_of(model: str, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return unit vectors of items by number; those of the new model have less noise."""
    centres = np.random.default_rng(0).standard_normal((CENTRES, DIM), np.float32)
    noise = np.stack([np.random.default_rng([1, row]).standard_normal(DIM, np.float32) for row in rows.tolist()])
    vectors = centres[rows % CENTRES] + (0.8 if model == OLD else 0.5) * noise
    unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def embedded(model: str, rows: NDArray[np.int64]) -> EmbeddingSet:
    ids = [f"item{row:08d}" for row in rows.tolist()]
    return EmbeddingSet(ids=ids, vectors=vectors_of(model, rows), fingerprint=model, space=Hypersphere(DIM))


def in_mid_upgrade(url: str, rows: int) -> Gallery:
    """Make a gallery of which a fifth has new vectors, and build its indexes."""
    gallery = Gallery.create(url, fingerprint=OLD, space=Hypersphere(DIM))
    everything, fifth = np.arange(rows), np.arange(rows // 5)
    gallery.add(embedded(OLD, everything))
    gallery.start(NEW, Hypersphere(DIM))
    gallery.swap(force=FORCE)
    gallery.upsert(embedded(OLD, fifth), embedded(NEW, fifth))
    for name in ("g1", "g2"):
        gallery.store.build_index(name)
    return gallery


def searches(gallery: Gallery, queries: NDArray[np.float32], *, exact: bool) -> dict[str, Any]:
    """Ask all queries one by one, in rounds."""
    gallery.search(queries[0], K, fingerprint=NEW, exact=exact)
    rounds = []
    for _ in range(ROUNDS):
        timings = []
        for query in queries:
            started = time.perf_counter()
            gallery.search(query, K, fingerprint=NEW, exact=exact)
            timings.append(1000 * (time.perf_counter() - started))
        rounds.append(np.percentile(timings, [50, 99]))
    p50, p99 = np.array(rounds).T
    return {"p50_ms": float(np.median(p50)), "spread_ms": [float(p50.min()), float(p50.max())],
            "p99_ms": float(np.median(p99))}  # fmt: skip


def measured(gallery: Gallery, folder: Path, queries: NDArray[np.float32]) -> dict[str, Any]:
    """Return how the gallery is now: searches, files, fragments, memory."""
    files = {about.st_ino: about.st_size for path in folder.rglob("*") if path.is_file() for about in [path.stat()]}
    status = gallery.status()
    tables = {}
    for place in gallery.store._current()[1]:  # type: ignore[attr-defined]
        table = lance.dataset(str(folder / f"{place.table}.lance"), version=place.version)
        tables[place.table] = {"fragments": len(table.get_fragments()), "rows": table.count_rows()}
    return {
        "exact": searches(gallery, queries, exact=True), "approximate": searches(gallery, queries, exact=False),
        "files": len(files), "bytes": sum(files.values()), "tables": tables, "waiting": status.waiting,
        "needed": sum(generation.bytes for generation in status.generations),
        "memory": psutil.Process().memory_info().rss,
    }  # fmt: skip


def run(folder: Path, rows: int, upserts: int) -> list[dict[str, Any]]:
    """Return measurements before the first and after every `STEP` upserts."""
    rng = np.random.default_rng(2)
    chosen = rng.integers(0, rows, upserts)
    chosen[1::2] = rows + np.arange(upserts // 2)
    queries = vectors_of(NEW, rng.integers(0, rows, QUERIES))
    writers = itertools.cycle(WRITERS)
    with in_mid_upgrade(str(folder), rows) as gallery:
        records = [{"upserts": 0, **measured(gallery, folder, queries)}]
        for start in range(0, upserts, STEP):
            part = [[embedded(model, chosen[[place]]) for model in next(writers)]
                    for place in range(start, min(start + STEP, upserts))]  # fmt: skip
            timings = []
            for sets in part:
                started = time.perf_counter()
                gallery.upsert(*sets)
                timings.append(time.perf_counter() - started)
            ms = {"upsert_ms": 1000 * float(np.median(timings)), "upsert_p99_ms": 1000 * np.percentile(timings, 99)}
            rate = {"per_second": len(part) / sum(timings)}
            records.append({"upserts": start + len(part), **ms, **rate, **measured(gallery, folder, queries)})
            print(line(records[-1]), flush=True)
    return records


def bounds(records: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Return what was promised to be bounded: the largest that was measured, and the bound."""
    first, *later = records
    tables, largest = len(first["tables"]), max(PIECES)
    pieces = max(PIECES.values()) + max(table["rows"] for one in later for table in one["tables"].values()) // largest
    fragments = max(table["fragments"] for one in later for table in one["tables"].values())
    kept = TRIMMED_EVERY + max(SPARED, KEPT_SECONDS * max(one["per_second"] for one in later))
    promised = {
        f"{kind} search p50, last to first": (later[-1][kind]["p50_ms"] / first[kind]["p50_ms"], 2.0)
        for kind in ("exact", "approximate")
    }
    return promised | {
        "fragments of a table": (fragments, pieces + 1),
        "files": (max(one["files"] for one in later), tables * (2 * pieces + 8 + 8 * kept)),
        "bytes, to those needed": (max(one["bytes"] / one["needed"] for one in later), 4.0),
        "MiB of memory": (max(one["memory"] for one in later) / 2**20, (later[0]["memory"] + MEMORY) / 2**20),
    }


def line(record: dict[str, Any]) -> str:
    times = [f"{record[kind]['p50_ms']:6.1f} ({record[kind]['spread_ms'][0]:.1f} to {record[kind]['spread_ms'][1]:.1f})"
             f" {record[kind]['p99_ms']:6.1f}" for kind in ("exact", "approximate")]  # fmt: skip
    fragments = " ".join(str(table["fragments"]) for table in record["tables"].values())
    sizes = [f"{record[name] / 2**20:7.1f}" for name in ("bytes", "waiting", "memory")]
    upsert = f"{record.get('upsert_ms', 0):6.1f} {record.get('upsert_p99_ms', 0):6.1f}"
    return (
        f"{record['upserts']:6}  {times[0]:>32}  {times[1]:>32}  {upsert:>15}  {record['files']:6}  "
        f"{fragments:>12}  {' '.join(sizes)}"
    )


def page(document: dict[str, Any]) -> str:
    heading = (f"{'':6}  {'exact p50 (rounds) p99, ms':>32}  {'approximate p50 (rounds) p99, ms':>32}  "
               f"{'upsert p50, p99':>15}  {'files':>6}  {'fragments':>12}  MiB: all, waiting, memory")  # fmt: skip
    lines = [document["command"], document["machine"], "",
             f"{document['rows']} rows of {DIM} dimensions, a fifth with new vectors", "", heading]  # fmt: skip
    lines += [*map(line, document["records"]), ""]
    for name, (value, bound) in document["bounds"].items():
        lines.append(f"{name}: {value:.2f}, at most {bound:.2f}: {'kept' if value <= bound else 'BROKEN'}")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--upserts", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    with tempfile.TemporaryDirectory() as scratch:
        records = run(Path(scratch) / "gallery", arguments.rows, arguments.upserts)
    document = {
        "command": f"python benchmarks/gallery_upserts.py --rows {arguments.rows} --upserts {arguments.upserts}",
        "machine": describe("pylance"), "rows": arguments.rows, "records": records, "bounds": bounds(records),
    }  # fmt: skip
    write_json(arguments.out / "gallery_upserts.json", document)
    (arguments.out / "gallery_upserts.txt").write_text(page(document))
    print(page(document))
    if any(value > bound for value, bound in document["bounds"].values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
