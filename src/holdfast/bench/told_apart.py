"""Whether a lead over several cases is more than the chance of seeds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.bench.merit import ROUNDING

LEVEL = 0.95


class Lead(NamedTuple):
    """How far one label is ahead of another.

    Args:
        mean: Mean over cases of the mean difference over seeds.
        margin: Half of its 95 % interval; None where some case has one seed, of which nothing can be told.
    """

    mean: float
    margin: float | None

    @property
    def told_apart(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.margin is not None and self.mean > max(self.margin, ROUNDING)


def lead(
    best: Sequence[NDArray[np.float64]], other: Sequence[NDArray[np.float64]], data: Sequence[Hashable] | None = None
) -> Lead:
    """Compare two labels on the same cases, seed by seed.

    The data of a seed moves all labels together, so differences are taken within seeds. It also moves all scenarios of
    a data set together, which share the old model and the split: their differences are averaged within seeds, where
    they have as many, and count as one. Means over seeds have the variances s²/n; the interval of the mean over cases
    is Welch's, with the degrees of freedom of Welch and Satterthwaite. It tells what other seeds would change on these
    data sets, not what other data would.

    Args:
        best: Values of every case (S,), of which none is NaN.
        other: The same of the other label.
        data: The data set of every case; all different when left out.

    >>> lead([np.array([0.5, 0.75])], [np.array([0.25, 0.5])])
    Lead(mean=0.25, margin=0.0)
    """
    cases = [first - second for first, second in zip(best, other, strict=True)]
    mean = float(np.mean([each.mean() for each in cases]))
    together: dict[Hashable, list[NDArray[np.float64]]] = {}
    for name, case in zip(data or range(len(cases)), cases, strict=True):
        together.setdefault((name, len(case)), []).append(case)
    if any(len(each) < 2 for each in cases):
        return Lead(mean, None)
    shares = np.array([len(found) / len(cases) for found in together.values()])
    differences = [np.mean(found, axis=0) for found in together.values()]
    variances = shares**2 * np.array([each.var(ddof=1) / len(each) for each in differences])
    total = float(variances.sum())
    if total < (ROUNDING / len(cases)) ** 2:
        return Lead(mean, 0.0)
    from scipy.stats import t

    free = total**2 / float((variances**2 / [len(each) - 1 for each in differences]).sum())
    return Lead(mean, float(t.ppf((1 + LEVEL) / 2, free)) * total**0.5)
