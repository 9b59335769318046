"""What every space promises, run over all of `SEARCH_SPACES`, whether models are trained there or not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.geometry import SEARCH_SPACES, SPACES, InnerProduct, Space, space_from_record
from holdfast.geometry.segments import add_by_class

DTYPES = [torch.float32, torch.float64]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


@pytest.fixture(params=sorted(SEARCH_SPACES))
def space(request: pytest.FixtureRequest) -> Space:
    return SEARCH_SPACES[request.param](6)  # type: ignore[call-arg]


@pytest.fixture(params=sorted(name for name, space in SEARCH_SPACES.items() if space is not InnerProduct))
def metric_space(request: pytest.FixtureRequest) -> Space:
    """A space whose similarity is that of a metric: no inner product, where a longer vector may come first."""
    return SEARCH_SPACES[request.param](6)  # type: ignore[call-arg]


def features(rows: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype) / 2


def test_a_record_comes_back_as_the_same_space(space) -> None:
    again = space_from_record(space.record())
    assert again == space and hash(again) == hash(space) and str(again) == str(space)
    assert again != type(space)(7)


@pytest.mark.parametrize("dtype", DTYPES)
def test_projected_features_are_points_in_their_canonical_form(space, dtype) -> None:
    points = space.project(features(40, dtype))
    assert points.dtype == dtype
    assert len(space.check(points.numpy().astype(np.float32))) == 0
    torch.testing.assert_close(space.canonical(points), points)
    torch.testing.assert_close(space.project(space.unproject(points)), points)


@pytest.mark.parametrize("dtype", DTYPES)
def test_similarity_is_symmetric_and_keeps_its_type(space, dtype) -> None:
    points = space.project(features(30, dtype))
    similarity = space.similarity(points, points)
    assert similarity.shape == (30, 30) and similarity.dtype == dtype
    torch.testing.assert_close(similarity, similarity.T)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_point_is_most_similar_to_itself(metric_space, dtype) -> None:
    points = metric_space.project(features(30, dtype))
    similarity = metric_space.similarity(points, points)
    assert (similarity <= similarity.diagonal()[:, None] + TOLERANCE[dtype]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_inner_products_of_index_form_rank_as_similarity_does(space, dtype) -> None:
    x, y = space.project(features(20, dtype)), space.project(features(50, dtype, seed=1))
    queries = space.index_form(x.numpy().astype(np.float32), "query")
    gallery = space.index_form(y.numpy().astype(np.float32), "gallery")
    assert queries.dtype == gallery.dtype == np.float32
    by_similarity = space.similarity(x, y).numpy().argsort(axis=1)
    by_inner_product = (queries.astype(np.float64) @ gallery.T.astype(np.float64)).argsort(axis=1)
    np.testing.assert_array_equal(by_similarity, by_inner_product)


@pytest.mark.parametrize("side", ["query", "gallery"])
def test_a_block_has_the_index_form_that_it_has_in_the_whole(space, side) -> None:
    points = space.project(features(40, torch.float32)).numpy()
    points.setflags(write=False)  # as those of a mapped file are
    whole = space.index_form(points, side)
    assert whole.shape == (40, space.index_dim)
    blocks = [space.index_form(points[start : start + 7], side) for start in range(0, 40, 7)]
    np.testing.assert_array_equal(np.concatenate(blocks), whole)
    assert space.index_form(points[:0], side).shape == (0, space.index_dim)


def test_points_come_back_from_what_a_gallery_stores(space) -> None:
    points = space.canonical(space.project(features(20, torch.float32)))
    form = space.index_form(points.numpy(), "gallery")
    np.testing.assert_allclose(space.from_index_form(form), points.numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_class_means_are_points_that_do_not_depend_on_the_order(space, dtype) -> None:
    points, labels = space.project(features(24, dtype)), torch.arange(24) % 3
    means, counts = space.mean(points, labels, 4)
    assert counts.tolist() == [8, 8, 8, 0] and means.dtype == dtype
    assert len(space.check(means[:3].numpy().astype(np.float32))) == 0
    order = torch.randperm(24, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(space.mean(points[order], labels[order], 4)[0], means)


@pytest.mark.parametrize("dtype", DTYPES)
def test_class_means_may_be_summed_block_by_block(space, dtype) -> None:
    points, labels = space.project(features(24, dtype)), torch.arange(24) % 3
    sums, counts = torch.zeros(4, space.summed_dim, dtype=dtype), torch.zeros(4, dtype=dtype)
    for block in torch.split(torch.arange(24), 10):
        add_by_class(sums, counts, space.summed(points[block]), labels[block])
    means, expected = space.mean(points, labels, 4)
    assert counts.tolist() == expected.tolist()
    torch.testing.assert_close(space.centre(sums, counts), means)


def test_the_mean_of_one_point_is_that_point(space) -> None:
    point = space.project(features(1, torch.float64))
    torch.testing.assert_close(space.mean(point, torch.zeros(1, dtype=torch.int64), 1)[0], point)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pairs_and_distances_agree_with_the_similarity_of_all(space, dtype) -> None:
    x, y = space.project(features(20, dtype)), space.project(features(20, dtype, seed=1))
    similarity = space.similarity(x, y)
    torch.testing.assert_close(space.paired_similarity(x, y), similarity.diagonal())
    torch.testing.assert_close(space.similarity(x, y, 3.0), 3 * similarity)
    distance = space.distance(similarity)
    torch.testing.assert_close(space.paired_distance(x, y), distance.diagonal())
    assert torch.equal(distance.argsort(dim=1), (-similarity).argsort(dim=1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_distance_of_a_point_to_itself_is_0_with_a_gradient_of_0(metric_space, dtype) -> None:
    points = metric_space.project(features(3, dtype))
    moved = points.clone().requires_grad_()
    found = metric_space.paired_distance(moved, points)
    found.sum().backward()
    assert found.tolist() == [0.0] * 3 and not moved.grad.any()
    others = metric_space.project(features(20, dtype, seed=1))
    assert (metric_space.distance(metric_space.similarity(points, others)) >= 0).all()


def test_a_clipping_length_exists_only_where_models_are_trained_and_lengths_count(space) -> None:
    first = space.clip_after(None)
    if space.name not in SPACES or not space.lengths_count:
        assert first is None
        with pytest.raises(ConfigError, match="only directions count" if space.name in SPACES else "no model is tr"):
            space.clip_after(None, 1.0)
        return
    assert first is not None and space.clip_after(first) > first
    assert space.clip_after(first, 1.7) == 1.7


def test_rows_that_are_not_finite_are_no_points(space) -> None:
    points = space.project(features(5, torch.float32)).numpy().copy()
    points[1, 2], points[3, 0] = np.nan, np.inf
    assert space.check(points).tolist() == [1, 3]


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_of_projection_is_finite_near_zero(space, dtype) -> None:
    near = torch.full((2, 6), 1e-20, dtype=dtype, requires_grad=True)
    space.project(near).sum().backward()
    assert torch.isfinite(near.grad).all()


def test_uncertainty_is_none_or_in_the_unit_interval(space) -> None:
    points = space.project(features(9, torch.float32))
    uncertainty = space.uncertainty(points)
    assert uncertainty is None or ((uncertainty >= 0) & (uncertainty <= 1)).all()


def test_unknown_space_and_impossible_dimension() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'hypersphere'"):
        space_from_record({"name": "hyperspher", "dim": 3})
    with pytest.raises(ConfigError, match="dim=0"):
        space_from_record({"name": "hypersphere", "dim": 0})
    with pytest.raises(ConfigError, match="do not describe"):
        space_from_record({"name": "hypersphere", "dim": 3, "colour": "red"})
