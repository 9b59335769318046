from __future__ import annotations

import numpy as np
import pytest

from limpet.adapters import build_adapter
from limpet.adapters.local import STRENGTHS, Local, cell_moments, local_maps, spherical_means
from limpet.adapters.moments import Moments, PairedVectors, ridge, total, with_constant
from limpet.errors import ConfigError


@pytest.fixture(scope="session")
def two_regions(rotation) -> tuple[np.ndarray, np.ndarray]:
    """Items around two opposite poles; the models are related by another rotation around each."""
    rng = np.random.default_rng(0)
    north = np.arange(300) % 2 == 0
    source = np.where(north, 1.0, -1.0)[:, None] * np.eye(1, 5) * 2 + rng.normal(size=(300, 5))
    turned = np.where(north[:, None], source @ rotation(5, 5, seed=1), source @ rotation(5, 5, seed=2))
    return tuple(rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (source, turned))


def fit(make_set, source, target, **options) -> Local:
    return build_adapter("local", options).fit(make_set(target, "old"), make_set(source, "new"))


def cosine(adapter, source, target) -> float:
    return float((adapter.map(source) * target).sum(axis=1).mean())


def test_two_regions_get_two_maps(two_regions, make_set) -> None:
    source, target = two_regions
    both, one = fit(make_set, source, target, clusters=2), fit(make_set, source, target, clusters=1)
    assert cosine(both, source, target) > cosine(one, source, target) + 0.08
    assert np.abs(both.fitted.state["centres"][:, 0]).min() > 0.9, "the centres are the poles"


def test_where_one_map_fits_all_it_is_kept(rotation, make_set) -> None:
    source = np.random.default_rng(0).normal(size=(400, 5))
    noisy = source @ rotation(5, 5) + 0.5 * np.random.default_rng(1).normal(size=(400, 5))
    strong = fit(make_set, source, noisy)
    ridge_map = build_adapter("ridge", {}).fit(make_set(noisy, "old"), make_set(source, "new"))
    whole = fit(make_set, source, noisy, shrinkage=float("inf"))
    np.testing.assert_array_equal(whole.map(source), fit(make_set, source, noisy, clusters=1).map(source))
    np.testing.assert_allclose(whole.map(source), ridge_map.map(source), atol=0.02)  # penalties of other folds
    np.testing.assert_allclose(strong.map(source), ridge_map.map(source), atol=0.12)


def slow_map(
    x: np.ndarray, y: np.ndarray, common: np.ndarray, x_all: np.ndarray, tau: float, even: float
) -> np.ndarray:
    """The definition, as least squares on stacked rows: the cluster's pairs, and the whole's as answered by its map."""
    weight = (tau / len(x_all)) ** 0.5
    keep = (tau * even) ** 0.5 * np.eye(x.shape[1])
    rows = np.concatenate([x, weight * x_all, keep])
    wanted = np.concatenate([y, weight * x_all @ common, keep @ common])
    return np.linalg.lstsq(rows, wanted, rcond=None)[0]


@pytest.mark.parametrize("tau", [3.0, 200.0])
def test_maps_are_those_of_the_formula(two_regions, tau) -> None:
    source, target = (rows.astype(np.float32) for rows in two_regions)
    pairs = PairedVectors(source, np.arange(300), target, np.arange(300))
    nearest = (pairs.unit_source()[:, 0] > 0).astype(int)
    clusters = [Moments.of(pairs[np.flatnonzero(nearest == place)]) for place in (0, 1)]
    penalty, x_all = 0.1, with_constant(pairs.unit_source())
    common = ridge(total(clusters), penalty)
    even = (penalty * pairs.unit_source().var(axis=0).sum() + 1e-9 * (x_all**2).sum() / 300) / 6
    for place, found in enumerate(local_maps(clusters, penalty, tau)):
        x, y = x_all[nearest == place], pairs.unit_target()[nearest == place]
        np.testing.assert_allclose(found, slow_map(x, y, common, x_all, tau, even), atol=1e-7)


def test_a_cluster_without_pairs_follows_the_whole(two_regions) -> None:
    source, target = (rows.astype(np.float32) for rows in two_regions)
    moments = Moments.of(PairedVectors(source, np.arange(300), target, np.arange(300)))
    maps = local_maps([moments, moments - moments], 0.1, 50.0)
    np.testing.assert_allclose(maps[1], ridge(moments, 0.1), atol=1e-12)


def test_cells_divide_the_pairs(two_regions) -> None:
    source, target = (rows.astype(np.float32) for rows in two_regions)
    pairs = PairedVectors(source, np.arange(300), target, np.arange(300))
    cells = cell_moments(pairs, np.array([[1.0, 0, 0, 0, 0], [-1.0, 0, 0, 0, 0]]))
    assert [sum(cell.count for cell in row) for row in cells] == [(source[:, 0] > 0).sum(), (source[:, 0] < 0).sum()]
    whole = total([cell for row in cells for cell in row])
    np.testing.assert_allclose(whole.products, Moments.of(pairs).products, atol=1e-9)


def test_the_shrinkage_is_the_best_on_the_held_out_fold(two_regions, make_set) -> None:
    source, target = two_regions
    chosen = fit(make_set, source, target, clusters=2)
    candidates = [fit(make_set, source, target, clusters=2, shrinkage=5 * multiple) for multiple in STRENGTHS]
    same = [np.array_equal(chosen.fitted.state["weights"], other.fitted.state["weights"]) for other in candidates]
    assert sum(same) == 1 and not same[-1]


def test_clusters_are_never_more_than_one_for_twenty_pairs(related, make_set) -> None:
    source, target = related(70, (4, 4))
    assert fit(make_set, source, target).fitted.state["centres"].shape == (3, 4)
    assert fit(make_set, source[:5], target[:5]).fitted.state["centres"].shape == (1, 4)


def test_hard_assignment_takes_the_map_of_the_nearest_centre(two_regions, make_set) -> None:
    source, target = two_regions
    adapter = fit(make_set, source, target, clusters=3, shrinkage=5.0)
    state = adapter.fitted.state
    for row in source[:20]:
        weights = state["weights"][np.argmax(state["centres"] @ row)]
        expected = np.append(row, 1.0) @ weights
        np.testing.assert_allclose(adapter.map(row[None])[0], expected / np.linalg.norm(expected), atol=1e-6)


def test_soft_assignment_weighs_all_maps_and_hardens_as_it_cools(two_regions, make_set) -> None:
    source, target = two_regions
    soft = fit(make_set, source, target, clusters=3, shrinkage=5.0, assignment="soft", temperature=0.5)
    state, row = soft.fitted.state, source[0]
    weights = np.exp(state["centres"] @ row / 0.5)
    images = np.append(row, 1.0) @ state["weights"]
    expected = (weights[:, None] / weights.sum() * images).sum(axis=0)
    np.testing.assert_allclose(soft.map(row[None])[0], expected / np.linalg.norm(expected), atol=1e-6)
    cold = fit(make_set, source, target, clusters=3, shrinkage=5.0, assignment="soft", temperature=1e-6)
    hard = fit(make_set, source, target, clusters=3, shrinkage=5.0)
    np.testing.assert_allclose(cold.map(source), hard.map(source), atol=1e-6)


def test_spherical_means_of_separate_groups() -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat(np.eye(3), 20, axis=0) + 0.05 * rng.normal(size=(60, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    found = max(
        (spherical_means(rows, 3, np.random.default_rng(seed)) for seed in range(5)), key=lambda c: c.max(0).sum()
    )
    np.testing.assert_allclose(np.sort(found.argmax(axis=1)), [0, 1, 2])
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)
    own = rows[(rows @ found.T).argmax(axis=1) == 0].sum(axis=0)
    np.testing.assert_allclose(found[0], own / np.linalg.norm(own), atol=1e-12)


def test_equal_rows_leave_clusters_empty_and_finite() -> None:
    centres = spherical_means(np.tile([[0.6, 0.8]], (50, 1)), 4, np.random.default_rng(0))
    np.testing.assert_allclose(centres, [[0.6, 0.8]] * 4)


@pytest.mark.parametrize(
    "options",
    [{"clusters": 0}, {"shrinkage": 0.0}, {"shrinkage": -1.0}, {"assignment": "firm"}, {"temperature": 0.0}],
)
def test_impossible_options_are_refused(options) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        build_adapter("local", options)
