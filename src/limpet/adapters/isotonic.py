"""Isotonic regression: the values nearest to given ones that never fall."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def isotonic_means(values: Floats, weights: Floats | None = None) -> Floats:
    """Return the never falling values that are nearest to given ones in weighted squares.

    Pools adjacent violators in one pass (Busing, Monotone Regression, J. Stat. Softw. 102, 2022). The sums are those of
    ``scipy.optimize.isotonic_regression`` in the same order, and so the results are equal. Written here because
    ``scipy.optimize`` is large to import for this one function.

    Args:
        values: (N,).
        weights: Above 0, (N,); all alike when left out.

    Returns:
        (N,).

    >>> isotonic_means(np.array([1.0, 4.0, 2.0, 5.0])).tolist()
    [1.0, 3.0, 3.0, 5.0]
    """
    given, place = values.tolist(), 0
    known = [1.0] * len(given) if weights is None else weights.tolist()
    blocks: list[tuple[float, float, int]] = []  # mean, sum of weights, number of values
    while place < len(given):
        mean, weight, count = given[place], known[place], 1
        if blocks and blocks[-1][0] >= mean:
            before, more, values_before = blocks.pop()
            total, weight, count = more * before + weight * mean, weight + more, count + values_before
            mean = total / weight
            while place + 1 < len(given) and mean >= given[place + 1]:
                place += 1
                total, weight, count = total + known[place] * given[place], weight + known[place], count + 1
                mean = total / weight
            while blocks and blocks[-1][0] >= mean:
                before, more, values_before = blocks.pop()
                total, weight, count = total + more * before, weight + more, count + values_before
                mean = total / weight
        blocks.append((mean, weight, count))
        place += 1
    means, _, counts = zip(*blocks, strict=True)
    return np.repeat(np.array(means), counts)
