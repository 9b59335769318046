"""Spaces: the definition of points and of their similarity."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from limpet.errors import SpaceMismatchError, count_of, refuse
from limpet.support.steps import Steps

if TYPE_CHECKING:
    from torch import Tensor, nn

Side = Literal["query", "gallery"]
Array = NDArray[Any]
"""Of floating-point numbers; what comes back is of the type of what was given, unless said otherwise."""


class SpaceRecord(TypedDict):
    """A space as stored in files; see `Space` for the values."""

    name: str
    dim: int
    curvature: float | None


@dataclass(frozen=True)
class Space(ABC):
    """A geometry with its dimension.

    Args:
        name: Name of the geometry, a key of `SEARCH_SPACES`.
        dim: Dimension D of a point as it is stored (at least 1).
        curvature: Positive K of a space of constant curvature -K; None for spaces without a curvature.
    """

    points_are: ClassVar[str]
    """What tells points of the space from other vectors, to be read after "expected"."""
    lengths_count: ClassVar[bool] = False
    """Whether the length of features says anything, or only their direction does."""
    metric: ClassVar[str] = ""
    """What ranks points, for people who search them without limpet: a name, and how it is computed."""
    pads_with_zeros: ClassVar[bool] = False
    """Whether points padded with zeros are points of the space with that many more dimensions, equally similar."""
    approximable: ClassVar[bool] = True
    """Whether graphs and clusters of gallery rows, built by their inner products, lead searches to what is near."""

    name: str
    dim: int
    curvature: float | None = None

    def __post_init__(self) -> None:
        count_of("dim", self.dim)

    def __str__(self) -> str:
        suffix = "" if self.curvature is None else f", curvature {self.curvature:g}"
        return f"{self.name} of dimension {self.dim}{suffix}"

    @property
    def live_curvature(self) -> Any:
        """K for computations: a number, or a tensor while it is learned."""
        return self.curvature

    def record(self) -> SpaceRecord:
        """Return the plain values that `space_from_record` turns back into this space."""
        return {"name": self.name, "dim": self.dim, "curvature": self.curvature}

    @abstractmethod
    def check(self, points: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the row numbers of ``points`` (N, D) that are not points of this space."""

    def check_features(self, features: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the row numbers of ``features`` (N, D) that cannot be projected onto this space."""
        return self.check(features)

    @abstractmethod
    def index_form(self, points: NDArray[np.float32], side: Side) -> NDArray[np.float32]:
        """Return vectors (N, D') whose inner products across sides rank exactly as `similarity` does."""

    @property
    def index_dim(self) -> int:
        """Length D' of the vectors of `index_form`."""
        return self.dim

    def from_index_form(self, form: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return points (N, D) that have this index form (N, D') on the gallery side."""
        return form

    def pads(self, narrower: Space) -> bool:
        """Return whether zero-padded points of a space of fewer dimensions keep their similarities in this space."""
        return self.pads_with_zeros and type(narrower) is type(self) and narrower.dim < self.dim

    def compares_with(self, other: Space) -> bool:
        """Return whether points of another space, possibly zero-padded, are points of this one; see `query_form`."""
        return self == other or self.pads(other) or other.pads(self)

    def query_form(self, points: NDArray[np.float32], gallery: Space) -> NDArray[np.float32]:
        """Return vectors (N, D'') whose inner products with the index form of a gallery rank its items.

        If the spaces differ only in their dimension, the narrower side is padded with zeros: queries are truncated or
        zero-padded to the gallery's dimension, and scores are those of the wider space.

        Args:
            points: Queries (N, D), points of this space.
            gallery: Space of the gallery.

        Raises:
            SpaceMismatchError: Points of the two spaces cannot be compared.
        """
        if self == gallery:
            return self.index_form(points, "query")
        if not self.compares_with(gallery):
            raise SpaceMismatchError(
                f"Queries on the {self} for a gallery on the {gallery}.",
                expected="one space, or two that differ only in their dimension and whose points may end in zeros",
            )
        return with_zeros(self.index_form(points, "query"), gallery.dim)

    @abstractmethod
    def project(self, features: Tensor) -> Tensor:
        """Map raw features (..., D) to points of the space."""

    def as_steps(self) -> Steps | None:
        """Return `project` as plain steps; None if the space does not define them."""
        return None

    def unproject(self, points: Tensor) -> Tensor:
        """Return features (..., D) that `project` maps to these points."""
        return points

    def canonical(self, points: Tensor) -> Tensor:
        """Return points (..., D) in the form that `project` returns, from stored points."""
        return points

    @abstractmethod
    def similarity(self, x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
        """Return ``scale`` times the similarity (n, m) of points x (n, D) and y (m, D); larger is closer.

        Points must have the form that `project`, `canonical` and `centre` return.
        """

    @abstractmethod
    def paired_similarity(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the similarity (n,) of every row of x (n, D) to the same row of y (n, D)."""

    @abstractmethod
    def distance(self, similarity: Tensor) -> Tensor:
        """Turn similarities, of any shape, into distances; their gradient is 0, not undefined, at distance 0."""

    @abstractmethod
    def paired_distance(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the distance (n,) of every row of x (n, D) to the same row of y (n, D); see `distance`."""

    @property
    def summed_dim(self) -> int:
        """Length of the vectors that are summed to compute a mean; see `summed`."""
        return self.dim

    @abstractmethod
    def summed(self, points: Tensor) -> Tensor:
        """Return the vectors (N, `summed_dim`) that are summed to average points (N, D)."""

    @abstractmethod
    def centre(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Turn sums by class (C, `summed_dim`) of `summed` and counts (C,) into mean points (C, D)."""

    def mean(self, points: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
        """Return the mean point of every class (C, D), zero for an absent class, and the class sizes (C,)."""
        from limpet.geometry.segments import segment_sum

        sums, counts = segment_sum(self.summed(points), labels, num_classes)
        return self.centre(sums, counts), counts

    def uncertainty(self, points: Tensor) -> Tensor | None:
        """Return a value in [0, 1] per point, or None if the space defines no uncertainty."""
        return None

    # The same on arrays, for stored vectors. What a space does not say without torch, it is asked with torch.

    def project_array(self, features: Array) -> Array:
        """Return `project` of an array (..., D)."""
        return _array(self.project(_tensor(features)))

    def unproject_array(self, points: Array) -> Array:
        """Return `unproject` of an array (..., D)."""
        return _array(self.unproject(_tensor(points)))

    def canonical_array(self, points: Array) -> Array:
        """Return `canonical` of an array (..., D)."""
        return _array(self.canonical(_tensor(points)))

    def similarity_array(self, x: Array, y: Array) -> Array:
        """Return `similarity` of arrays (n, D) and (m, D)."""
        return _array(self.similarity(_tensor(x), _tensor(y)))

    def mean_array(self, points: Array, labels: NDArray[np.int64], num_classes: int) -> Array:
        """Return the means (C, D) of `mean`, of arrays."""
        return _array(self.mean(_tensor(points), _tensor(labels), num_classes)[0])

    def uncertainty_array(self, points: Array) -> Array | None:
        """Return `uncertainty` of an array (N, D)."""
        values = self.uncertainty(_tensor(points))
        return None if values is None else _array(values)

    def clip_after(self, previous: float | None, given: float | None = None) -> float | None:
        """Return the length at which the next model's features are clipped; None if lengths are ignored.

        Args:
            previous: Clipping length of the predecessor; None without one.
            given: Requested length; None for the default of the space.

        Raises:
            ConfigError: The space has no such length, or the one given is out of range.
        """
        refuse(given is not None, f"A clipping length of {given} on the {self}.", "none: only directions count there")
        return None

    def takes_features_of(self, other: Space) -> bool:
        """Return whether features of a model for the space ``other`` can be projected onto this space."""
        return self == other

    def parameters_of(self) -> nn.Module | None:
        """Return the learnable parameter of the space during training; None if it has none."""
        return None

    def settled(self) -> Space:
        """Return the space with learned values as plain numbers."""
        return self


def with_zeros(rows: Array, dim: int) -> Array:
    """Return rows (..., D) padded with zeros, or truncated, to `dim` values.

    >>> with_zeros(np.array([[3.0, 4.0]]), 3).tolist(), with_zeros(np.array([[3.0, 4.0]]), 1).tolist()
    ([[3.0, 4.0, 0.0]], [[3.0]])
    """
    missing = max(0, dim - rows.shape[-1])
    padded: Array = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, missing)]) if missing else rows[..., :dim]
    return padded


def _tensor(rows: Array) -> Tensor:
    import torch

    return torch.from_numpy(np.array(rows))


def _array(rows: Tensor) -> Array:
    values: Array = rows.numpy()
    return values


def sums_by_class(values: Array, labels: NDArray[np.int64], num_classes: int) -> tuple[Array, Array]:
    """Sum values (N, D) by label; return the sums (C, D) and the counts (C,): `segments.segment_sum` of arrays.

    >>> sums_by_class(np.array([[1.0], [2.0], [5.0]]), np.array([0, 0, 2]), 3)[0].ravel().tolist()
    [3.0, 0.0, 5.0]
    """
    from scipy.sparse import csr_array  # commands that only list spaces start without SciPy

    starts = np.append(0, np.cumsum(np.bincount(labels, minlength=num_classes)))
    rows = np.argsort(labels, kind="stable")
    chosen = csr_array((np.ones(len(rows), values.dtype), rows, starts), shape=(num_classes, len(values)))
    sums: Array = chosen @ values
    return sums, np.diff(starts).astype(values.dtype)
