"""Change of a metric by class: the classes that an upgrade improves or degrades.

A mean over queries can rise while some classes get much worse. With thousands of classes some look worse by chance:
a class is called clearly better or worse only after all p-values were judged together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limpet.errors import DataError, refuse
from limpet.results import Number, Part

_Floats = NDArray[np.float64]
_Counts = NDArray[np.int64]

FALSE_DISCOVERIES = 0.05  # of the classes called clearly better or worse, how many are expected to be so by chance
EXTREMES = 20  # classes named at either end

_FEWEST_CHANGED = 6  # fewest changed queries that reach a p-value below 0.05, if all of them agree
_CURVE = 201  # changes kept for the picture
_SAME = 1e-12  # smaller changes come from rounding


class ClassScore(Part):
    """One class.

    Args:
        name: Name of the class, or its number if it has none.
        before: Their mean by the first system.
        p_value: Of the sign test; None if too few queries changed.
        clear: Whether the change is statistically clear.
    """

    name: str
    queries: int
    before: float
    after: float
    change: float
    p_value: Number
    clear: bool


class ClassChangeSummary(Part):
    """Summary of the changes of classes, for a report.

    Args:
        metric: Metric of every query.
        systems: Systems before and after.
        classes: Number of classes with a counted query.
        queries: Number of counted queries.
        better: Share of classes that score more.
        same: Share of classes that score the same.
        worse: Share of classes that score less.
        clearly_better: Number of classes that score clearly more; see `ClassChange.clear`.
        clearly_worse: Number of classes that score clearly less.
        testable: Number of classes with enough changed queries for a test.
        false_discoveries: Expected share of clear changes that are due to chance.
        curve: The changes in ascending order; 201 quantiles for more than 201 classes.
        worst: The largest losses; ties are sorted by descending number of queries.
    """

    metric: str
    systems: tuple[str, str]
    classes: int
    queries: int
    better: float
    same: float
    worse: float
    clearly_better: int
    clearly_worse: int
    testable: int
    false_discoveries: float
    curve: list[float]
    worst: list[ClassScore]
    best: list[ClassScore]


@dataclass(frozen=True, eq=False)
class ClassChange:
    """Scores of two systems on the queries of every class; C classes, in ascending order of their number.

    Args:
        classes: Numbers of the classes with at least one counted query (C,).
        queries: Number of counted queries of each class (C,).
        before: Mean score of the first system (C,).
        after: Mean score of the second system (C,).
        improved: Number of queries that score more now (C,).
        worsened: Number of queries that score less (C,).
        p_value: p-value of the two-sided sign test of improved against worsened (C,); NaN if fewer than 6 queries
            changed.
    """

    classes: _Counts
    queries: _Counts
    before: _Floats
    after: _Floats
    improved: _Counts
    worsened: _Counts
    p_value: _Floats

    def __len__(self) -> int:
        return len(self.classes)

    @property
    def change(self) -> _Floats:
        """After minus before (C,), without rounding errors."""
        change = self.after - self.before
        return np.where(np.abs(change) < _SAME, 0.0, change)

    def clear(self) -> NDArray[np.bool_]:
        """Mark the classes (C,) with a significant change, at 5 % false discoveries (Benjamini and Hochberg, 1995).

        The change of the mean and the majority of changed queries must agree.
        """
        agree = np.sign(self.change) == np.sign(self.improved - self.worsened)
        return np.asarray(discoveries(self.p_value, FALSE_DISCOVERIES) & agree)

    def summary(
        self,
        metric: str,
        class_names: Sequence[str] | None = None,
        *,
        systems: tuple[str, str] = ("self_old", "cross"),
        count: int = EXTREMES,
    ) -> ClassChangeSummary:
        """Return the summary stored in an `Evaluation`.

        Args:
            metric: Metric of every query.
            class_names: Names by number. Default: the numbers.
            systems: Systems before and after.
            count: Number of classes to name at either end.
        """
        change, clear = self.change, self.clear()
        return ClassChangeSummary(
            metric=metric,
            systems=systems,
            classes=len(self),
            queries=int(self.queries.sum()),
            better=float((change > 0).mean()),
            same=float((change == 0).mean()),
            worse=float((change < 0).mean()),
            clearly_better=int((clear & (change > 0)).sum()),
            clearly_worse=int((clear & (change < 0)).sum()),
            testable=int(np.count_nonzero(~np.isnan(self.p_value))),
            false_discoveries=FALSE_DISCOVERIES,
            curve=np.quantile(change, np.linspace(0, 1, min(len(self), _CURVE))).tolist(),
            worst=self._extremes(-1, class_names, count),
            best=self._extremes(1, class_names, count),
        )

    def _extremes(self, sign: int, names: Sequence[str] | None, count: int) -> list[ClassScore]:
        change, clear = self.change, self.clear()
        order = np.lexsort((-self.queries, -sign * change))[:count]
        return [
            ClassScore(
                name=str(number) if names is None else str(names[number]),
                queries=int(self.queries[row]),
                before=float(self.before[row]),
                after=float(self.after[row]),
                change=float(change[row]),
                p_value=float(self.p_value[row]),
                clear=bool(clear[row]),
            )
            for row, number in zip(order.tolist(), self.classes[order].tolist(), strict=True)
            if sign * change[row] > 0
        ]


def class_change(before: ArrayLike, after: ArrayLike, labels: ArrayLike) -> ClassChange:
    """Compare two systems by class, in time linear in the number of queries.

    Args:
        before: One value per query of the first system (Q,), such as average precision; NaN excludes the query.
        after: Values of the second system for the same queries (Q,).
        labels: Class of every query (Q,), whole numbers.

    Raises:
        ConfigError: Labels are not whole numbers.
        DataError: Lengths differ, or no query is counted.

    >>> found = class_change([0.5, 0.5, 1.0], [1.0, 0.5, 0.25], [7, 7, 3])
    >>> found.classes.tolist(), found.change.tolist(), found.improved.tolist()
    ([3, 7], [-0.75, 0.25], [0, 1])
    """
    first, second = np.asarray(before, np.float64), np.asarray(after, np.float64)
    numbers = np.asarray(labels)
    if not first.shape == second.shape == numbers.shape or first.ndim != 1:
        raise DataError(
            f"Values of shapes {first.shape} and {second.shape}, labels {numbers.shape}.", expected="one per query each"
        )
    refuse(numbers.dtype.kind not in "iu", f"Labels of type {numbers.dtype}.", "whole numbers")
    kept = ~(np.isnan(first) | np.isnan(second))
    if not kept.any():
        raise DataError("No query has a value in both systems.", expected="at least one")
    classes, row, queries = np.unique(numbers[kept], return_inverse=True, return_counts=True)
    first, second = first[kept], second[kept]

    def summed(values: NDArray[Any]) -> _Floats:
        return np.bincount(row, values, len(classes)).astype(np.float64)

    difference = second - first
    up, down = (summed(sign * difference > _SAME).astype(np.int64) for sign in (1, -1))
    return ClassChange(
        classes.astype(np.int64),
        queries,
        summed(first) / queries,
        summed(second) / queries,
        up,
        down,
        sign_test(up, down),
    )


def sign_test(improved: ArrayLike, worsened: ArrayLike) -> _Floats:
    """Return two-sided p-values of the exact sign test.

    It depends only on the order of the values, and is valid for any number of queries; ties are ignored.

    Args:
        improved: Number of improved queries of each class (C,).
        worsened: Number of worsened queries of each class (C,).

    Returns:
        (C,); NaN if fewer than 6 changed, too few for a test.

    Of 6 coins, all heads or all tails come once in 32 throws, at least 7 of 8 alike 18 times in 256:

    >>> sign_test([6, 7, 2], [0, 1, 2]).tolist()
    [0.03125, 0.0703125, nan]
    """
    from scipy.special import bdtr  # takes longer to import than all the rest of this package

    up, down = np.asarray(improved, np.int64), np.asarray(worsened, np.int64)
    changed = up + down
    both = np.minimum(1.0, 2 * bdtr(np.minimum(up, down).astype(np.float64), changed, 0.5))
    return np.where(changed < _FEWEST_CHANGED, np.nan, both)


def discoveries(p_values: ArrayLike, share: float) -> NDArray[np.bool_]:
    """Mark the p-values (C,) that are significant by the procedure of Benjamini and Hochberg.

    The k smallest of n are significant, for the largest k whose k-th is at most k / n * share; NaN values are ignored.

    >>> discoveries([0.04, 0.01, float("nan"), 0.9], 0.05).tolist()
    [False, True, False, False]
    """
    values = np.asarray(p_values, np.float64)
    tested = np.sort(values[~np.isnan(values)])
    stands = np.flatnonzero(tested <= share * np.arange(1, len(tested) + 1) / max(1, len(tested)))
    limit = tested[stands[-1]] if len(stands) else -1.0
    return np.asarray(values <= limit)
