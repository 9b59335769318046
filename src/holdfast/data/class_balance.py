"""Orders of a training set in which every batch holds several items of each of its classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def holds_whole_classes(batch_size: int, items_per_class: int) -> bool:
    """Whether a batch is made of two classes or more with so many items each.

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

    Classes take turns: in a round each comes once, in a new order, but for those left over when no Q of them remain;
    so all are drawn about equally often, whatever their sizes. An epoch shows all items of a class, in groups of K,
    before any of them comes again (fewer than K that remain wait for another shuffle). A class of fewer than K items
    fills its group by repeating them, each as often as the others or once more.

    Args:
        labels: Class of every row, int64 (N,); classes without a row are never drawn.
        generator: Decides everything.
        classes_per_step: Q, of all processes together; at most the number of classes.
        items_per_class: K.
        steps: How many steps there are.

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
        # Return groups (count, size) of items: shuffled and cut, and shuffled again when no whole group is left.
        count = len(own)
        per_shuffle = max(1, len(items) // items_per_class)
        shuffled = generator.permuted(np.tile(items, (-(-count // per_shuffle), 1)), axis=1)
        columns = np.arange(per_shuffle * items_per_class) % len(items)
        rows[own] = shuffled[:, columns].reshape(-1, items_per_class)[:count]
    return rows.ravel()
