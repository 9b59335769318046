from __future__ import annotations

import math
import time

import numpy as np
import pytest
from scipy.stats import binomtest, false_discovery_control

from limpet.errors import ConfigError, DataError
from limpet.evaluation.class_change import class_change, discoveries, sign_test

RNG = np.random.default_rng(0)
LABELS = RNG.integers(3, 43, size=2000)
BEFORE = RNG.random(2000).round(2)
AFTER = np.clip(BEFORE + 0.2 * RNG.normal(size=2000) + 0.02 * (LABELS - 20) * (RNG.random(2000) < 0.7), 0, 1).round(2)


def test_every_number_is_that_of_a_loop_over_classes() -> None:
    holes = RNG.random(2000) < 0.1
    before, after = np.where(holes, np.nan, BEFORE), np.where(np.roll(holes, 1), np.nan, AFTER)
    found = class_change(before, after, LABELS)
    assert found.classes.tolist() == sorted(set(LABELS.tolist()))
    for row, label in enumerate(found.classes):
        pairs = [
            (a, b)
            for a, b, own in zip(before, after, LABELS, strict=True)
            if own == label and not math.isnan(a) and not math.isnan(b)
        ]
        assert found.queries[row] == len(pairs)
        assert found.before[row] == pytest.approx(np.mean([a for a, _ in pairs]))
        assert found.change[row] == pytest.approx(np.mean([b - a for a, b in pairs]), abs=1e-12)
        up, down = sum(b > a for a, b in pairs), sum(b < a for a, b in pairs)
        assert (found.improved[row], found.worsened[row]) == (up, down)
        assert found.p_value[row] == pytest.approx(binomtest(up, up + down).pvalue)


def test_means_over_classes_weigh_up_to_the_mean_over_queries() -> None:
    found = class_change(BEFORE, AFTER, LABELS)
    assert np.average(found.change, weights=found.queries) == pytest.approx((AFTER - BEFORE).mean())


@pytest.mark.parametrize(
    ("up", "down", "expected"),
    [(6, 0, 2 / 64), (0, 6, 2 / 64), (5, 0, np.nan), (0, 0, np.nan), (4, 4, 1.0), (7, 1, 18 / 256), (4, 5, 1.0)],
)
def test_sign_test_by_hand(up: int, down: int, expected: float) -> None:
    np.testing.assert_allclose(sign_test([up], [down]), [expected], rtol=1e-12)


def test_discoveries_are_those_of_scipy() -> None:
    p = np.concatenate([RNG.random(200), RNG.random(30) / 300])
    np.testing.assert_array_equal(discoveries(p, 0.05), false_discovery_control(p) <= 0.05)
    with_holes = np.append(p, [np.nan] * 500)
    np.testing.assert_array_equal(discoveries(with_holes, 0.05)[:230], discoveries(p, 0.05))
    assert not discoveries([np.nan], 0.05).any() and not discoveries([], 0.05).any()


def test_classes_that_differ_by_chance_are_not_called_clear() -> None:
    rng, runs = np.random.default_rng(1), []
    labels = np.repeat(np.arange(1000), 12)
    for _ in range(20):
        base = rng.random(12_000)
        found = class_change(base, base + rng.normal(size=12_000), labels)
        runs.append(int(found.clear().sum()))
        assert (found.p_value < 0.05).sum() > 10  # which single p-values would call clear
    assert np.mean(np.array(runs) > 0) < 0.3


def test_the_summary_names_the_ends() -> None:
    names = [f"class {number}" for number in range(43)]
    found = class_change(BEFORE, AFTER, LABELS)
    summary = found.summary("map", names)
    assert (summary.metric, summary.systems) == ("map", ("self_old", "cross"))
    assert summary.classes == 40 and summary.queries == 2000
    assert summary.better + summary.same + summary.worse == pytest.approx(1)
    order = np.argsort(found.change)
    assert [one.name for one in summary.worst[:3]] == [f"class {found.classes[row]}" for row in order[:3]]
    assert [one.name for one in summary.best[:3]] == [f"class {found.classes[row]}" for row in order[::-1][:3]]
    assert all(one.change < 0 for one in summary.worst) and all(one.change > 0 for one in summary.best)
    assert len(summary.worst) <= 20 and len(summary.best) <= 20
    assert summary.worst[0].after - summary.worst[0].before == pytest.approx(summary.worst[0].change)
    np.testing.assert_allclose(summary.curve, np.sort(found.change))
    clear = found.clear()
    assert summary.clearly_worse == (clear & (found.change < 0)).sum() > 0
    assert summary.clearly_better == (clear & (found.change > 0)).sum() > 0
    assert [one.clear for one in summary.worst[:5]] == clear[order[:5]].tolist()


def test_equal_changes_put_the_larger_class_first_and_rounding_is_no_change() -> None:
    before = [0.1 + 0.2, 0.5, 1.0, 1.0, 1.0]
    after = [0.3, 0.5, 0.5, 0.5, 0.5]
    found = class_change(before, after, [0, 1, 2, 3, 3])
    assert found.change.tolist() == [0, 0, -0.5, -0.5]
    assert (found.improved.tolist(), found.worsened.tolist()) == ([0, 0, 0, 0], [0, 0, 1, 2])
    summary = found.summary("map")
    assert [one.name for one in summary.worst] == ["3", "2"]
    assert summary.best == []
    assert (summary.better, summary.same, summary.worse) == (0, 0.5, 0.5)


def test_the_change_of_the_mean_and_the_majority_must_agree() -> None:
    before, after = np.full(20, 0.5), np.array([0.51] * 19 + [0.0])
    found = class_change(before, after, np.zeros(20, int))
    assert found.change[0] < 0 and found.p_value[0] < 1e-3
    assert not found.clear()[0]


def test_81313_classes_take_well_under_a_second() -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 81_313, size=300_000)
    before, after = rng.random((2, 300_000))
    start = time.process_time()  # of this process: others may be busy
    summary = class_change(before, after, labels).summary("map")
    assert time.process_time() - start < 2.0
    assert summary.classes > 70_000 and len(summary.curve) == 201
    assert summary.curve == sorted(summary.curve)


def test_wrong_input_is_refused() -> None:
    with pytest.raises(DataError, match="one per query each"):
        class_change([1.0], [1.0, 0.0], [0])
    with pytest.raises(DataError, match="No query has a value"):
        class_change([np.nan, 1.0], [1.0, np.nan], [0, 0])
    with pytest.raises(ConfigError, match="whole numbers"):
        class_change([1.0], [1.0], [0.5])
