"""What an old vector tells of how far the new model will disagree with it: estimates from vectors in index form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from holdfast.geometry import Space
from holdfast.stores.base import Vectors

Values = NDArray[np.float64]
Rows = NDArray[np.int64]
Estimate = Callable[[Vectors, Rows], Values]
"""From vectors in index form (n, width) and the places of their items in a list (n,) to gains (n,)."""

NEIGHBOURS = 10

_SCORES_AT_ONCE = 4_194_304


def lorentz_uncertainty(points: Vectors, curvature: float) -> Values:
    """Return 1 − ‖s‖/t of points s (N, D) with time t, in (0, 1]: `Lorentz.uncertainty` without torch.

    >>> lorentz_uncertainty(np.array([[0.0, 0.75], [0.0, 0.0]], np.float32), 1.0).tolist()  # t = 5/4
    [0.4, 1.0]
    """
    squares = np.einsum("nd,nd->n", points, points, dtype=np.float64)
    times, lengths = np.sqrt(1 / curvature + squares), np.sqrt(squares)
    values: Values = np.minimum(1 / (curvature * times * (times + lengths)), 1)
    return values


UNCERTAINTY: Mapping[str, Callable[[Space, Vectors], Values]] = {
    "lorentz": lambda space, points: lorentz_uncertainty(points, float(space.curvature or 1)),
}
"""Spaces that know an uncertainty of their points, by name."""


def predicted_disagreement(old: Vectors, disagreement: Values, neighbours: int = NEIGHBOURS) -> Estimate:
    """Return the estimate that a pilot gives: the mean disagreement over the nearest old vectors of the pilot.

    Args:
        old: Old vectors of the pilot in index form (P, width); nearer means a larger inner product.
        disagreement: Of the pilot (P,).
        neighbours: How many count.
    """
    count = min(neighbours, len(old))

    def estimate(vectors: Vectors, rows: Rows) -> Values:
        values = np.empty(len(vectors), np.float64)
        step = max(1, _SCORES_AT_ONCE // len(old))
        for start in range(0, len(vectors), step):
            scores = vectors[start : start + step] @ old.T
            nearest = np.argpartition(scores, len(old) - count, axis=1)[:, len(old) - count :]
            values[start : start + step] = disagreement[nearest].mean(axis=1)
        return values

    return estimate


def margin_estimate(parts: Iterator[tuple[Rows, Vectors]], codes: Rows) -> Estimate:
    """Return the estimate that labels give: the cosine to the nearest other class mean, minus that to the own.

    Args:
        parts: The vectors that class means are made of: places of their items, unit vectors.
        codes: Class of every item, -1 without; such an item has no estimate (NaN).
    """
    means = _class_means(parts, codes)
    empty = ~means.any(axis=1)  # classes of items with other vectors

    def estimate(vectors: Vectors, rows: Rows) -> Values:
        values = np.empty(len(vectors), np.float64)
        step = max(1, _SCORES_AT_ONCE // len(means))
        for start in range(0, len(vectors), step):
            own = codes[rows[start : start + step]]
            scores = (vectors[start : start + step] @ means.T).astype(np.float64)
            scores[:, empty] = -np.inf
            place = (np.arange(len(scores)), own)
            to_own, scores[place] = scores[place], -np.inf
            with np.errstate(invalid="ignore"):  # no other class, and no direction of the own one
                values[start : start + step] = np.where(own >= 0, scores.max(axis=1) - to_own, np.nan)
        return values

    return estimate


def _class_means(parts: Iterator[tuple[Rows, Vectors]], codes: Rows) -> Vectors:
    """Return the direction of every class mean (C, width); zero for a class without vectors."""
    sums = np.zeros((codes.max() + 1, 1))
    for rows, vectors in parts:
        labelled = np.flatnonzero(codes[rows] >= 0)
        by_class = labelled[np.argsort(codes[rows[labelled]], kind="stable")]
        present, starts = np.unique(codes[rows[by_class]], return_index=True)
        if sums.shape[1] != vectors.shape[1]:
            sums = np.zeros((len(sums), vectors.shape[1]))
        if len(present):
            sums[present] += np.add.reduceat(vectors[by_class], starts, axis=0, dtype=np.float64)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    means: Vectors = (sums / np.maximum(lengths, 1e-12)).astype(np.float32)
    return means


def shares(values: Values) -> Values:
    """Return for every value the share of values that are smaller, equal ones counted half; in [0, 1].

    >>> shares(np.array([5.0, 9.0, 5.0, 1.0])).tolist()
    [0.5, 0.875, 0.5, 0.125]
    """
    ordered = np.sort(values)
    places = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    found: Values = places / (2 * max(1, len(values)))
    return found
