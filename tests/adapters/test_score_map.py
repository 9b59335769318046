from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.adapters import ScoreMap
from limpet.errors import ConfigError, DataError


def slow_isotonic(source: list[float], target: list[float]) -> dict[float, float]:
    """Pool adjacent violators as it is told: average neighbours that are out of order until none are."""
    pools = [[[s], [t for x, t in zip(source, target, strict=True) if x == s]] for s in sorted(set(source))]
    place = 0
    while place < len(pools) - 1:
        if np.mean(pools[place][1]) > np.mean(pools[place + 1][1]) + 1e-12:
            later = pools.pop(place + 1)
            pools[place][0] += later[0]
            pools[place][1] += later[1]
            place = max(0, place - 1)
        else:
            place += 1
    return {s: float(np.mean(targets)) for sources, targets in pools for s in sources}


def test_violators_are_pooled_by_hand() -> None:
    found = ScoreMap.fit([1, 2, 3, 4], [10, 30, 20, 40])
    assert found.knots.tolist() == [1, 2, 3, 4] and found.values.tolist() == [10, 25, 25, 40]
    assert found.apply([1.5, 2.5, 3.5]).values.tolist() == [17.5, 25, 32.5]


def test_equal_scores_count_by_their_number() -> None:
    found = ScoreMap.fit([1, 1, 1, 2, 3], [6, 6, 9, 3, 8])
    assert found.values.tolist() == [6, 6, 8], "(6 + 6 + 9 + 3) / 4, not the mean of 7 and 3"


def test_only_the_ends_of_a_step_are_kept() -> None:
    found = ScoreMap.fit([1, 2, 3, 4, 5, 6], [0, 5, 5, 5, 5, 9])
    assert found.knots.tolist() == [1, 2, 5, 6] and found.values.tolist() == [0, 5, 5, 9]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 25))
def test_it_is_isotonic_regression(seed, size) -> None:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, 12, size).astype(float), rng.normal(size=size)
    source[:2], target[:2] = [-1, 13], [-5, 5]  # so that something rises
    found = ScoreMap.fit(source, target)
    for score, value in slow_isotonic(source.tolist(), target.tolist()).items():
        assert found.apply(score).values == pytest.approx(value)
    assert (np.diff(found.apply(np.linspace(-1, 13, 200)).values) >= -1e-12).all()


def test_scores_outside_are_clipped_and_flagged() -> None:
    values, outside = ScoreMap.fit([0.0, 1.0], [10.0, 20.0]).apply([[-0.5, 0.0], [1.0, 1.5]])
    assert values.tolist() == [[10, 10], [20, 20]] and outside.tolist() == [[True, False], [False, True]]


def test_either_direction() -> None:
    old, new = [0.1, 0.5, 0.9], [10.0, 20.0, 40.0]
    there, back = ScoreMap.fit(old, new), ScoreMap.fit(old, new, direction="new_to_old")
    assert there.apply(0.7).values == pytest.approx(30) and back.apply(30.0).values == pytest.approx(0.7)


def test_an_exact_relation_has_no_error() -> None:
    old = np.linspace(0, 1, 200)
    new = 3 * old - 1
    assert ScoreMap.fit(old, new).error_of(old, new).mean_absolute_error == pytest.approx(0, abs=1e-3)


def slow_error(old, new, fold) -> float:
    errors = []
    for row in range(len(old)):
        others = fold != fold[row]
        scores = ScoreMap.fit(old[others], new[others])
        errors.append(abs(scores.apply(old[row]).values - new[row]))
    return float(np.mean(errors))


def test_the_error_is_that_of_maps_fitted_without_the_pair() -> None:
    rng = np.random.default_rng(0)
    old = rng.normal(size=60)
    new = np.tanh(old) + 0.3 * rng.normal(size=60)
    scores = ScoreMap.fit(old, new)
    found = scores.error_of(old, new, seed=3)
    fold = np.random.default_rng(3).permutation(np.arange(60) % 5)
    assert found.mean_absolute_error == pytest.approx(slow_error(old, new, fold)) and found.pairs == 60
    fitted_on_all = np.abs(scores.apply(old).values - new).mean()
    assert found.mean_absolute_error > fitted_on_all, "a map looks better on the pairs it was fitted on"


def test_pairs_of_one_query_are_left_out_together() -> None:
    rng = np.random.default_rng(0)
    queries = np.repeat(np.arange(12), 10)
    level = rng.normal(size=12)[queries]  # every query has its own level: its other pairs give it away
    old = level + 0.01 * rng.normal(size=120)
    new = rng.normal(size=12)[queries] + 0.01 * rng.normal(size=120)
    scores = ScoreMap.fit(old, new)
    apart, together = (scores.error_of(old, new, queries=q).mean_absolute_error for q in (None, queries))
    assert together > 1.1 * apart


def test_unrelated_scores_map_to_the_mean_and_say_so() -> None:
    rng = np.random.default_rng(1)
    old, new = rng.normal(size=(2, 2000))
    scores = ScoreMap.fit(old, new)
    assert np.abs(scores.apply(np.linspace(-1, 1, 5)).values).max() < 0.15


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ([1.0, 2.0], [1.0], "shapes"),
        ([[1.0, 2.0]], [[1.0, 2.0]], "shapes"),
        ([1.0, np.nan], [1.0, 2.0], "1 of the old scores are not finite"),
        ([1.0, 2.0], [np.inf, 2.0], "1 of the new scores are not finite"),
        ([1.0, 1.0], [1.0, 2.0], "2 pairs with 1 different"),
        ([], [], "0 pairs"),
        (["1", "2"], [1.0, 2.0], "type of the old scores is <U1"),
        ([1.0, 2.0], [True, False], "type of the new scores is bool"),
        ([1.0, 2.0], [1j, 2.0], "type of the new scores is complex128"),
    ],
)
def test_scores_that_cannot_be_used_are_refused(old, new, message) -> None:
    with pytest.raises(DataError, match=message):
        ScoreMap.fit(old, new)


@pytest.mark.parametrize("target", [[0.1, 0.5, 0.9], [0.5, 0.5, 0.5], [0.9, 0.5, 0.1 + 1e-9]])
@pytest.mark.parametrize("direction", ["old_to_new", "new_to_old"])
def test_where_larger_is_farther_or_nothing_rises_there_is_no_map(target, direction) -> None:
    old, new = ([0.9, 0.5, 0.1], target) if direction == "old_to_new" else (target, [0.9, 0.5, 0.1])
    if target[0] > target[-1]:
        assert ScoreMap.fit(old, new, direction=direction).apply(0.5).values == pytest.approx(0.5)
        return
    with pytest.raises(DataError, match=r"take every score to 0\.5(.|\n)*larger is closer in both"):
        ScoreMap.fit(old, new, direction=direction)


def test_scores_of_half_precision_and_no_scores() -> None:
    scores = ScoreMap.fit(np.array([0.1, 0.3], np.float16), np.array([1, 2]))
    assert scores.apply(np.float16(0.2)).values == pytest.approx(1.5, abs=1e-2)
    assert scores.apply([]).values.shape == (0,)


def test_other_impossible_things_are_refused() -> None:
    scores = ScoreMap.fit([0, 1], [0, 1])
    with pytest.raises(DataError, match="1 of the scores are not finite"):
        scores.apply([0.5, np.nan])
    with pytest.raises(DataError, match="one per pair"):
        scores.error_of([0, 1], [0, 1], queries=[1])
    with pytest.raises(DataError, match="at least two"):
        scores.error_of([0, 1], [0, 1], queries=[1, 1])
    with pytest.raises(ConfigError, match="seed=-1"):
        scores.error_of([0, 1], [0, 1], seed=-1)
    with pytest.raises(ConfigError, match="direction='sideways'"):
        ScoreMap.fit([0, 1], [0, 1], direction="sideways")


@pytest.mark.parametrize(
    ("knots", "values"),
    [([0.0, 0.0], [0.0, 1.0]), ([1.0, 0.0], [0.0, 1.0]), ([0.0, 1.0], [1.0, 0.0]), ([0.0, np.nan], [0.0, 1.0]),
     ([0.0], [0.0, 1.0]), ([], [])],
)  # fmt: skip
def test_knots_out_of_order_are_refused(knots, values) -> None:
    with pytest.raises(ConfigError):
        ScoreMap("old_to_new", np.array(knots), np.array(values))
