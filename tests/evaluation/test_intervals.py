from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import stats

from limpet.errors import ConfigError, DataError
from limpet.evaluation import intervals
from limpet.evaluation.intervals import (
    Draws,
    chosen_interval,
    cluster_sums,
    clusters_of,
    mean_interval,
    mean_intervals,
    paired_interval,
    resampled_means,
)


def means_of(values: Any, clusters: Any = None, **options: Any) -> np.ndarray:
    columns = np.asarray(values, np.float64).reshape(len(values), -1)
    return resampled_means(*cluster_sums(columns, clusters), **options)


def test_resampled_means_are_means_of_drawn_queries() -> None:
    values = np.random.default_rng(0).normal(size=(7, 2))
    drawn = np.random.default_rng(5).integers(7, size=(20, 7))
    np.testing.assert_allclose(means_of(values, resamples=20, seed=5), values[drawn].mean(axis=1), rtol=1e-12)


def test_chunks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).normal(size=(33, 3))
    whole = means_of(values, resamples=50, seed=2)
    monkeypatch.setattr(intervals, "_DRAWS_AT_ONCE", 100)
    np.testing.assert_allclose(means_of(values, resamples=50, seed=2), whole, rtol=1e-12)


def test_memory_does_not_grow_with_the_resamples() -> None:
    values = np.zeros(20_000)
    peaks = []
    for resamples in (400, 1600):
        tracemalloc.start()
        mean_interval(values, resamples=resamples)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 80 * 10**6 < 8 * 20_000 * 1600


def test_the_interval_is_the_one_of_the_normal_law_for_many_queries() -> None:
    values = np.random.default_rng(3).normal(size=4000)
    low, high = mean_interval(values, resamples=4000)
    half = 1.96 * values.std() / math.sqrt(4000)
    np.testing.assert_allclose([low, high], [values.mean() - half, values.mean() + half], atol=0.1 * half)
    narrow = mean_interval(values, resamples=4000, level=0.5)
    assert low < narrow[0] < narrow[1] < high


def test_pairing_removes_what_is_common() -> None:
    rng = np.random.default_rng(4)
    common = rng.normal(size=500)
    low, high = paired_interval(common + 0.01, common)
    assert low == pytest.approx(0.01) == high
    loose = mean_interval(common)
    assert loose[1] - loose[0] > 0.1
    assert paired_interval(common, common) == (0.0, 0.0)


def test_all_columns_share_their_draws() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(2, 60))
    found = mean_intervals({"a": a, "difference": a - b}, seed=1, resamples=300)
    np.testing.assert_allclose(found["a"], mean_interval(a, seed=1, resamples=300))
    np.testing.assert_allclose(found["difference"], paired_interval(a, b, seed=1, resamples=300))


def test_a_query_without_value_is_left_out_of_every_system() -> None:
    a, b = np.array([0.5, np.nan, 0.7, 0.1]), np.array([0.2, 0.9, np.nan, 0.0])
    kept = [0, 3]
    assert paired_interval(a, b, seed=3) == paired_interval(a[kept], b[kept], seed=3)
    both = mean_intervals({"a": a, "b": b}, seed=3)
    np.testing.assert_allclose(both["a"], mean_interval(a[kept], seed=3))
    assert np.isnan(mean_interval([np.nan, np.nan])).all()


def test_classes_as_clusters_widen_the_interval_of_correlated_queries() -> None:
    rng = np.random.default_rng(6)
    classes = np.repeat(np.arange(30), 40)
    values = rng.normal(size=30)[classes] + 0.1 * rng.normal(size=1200)
    single, grouped = mean_interval(values), mean_interval(values, clusters=classes)
    assert grouped[1] - grouped[0] > 3 * (single[1] - single[0])
    drawn = np.random.default_rng(0).integers(30, size=(5, 30))
    expected = [np.concatenate([values[classes == name] for name in names]).mean() for names in drawn]
    np.testing.assert_allclose(means_of(values, resamples=5, clusters=classes)[:, 0], expected)


def test_clusters_of_different_size_weigh_by_their_queries() -> None:
    means = means_of([1.0, 1.0, 1.0, 0.0], resamples=200, clusters=["a", "a", "a", "b"])
    assert set(means[:, 0].round(6)) == {0.0, 0.75, 1.0}


def test_the_seed_decides() -> None:
    values = np.random.default_rng(7).normal(size=50)
    assert mean_interval(values, seed=1) == mean_interval(values, seed=1) != mean_interval(values, seed=2)


@pytest.mark.parametrize("groups", [2, 3, 5, 9, 10, 20])
def test_intervals_of_few_groups_are_as_wide_as_students(groups: int) -> None:
    """Of normal values the interval is that of the t distribution: all means of so few groups do not reach it."""
    values = 0.5 + 0.02 * np.random.default_rng(groups).normal(size=groups)
    low, high = mean_interval(values, resamples=20_000)
    half = stats.t.ppf(0.975, groups - 1) * values.std(ddof=1) / math.sqrt(groups)
    assert high - low == pytest.approx(2 * half, rel=0.02 if groups < 10 else 0.15)


def test_one_class_tells_nothing_of_others() -> None:
    gains = np.array([0.1, 0.2, 0.3])
    assert mean_interval(gains - 0.15, clusters=[4, 4, 4]) == (-1.0, 1.0)
    assert mean_interval(gains, clusters=[4, 4, 4]) == (0.0, 1.0)
    assert chosen_interval({"a": gains, "b": gains / 2}, [0.2, 0.2, 0.2], clusters=[4, 4, 4]) == (-1.0, 1.0)
    classes, values = np.array([0, 0, 1]), np.array([0.5, 0.25, np.nan])
    draws = Draws(clusters=classes)
    assert draws.counting(values, "auto").clusters is None, "the other class has no query that counts"
    assert draws.counting(values, "classes") is draws


def test_losses_alone_may_still_be_chance() -> None:
    low, high = mean_interval([-0.01, -0.02, -0.30])
    assert low < 0 < high < 1, "Student's interval is not cut where no query gained"


def test_intervals_stay_where_scores_are() -> None:
    assert mean_interval([0.0, 0.0, 1.0]) == (0.0, 1.0)
    low, high = paired_interval([0.9, 0.1, 1.0], [0.1, 1.0, 0.2])
    assert -1.0 <= low < high <= 1.0


def test_the_best_of_several_is_not_as_good_as_it_looks() -> None:
    """Fourteen candidates that bring nothing: by itself the best one's interval often lies above 0."""
    rng = np.random.default_rng(9)
    single, corrected = 0, 0
    for trial in range(60):
        scores = {name: rng.normal(size=100) for name in range(14)}
        best = max(scores, key=lambda name: scores[name].mean())
        single += mean_interval(scores[best], resamples=200, seed=trial)[0] > 0
        corrected += chosen_interval(scores, np.zeros(100), resamples=200, seed=trial)[0] > 0
    assert single > 9 and corrected < 6  # 30 % and 2.5 % expected


def test_the_interval_of_a_choice_is_that_of_its_errors() -> None:
    rng = np.random.default_rng(10)
    scores, old = {name: rng.normal(size=50) + place for place, name in enumerate("ab")}, rng.normal(size=50)
    drawn = np.random.default_rng(4).integers(50, size=(300, 50))
    gains = np.stack([scores[name] - old for name in "ab"], axis=1)
    errors = []
    for rows in drawn:
        means = gains[rows].mean(axis=0)
        errors.append(means.max() - gains[:, means.argmax()].mean())
    below = stats.norm.cdf(-stats.t.ppf(0.975, 49) * math.sqrt(50 / 49))
    low, high = np.quantile(errors, [below, 1 - below])
    found = chosen_interval(scores, old, resamples=300, seed=4)
    np.testing.assert_allclose(found, (gains.mean(axis=0).max() - high, gains.mean(axis=0).max() - low))


@pytest.mark.parametrize(
    ("classes", "drawn"), [([0, 0, 1], True), ([0, 1, 2], False), ([5, 5, 5], False), (None, False)]
)
def test_classes_are_drawn_where_queries_share_some(classes: list[int] | None, drawn: bool) -> None:
    given = None if classes is None else np.array(classes)
    assert (clusters_of(given, "auto", "queries", "labels") is not None) is drawn
    assert clusters_of(given, "queries", "queries", "labels") is None


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="level=95"):
        mean_interval([1.0], level=95)
    with pytest.raises(ConfigError, match="resamples=0"):
        mean_interval([1.0], resamples=0)
    with pytest.raises(DataError, match="clusters for 2 queries"):
        mean_interval([1.0, 2.0], clusters=[1])
    with pytest.raises(DataError, match="same queries"):
        paired_interval([1.0, 2.0], [1.0])
