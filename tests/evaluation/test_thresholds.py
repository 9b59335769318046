from __future__ import annotations

import numpy as np
import pytest

from limpet.errors import DataError
from limpet.evaluation.thresholds import Thresholds


def drawn(queries: int, items: int = 400, seed: int = 0, *, better: float = 2.0):
    """Scores of two models, whose scales differ; the new one tells relevant items better apart."""
    rng = np.random.default_rng(seed)
    relevant = rng.uniform(size=(queries, items)) < 0.1
    old = 0.5 + 0.2 * relevant + 0.1 * rng.normal(size=relevant.shape)
    new = 0.1 + 0.2 * better * relevant + 0.1 * rng.normal(size=relevant.shape)
    return old, new, relevant


def precision(scores, relevant, threshold: float) -> float:
    return float(relevant[scores >= threshold].mean())


def test_a_new_threshold_is_the_lowest_that_is_as_precise() -> None:
    old, new, relevant = drawn(60)
    found = Thresholds.of(old, new, (relevant, relevant), resamples=20)
    assert found.kept == "precision" and found.pairs == old.size
    for row in found.rows[::7]:
        before = precision(old, relevant, row.old)
        assert row.precision_before == pytest.approx(before) and precision(new, relevant, row.new) >= before
        assert row.precision == pytest.approx(precision(new, relevant, row.new))
        assert row.passing_after == pytest.approx((new >= row.new).sum() / 60)
        lower = new[new < row.new]
        assert precision(new, relevant, np.quantile(lower, 0.99)) < before


def test_without_labels_as_many_items_pass() -> None:
    old, new, _ = drawn(60)
    found = Thresholds.of(old, new, resamples=20)
    assert found.kept == "number"
    for row in found.rows[:40:7]:
        assert row.passing_before == (old >= row.old).sum() / 60 and row.precision is None
        assert row.passing_after == pytest.approx(row.passing_before, rel=0.03)


def test_equal_scores_keep_their_thresholds_and_items_that_do_not_count_are_left_out() -> None:
    old, _, relevant = drawn(40)
    old[np.arange(40), np.arange(40)] = np.nan
    found = Thresholds.of(old, old, (relevant, relevant), resamples=20)
    assert found.pairs == 40 * 399
    for row in found.rows[:35]:
        assert row.new == pytest.approx(row.old, abs=0.01)


def test_intervals_hold_for_other_queries() -> None:
    inside = []
    for seed in range(12):
        old, new, relevant = drawn(80, seed=seed)
        found = Thresholds.of(old[:40], new[:40], (relevant[:40], relevant[:40]), resamples=300)
        for row in found.rows[10:40:10]:
            low, high = row.precision_interval
            inside.append(low <= precision(new[40:], relevant[40:], row.new) <= high)
            assert row.interval[0] <= row.new <= row.interval[1]
    assert 0.8 < np.mean(inside) <= 1


def test_between_rows_thresholds_lie_on_lines() -> None:
    old, new, relevant = drawn(40)
    found = Thresholds.of(old, new, (relevant, relevant), resamples=20)
    low, high = found.rows[10:12]
    middle = found.at((low.old + high.old) / 2)
    assert middle.new == pytest.approx((low.new + high.new) / 2)
    assert middle.interval[1] == pytest.approx((low.interval[1] + high.interval[1]) / 2)
    assert found.at(low.old).new == pytest.approx(low.new) and found.at(found.rows[0].old).old == found.rows[0].old
    assert f"becomes {low.new:.4g} [" in low.words and "are relevant" in low.words
    for outside in (found.rows[0].old - 0.01, found.rows[-1].old + 0.01):
        with pytest.raises(DataError, match="A threshold of"):
            found.at(outside)


def test_what_no_new_score_reaches_has_no_threshold() -> None:
    old, new, relevant = drawn(40, better=0.25)
    found = Thresholds.of(old, new, (relevant, relevant), resamples=20)
    assert found.rows[-1].precision_before < precision(old, relevant, np.quantile(old, 0.99))
    with pytest.raises(DataError, match="new ones are never as precise"):
        Thresholds.of(old, -new, (relevant, relevant), resamples=20)


@pytest.mark.parametrize(("old", "new"), [
    (np.ones((19, 5)), np.ones((19, 5))), (np.ones((30, 5)), np.ones((29, 5))), (np.ones((30, 5)), np.ones((30, 5))),
    (np.full((30, 5), np.nan), np.ones((30, 5))),
])  # fmt: skip
def test_too_little_is_refused(old, new) -> None:
    with pytest.raises(DataError):
        Thresholds.of(old, new)
