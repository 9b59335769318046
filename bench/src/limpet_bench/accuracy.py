"""Classification accuracy: how often the classifier that trained a model names the class of an item.

Papers: Learning Along the Arrow of Time (HBCT), Table 6, which also lets the old classifier read new embeddings;
Continual Learning for Visual Search (CVS, section 4.3), which counts the test images after the last session.
Neither says what becomes of classes that a classifier does not know. We count all items, so that those are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError
from limpet.geometry import Space
from limpet.methods import Head, View

_ROWS_AT_ONCE = 1024  # of logits, of which there is one per class


@torch.no_grad()
def accuracy(head: Head, classes: Sequence[str], space: Space, items: EmbeddingSet) -> float | None:
    """Return the share of items whose class, by name, has the largest logit; of equal ones the first counts.

    Args:
        head: The classifier, which reads features as points of its own space, whichever model made them.
        classes: Names of its classes (C), in the order of its rows.
        space: The space that it was trained on; of items of more dimensions it reads the first.
        items: Labelled features (N, D), with class names.

    Returns:
        A number in [0, 1]; items of classes that the classifier does not know are wrong. None where it knows none of
        the classes that have an item.

    Raises:
        DataError: The items are points, which have lost their lengths, or have no class names; or their dimension is
            not that of the classifier.
    """
    if items.form != "features" or items.labels is None or items.class_names is None:
        known = "without class names" if items.class_names is None or items.labels is None else "with class names"
        raise DataError(f"A classifier was to read {items.form} {known}.", expected="features with class names")
    if items.dim != space.dim and not items.space.pads(space):
        raise DataError(
            f"A classifier of dimension {space.dim} was to read features of dimension {items.dim}.",
            expected="features of one dimension, as compatible models have them, or of more",
        )
    row_of = {name: row for row, name in enumerate(classes)}
    own = np.array([row_of.get(name, -1) for name in items.class_names], np.int64)[items.labels]
    right = 0
    for start in range(0, len(items), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        view = View.of(torch.from_numpy(np.array(items.vectors[rows, : space.dim])), space)
        right += int((head.logits(view).argmax(dim=1).numpy() == own[rows]).sum())
    return right / len(items) if (own >= 0).any() else None
