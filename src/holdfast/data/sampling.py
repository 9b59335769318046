"""Sampling rows of every class at once, without a loop over classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import DataError, refuse


def generator_of(seed: int) -> np.random.Generator:
    """Return the generator of a seed.

    Raises:
        ConfigError: The seed is negative.
    """
    refuse(seed < 0, f"seed = {seed}.", "a seed of 0 or more")
    return np.random.default_rng(seed)


def class_counts(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many rows every class has (largest label + 1,), empty for no labels."""
    return np.bincount(labels)


def lowest_of_each_class(labels: NDArray[np.int64], keys: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.int64]:
    """Return, ascending, the rows with the lowest keys of every class.

    Args:
        labels: Class of every row (N,), from 0.
        keys: What to order the rows of a class by (N,): random numbers to draw, row numbers to take the first.
        wanted: How many rows to take of every class (largest label + 1,).

    >>> lowest_of_each_class(np.array([0, 1, 0, 0]), np.array([9, 5, 1, 2]), np.array([2, 1])).tolist()
    [1, 2, 3]
    """
    counts = class_counts(labels)
    order = np.lexsort((keys, labels))
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows: NDArray[np.int64] = np.sort(order[rank < wanted[labels[order]]])
    return rows


def check_labels(labels: NDArray[np.int64]) -> None:
    """Refuse labels that are not int64 (N,) from 0, or none at all.

    Raises:
        DataError: They are something else.
    """
    if labels.dtype != np.int64 or labels.ndim != 1 or len(labels) == 0 or labels.min() < 0:
        raise DataError(
            f"Labels are {labels.dtype} of shape {labels.shape}.", expected="int64 of shape (images,), from 0"
        )
