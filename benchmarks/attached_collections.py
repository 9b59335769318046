"""How long passes over attached collections take, today and at an earlier commit, side by side.

A collection of a real server of Milvus, a file of Milvus Lite and folders of Qdrant's local mode are filled with rows
of a text and a vector. Then, by turns for each commit, a process of its own attaches, compares both sides for the first
time, and fills some rows with vectors that cost nothing to make, from the texts in the collection. Every library fills
as many rows at a time as it does when nobody says how many.

    python benchmarks/attached_collections.py              # writes benchmarks/results/attached_collections.md
    python benchmarks/attached_collections.py milvus --rows 200000 8000 --dim 128 --budget 20000 --now  # at size
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "attached_collections.md"
BEFORE = "d79955e"
PLACES = {"milvus": "Milvus 2.3.5, a server", "lite": "Milvus Lite, a file",
          "qdrant": "Qdrant, a folder, two vectors of a point",
          "qdrant&beside=collection": "Qdrant, a folder, two collections"}  # fmt: skip
ONCE = 1000


def measure(url: str, dim: int, budget: int) -> dict[str, float]:
    """Attach, compare and fill; return seconds of the first comparison, and rows filled a second."""
    from limpet.attached.collections.opening import start
    from limpet.geometry import Hypersphere
    from limpet.upgrade.model import UpgradeModel
    from limpet.upgrade.vector_sources import CallableVectors

    draw = np.random.default_rng(0)
    ready = draw.normal(size=(20_000, dim)).astype(np.float32)
    ready /= np.linalg.norm(ready, axis=1, keepdims=True)
    steps: list[tuple[float, int]] = []
    with start(url, old=UpgradeModel("declared:old", 0), new=UpgradeModel("declared:new", dim)) as it:
        began, busy = time.monotonic(), time.process_time()
        status = it.status()
        compared, busy = time.monotonic() - began, time.process_time() - busy
        source = CallableVectors(lambda texts: ready[: len(texts)], "declared:new", Hypersphere(dim), it.texts)
        done = it.backfill(
            source, budget=budget, progress=lambda step: steps.append((step["seconds"], step["written"]))
        )
        it.cancel(force=True)
    (first, before), (last, after) = steps[0], steps[-1]
    assert done.written == budget and status.lacking["new"] == status.items
    filled = (after - before) / (last - first)
    return {"rows": status.items, "compared": compared, "compared_cpu": busy, "filled": filled}


def in_memory() -> tempfile.TemporaryDirectory[str]:
    """Return a folder where syncing costs nothing, where there is one."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


@contextmanager
def milvus(rows: int, dim: int, *, lite: bool = False) -> Iterator[str]:
    """Give the URL of a collection of Milvus."""
    from milvus_lite.server_manager import server_manager_instance
    from pymilvus import DataType, MilvusClient

    from crash.milvus_server import milvus_server

    with ExitStack() as stack:
        http = f"{stack.enter_context(in_memory())}/m.db" if lite else stack.enter_context(milvus_server())
        client = MilvusClient(http)
        schema = client.create_schema(enable_dynamic_field=True)
        schema.add_field("key", DataType.INT64, is_primary=True)
        schema.add_field("emb", DataType.FLOAT_VECTOR, dim=dim)
        schema.add_field("text", DataType.VARCHAR, max_length=200)
        index = client.prepare_index_params()
        index.add_index("emb", index_type="FLAT", metric_type="COSINE")
        name = f"measured_{os.getpid()}"
        client.create_collection(name, schema=schema, index_params=index)
        for page in pages(rows, dim):
            client.insert(name, [{"key": key, "emb": vector, "text": text} for key, vector, text in page])
        client.flush(name)
        if lite:
            client.close()
            server_manager_instance.release_all()  # one process at a time has the file open
            yield f"milvus:{http}#{name}?text=text"
            return
        yield f"{http.replace('http', 'milvus')}/{name}?text=text"
        client.drop_collection(name)


@contextmanager
def qdrant(rows: int, dim: int) -> Iterator[str]:
    """Give the URL of a collection in a folder of Qdrant."""
    import warnings

    from qdrant_client import QdrantClient, models

    with in_memory() as folder:
        client = QdrantClient(path=folder)
        client.create_collection("items", {"emb": models.VectorParams(size=dim, distance=models.Distance.COSINE)})
        warnings.simplefilter("ignore")  # that a folder is not for many points
        for page in pages(rows, dim):
            client.upsert("items", [models.PointStruct(id=key, vector={"emb": vector}, payload={"text": text})
                                    for key, vector, text in page])  # fmt: skip
        client.close()
        yield f"qdrant:{folder}#items?vector=emb&text=text"


def pages(rows: int, dim: int) -> Iterator[list[tuple[int, list[float], str]]]:
    """Yield keys, vectors and texts."""
    draw = np.random.default_rng(1)
    for start in range(0, rows, ONCE):
        keys = range(start, min(start + ONCE, rows))
        vectors = draw.normal(size=(len(keys), dim)).round(4).tolist()
        yield [(key, vector, f"a text about thing {key}") for key, vector in zip(keys, vectors, strict=True)]


def run(source: Path, url: str, dim: int, budget: int) -> dict[str, float]:
    """Measure with the library in a folder, in a process of its own."""
    words = [sys.executable, "-W", "ignore", __file__, "--measure", url, "--dim", str(dim), "--budget", str(budget)]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": str(source)}, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def table(lines: list[dict[str, Any]], footer: str) -> str:
    """Return what is written down."""
    head = [
        "Passes over attached collections",
        "",
        f"Before is commit {BEFORE}. Vectors cost nothing to make; rows read and written at a time are as many as when "
        "nobody says how many.",
        "",
        "| collection | rows | numbers of a vector | first comparison before | after | filled before | after |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    body = []
    for one in lines:
        was, now = one["before"], one["after"]
        body.append(
            f"| {one['place']} | {now['rows']:,.0f} | {one['dim']} | {was['compared']:.1f} s | {now['compared']:.1f} s "
            f"({was['compared'] / now['compared']:.1f} times as fast) | {was['filled']:,.0f} rows/s | "
            f"{now['filled']:,.0f} rows/s ({now['filled'] / was['filled']:.1f} times) |"
        )
    return "\n".join([*head, *body, "", footer, ""])


def table_now(lines: list[dict[str, Any]], footer: str) -> str:
    """Return what is written down of today alone."""
    head = [
        "Passes over large attached collections",
        "",
        "Seconds of processor time are those of limpet, without the server. Rows at a time are found by measurement.",
        "",
        "| collection | rows | numbers of a vector | first comparison | processor time of it | filled |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    body = [
        f"| {one['place']} | {now['rows']:,.0f} | {one['dim']} | {now['compared']:.1f} s | "
        f"{now['compared_cpu']:.1f} s | {now['filled']:,.0f} rows/s |"
        for one in lines if (now := one["after"])
    ]  # fmt: skip
    return "\n".join([*head, *body, "", footer, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("places", nargs="*", default=list(PLACES), help=f"of {', '.join(PLACES)}; all if left out")
    parser.add_argument("--rows", type=int, nargs=2, default=(50_000, 8_000), help="of a server, and of files")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument(
        "--budget", type=int, default=8_000, help="rows that are filled, of a server; of files half of all"
    )
    parser.add_argument(
        "--now", action="store_true", help="leave the earlier commit out; adds to attached_collections_large.md"
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure, given.dim, given.budget)))
        return 0
    sys.path[:0] = [str(ROOT / "tools")]
    from machine import describe

    out = given.out or (RESULTS.with_stem(f"{RESULTS.stem}_large") if given.now else RESULTS)
    kept = out.with_suffix(".json")
    lines: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        sources = {"after": ROOT / "src"}
        if not given.now:
            words = ["git", "-C", str(ROOT), "archive", BEFORE, "src"]
            archive = subprocess.run(words, stdout=subprocess.PIPE, check=True)
            subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
            sources = {"before": Path(folder) / "src", **sources}
        for place in given.places:
            kind, sign, further = place.partition("&")
            rows, budget = (given.rows[0], given.budget) if kind == "milvus" else (given.rows[1], given.rows[1] // 2)
            made = qdrant(rows, given.dim) if kind == "qdrant" else milvus(rows, given.dim, lite=kind == "lite")
            with made as url:
                found: dict[str, Any] = {"place": PLACES[place], "dim": given.dim}
                for when, source in sources.items():
                    with tempfile.TemporaryDirectory() as ledger:
                        address = f"{url}&ledger={ledger}/ledger.db{sign}{further}"
                        found[when] = run(source, address, given.dim, budget)
                    print(place, when, found[when], flush=True)
            lines[f"{place}, {rows:,} rows" if given.now else place] = found
            kept.write_text(json.dumps(lines, indent=1) + "\n")
            footer = describe("pymilvus", "milvus", "milvus-lite", "qdrant-client")
            ordered = list(lines.values()) if given.now else [lines[one] for one in PLACES if one in lines]
            command = f"python benchmarks/attached_collections.py {' '.join(sys.argv[1:])}".strip()
            out.write_text((table_now if given.now else table)(ordered, f"{footer}\n\n{command}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
