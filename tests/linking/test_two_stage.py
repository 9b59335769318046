"""Two-stage search among held-out items: its scores are those of `rescored_metrics`, its cost is counted by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from limpet.embeddings import StringArray
from limpet.errors import ConfigError, DataError
from limpet.evaluation.protocols.relevance_lists import Relevance, RelevancePairs
from limpet.evaluation.retrieval import rank_metrics, top_k
from limpet.evaluation.two_stage import rescored, rescored_metrics
from limpet.linking.compare import measure
from limpet.linking.held_out import Judged
from limpet.linking.two_stage import two_stage

QUICK = {"resamples": 100}


def test_with_labels_it_is_what_the_evaluation_measures(labelled, adapter) -> None:
    found = two_stage(labelled, **QUICK)
    old, new = (labelled.old, labelled.old), (labelled.new, labelled.new)
    count = min(100, max(10, len(labelled.old) // 10))
    values = rescored_metrics(old, new, count, ("map",), exclude_same_id=True)["map"]
    assert (found.candidates, found.queries) == (count, len(labelled.old))
    assert found.cross.mean == pytest.approx(np.nanmean(values))
    beside = measure([adapter("ridge")], labelled, **QUICK)
    assert found.cross_minus_self_old.mean == pytest.approx(np.nanmean(values) - beside.self_old.mean)
    assert found.self_new_minus_cross.mean == pytest.approx(beside.self_new.mean - np.nanmean(values))
    gain = beside.self_new_minus_self_old
    expected = found.cross_minus_self_old.mean / gain.mean if gain.above_zero else None
    assert found.recovered == pytest.approx(expected)


@pytest.mark.parametrize("candidates", [0, 12, 10_000])
def test_its_cost_is_that_of_items_not_seen_before(labelled, candidates) -> None:
    found = two_stage(labelled, candidates=candidates, **QUICK)
    rows = top_k(labelled.old, labelled.old, candidates or 1, exclude_same_id=True).rows[:, :candidates]
    seen = {row for row in rows.ravel().tolist() if row >= 0}
    assert found.encoded == pytest.approx(len(seen) / len(labelled.old))
    assert found.encoded_per_query == pytest.approx(len(seen) / len(labelled.old))
    ends = {0: labelled.old, 10_000: labelled.new}
    if candidates in ends:
        side = ends[candidates]
        alone = rank_metrics(side, side, ("map",), exclude_same_id=True)["map"]
        assert found.cross.mean == pytest.approx(np.nanmean(alone))


def test_without_labels_it_is_agreement_with_re_embedding(unlabelled) -> None:
    found = two_stage(unlabelled, candidates=15, **QUICK)
    rows = rescored((unlabelled.old,) * 2, (unlabelled.new,) * 2, 15, exclude_same_id=True).rows
    wanted = top_k(unlabelled.new, unlabelled.new, 10, exclude_same_id=True).rows
    shares = [len(set(mine[:10]) & set(all_[:10])) / 10 for mine, all_ in zip(rows, wanted, strict=True)]
    assert found.cross.mean == pytest.approx(np.mean(shares))
    assert found.self_new_minus_cross.mean == pytest.approx(1 - np.mean(shares))
    assert two_stage(unlabelled, candidates=10_000, **QUICK).cross.mean == 1


def test_judged_queries_ask_and_are_measured_by_their_judgements(labelled) -> None:
    few = np.arange(7)
    sides = [side[few].replace(ids=[f"q{row}" for row in few], role="query") for side in (labelled.old, labelled.new)]
    pairs = [(f"q{row}", str(labelled.old.ids[int(row) + 20])) for row in few] + [("q0", str(labelled.old.ids[3]))]
    query, item = (StringArray.of(side) for side in zip(*pairs, strict=True))
    relevance = Relevance(pairs=RelevancePairs(query, item, np.zeros(len(pairs), np.bool_)), judged=True)
    judged = dataclasses.replace(labelled, judged=Judged.of(*sides, relevance))
    found = two_stage(judged, candidates=12, **QUICK)
    lists = relevance.answers(sides[0], labelled.old)
    values = rescored_metrics(
        (sides[0], labelled.old), (sides[1], labelled.new), 12, ("ndcg@10",), relevant=lists.relevant
    )["ndcg@10"]
    alone = relevance.measure(sides[0], labelled.old, ("ndcg@10",))["ndcg@10"]
    assert (found.queries, found.encoded <= 7 * 12 / len(labelled.old)) == (7, True)
    assert found.cross.mean == pytest.approx(values.mean())
    assert found.cross_minus_self_old.mean == pytest.approx(values.mean() - alone.mean())


def test_wrong_options_are_refused(labelled, unlabelled) -> None:
    with pytest.raises(ConfigError, match="candidates=-1"):
        two_stage(labelled, candidates=-1)
    with pytest.raises(DataError, match="'map' for items without labels"):
        two_stage(unlabelled, metric="map")
