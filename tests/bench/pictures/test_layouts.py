from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from limpet.errors import ConfigError
from limpet.geometry import Euclidean, Hypersphere, InnerProduct, Lorentz, Space
from limpet_bench.pictures.layouts import LAYOUTS, distances_of, hyperboloid, laid_out, main_plane

SPACES = [Hypersphere(4), Lorentz(4), Lorentz(4, 0.5), Euclidean(4)]
NAMES = [space.name + str(space.curvature or "") for space in SPACES]


def groups(count: int = 3, each: int = 12, dim: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Points in groups around the first axes, 0.5 long, and which group each is of."""
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(count), each)
    return 0.5 * np.eye(dim)[labels] + rng.normal(0, 0.03, (len(labels), dim)), labels


def nearest_agree(plane: np.ndarray, labels: np.ndarray) -> float:
    gaps = np.linalg.norm(plane[:, None] - plane[None], axis=-1)
    np.fill_diagonal(gaps, np.inf)
    return float((labels[gaps.argmin(axis=1)] == labels).mean())


@pytest.mark.parametrize("space", SPACES, ids=NAMES)
def test_distances_are_those_of_the_space_pair_by_pair(items, space: Space) -> None:
    points = items(groups()[0][:7], [0] * 7, space)
    found = distances_of(points)
    rows = space.canonical(torch.from_numpy(np.array(points.vectors, np.float64)))
    for i in range(7):
        for j in range(7):
            expected = 0.0 if i == j else space.paired_distance(rows[i : i + 1], rows[j : j + 1]).item()
            assert found[i, j] == pytest.approx(expected, abs=1e-7)
    assert (found == found.T).all()


def test_inner_products_are_no_distances(items) -> None:
    with pytest.raises(ConfigError, match="space with distances"):
        distances_of(items(groups()[0], groups()[1], InnerProduct(4)))


def test_the_main_plane_holds_the_two_longest_directions(items) -> None:
    plane = main_plane(
        items([[3, 0, 0], [-3, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 0.1], [0, 0, -0.1]], [0] * 6, Euclidean(3))
    )
    assert np.allclose(plane, [[3, 0], [-3, 0], [0, 1], [0, -1], [0, 0], [0, 0]], atol=1e-6)
    assert np.allclose(main_plane(items([[1], [2], [6]], [0] * 3, Euclidean(1))), [[-2, 0], [-1, 0], [3, 0]])


@pytest.mark.parametrize("space", SPACES, ids=NAMES)
def test_tsne_keeps_groups_together_the_same_way_each_time(items, space: Space) -> None:
    vectors, labels = groups()
    points = items(vectors, labels, space)
    plane = laid_out(points, "tsne", 0)
    assert plane.shape == (36, 2) and np.isfinite(plane).all()
    assert nearest_agree(plane, labels) == 1.0
    assert (laid_out(points, "tsne", 0) == plane).all()


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["umap", "hyperboloid"])
def test_umap_keeps_groups_together_the_same_way_each_time(items, layout: str) -> None:
    pytest.importorskip("umap", exc_type=ImportError)
    vectors, labels = groups()
    threads = torch.get_num_threads()
    for space in (Hypersphere(4), Lorentz(4)):
        points = items(vectors, labels, space)
        plane = laid_out(points, layout, 0)
        assert torch.get_num_threads() == threads, "sums of what is trained afterwards stay the same"
        assert plane.shape == (36, 2) and np.isfinite(plane).all()
        assert nearest_agree(plane, labels) > 0.95
        assert (laid_out(points, layout, 0) == plane).all()


def test_points_of_a_hyperboloid_are_as_far_from_the_origin_in_the_tangent_plane(monkeypatch) -> None:
    from limpet_bench.pictures import layouts

    laid = np.array([[0.0, 0.0], [3.0, 4.0], [-np.sinh(1.0), 0.0]])
    monkeypatch.setattr(layouts, "_umap", lambda *_: laid)
    found = hyperboloid(np.zeros((3, 3)), laid, 0)
    space = Lorentz(2)
    origin = torch.zeros(1, 2, dtype=torch.float64)
    far = space.paired_distance(origin.expand(3, 2), torch.from_numpy(laid)).numpy()
    assert np.linalg.norm(found, axis=1) == pytest.approx(far, abs=1e-7)
    assert found[2] == pytest.approx([-1.0, 0.0])
    assert found[1] / np.linalg.norm(found[1]) == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_a_package_that_is_missing_is_named_with_the_extra_that_has_it(items, layout: str, monkeypatch) -> None:
    name, extra = {"tsne": ("scikit-learn", "tsne")}.get(layout, ("umap-learn", "umap"))
    monkeypatch.setitem(sys.modules, LAYOUTS[layout].module, None)
    with pytest.raises(ConfigError, match=rf"{name}, which is not installed(.|\n)*\.\[{extra}\]"):
        laid_out(items(*groups()), layout, 0)


def test_too_few_points_are_refused(items) -> None:
    with pytest.raises(ConfigError, match="A layout of 4 embeddings"):
        laid_out(items(groups()[0][:4], [0] * 4), "tsne", 0)
