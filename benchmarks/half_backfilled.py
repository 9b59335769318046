"""Whether a gallery of which a part is embedded anew finds less than both ends, by the rule that merges its two parts.

    python benchmarks/half_backfilled.py --data ../shared/data       # HOLDFAST_DATA when left out

A gallery of static words (wordllama, 256 numbers) is backfilled with MiniLM-L6 (384) in random order; half of the test
sentences search it, at every tenth of the way. Its new part is searched by MiniLM's queries, its old part by the same
queries mapped to the old space ("mapped query", ridge on 8,000 training sentences), by old queries ("two queries"), or
its vectors are mapped to the new space ("mapped gallery", ridge). The two lists are merged by rank with the sizes of
both parts, by raw scores, or by scores that a rising map takes from the old part's to the new one's, learnt without
labels from 1,000 training sentences as queries, each with its 20 nearest and 20 random others: "expected" is the new
score to expect (isotonic regression, what `ScoreMap.fit` does and `Gallery.calibrate` fits), "quantiles" the score of
equal rank among these. mAP in percent, means over five seeds, which draw pairs and order; the area is the mean height
of the curve by the trapezoid rule with its spread over the seeds (standard deviation). "below both" counts the tenths,
of 9, at which the mean is below both ends, "steps down" those of 10 steps that lead down by more than a tenth of a
point.
Writes half_backfilled.md.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.adapters import ScoreMap, build_adapter
from holdfast.embeddings import EmbeddingSet
from holdfast.evaluation.retrieval import rank_metrics
from machine import describe
from partial_labels import embedded

RESULTS = Path(__file__).parent / "results"
TENTHS = 10
PAIRS, ASKED, NEAREST, OTHERS = 8000, 1000, 20, 20
WAYS = ("rank", "raw scores", "expected", "quantiles")
ENOUGH = 1000  # queries of a seed

Scores = NDArray[np.float32]
Sides = tuple[EmbeddingSet, EmbeddingSet]


def maps(cross: Sides, new: Sides, rng: np.random.Generator) -> dict[str, ScoreMap]:
    """Fit both maps on training sentences that search each other; row i is the same sentence on all sides."""
    asked = np.sort(rng.permutation(len(new[0]))[:ASKED])
    before = cross[0].vectors[asked] @ cross[1].vectors.T
    before[np.arange(len(asked)), asked] = -np.inf
    near = np.argpartition(-before, NEAREST, axis=1)[:, :NEAREST]
    others = rng.integers(len(new[1]), size=(len(asked), OTHERS))
    items = np.concatenate([near, others], axis=1)
    kept = items != asked[:, None]
    after = np.einsum("qd,qnd->qn", new[0].vectors[asked], np.asarray(new[1].vectors)[items])
    old_scores, new_scores = np.take_along_axis(before, items, axis=1)[kept], after[kept]
    places = np.linspace(0, 1, 1001)
    quantiles = [np.quantile(scores.astype(np.float64), places) for scores in (old_scores, new_scores)]
    return {"expected": ScoreMap.fit(old_scores, new_scores), "quantiles": ScoreMap.fit(*quantiles)}


def by_rank(scores: Scores, share: float) -> Scores:
    """Return what orders a part by the rank to expect among all items, larger first."""
    order = np.argsort(-scores, axis=1)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(scores.shape[1])[None], axis=1)
    return (-(ranks + 0.5) / share).astype(np.float32)


def merged(
    old: Scores, new: Scores, fresh: NDArray[np.bool_], fitted: dict[str, ScoreMap]
) -> Iterator[tuple[str, Scores]]:
    """Yield what orders the items of every query (Q, N) under each rule."""
    share = float(fresh.mean())
    ranked = np.empty_like(new)
    ranked[:, fresh], ranked[:, ~fresh] = by_rank(new[:, fresh], share), by_rank(old[:, ~fresh], 1 - share)
    yield "rank", ranked
    yield "raw scores", np.where(fresh, new, old)
    for name, score_map in fitted.items():
        mixed = new.copy()
        mixed[:, ~fresh] = (
            score_map.apply(old[:, ~fresh]).values + 1e-5 * old[:, ~fresh]
        )  # keeps order where it is level
        yield name, mixed


def precision(scores: Scores, right: NDArray[np.bool_]) -> float:
    """Return mAP in percent of scores (Q, N)."""
    found = np.take_along_axis(right, np.argsort(-scores, axis=1), axis=1)
    hits = np.cumsum(found, axis=1)
    values = (hits / np.arange(1, found.shape[1] + 1) * found).sum(axis=1) / found.sum(axis=1)
    return 100 * float(values.mean())


def curves(sets: Any, seed: int) -> dict[str, list[float]]:
    """Return mAP at every tenth, by kind of first part and rule."""
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(sets["old", "train"]))[:PAIRS])
    old, new = (sets[side, "train"].select(rows).replace(labels=None, class_names=None) for side in ("old", "new"))
    queries, forwards = (
        build_adapter("ridge", {"direction": way}).fit(old, new) for way in ("new_to_old", "old_to_new")
    )
    chosen = np.sort(rng.permutation(len(sets["new", "query"]))[:ENOUGH])
    query = {side: sets[side, "query"].select(chosen) for side in ("old", "new")}
    gallery = {side: sets[side, "gallery"] for side in ("old", "new")}
    right = np.asarray(query["new"].labels)[:, None] == np.asarray(gallery["new"].labels)[None]
    order = rng.permutation(right.shape[1])
    after = query["new"].vectors @ gallery["new"].vectors.T
    firsts = {
        "mapped gallery": ((query["new"], forwards.apply(gallery["old"])), (new, forwards.apply(old))),
        "mapped query": ((queries.apply(query["new"]), gallery["old"]), (queries.apply(new), old)),
        "two queries": ((query["old"], gallery["old"]), (old, old)),
    }
    found: dict[str, list[float]] = {}
    for name, (sides, pairs) in firsts.items():
        before = sides[0].vectors @ sides[1].vectors.T
        fitted = maps(pairs, (new, new), np.random.default_rng(seed))
        ends = precision(before, right), precision(after, right)
        for way in WAYS:
            found[f"{name}, {way}"] = [ends[0]]
        for tenth in range(1, TENTHS):
            fresh = np.isin(np.arange(len(order)), order[: round(len(order) * tenth / TENTHS)])
            for way, scores in merged(before, after, fresh, fitted):
                found[f"{name}, {way}"].append(precision(scores, right))
        for way in WAYS:
            found[f"{name}, {way}"].append(ends[1])
    return found


def table(sets: Any, seeds: list[int]) -> list[str]:
    """Return the lines of one data set."""
    old = 100 * float(np.nanmean(rank_metrics(sets["old", "query"], sets["old", "gallery"], ("map",))["map"]))
    by_seed = [curves(sets, seed) for seed in seeds]
    shares = " | ".join(f"{10 * tenth} %" for tenth in range(TENTHS + 1))
    lines = [
        f"Old queries on the old gallery: {old:.1f}.",
        "",
        f"| old part, merged by | {shares} | area | below both | steps down |",
        f"| --- |{' ---: |' * (TENTHS + 4)}",
    ]
    for name in by_seed[0]:
        values = np.array([of[name] for of in by_seed])
        mean, areas = values.mean(axis=0), np.trapezoid(values, dx=1 / TENTHS, axis=1)
        below = int((mean[1:-1] < min(mean[0], mean[-1])).sum())
        down = int((np.diff(mean) < -0.1).sum())
        spread = areas.std(ddof=1) if len(seeds) > 1 else 0
        cells = " | ".join(f"{value:.1f}" for value in mean)
        lines.append(f"| {name} | {cells} | {areas.mean():.2f} ± {spread:.2f} | {below} | {down} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("HOLDFAST_DATA", "")))
    parser.add_argument("--sets", nargs="+", default=["clinc150", "banking77"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--work", type=Path, default=Path("runs/two-stage"))
    parser.add_argument("--out", type=Path, default=RESULTS / "half_backfilled.md")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = ["# Half-backfilled galleries", "", " ".join((__doc__ or "").split("\n\n")[2].split()), ""]
    for data in given.sets:
        begun = time.process_time()
        of_set = table(embedded(data, given.data, given.work), given.seeds)
        lines += [f"## {data}", "", *of_set]
        print("\n".join(of_set), f"{time.process_time() - begun:.0f} s", flush=True)
        seeds = f"Seeds {', '.join(map(str, given.seeds))}."
        given.out.write_text("\n".join([*lines, describe(), "", seeds]) + "\n")


if __name__ == "__main__":
    main()
