"""What every space promises, whether models are trained there or not."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from limpet.errors import ConfigError, SpaceMismatchError
from limpet.geometry import SPACES, InnerProduct, Space, space_from_record
from limpet.geometry.segments import add_by_class
from limpet.geometry.space import Side, with_zeros
from limpet.testing.contract import Check, Contract, refused

CONTRACT, OF_METRICS = Contract(), Contract()
DTYPES = (torch.float32, torch.float64)
SIDES = ("query", "gallery")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def space_contract(space: Space) -> list[Check]:
    """Return what a space of 6 dimensions promises, as checks.

    A space whose similarity is that of a metric promises more than an inner product, where a longer vector may be
    nearer to a point than the point itself.
    """
    metric = [] if type(space) is InnerProduct else OF_METRICS.checks(space=space)
    return [*CONTRACT.checks(space=space), *metric]


def features(rows: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(rows, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype) / 2


@CONTRACT.promise()
def a_record_comes_back_as_the_same_space(space: Space) -> None:
    again = space_from_record(space.record())
    assert again == space and hash(again) == hash(space) and str(again) == str(space)
    assert again != type(space)(7)  # type: ignore[call-arg, arg-type]


@CONTRACT.promise(dtype=DTYPES)
def projected_features_are_points_in_their_canonical_form(space: Space, dtype: torch.dtype) -> None:
    points = space.project(features(40, dtype))
    assert points.dtype == dtype
    assert len(space.check(points.numpy().astype(np.float32))) == 0
    torch.testing.assert_close(space.canonical(points), points)
    torch.testing.assert_close(space.project(space.unproject(points)), points)


@CONTRACT.promise(dtype=DTYPES)
def similarity_is_symmetric_and_keeps_its_type(space: Space, dtype: torch.dtype) -> None:
    points = space.project(features(30, dtype))
    similarity = space.similarity(points, points)
    assert similarity.shape == (30, 30) and similarity.dtype == dtype
    torch.testing.assert_close(similarity, similarity.T)


@OF_METRICS.promise(dtype=DTYPES)
def a_point_is_most_similar_to_itself(space: Space, dtype: torch.dtype) -> None:
    points = space.project(features(30, dtype))
    similarity = space.similarity(points, points)
    assert (similarity <= similarity.diagonal()[:, None] + TOLERANCE[dtype]).all()


@CONTRACT.promise(dtype=DTYPES)
def inner_products_of_index_form_rank_as_similarity_does(space: Space, dtype: torch.dtype) -> None:
    x, y = space.project(features(20, dtype)), space.project(features(50, dtype, seed=1))
    queries = space.index_form(x.numpy().astype(np.float32), "query")
    gallery = space.index_form(y.numpy().astype(np.float32), "gallery")
    assert queries.dtype == gallery.dtype == np.float32
    by_similarity = space.similarity(x, y).numpy().argsort(axis=1)
    by_inner_product = (queries.astype(np.float64) @ gallery.T.astype(np.float64)).argsort(axis=1)
    np.testing.assert_array_equal(by_similarity, by_inner_product)


@CONTRACT.promise(side=SIDES)
def a_block_has_the_index_form_that_it_has_in_the_whole(space: Space, side: Side) -> None:
    points = space.project(features(40, torch.float32)).numpy()
    points.setflags(write=False)  # as those of a mapped file are
    whole = space.index_form(points, side)
    assert whole.shape == (40, space.index_dim)
    blocks = [space.index_form(points[start : start + 7], side) for start in range(0, 40, 7)]
    np.testing.assert_array_equal(np.concatenate(blocks), whole)
    assert space.index_form(points[:0], side).shape == (0, space.index_dim)


@CONTRACT.promise()
def the_narrower_of_two_sides_counts_as_padded_with_zeros(space: Space) -> None:
    """A space whose points may end in zeros is as wide as the wider side; scores are those of the padded points."""
    narrow, wide = type(space)(4), type(space)(6)  # type: ignore[call-arg, arg-type]
    points = wide.project(features(30, torch.float32)).numpy()
    short = narrow.project(features(30, torch.float32, seed=1)[:, :4]).numpy()
    if not space.pads_with_zeros:
        assert not wide.compares_with(narrow)
        refused(lambda: wide.query_form(points, narrow), SpaceMismatchError, why="it has no zeros to append")
        return
    padded = with_zeros(short, 6)
    x, y, z = (torch.from_numpy(rows) for rows in (points, short, padded))
    torch.testing.assert_close(wide.similarity(z, z), narrow.similarity(y, y), rtol=1e-4, atol=1e-5)
    whole = wide.index_form(points, "query") @ wide.index_form(padded, "gallery").T
    asked = wide.query_form(points, narrow) @ narrow.index_form(short, "gallery").T
    np.testing.assert_allclose(asked, whole, rtol=1e-4, atol=1e-5)
    cut = narrow.index_form(np.ascontiguousarray(points[:, :4]), "query") @ narrow.index_form(short, "gallery").T
    np.testing.assert_array_equal(cut.argsort(axis=1), wide.similarity(x, z).numpy().argsort(axis=1))
    back = narrow.query_form(short, wide) @ wide.index_form(points, "gallery").T
    np.testing.assert_allclose(back, wide.index_form(padded, "query") @ wide.index_form(points, "gallery").T,
                               rtol=1e-4, atol=1e-5)  # fmt: skip


@CONTRACT.promise()
def points_come_back_from_what_a_gallery_stores(space: Space) -> None:
    points = space.canonical(space.project(features(20, torch.float32)))
    form = space.index_form(points.numpy(), "gallery")
    np.testing.assert_allclose(space.from_index_form(form), points.numpy(), rtol=1e-6)


@CONTRACT.promise(dtype=DTYPES)
def class_means_are_points_that_do_not_depend_on_the_order(space: Space, dtype: torch.dtype) -> None:
    points, labels = space.project(features(24, dtype)), torch.arange(24) % 3
    means, counts = space.mean(points, labels, 4)
    assert counts.tolist() == [8, 8, 8, 0] and means.dtype == dtype
    assert len(space.check(means[:3].numpy().astype(np.float32))) == 0
    order = torch.randperm(24, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(space.mean(points[order], labels[order], 4)[0], means)


@CONTRACT.promise(dtype=DTYPES)
def class_means_may_be_summed_block_by_block(space: Space, dtype: torch.dtype) -> None:
    points, labels = space.project(features(24, dtype)), torch.arange(24) % 3
    sums, counts = torch.zeros(4, space.summed_dim, dtype=dtype), torch.zeros(4, dtype=dtype)
    for block in torch.split(torch.arange(24), 10):
        add_by_class(sums, counts, space.summed(points[block]), labels[block])
    means, expected = space.mean(points, labels, 4)
    assert counts.tolist() == expected.tolist()
    torch.testing.assert_close(space.centre(sums, counts), means)


@CONTRACT.promise()
def the_mean_of_one_point_is_that_point(space: Space) -> None:
    point = space.project(features(1, torch.float64))
    torch.testing.assert_close(space.mean(point, torch.zeros(1, dtype=torch.int64), 1)[0], point)


@CONTRACT.promise(dtype=DTYPES)
def pairs_and_distances_agree_with_the_similarity_of_all(space: Space, dtype: torch.dtype) -> None:
    x, y = space.project(features(20, dtype)), space.project(features(20, dtype, seed=1))
    similarity = space.similarity(x, y)
    torch.testing.assert_close(space.paired_similarity(x, y), similarity.diagonal())
    torch.testing.assert_close(space.similarity(x, y, 3.0), 3 * similarity)
    distance = space.distance(similarity)
    torch.testing.assert_close(space.paired_distance(x, y), distance.diagonal())
    assert torch.equal(distance.argsort(dim=1), (-similarity).argsort(dim=1))


@OF_METRICS.promise(dtype=DTYPES)
def the_distance_of_a_point_to_itself_is_0_with_a_gradient_of_0(space: Space, dtype: torch.dtype) -> None:
    points = space.project(features(3, dtype))
    moved = points.clone().requires_grad_()
    found = space.paired_distance(moved, points)
    found.sum().backward()
    assert found.tolist() == [0.0] * 3 and moved.grad is not None and not moved.grad.any()
    others = space.project(features(20, dtype, seed=1))
    assert (space.distance(space.similarity(points, others)) >= 0).all()


@CONTRACT.promise()
def a_clipping_length_exists_only_where_models_are_trained_and_lengths_count(space: Space) -> None:
    first = space.clip_after(None)
    if space.name not in SPACES or not space.lengths_count:
        assert first is None
        words = "only directions count" if space.name in SPACES else "no model is tr"
        refused(lambda: space.clip_after(None, 1.0), ConfigError, words=words)
        return
    further = None if first is None else space.clip_after(first)
    assert first is not None and further is not None and further > first
    assert space.clip_after(first, 1.7) == 1.7


@CONTRACT.promise()
def rows_that_are_not_finite_are_no_points(space: Space) -> None:
    points = space.project(features(5, torch.float32)).numpy().copy()
    points[1, 2], points[3, 0] = np.nan, np.inf
    assert space.check(points).tolist() == [1, 3]


@CONTRACT.promise(dtype=DTYPES)
def gradient_of_projection_is_finite_near_zero(space: Space, dtype: torch.dtype) -> None:
    near = torch.full((2, 6), 1e-20, dtype=dtype, requires_grad=True)
    space.project(near).sum().backward()
    assert near.grad is not None and torch.isfinite(near.grad).all()


@CONTRACT.promise(dtype=DTYPES)
def arrays_are_answered_as_tensors_are(space: Space, dtype: torch.dtype) -> None:
    given = torch.cat([features(30, dtype), features(10, dtype, seed=1) * 1e-7, torch.zeros(1, 6, dtype=dtype)])
    points, labels = space.project(given), torch.arange(41) % 5
    rows = points.numpy()
    with torch.no_grad():
        pairs = {
            "project": (space.project_array(given.numpy()), points),
            "unproject": (space.unproject_array(rows), space.unproject(points)),
            "canonical": (space.canonical_array(rows), space.canonical(points)),
            "similarity": (space.similarity_array(rows[:9], rows), space.similarity(points[:9], points)),
            "mean": (space.mean_array(rows, labels.numpy(), 6), space.mean(points, labels, 6)[0]),
        }
    for name, (found, expected) in pairs.items():
        np.testing.assert_allclose(found, expected.numpy(), rtol=2e-5, atol=10 * TOLERANCE[dtype], err_msg=name)
    for name in ("project", "unproject", "canonical", "mean"):
        assert pairs[name][0].dtype == rows.dtype, name
    ours, theirs = space.uncertainty_array(rows), space.uncertainty(points)
    assert (ours is None) == (theirs is None)
    if ours is not None and theirs is not None:
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5)


@CONTRACT.promise()
def uncertainty_is_none_or_in_the_unit_interval(space: Space) -> None:
    points = space.project(features(9, torch.float32))
    uncertainty = space.uncertainty(points)
    assert uncertainty is None or ((uncertainty >= 0) & (uncertainty <= 1)).all()
