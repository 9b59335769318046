"""Procrustes, ridge, low rank, mean drift and λ-orthogonality."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.linalg

from limpet.adapters import build_adapter
from limpet.adapters.lambda_orthogonal import descend, error, leaned, polar, within
from limpet.adapters.moments import fold_of_pair
from limpet.errors import ConfigError, DataError, SpaceMismatchError


def unit(rows: np.ndarray) -> np.ndarray:
    rows = np.asarray(rows, np.float32).astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def fit(make_set, name, source, target, direction="new_to_old", **options):
    """Fit a map from source to target, whichever of them is the new model."""
    old, new = (target, source) if direction == "new_to_old" else (source, target)
    adapter = build_adapter(name, {"direction": direction, **options})
    return adapter.fit(make_set(old, "old"), make_set(new, "new"))


def weights_of(adapter) -> np.ndarray:
    return adapter.fitted.state["weights"][:-1]


DIMENSIONS = {"equal": (6, 6), "larger target": (6, 9), "smaller target": (9, 6)}


@pytest.mark.parametrize("direction", ["new_to_old", "old_to_new"])
@pytest.mark.parametrize("dims", DIMENSIONS.values(), ids=DIMENSIONS)
@pytest.mark.parametrize("centre", [False, True])
def test_a_planted_rotation_is_found_exactly(dims, direction, centre, rotation, make_set) -> None:
    rng, planted = np.random.default_rng(0), rotation(*dims)
    source = unit(rng.normal(0.3, 1, size=(60, dims[0])))
    if dims[0] > dims[1]:  # sources in the part of the space that the map keeps, so that nothing is lost
        source = unit(source @ planted @ planted.T)
    adapter = fit(make_set, "procrustes", source, source @ planted, direction, centre=centre)
    np.testing.assert_allclose(adapter.map(source.astype(np.float32)), unit(source @ planted), atol=1e-6)
    if dims[0] <= dims[1]:
        np.testing.assert_allclose(weights_of(adapter), planted, atol=1e-6)


@pytest.mark.parametrize("dims", DIMENSIONS.values(), ids=DIMENSIONS)
def test_procrustes_is_semi_orthogonal_and_no_rotation_agrees_better(dims, related, rotation, make_set) -> None:
    source, target = related(80, dims, noise=0.5)
    weights = weights_of(fit(make_set, "procrustes", source, target, centre=False))
    small = weights @ weights.T if dims[0] <= dims[1] else weights.T @ weights
    np.testing.assert_allclose(small, np.eye(min(dims)), atol=1e-12)
    agreement = (source @ weights * target).sum()
    others = [(source @ rotation(*dims, seed=seed) * target).sum() for seed in range(20)]
    assert agreement > max(others)
    small_turn = scipy.linalg.expm(
        1e-3 * np.triu(np.ones((dims[1], dims[1])), 1) - 1e-3 * np.tril(np.ones(dims[1]), -1)
    )
    assert agreement > (source @ weights @ small_turn * target).sum()


def test_procrustes_by_hand(make_set) -> None:
    adapter = fit(make_set, "procrustes", [[1, 0], [0, 1]], [[0, 1], [1, 0]])
    np.testing.assert_allclose(weights_of(adapter), [[0, 1], [1, 0]], atol=1e-12)
    np.testing.assert_allclose(adapter.map(np.array([[3.0, 4.0]])), [[0.8, 0.6]], atol=1e-7)


def test_centring_turns_about_the_means(make_set, rotation) -> None:
    rng, planted = np.random.default_rng(1), rotation(4, 4)
    spread, shift = rng.normal(size=(200, 4)), np.array([2.0, 0, 0, 0])
    source, target = unit(spread), unit(spread @ planted + shift)  # turned, and then moved away from the origin
    plain, centred = (fit(make_set, "procrustes", source, target, centre=centre) for centre in (False, True))
    cosines = [(adapter.map(source) * target).sum(axis=1).mean() for adapter in (plain, centred)]
    assert cosines[1] > cosines[0] + 0.1
    np.testing.assert_allclose(
        source.mean(0) @ weights_of(centred) + centred.fitted.state["weights"][-1], target.mean(0), atol=1e-6
    )


@pytest.mark.parametrize("direction", ["new_to_old", "old_to_new"])
def test_ridge_of_an_affine_relation_is_that_relation(direction, make_set) -> None:
    rng = np.random.default_rng(0)
    source = unit(rng.normal(size=(80, 5)))
    relation, offset = rng.normal(size=(5, 7)), rng.normal(size=7)
    target = source @ relation + offset
    target = target / np.linalg.norm(target, axis=1).mean()  # nearly unit rows: the map is recovered by its directions
    adapter = fit(make_set, "ridge", source, target, direction, penalty=1e-9)
    expected = np.linalg.lstsq(np.c_[source, np.ones(80)], unit(target), rcond=None)[0]
    np.testing.assert_allclose(adapter.fitted.state["weights"], expected, atol=1e-6)


def test_ridge_shrinks_to_the_mean_as_the_penalty_grows(related, make_set) -> None:
    source, target = related(60, (5, 4))
    lengths = [np.linalg.norm(weights_of(fit(make_set, "ridge", source, target, penalty=p))) for p in (0.0, 0.1, 10.0)]
    assert lengths[0] > lengths[1] > lengths[2]
    far = fit(make_set, "ridge", source, target, penalty=1e12)
    np.testing.assert_allclose(far.map(source[:2]), unit(np.tile(unit(target).mean(0), (2, 1))), atol=1e-6)


@pytest.mark.parametrize("dims", DIMENSIONS.values(), ids=DIMENSIONS)
def test_low_rank_at_full_rank_is_ridge(dims, related, make_set) -> None:
    source, target = related(100, dims)
    for penalty in (None, 0.0, 0.1):
        full = fit(make_set, "low_rank", source, target, rank=min(dims), penalty=penalty)
        whole = fit(make_set, "ridge", source, target, penalty=penalty).fitted.state["weights"]
        state = full.fitted.state
        np.testing.assert_allclose(state["left"] @ state["right"], whole[:-1], atol=1e-9)
        np.testing.assert_allclose(state["offset"], whole[-1], atol=1e-9)


def penalised(source: np.ndarray, target: np.ndarray, weights: np.ndarray, penalty: float) -> float:
    x, y = source - source.mean(0), target - target.mean(0)
    return float(((x @ weights - y) ** 2).sum() + penalty * (x**2).sum() / x.shape[1] * (weights**2).sum())


@pytest.mark.parametrize("penalty", [0.0, 0.3])
def test_low_rank_is_the_best_map_of_its_rank(penalty, related, make_set) -> None:
    source, target = (unit(rows) for rows in related(100, (6, 5), noise=0.5))
    state = fit(make_set, "low_rank", source, target, rank=2, penalty=penalty).fitted.state
    weights = state["left"] @ state["right"]
    assert np.linalg.matrix_rank(weights) == 2 and state["left"].shape == (6, 2)
    best = penalised(source, target, weights, penalty)
    rng = np.random.default_rng(0)
    for _ in range(200):
        left = state["left"] + 0.01 * rng.normal(size=(6, 2))
        right = state["right"] + 0.01 * rng.normal(size=(2, 5))
        assert best < penalised(source, target, left @ right, penalty)
    whole = fit(make_set, "ridge", source, target, penalty=penalty).fitted.state["weights"][:-1]
    values = np.linalg.svd(whole)
    truncated = (values[0][:, :2] * values[1][:2]) @ values[2][:2]
    assert best < penalised(source, target, truncated, penalty), "cutting the weights themselves is not the same"


def test_the_rank_is_chosen_where_the_relation_has_one(make_set) -> None:
    rng = np.random.default_rng(0)
    source = unit(rng.normal(size=(400, 12)))
    target = source @ rng.normal(size=(12, 3)) @ rng.normal(size=(3, 10))
    target = target / np.linalg.norm(target, axis=1).mean() + 0.1 * rng.normal(size=target.shape)
    target[:, 0] += 2  # far from the origin, so that unit length bends the relation little
    assert fit(make_set, "low_rank", source, target).fitted.state["left"].shape[1] in (3, 4)


def test_the_chosen_rank_does_best_on_left_out_pairs(related, make_set) -> None:
    source, target = (unit(rows) for rows in related(60, (7, 6), noise=0.8))
    adapter = fit(make_set, "low_rank", source, target, penalty=0.05)
    order = np.argsort([f"i{row}" for row in range(60)])
    source, target, fold, errors = source[order], target[order], fold_of_pair(60), np.zeros(6)
    for part in range(5):
        x, y, held = source[fold != part], target[fold != part], fold == part
        for rank in range(1, 7):
            state = fit(make_set, "low_rank", x, y, rank=rank, penalty=0.05).fitted.state
            images = source[held] @ state["left"] @ state["right"] + state["offset"]
            errors[rank - 1] += ((images - target[held]) ** 2).sum()
    assert adapter.fitted.state["left"].shape[1] == np.argmin(errors) + 1


def test_a_rank_beyond_the_smaller_dimension_is_refused(related, make_set) -> None:
    with pytest.raises(ConfigError, match=r"rank=6(.|\n)*at most 5"):
        fit(make_set, "low_rank", *related(60, (8, 5)), rank=6)


@pytest.mark.parametrize("name", ["ridge", "low_rank"])
def test_least_squares_of_too_few_pairs_is_refused(name, related, make_set) -> None:
    source, target = related(5, (6, 4))
    with pytest.raises(DataError, match="5 pairs for a source of dimension 6"):
        fit(make_set, name, source, target, penalty=0.0)
    assert fit(make_set, name, source, target).report.few


def test_mean_drift_is_the_difference_of_the_means(make_set) -> None:
    adapter = fit(make_set, "mean_drift", [[1, 0], [0, 2]], [[0, 5], [0, 7]])
    np.testing.assert_allclose(adapter.fitted.state["shift"], [-0.5, 0.5], atol=1e-12)
    np.testing.assert_allclose(adapter.map(np.array([[1.0, 0.0]])), [[0.5**0.5, 0.5**0.5]], atol=1e-7)


def test_a_vector_that_is_mapped_to_no_direction_is_refused_by_its_id(make_set) -> None:
    adapter = fit(make_set, "mean_drift", [[1, 0], [0, 1]], [[-1, 0], [0, 1]])  # a drift of (-1, 0)
    assert adapter.map(np.array([[5.0, 0.0]])).tolist() == [[0, 0]]
    with pytest.raises(DataError, match=r"maps 1 of 2 vectors to zero(.|\n)*'lost'(.|\n)*procrustes"):
        adapter.apply(make_set([[0, 1], [5, 0]], "new", ["kept", "lost"]))


def test_mean_drift_between_dimensions_is_refused_with_advice(related, make_set) -> None:
    with pytest.raises(SpaceMismatchError, match=r"5 and 4 dimensions(.|\n)*equal dimensions(.|\n)*procrustes"):
        fit(make_set, "mean_drift", *related(20, (5, 4)))


def squared(source: np.ndarray, target: np.ndarray, weights: np.ndarray) -> float:
    return float(((unit(source) @ weights - unit(target)) ** 2).sum())


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("dims", [(6, 6), (6, 9)])
def test_without_tolerance_it_is_procrustes(dims, centre, related, make_set) -> None:
    source, target = related(100, dims)
    tight = fit(make_set, "lambda_orthogonal", source, target, tolerance=0.0, centre=centre)
    rotated = fit(make_set, "procrustes", source, target, centre=centre)
    np.testing.assert_allclose(tight.fitted.state["weights"], rotated.fitted.state["weights"], atol=1e-6)


def test_into_a_smaller_space_it_fits_no_worse_than_procrustes(related, make_set) -> None:
    source, target = related(100, (9, 6))
    tight = weights_of(fit(make_set, "lambda_orthogonal", source, target, tolerance=0.0, centre=False))
    np.testing.assert_allclose(tight.T @ tight, np.eye(6), atol=1e-9)
    assert squared(source, target, tight) < squared(
        source, target, weights_of(fit(make_set, "procrustes", source, target))
    )


@pytest.mark.parametrize("dims", DIMENSIONS.values(), ids=DIMENSIONS)
def test_with_a_bound_that_is_not_met_it_is_least_squares(dims, related, make_set) -> None:
    source, target = related(100, dims)
    free = fit(make_set, "lambda_orthogonal", source, target, tolerance=1e6, centre=False)
    expected = np.linalg.lstsq(unit(source), unit(target), rcond=None)[0]
    np.testing.assert_allclose(weights_of(free), expected, atol=1e-8)
    affine = fit(make_set, "lambda_orthogonal", source, target, tolerance=1e6, centre=True).fitted.state["weights"]
    ridge = fit(make_set, "ridge", source, target, penalty=0.0).fitted.state["weights"]
    np.testing.assert_allclose(affine, ridge, atol=1e-8)


@pytest.mark.parametrize("dims", DIMENSIONS.values(), ids=DIMENSIONS)
def test_the_bound_is_kept_and_every_slack_is_used(dims, related, make_set) -> None:
    source, target = related(100, dims)
    errors = []
    for tolerance in (0.0, 0.1, 0.4, 0.9, 2.0):
        weights = weights_of(fit(make_set, "lambda_orthogonal", source, target, tolerance=tolerance, centre=False))
        small = weights @ weights.T if dims[0] <= dims[1] else weights.T @ weights
        assert np.linalg.norm(small - np.eye(min(dims)), 2) <= tolerance + 1e-9 or tolerance > 1
        assert np.linalg.norm(weights, 2) <= (1 + tolerance) ** 0.5 + 1e-9
        errors.append(squared(source, target, weights))
    assert errors == sorted(errors, reverse=True) and errors[-1] < errors[0]


def test_within_is_the_nearest_matrix_of_the_bound() -> None:
    weights = np.diag([2.0, 1.0, 0.1])
    np.testing.assert_allclose(within(weights, 0.19), np.diag([1.19**0.5, 1.0, 0.9]), atol=1e-12)
    np.testing.assert_allclose(within(weights, 8.0), weights, atol=1e-12)
    rng = np.random.default_rng(0)
    given = rng.normal(size=(4, 3))
    nearest = within(given, 0.3)
    for _ in range(200):
        other = within(nearest + 0.05 * rng.normal(size=(4, 3)), 0.3)
        assert np.linalg.norm(given - nearest) <= np.linalg.norm(given - other) + 1e-12


def test_the_error_never_rises_and_steps_help(related) -> None:
    source, target = (unit(rows) for rows in related(200, (9, 6)))
    spread, directions = np.linalg.eigh(source.T @ source / 200)
    rotated = source @ directions
    products = rotated.T @ target / 200
    start = polar(products)
    steps = [descend(start, spread, products, 0.3, count) for count in range(0, 40, 5)]
    found = [error(weights, spread, products) for weights in steps]
    assert all(later <= earlier for earlier, later in itertools.pairwise(found)) and found[-1] < found[0]
    slow = [((rotated @ weights - target) ** 2).sum() / 200 - (target**2).sum() / 200 for weights in steps]
    np.testing.assert_allclose(found, slow, atol=1e-9)
    assert descend(start, np.zeros(9), products, 0.3, 5) is start


@pytest.mark.parametrize("tolerance", [0.0, 0.1])
@pytest.mark.parametrize("centre", [False, True])
def test_few_pairs_into_a_smaller_space_are_no_saddle(tolerance, centre, make_set) -> None:
    """With 20 pairs of 40 dimensions, weights can end in directions that no pair has, and fit all but exactly."""
    rng = np.random.default_rng(0)
    source, target = unit(rng.normal(size=(20, 40))), unit(rng.normal(size=(20, 30)))
    adapter = fit(make_set, "lambda_orthogonal", source, target, tolerance=tolerance, centre=centre)
    weights, offset = weights_of(adapter), adapter.fitted.state["weights"][-1]
    assert np.abs(np.linalg.svd(weights)[1] ** 2 - 1).max() <= tolerance + 1e-9
    left = ((source @ weights + offset - target) ** 2).sum() / 20
    rotated = fit(make_set, "procrustes", source, target, centre=centre).fitted.state["weights"]
    assert left < 0.6 * ((source @ rotated[:-1] + rotated[-1] - target) ** 2).sum() / 20


def test_leaning_gives_the_directions_of_least_spread_to_where_images_spread_most() -> None:
    weights = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])  # the images' second coordinate spreads less
    leaning = leaned(weights, np.array([0.1, 1.0, 9.0])) - weights
    np.testing.assert_allclose(np.abs(leaning), [[0.1, 0], [0, 0.1], [0, 0]], atol=1e-12)
    for wide in (weights.T, weights[1:]):
        assert leaned(wide, np.array([0.1, 1.0])) is wide, "a source of no more dimensions has none to spare"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ridge", {"penalty": -1.0}), ("ridge", {"penalty": float("inf")}), ("low_rank", {"rank": 0}),
        ("low_rank", {"penalty": -0.1}), ("lambda_orthogonal", {"tolerance": -0.1}),
        ("lambda_orthogonal", {"steps": -1}), ("procrustes", {"direction": "sideways"}),
    ],
)  # fmt: skip
def test_impossible_options_are_refused(name, options) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        build_adapter(name, options)


def test_an_image_that_only_rounding_made_has_no_direction(make_set) -> None:
    rows = unit([[0.6, 0.8], [0.8, 0.6]])
    adapter = fit(make_set, "mean_drift", rows, rows[::-1])
    adapter.fitted.state["shift"][:] = -rows[0] * (1 + 1e-14)
    images = adapter.map(rows)
    assert not images[0].any()
    np.testing.assert_allclose(images[1], unit(rows[1:] - rows[0])[0], atol=1e-6)
