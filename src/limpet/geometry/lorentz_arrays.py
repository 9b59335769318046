"""`limpet.geometry.lorentz` on NumPy arrays: what stored vectors ask for, without torch and without gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Array = NDArray[Any]

_LARGEST_ANGLE = math.asinh(2.0**15)  # as in `lorentz`
_SERIES = 1e-4


def time(x: _Array, curvature: float) -> _Array:
    """Return the time components (...,) of points (..., D).

    >>> time(np.array([[3.0, 4.0]]), 1 / 144).tolist()
    [13.0]
    """
    times: _Array = np.sqrt(1 / curvature + np.square(x).sum(axis=-1))
    return times


def exp_map0(u: _Array, curvature: float) -> _Array:
    """Map tangent vectors (..., D) at the origin to points (..., D).

    >>> exp_map0(np.array([math.log(2.0), 0.0]), 1.0).round(4).tolist()
    [0.75, 0.0]
    """
    largest = np.maximum(np.abs(u).max(axis=-1, keepdims=True), np.finfo(u.dtype).tiny)
    angles = np.sqrt(np.square(u / largest).sum(axis=-1, keepdims=True)) * largest * math.sqrt(curvature)
    small = angles < _SERIES
    safe = np.where(small, 1.0, angles)
    points: _Array = u * np.where(small, 1 + np.square(angles) / 6, np.sinh(np.minimum(safe, _LARGEST_ANGLE)) / safe)
    return points


def log_map0(x: _Array, curvature: float) -> _Array:
    """Map points (..., D) to the tangent vectors (..., D) at the origin that lead to them: undoes `exp_map0`."""
    radii = np.sqrt(np.square(x).sum(axis=-1, keepdims=True)) * math.sqrt(curvature)
    small = radii < _SERIES
    safe = np.where(small, 1.0, radii)
    tangents: _Array = x * np.where(small, 1 - np.square(radii) / 6, np.arcsinh(safe) / safe)
    return tangents


def distance(x: _Array, y: _Array, curvature: float) -> _Array:
    """Return the geodesic distances (n, m), float64, of points (n, D) and (m, D)."""
    from scipy.spatial.distance import cdist  # commands that only list spaces start without SciPy

    squares = np.square(x).sum(axis=-1)[:, None] - np.square(y).sum(axis=-1)
    delays = squares / (time(x, curvature)[:, None] + time(y, curvature))
    excess = np.maximum(cdist(x, y, "sqeuclidean") - np.square(delays), 0) * curvature / 2
    distances: _Array = 2 * np.arcsinh(np.sqrt(excess / 2)) / math.sqrt(curvature)
    return distances


def uncertainty(x: _Array, curvature: float) -> _Array:
    """Return 1 - |s| / t (...,) of points (..., D), in (0, 1] (HBCT, Eq. 10).

    >>> uncertainty(np.array([[0.0, 0.75], [0.0, 0.0]]), 1.0).tolist()  # t = 5/4
    [0.4, 1.0]
    """
    squares = np.square(x).sum(axis=-1)
    times = np.sqrt(1 / curvature + squares)
    values: _Array = np.minimum(1 / (curvature * times * (times + np.sqrt(squares))), 1)
    return values


def ambient(x: _Array, curvature: float) -> _Array:
    """Return points (..., D) with their time component behind: (..., D + 1)."""
    return np.concatenate([x, time(x, curvature)[..., None]], axis=-1)


def centroid(sums: _Array, curvature: float) -> _Array:
    """Return the Lorentz centroids (..., D) of sums (..., D + 1) of `ambient` points; the origin for no point."""
    total, times = sums[..., :-1], sums[..., -1:]
    lengths = np.sqrt(np.square(total).sum(axis=-1, keepdims=True))
    squared = np.maximum((times - lengths) * (times + lengths), 1 / curvature)
    centres: _Array = total / np.sqrt(squared * curvature)
    return centres
