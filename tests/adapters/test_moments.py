from __future__ import annotations

import numpy as np
import pytest

from limpet.adapters import moments as module
from limpet.adapters.moments import (
    PENALTIES,
    Moments,
    PairedVectors,
    RidgePath,
    best_penalty,
    chosen_penalty,
    fold_moments,
    fold_of_pair,
    penalties_without,
    ridge,
    total,
    unit_rows,
)
from limpet.errors import DataError


@pytest.fixture
def pairs() -> PairedVectors:
    rng = np.random.default_rng(0)
    source, target = (rng.normal(1, 1, size=(50, dim)).astype(np.float32) for dim in (4, 3))
    return PairedVectors(source, rng.permutation(50)[:40], target, rng.permutation(50)[:40])


def rows_of(pairs: PairedVectors) -> tuple[np.ndarray, np.ndarray]:
    """The definition: every pair as two unit rows."""
    x = np.array([row / np.linalg.norm(row) for row in pairs.source[pairs.source_rows].astype(np.float64)])
    y = np.array([row / np.linalg.norm(row) for row in pairs.target[pairs.target_rows].astype(np.float64)])
    return x, y


def test_unit_rows_of_any_length() -> None:
    rows = unit_rows(np.array([[3, 4], [3e-30, 4e-30], [3e35, 4e35]], np.float32))
    np.testing.assert_allclose(rows, [[0.6, 0.8]] * 3, rtol=1e-6)


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_sums_are_those_of_a_loop_whatever_the_block(pairs, block, monkeypatch) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    x, y = rows_of(pairs)
    found = Moments.of(pairs)
    inputs, products = np.zeros((5, 5)), np.zeros((5, 3))
    for one, other in zip(x, y, strict=True):
        extended = np.append(one, 1.0)
        inputs += np.outer(extended, extended)
        products += np.outer(extended, other)
    np.testing.assert_allclose(found.inputs, inputs, rtol=1e-12)
    np.testing.assert_allclose(found.products, products, rtol=1e-12)
    assert found.count == 40
    centred = found.sums(centred=True)
    np.testing.assert_allclose(centred[0], (x - x.mean(0)).T @ (x - x.mean(0)), atol=1e-12)
    np.testing.assert_allclose(centred[1], (x - x.mean(0)).T @ (y - y.mean(0)), atol=1e-12)


def test_squared_error_is_that_of_the_rows(pairs) -> None:
    x, y = rows_of(pairs)
    weights = np.random.default_rng(1).normal(size=(5, 3))
    expected = ((np.c_[x, np.ones(40)] @ weights - y) ** 2).sum() - (y**2).sum()
    assert Moments.of(pairs).squared_error(weights) == pytest.approx(expected)


def test_folds_are_even_and_add_up(pairs) -> None:
    assert np.bincount(fold_of_pair(42)).tolist() == [9, 9, 8, 8, 8]
    assert np.bincount(fold_of_pair(3)).tolist() == [1, 1, 1]
    whole = total(fold_moments(pairs))
    np.testing.assert_allclose(whole.inputs, Moments.of(pairs).inputs, rtol=1e-12)
    np.testing.assert_allclose(whole.products, Moments.of(pairs).products, rtol=1e-12)


def test_ridge_is_the_textbook_solution(pairs) -> None:
    x, y = rows_of(pairs)
    x_c, y_c = x - x.mean(0), y - y.mean(0)
    scale = (x_c**2).sum() / 4
    for penalty in (0.01, 1.0):
        expected = np.linalg.solve(x_c.T @ x_c + penalty * scale * np.eye(4), x_c.T @ y_c)
        found = ridge(Moments.of(pairs), penalty)
        np.testing.assert_allclose(found[:-1], expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found[-1], y.mean(0) - x.mean(0) @ expected, atol=1e-12)


def test_ridge_without_penalty_is_least_squares_and_its_limit(pairs) -> None:
    x, y = rows_of(pairs)
    expected = np.linalg.lstsq(np.c_[x, np.ones(40)], y, rcond=None)[0]
    np.testing.assert_allclose(ridge(Moments.of(pairs), 0.0), expected, atol=1e-9)
    np.testing.assert_allclose(ridge(Moments.of(pairs), 1e-9), expected, atol=1e-6)
    through_origin = np.linalg.lstsq(x, y, rcond=None)[0]
    np.testing.assert_allclose(RidgePath.of(Moments.of(pairs), centred=False).weights(0.0), through_origin, atol=1e-9)


def test_least_squares_does_not_read_directions_that_the_pairs_do_not_have() -> None:
    rng = np.random.default_rng(2)
    source, target = rng.normal(size=(30, 4)), rng.normal(size=(30, 3))
    source = unit_rows(np.c_[source, source @ rng.normal(size=(4, 2))])  # 6 coordinates, 4 of them independent
    rows = np.arange(30)
    pairs = PairedVectors(source.astype(np.float32), rows, target.astype(np.float32), rows)
    weights = RidgePath.of(Moments.of(pairs), centred=False).weights(0.0)
    expected = np.linalg.pinv(pairs.unit_source(), rcond=1e-6) @ pairs.unit_target()
    np.testing.assert_allclose(pairs.unit_source() @ weights, pairs.unit_source() @ expected, atol=1e-5)
    assert np.abs(weights).max() < 50


def slow_penalty(x: np.ndarray, y: np.ndarray, fold: np.ndarray) -> float:
    """The definition: leave out every fifth in turn, fit, add up the errors."""
    errors = []
    for penalty in PENALTIES:
        error = 0.0
        for part in range(5):
            kept, held = fold != part, fold == part
            x_c = x[kept] - x[kept].mean(0)
            gram = x_c.T @ x_c
            weights = np.linalg.solve(gram + penalty * np.trace(gram) / 4 * np.eye(4), x_c.T @ y[kept])
            error += ((y[kept].mean(0) + (x[held] - x[kept].mean(0)) @ weights - y[held]) ** 2).sum()
        errors.append(error)
    return PENALTIES[int(np.argmin(errors))]


def test_errors_along_the_path_are_those_of_the_rows(pairs) -> None:
    x, y = rows_of(pairs)
    rest, held = Moments.of(pairs[np.arange(30)]), Moments.of(pairs[np.arange(30, 40)])
    found = RidgePath.of(rest).squared_errors(*held.sums_about(rest), PENALTIES)
    centre_x, centre_y = x[:30].mean(0), y[:30].mean(0)
    for penalty, error in zip(PENALTIES, found, strict=True):
        wanted = y[30:] - centre_y
        images = (x[30:] - centre_x) @ ridge(rest, penalty)[:-1]
        assert error == pytest.approx(((images - wanted) ** 2).sum() - (wanted**2).sum(), abs=1e-9)


@pytest.mark.parametrize("noise", [0.01, 1.0, 30.0])
def test_the_penalty_is_the_one_that_does_best_on_left_out_pairs(noise) -> None:
    rng = np.random.default_rng(5)
    source = rng.normal(size=(40, 4)).astype(np.float32)
    target = (source[:, :3] + noise * rng.normal(size=(40, 3))).astype(np.float32)
    pairs = PairedVectors(source, np.arange(40), target, np.arange(40))
    expected = slow_penalty(*rows_of(pairs), fold_of_pair(40))
    assert best_penalty(fold_moments(pairs)) == pytest.approx(expected)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.5, 5.0])
def test_penalties_without_a_fold_are_those_of_the_other_folds(noise) -> None:
    rng = np.random.default_rng(3)
    source = rng.normal(size=(90, 8)).astype(np.float32)
    target = (source @ rng.normal(size=(8, 6)) + noise * rng.normal(size=(90, 6))).astype(np.float32)
    folds = fold_moments(PairedVectors(source, np.arange(90), target, np.arange(90)))
    expected = [best_penalty([other for other in folds if other is not held]) for held in folds]
    assert penalties_without(folds) == expected


def test_of_equally_good_penalties_the_largest() -> None:
    rows = np.ones((4, 2), np.float32)
    assert best_penalty(fold_moments(PairedVectors(rows, np.arange(4), rows, np.arange(4)))) == PENALTIES[-1]


def test_least_squares_needs_a_pair_more_than_dimensions(pairs) -> None:
    folds = fold_moments(pairs[np.arange(5)])
    assert chosen_penalty(0.0, folds) == 0.0
    with pytest.raises(DataError, match=r"4 pairs for a source of dimension 4(.|\n)*at least 5"):
        chosen_penalty(0.0, fold_moments(pairs[np.arange(4)]))
    assert chosen_penalty(0.5, fold_moments(pairs[np.arange(4)])) == 0.5
