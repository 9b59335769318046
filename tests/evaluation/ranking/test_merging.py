from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.adapters import ScoreMap
from limpet.embeddings import StringArray
from limpet.errors import ConfigError, DataError
from limpet.evaluation.ranking.merging import calibrated_merge, reciprocal_rank_merge


def slow_merge(lists, score) -> list[tuple[str, float]]:
    """The definition: every item at its best place in any list; equals by list, then by place."""
    best: dict[str, tuple[float, int, int]] = {}
    for number, (ids, scores) in enumerate(lists):
        ranked = sorted(range(len(ids)), key=lambda i: (-scores[i], i))
        for place, i in enumerate(ranked):
            key = (-score(number, place, scores[i]), number, place)
            best[ids[i]] = min(best.get(ids[i], key), key)
    return [(name, -key[0]) for name, key in sorted(best.items(), key=lambda item: item[1])]


def drawn(seed: int, lists: int, size: int) -> list[tuple[list[str], list[float]]]:
    """Lists with equal scores, and with items that several of them found, some even twice."""
    rng = np.random.default_rng(seed)
    found = [[f"i{number}" for number in rng.integers(0, 12, rng.integers(0, size + 1))] for _ in range(lists)]
    return [(ids, rng.integers(0, 4, len(ids)).astype(float).tolist()) for ids in found]


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 3), st.integers(0, 12))
def test_ranks_merge_as_defined(seed, lists, size) -> None:
    given_lists = drawn(seed, lists, size)
    ids, scores = reciprocal_rank_merge(given_lists, k=7)
    expected = slow_merge(given_lists, lambda number, place, score: 1 / (7 + place + 1))
    assert ids.tolist() == [name for name, _ in expected]
    np.testing.assert_allclose(scores, [score for _, score in expected])


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 12))
def test_scores_merge_as_defined(seed, size) -> None:
    given_lists = drawn(seed, 3, size)
    maps = [ScoreMap.fit([0.5, 2.5], [0.0, 1.0]), None, ScoreMap.fit([0.0, 1.0, 3.0], [0.2, 0.2, 3.0])]
    ids, scores = calibrated_merge(given_lists, maps)

    def mapped(number: int, place: int, score: float) -> float:
        return score if maps[number] is None else float(maps[number].apply(score).values)

    expected = slow_merge(given_lists, mapped)
    assert ids.tolist() == [name for name, _ in expected]
    np.testing.assert_allclose(scores, [score for _, score in expected])


def test_a_map_never_turns_the_order_of_a_list() -> None:
    """Just below its middle knot this map gives more than at the knot, by rounding."""
    uneven = ScoreMap("old_to_new", np.array([1.9, 7.0, 7.1]), np.array([1.5, 4.2, 5.1]))
    ids, scores = calibrated_merge([(["b", "a"], [np.nextafter(7.0, 0), 7.0])], [uneven])
    assert ids.tolist() == ["a", "b"] and scores[0] >= scores[1]


def test_by_hand() -> None:
    ids, scores = reciprocal_rank_merge([(["a", "b", "c"], [3, 2, 1]), (["d", "b"], [0.1, 0.9])])
    assert ids.tolist() == ["a", "b", "d", "c"] and scores.tolist() == [1 / 61, 1 / 61, 1 / 62, 1 / 63]


def test_an_item_found_twice_gets_no_second_vote() -> None:
    ids, scores = reciprocal_rank_merge([(["a", "b"], [2, 1]), (["c", "b"], [2, 1])], k=0)
    assert ids.tolist() == ["a", "c", "b"] and scores.tolist() == [1, 1, 0.5]


def test_scales_have_no_say_in_ranks_and_all_of_it_in_scores() -> None:
    old, new = (["a", "b"], [0.9, 0.8]), (["c", "d"], [900.0, 800.0])
    assert reciprocal_rank_merge([old, new])[0].tolist() == ["a", "c", "b", "d"]
    assert calibrated_merge([old, new], [None, None])[0].tolist() == ["c", "d", "a", "b"]
    to_new = ScoreMap.fit([0.8, 0.9], [850.0, 950.0])
    assert calibrated_merge([old, new], [to_new, None])[0].tolist() == ["a", "c", "b", "d"]


def test_clipped_scores_keep_the_order_of_their_list() -> None:
    to_new = ScoreMap.fit([0.0, 0.5], [0.0, 1.0])
    ids, scores = calibrated_merge([(["a", "b", "c"], [0.7, 0.9, 0.8]), (["d"], [1.0])], [to_new, None])
    assert ids.tolist() == ["b", "c", "a", "d"] and scores.tolist() == [1, 1, 1, 1]


def test_ids_may_be_numbers() -> None:
    ids, _ = reciprocal_rank_merge([(np.array([7, 3]), np.array([0.2, 0.4])), (np.array([3, 9]), np.array([0.1, 0.0]))])
    assert ids.tolist() == [3, 7, 9] and ids.dtype == np.int64


@pytest.mark.parametrize("lists", [[], [([], [])], [([], []), ([], [])]])
def test_nothing_found_merges_to_nothing(lists) -> None:
    for ids, scores in (reciprocal_rank_merge(lists), calibrated_merge(lists, [None] * len(lists))):
        assert ids.tolist() == [] and scores.tolist() == []
    assert reciprocal_rank_merge([*lists, (["a"], [1.0])])[0].tolist() == ["a"]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([([3, 4], [1.0, 0.5]), (["3"], [1.0])], "types int64 and <U1"),
        ([(np.array([2**60 + 1]), [1.0]), (np.array([2**60], np.uint64), [1.0])], "types int64 and uint64"),
        ([([1, "1"], [1.0, 2.0])], "texts only, or whole numbers only"),
        ([([1.5], [1.0])], "type float64"),
        ([([None], [1.0])], "type object"),
    ],
)
def test_ids_that_could_be_taken_for_one_another_are_refused(lists, message) -> None:
    for merge in (reciprocal_rank_merge, lambda given: calibrated_merge(given, [None] * len(given))):
        with pytest.raises(DataError, match=message):
            merge(lists)


def test_ids_may_be_any_sequence_of_texts() -> None:
    for ids in (["a", "b"], np.array(["a", "b"]), np.array(["a", "b"], object), StringArray.of(["a", "b"])):
        assert reciprocal_rank_merge([(ids, [1.0, 2.0]), ([], [])])[0].tolist() == ["b", "a"]


def test_impossible_input_is_refused() -> None:
    with pytest.raises(ConfigError, match="k=-1"):
        reciprocal_rank_merge([], k=-1)
    with pytest.raises(DataError, match=r"shape \(2,\) and scores of shape \(1,\)"):
        reciprocal_rank_merge([(["a", "b"], [1.0])])
    with pytest.raises(DataError, match=r"1 of 2 scores(.|\n)*empty places"):
        calibrated_merge([(["a", "b"], [1.0, -np.inf])], [None])
    with pytest.raises(DataError, match="Scores of type <U1"):
        reciprocal_rank_merge([(["a"], ["1"])])
    with pytest.raises(DataError, match="1 score maps for 2 lists"):
        calibrated_merge([(["a"], [1.0]), (["b"], [1.0])], [None])
