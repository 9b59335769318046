"""Two-stage search: equal to a slow loop, and at its ends to the two models by themselves."""

from __future__ import annotations

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, EmptyOverlapError
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


def order_of(query: EmbeddingSet, gallery: EmbeddingSet, row: int, rows: list[int]) -> list[int]:
    """Rank rows for one query, one score after another, ties by row."""
    asked = query.space.index_form(query.vectors, "query").astype(np.float64)[row]
    items = gallery.space.index_form(gallery.vectors, "gallery").astype(np.float64)
    return sorted(rows, key=lambda item: (-np.float32(asked @ items[item]), item))


def loop(first, second, candidates: int, relevant, left_out) -> dict[str, list[float]]:
    """Rank the whole gallery of every query in two stages, and measure it by the definitions."""
    found: dict[str, list[float]] = {name: [] for name in METRICS}
    for row in range(len(first[0])):
        items = [item for item in range(len(first[1])) if item != left_out[row]]
        ranked = order_of(*first, row, items)
        ranked = order_of(*second, row, ranked[:candidates]) + ranked[candidates:]
        wanted = set(relevant[row]) - {left_out[row]}
        places = [place for place, item in enumerate(ranked, 1) if item in wanted]
        gain = sum(1 / np.log2(place + 1) for place in places if place <= 10)
        best = sum(1 / np.log2(place + 1) for place in range(1, min(len(wanted), 10) + 1))
        found["map"].append(np.mean([count / place for count, place in enumerate(places, 1)]))
        found["recall@1"].append(float(places[0] == 1))
        found["ndcg@10"].append(gain / best)
        found["mrr"].append(1 / places[0])
    return found


@pytest.mark.parametrize("candidates", [0, 1, 7, 39, 40, 1000])
@pytest.mark.parametrize("leave_out", [False, True])
def test_it_equals_a_slow_loop(stages, candidates: int, leave_out: bool) -> None:
    first, second = stages
    if leave_out:  # every query is an item
        first, second = ((gallery.select(np.arange(13)), gallery) for _, gallery in stages)
    relevant = [np.flatnonzero(first[1].labels == label) for label in first[0].labels]
    left_out = [row if leave_out else -1 for row in range(13)]
    values = rescored_metrics(first, second, candidates, METRICS, relevant=relevant, exclude_same_id=leave_out)
    for name, expected in loop(first, second, candidates, relevant, left_out).items():
        np.testing.assert_allclose(values[name], expected, rtol=1e-12, err_msg=name)


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
    shuffled = second[0].select(np.arange(13)[::-1]), second[1].select(np.random.default_rng(4).permutation(40))
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
    for row in range(13):
        ranked = order_of(*first, row, list(range(40)))
        ranked = order_of(*second, row, ranked[:8]) + ranked[8:]
        gains = {row: 1.0, 39 - row: 3.0}
        gain = sum(gains.get(item, 0) / np.log2(place + 1) for place, item in enumerate(ranked, 1))
        assert values[row] == pytest.approx(gain / (3.0 + 1.0 / np.log2(3)))


def test_what_cannot_be_two_stages_is_refused(stages) -> None:
    first, second = stages
    with pytest.raises(ConfigError, match="-1 candidates"):
        rescored(first, second, -1)
    with pytest.raises(EmptyOverlapError, match="first stage's gallery"):
        rescored(first, (second[0], second[1].select(np.arange(39))), 5)
