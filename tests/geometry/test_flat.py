from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from limpet.geometry import SEARCH_SPACES, SPACES, Euclidean, InnerProduct, space_from_record
from limpet.methods.base import EVERY_SPACE

X = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
Y = torch.tensor([[0.0, 8.0], [6.0, 8.0], [3.0, 4.0]])


def test_worked_numbers() -> None:
    assert InnerProduct(2).similarity(X, Y).tolist() == [[32.0, 50.0, 25.0], [0.0, 0.0, 0.0]]
    assert Euclidean(2).similarity(X, Y).tolist() == [[-5.0, -5.0, 0.0], [-8.0, -10.0, -5.0]]
    assert Euclidean(2).similarity(X, Y, 2.0).tolist() == [[-10.0, -10.0, 0.0], [-16.0, -20.0, -10.0]]
    assert InnerProduct(2).distance(torch.tensor([25.0, -3.0])).tolist() == [-25.0, 3.0]
    form = Euclidean(2).index_form(Y.numpy(), "gallery")
    assert form.tolist() == [[0.0, 8.0, -32.0], [6.0, 8.0, -50.0], [3.0, 4.0, -12.5]]
    asked = Euclidean(2).index_form(X.numpy(), "query")
    assert asked.tolist() == [[3.0, 4.0, 1.0], [0.0, 0.0, 1.0]]
    assert (asked @ form.T).tolist() == [[0.0, 0.0, 12.5], [-32.0, -50.0, -12.5]]  # (|q|² - |q - g|²) / 2


@pytest.mark.parametrize("space", [InnerProduct(2), Euclidean(2)])
def test_means_are_plain_ones_whatever_the_lengths(space) -> None:
    means, counts = space.mean(Y, torch.tensor([0, 0, 2]), 4)
    assert means.tolist() == [[3.0, 8.0], [0.0, 0.0], [3.0, 4.0], [0.0, 0.0]] and counts.tolist() == [2, 0, 1, 0]


@pytest.mark.parametrize("space", [InnerProduct(3), Euclidean(3)])
def test_what_float32_cannot_multiply_is_no_point_and_zero_is_one(space) -> None:
    rows = np.array([[0, 0, 0], [1e-30, 0, 0], [9e18, 0, 0], [1e19, 0, 0], [np.nan, 1, 1], [np.inf, 0, 0]], np.float32)
    assert space.check(rows).tolist() == space.check_features(rows).tolist() == [3, 4, 5]
    longest = np.array([[9e18, 0, 0], [-9e18, 0, 0]], np.float32)
    with np.errstate(over="raise"):
        scores = space.index_form(longest, "query") @ space.index_form(longest, "gallery").T
    assert np.isfinite(scores).all()


def test_inner_products_are_stored_as_they_are() -> None:
    rows = np.ones((3, 2), np.float32)
    assert InnerProduct(2).index_form(rows, "gallery") is rows
    assert InnerProduct(2).index_dim == 2 and Euclidean(2).index_dim == 3


def exact_distances(query: np.ndarray, gallery: np.ndarray) -> np.ndarray:
    """Distances (Q, N) by the formula, one pair after another."""
    return np.array([[math.dist(one, other) for other in gallery.tolist()] for one in query.tolist()])


def test_the_norm_is_that_of_float64() -> None:
    """Squared lengths of about 128 million, which float32 adds up to the wrong last digits."""
    rng = np.random.default_rng(0)
    gallery = rng.uniform(900, 1100, (400, 128)).astype(np.float32)
    last = Euclidean(128).index_form(gallery, "gallery")[:, -1].astype(np.float64)
    exact = np.array([-math.fsum(value * value for value in row) / 2 for row in gallery.tolist()])
    assert (np.abs(last - exact) <= np.spacing(np.abs(exact).astype(np.float32)) / 2).all()  # rounded once


@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_float32_ranks_as_distances_do(offset: float) -> None:
    """Swapped pairs differ by less than 1e-6 of the squared lengths of query and item, also far from the origin."""
    rng = np.random.default_rng(1)
    query, gallery = (rng.normal(offset, 1, (rows, 64)).astype(np.float32) for rows in (20, 300))
    space, exact = Euclidean(64), exact_distances(query, gallery)
    scores = space.index_form(query, "query") @ space.index_form(gallery, "gallery").T
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(exact**2, order, axis=1)
    swapped = ranked[:, :-1] - ranked[:, 1:]  # above 0 where the farther one comes first
    sizes = (query.astype(np.float64) ** 2).sum(axis=1)[:, None] + (gallery.astype(np.float64) ** 2).sum(axis=1).max()
    assert (swapped <= 1e-6 * sizes).all()
    if not offset:
        np.testing.assert_array_equal(order, np.argsort(exact, axis=1, kind="stable"))


def test_close_points_far_from_the_origin_keep_their_distance() -> None:
    x = torch.full((1, 64), 1000.0)
    y = x.clone()
    y[0, 0] += 0.125
    assert Euclidean(64).similarity(x, y).item() == Euclidean(64).paired_similarity(x, y).item() == -0.125


def test_spaces_of_stored_vectors_are_none_that_models_are_trained_in() -> None:
    assert set(SPACES) == EVERY_SPACE == {"hypersphere", "lorentz"}
    assert set(SEARCH_SPACES) - set(SPACES) == {"inner-product", "euclidean"}
    assert space_from_record({"name": "euclidean", "dim": 3, "curvature": None}) == Euclidean(3) != InnerProduct(3)
    assert str(Euclidean(3)) == "euclidean space of dimension 3"


def test_searching_them_needs_no_torch() -> None:
    code = (
        "import sys, numpy; from limpet.geometry import Euclidean; "
        "Euclidean(2).index_form(numpy.ones((1, 2), 'f4'), 'query'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_spaces_pad_only_narrower_ones_of_their_own_kind() -> None:
    wide = {name: kind(8) for name, kind in SEARCH_SPACES.items()}
    narrow = {name: kind(4) for name, kind in SEARCH_SPACES.items()}
    padding = {(a, b) for a, one in wide.items() for b, other in narrow.items() if one.pads(other)}
    assert padding == {(name, name) for name in SEARCH_SPACES if name != "lorentz"}
    assert not any(one.pads(one) or narrow[name].pads(one) for name, one in wide.items())
