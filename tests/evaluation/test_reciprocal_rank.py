"""MRR: worked numbers, and those of trec_eval."""

from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import ConfigError
from limpet.evaluation.metrics import metrics_named, reciprocal_rank
from limpet.evaluation.ranking.engine import Ranked
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.retrieval import rank_metrics
from limpet.geometry import Hypersphere
from limpet.support.wording import metric_name

QUERIES, ITEMS = 15, 60


def embedded(rows: int, letter: str) -> EmbeddingSet:
    rng = np.random.default_rng(rows)
    ids = StringArray.of(f"{letter}{row}" for row in range(rows))
    return EmbeddingSet(rng.normal(size=(rows, 6)).astype(np.float32), ids, "declared:one", Hypersphere(6))


def test_by_hand() -> None:
    ranked = Ranked.of([[0, 5], [3], []], [9, 9, 9])
    np.testing.assert_array_equal(reciprocal_rank()(ranked), [1, 1 / 4, np.nan])
    np.testing.assert_array_equal(reciprocal_rank(3)(ranked), [1, 0, np.nan])
    np.testing.assert_array_equal(reciprocal_rank(4)(ranked), [1, 1 / 4, np.nan])
    assert metric_name("mrr@10") == "MRR@10"
    with pytest.raises(ConfigError, match="Unknown metric 'mrr@ten'"):
        metrics_named(["mrr@ten"])


@pytest.mark.parametrize("k", [1, 3, 10])
def test_reciprocal_ranks_and_gains_are_those_of_trec_eval(k: int) -> None:
    query, gallery = embedded(QUERIES, "q"), embedded(ITEMS, "g")
    grades = np.random.default_rng(k).integers(-2, 4, (QUERIES, ITEMS)).clip(0)
    grades[0] = np.eye(ITEMS)[0]  # one that is hard to find
    owner, items = np.nonzero(grades)
    stops = np.cumsum(np.count_nonzero(grades, axis=1))
    lists = RowLists(items, np.append(0, stops[:-1]), stops, grades[owner, items].astype(float))
    found = rank_metrics(query, gallery, [f"mrr@{k}", "mrr", f"ndcg@{k}"], relevant=lists)
    scores = query.vectors @ (gallery.vectors / np.linalg.norm(gallery.vectors, axis=1)[:, None]).T
    judged = {f"q{row}": {f"g{item}": int(grades[row, item]) for item in range(ITEMS)} for row in range(QUERIES)}
    run = {f"q{row}": {f"g{item}": float(scores[row, item]) for item in range(ITEMS)} for row in range(QUERIES)}
    first = {name: dict(sorted(hits.items(), key=lambda hit: -hit[1])[:k]) for name, hits in run.items()}
    whole = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank", "ndcg_cut"}).evaluate(run)
    cut = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank"}).evaluate(first)
    for row in range(QUERIES):
        assert found["mrr"][row] == pytest.approx(whole[f"q{row}"]["recip_rank"])
        assert found[f"mrr@{k}"][row] == pytest.approx(cut[f"q{row}"]["recip_rank"])
        if k == 10:
            assert found["ndcg@10"][row] == pytest.approx(whole[f"q{row}"]["ndcg_cut_10"])
