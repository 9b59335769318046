"""A linear map whose distance from orthogonality is bounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from limpet.adapters.base import AffineAdapter, State
from limpet.adapters.moments import Floats, Moments, PairedVectors, RidgePath
from limpet.adapters.pairs import Direction
from limpet.support.ranges import Count, NonNegative

ENOUGH = 1e-7  # of the mean squared length of a target, which is 1: steps that gain less end the search
LEAN = 0.1  # length of what is added to leave a saddle, where a rotation has columns of 1: less takes more steps
WELL_CONDITIONED = 1e-4  # least share of the squares of singular values whose roots then have 12 right digits


class LambdaOrthogonal(AffineAdapter):
    """Least squares within λ of orthogonality, after the idea of λ-orthogonality (arXiv:2509.16664).

    Only the idea is the paper's: a map may deviate from orthogonality by at most λ, so that it fits the other model
    better and still keeps the geometry of its own. The problem solved here is our interpretation: minimise Σ ‖xW − y‖²
    subject to ‖WᵀW − I‖₂ ≤ λ in the spectral norm, that is, all singular values of W lie in [√(1 − λ), √(1 + λ)], and
    no direction's squared length is changed by more than the share λ. With different dimensions, the smaller of WᵀW and
    WWᵀ is used. The paper's measure of that distance and its training are not reproduced.

    Solved by accelerated projected gradient steps (Beck and Teboulle, SIAM J. Imaging Sci. 2, 2009, restarted whenever
    a step brings no gain) from the better of the Procrustes map and least squares, each with its singular values
    clipped; from a larger space into a smaller one, slightly perturbed (`leaned`). For λ < 1 the constraint is not
    convex, so the result may not be the global optimum; it is never worse than the initial map. With λ = 0 and a source
    of no more dimensions than the target it is `Procrustes`, of the same ``centre``; with λ so large that the bound is
    inactive it is least squares.

    Use it when a rotation underfits and `Ridge` distorts the geometry too much.

    Args:
        direction: Which model's embeddings are mapped; see `Adapter`.
        tolerance: λ, at least 0.
        centre: Fit about the means of both sides, as in `Procrustes`. If embeddings share a dominant direction, fitting
            about the origin needs many times more steps.
        steps: Maximum number of gradient steps; stops earlier when they bring no gain. Many dimensions, a small
            tolerance and a smaller target need the most.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(200, 8))
    >>> new = old @ np.linalg.qr(rng.normal(size=(8, 8)))[0]  # the old vectors, turned
    >>> found = LambdaOrthogonal(tolerance=0.1).fit_transform(new, old)
    >>> bool(((found * old).sum(axis=1) > 0.99 * np.linalg.norm(old, axis=1)).all())
    True
    """

    kind = "lambda_orthogonal"
    effects: ClassVar[Mapping[str, tuple[Mapping[str, Any], Any]]] = {
        "tolerance": ({}, 0.05),
        "centre": ({}, False),
        "steps": ({}, 0),
    }

    def __init__(
        self,
        direction: Direction = "new_to_old",
        *,
        tolerance: NonNegative = 0.5,
        centre: bool = True,
        steps: Count = 100,
    ) -> None:
        super().__init__(direction)
        self.tolerance, self.centre, self.steps = tolerance, centre, steps

    def solve(self, pairs: PairedVectors) -> State:
        """Return the weights, and the offset between the means where those count."""
        moments = Moments.of(pairs)
        path = RidgePath.of(moments, self.centre)
        spread, products = path.spread / len(pairs), path.products / len(pairs)
        rotation = path.directions.T @ polar(moments.sums(self.centre)[1])
        starts = [within(weights, self.tolerance) for weights in (rotation, path.rotated_weights(0.0))]
        start = min(starts, key=lambda weights: error(weights, spread, products))
        leaning = within(leaned(start, spread), self.tolerance)
        found = descend(leaning, spread, products, self.tolerance, self.steps)
        best = min(start, found, key=lambda weights: error(weights, spread, products))
        return {"weights": moments.affine(path.directions @ best, self.centre)}


def polar(products: Floats) -> Floats:
    """Return UVᵀ of products UΣVᵀ: the orthogonal map of `Procrustes`."""
    left, _, right = np.linalg.svd(products, full_matrices=False)
    nearest: Floats = left @ right
    return nearest


def within(weights: Floats, tolerance: float) -> Floats:
    """Return the nearest weights whose singular values lie in [√(1 − λ), √(1 + λ)], or from 0 where λ > 1."""
    if weights.shape[0] < weights.shape[1]:
        return within(weights.T, tolerance).T
    low, high = max(0.0, 1 - tolerance) ** 0.5, (1 + tolerance) ** 0.5
    squares, right = np.linalg.eigh(weights.T @ weights)
    if squares[0] > WELL_CONDITIONED * squares[-1]:  # 2 to 3 times faster than the singular value decomposition
        values = np.sqrt(squares)
        clipped: Floats = weights @ ((right * (np.clip(values, low, high) / values)) @ right.T)
    else:
        left, values, right = np.linalg.svd(weights, full_matrices=False)
        clipped = (left * np.clip(values, low, high)) @ right
    return clipped


def leaned(weights: Floats, spread: Floats) -> Floats:
    """Add a little of the directions of least spread to weights (S, T) of rotated inputs, where S > T.

    Columns can save error by turning into directions that few sources have. Where weights have none of these, as the
    Procrustes map of few pairs, they are a saddle, and no gradient says so. What goes where the images spread most
    gets the directions of least spread.
    """
    if weights.shape[0] <= weights.shape[1]:
        return weights
    images = np.linalg.eigh(weights.T @ (spread[:, None] * weights))[1]
    leaning = weights.copy()
    leaning[: len(images)] += LEAN * images[:, ::-1].T
    return leaning


def error(weights: Floats, spread: Floats, products: Floats) -> float:
    """Return the mean of ‖xW − y‖² − ‖y‖² over pairs whose inputs are given along their principal directions.

    Args:
        weights: W (S, T).
        spread: Mean squares of x, ascending (S,); products of two of its coordinates are 0 in the mean.
        products: Mean products of x and y (S, T).
    """
    return float(np.vdot(weights, spread[:, None] * weights - 2 * products))


def descend(weights: Floats, spread: Floats, products: Floats, tolerance: float, steps: int) -> Floats:
    """Lower the `error` by projected gradient steps with momentum; the error never rises."""
    steepness = float(spread[-1])
    if steepness <= 0:
        return weights
    ahead, momentum, best = weights, 1.0, error(weights, spread, products)
    for _ in range(steps):
        moved = within(ahead - (spread[:, None] * ahead - products) / steepness, tolerance)
        found = error(moved, spread, products)
        if found > best - ENOUGH:
            if momentum == 1.0:
                return moved if found < best else weights
            ahead, momentum = weights, 1.0
            continue
        faster = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = moved + (momentum - 1) / faster * (moved - weights)
        weights, momentum, best = moved, faster, found
    return weights
