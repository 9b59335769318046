"""Indexes that know inner products only, exact and approximate, on galleries of hyperbolic points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
import pytest
import torch

from limpet.geometry import Lorentz

POINTS, QUERIES, DIM, TOP = 4_000, 200, 32, 10


def gallery_and_queries(curvature: float, narrow: bool) -> tuple[Lorentz, np.ndarray, np.ndarray]:
    """Classes around 100 centres; radii clipped at one length, or from near the origin to there."""
    rng, space = np.random.default_rng(0), Lorentz(DIM, curvature)
    centres = rng.normal(size=(100, DIM)) * (1 if narrow else rng.uniform(0.1, 1.2, (100, 1)))
    u = centres[rng.integers(0, 100, POINTS + QUERIES)] + 0.5 * rng.normal(size=(POINTS + QUERIES, DIM))
    u *= 1.4 / np.sqrt(curvature * DIM)
    u *= np.minimum(1, 1.4 / np.sqrt(curvature) / np.linalg.norm(u, axis=1, keepdims=True))
    points = space.project(torch.from_numpy(u)).numpy().astype(np.float32)
    return space, points[:POINTS], points[POINTS:]


def flat(dim: int) -> Any:
    return faiss.IndexFlatIP(dim)


def graph(dim: int) -> Any:
    index = faiss.IndexHNSWFlat(dim, 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efSearch = 64
    return index


def inverted_lists(dim: int) -> Any:
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, 32, faiss.METRIC_INNER_PRODUCT)
    index.own_fields, index.nprobe = False, 8
    inverted_lists.kept = index.quantizer  # type: ignore[attr-defined]  # the index does not keep it alive
    return index


@pytest.mark.parametrize("narrow", [True, False], ids=["one radius", "all radii"])
@pytest.mark.parametrize("curvature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("build", "recall"), [(flat, 0.9999), (graph, 0.98), (inverted_lists, 0.9)])
def test_the_nearest_points_are_found(
    build: Callable[[int], Any], recall: float, curvature: float, narrow: bool
) -> None:
    faiss.omp_set_num_threads(1)
    space, gallery, queries = gallery_and_queries(curvature, narrow)
    rows, asked = space.index_form(gallery, "gallery"), space.index_form(queries, "query")
    index = build(rows.shape[1])
    index.train(rows)
    index.add(rows)
    distances = -space.similarity(torch.from_numpy(queries).double(), torch.from_numpy(gallery).double())
    nearest = distances.topk(TOP, largest=False).indices.numpy()
    found = index.search(asked, TOP)[1]
    shares = [len(set(row) & set(true)) / TOP for row, true in zip(found, nearest, strict=True)]
    assert np.mean(shares) >= recall


def test_all_gallery_rows_have_one_length_and_the_filling_does_not_count() -> None:
    space, gallery, queries = gallery_and_queries(1.0, narrow=False)
    rows, asked = space.index_form(gallery, "gallery"), space.index_form(queries, "query")
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), np.linalg.norm(rows[0]), rtol=1e-6)
    assert not asked[:, -1].any()
    time = np.sqrt(1 + (queries.astype(np.float64) ** 2).sum(axis=1))
    distances = -space.similarity(torch.from_numpy(queries).double(), torch.from_numpy(gallery).double()).numpy()
    np.testing.assert_allclose(asked @ rows.T, time[:, None] - np.cosh(distances), atol=2e-5)


@pytest.mark.parametrize("curvature", [0.25, 1.0, 4.0])
def test_points_farther_than_float32_can_rank_are_no_points_of_the_space(curvature: float) -> None:
    space = Lorentz(3, curvature)
    reach = 4 / curvature**0.5
    features = np.eye(3, dtype=np.float32) * np.float32([reach, 1.01 * reach, 0])[:, None]
    assert space.check_features(features).tolist() == [1]
    points = space.project_array(features.astype(np.float64)).astype(np.float32)
    assert space.check(points).tolist() == [1]
