"""The Lorentz model of hyperbolic space: pure functions on the space components of its points.

A point [s, t] of curvature −K, K > 0, lies on K (t² − |s|²) = 1 with t > 0, so s alone, any vector of D numbers, names
it, and every function here takes and returns s. K may be a scalar tensor, which then receives a gradient. float32 and
float64 are kept, and values and gradients are finite for the origin, for coinciding points and for whatever `exp_map0`
returns. Written here because the functions are few and every hyperbolic part of this package rests on their rounding.

Nickel and Kiela (2018, arXiv:1806.03417) for the model; Desai et al. (MERU, 2023, arXiv:2304.09172) for the cones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

Curvature = float | Tensor

LARGEST_ANGLE = math.asinh(2.0**15)  # beyond it sinh leaves what float32 can square and add up without losing the 1 / K
_SERIES = 1e-4  # below it sinh(r) / r = 1 + r² / 6 to the last digit of float64, and r itself may be 0


def time(x: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Return the time components (...,) of points (..., D): √(1/K + |s|²), at least 1/√K.

    >>> time(torch.tensor([[3.0, 4.0]]), curvature=1 / 144).item()  # √(144 + 25)
    13.0
    """
    return (1 / _like(curvature, x) + x.square().sum(dim=-1)).sqrt()


def inner(x: Tensor, y: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Return the Lorentz inner products <x, y> = s·s' − t t' (n, m), at most −1/K, of points (n, D) and (m, D).

    They rank as distances do, the largest being the closest, but are as large as t t', which close points far from the
    origin lose their difference to: `excess` keeps it.
    """
    return x @ y.T - time(x, curvature=curvature)[:, None] * time(y, curvature=curvature)


def paired_inner(x: Tensor, y: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Return `inner` row by row: (n,) of points (n, D) and (n, D)."""
    return (x * y).sum(dim=-1) - time(x, curvature=curvature) * time(y, curvature=curvature)


def excess(x: Tensor, y: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Return δ = cosh(√K d) − 1 = −K <x, y> − 1 (n, m), at least 0, for points (n, D) and (m, D) at distances d.

    Computed from differences, δ = K (|Δs|² − Δt²) / 2 with Δt = Δ|s|² / (t + t'), because the inner products of close
    points agree in all the digits that tell them apart. 0, with a gradient of 0, for coinciding points.
    """
    gaps = torch.cdist(
        x, y, compute_mode="donot_use_mm_for_euclid_dist"
    )  # the product form is the rounding avoided here
    squares = x.square().sum(dim=-1)[:, None] - y.square().sum(dim=-1)
    delays = squares / (time(x, curvature=curvature)[:, None] + time(y, curvature=curvature))
    return _excess(gaps.square(), delays, _like(curvature, x))


def paired_excess(x: Tensor, y: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Return `excess` row by row: (n,) of points (n, D) and (n, D), with Δt = Δs·(s + s') / (t + t')."""
    return _excess((x - y).square().sum(dim=-1), _delay(x, y, curvature), _like(curvature, x))


def distance(x: Tensor, y: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Return the geodesic distances (n, m), at least 0, of points (n, D) and (m, D).

    d = 2 asinh(√(δ/2)) / √K of the `excess` δ, which equals acosh(−K <x, y>) / √K without the infinite slope of acosh
    at 1. The gradient is 0, not undefined, where two points coincide.

    >>> x = exp_map0(torch.tensor([[0.5, 0.0]]))
    >>> round(distance(x, -x).item(), 6)  # both lie half a unit from the origin, on opposite sides
    1.0
    """
    return _distance(excess(x, y, curvature=curvature), curvature)


def paired_distance(x: Tensor, y: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Return `distance` row by row: (n,) of points (n, D) and (n, D)."""
    return _distance(paired_excess(x, y, curvature=curvature), curvature)


def squared_distance(x: Tensor, y: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Return the squared Lorentz distances −2/K − 2 <x, y> = 2δ/K (n, m), at least 0 (Law et al., ICML 2019).

    Not the square of `distance`: the squared length of the chord x − y in the ambient space.
    """
    return 2 * excess(x, y, curvature=curvature) / _like(curvature, x)


def paired_squared_distance(x: Tensor, y: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Return `squared_distance` row by row: (n,) of points (n, D) and (n, D)."""
    return 2 * paired_excess(x, y, curvature=curvature) / _like(curvature, x)


def exp_map0(u: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Map tangent vectors u (..., D) at the origin to points (..., D) in the same direction, at the distance |u|.

    s = u sinh(r) / r with r = √K |u|. Any longer one than r = asinh(2¹⁵) ≈ 11.1 maps to the point at that bound, as in
    MERU's public code, so that sinh cannot overflow; the gradient then only turns it.

    >>> [round(value, 4) for value in exp_map0(torch.tensor([math.log(2.0), 0.0])).tolist()]  # sinh(ln 2) = 3/4
    [0.75, 0.0]
    """
    # divided by the largest number first: the square of a huge vector would overflow, that of a tiny one vanish
    largest = u.detach().abs().amax(dim=-1, keepdim=True).clamp_min(torch.finfo(u.dtype).tiny)
    angles = torch.linalg.vector_norm(u / largest, dim=-1, keepdim=True) * largest * _root(curvature, u)
    small = angles < _SERIES
    safe = torch.where(small, 1.0, angles)
    return u * torch.where(small, 1 + angles.square() / 6, safe.clamp_max(LARGEST_ANGLE).sinh() / safe)


def log_map0(x: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Map points (..., D) to tangent vectors (..., D) at the origin, as long as their distance to it.

    u = s asinh(r) / r with r = √K |s|: the inverse of `exp_map0`.
    """
    radii = torch.linalg.vector_norm(x, dim=-1, keepdim=True) * _root(curvature, x)
    small = radii < _SERIES
    safe = torch.where(small, 1.0, radii)
    return x * torch.where(small, 1 - radii.square() / 6, safe.asinh() / safe)


def half_aperture(x: Tensor, *, curvature: Curvature = 1.0, min_radius: float = 0.1) -> Tensor:
    """Return half the opening (N,) of the entailment cone at every apex (N, D), in radians (HBCT, Eq. 11; MERU, Eq. 8).

    asin(2 ε / (√K |s|)), in (0, π/2): the farther from the origin, the narrower.

    Args:
        x: Apices (N, D).
        curvature: K > 0.
        min_radius: ε > 0; up to √K |s| = 2 ε the cone is a half-space, and the gradient 0.
    """
    radii = torch.linalg.vector_norm(x, dim=-1) * _root(curvature, x)
    # the slope of asin is infinite at 1; bounding the divisor keeps off both that and the division by 0
    return torch.asin(2 * min_radius / radii.clamp_min(2 * min_radius / (1 - _margin(x))))


def exterior_angle(x: Tensor, y: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Return the angle (N,) at the apex x between the ray from the origin and the geodesic to y (HBCT, section 4.2).

    0 where y lies straight behind x, π where it lies between x and the origin. The printed
    acos((t' + t c) / (|s| √(c² − 1))) with c = K <x, y> subtracts nearly equal numbers for close points and divides
    rounding by |s| for an apex near the origin. With x̂ = s / |s|, differences Δ of y from x and the `excess` δ, the
    same cosine is (x̂·Δs (2 + K t Δt) − K |s| |Δs|²) / ((t + t') √(δ (2 + δ))), which does neither.

    Args:
        x: Apices (N, D). At the origin every direction leads outwards: the angle is 0, and the gradient too.
        y: Points (N, D).
        curvature: K > 0.

    Returns:
        Angles (N,) in radians, in (0, π): cosines stay 1e-6 (float32) or 1e-12 (float64) from ±1, where the slope of
        acos is infinite. Points closer than about 1e-6/√K have no direction: their angle means nothing, but is finite.
    """
    k, times = _like(curvature, x), time(x, curvature=curvature)
    lengths, gaps, delays = torch.linalg.vector_norm(x, dim=-1), y - x, _delay(y, x, curvature)
    squared = gaps.square().sum(dim=-1)
    delta = _excess(squared, delays, k)
    outward = (x * gaps).sum(dim=-1) / torch.where(lengths > 0, lengths, 1.0)
    rise = (outward * (2 + k * times * delays) - k * lengths * squared) / (2 * times + delays)
    cosines = torch.where(lengths > 0, rise / (delta * (2 + delta)).clamp_min(1e-12).sqrt(), 1.0)
    return cosines.clamp(-1 + _margin(x), 1 - _margin(x)).acos()


def uncertainty(x: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Return 1 − |s| / t (...,) of points (..., D): 1 at the origin, falling to 0 with the distance (HBCT, Eq. 10).

    It is 1 − tanh(√K |u|) for the point `exp_map0` (u). The last form printed in Eq. 10, 1 − tanh(√K |u|) / √K, forgets
    the 1/√K of the time component and leaves [0, 1] for K < 1; the definition in its first line is used.

    >>> round(uncertainty(exp_map0(torch.tensor([[0.0, 1.0]]))).item(), 4)  # 1 − tanh 1
    0.2384
    """
    times = time(x, curvature=curvature)
    lengths: Tensor = torch.linalg.vector_norm(x, dim=-1)
    # (t − |s|) / t, without the difference of nearly equal numbers far from the origin
    return (times * (times + lengths) * _like(curvature, x)).reciprocal().clamp_max(1)


def ambient(x: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Return points (..., D) with their time component behind: (..., D + 1), what a centroid sums."""
    return torch.cat([x, time(x, curvature=curvature)[..., None]], dim=-1)


def centroid(sums: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Return the Lorentz centroids (..., D) of sums or means (..., D + 1) of `ambient` points (Law et al., ICML 2019).

    The point with the least sum of `squared_distance`: the sum [S, T] scaled back onto the hyperboloid,
    S / (√K √(T² − |S|²)). The origin for a sum of nothing.

    >>> x = exp_map0(torch.tensor([[0.3, 0.0], [-0.3, 0.0]]))
    >>> centroid(ambient(x).sum(dim=0)).tolist()
    [0.0, 0.0]
    """
    k, total = _like(curvature, sums), sums[..., :-1]
    times = sums[..., -1:]
    lengths: Tensor = torch.linalg.vector_norm(total, dim=-1, keepdim=True)
    # a sum or mean of points is at least as long as one, 1/√K: less is rounding, or the zero sum of an absent class
    squared = ((times - lengths) * (times + lengths)).clamp_min(1 / k)
    return total / (squared * k).sqrt()


def _like(curvature: Curvature, x: Tensor) -> Curvature:
    """Return K in the dtype of the points: a scalar float64 tensor would promote scalar float32 results."""
    return curvature.to(x.dtype) if isinstance(curvature, Tensor) else curvature


def _root(curvature: Curvature, x: Tensor) -> Curvature:
    return curvature.to(x.dtype).sqrt() if isinstance(curvature, Tensor) else math.sqrt(curvature)


def _margin(x: Tensor) -> float:
    """Return how far sines and cosines stay from ±1: some last digits of the dtype."""
    return 1e-12 if x.dtype == torch.float64 else 1e-6


def _delay(x: Tensor, y: Tensor, curvature: Curvature) -> Tensor:
    """Return the differences of time components t − t' (n,) without subtracting them."""
    return ((x - y) * (x + y)).sum(dim=-1) / (time(x, curvature=curvature) + time(y, curvature=curvature))


def _excess(squared_gaps: Tensor, delays: Tensor, curvature: Curvature) -> Tensor:
    """Return K (|Δs|² − Δt²) / 2, at least 0: no two points are earlier than close, only rounding says so."""
    return (squared_gaps - delays.square()).clamp_min(0) * curvature / 2


def _distance(delta: Tensor, curvature: Curvature) -> Tensor:
    """Return 2 asinh(√(δ/2)) / √K, 0 with a gradient of 0 where δ is 0."""
    roots = (torch.where(delta > 0, delta, 1.0) / 2).sqrt() * (delta > 0)
    return 2 * roots.asinh() / _root(curvature, delta)
