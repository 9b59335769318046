from __future__ import annotations

import itertools
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy.stats import permutation_test

from limpet.errors import ConfigError, DataError
from limpet.evaluation import intervals
from limpet.evaluation.intervals import p_values


def paired_p_value(first: Any, second: Any, **options: Any) -> float:
    return p_values({"difference": np.subtract(first, second)}, **options)["difference"]


def by_hand(differences: np.ndarray) -> float:
    """Flip the signs in every way, one way after another."""
    means = [np.mean(differences * signs) for signs in itertools.product((1, -1), repeat=len(differences))]
    return float(np.mean([abs(mean) >= abs(differences.mean()) - 1e-12 for mean in means]))


def scipy_p(differences: np.ndarray, resamples: float, seed: int = 0) -> float:
    result = permutation_test(
        (differences, np.zeros_like(differences)),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=resamples,
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([1.0], 1.0),  # +1 and -1 are both as far
        ([1, 1, 1], 2 / 8),  # only all + and all -
        ([3, 1], 2 / 4),  # 4, 2, -2, -4
        ([1, -1], 1.0),  # nothing is nearer than 0
        ([0, 0, 0], 1.0),
        ([5, 1, 1, 1, 1, 1], 2 / 64),
        ([5, 1, 1, 1, 1, -1], 12 / 64),  # sums of at least 8: one of the five small ones is turned (5), or none (1)
    ],
)
def test_worked_numbers(differences: list[float], expected: float) -> None:
    assert paired_p_value(differences, np.zeros(len(differences))) == expected
    assert by_hand(np.array(differences, float)) == expected


@pytest.mark.parametrize("seed", range(4))
def test_few_queries_are_enumerated_as_scipy_does(seed: int) -> None:
    differences = np.random.default_rng(seed).normal(0.3, 1, size=11)
    found = paired_p_value(differences, np.zeros(11))
    assert found == pytest.approx(by_hand(differences), abs=1e-12)
    assert found == pytest.approx(scipy_p(differences, math.inf), abs=1e-12)


def test_many_queries_agree_with_scipy_within_what_draws_allow() -> None:
    differences = np.random.default_rng(5).normal(0.1, 1, size=300)
    found, theirs = paired_p_value(differences, np.zeros(300)), scipy_p(differences, 20_000)
    assert 0.02 < found < 0.3
    assert abs(found - theirs) < 4 * math.sqrt(found * (1 - found) * (1 / 10_000 + 2 / 20_000))


def test_the_formula_counts_draws_as_far_and_adds_one() -> None:
    differences = np.random.default_rng(6).normal(0.2, 1, size=70)
    words = np.random.default_rng(3).integers(2**64, size=(500, 2), dtype=np.uint64)
    count = 0
    for row in words:
        turned = [int(word) >> (8 * byte + 7 - bit) & 1 for word in row for byte in range(8) for bit in range(8)][:70]
        signs = np.where(turned, -1, 1)
        count += abs((signs * differences).mean()) >= abs(differences.mean()) - 1e-12
    assert paired_p_value(differences, np.zeros(70), resamples=500, seed=3) == (count + 1) / 501


def test_under_the_null_p_values_are_uniform() -> None:
    rng = np.random.default_rng(7)
    found = [paired_p_value(rng.normal(size=40), np.zeros(40), resamples=199, seed=run) for run in range(300)]
    assert np.mean(np.array(found) <= 0.05) == pytest.approx(0.05, abs=0.035)
    assert np.mean(found) == pytest.approx(0.5, abs=0.055)


def test_ties_survive_rounding() -> None:
    differences = np.array([0.1, 0.2, 0.3, 0.6, -0.3])  # 0.1 + 0.2 + 0.3 - 0.6 + 0.3 and others tie up to rounding
    whole = np.array([1, 2, 3, 6, -3])
    assert paired_p_value(differences, np.zeros(5)) == by_hand(whole) == paired_p_value(whole, np.zeros(5))


def test_metrics_share_their_flips_and_queries() -> None:
    rng = np.random.default_rng(8)
    a = rng.normal(0.1, 1, size=300)
    b = 2 * a
    b[[3, 7]] = np.nan
    found = p_values({"a": a, "b": b}, resamples=400, seed=2)
    assert found["a"] == found["b"] == paired_p_value(np.delete(a, [3, 7]), np.zeros(298), resamples=400, seed=2)
    assert found["a"] != paired_p_value(a, np.zeros(300), resamples=400, seed=2)


def test_order_sign_and_scale_do_not_matter_where_all_ways_are_tried() -> None:
    differences = np.random.default_rng(9).normal(0.4, 1, size=10)
    found = paired_p_value(differences, np.zeros(10))
    for same in (differences[::-1], -differences, 1000 * differences):
        assert paired_p_value(same, np.zeros(10)) == found
    assert paired_p_value(np.append(differences, np.zeros(500)), np.zeros(510)) == found  # 500 ties are no evidence


def test_whole_classes_flip_together() -> None:
    differences = np.array([1.0, 2, -1, 4, 0.5])
    classes = ["a", "a", "b", "c", "c"]
    assert paired_p_value(differences, np.zeros(5), clusters=classes) == by_hand(np.array([3, -1, 4.5]))
    rng = np.random.default_rng(10)
    many = np.repeat(np.arange(30), 40)
    correlated = rng.normal(size=30)[many] + 0.1
    single, grouped = (paired_p_value(correlated, np.zeros(1200), clusters=c, resamples=999) for c in (None, many))
    assert single < 0.05 < grouped


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = np.random.default_rng(11).normal(0.1, 1, size=90)
    few = differences[:12]
    whole = [paired_p_value(values, 0 * values, resamples=5000, seed=4) for values in (differences, few)]
    monkeypatch.setattr(intervals, "_SIGNS_AT_ONCE", 1000)
    assert [paired_p_value(values, 0 * values, resamples=5000, seed=4) for values in (differences, few)] == whole


def test_memory_does_not_grow_with_the_resamples() -> None:
    differences, peaks = np.random.default_rng(12).normal(size=20_000), []
    for resamples in (400, 1600):
        tracemalloc.start()
        paired_p_value(differences, 0 * differences, resamples=resamples)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 60 * 10**6 < 8 * 20_000 * 1600


def test_the_smallest_p_value_is_one_in_all_draws() -> None:
    assert paired_p_value(np.ones(100), np.zeros(100), resamples=999) == 1 / 1000


def test_edges_and_wrong_input() -> None:
    assert math.isnan(paired_p_value([np.nan], [1.0]))
    assert math.isnan(p_values({"a": []})["a"])
    with pytest.raises(ConfigError, match="0 resamples"):
        paired_p_value([1.0], [0.0], resamples=0)
    with pytest.raises(ConfigError, match="of 0 differences"):
        p_values({})
    with pytest.raises(DataError, match="same queries"):
        p_values({"a": [1.0], "b": [1.0, 2.0]})
    with pytest.raises(DataError, match="clusters for 2 queries"):
        paired_p_value([1.0, 2.0], [0.0, 0.0], clusters=[1])
