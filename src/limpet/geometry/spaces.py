"""The spaces there are, by name."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limpet.errors import ConfigError, refuse, unknown_name
from limpet.geometry import lorentz_arrays
from limpet.geometry.flat import Euclidean, InnerProduct
from limpet.geometry.space import Array, Side, Space, sums_by_class
from limpet.support.steps import Lift, Normalise, Steps

if TYPE_CHECKING:
    from torch import Tensor

_NONE = 1e-12  # as in `hypersphere`: shorter vectors are divided by that
_SHORTEST = 1e-18  # of a shorter vector float32 cannot hold the square with all its digits


class Hypersphere(Space):
    """Directions in D dimensions; similarity is the cosine, in [-1, 1].

    A point may be stored with any length that float32 can square: only its direction counts. The zero vector has none
    and is refused, as are vectors whose squared length float32 cannot hold.

    >>> Hypersphere(2).check(np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float32))
    array([1])
    >>> Hypersphere(2).index_form(np.array([[3.0, 4.0]], dtype=np.float32), "query")
    array([[0.6, 0.8]], dtype=float32)
    """

    points_are = "no zero vectors, and lengths from 1e-18 to 1e19, whose squares float32 can hold"
    metric = "cosine: the inner product of unit vectors"
    pads_with_zeros = True

    def __init__(self, dim: int) -> None:
        super().__init__("hypersphere", dim)

    def check(self, points: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the rows that are not finite, or too short or too long to be divided by their length."""
        squared = np.einsum("nd,nd->n", points, points)
        return np.flatnonzero(~(np.isfinite(squared) & (squared >= _SHORTEST**2)))

    def index_form(self, points: NDArray[np.float32], side: Side) -> NDArray[np.float32]:
        """Return the unit vectors (N, D): the same for queries and galleries."""
        lengths = np.sqrt(np.einsum("nd,nd->n", points, points))
        unit: NDArray[np.float32] = points / np.maximum(lengths, _SHORTEST)[:, None]
        return unit

    def project(self, features: Tensor) -> Tensor:
        """Divide features (..., D) by their length."""
        from limpet.geometry import hypersphere

        return hypersphere.normalise(features)

    def as_steps(self) -> Steps:
        """Return the division by the length."""
        return (Normalise(),)

    def canonical(self, points: Tensor) -> Tensor:
        """Divide points (..., D) by their length."""
        return self.project(points)

    def similarity(self, x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
        """Return the scaled cosines (n, m) of unit vectors."""
        return (
            scale * x if scale != 1 else x
        ) @ y.T  # rather than the product: with many classes each copy of it counts

    def paired_similarity(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the cosines (n,) of the rows of unit vectors."""
        return (x * y).sum(dim=-1)

    def distance(self, similarity: Tensor) -> Tensor:
        """Return the chords √(2 − 2·cos), in [0, 2]."""
        from limpet.geometry import hypersphere

        return hypersphere.root(2 - 2 * similarity)

    def paired_distance(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the lengths (n,) of the differences of the rows, in [0, 2]."""
        from limpet.geometry import hypersphere

        return hypersphere.root((x - y).square().sum(dim=-1))

    def summed(self, points: Tensor) -> Tensor:
        """Return unit vectors, so that every point counts once whatever its length."""
        return self.canonical(points)

    def centre(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Return the direction of every sum (C, D); zero for an absent class."""
        from limpet.geometry import hypersphere

        return hypersphere.normalise(sums / counts.clamp_min(1)[:, None])

    def project_array(self, features: Array) -> Array:
        """Divide features (..., D) by their length; zero stays zero."""
        lengths = np.sqrt(np.square(features).sum(axis=-1, keepdims=True))
        unit: Array = features / np.maximum(lengths, max(_NONE, np.finfo(features.dtype).tiny))
        return unit

    def canonical_array(self, points: Array) -> Array:
        """Divide points (..., D) by their length."""
        return self.project_array(points)

    def unproject_array(self, points: Array) -> Array:
        """Return the points themselves."""
        return points

    def similarity_array(self, x: Array, y: Array) -> Array:
        """Return the cosines (n, m) of unit vectors."""
        return x @ y.T

    def mean_array(self, points: Array, labels: NDArray[np.int64], num_classes: int) -> Array:
        """Return the mean direction of every class (C, D); zero for an absent one."""
        sums, counts = sums_by_class(self.canonical_array(points), labels, num_classes)
        return self.project_array(sums / np.maximum(counts, 1)[:, None])

    def uncertainty_array(self, points: Array) -> None:
        """Return None: a direction is as certain as any other."""


class Lorentz(Space):
    """The hyperboloid of constant curvature -K in D + 1 dimensions; similarity is minus the geodesic distance.

    Points are stored by their D space components; the time component follows from them. Features are tangent vectors
    at the origin, whose length is the distance of the point from the origin.

    Args:
        dim: D.
        curvature: K, from 1e-6 to 1e6.

    >>> space = Lorentz(2)
    >>> space.index_form(np.array([[0.0, 0.0]], dtype=np.float32), "query")
    array([[ 0.,  0., -1.,  0.]], dtype=float32)
    >>> space.check(np.array([[0.0, 0.0], [0.0, 1e6]], dtype=np.float32))
    array([1])
    """

    points_are = "points no farther from the origin than float32 can rank, 4/√K"
    metric = (
        "Lorentz distance, the nearest first: numbers are the space components s of points, t = √(1/K + |s|²), and "
        "rows s·s' − t·t' rank as minus the distance does; neither a cosine nor a Euclidean distance does"
    )
    lengths_count = True

    def __str__(self) -> str:
        return f"Lorentz space of dimension {self.dim}, curvature {self.curvature:g}"

    def __init__(self, dim: int, curvature: float = 1.0) -> None:
        super().__init__("lorentz", dim, float(curvature))
        refuse(
            not 1e-6 <= float(curvature) <= 1e6,
            f"A Lorentz space of curvature {curvature}.",
            "a number K above 0, from 0.000001 to 1000000",
        )

    def check(self, points: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the rows that are not finite, or farther from the origin than float32 can rank: `LARGEST_RADIUS`."""
        lengths = np.sqrt(self.live_curvature * np.einsum("nd,nd->n", points, points, dtype=np.float64))
        return np.flatnonzero(~(lengths <= np.sinh(LARGEST_RADIUS * ROUNDING)))

    def check_features(self, features: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the tangent vectors that lead to no point: those that are not finite, or too long."""
        lengths = np.sqrt(self.live_curvature * np.einsum("nd,nd->n", features, features, dtype=np.float64))
        return np.flatnonzero(~(lengths <= LARGEST_RADIUS * ROUNDING))

    def index_form(self, points: NDArray[np.float32], side: Side) -> NDArray[np.float32]:
        """Return (N, D + 2): of queries [s, -t, 0], of galleries [s, t - 1/√K, r], with space s and time t.

        Their inner product is t/√K - cosh(√K d)/K, which ranks as minus the distance d to the query does. With the
        whole time of gallery points it would be less by t/√K, the same for all of them; float32 would spend its digits
        on that, and take the neighbours of points near the origin for equally far. The filling r gives all gallery rows
        one length, so that among themselves inner products rank as Euclidean distances do: no query sees it, but graphs
        and clusters of approximate indexes are built of gallery rows, and find little where long rows seem near to all.
        """
        squares, least = np.einsum("nd,nd->n", points, points, dtype=np.float64), self.live_curvature**-0.5
        time = np.sqrt(least**2 + squares)
        if side == "query":
            last = np.stack([-time, np.zeros_like(time)], axis=1)
        else:
            delay = squares / (time + least)
            reach = LARGEST_RADIUS * ROUNDING
            longest = (np.sinh(reach) ** 2 + (np.cosh(reach) - 1) ** 2) * least**2
            last = np.stack([delay, np.sqrt(np.maximum(longest - squares - delay**2, 0))], axis=1)
        form: NDArray[np.float32] = np.concatenate([points, last.astype(np.float32)], axis=1)
        return form

    @property
    def index_dim(self) -> int:
        """Space components, and two more."""
        return self.dim + 2

    def from_index_form(self, form: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the space components, which come first."""
        return form[:, : self.dim]

    def project(self, features: Tensor) -> Tensor:
        """Map tangent vectors at the origin (..., D) to the points they reach: the exponential map."""
        from limpet.geometry import lorentz

        return lorentz.exp_map0(features, curvature=self.live_curvature)

    def as_steps(self) -> Steps:
        """Return the exponential map."""
        return (Lift(float(self.live_curvature)),)

    def unproject(self, points: Tensor) -> Tensor:
        """Return the tangent vectors at the origin (..., D) that lead to the points: the logarithm."""
        from limpet.geometry import lorentz

        return lorentz.log_map0(points, curvature=self.live_curvature)

    def similarity(self, x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
        """Return minus the geodesic distances (n, m), scaled."""
        from limpet.geometry import lorentz

        return -scale * lorentz.distance(x, y, curvature=self.live_curvature)

    def paired_similarity(self, x: Tensor, y: Tensor) -> Tensor:
        """Return minus the geodesic distances (n,) of the rows."""
        return -self.paired_distance(x, y)

    def distance(self, similarity: Tensor) -> Tensor:
        """Return the geodesic distances again."""
        return -similarity

    def paired_distance(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the geodesic distances (n,) of the rows."""
        from limpet.geometry import lorentz

        return lorentz.paired_distance(x, y, curvature=self.live_curvature)

    @property
    def summed_dim(self) -> int:
        """Space and time are added up: D + 1."""
        return self.dim + 1

    def summed(self, points: Tensor) -> Tensor:
        """Return space and time components (N, D + 1)."""
        from limpet.geometry import lorentz

        return lorentz.ambient(points, curvature=self.live_curvature)

    def centre(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Return the Lorentz centroids (C, D), the points on the ray of every sum; the origin for an absent class."""
        from limpet.geometry import lorentz

        return lorentz.centroid(sums, curvature=self.live_curvature)

    def uncertainty(self, points: Tensor) -> Tensor:
        """Return 1 - ‖space‖ / time (N,): 1 at the origin, falling with the distance from it (HBCT, section 4.1)."""
        from limpet.geometry import lorentz

        return lorentz.uncertainty(points, curvature=self.live_curvature)

    def project_array(self, features: Array) -> Array:
        """Map tangent vectors at the origin (..., D) to the points they reach."""
        return lorentz_arrays.exp_map0(features, self.live_curvature)

    def unproject_array(self, points: Array) -> Array:
        """Return the tangent vectors at the origin (..., D) that lead to the points."""
        return lorentz_arrays.log_map0(points, self.live_curvature)

    def canonical_array(self, points: Array) -> Array:
        """Return the points themselves."""
        return points

    def similarity_array(self, x: Array, y: Array) -> Array:
        """Return minus the geodesic distances (n, m), float64."""
        return -lorentz_arrays.distance(x, y, self.live_curvature)

    def mean_array(self, points: Array, labels: NDArray[np.int64], num_classes: int) -> Array:
        """Return the Lorentz centroid of every class (C, D); the origin for an absent one."""
        sums, _ = sums_by_class(lorentz_arrays.ambient(points, self.live_curvature), labels, num_classes)
        return lorentz_arrays.centroid(sums, self.live_curvature)

    def uncertainty_array(self, points: Array) -> Array:
        """Return 1 - ‖space‖ / time (N,)."""
        return lorentz_arrays.uncertainty(points, self.live_curvature)

    def clip_after(self, previous: float | None, given: float | None = None) -> float:
        """Return ζ: 1.0 for a first model, 0.2 more than the predecessor's afterwards (HBCT, appendix A).

        Raises:
            ConfigError: ζ is not above 0, or so large that float32 can no longer tell the points' neighbours.
        """
        zeta = given if given is not None else 1.0 if previous is None else round(previous + 0.2, 6)
        reach = self._reach * zeta
        refuse(
            not (0 < zeta < LARGEST_ZETA and reach <= LARGEST_RADIUS),
            f"A clipping length ζ = {zeta:g} on the {self}: points may lie √K·ζ = {reach:.3g} from the origin"
            + (f", where the curvature may grow to {self._reach**2:.3g}." if self.parameters_of() is not None else "."),
            f"ζ above 0 and below {LARGEST_ZETA:g}, with √K·ζ of at most {LARGEST_RADIUS:g} (a smaller --zeta or "
            "--curvature); farther out, distances in float32 are noise and training is unstable",
        )
        return zeta

    @property
    def _reach(self) -> float:
        return float(self.live_curvature**0.5)


LARGEST_ZETA = 10.0  # the papers use 1 to 2.4
ROUNDING = 1 + 1e-4  # what float32 may make of a point clipped right there
LARGEST_RADIUS = 4.0  # √K times the distance from the origin: beyond, inner products in float32 take neighbours for
# others that are more than a few per cent farther; measured by benchmarks/lorentz_precision.py

SPACES: dict[str, type[Space]] = {"hypersphere": Hypersphere, "lorentz": Lorentz}
"""Those that models are trained in."""

SEARCH_SPACES: dict[str, type[Space]] = {**SPACES, "inner-product": InnerProduct, "euclidean": Euclidean}
"""All of them: stored vectors are searched and evaluated in any."""


def space_from_record(record: Mapping[str, object]) -> Space:
    """Rebuild a space from the plain values of `Space.record`.

    Raises:
        ConfigError: The name is unknown, or the values do not describe such a space.
    """
    name = str(record.get("name"))
    if name not in SEARCH_SPACES:
        raise unknown_name("space", name, SEARCH_SPACES)
    arguments: dict[str, Any] = {key: value for key, value in record.items() if key != "name" and value is not None}
    try:
        return SEARCH_SPACES[name](**arguments)
    except ConfigError:
        raise
    except (TypeError, ValueError, OverflowError):
        takes = ", ".join(signature(SEARCH_SPACES[name]).parameters)
        raise ConfigError(
            f"These values do not describe a {name}: {arguments}.", expected=f"values of {takes}, and no others"
        ) from None
