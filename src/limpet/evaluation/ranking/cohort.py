"""Scores of one query in two spaces on one scale, by what it scores on a cohort: items that have vectors in both.

Speaker verification normalises scores by the nearest of a cohort (Sturim and Reynolds, "Speaker adaptive cohort
selection for Tnorm", ICASSP 2005), and cross-lingual retrieval subtracts their mean (CSLS: Conneau et al., ICLR 2018,
arXiv:1710.04087, its term of the query).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from limpet.adapters.score_map import MappedScores
from limpet.errors import DataError, reason

_SHARE = 0.04  # of a cohort: chosen on training texts, see benchmarks/half_backfilled.py
_FEWEST = 5  # items that make a mean
_HEAD = b"limpet cohort 1\0"  # no score map, which is JSON, begins so

_Rows = NDArray[np.float32]
_Scores = NDArray[np.float64]


class ScoreLine(NamedTuple):
    """A straight map of the scores of one query.

    >>> ScoreLine(2.0, -0.5).apply(np.array([0.5, 1.0])).values
    array([0.5, 1.5])
    """

    slope: float
    start: float

    def apply(self, scores: NDArray[np.floating]) -> MappedScores:
        """Map scores of any shape."""
        values = self.slope * np.asarray(scores, np.float64) + self.start
        return MappedScores(values, np.zeros(values.shape, bool))


@dataclass(frozen=True, eq=False)
class Cohort:
    """Items with vectors in the space of queries and in another one, by which scores in both are compared.

    A score s in the other space becomes m + f (s - m'): m and m' are the means of the query's best scores on the cohort
    in either space, and f is one factor for all queries, the ratio of the standard deviations of these best scores
    around their means.

    Args:
        own: Vectors in the space of the queries, as they are searched (C, D).
        other: Those of the same items in the other space (C, E).
        factor: f, above 0.
        nearest: How many of a query's scores are its best, fewer than C.

    Raises:
        DataError: These are no such values.
    """

    own: _Rows
    other: _Rows
    factor: float
    nearest: int

    def __post_init__(self) -> None:
        arrays = self.own, self.other
        shaped = all(one.ndim == 2 and one.dtype == np.float32 and one.size for one in arrays)
        if not shaped or len(self.own) != len(self.other) or not 0 < self.nearest < len(self.own):
            raise DataError(
                f"A cohort of vectors of shapes {self.own.shape} and {self.other.shape}, {self.nearest} nearest.",
                expected="(items, numbers) for both, float32, of the same items, more than are nearest",
            )
        if not (all(np.isfinite(one).all() for one in arrays) and 0 < self.factor < np.inf):
            raise DataError("Vectors or the factor of a cohort are not finite.", expected="finite ones, f above 0")

    @classmethod
    def of(
        cls, own: _Rows, other: _Rows, own_queries: _Rows, other_queries: _Rows, nearest: int | None = None
    ) -> Cohort:
        """Take items as a cohort, which search each other for the factor.

        Args:
            own: As above (C, D).
            other: As above (C, E).
            own_queries: The same items as queries in their own space (C, D).
            other_queries: Those in the other one (C, E).
            nearest: As above; 4 % of the items when left out, and at least five.

        Raises:
            DataError: There are too few, or scores of one space do not rise with those of the other.
        """
        cohort = cls(own, other, 1.0, nearest or max(_FEWEST, round(_SHARE * len(own))))
        spreads = []
        scores = [(queries @ vectors.T).astype(np.float64) for queries, vectors in
                  ((own_queries, own), (other_queries, other))]  # fmt: skip
        apart = ~np.eye(len(own), dtype=bool)  # an item does not ask for itself
        for of_space in scores:
            best = cohort._nearest(np.where(apart, of_space, -np.inf))
            spreads.append(float((best - best.mean(axis=1, keepdims=True)).std()))
        if not (min(spreads) > 0 and np.corrcoef(scores[0][apart], scores[1][apart])[0, 1] > 0):
            raise DataError(
                "Scores in one space do not rise with those in the other.",
                expected="items that differ, and that have vectors of both models",
                to_do="check that vectors and models belong together.",
                intact="Nothing was changed.",
            )
        return replace(cohort, factor=spreads[0] / spreads[1])

    def lines(self, own_queries: _Rows, other_queries: _Rows) -> list[ScoreLine]:
        """Return for every query what takes its scores in the other space to the scale of its own.

        Args:
            own_queries: Queries in their own space (Q, D).
            other_queries: The same in the other one (Q, E).

        Raises:
            DataError: They have other numbers of dimensions than the cohort, or score without bound on it.
        """
        sides = (own_queries, self.own), (other_queries, self.other)
        for queries, vectors in sides:
            if queries.shape[1] != vectors.shape[1]:
                raise DataError(
                    f"Queries of {queries.shape[1]} numbers.", expected=f"{vectors.shape[1]}, as the cohort has",
                    to_do="take a new one: `limpet gallery calibrate`.", intact="The gallery is intact.",
                )  # fmt: skip
        own, other = (
            self._nearest((queries @ vectors.T).astype(np.float64)).mean(axis=1) for queries, vectors in sides
        )
        starts = own - self.factor * other
        if not np.isfinite(starts).all():
            raise DataError("A query scores without bound on a cohort.", expected="finite scores")
        return [ScoreLine(self.factor, start) for start in starts.tolist()]

    def _nearest(self, scores: _Scores) -> _Scores:
        """Return the best scores of every query, in any order (Q, nearest)."""
        best: _Scores = np.partition(scores, -self.nearest, axis=1)[:, -self.nearest :]
        return best


def pack_cohort(cohort: Cohort) -> bytes:
    """Return a cohort as one value, the same for the same cohort: its arrays as safetensors, behind a fixed head."""
    numbers = {"factor": np.array([cohort.factor]), "nearest": np.array([cohort.nearest])}
    arrays = {"own": cohort.own, "other": cohort.other, **numbers}
    return _HEAD + save({name: np.ascontiguousarray(values) for name, values in arrays.items()})


def is_cohort(content: bytes) -> bool:
    """Say whether a value is what `pack_cohort` packed."""
    return content.startswith(_HEAD)


def unpack_cohort(content: bytes, where: str) -> Cohort:
    """Return the cohort that `pack_cohort` packed.

    Raises:
        DataError: It is none.
    """
    try:
        arrays = load(content.removeprefix(_HEAD))
        factor, nearest = (arrays[name].reshape(()) for name in ("factor", "nearest"))
        return Cohort(arrays["own"], arrays["other"], float(factor), int(nearest))
    except (SafetensorError, DataError, KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise DataError(
            f"Cannot read the cohort '{where}': {reason(error)}.",
            expected="one as `limpet gallery calibrate` takes it",
            to_do="take it again: `limpet gallery calibrate`.",
        ) from error
