"""Two-stage search: equal to a slow loop, and at its ends to the two models by themselves."""

from __future__ import annotations

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, EmptyOverlapError
from limpet.evaluation.metrics import metrics_named
from limpet.evaluation.ranking.engine import Ranked
from limpet.evaluation.retrieval import rank_metrics, top_k
from limpet.evaluation.two_stage import rescored, rescored_metrics
from limpet.geometry import Hypersphere

METRICS = ("map", "recall@1", "ndcg@10", "mrr")


def side(seed: int, count: int, dim: int, name: str, *, distinct: int | None = None) -> EmbeddingSet:
    """Draw points; with few distinct ones, many tie."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(distinct or count, dim)).astype(np.float32)
    vectors = vectors[rng.integers(len(vectors), size=count)] if distinct else vectors
    return EmbeddingSet(
        ids=[f"{name}{row}" for row in range(count)],  # type: ignore[arg-type]
        vectors=vectors / np.linalg.norm(vectors, axis=1, keepdims=True),
        fingerprint=f"declared:{name}-{dim}",
        space=Hypersphere(dim),
        labels=np.arange(count) % 5,
    )


@pytest.fixture(params=[None, 7], ids=["all different", "many ties"])
def stages(request):
    """Queries and gallery by a model of 4 and by one of 6 dimensions."""
    first = side(0, 13, 4, "q"), side(1, 40, 4, "i", distinct=request.param)
    second = side(2, 13, 6, "q"), side(3, 40, 6, "i", distinct=request.param)
    return first, second


def scores_of(query: EmbeddingSet, gallery: EmbeddingSet, row: int) -> list[float]:
    """Return the scores of all items for one query."""
    asked = query.space.index_form(query.vectors, "query").astype(np.float64)[row]
    items = gallery.space.index_form(gallery.vectors, "gallery").astype(np.float64)
    return [float(np.float32(asked @ item)) for item in items]


def after_both(first, second, row: int, candidates: list[int], left_out: set[int]) -> list[list[int]]:
    """Return the items of one query in groups that tie, best first: candidates by the second stage, then the rest."""
    groups = []
    rest = [item for item in range(len(first[1])) if item not in (*candidates, *left_out)]
    for stage, items in ((second, candidates), (first, rest)):
        scores = scores_of(*stage, row)
        distinct = sorted({scores[item] for item in items}, reverse=True)
        groups += [[item for item in items if scores[item] == score] for score in distinct]
    return groups


def ranked_of(groups: list[list[int]], wanted: set[int]) -> tuple[list[int], list[int], list[int]]:
    """Return rank, ties and item of every wanted item."""
    found, above = [], 0
    for group in groups:
        found += [(above, len(group), item) for item in group if item in wanted]
        above += len(group)
    ranks, tied, items = zip(*found, strict=True)
    return [*ranks], [*tied], [*items]


@pytest.mark.parametrize("candidates", [0, 1, 7, 39, 40, 1000])
@pytest.mark.parametrize("leave_out", [False, True])
def test_it_equals_a_slow_loop(stages, candidates: int, leave_out: bool) -> None:
    first, second = stages
    if leave_out:  # every query is an item
        first, second = ((gallery[np.arange(13)], gallery) for _, gallery in stages)
    relevant = [np.flatnonzero(first[1].labels == label) for label in first[0].labels]
    values = rescored_metrics(first, second, candidates, METRICS, relevant=relevant, exclude_same_id=leave_out)
    found = rescored(first, second, candidates, exclude_same_id=leave_out).found
    ranks, tied = [], []
    for row in range(13):
        left_out = {row} if leave_out else set()
        chosen = [item for item in found[row].tolist() if item >= 0]
        scores = scores_of(*first, row)
        rest = [scores[item] for item in range(40) if item not in (*chosen, *left_out)]
        assert len(chosen) == min(candidates, 40 - len(left_out))
        assert min([scores[item] for item in chosen], default=2.0) >= max(rest, default=-2.0)
        groups = after_both(first, second, row, chosen, left_out)
        counted = ranked_of(groups, set(relevant[row].tolist()) - left_out)
        ranks.append(counted[0])
        tied.append(counted[1])
    ranked = Ranked.of(ranks, [40 - leave_out] * 13, tied)
    for name, metric in metrics_named(METRICS).items():
        np.testing.assert_allclose(values[name], metric(ranked), rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("candidates", [1, 7, 39])
def test_the_order_of_the_gallery_changes_nothing(stages, candidates: int) -> None:
    """Items that tie at the cut are chosen by their ids, so that a file sorted by class favours no class."""
    first, second = stages
    expected = rescored_metrics(first, second, candidates, METRICS)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(40)
        turned = tuple((query, gallery[order]) for query, gallery in stages)
        for name, values in rescored_metrics(*turned, candidates, METRICS).items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-12, err_msg=name)


def test_no_candidates_are_the_first_stage_and_all_items_the_second(stages) -> None:
    first, second = stages
    for candidates, sides in ((0, first), (40, second), (1000, second)):
        expected = rank_metrics(*sides, METRICS)
        for name, values in rescored_metrics(first, second, candidates, METRICS).items():
            assert (values == expected[name]).all(), (candidates, name)
    whole = rescored(first, second, 40)
    assert (whole.rows == top_k(*second, 40).rows).all()
    assert (whole.found == top_k(*first, 40).rows).all()


def test_items_are_matched_by_id_whatever_their_order(stages) -> None:
    first, second = stages
    shuffled = second[0][np.arange(13)[::-1]], second[1][np.random.default_rng(4).permutation(40)]
    assert (rescored(first, shuffled, 9).rows == rescored(first, second, 9).rows).all()


def test_what_is_encoded_is_counted_once(stages) -> None:
    first, second = stages
    found = rescored(first, second, 6)
    seen: set[int] = set()
    for row, count in zip(found.found.tolist(), found.new_encodings.tolist(), strict=True):
        assert count == len(set(row) - seen)
        seen |= set(row)
    assert found.encoded == len(seen) / 40
    assert rescored(first, second, 0).encoded == 0


def test_graded_answers_weigh(stages) -> None:
    """The best answer is worth what its rank after both stages gives."""
    from limpet.evaluation.ranking.row_lists import RowLists

    first, second = stages
    rows = np.concatenate([[row, 39 - row] for row in range(13)])
    starts = np.arange(0, 26, 2)
    graded = RowLists(rows, starts, starts + 2, np.tile([1.0, 3.0], 13))
    values = rescored_metrics(first, second, 8, ("ndcg",), relevant=graded)["ndcg"]
    found = rescored(first, second, 8).found
    for row in range(13):
        gains = {row: 1.0, 39 - row: 3.0}
        counted = ranked_of(after_both(first, second, row, found[row].tolist(), set()), set(gains))
        gain = sum(
            gains[item] * np.mean(1 / np.log2(np.arange(rank, rank + tied) + 2))
            for rank, tied, item in zip(*counted, strict=True)
        )
        assert values[row] == pytest.approx(gain / (3.0 + 1.0 / np.log2(3)))


def test_what_cannot_be_two_stages_is_refused(stages) -> None:
    first, second = stages
    with pytest.raises(ConfigError, match="candidates=-1"):
        rescored(first, second, -1)
    with pytest.raises(EmptyOverlapError, match="first stage's gallery"):
        rescored(first, (second[0], second[1][np.arange(39)]), 5)
