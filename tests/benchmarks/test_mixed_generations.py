"""A gallery that is partly re-embedded, searched in two spaces: three merges of the results, against `merging`."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.adapters import ScoreMap
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import ConfigError, DataError, EmptyOverlapError, SpaceMismatchError
from limpet.evaluation.metrics import metrics_named
from limpet.evaluation.ranking.engine import Ranked
from limpet.evaluation.ranking.merging import calibrated_merge, reciprocal_rank_merge
from limpet.evaluation.retrieval import rank_metrics
from limpet.evaluation.sides import Sides
from limpet.evaluation.upgrade import random_order
from limpet.geometry import Hypersphere

mixed_gallery = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "mixed_generations.py"))["mixed_gallery"]

EXACT = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [-1, 0, 0, 0], [0.5] * 4, [0.5, -0.5] * 2, [-0.5] * 4], np.float32)
"""Unit vectors whose inner products are -1, -0.5, 0, 0.5 and 1, without any rounding."""
TO_NEW = ScoreMap.fit([-1.0, 0.0, 0.5, 1.0], [0.0, 0.0, 1.0, 1.0])
"""Level at both ends, so that many mapped scores are equal to each other and to scores of the new model."""


def embedded(name: str, part: str, vectors: Any, classes: int = 5) -> EmbeddingSet:
    rows = np.asarray(vectors, np.float32)
    ids = StringArray.of(f"{part}{row}" for row in range(len(rows)))
    labels = np.arange(len(rows)) % classes
    return EmbeddingSet(rows, ids, f"declared:{name}", Hypersphere(rows.shape[1]), labels=labels)


def drawn(seed: int, *, tied: bool, queries: int = 11, gallery: int = 30) -> tuple[Sides, Sides]:
    """Cross-test and new model in spaces of different dimension, with exactly equal scores or with hardly any."""
    rng = np.random.default_rng(seed)

    def vectors(size: int, dim: int) -> Any:
        return EXACT[rng.integers(0, len(EXACT), size)] if tied else rng.normal(size=(size, dim))

    cross = embedded("mapped", "q", vectors(queries, 4)), embedded("old", "g", vectors(gallery, 4))
    return cross, (embedded("new", "q", vectors(queries, 6)), embedded("new", "g", vectors(gallery, 6)))


def slow(cross: Sides, new: Sides, share: float, score_map: ScoreMap, metric: str, seed: int) -> dict[str, float]:
    """The definition: the results of both parts, merged by the functions that a gallery would use, for every query."""
    size = len(new[1])
    order = random_order(size, seed).tolist()
    count = round(share * size)
    values: dict[str, list[float]] = {"reciprocal_rank": [], "calibrated": [], "raw": []}
    for row, label in enumerate(new[0].labels):
        lists = []
        for (query, gallery), rows in ((new, sorted(order[:count])), (cross, sorted(order[count:]))):
            asked, items = unit(query.vectors[row : row + 1]), unit(gallery.vectors[rows])
            lists.append((rows, (items @ asked[0]).tolist()))
        merged = {
            "reciprocal_rank": reciprocal_rank_merge(lists),
            "calibrated": calibrated_merge(lists, [None, score_map]),
            "raw": calibrated_merge(lists, [None, None]),
        }
        for name, (found, _) in merged.items():
            assert sorted(found.tolist()) == list(range(size))
            ranks = np.flatnonzero(new[1].labels[found] == label)
            values[name].append(float(metrics_named((metric,))[metric](Ranked.of([ranks], [size]))[0]))
    return {name: float(np.nanmean(of_queries)) for name, of_queries in values.items()}


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("metric", ["map", "recall@1", "map@r"])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_the_mean_is_that_of_the_merged_lists(tied: bool, metric: str, share: float) -> None:
    for seed in range(4):
        cross, new = drawn(seed, tied=tied)
        found = mixed_gallery(cross, new, share, score_map=TO_NEW, metric=metric, seed=seed)
        assert found == pytest.approx(slow(cross, new, share, TO_NEW, metric, seed), rel=1e-12)


def test_by_hand() -> None:
    """The new item scores 0.6 and the old one, which is relevant, 0.8; its score is worth 0.4 to the new model."""
    new_row, old_row = random_order(2, seed=3)
    vectors, labels = np.zeros((2, 2), np.float32), np.zeros(2, np.int64)
    vectors[new_row], vectors[old_row], labels[old_row] = (0.6, 0.8), (0.8, 0.6), 1
    sides = embedded("new", "q", [[1, 0]]).replace(labels=np.array([1])), embedded("new", "g", vectors)
    sides = sides[0], sides[1].replace(labels=labels)
    to_new = ScoreMap.fit([0.0, 1.0], [0.0, 0.5])
    found = mixed_gallery(sides, sides, 0.5, score_map=to_new, seed=3)
    assert found == {"reciprocal_rank": 0.5, "calibrated": 0.5, "raw": 1.0}


def test_scores_that_are_on_one_scale_need_no_merge() -> None:
    _, new = drawn(0, tied=False, gallery=80)
    same = ScoreMap.fit([-1.0, 1.0], [-1.0, 1.0])
    found = mixed_gallery(new, new, 0.4, score_map=same, seed=0)
    whole = pytest.approx(np.nanmean(rank_metrics(*new, ("map",))["map"]), rel=1e-12)
    assert found["raw"] == whole and found["calibrated"] == whole and found["reciprocal_rank"] != whole


def test_items_are_matched_by_id_and_the_seed_says_which_are_new() -> None:
    (query, gallery), new = drawn(1, tied=False)
    first = mixed_gallery((query, gallery), new, 0.5, score_map=TO_NEW, seed=0)
    turned = query[np.arange(len(query))[::-1]], gallery[np.arange(len(gallery))[::-1]]
    assert mixed_gallery(turned, new, 0.5, score_map=TO_NEW, seed=0) == pytest.approx(first, rel=1e-12)
    assert mixed_gallery((query, gallery), new, 0.5, score_map=TO_NEW, seed=1) != pytest.approx(first, rel=1e-3)


def test_queries_without_relevant_items_do_not_count() -> None:
    cross, new = drawn(2, tied=False)
    asked = new[0].replace(labels=np.where(np.arange(len(new[0])) < 4, 9, new[0].labels))
    rows = slice(4, None)
    found = mixed_gallery(cross, (asked, new[1]), 0.5, score_map=TO_NEW, seed=0)
    fewer = (cross[0][rows], cross[1]), (new[0][rows], new[1])
    assert found == pytest.approx(mixed_gallery(*fewer, 0.5, score_map=TO_NEW, seed=0), rel=1e-12)
    with pytest.raises(EmptyOverlapError, match="None of the 11 queries"):
        mixed_gallery(cross, (asked.replace(labels=np.full(11, 9)), new[1]), 0.5, score_map=TO_NEW, seed=0)


@pytest.mark.parametrize(
    ("share", "message"),
    [(0, "0 of 30 items, which is 0"), (1, "which is 30"), (0.01, "which is 0"), (1.2, "share=1.2"), (np.nan, "=nan")],
)
def test_a_gallery_of_one_generation_is_refused(share: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        mixed_gallery(*drawn(0, tied=False), share, score_map=TO_NEW, seed=0)


def test_what_does_not_belong_together_is_refused() -> None:
    cross, new = drawn(0, tied=False)
    back = ScoreMap.fit([-1.0, 1.0], [-1.0, 1.0], direction="new_to_old")
    with pytest.raises(ConfigError, match="direction 'new_to_old'"):
        mixed_gallery(cross, new, 0.5, score_map=back, seed=0)
    for wrong in ((cross[0], new[1]), (new[0], cross[1])):
        with pytest.raises(SpaceMismatchError):
            mixed_gallery(wrong, new, 0.5, score_map=TO_NEW, seed=0)
        with pytest.raises(SpaceMismatchError):
            mixed_gallery(cross, wrong, 0.5, score_map=TO_NEW, seed=0)
    with pytest.raises(EmptyOverlapError, match="new gallery are not in the cross-test gallery"):
        mixed_gallery((cross[0], cross[1][1:]), new, 0.5, score_map=TO_NEW, seed=0)
    with pytest.raises(DataError, match="no labels"):
        mixed_gallery(cross, (new[0], new[1].replace(labels=None)), 0.5, score_map=TO_NEW, seed=0)
    with pytest.raises(ConfigError, match="Did you mean 'map'"):
        mixed_gallery(cross, new, 0.5, score_map=TO_NEW, metric="mapp", seed=0)
