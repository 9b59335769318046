"""Whether a variance that is learnt with the map of a gallery tells which items to embed anew first.

    python benchmarks/backfill_variance.py --data ../shared/data       # LIMPET_DATA when left out

A gallery of static words (wordllama, 256 numbers) is mapped to MiniLM-L6 (384) by the adapter `fastfill`, fitted on
8,000 of the training texts that each seed draws; queries are MiniLM's. The gallery is then backfilled in each order,
and mAP measured at every tenth. Areas are means over the way, in percent; the intervals (95 %) draw whole classes of
queries, of means over the seeds; spreads are standard deviations over the seeds. "errors known" begins with the items
whose mapped vectors are truly farthest from the new ones: no order can know them. "error told" is the rank correlation
of the learnt variance with the true error of the gallery's items. One thread; seconds are of the processor.
Writes backfill_variance.md.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr

from limpet.adapters import build_adapter
from limpet.adapters.base import Adapter
from limpet.embeddings import EmbeddingSet
from limpet.evaluation.intervals import Draws, clusters_of
from limpet.evaluation.retrieval import rank_metrics
from limpet.galleries import Gallery
from limpet.linking.compare import means_of
from machine import describe
from partial_labels import embedded

RESULTS = Path(__file__).parent / "results"
ORDERS = ("random", "uncertainty", "variance")
KNOWN = "errors known"
TENTHS = 10
PAIRS = 8000
Floats = NDArray[np.float64]


class Recorder:
    """A source of vectors that notes in which order it is asked for them."""

    def __init__(self, embeddings: EmbeddingSet) -> None:
        self.embeddings = embeddings
        self.fingerprint, self.space = embeddings.fingerprint, embeddings.space
        self.asked: list[str] = []

    def embed(self, ids: Any) -> EmbeddingSet:
        self.asked += ids
        return self.embeddings.select(self.embeddings.ids.find(ids))


def asked_in(order: str, old: EmbeddingSet, new: EmbeddingSet, adapter: Adapter, seed: int) -> NDArray[np.int64]:
    """Backfill a gallery that an adapter maps, and return the rows of its items in the order they were embedded in."""
    with Gallery.create("memory://", fingerprint=old.fingerprint, space=old.space) as gallery:
        gallery.add(old.replace(labels=None, class_names=None))
        gallery.prepare(new.fingerprint, new.space, adapter=adapter)
        source = Recorder(new)
        gallery.backfill(source, order=order, seed=seed)
        return old.ids.find(source.asked)


def way(query: EmbeddingSet, mapped: EmbeddingSet, new: EmbeddingSet, rows: NDArray[np.int64]) -> Floats:
    """Return mAP of every query, a mean over the way from the mapped gallery to the new one (Q,)."""
    found = []
    for tenth in range(TENTHS + 1):
        vectors = np.array(mapped.vectors)
        done = rows[: round(len(rows) * tenth / TENTHS)]
        vectors[done] = new.vectors[done]
        found.append(rank_metrics(query, new.replace(vectors=vectors), ("map",))["map"])
    return np.trapezoid(np.stack(found), dx=1 / TENTHS, axis=0)


def measured(sets: Any, seeds: list[int]) -> list[str]:
    """Return the lines of one data set."""
    query, (old, new) = sets["new", "query"], (sets[side, "gallery"] for side in ("old", "new"))
    areas: dict[str, list[Floats]] = {name: [] for name in (*ORDERS, KNOWN)}
    told, seconds = [], []
    for seed in seeds:
        rows = np.sort(np.random.default_rng(seed).permutation(len(sets["old", "train"]))[:PAIRS])
        pairs = [sets[side, "train"].select(rows) for side in ("old", "new")]
        began = time.process_time()
        adapter = build_adapter("fastfill", {"direction": "old_to_new", "seed": seed}).fit(*pairs)
        seconds.append(time.process_time() - began)
        mapped = adapter.apply(old)
        errors = 1 - np.einsum("nd,nd->n", mapped.vectors, new.vectors)
        told.append(float(spearmanr(adapter.variances(old.vectors), errors).statistic))
        for order in ORDERS:
            areas[order].append(way(query, mapped, new, asked_in(order, old, new, adapter, seed)))
        areas[KNOWN].append(way(query, mapped, new, np.argsort(-errors, kind="stable")))
        print(seed, {name: round(100 * float(of[-1].mean()), 2) for name, of in areas.items()}, flush=True)
    draws = Draws(2000, 0.95, 0, clusters_of(query.labels, "auto", "queries", "labels"))
    means = {name: np.mean(of, axis=0) for name, of in areas.items()}
    gains = means_of({name: values - means["random"] for name, values in means.items()}, draws)
    lines = ["| first | area | above random | interval |", "| --- | ---: | ---: | ---: |"]
    for name, of in areas.items():
        by_seed = 100 * np.array([values.mean() for values in of])
        low, high = (100 * end for end in gains[name].interval)
        gain = "– | –" if name == "random" else f"{100 * gains[name].mean:+.2f} | {low:+.2f} to {high:+.2f}"
        spread = by_seed.std(ddof=1) if len(of) > 1 else 0
        lines.append(f"| {name} | {by_seed.mean():.2f} ± {spread:.2f} | {gain} |")
    return [
        *lines,
        "",
        f"Error told: {np.mean(told):.2f} ({min(told):.2f} to {max(told):.2f}). A fit takes {np.mean(seconds):.0f} s.",
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("LIMPET_DATA", "")))
    parser.add_argument("--sets", nargs="+", default=["clinc150", "banking77"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--work", type=Path, default=Path("runs/partial-labels"))
    parser.add_argument("--out", type=Path, default=RESULTS / "backfill_variance.md")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        "# A learnt variance as the order of a backfill",
        "",
        " ".join((__doc__ or "").split("\n\n")[2].split()),
        "",
    ]
    for data in given.sets:
        lines += [f"## {data}", "", *measured(embedded(data, given.data, given.work), given.seeds)]
        print("\n".join(lines[-9:]), flush=True)
        seeds = f"Seeds {', '.join(map(str, given.seeds))}."
        given.out.write_text("\n".join([*lines, describe(), "", seeds]) + "\n")


if __name__ == "__main__":
    main()
