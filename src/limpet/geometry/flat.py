"""Spaces of vectors of any length: what is stored is the point. They are searched and evaluated, not trained in."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from limpet.errors import refuse
from limpet.geometry.space import Array, Side, Space, sums_by_class, with_zeros
from limpet.support.steps import Steps

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_SQUARE = float(np.finfo(np.float32).max) / 4
"""Of the length of a point: sums of two inner products of such points do not leave float32."""


class FlatSpace(Space):
    """What spaces share whose points are all vectors of D numbers: projecting changes nothing, means are plain ones."""

    called: ClassVar[str]
    """Name of the geometry, a key of `SEARCH_SPACES`."""
    points_are = "vectors of finite numbers, no longer than 9e18: float32 cannot hold the inner products of others"
    lengths_count = True
    pads_with_zeros = True

    def __init__(self, dim: int) -> None:
        super().__init__(self.called, dim)

    def __str__(self) -> str:
        return f"{self.called} space of dimension {self.dim}"

    def check(self, points: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the rows that are not finite, or so long that their inner products overflow."""
        return np.flatnonzero(~(_squares(points) <= LARGEST_SQUARE))

    def project(self, features: Tensor) -> Tensor:
        """Return the features themselves."""
        return features

    def as_steps(self) -> Steps:
        """Return no step."""
        return ()

    def summed(self, points: Tensor) -> Tensor:
        """Return the points themselves."""
        return points

    def centre(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Return the plain means (C, D); zero for an absent class."""
        return sums / counts.clamp_min(1)[:, None]

    def project_array(self, features: Array) -> Array:
        """Return the features themselves."""
        return features

    def unproject_array(self, points: Array) -> Array:
        """Return the points themselves."""
        return points

    def canonical_array(self, points: Array) -> Array:
        """Return the points themselves."""
        return points

    def mean_array(self, points: Array, labels: NDArray[np.int64], num_classes: int) -> Array:
        """Return the plain means (C, D); zero for an absent class."""
        sums, counts = sums_by_class(points, labels, num_classes)
        means: Array = sums / np.maximum(counts, 1)[:, None]
        return means

    def uncertainty_array(self, points: Array) -> None:
        """Return None: these spaces know no uncertainty."""

    def clip_after(self, previous: float | None, given: float | None = None) -> None:
        """Return None: no model is trained here, so that there is nothing to clip.

        Raises:
            ConfigError: A length is given.
        """
        refuse(given is not None, f"A clipping length of {given} on the {self}.", "none: no model is trained there")


class InnerProduct(FlatSpace):
    """Vectors in D dimensions; similarity is the inner product <x, y>, any number.

    Not a metric: of two points, the one farther out may be more similar to a third than that is to itself.

    >>> InnerProduct(2).check(np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 1e30]], dtype=np.float32))
    array([2])
    """

    called = "inner-product"
    metric = "inner product, the largest first"

    def index_form(self, points: NDArray[np.float32], side: Side) -> NDArray[np.float32]:
        """Return the points themselves, without a copy: the same for queries and galleries."""
        return points

    def similarity(self, x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
        """Return the scaled inner products (n, m)."""
        return (scale * x if scale != 1 else x) @ y.T

    def similarity_array(self, x: Array, y: Array) -> Array:
        """Return the inner products (n, m)."""
        return x @ y.T

    def paired_similarity(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the inner products (n,) of the rows."""
        return (x * y).sum(dim=-1)

    def distance(self, similarity: Tensor) -> Tensor:
        """Return minus the similarities: smaller is closer, but they may be below 0, and at a point itself not 0."""
        return -similarity

    def paired_distance(self, x: Tensor, y: Tensor) -> Tensor:
        """Return minus the inner products (n,) of the rows; see `distance`."""
        return -self.paired_similarity(x, y)


class Euclidean(FlatSpace):
    """Points in D dimensions; similarity is minus their Euclidean distance, at most 0.

    >>> space = Euclidean(2)
    >>> space.index_form(np.array([[3.0, 4.0]], dtype=np.float32), "query")
    array([[3., 4., 1.]], dtype=float32)
    >>> space.index_form(np.array([[3.0, 4.0]], dtype=np.float32), "gallery")
    array([[  3. ,   4. , -12.5]], dtype=float32)
    """

    called = "euclidean"
    metric = "Euclidean distance, the nearest first"
    approximable = False  # to long rows all rows seem near: of ten neighbours, graphs of such rows found one or less

    def index_form(self, points: NDArray[np.float32], side: Side) -> NDArray[np.float32]:
        """Return (N, D + 1): of queries [q, 1], of galleries [g, -|g|²/2].

        Their inner product is (|q|² - |q - g|²) / 2, which for each query ranks as the negative distance does. It is no
        distance: scores of two queries cannot be compared. Far from the origin float32 spends its digits on |g|²: it
        resolves neighbours with |q - g|² above about 1e-6 |g|². Centre vectors with a large common part before you
        store them.
        """
        form = np.empty((len(points), self.index_dim), np.float32)
        form[:, :-1] = points
        form[:, -1] = 1 if side == "query" else -_squares(points) / 2
        return form

    def query_form(self, points: NDArray[np.float32], gallery: Space) -> NDArray[np.float32]:
        """Return queries with as many coordinates as the gallery has, in its index form."""
        if self.compares_with(gallery):
            return gallery.index_form(with_zeros(points, gallery.dim), "query")
        return super().query_form(points, gallery)

    @property
    def index_dim(self) -> int:
        """The coordinates, and one more."""
        return self.dim + 1

    def from_index_form(self, form: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the coordinates, which come first."""
        return form[:, : self.dim]

    def similarity(self, x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
        """Return minus the Euclidean distances (n, m), scaled."""
        import torch

        # from differences: the product form loses close points that are far from the origin
        return -scale * torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")

    def similarity_array(self, x: Array, y: Array) -> Array:
        """Return minus the Euclidean distances (n, m), float64."""
        from scipy.spatial.distance import cdist  # commands that only list spaces start without SciPy

        distances: Array = cdist(x, y)
        return -distances

    def paired_similarity(self, x: Tensor, y: Tensor) -> Tensor:
        """Return minus the Euclidean distances (n,) of the rows."""
        return -self.paired_distance(x, y)

    def distance(self, similarity: Tensor) -> Tensor:
        """Return the Euclidean distances again."""
        return -similarity

    def paired_distance(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the Euclidean distances (n,) of the rows."""
        from limpet.geometry import hypersphere

        return hypersphere.root((x - y).square().sum(dim=-1))


def _squares(points: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the squared lengths (N,), added up in float64: float32 would overflow, and lose what the ranking needs."""
    squares: NDArray[np.float64] = np.einsum("nd,nd->n", points, points, dtype=np.float64)
    return squares
