"""Layouts of points of any space in a plane that preserve neighbourhoods: t-SNE, UMAP, and UMAP on a hyperboloid.

All three start from the first two principal components of the tangent vectors at the origin instead of random
positions. They use the distances of the space itself, so hyperbolic embeddings are laid out by geodesic distance. A
layout preserves neighbourhoods only; do not read distances between groups or sizes of groups from it.

t-SNE comes from scikit-learn (extra `tsne`), UMAP from umap-learn (extra `umap`): both are well tested, and long to
write.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from limpet.embeddings import EmbeddingSet
from limpet.errors import refuse
from limpet.support import needing

if TYPE_CHECKING:
    from torch import Tensor

LayoutName = Literal["tsne", "umap", "hyperboloid"]
Plane = NDArray[np.float64]  # (N, 2)

FEWEST = 5
"""Minimum number of points of a layout; fewer have no neighbourhoods."""
_PERPLEXITY, _NEIGHBOURS = 30.0, 15  # usual values of t-SNE and of UMAP


TSNE, UMAP = "sklearn.manifold", "umap"
"""Modules that compute layouts, from packages of optional extras."""


def library(module: str) -> ModuleType:
    """Import a module that computes layouts.

    Raises:
        MissingExtraError: Its package is not installed.
    """
    with needing("This layout"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Tensorflow not installed", ImportWarning)  # not used here
        return import_module(module)


def canonical_points(embeddings: EmbeddingSet, dtype: DTypeLike | None = None) -> Tensor:
    """Return the vectors as points of their space (N, D), scaled as by `Space.project`; None keeps their dtype."""
    import torch

    rows = torch.from_numpy(np.array(embeddings.vectors, dtype))
    return embeddings.space.canonical(rows) if embeddings.form == "points" else embeddings.space.project(rows)


def distances_of(points: EmbeddingSet) -> NDArray[np.float64]:
    """Return the distances of all pairs, float64 (N, N): symmetric, 0 on the diagonal.

    Raises:
        ConfigError: The similarity of the space is not a distance, because some values are negative.
    """
    space, rows = points.space, canonical_points(points, np.float64)
    found: NDArray[np.float64] = space.distance(space.similarity(rows, rows)).numpy()
    refuse(
        bool((found < 0).any()), f"Vectors of the {space} are to be laid out by their distances.",
        "a space with distances: cosine or euclidean",
    )  # fmt: skip
    both = (found + found.T) / 2
    np.fill_diagonal(both, 0.0)
    return both


def main_plane(points: EmbeddingSet) -> Plane:
    """Return the first two principal components of the tangent vectors at the origin, float64 (N, 2).

    The sign of a direction makes its largest component positive. The second column is zero if there is no second
    direction.
    """
    import torch

    rows = torch.from_numpy(np.array(points.vectors, np.float64))
    if points.form == "points":
        rows = points.space.unproject(points.space.canonical(rows))
    centred = (rows - rows.mean(dim=0)).numpy()
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
    plane = np.zeros((len(points), 2))
    plane[:, : min(2, len(directions))] = centred @ (directions * np.where(largest < 0, -1, 1))[:2].T
    return plane


def tsne(distances: NDArray[np.float64], start: Plane, seed: int) -> Plane:
    """Return the t-SNE layout (van der Maaten and Hinton, JMLR 2008), with perplexity 30 or (N - 1) / 3 if less."""
    perplexity = min(_PERPLEXITY, (len(distances) - 1) / 3)
    how = {"metric": "precomputed", "init": 1e-4 * _scaled(start).astype(np.float32), "random_state": seed}
    laid: Plane = library(TSNE).TSNE(perplexity=perplexity, **how).fit_transform(distances).astype(np.float64)
    return laid


def umap(distances: NDArray[np.float64], start: Plane, seed: int) -> Plane:
    """Return the UMAP layout (McInnes et al., arXiv:1802.03426), with at most 15 neighbours."""
    return _umap(distances, start, seed, "euclidean")


def hyperboloid(distances: NDArray[np.float64], start: Plane, seed: int) -> Plane:
    """Return the UMAP layout on the two-dimensional hyperboloid, as tangent vectors at its origin (HBCT, Fig. 6).

    The length of a tangent vector is the distance of its point from the origin. This is a distance in the layout;
    unlike the length of the embedding, it does not express the uncertainty of the point.
    """
    points = _umap(distances, start, seed, "hyperboloid")
    radius = np.linalg.norm(points, axis=1, keepdims=True)
    stretch = np.divide(np.arcsinh(radius), radius, out=np.ones_like(radius), where=radius > 0)
    tangents: Plane = points * stretch
    return tangents


class Layout(NamedTuple):
    """Function from distances (N, N), initial positions (N, 2) and a seed to positions (N, 2), and its module."""

    compute: Callable[[NDArray[np.float64], Plane, int], Plane]
    module: str


LAYOUTS: dict[LayoutName, Layout] = {
    "tsne": Layout(tsne, TSNE),
    "umap": Layout(umap, UMAP),
    "hyperboloid": Layout(hyperboloid, UMAP),
}
"""Layouts by name."""


def laid_out(points: EmbeddingSet, layout: LayoutName, seed: int) -> Plane:
    """Return the positions of points in a layout, float64 (N, 2); the same seed gives the same layout.

    Args:
        points: Points to lay out, at least `FEWEST`.
        layout: Layout method.
        seed: Random seed.

    Raises:
        ConfigError: There are too few points, the space has no distances, or a package is not installed.
    """
    refuse(len(points) < FEWEST, f"A layout of {len(points)} embeddings.", f"at least {FEWEST}")
    return LAYOUTS[layout].compute(distances_of(points), main_plane(points), seed)


def _umap(distances: NDArray[np.float64], start: Plane, seed: int, output: str) -> Plane:
    how: dict[str, Any] = {"metric": "precomputed", "output_metric": output, "init": _scaled(start).astype(np.float32)}
    how |= {"n_neighbors": min(_NEIGHBOURS, len(distances) - 1), "random_state": seed, "n_jobs": 1}
    learn, pools = library(UMAP), library("threadpoolctl")
    with warnings.catch_warnings(), pools.threadpool_limits():  # UMAP changes thread counts, which other sums depend on
        warnings.filterwarnings("ignore", "using precomputed metric", UserWarning)  # inverse transforms are not used
        laid: Plane = learn.UMAP(**how).fit_transform(distances.astype(np.float32)).astype(np.float64)
    return laid


def _scaled(start: Plane) -> Plane:
    """Scale initial positions to a standard deviation of 1 in the first direction; equal points stay equal."""
    return start / (float(start[:, 0].std()) or 1.0)
