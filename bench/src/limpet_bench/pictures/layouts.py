"""Points of any space laid out in a plane, so that near ones stay near: t-SNE, UMAP, and UMAP on a hyperboloid.

All three start from the two main directions of the tangent vectors at the origin rather than from noise, and are given
the distances of the space itself, so that hyperbolic embeddings are laid out by geodesic distances. What they show is
who is near whom; how far apart groups lie, and how large they are, says little.

t-SNE is scikit-learn's (extra `tsne`), UMAP is umap-learn's (extra `umap`): both are known to be right, and neither
is short.
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
"""Points that a layout needs: fewer have no neighbourhoods."""
_PERPLEXITY, _NEIGHBOURS = 30.0, 15  # the usual ones of t-SNE and of UMAP


TSNE, UMAP = "sklearn.manifold", "umap"
"""What computes layouts: modules of packages that extras bring."""


def library(module: str) -> ModuleType:
    """Import a module that computes layouts.

    Raises:
        MissingExtraError: Its package is not installed.
    """
    with needing("This layout"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Tensorflow not installed", ImportWarning)  # for what is not used here
        return import_module(module)


def canonical_points(embeddings: EmbeddingSet, dtype: DTypeLike | None = None) -> Tensor:
    """Return the vectors as points of their space, scaled as `Space.project` scales them; of their own type if None."""
    import torch

    rows = torch.from_numpy(np.array(embeddings.vectors, dtype))
    return embeddings.space.canonical(rows) if embeddings.form == "points" else embeddings.space.project(rows)


def distances_of(points: EmbeddingSet) -> NDArray[np.float64]:
    """Return the distances of all pairs (N, N): symmetric, 0 on the diagonal.

    Raises:
        ConfigError: The space has similarities that are no distances.
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
    """Return the tangent vectors at the origin, about their mean, on their two main directions (N, 2).

    Each direction has the sign with which its largest component is positive; zero where there is no second one.
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
    """Return the layout of t-SNE (van der Maaten and Hinton, JMLR 2008), perplexity 30 or a third of the points."""
    perplexity = min(_PERPLEXITY, (len(distances) - 1) / 3)
    how = {"metric": "precomputed", "init": 1e-4 * _scaled(start).astype(np.float32), "random_state": seed}
    laid: Plane = library(TSNE).TSNE(perplexity=perplexity, **how).fit_transform(distances).astype(np.float64)
    return laid


def umap(distances: NDArray[np.float64], start: Plane, seed: int) -> Plane:
    """Return the layout of UMAP (McInnes et al., arXiv:1802.03426), of 15 neighbours at most."""
    return _umap(distances, start, seed, "euclidean")


def hyperboloid(distances: NDArray[np.float64], start: Plane, seed: int) -> Plane:
    """Return the layout of UMAP on the hyperboloid of two dimensions, as tangent vectors at its origin (HBCT, Fig. 6).

    The length of a tangent vector is the distance of its point from the origin. It is the layout's own: it does not say
    how uncertain a point is, as the length of the embedding itself does.
    """
    points = _umap(distances, start, seed, "hyperboloid")
    radius = np.linalg.norm(points, axis=1, keepdims=True)
    stretch = np.divide(np.arcsinh(radius), radius, out=np.ones_like(radius), where=radius > 0)
    tangents: Plane = points * stretch
    return tangents


class Layout(NamedTuple):
    """How points are laid out: from distances (N, N), a start (N, 2) and a seed to places (N, 2); by which module."""

    compute: Callable[[NDArray[np.float64], Plane, int], Plane]
    module: str


LAYOUTS: dict[LayoutName, Layout] = {
    "tsne": Layout(tsne, TSNE),
    "umap": Layout(umap, UMAP),
    "hyperboloid": Layout(hyperboloid, UMAP),
}
"""By name."""


def laid_out(points: EmbeddingSet, layout: LayoutName, seed: int) -> Plane:
    """Return where a layout puts points (N, 2); the same for the same seed.

    Args:
        points: What to lay out, at least `FEWEST`.
        layout: Which one.
        seed: Of what it draws.

    Raises:
        ConfigError: There are too few points, the space has no distances, or what computes the layout is not installed.
    """
    refuse(len(points) < FEWEST, f"A layout of {len(points)} embeddings.", f"at least {FEWEST}")
    return LAYOUTS[layout].compute(distances_of(points), main_plane(points), seed)


def _umap(distances: NDArray[np.float64], start: Plane, seed: int, output: str) -> Plane:
    how: dict[str, Any] = {"metric": "precomputed", "output_metric": output, "init": _scaled(start).astype(np.float32)}
    how |= {"n_neighbors": min(_NEIGHBOURS, len(distances) - 1), "random_state": seed, "n_jobs": 1}
    learn, pools = library(UMAP), library("threadpoolctl")
    with warnings.catch_warnings(), pools.threadpool_limits():  # it changes the threads of others, whose sums follow
        warnings.filterwarnings("ignore", "using precomputed metric", UserWarning)  # nothing is transformed later
        laid: Plane = learn.UMAP(**how).fit_transform(distances.astype(np.float32)).astype(np.float64)
    return laid


def _scaled(start: Plane) -> Plane:
    """Return a start whose first direction has a standard deviation of 1; points in one place stay there."""
    return start / (float(start[:, 0].std()) or 1.0)
