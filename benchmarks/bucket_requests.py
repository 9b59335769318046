"""What a gallery in a bucket asks of the service: requests of every step, which providers charge for, by method.

A gallery of 1,000 items with 128 numbers each, over a server on the same machine that speaks like S3 (moto). The ledger
is in PostgreSQL. A copy within the service is a PUT, and a removal of many objects one POST.

    python benchmarks/bucket_requests.py    # writes benchmarks/results/bucket_requests.txt
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from crash.object_server import BUCKET, ObjectServer
from crash.server import Server
from limpet import EmbeddingSet, Gallery, Hypersphere
from limpet.upgrade.vector_sources import CallableVectors

RESULTS = Path(__file__).parent / "results"
ITEMS, WIDTH, MORE = 1_000, 128, 10
METHODS = ("PUT", "POST", "GET", "HEAD", "DELETE")


def main() -> int:
    from machine import describe

    work = Path(tempfile.mkdtemp(prefix="bucket_requests-", dir="/dev/shm"))
    work.chmod(0o755)
    server, objects = Server(work), ObjectServer()
    os.environ.update(objects.environment)
    size = sum(Path(str(file.locate())).stat().st_size for file in importlib.metadata.files("obstore") or ())
    lines = [*(__doc__ or "").split("\n    python")[0].strip().splitlines(), "", f"machine {describe()}", ""]
    lines += [f"The extra 's3' installs obstore {importlib.metadata.version('obstore')}: {size / 1e6:.1f} MB.", ""]
    lines.append(f"{'step':<44}" + "".join(f"{method:>8}" for method in METHODS) + f"{'CPU s':>8}")
    print("\n".join(lines[-1:]))

    def step(name: str, do: Callable[[], object]) -> object:
        objects.requests()
        began = time.process_time()
        found = do()
        used, counts = time.process_time() - began, objects.requests()
        lines.append(f"{name:<44}" + "".join(f"{counts.get(one, 0):>8}" for one in METHODS) + f"{used:>8.2f}")
        print(lines[-1], flush=True)
        return found

    try:
        url = f"s3://{BUCKET}/live?ledger={server.url()}"
        _steps(url, step)
    finally:
        server.stop()
        objects.stop()
        shutil.rmtree(work, ignore_errors=True)
    (RESULTS / "bucket_requests.txt").write_text("\n".join(lines) + "\n")
    return 0


def _steps(url: str, step: Callable[[str, Callable[[], object]], object]) -> None:
    rng, space = np.random.default_rng(0), Hypersphere(WIDTH)
    ids = [f"item {number:05}" for number in range(ITEMS + MORE)]
    vectors = rng.standard_normal((len(ids), WIDTH)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)

    def some(first: int, last: int) -> EmbeddingSet:
        return EmbeddingSet(vectors[first:last], ids[first:last], "declared:old", space, "document")

    rows = {name: row for row, name in enumerate(ids)}
    source = CallableVectors(lambda names: vectors[[rows[one] for one in names]], "declared:new", space)
    made: list[Gallery] = []
    step("create", lambda: made.append(Gallery.create(url, fingerprint="declared:old", space=space)))
    gallery = made[0]
    step(f"add {ITEMS:,} items", lambda: gallery.add(some(0, ITEMS)))
    step(f"upsert {MORE} items", lambda: gallery.upsert(some(ITEMS, ITEMS + MORE)))
    step("open in another object", lambda: made.append(Gallery.open(url)))
    queries = some(0, 1).replace(role="query")
    step("  its first search, by 1 query", lambda: made[1].search(queries, 10))
    step("  its next search", lambda: made[1].search(queries, 10))
    step("start an upgrade", lambda: gallery.start("declared:new", space))
    step(f"backfill {ITEMS + MORE:,} items", lambda: gallery.backfill(source))
    step("link and swap", lambda: (gallery.link("g2", "g1", force="a measurement"), gallery.swap()))
    step("finish", gallery.finish)
    step("gc", lambda: gallery.gc(older_than=0.0))
    for one in made:
        one.close()


if __name__ == "__main__":
    sys.exit(main())
