"""The rotation that brings one model's directions nearest to the other's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from limpet.adapters.base import AffineAdapter, State
from limpet.adapters.moments import Moments, PairedVectors
from limpet.adapters.pairs import Direction


class Procrustes(AffineAdapter):
    """Orthogonal Procrustes (Schönemann, Psychometrika 31, 1966); the first variant of Drift-Adapter, arXiv:2509.23471.

    With the singular value decomposition XᵀY = UΣVᵀ of the products of paired unit rows, by default about the means of
    both sides, the map is W = UVᵀ, which may include a reflection. About the origin, it maximises the sum of inner
    products of images and targets among all such maps, and minimises the squared error if the target has at least as
    many dimensions.

    With different dimensions W is semi-orthogonal: into a larger space it keeps all angles (WWᵀ = I); into a smaller
    one it drops the directions that the target does not determine (WᵀW = I), and images are normalised afterwards.

    It has the fewest degrees of freedom among the rotating adapters, so it needs the fewest pairs. With fewer pairs
    than the smaller dimension, part of the rotation is undetermined.

    Use it when you have few pairs, or when all distances between mapped vectors must be preserved.

    Args:
        direction: Which model's embeddings are mapped; see `Adapter`.
        centre: Rotate about the means of both sides, (x − mean)W + mean: embeddings of most models share a dominant
            direction, which may differ between models. False rotates about the origin, as Drift-Adapter does.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(200, 8))
    >>> new = old @ np.linalg.qr(rng.normal(size=(8, 8)))[0]  # the old vectors, turned
    >>> found = Procrustes().fit_transform(new, old)
    >>> bool(((found * old).sum(axis=1) > 0.99 * np.linalg.norm(old, axis=1)).all())
    True
    """

    kind = "procrustes"
    effects: ClassVar[Mapping[str, tuple[Mapping[str, Any], Any]]] = {"centre": ({}, False)}

    def __init__(self, direction: Direction = "new_to_old", *, centre: bool = True) -> None:
        super().__init__(direction)
        self.centre = centre

    def solve(self, pairs: PairedVectors) -> State:
        """Return the weights: the polar factor of the products, and the offset."""
        moments = Moments.of(pairs)
        left, _, right = np.linalg.svd(moments.sums(self.centre)[1], full_matrices=False)
        return {"weights": moments.affine(left @ right, self.centre)}
