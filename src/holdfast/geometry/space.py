"""What points are and how their similarity is measured.

A `Space` is a small hashable record. ``check`` and ``index_form`` work on NumPy arrays and need no torch, so that
galleries and searches start fast; the rest loads the space's geometry module when first used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from torch import Tensor

Side = Literal["query", "gallery"]


@dataclass(frozen=True)
class Space(ABC):
    """One geometry with its dimension.

    Args:
        name: Name of the geometry, a key of `SPACES`.
        dim: Dimension D of a point as it is stored (at least 1).
        curvature: Positive K of a space of constant curvature -K, or None where the word has no use.
    """

    name: str
    dim: int
    curvature: float | None = None

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise ConfigError(f"A space of dimension {self.dim}.", expected="a dimension of at least 1")

    def __str__(self) -> str:
        suffix = "" if self.curvature is None else f", curvature {self.curvature:g}"
        return f"{self.name} of dimension {self.dim}{suffix}"

    def record(self) -> dict[str, Any]:
        """Return the plain values that `space_from_record` turns back into this space."""
        return {"name": self.name, "dim": self.dim, "curvature": self.curvature}

    @abstractmethod
    def check(self, points: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the row numbers of ``points`` (N, D) that are not points of this space."""

    @abstractmethod
    def index_form(self, points: NDArray[np.float32], side: Side) -> NDArray[np.float32]:
        """Return vectors (N, D') whose inner products across sides rank exactly as `similarity` does."""

    @abstractmethod
    def project(self, features: Tensor) -> Tensor:
        """Map raw features (..., D) to points of the space."""

    @abstractmethod
    def similarity(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the similarity (n, m) of points x (n, D) and y (m, D); larger is closer."""

    @abstractmethod
    def mean(self, points: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
        """Return the mean point of every class (C, D) and how many points it had (C,)."""

    @abstractmethod
    def centre(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Turn sums of points by class (C, D) and their counts (C,) into mean points: `mean`, block by block."""

    def uncertainty(self, points: Tensor) -> Tensor | None:
        """Return a value in [0, 1] per point, or None where the space knows no uncertainty."""
        return None


class Hypersphere(Space):
    """Directions in D dimensions; similarity is the cosine, in [-1, 1].

    A point may be stored with any positive length: only its direction counts. The zero vector has none and is
    refused.

    >>> Hypersphere(2).check(np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float32))
    array([1])
    >>> Hypersphere(2).index_form(np.array([[3.0, 4.0]], dtype=np.float32), "query")
    array([[0.6, 0.8]], dtype=float32)
    """

    def __init__(self, dim: int) -> None:
        super().__init__("hypersphere", dim)

    def check(self, points: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the rows that are not finite or have no direction (squared length zero in float32)."""
        squared = np.einsum("nd,nd->n", points, points)
        return np.flatnonzero(~(np.isfinite(squared) & (squared > 0)))

    def index_form(self, points: NDArray[np.float32], side: Side) -> NDArray[np.float32]:
        """Return the unit vectors (N, D): the same for queries and galleries."""
        lengths = np.sqrt(np.einsum("nd,nd->n", points, points))
        unit: NDArray[np.float32] = points / np.maximum(lengths, 1e-12)[:, None]
        return unit

    def project(self, features: Tensor) -> Tensor:
        """Divide features (..., D) by their length."""
        from holdfast.geometry import hypersphere

        return hypersphere.normalise(features)

    def similarity(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the cosines (n, m)."""
        from holdfast.geometry import hypersphere

        return hypersphere.cosine_similarity(x, y)

    def mean(self, points: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
        """Return the normalised mean direction of every class (C, D) and the counts (C,); absent classes are zero."""
        from holdfast.geometry import hypersphere

        return hypersphere.mean_direction(points, labels, num_classes)

    def centre(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Return the direction of every sum (C, D); zero for an absent class."""
        from holdfast.geometry import hypersphere

        return hypersphere.normalise(sums / counts.clamp_min(1)[:, None])


SPACES: dict[str, type[Space]] = {"hypersphere": Hypersphere}


def space_from_record(record: Mapping[str, Any]) -> Space:
    """Rebuild a space from the plain values of `Space.record`.

    Raises:
        ConfigError: The name is unknown, or the values do not describe such a space.
    """
    name = str(record.get("name"))
    if name not in SPACES:
        raise unknown_name("space", name, SPACES)
    arguments = {key: value for key, value in record.items() if key != "name" and value is not None}
    try:
        return SPACES[name](**arguments)
    except TypeError as error:
        raise ConfigError(f"These values do not describe a {name}: {dict(record)}.", expected=str(error)) from None
