"""nDCG: worked numbers, scikit-learn, and graded lists through protocols and curves."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import DataError
from limpet.evaluation.metrics import discounted_gain
from limpet.evaluation.ranking.engine import Ranked
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.retrieval import rank_metrics
from limpet.evaluation.upgrade import upgrade_curves
from limpet.geometry import Hypersphere


def embedded(vectors: np.ndarray, model: str = "declared:one", letter: str = "g") -> EmbeddingSet:
    ids = StringArray.of(f"{letter}{row}" for row in range(len(vectors)))
    space = Hypersphere(vectors.shape[1])
    return EmbeddingSet(vectors.astype(np.float32), ids, model, space, labels=np.arange(len(vectors)) % 3)


def test_by_hand() -> None:
    ranked = Ranked.of([[0, 2], [3], []], [4, 4, 4])
    assert np.allclose(discounted_gain()(ranked)[:2], [(1 + 1 / 2) / (1 + 1 / np.log2(3)), 1 / np.log2(5)])
    assert np.isnan(discounted_gain()(ranked)[2])
    assert np.allclose(discounted_gain(2)(ranked)[:2], [1 / (1 + 1 / np.log2(3)), 0])


def test_a_gain_is_needed_for_every_rank() -> None:
    for gains in ([1.0], [1.0, 0.0], [1.0, np.nan]):
        with pytest.raises(DataError, match="gains for 2 ranks"):
            Ranked(np.array([0, 1]), np.array([0, 2]), np.array([4]), np.array(gains))


@pytest.mark.parametrize("k", [1, 3, 10, 40])
def test_graded_lists_are_scored_as_scikit_learn_scores_them(k: int) -> None:
    rng = np.random.default_rng(k)
    query, gallery = embedded(rng.normal(size=(12, 5)), letter="q"), embedded(rng.normal(size=(40, 5)))
    grades = rng.integers(0, 4, (12, 40)).astype(float)
    owner, items = np.nonzero(grades)
    stops = np.cumsum(np.count_nonzero(grades, axis=1))
    lists = RowLists(items, np.append(0, stops[:-1]), stops, grades[owner, items])
    space = query.space
    scores = space.index_form(query.vectors, "query") @ space.index_form(gallery.vectors, "gallery").T
    found = rank_metrics(query, gallery, [f"ndcg@{k}", "map"], relevant=lists)
    expected = [ndcg_score(grades[[row]], scores[[row]], k=k) for row in range(12)]
    np.testing.assert_allclose(found[f"ndcg@{k}"], expected, rtol=1e-6)
    plain = rank_metrics(query, gallery, ["map"], relevant=RowLists(lists.values, lists.starts, lists.stops))
    np.testing.assert_array_equal(found["map"], plain["map"])  # grades change nothing where none are asked


def test_curves_begin_and_end_with_the_scores_of_the_graded_lists() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 4))
    query = embedded(rng.normal(size=(6, 4)), letter="q")
    old, new = embedded(vectors + rng.normal(size=(30, 4)), "declared:old"), embedded(vectors)
    lists = RowLists(np.tile(np.arange(5), 6), np.arange(0, 30, 5), np.arange(5, 31, 5), np.tile([1.0, 2, 3, 1, 2], 6))
    curves = upgrade_curves(query, old, new, metric="ndcg@10", relevant=lists, shares=(0, 0.5, 1))
    for end, gallery in ((0, old), (-1, new)):
        expected = rank_metrics(query, gallery, ["ndcg@10"], relevant=lists)["ndcg@10"].mean()
        assert curves["random"].values[end] == pytest.approx(expected)
