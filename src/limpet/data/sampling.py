"""Samples rows per class, and draws orders in which every batch holds several items of each of its classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.errors import DataError
from limpet.support.ranges import Seed, checked


@checked
def generator_of(seed: Seed) -> np.random.Generator:
    """Return a random generator with a seed.

    Raises:
        ConfigError: The seed is negative.
    """
    return np.random.default_rng(seed)


def class_counts(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of rows per class (largest label + 1,), empty for no labels."""
    return np.bincount(labels)


def lowest_of_each_class(labels: NDArray[np.int64], keys: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.int64]:
    """Return the rows with the lowest keys of every class, ascending.

    Args:
        labels: Class of every row (N,), from 0.
        keys: Sort keys of the rows within a class (N,): random numbers for a random choice, row numbers for the first.
        wanted: Number of rows to choose from every class (largest label + 1,); at most all are chosen.

    >>> lowest_of_each_class(np.array([0, 1, 0, 0]), np.array([9, 5, 1, 2]), np.array([2, 1])).tolist()
    [1, 2, 3]
    """
    counts = class_counts(labels)
    order = np.lexsort((keys, labels))
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows: NDArray[np.int64] = np.sort(order[rank < wanted[labels[order]]])
    return rows


def check_labels(labels: NDArray[np.int64]) -> None:
    """Refuse labels that are empty or not int64 (N,) from 0.

    Raises:
        DataError: The labels are invalid.
    """
    if labels.dtype != np.int64 or labels.ndim != 1 or len(labels) == 0 or labels.min() < 0:
        raise DataError(
            f"Labels are {labels.dtype} of shape {labels.shape}.", expected="int64 of shape (images,), from 0"
        )


def holds_whole_classes(batch_size: int, items_per_class: int) -> bool:
    """Return whether a batch consists of two or more whole classes with `items_per_class` items each.

    >>> holds_whole_classes(64, 4), holds_whole_classes(64, 5), holds_whole_classes(64, 64)
    (True, False, False)
    """
    return 1 <= items_per_class < batch_size and batch_size % items_per_class == 0


def balanced_order(
    labels: NDArray[np.int64],
    generator: np.random.Generator,
    *,
    classes_per_step: int,
    items_per_class: int,
    steps: int,
) -> NDArray[np.int64]:
    """Draw the rows of an epoch step by step: Q distinct classes, and K items of each (P × K, arXiv:1703.07737).

    Classes take turns: each round contains every class once, in a new order, except those left over when fewer than Q
    remain. All classes are therefore drawn about equally often, regardless of size. An epoch uses all items of a class,
    in groups of K, before any item repeats (a remainder below K waits for the next shuffle). A class of fewer than K
    items fills its group by repetition, with counts that differ by one at most.

    Args:
        labels: Class of every row, int64 (N,); classes without a row are never drawn.
        generator: Random generator of all draws.
        classes_per_step: Number of classes Q over all processes; at most the number of classes.
        items_per_class: Number of items per class K.
        steps: Number of steps.

    Returns:
        Row numbers, int64 (steps · Q · K,), the K of a class side by side.
    """
    classes, members = np.unique(labels, return_inverse=True)
    steps_per_round = len(classes) // classes_per_step
    rounds = generator.permuted(np.tile(np.arange(len(classes)), (-(-steps // steps_per_round), 1)), axis=1)
    turns = rounds[:, : steps_per_round * classes_per_step].ravel()[: steps * classes_per_step]
    rows = np.empty((len(turns), items_per_class), np.int64)
    by_class = np.split(np.argsort(members, kind="stable"), np.bincount(members).cumsum()[:-1])
    places = np.split(np.argsort(turns, kind="stable"), np.bincount(turns, minlength=len(classes)).cumsum()[:-1])
    for items, own in zip(by_class, places, strict=True):
        # groups of items: shuffled and divided, and reshuffled when no whole group is left
        count = len(own)
        per_shuffle = max(1, len(items) // items_per_class)
        shuffled = generator.permuted(np.tile(items, (-(-count // per_shuffle), 1)), axis=1)
        columns = np.arange(per_shuffle * items_per_class) % len(items)
        rows[own] = shuffled[:, columns].reshape(-1, items_per_class)[:count]
    return rows.ravel()
