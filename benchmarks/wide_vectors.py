"""Approximate indexes of PostgreSQL over wide vectors: how long to build, how large, how fast, and what they find.

    python benchmarks/wide_vectors.py                # 20,000 of 3,072 and 3,000 of 6,000 numbers
    python benchmarks/wide_vectors.py --rows 500     # a try; writes nothing

Vectors of 3,072 numbers are indexed as numbers of 16 bits, those of 6,000 as signs; the best of what an index finds are
compared by the whole vectors, so that recall is that of the candidates. Rows lie near a space of 64 dimensions, as
embeddings of models do, with noise a fifth as long in all others. Queries are asked one by one, in rounds that take
turns with exact search; times are medians over all queries of a round, and of these the median and the spread over
rounds. With a filter, every fourth row counts (the few that meet one are looked up, not searched for in the index).

Writes wide_vectors.json and wide_vectors.txt.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from crash.server import Server
from limpet.embeddings import EmbeddingSet
from limpet.engines.filters import Filter, In
from limpet.engines.postgres.graphs import form_of
from limpet.engines.postgres.store import PgvectorStore
from limpet.engines.store import Graph
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere
from machine import describe
from task_pool import write_json

RESULTS = Path(__file__).parent / "results"
SHAPES = ((20_000, 3072, (Graph(), Graph(24, 128, 200))), (3000, 6000, (Graph(),)))
MEMORY = "2GB"
"""In which a graph is built; one that does not fit is built from the disk, row by row."""
QUERIES, ROUNDS, K, DIMENSIONS, GROUPS = 100, 3, 10, 64, 4


def embedded(rows: int, width: int, *, seed: int) -> EmbeddingSet:
    """Return unit vectors near one space of few dimensions; the seed draws the rows, not the space."""
    plane = np.random.default_rng(width).standard_normal((DIMENSIONS, width), np.float32)
    rng = np.random.default_rng([seed, width])
    found = rng.standard_normal((rows, DIMENSIONS), np.float32) @ plane
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    found += rng.standard_normal((rows, width), np.float32) * np.float32(0.2 / np.sqrt(width))
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    ids = [f"s{seed}-{number:06d}" for number in range(rows)]
    return EmbeddingSet(ids=ids, vectors=found, fingerprint="declared:wide", space=Hypersphere(width))


def asked(
    gallery: Gallery, queries: EmbeddingSet, where: Filter | None, *, exact: bool
) -> tuple[list[set[str]], float]:
    """Ask one query after another; return the ids of each, and the median of their milliseconds."""
    found, taken = [], []
    for row in range(len(queries)):
        started = time.perf_counter()
        [hits] = gallery.search(queries[np.array([row])], K, where=where, exact=exact).hits
        taken.append(1000 * (time.perf_counter() - started))
        found.append({hit.id for hit in hits})
    return found, float(np.median(taken))


def measured(gallery: Gallery, queries: EmbeddingSet, where: Filter | None) -> dict[str, Any]:
    """Return recall and times of approximate beside exact search, in turns."""
    times: dict[bool, list[float]] = {True: [], False: []}
    found: dict[bool, list[set[str]]] = {}
    asked(gallery, queries, where, exact=False)  # what the database reads from disk first
    for _ in range(ROUNDS):
        for exact, taken in times.items():
            found[exact], milliseconds = asked(gallery, queries, where, exact=exact)
            taken.append(milliseconds)
    same = [len(one & other) / len(other) for one, other in zip(found[False], found[True], strict=True) if other]
    return {
        "recall": float(np.mean(same)), "worst_recall": float(np.min(same)),
        **{name: {"median": float(np.median(taken)), "least": min(taken), "most": max(taken)}
           for name, taken in (("exact_ms", times[True]), ("approximate_ms", times[False]))},
    }  # fmt: skip


def measure(server: Server, rows: int, width: int, settings: Sequence[Graph], queries: int) -> dict[str, Any]:
    """Fill a gallery, and measure a graph of each of the settings over it."""
    url = f"{server.url()}&schema=wide{width}"
    form = form_of(width, directions=True)
    columns = {"part": "integer"}
    with Gallery.create(url, fingerprint="declared:wide", space=Hypersphere(width), columns=columns) as gallery:
        store = gallery.store
        assert isinstance(store, PgvectorStore) and form is not None
        started = time.perf_counter()
        gallery.add(embedded(rows, width, seed=0), metadata={"part": [row % GROUPS for row in range(rows)]})
        added = time.perf_counter() - started
        store.tidy()
        graphs = []
        for graph in settings:
            started = time.perf_counter()
            gallery.index(graph=graph)
            built = time.perf_counter() - started
            [(index,)] = store.database.execute("SELECT pg_relation_size(to_regclass('rows_g1_hnsw'))")
            asking = embedded(queries, width, seed=1)
            graphs.append(
                {**vars(graph), "build_seconds": built, "index_bytes": int(index),
                 "all_bytes": store.upkeep("g1").bytes, "every_row": measured(gallery, asking, None),
                 "a_quarter": measured(gallery, asking, In("part", (3,)))}
            )  # fmt: skip
        [(server_version, extension)] = store.database.execute(
            "SELECT current_setting('server_version'), extversion FROM pg_extension WHERE extname = 'vector'"
        )
    return {"server": f"PostgreSQL {server_version}, pgvector {extension}, maintenance_work_mem {MEMORY}",
            "rows": rows, "width": width, "operators": form.operators, "candidates": form.candidates,
            "vector_bytes": 4 * rows * width, "add_seconds": added, "graphs": graphs}  # fmt: skip


def page(document: dict[str, Any]) -> str:
    mega = 1 << 20
    lines = [
        document["command"],
        document["machine"],
        document["server"],
        f"k = {K}, {document['queries']} queries, {ROUNDS} rounds",
        "",
    ]
    for shape in document["shapes"]:
        lines += [
            f"{shape['rows']:,} rows of {shape['width']:,} numbers ({shape['operators']}, "
            f"{shape['candidates']} candidates for each hit); vectors "
            f"{shape['vector_bytes'] / mega:,.0f} MiB, added in {shape['add_seconds']:.0f} s",
            "  m  ef_construction  ef_search  build s  index MiB   rows   recall@10  worst  approximate ms  exact ms",
        ]
        for graph in shape["graphs"]:
            for name, words in (("every_row", "all"), ("a_quarter", "1/4")):
                found = graph[name]
                lines.append(
                    f"{graph['m']:>3}  {graph['ef_construction']:>15}  {graph['ef_search']:>9}  "
                    f"{graph['build_seconds']:>7.1f}  {graph['index_bytes'] / mega:>9.1f}  {words:>5}  "
                    f"{found['recall']:>9.3f}  {found['worst_recall']:>5.2f}  "
                    f"{found['approximate_ms']['median']:>14.1f}  {found['exact_ms']['median']:>8.1f}"
                )
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, help="of each shape, at most; writes nothing")
    parser.add_argument("--queries", type=int, default=QUERIES)
    options = parser.parse_args()
    server = Server()
    try:
        server.execute(f"ALTER SYSTEM SET maintenance_work_mem = '{MEMORY}'")
        server.execute("SELECT pg_reload_conf()")
        shapes = [
            measure(server, min(rows, options.rows or rows), width, settings, options.queries)
            for rows, width, settings in SHAPES
        ]
    finally:
        server.stop()
    document = {"command": f"python {' '.join(['benchmarks/wide_vectors.py', *sys.argv[1:]])}",
                "machine": describe("psycopg", "pgvector"), "server": shapes[0]["server"],
                "queries": options.queries, "shapes": shapes}  # fmt: skip
    print(page(document))
    if options.rows is None:
        write_json(RESULTS / "wide_vectors.json", document)
        (RESULTS / "wide_vectors.txt").write_text(page(document) + "\n")


if __name__ == "__main__":
    main()
