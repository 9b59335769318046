"""A gallery of a million rows against the bare store: import, search, backfill, memory, reopening.

    python benchmarks/gallery.py                 # about 30 minutes on two cores
    python benchmarks/gallery.py --rows 100000   # a smaller one

Everything is measured in one run, gallery and bare LanceDB in turn, five rounds; ratios are medians over rounds. The
bare table holds the same ids and vectors with the same indexes. "Writing" is merge_insert by id of the new vectors into
the bare table, "reading back" a look-up of the same ids. Memory is the largest anonymous memory of the process (vectors
that are read from memory-mapped files do not count, copies of them do). Writes gallery.json and gallery.txt.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import BTree, IvfFlat
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, StringArray, storage
from limpet.engines.lance.care import PARTITION
from limpet.engines.lance.search import PROBES
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere
from limpet.upgrade.vector_sources import FileVectors
from machine import describe
from task_pool import write_json

RESULTS = Path(__file__).parent / "results"
DIM, CENTRES = 128, 1000
OLD, NEW = "declared:old", "declared:new"
ROUNDS, BATCH = 5, 10_000
FORCE = "the new vectors are those of the old model with less noise"


class Memory(threading.Thread):
    """The largest anonymous memory of this process while it runs, in bytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        gc.collect()
        self.start_at = self.largest = _anonymous()
        self.going = True

    def run(self) -> None:
        while self.going:
            self.largest = max(self.largest, _anonymous())
            time.sleep(0.02)

    def stop(self) -> int:
        self.going = False
        self.join()
        return self.largest - self.start_at


def _anonymous() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def write_vectors(model: str, rows: int, path: Path) -> None:
    """Write clustered unit vectors; those of the new model have less noise."""
    centres = np.random.default_rng(0).standard_normal((CENTRES, DIM), np.float32)
    noise = np.random.default_rng(1).standard_normal((rows, DIM), np.float32)
    noise *= 0.8 if model == OLD else 0.5
    noise += centres[np.arange(rows) % CENTRES]
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    ids = StringArray.of([f"item{row:08d}" for row in range(rows)])
    storage.save(EmbeddingSet(ids=ids, vectors=noise, fingerprint=model, space=Hypersphere(DIM)), path)


def table_of(embeddings: EmbeddingSet) -> pa.Table:
    flat = pa.array(np.ascontiguousarray(embeddings.vectors).ravel())
    return pa.table({
        "id": embeddings.ids.arrow().cast(pa.string()),
        "vector": pa.FixedSizeListArray.from_arrays(flat, DIM),
    })  # fmt: skip


def timed(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def imports(old: EmbeddingSet, folder: Path) -> dict[str, Any]:
    """Fill the gallery and the bare table."""
    memory = Memory()
    memory.start()
    gallery = Gallery.create(str(folder / "gallery"), fingerprint=OLD, space=Hypersphere(DIM))
    seconds = timed(lambda: gallery.add(old))
    gallery.close()
    extra = memory.stop()

    def bare() -> None:
        parts = (old[start : start + 50000] for start in range(0, len(old), 50_000))
        table = lancedb.connect(folder / "bare").create_table("rows", table_of(next(parts)))
        for part in parts:
            table.add(table_of(part))
        table.create_index("id", config=BTree())

    bare_seconds = timed(bare)
    return {"rows_per_second": len(old) / seconds, "bare_rows_per_second": len(old) / bare_seconds,
            "extra_memory": extra, "vectors": old.vectors.nbytes}  # fmt: skip


def searches(folder: Path, queries: NDArray[np.float32], *, exact: bool, count: int) -> dict[str, Any]:
    """Time single queries in turn, gallery and bare store, in rounds."""
    gallery = Gallery.open(str(folder / "gallery"))
    table = lancedb.connect(folder / "bare").open_table("rows")

    def bare(query: NDArray[np.float32]) -> None:
        search = table.search(query, vector_column_name="vector").distance_type("dot").select(["id", "_distance"])
        (search.bypass_vector_index() if exact else search.nprobes(PROBES)).limit(10).to_arrow()

    rounds = []
    for number in range(ROUNDS):
        chosen = queries[number * count : (number + 1) * count]
        pairs = np.array([
            (timed(lambda: bare(query)), timed(lambda: gallery.search(query, 10, fingerprint=OLD, exact=exact)))  # noqa: B023
            for query in chosen
        ])  # fmt: skip
        rounds.append(1000 * np.percentile(pairs, [50, 99], axis=0))
    gallery.close()
    ms = np.array(rounds)  # (rounds, p50 and p99, bare and gallery)
    ratio = np.median(ms[:, :, 1] / ms[:, :, 0], axis=0)
    more = np.median(ms[:, :, 1] - ms[:, :, 0], axis=0)
    middle = np.median(ms, axis=0)
    return {
        name: {"bare_ms": middle[row, 0], "gallery_ms": middle[row, 1], "ratio": ratio[row], "more_ms": more[row],
               "within": bool(np.median(ms[:, row, 1] - 1.1 * ms[:, row, 0]) <= 1.0)}
        for row, name in enumerate(("p50", "p99"))
    }  # fmt: skip


def backfills(folder: Path, new: EmbeddingSet, batches: int) -> dict[str, Any]:
    """Backfill and, in turn, write and read back the same rows on the bare store."""
    gallery = Gallery.open(str(folder / "gallery"))
    generation = gallery.start(NEW, Hypersphere(DIM))
    gallery.swap(force=FORCE)
    source = FileVectors([folder / "new.safetensors"])
    table = lancedb.connect(folder / "bare").open_table("rows")
    memory, rounds = Memory(), []
    memory.start()
    for number in range(ROUNDS):
        began = number * batches * BATCH
        own = timed(lambda: gallery.backfill(source, batch=BATCH, budget=batches * BATCH))
        written, read = 0.0, 0.0
        for start in range(began, began + batches * BATCH, BATCH):
            part = table_of(new[start : start + BATCH])
            insert = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            written += timed(lambda: insert.execute(part))  # noqa: B023
            ids = ", ".join(f"'{one}'" for one in part["id"].to_pylist())
            look = table.search().where(f"id in ({ids})").select(["id", "vector"]).limit(BATCH)
            read += timed(look.to_arrow)
        rounds.append((own, written, read))
    own, written, read = np.array(rounds).T
    rate = batches * BATCH
    found = {
        "rows_per_second": float(np.median(rate / own)), "generation": generation.name,
        "of_writing_and_reading_back": float(np.median((written + read) / own)),
        "of_writing_alone": float(np.median(written / own)),
        "bare_rows_per_second": {"writing and reading back": float(np.median(rate / (written + read))),
                                 "writing": float(np.median(rate / written))},
        "extra_memory": memory.stop(),
    }  # fmt: skip
    gallery.close()
    return found


def reopening(folder: Path) -> list[float]:
    """Return the seconds that fresh processes take to open the gallery and answer a query, without imports."""
    script = (
        "import sys, time, numpy as np\n"
        "import limpet.galleries, lancedb\n"
        "started = time.perf_counter()\n"
        "gallery = limpet.galleries.Gallery.open(sys.argv[1])\n"
        "gallery.status()\n"
        "print(time.perf_counter() - started)\n"
    )
    command = [sys.executable, "-c", script, str(folder / "gallery")]
    return [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(ROUNDS)]


def build_indexes(folder: Path) -> dict[str, float]:
    gallery = Gallery.open(str(folder / "gallery"))
    seconds = timed(lambda: gallery.store.build_index("g1"))
    gallery.close()
    table = lancedb.connect(folder / "bare").open_table("rows")
    return {"gallery_seconds": seconds, "bare_seconds": timed(lambda: _bare_index(table))}


def _bare_index(table: Any) -> None:
    table.create_index("vector", config=IvfFlat(distance_type="dot", target_partition_size=PARTITION))


def page(document: dict[str, Any]) -> str:
    search, backfill, imported = document["search"], document["backfill"], document["import"]
    mega = 1 << 20
    lines = [document["command"], document["machine"], "", f"{document['rows']} rows of {DIM} dimensions, LanceDB", ""]
    lines.append(
        f"import    {imported['rows_per_second']:,.0f} rows/s (bare, without syncing or reading back: "
        f"{imported['bare_rows_per_second']:,.0f}); extra memory {imported['extra_memory'] / mega:,.0f} MiB "
        f"beside {imported['vectors'] / mega:,.0f} MiB of vectors"
    )
    for kind, found in search.items():
        for name, row in found.items():
            lines.append(
                f"search    {kind:12} {name}: gallery {row['gallery_ms']:8.2f} ms, bare {row['bare_ms']:8.2f} ms, "
                f"ratio {row['ratio']:.3f}, difference {row['more_ms']:+.2f} ms, within 10 % + 1 ms: {row['within']}"
            )
    lines += [
        f"backfill  {backfill['rows_per_second']:,.0f} rows/s: {100 * backfill['of_writing_and_reading_back']:.0f} % "
        f"of the bare store's writing and reading back, {100 * backfill['of_writing_alone']:.0f} % of its writing "
        f"alone; extra memory {backfill['extra_memory'] / mega:,.0f} MiB",
        f"reopening and status: {max(document['reopening']):.2f} s at most of {len(document['reopening'])}",
        f"index     gallery {document['index']['gallery_seconds']:.0f} s, "
        f"bare {document['index']['bare_seconds']:.0f} s",
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=20, help="exact ones per round; approximate: ten times as many")
    parser.add_argument("--batches", type=int, default=8, help=f"of {BATCH} rows per round of the backfill")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    folder = Path(tempfile.mkdtemp())
    try:
        for name, model in (("old", OLD), ("new", NEW)):
            write_vectors(model, arguments.rows, folder / f"{name}.safetensors")
        old, new = (storage.load(folder / f"{name}.safetensors") for name in ("old", "new"))
        rng = np.random.default_rng(2)
        queries = old.vectors[
            rng.permutation(len(old))[: 10 * ROUNDS * arguments.queries]
        ] + 0.05 * rng.standard_normal((10 * ROUNDS * arguments.queries, DIM), np.float32)
        document: dict[str, Any] = {
            "command": f"python benchmarks/gallery.py --rows {arguments.rows}", "machine": describe(),
            "rows": arguments.rows, "import": imports(old, folder),
        }  # fmt: skip
        print(document["import"], flush=True)
        document["search"] = {"exact": searches(folder, queries, exact=True, count=arguments.queries)}
        print(document["search"], flush=True)
        document["reopening"] = reopening(folder)
        document["index"] = build_indexes(folder)
        print(document["index"], flush=True)
        document["search"]["approximate"] = searches(folder, queries, exact=False, count=10 * arguments.queries)
        document["backfill"] = backfills(folder, new, arguments.batches)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    write_json(arguments.out / "gallery.json", document)
    (arguments.out / "gallery.txt").write_text(page(document))
    print(page(document))


if __name__ == "__main__":
    main()
