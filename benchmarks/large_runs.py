"""How long runs at size take, and the memory they need: a million rows in each store, and the largest measurements.

    python benchmarks/large_runs.py                    # about half an hour on two cores; writes large_runs.txt
    python benchmarks/large_runs.py --only adapt       # rows whose name contains a word, added to that file

Every row is a process of its own on made vectors. Seconds are those of the clock. Memory is the highest resident set of
its processes, with the vectors that they were given and with files that are mapped; that of a PostgreSQL server is not
included. `adapter_speed.py` has the adapters.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import adapter_speed
from limpet import EmbeddingSet, Gallery
from limpet.embeddings.storage import save
from limpet.evaluation.retrieval import rank_metrics
from machine import describe
from ratios import a_server
from ratios_galleries import NEW, OLD, SPACE, Ready, Scene, embeddings, queries, vectors
from ratios_metrics import HARD, NAMES, sides

RESULT = Path(__file__).parent / "results" / "large_runs.txt"
ITEMS, BACKFILLED = 1_000_000, 100_000
PAIRS, WIDE = 200_000, 768

Steps = dict[str, float]
"""Seconds of every step."""


@contextmanager
def timed(steps: Steps, name: str) -> Iterator[None]:
    """Note how long something takes."""
    began = time.perf_counter()
    yield
    steps[name] = time.perf_counter() - began


def store(engine: str, scene: Scene) -> Steps:
    """Import a million items, search, upgrade a tenth of them, and open the gallery again."""
    steps: Steps = {}
    items, source = embeddings(ITEMS), Ready(vectors(ITEMS, 2))
    gallery = scene.gallery(engine)
    with timed(steps, f"import {ITEMS:,}"):
        gallery.add(items)
    gallery.search(queries()[0], fingerprint=OLD)
    with timed(steps, "100 exact queries"):
        for query in queries():
            gallery.search(query, fingerprint=OLD)
    gallery.start(NEW, SPACE)
    gallery.swap(force="the vectors are made")
    with timed(steps, f"backfill {BACKFILLED:,}"):
        gallery.backfill(source, budget=BACKFILLED)
    with timed(steps, "100 queries of both models' vectors"):
        for query in queries():
            gallery.search(query, fingerprint=NEW)
    with timed(steps, "one upsert"):
        gallery.upsert(items[[0]])
    url = gallery.store.url
    with timed(steps, "open, status"), Gallery.open(url) as again:
        again.status()
    return steps


def ranking(asked: int, items: int, _: Scene) -> Steps:
    """Measure mAP, recall and mAP@R."""
    steps: Steps = {}
    query, gallery = sides(items, 50, HARD, asked)
    with timed(steps, "mAP, recall@1, mAP@R"):
        rank_metrics(query, gallery, NAMES)
    return steps


def adapt(scene: Scene) -> Steps:
    """Choose an adapter by `limpet adapt`, a command."""
    steps: Steps = {}
    places = [str(scene.folder / f"{name}.safetensors") for name in ("old", "new")]
    for made, place in zip(adapter_speed.embeddings(PAIRS, (WIDE, WIDE), 96, 0), places, strict=True):
        save(EmbeddingSet(made, model=place), place)
    words = ["adapt", "--old", places[0], "--new", places[1], "--out", str(scene.folder / "adapted")]
    with timed(steps, "limpet adapt"):
        done = subprocess.run([sys.executable, "-m", "limpet", *words], capture_output=True, text=True)
    if done.returncode not in (0, 1, 3):
        raise RuntimeError(done.stderr)
    return steps


ROWS: dict[str, Callable[[Scene], Steps]] = {
    "memory": partial(store, "memory"),
    "LanceDB": partial(store, "lance"),
    "PostgreSQL": partial(store, "postgresql"),
    "10,000 queries x 50,000 items x 128": partial(ranking, 10_000, 50_000),
    "20,000 queries x 200,000 items x 128": partial(ranking, 20_000, 200_000),
    f"adapt, {PAIRS:,} pairs x {WIDE}": adapt,
}
"""What is measured."""


def measured(name: str) -> dict[str, Any]:
    """Return the steps and the memory of a row, in this process."""
    with a_server(name == "PostgreSQL") as server, tempfile.TemporaryDirectory(prefix="limpet-large-") as folder:
        scene = Scene(Path(folder), **server)
        with scene.opened:
            steps = ROWS[name](scene)
    kilobytes = max(resource.getrusage(of).ru_maxrss for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {"steps": steps, "gigabytes": kilobytes / 2**20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(measured(options.row)))
        return
    before = RESULT.read_text() + "\n" if options.only else ""
    names = [name for name in ROWS if options.only in name]
    lines = []
    for number, name in enumerate(names, 1):
        done = subprocess.run([sys.executable, __file__, "--row", name], check=True, stdout=subprocess.PIPE)
        found = json.loads(done.stdout.splitlines()[-1])
        lines += [f"{name}: {found['gigabytes']:.2f} GB at most"]
        lines += [f"  {step:<36}{seconds:10.2f} s" for step, seconds in found["steps"].items()]
        print("\n".join(lines[-1 - len(found["steps"]) :]), flush=True)
        told = [f"python benchmarks/large_runs.py{' --only ' * bool(options.only)}{options.only}"]
        told += [f"not measured: {one}" for one in names[number:]]  # what follows may take long
        RESULT.write_text(before + "\n".join([*told, "", *lines, "", describe("pylance", "psycopg", "pgvector"), ""]))


if __name__ == "__main__":
    main()
