"""How a share of the images of every class is counted and chosen: the rules of the published splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.data.sampling import class_counts, generator_of, lowest_of_each_class

CLOSE = 1e-9
"""Added before cutting off, so that 0.29 of 100 is 29 although 0.29 * 100 is 28.999999999999996."""

Labels = NDArray[np.int64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class ImageRule:
    """One way to take a share of a training set.

    Args:
        choose: From labels (N,), fraction and seed to the chosen rows, ascending.
        single_on_both: Whether the only image of a class goes to both sides where the sides are otherwise apart.
        description: One line for people.
    """

    choose: Callable[[Labels, float, int], Rows]
    single_on_both: bool
    description: str


def gldv2_counts(counts: NDArray[np.int64], fraction: float) -> NDArray[np.int64]:
    """Return how many images to take: one of up to three, of more the share cut off (code of AdvBCT).

    >>> gldv2_counts(np.array([0, 1, 2, 3, 4, 10, 19]), 0.3).tolist()
    [0, 1, 1, 1, 1, 3, 5]
    """
    taken: NDArray[np.int64] = np.floor(fraction * counts + CLOSE).astype(np.int64)
    return np.where(counts < 4, np.minimum(counts, 1), taken)


def ms1mv3_counts(counts: NDArray[np.int64], fraction: float) -> NDArray[np.int64]:
    """Return how many images to take: the share rounded, half to even, and at least one (code of MixBCT).

    >>> ms1mv3_counts(np.array([0, 1, 2, 5, 10, 15]), 0.3).tolist()
    [0, 1, 1, 2, 3, 4]
    """
    taken: NDArray[np.int64] = np.rint(fraction * counts).astype(np.int64)
    return np.minimum(counts, np.maximum(1, taken))


def _gldv2(labels: Labels, fraction: float, seed: int) -> Rows:
    counts = class_counts(labels)
    draws = generator_of(seed).random(len(labels))
    keys = np.where(counts[labels] < 4, np.arange(len(labels)) / len(labels), draws)
    return lowest_of_each_class(labels, keys, gldv2_counts(counts, fraction))


def _ms1mv3(labels: Labels, fraction: float, seed: int) -> Rows:
    return lowest_of_each_class(labels, np.arange(len(labels)), ms1mv3_counts(class_counts(labels), fraction))


def _random(labels: Labels, fraction: float, seed: int) -> Rows:
    count = int(fraction * len(labels) + CLOSE)
    return np.sort(generator_of(seed).permutation(len(labels))[:count])


IMAGE_RULES: dict[str, ImageRule] = {
    "gldv2": ImageRule(_gldv2, True, "per class the first of up to three images, of more the share cut off, at random"),
    "ms1mv3": ImageRule(_ms1mv3, True, "per class the share rounded, at least one, the first images; no seed needed"),
    "random": ImageRule(_random, False, "a share of the whole set at random, whatever the classes (HBCT)"),
}
