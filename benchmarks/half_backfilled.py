"""Whether a gallery of which a part is embedded anew finds less than both ends, by the rule that merges its two parts.

    python benchmarks/half_backfilled.py --data ../shared/data       # LIMPET_DATA when left out

A gallery of static words (wordllama, 256 numbers) is backfilled with MiniLM-L6 (384) in random order; half of the test
sentences search it, at every tenth of the way. Its new part is searched by MiniLM's queries, its old part by the same
queries mapped to the old space ("mapped query", ridge on 8,000 training sentences), by old queries ("two queries"), or
its vectors are mapped to the new space ("mapped gallery", ridge). The two lists are merged by rank with the sizes of
both parts, by raw scores, or by scores that are taken from the old part's scale to the new one's without labels:
"cohort" by what the query scores on 1,000 of the training sentences in either space, of which the nearest 4 % count
(`Cohort`, what `Gallery.calibrate` does); "expected" and "quantiles" by a rising map, learnt from 1,000 training
sentences as queries, each with its 20 nearest and 20 random others: the new score to expect (isotonic regression,
`ScoreMap.fit`, what `Gallery.calibrate` did before), and the score of equal rank among these. mAP in percent, means
over five seeds, which draw pairs and order; the area is the mean height of the curve by the trapezoid rule with its
spread over the seeds (standard deviation). "below both" counts the tenths, of 9, at which the mean is below both ends,
"steps down" those of 10 steps that lead down by more than a tenth of a point.

The share of the cohort was chosen on other texts: half of the training sentences, 8,000 at most, are the pairs, and of
the others 600 search the rest. The last tables have the area there by share of the cohort, and at how many tenths the
mean is below both ends. Writes half_backfilled.md.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from numpy.typing import NDArray

from limpet.adapters import ScoreMap, build_adapter
from limpet.embeddings import EmbeddingSet
from limpet.evaluation.ranking.cohort import Cohort
from limpet.evaluation.retrieval import rank_metrics
from machine import describe
from partial_labels import embedded

RESULTS = Path(__file__).parent / "results"
TENTHS = 10
PAIRS, ASKED, NEAREST, OTHERS, COHORT = 8000, 1000, 20, 20, 1000
SHARES, CHOSEN = (0.01, 0.02, 0.03, 0.04, 0.06, 0.1, 0.2), 0.04  # of a cohort
ENOUGH, TRAINED = 1000, 600  # queries of a seed, on the test and on training sentences

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


def by_cohort(
    scores: Scores, queries: Sides, pairs: Sides, new: Sides, seed: int, shares: tuple[float, ...]
) -> dict[str, Scores]:
    """Return scores of the old part (Q, N) on the new one's scale, by shares of a cohort that count.

    Args:
        scores: As the old part gives them.
        queries: As they search the old part, and as they search the new one.
        pairs: Items of the cohort as queries and as items of the old part.
        new: Those of the new one.
        seed: Of the draw.
        shares: Of the cohort.
    """
    rows = np.sort(np.random.default_rng(seed).permutation(len(new[0]))[:COHORT])
    other_queries, other, own_queries, own = (np.asarray(one.vectors)[rows] for one in (*pairs, *new))
    found = {}
    for share in shares:
        cohort = Cohort.of(own, other, own_queries, other_queries, round(share * len(rows)))
        lines = cohort.lines(*(np.asarray(one.vectors) for one in queries[::-1]))
        found[f"cohort, {100 * share:g} %"] = np.stack(
            [line.apply(row).values for line, row in zip(lines, scores, strict=True)]
        ).astype(np.float32)
    return found


def by_rank(scores: Scores, share: float) -> Scores:
    """Return what orders a part by the rank to expect among all items, larger first."""
    order = np.argsort(-scores, axis=1)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(scores.shape[1])[None], axis=1)
    return (-(ranks + 0.5) / share).astype(np.float32)


def mapped(old: Scores, fitted: dict[str, ScoreMap]) -> dict[str, Scores]:
    """Return scores of the old part (Q, N) on the scale of the new one by rising maps, in their order where level."""
    return {name: (it.apply(old).values + 1e-5 * old).astype(np.float32) for name, it in fitted.items()}


def merged(
    old: Scores, new: Scores, fresh: NDArray[np.bool_], scaled: dict[str, Scores]
) -> Iterator[tuple[str, Scores]]:
    """Yield what orders the items of every query (Q, N) under each rule."""
    share = float(fresh.mean())
    ranked = np.empty_like(new)
    ranked[:, fresh], ranked[:, ~fresh] = by_rank(new[:, fresh], share), by_rank(old[:, ~fresh], 1 - share)
    yield "rank", ranked
    yield "raw scores", np.where(fresh, new, old)
    for name, scores in scaled.items():
        yield name, np.where(fresh, new, scores)


def precision(scores: Scores, right: NDArray[np.bool_]) -> float:
    """Return mAP in percent of scores (Q, N)."""
    found = np.take_along_axis(right, np.argsort(-scores, axis=1), axis=1)
    hits = np.cumsum(found, axis=1)
    values = (hits / np.arange(1, found.shape[1] + 1) * found).sum(axis=1) / found.sum(axis=1)
    return 100 * float(values.mean())


@dataclass
class Trial:
    """What searches what: embeddings of both models, by side."""

    pairs: dict[str, EmbeddingSet]
    query: dict[str, EmbeddingSet]
    gallery: dict[str, EmbeddingSet]

    @classmethod
    def on_test(cls, sets: Any, rng: np.random.Generator) -> Trial:
        rows = np.sort(rng.permutation(len(sets["old", "train"]))[:PAIRS])
        chosen = np.sort(rng.permutation(len(sets["new", "query"]))[:ENOUGH])
        return cls(
            {side: sets[side, "train"][rows] for side in ("old", "new")},
            {side: sets[side, "query"][chosen] for side in ("old", "new")},
            {side: sets[side, "gallery"] for side in ("old", "new")},
        )

    @classmethod
    def on_training(cls, sets: Any, rng: np.random.Generator) -> Trial:
        order = rng.permutation(len(sets["old", "train"]))
        half = min(PAIRS, len(order) // 2)
        parts = np.sort(order[:half]), np.sort(order[half : half + TRAINED]), np.sort(order[half + TRAINED :])
        return cls(*({side: sets[side, "train"][rows] for side in ("old", "new")} for rows in parts))


def curves(trial: Trial, seed: int, rng: np.random.Generator, shares: tuple[float, ...]) -> dict[str, list[float]]:
    """Return mAP at every tenth, by kind of first part and rule."""
    old, new = (trial.pairs[side].replace(labels=None, class_names=None) for side in ("old", "new"))
    queries, forwards = (
        build_adapter("ridge", {"direction": way}).fit(old, new) for way in ("new_to_old", "old_to_new")
    )
    query, gallery = trial.query, trial.gallery
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
        scaled = by_cohort(before, (sides[0], query["new"]), pairs, (new, new), seed, shares)
        scaled |= mapped(before, maps(pairs, (new, new), np.random.default_rng(seed)))
        ends = precision(before, right), precision(after, right)
        for tenth in range(1, TENTHS):
            fresh = np.isin(np.arange(len(order)), order[: round(len(order) * tenth / TENTHS)])
            for way, scores in merged(before, after, fresh, scaled):
                found.setdefault(f"{name}, {way}", [ends[0]]).append(precision(scores, right))
        for values in found.values():
            values.extend([ends[1]] * (TENTHS + 1 - len(values)))
    return found


def table(sets: Any, seeds: list[int]) -> list[str]:
    """Return the lines of one data set."""
    old = 100 * float(np.nanmean(rank_metrics(sets["old", "query"], sets["old", "gallery"], ("map",))["map"]))
    drawn = [(seed, np.random.default_rng(seed)) for seed in seeds]
    by_seed = [curves(Trial.on_test(sets, rng), seed, rng, (CHOSEN,)) for seed, rng in drawn]
    shares = " | ".join(f"{10 * tenth} %" for tenth in range(TENTHS + 1))
    lines = [
        f"Old queries on the old gallery: {old:.1f}.",
        "",
        f"| old part, merged by | {shares} | area | below both | steps down |",
        f"| --- |{' ---: |' * (TENTHS + 4)}",
    ]
    for name in by_seed[0]:
        values = np.array([of[name] for of in by_seed])
        mean = values.mean(axis=0)
        down = int((np.diff(mean) < -0.1).sum())
        cells = " | ".join(f"{value:.1f}" for value in mean)
        lines.append(f"| {name} | {cells} | {area(values)} | {below(values)} | {down} |")
    return [*lines, ""]


def area(values: NDArray[np.float64]) -> str:
    """Return the mean area of curves (seeds, shares) with its spread."""
    areas = np.trapezoid(values, dx=1 / TENTHS, axis=1)
    return f"{areas.mean():.2f} ± {areas.std(ddof=1) if len(areas) > 1 else 0:.2f}"


def below(values: NDArray[np.float64]) -> int:
    """Return at how many shares the mean of curves (seeds, shares) is below both ends."""
    mean = values.mean(axis=0)
    return int((mean[1:-1] < min(mean[0], mean[-1])).sum())


def choice(sets: Any, seeds: list[int]) -> list[str]:
    """Return the lines on training sentences, by share of the cohort."""
    drawn = [(seed, np.random.default_rng(seed)) for seed in seeds]
    by_seed = [curves(Trial.on_training(sets, rng), seed, rng, SHARES) for seed, rng in drawn]
    values = {name: np.array([of[name] for of in by_seed]) for name in by_seed[0]}
    cells = {name: f"{area(of_name)} | {below(of_name)}" for name, of_name in values.items()}
    firsts, ways = (list(dict.fromkeys(name.split(", ", 1)[place] for name in cells)) for place in (0, 1))
    return [
        f"| merged by | {' | '.join(f'{first}, area | below both' for first in firsts)} |",
        f"| --- |{' ---: |' * (2 * len(firsts))}",
        *(f"| {way} | {' | '.join(cells[f'{first}, {way}'] for first in firsts)} |" for way in ways),
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("LIMPET_DATA", "")))
    parser.add_argument("--sets", nargs="+", default=["clinc150", "banking77"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--work", type=Path, default=Path("runs/two-stage"))
    parser.add_argument("--out", type=Path, default=RESULTS / "half_backfilled.md")
    given = parser.parse_args()
    torch.set_num_threads(1)
    said = [" ".join(part.split()) for part in (__doc__ or "").split("\n\n")[2:]]
    lines, chosen = ["# Half-backfilled galleries", "", said[0], "", said[1], ""], list[str]()
    for data in given.sets:
        begun = time.process_time()
        sets = embedded(data, given.data, given.work)
        of_set = table(sets, given.seeds)
        lines += [f"## {data}", "", *of_set]
        chosen += [f"## {data}, training sentences", "", *choice(sets, given.seeds)]
        print("\n".join(of_set), f"{time.process_time() - begun:.0f} s", flush=True)
        seeds = f"Seeds {', '.join(map(str, given.seeds))}."
        given.out.write_text("\n".join([*lines, *chosen, describe(), "", seeds]) + "\n")


if __name__ == "__main__":
    main()
