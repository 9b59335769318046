"""Whole upgrades of a live gallery: swap, backfill in several orders while queries are served, and the way back.

    python benchmarks/gallery_upgrade.py                     # about an hour on two cores, with training
    python benchmarks/gallery_upgrade.py --only calibrated   # upgrades whose name has this; others as they were
    python benchmarks/gallery_upgrade.py --tables-only       # the page again, from the committed records

Omniglot's evaluation images with a compatible release on the hypersphere and one in Lorentz space, and CLINC150 with
two frozen text models that only an adapter links, with and without `limpet gallery calibrate` after every tenth. For
every order a fresh gallery (LanceDB) is made by the old model, the upgrade to the new one is started and swapped, and
the backfill goes from 0 to 100 % in tenths. At every tenth new queries are asked and scored; all the time another
thread sends queries, and checks that every score is the inner product of its query with the vector of the generation
that the hit names (where a merge makes other scores of them: that it has the item). At the end every vector is read,
the upgrade is rolled back, and the old queries are asked again. Finished runs are kept in the work
folder; started again, the script goes on.

Average precision counts the first 300 hits and divides by all relevant items ("map@300"). Writes
gallery_upgrade.json and gallery_upgrade.md.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from gallery_upgrade_models import UPGRADES, Upgrade
from gallery_upgrade_tables import page
from limpet.data.datasets import data_root
from limpet.embeddings import EmbeddingSet, storage
from limpet.evaluation.upgrade import Curve
from limpet.galleries import Gallery, Reply
from limpet.galleries.served import class_names_of, items_of_class, served
from limpet.upgrade.vector_sources import FileVectors
from machine import describe
from task_pool import read_json, write_json

RESULTS = Path(__file__).parent / "results"
RUNS = Path(__file__).parents[1] / "runs"
ORDERS = ("random", "id")
DEPTH = 300
QUERIES = 200
TENTHS = 10


class Serving(threading.Thread):
    """Sends queries as long as it runs, and checks every hit against the vectors that the models made."""

    def __init__(self, gallery: Gallery, queries: EmbeddingSet, vectors: dict[str, EmbeddingSet]) -> None:
        super().__init__(daemon=True)
        self.gallery, self.queries = gallery, queries
        self.known = {name: dict(zip(of.ids, range(len(of)), strict=True)) for name, of in vectors.items()}
        self.forms = {name: of.space.index_form(of.vectors, "gallery") for name, of in vectors.items()}
        self.form = queries.space.index_form(queries.vectors, "query")
        self.served = self.failed = self.mixed = 0
        self.going = True

    def run(self) -> None:
        rng = np.random.default_rng(0)
        while self.going:
            row = int(rng.integers(len(self.queries)))
            try:
                reply = self.gallery.search(self.queries[[row]], k=10)
            except Exception as error:  # every failure counts, of whatever kind
                print(f"failed: {error!r}", flush=True)
                self.failed += 1
                continue
            self.served += 1
            self.mixed += not all(self._fits(row, hit, reply.merge == "score") for hit in reply.hits[0])
            time.sleep(0.05)

    def _fits(self, row: int, hit: Any, by_score: bool) -> bool:
        at = self.known.get(hit.generation, {}).get(hit.id)
        if at is None or not by_score:  # scores of other merges are no inner products
            return at is not None
        return abs(float(self.forms[hit.generation][at] @ self.form[row]) - hit.score) < 1e-3

    def stop(self) -> dict[str, int]:
        self.going = False
        self.join()
        return {"served": self.served, "failed": self.failed, "mixed": self.mixed}


def scored(gallery: Gallery, queries: EmbeddingSet) -> tuple[Reply, dict[str, float]]:
    """Ask a gallery, and return its reply with map@300 and recall@1."""
    reply = gallery.search(queries, k=DEPTH)
    found = served(reply, class_names_of(queries), items_of_class(gallery.store), DEPTH)
    return reply, {"map@300": found.map_at_k, "recall@1": found.recall_at_1}


def upgraded(upgrade: Upgrade, order: str, seed: int, folder: Path) -> dict[str, Any]:
    """Carry one gallery through its upgrade and back, and return what was measured on the way."""
    old, new = upgrade.old[1], upgrade.new[1]
    chosen = np.sort(np.random.default_rng(seed).permutation(len(upgrade.old[0]))[:QUERIES])
    asked_old, asked_new = upgrade.old[0][chosen], upgrade.new[0][chosen]
    gallery = Gallery.create(
        str(folder), fingerprint=old.fingerprint, space=old.space, columns={"label": "text"}, note="old"
    )
    gallery.add(old)
    before, score_before = scored(gallery, asked_old)
    link = {"reports": [upgrade.report]} if upgrade.adapter is None else {"adapter": upgrade.adapter}
    file = storage.save(new, folder.parent / "new.safetensors")
    generation = gallery.start(new.fingerprint, new.space, note="new", **link)
    known = {"g1": old, generation.name: new}
    if "g2" not in known:
        known["g2"] = mapped(upgrade)
    server = Serving(gallery, asked_new, known)
    gallery.swap()
    server.start()
    source, curve = FileVectors([file]), []
    for tenth in range(TENTHS + 1):
        if tenth:
            left = round(len(old) * tenth / TENTHS) - round(len(old) * (tenth - 1) / TENTHS)
            gallery.backfill(source, order=order, budget=left if tenth < TENTHS else None, batch=256, seed=seed)
            if upgrade.calibrated and tenth < TENTHS:
                gallery.calibrate(seed=seed)
        reply, score = scored(gallery, asked_new)
        curve.append({**score, "covered": reply.covered})
    counts = server.stop()
    check = gallery.check_vectors()
    gallery.rollback()
    after, score_after = scored(gallery, asked_old)
    found = {
        "order": order, "seed": seed, "curve": curve, **counts, "items": len(old), "census": check.right,
        "before": score_before, "after": score_after,
        "same_hits_after_rollback": before.hits == after.hits,
    }  # fmt: skip
    gallery.close()
    return found


def mapped(upgrade: Upgrade) -> EmbeddingSet:
    from limpet.adapters.storage import load_adapter

    return load_adapter(upgrade.adapter or "").apply(upgrade.old[1])


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    root = data_root(arguments.root)
    assert root is not None, "set LIMPET_DATA"
    started, records = time.monotonic(), []
    if arguments.only:
        found = read_json(arguments.out / "gallery_upgrade.json")["records"]
        records = [record for record in found if arguments.only not in record["upgrade"]]
    for number, (name, make) in enumerate(UPGRADES.items()):
        if arguments.only not in name:
            continue
        for seed in arguments.seeds:
            work = arguments.work / f"{number}-{seed}"
            files = {order: work / f"{order}.json" for order in ORDERS}
            upgrade = None if all(file.exists() for file in files.values()) else make(seed, root, work)
            for order, file in files.items():
                if upgrade is not None and not file.exists():
                    with tempfile.TemporaryDirectory() as folder:
                        write_json(file, upgraded(upgrade, order, seed, Path(folder) / "gallery"))
                record = read_json(file)
                shares = np.linspace(0, 1, TENTHS + 1)
                values = np.array([point["map@300"] for point in record["curve"]])
                record |= {"upgrade": name, "area": Curve(shares, values, "map@300").area}
                records.append(record)
                print(f"{time.monotonic() - started:.0f} s | {name}, seed {seed}, {order}: area {record['area']:.3f}, "
                      f"served {record['served']}, failed {record['failed']}, mixed {record['mixed']}, "
                      f"back exactly: {record['same_hits_after_rollback']}", flush=True)  # fmt: skip
    return {"command": "python benchmarks/gallery_upgrade.py", "machine": describe(), "seeds": arguments.seeds,
            "queries": QUERIES, "records": records}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--root", type=Path, help="data root (default: the environment variable LIMPET_DATA)")
    parser.add_argument("--work", type=Path, default=RUNS / "gallery_upgrade")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", default="", help="part of the names of upgrades")
    parser.add_argument("--again", action="store_true", help="forget finished upgrades, but not the models")
    parser.add_argument("--tables-only", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if arguments.again:
        for order in ORDERS:
            for file in arguments.work.glob(f"*/{order}.json"):
                file.unlink()
    if not arguments.tables_only:
        write_json(arguments.out / "gallery_upgrade.json", measured(arguments))
    text = page(read_json(arguments.out / "gallery_upgrade.json"))
    (arguments.out / "gallery_upgrade.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
