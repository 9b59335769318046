"""Whether an evaluation hangs on ties: items that score the same, and vectors that are equal."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.evaluation.metrics import TIED
from limpet.evaluation.protocols.base import PerUnit
from limpet.evaluation.sides import Sides
from limpet.results import Part
from limpet.support.ranges import Share

_ROWS_AT_ONCE = 65_536


class Ties(Part):
    """What ties an evaluation met. Scores are means over all orders of tied items, see `metrics`.

    Args:
        queries: Share of the queries whose average precision hangs on the order of tied items, by search; see
            `metrics.hangs_on_ties`.
        repeated: Share of the gallery vectors that are equal to an earlier one, by model.
        constant: Sides of which all vectors are equal, such as "new queries".
    """

    queries: dict[str, Share]
    repeated: dict[str, Share]
    constant: tuple[str, ...] = ()


def ties_of(values: Mapping[str, Mapping[str, PerUnit]], models: Mapping[str, Sides]) -> Ties:
    """Return what ties an evaluation met.

    Args:
        values: What was measured, by search; shares of queries are given where `metrics.TIED` is among it.
        models: Queries and gallery by model.
    """
    hanging = {name: of_search[TIED] for name, of_search in values.items() if TIED in of_search}
    different = {
        f"{name} {side}": (distinct_vectors(one), len(one))
        for name, sides in models.items()
        for side, one in zip(("queries", "gallery"), sides, strict=True)
    }
    return Ties(
        queries={name: float(np.nanmean(found)) for name, found in hanging.items() if not np.isnan(found).all()},
        repeated={
            name: (items - found) / items
            for name, (found, items) in ((name, different[f"{name} gallery"]) for name in models)
        },
        constant=tuple(side for side, (found, items) in different.items() if found == 1 < items),
    )


def distinct_vectors(embeddings: EmbeddingSet) -> int:
    """Count the vectors of which no two are equal, by their products with one random vector.

    >>> vectors = np.array([[1, 2], [3, 4], [1, 2]], np.float32)
    >>> distinct_vectors(EmbeddingSet(vectors, model="example"))
    2
    """
    direction = np.random.default_rng(0).normal(size=embeddings.dim)
    products: NDArray[np.float64] = np.empty(len(embeddings))
    for start in range(0, len(embeddings), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        vectors = np.asarray(embeddings.vectors[rows], np.float64)
        products[rows] = np.einsum("ij,j->i", vectors, direction)  # the same for equal rows, wherever they stand
    return len(np.unique(products))
