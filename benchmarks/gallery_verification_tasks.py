"""What `gallery_verification.py` times on one side, in a process of its own; both revisions can run this file.

    python benchmarks/gallery_verification_tasks.py FOLDER    # with old.safetensors and new.safetensors; prints JSON

Every operation is timed several times; of each call the time spent reading back is told, too.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from limpet.embeddings import EmbeddingSet, storage
from limpet.engines.lance import tables as lance_tables
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere
from limpet.upgrade.vector_sources import FileVectors

OLD, NEW = "declared:old", "declared:new"
SINGLE, BLOCKS, BLOCK, QUERIES = 100, 10, 1000, 100
FILLED = 100_000  # rows of the backfill
WRITTEN_AT_ONCE = 10_000
FORCE = "the new vectors are those of the old model with less noise"
READING_BACK = ("compare", "read_back")  # what it is called in `lance_tables`, now and before


class Stopwatch:
    """Seconds of calls, and those of them that were spent reading back."""

    def __init__(self) -> None:
        self.reading = 0.0
        self.timings: dict[str, list[tuple[float, float]]] = {}

    def watch(self, module: Any, name: str) -> None:
        """Count the time that a function of a module takes."""
        inner = getattr(module, name)

        def watched(*given: Any) -> None:
            started = time.perf_counter()
            inner(*given)
            self.reading += time.perf_counter() - started

        setattr(module, name, watched)

    @contextmanager
    def time(self, operation: str, units: int = 1) -> Iterator[None]:
        """Time what happens inside, as so many equal parts."""
        started, reading = time.perf_counter(), self.reading
        yield
        seconds = time.perf_counter() - started
        self.timings.setdefault(operation, []).append((seconds / units, (self.reading - reading) / units))

    def each(self, operation: str, calls: Iterable[Callable[[], object]]) -> None:
        """Time calls one by one."""
        for call in calls:
            with self.time(operation):
                call()

    def medians(self) -> dict[str, dict[str, float]]:
        """Return the milliseconds of the median call of every operation, and the share of all that was reading back."""
        times = {name: np.array(pairs) for name, pairs in self.timings.items()}
        return {
            name: {"ms": 1000 * float(np.median(pairs[:, 0])), "reading": float(pairs[:, 1].sum() / pairs[:, 0].sum())}
            for name, pairs in times.items()
        }


def run(folder: Path) -> dict[str, dict[str, float]]:
    """Do everything once; return the milliseconds of each operation and the share spent reading back."""
    stopwatch = Stopwatch()
    for name in READING_BACK:
        if hasattr(lance_tables, name):
            stopwatch.watch(lance_tables, name)
    old, new = (storage.load(folder / f"{name}.safetensors") for name in ("old", "new"))
    chosen = np.random.default_rng(3).permutation(len(old))
    queries = old.vectors[chosen[:QUERIES]]
    with Gallery.create(str(folder / "gallery"), fingerprint=OLD, space=Hypersphere(old.vectors.shape[1])) as gallery:
        with stopwatch.time("import, 1,000 rows", len(old) // 1000):
            gallery.add(old)
        for name, exact in (("search, exact", True), ("search, approximate", False)):
            if not exact:
                gallery.store.build_index("g1")
            find(gallery, queries[0], OLD, exact)()
            stopwatch.each(name, (find(gallery, query, OLD, exact) for query in queries))
        stopwatch.each("upsert of 1", (upsert(gallery, old, rows) for rows in chosen[:SINGLE, None]))
        blocks = chosen[: BLOCKS * BLOCK].reshape(BLOCKS, BLOCK)
        stopwatch.each("upsert of 1,000", (upsert(gallery, old, rows) for rows in blocks))
        gallery.start(NEW, new.space)
        gallery.swap(force=FORCE)
        rows = min(FILLED, len(old) // 2)
        with stopwatch.time("backfill, 1,000 rows", rows // 1000):
            gallery.backfill(FileVectors([folder / "new.safetensors"]), batch=WRITTEN_AT_ONCE, budget=rows)
        stopwatch.each("upsert of 1, mid-upgrade", (upsert(gallery, new, rows) for rows in chosen[-SINGLE:, None]))
        stopwatch.each("search, mid-upgrade", (find(gallery, query, NEW, True) for query in queries))
        stopwatch.each("delete of 1,000", (remove(gallery, old, rows) for rows in blocks))
    return stopwatch.medians()


def find(gallery: Gallery, query: np.ndarray, model: str, exact: bool) -> Callable[[], object]:
    return lambda: gallery.search(query, 10, fingerprint=model, exact=exact)


def upsert(gallery: Gallery, embeddings: EmbeddingSet, rows: np.ndarray) -> Callable[[], object]:
    chosen = embeddings[np.sort(rows)]
    return lambda: gallery.upsert(chosen)


def remove(gallery: Gallery, embeddings: EmbeddingSet, rows: np.ndarray) -> Callable[[], object]:
    ids = list(embeddings[np.sort(rows)].ids)
    return lambda: gallery.delete(ids)


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]))))
