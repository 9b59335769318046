"""Classification accuracy: the share of items whose class the classifier of a model predicts correctly.

Papers: Learning Along the Arrow of Time (HBCT), Table 6, which also applies the old classifier to new embeddings;
Continual Learning for Visual Search (CVS, section 4.3), which counts the test images after the last session.
Neither paper says how to count items of classes that the classifier does not know. Here they count as wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError
from limpet.geometry import Space
from limpet.methods import Head, View

_ROWS_AT_ONCE = 1024  # bounds the memory of the logits, (rows, classes)


@torch.no_grad()
def accuracy(head: Head, classes: Sequence[str], space: Space, items: EmbeddingSet) -> float | None:
    """Return the share of items whose own class has the largest logit; the first of equal logits counts.

    Classes of items and classifier are matched by name.

    Args:
        head: The classifier. It reads features as points of its own space, whichever model made them.
        classes: Names of its classes (C), in the order of its rows.
        space: Space that it was trained in. If items have more dimensions, only the first ones are read.
        items: Labelled features (N, D), with class names.

    Returns:
        A number in [0, 1]. Items of classes that the classifier does not know count as wrong. None if it knows no
        class of any item.

    Raises:
        DataError: The items are points, whose lengths are lost; or they have no labels or class names; or the
            classifier cannot read their dimension.
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
