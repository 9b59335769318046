"""Sums of products of paired unit rows, and least squares from them alone.

A closed-form map needs only how the coordinates of source and target vary together: matrices of the size of the
dimensions, summed in float64 over blocks of rows. The sums over some of the pairs are the difference of two such sums,
so that cross-validation reads the vectors once.

Written here because the usual estimators hold all rows in float64 at once and read them anew for every fold.

Decompositions are those of ``numpy.linalg`` in the whole package: NumPy and SciPy bring threads of their own, and where
products by one alternate with decompositions by the other, both wait for the same cores and take three times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import add

import numpy as np
from numpy.typing import NDArray

from limpet.errors import DataError

Floats = NDArray[np.float64]
RowNumbers = NDArray[np.int64]

BLOCK = 2048  # rows taken to float64 at a time: 6 MB at 384 dimensions, which caches hold better than more
FOLDS = 5
PENALTIES = tuple(float(10**exponent) for exponent in np.arange(-6, 3.25, 0.5))


def unit_rows(vectors: NDArray[np.floating]) -> Floats:
    """Return the directions (N, D) of vectors of any length, in float64; 0 for the zero vector.

    >>> unit_rows(np.array([[3, 4], [0, 0]], np.float32))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    rows = vectors.astype(np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))  # the square of any float32 is a float64
    rows /= np.where(lengths > 0, lengths, 1.0)[:, None]
    return rows


def with_constant(rows: Floats) -> Floats:
    """Append a column of ones: (N, D) to (N, D + 1)."""
    return np.concatenate([rows, np.ones((len(rows), 1))], axis=1)


@dataclass(frozen=True, eq=False)
class PairedVectors:
    """Vectors of two models with the rows of the same items: pair i is ``source_rows[i]`` and ``target_rows[i]``.

    Args:
        source: float32 (N, S), possibly memory-mapped.
        source_rows: int64 (P,).
        target: float32 (M, T).
        target_rows: int64 (P,).
    """

    source: NDArray[np.float32]
    source_rows: RowNumbers
    target: NDArray[np.float32]
    target_rows: RowNumbers

    def __len__(self) -> int:
        return len(self.source_rows)

    @property
    def source_dim(self) -> int:
        """S."""
        return int(self.source.shape[1])

    @property
    def target_dim(self) -> int:
        """T."""
        return int(self.target.shape[1])

    def __getitem__(self, pairs: RowNumbers | slice) -> PairedVectors:
        """Return some of the pairs, in the order given."""
        return PairedVectors(self.source, self.source_rows[pairs], self.target, self.target_rows[pairs])

    def unit_source(self) -> Floats:
        """Return the directions (P, S) of all sources at once; for parts that are small."""
        return unit_rows(self.source[self.source_rows])

    def unit_target(self) -> Floats:
        """Return the directions (P, T) of all targets at once; for parts that are small."""
        return unit_rows(self.target[self.target_rows])

    def blocks(self) -> Iterator[PairedVectors]:
        """Yield the pairs a block at a time."""
        for start in range(0, len(self), BLOCK):
            yield self[start : start + BLOCK]


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over pairs of unit rows x (S) and y (T), with a constant 1 appended to x.

    Args:
        inputs: Σ [x, 1]ᵀ[x, 1], (S + 1, S + 1); its last entry is the number of pairs.
        products: Σ [x, 1]ᵀ y, (S + 1, T).
    """

    inputs: Floats
    products: Floats

    @classmethod
    def of(cls, pairs: PairedVectors) -> Moments:
        """Add up all pairs, block by block."""
        inputs = np.zeros((pairs.source_dim + 1, pairs.source_dim + 1))
        products = np.zeros((pairs.source_dim + 1, pairs.target_dim))
        for block in pairs.blocks():
            x = with_constant(block.unit_source())
            inputs += x.T @ x
            products += x.T @ block.unit_target()
        return cls(inputs, products)

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.inputs + other.inputs, self.products + other.products)

    def __sub__(self, other: Moments) -> Moments:
        return Moments(self.inputs - other.inputs, self.products - other.products)

    @property
    def count(self) -> int:
        """Number of pairs."""
        return round(float(self.inputs[-1, -1]))

    @property
    def source_mean(self) -> Floats:
        """Mean of x, (S,)."""
        mean: Floats = self.inputs[-1, :-1] / self.inputs[-1, -1]
        return mean

    @property
    def target_mean(self) -> Floats:
        """Mean of y, (T,)."""
        mean: Floats = self.products[-1] / self.inputs[-1, -1]
        return mean

    def sums(self, centred: bool) -> tuple[Floats, Floats]:
        """Return Σ xᵀx (S, S) and Σ xᵀy (S, T), of x and y less their means where ``centred``."""
        inputs, products = self.inputs[:-1, :-1], self.products[:-1]
        if not centred:
            return inputs, products
        mean = self.source_mean
        return inputs - np.outer(self.inputs[-1, :-1], mean), products - np.outer(mean, self.products[-1])

    def sums_about(self, rest: Moments) -> tuple[Floats, Floats]:
        """Return Σ xᵀx (S, S) and Σ xᵀy (S, T), of x and y less the means of other pairs."""
        inputs, products = self.sums(centred=False)
        x, y, count = rest.source_mean, rest.target_mean, self.count
        sum_x, sum_y = self.inputs[-1, :-1], self.products[-1]
        inputs = inputs - np.outer(sum_x, x) - np.outer(x, sum_x) + count * np.outer(x, x)
        return inputs, products - np.outer(sum_x, y) - np.outer(x, sum_y) + count * np.outer(x, y)

    def affine(self, weights: Floats, centred: bool = True) -> Floats:
        """Append an offset to weights (S, T): (S + 1, T).

        Where ``centred``, it takes the mean of x to the mean of y; otherwise it is 0.
        """
        offset = self.target_mean - self.source_mean @ weights if centred else np.zeros(weights.shape[1])
        return np.concatenate([weights, offset[None]])

    def squared_error(self, weights: Floats) -> float:
        """Return Σ ‖[x, 1] W − y‖² − Σ ‖y‖² of weights (S + 1, T): the part that depends on them."""
        return float(np.einsum("st,st->", weights, self.inputs @ weights - 2 * self.products))


def fold_of_pair(count: int, folds: int = FOLDS, seed: int = 0) -> RowNumbers:
    """Deal pairs at random to folds of equal size, never more than there are pairs: the fold of every pair (count,)."""
    fold: RowNumbers = np.random.default_rng(seed).permutation(
        np.arange(count, dtype=np.int64) % max(1, min(folds, count))
    )
    return fold


def fold_moments(pairs: PairedVectors) -> list[Moments]:
    """Return the sums over each of `FOLDS` parts of the pairs."""
    fold = fold_of_pair(len(pairs))
    return [Moments.of(pairs[np.flatnonzero(fold == part)]) for part in range(int(fold.max()) + 1)]


def total(parts: Sequence[Moments]) -> Moments:
    """Add up the sums of all parts."""
    return reduce(add, parts)


@dataclass(frozen=True, eq=False)
class RidgePath:
    """Ridge regression for every penalty, from one decomposition of the inputs.

    It minimises Σ ‖xW − y‖² + λ·v·‖W‖². The penalty λ is counted in v, the mean sum of squares of a source coordinate,
    so that it means the same whatever the number of pairs and dimensions.

    Args:
        directions: Principal directions of the inputs (S, S), one per column.
        spread: Sums of squares along them (S,), ascending; 0 where rounding hides them.
        products: Sums of products of the rotated inputs with the targets (S, T).
    """

    directions: Floats
    spread: Floats
    products: Floats

    @classmethod
    def of(cls, moments: Moments, centred: bool = True) -> RidgePath:
        """Decompose the sums about the means, or about the origin."""
        inputs, products = moments.sums(centred)
        spread, directions = np.linalg.eigh(inputs)
        rounding = len(spread) * np.finfo(np.float64).eps * float(np.trace(moments.inputs))
        return cls(directions, np.where(spread > rounding, spread, 0.0), directions.T @ products)

    def divisor(self, penalty: float) -> Floats:
        """Return the spread with the penalty added (S,)."""
        divisor: Floats = self.spread + penalty * self.spread.mean()
        return divisor

    def factor(self, penalty: float) -> Floats:
        """Return 1 / divisor (S,), and 0 along directions without spread: they are not read, even without a penalty."""
        divisor, seen = self.divisor(penalty), self.spread > 0
        return np.divide(1.0, divisor, out=np.zeros_like(divisor), where=seen)

    def rotated_weights(self, penalty: float) -> Floats:
        """Return W (S, T) for inputs that are given along the directions."""
        return self.factor(penalty)[:, None] * self.products

    def weights(self, penalty: float) -> Floats:
        """Return W (S, T)."""
        weights: Floats = self.directions @ self.rotated_weights(penalty)
        return weights

    def squared_errors(self, inputs: Floats, products: Floats, penalties: Sequence[float]) -> Floats:
        """Return Σ ‖xW − y‖² − Σ ‖y‖² for every penalty, over other pairs.

        W is a diagonal matrix times the rotated products, so that the errors of all penalties need only one rotation.

        Args:
            inputs: Σ xᵀx over the other pairs (S, S).
            products: Σ xᵀy over them (S, T).
            penalties: K of them.
        """
        factors = np.stack([self.factor(penalty) for penalty in penalties])
        squares = (self.directions.T @ inputs @ self.directions) * (self.products @ self.products.T)
        gains = (self.products * (self.directions.T @ products)).sum(axis=1)
        errors: Floats = ((factors @ squares - 2 * gains) * factors).sum(axis=1)
        return errors


def best_penalty(folds: Sequence[Moments]) -> float:
    """Return the penalty of `PENALTIES` whose affine ridge maps have the least squared error on folds left out in turn.

    Of equally good ones it is the largest.
    """
    errors, whole = np.zeros(len(PENALTIES)), total(folds)
    for held in folds if len(folds) > 1 else ():
        rest = whole - held
        errors += RidgePath.of(rest).squared_errors(*held.sums_about(rest), PENALTIES)
    return _least(errors)


def penalties_without(folds: Sequence[Moments]) -> list[float]:
    """Return for every fold the penalty that `best_penalty` chooses of the other folds.

    What two folds leave out is decomposed once for both, which halves the work.
    """
    errors, whole = np.zeros((len(folds), len(PENALTIES))), total(folds)
    for one, other in combinations(range(len(folds)), 2):
        rest = whole - folds[one] - folds[other]
        path = RidgePath.of(rest)
        for left_out, held in ((one, other), (other, one)):
            errors[left_out] += path.squared_errors(*folds[held].sums_about(rest), PENALTIES)
    return [_least(of_fold) for of_fold in errors]


def _least(errors: Floats) -> float:
    """Return the penalty of the least error; of equally good ones the largest."""
    return PENALTIES[len(errors) - 1 - int(np.argmin(errors[::-1]))]


def ridge(moments: Moments, penalty: float) -> Floats:
    """Return the affine ridge map (S + 1, T), its offset in the last row; for the penalty see `RidgePath`."""
    return moments.affine(RidgePath.of(moments).weights(penalty))


def chosen_penalty(penalty: float | None, folds: Sequence[Moments]) -> float:
    """Return the penalty given, or the best one.

    Raises:
        DataError: No penalty at all, for fewer pairs than determine an affine map.
    """
    if penalty is None:
        return best_penalty(folds)
    whole = total(folds)
    needed = len(whole.inputs)
    if penalty == 0 and whole.count < needed:
        raise DataError(
            f"{whole.count} pairs for a source of dimension {needed - 1}, with penalty=0.",
            expected=f"at least {needed} pairs, or a penalty: with fewer pairs, many maps fit them all exactly",
            to_do="leave the penalty out, so that it is chosen by cross-validation, or bring more pairs.",
        )
    return penalty
