"""What holds for the labels, class names and ids of every set of items, whether images or texts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings import StringArray
from holdfast.embeddings.embedding_set import shown
from holdfast.errors import DataError


def check_class_rows(labels: NDArray[np.int64], classes: int, items: str) -> None:
    """Refuse labels that do not number class names.

    Args:
        labels: Class of every item, int64 (N,).
        classes: How many class names there are.
        items: What is labelled, in the plural, for messages.

    Raises:
        DataError: Labels have another type or shape, or one is no row of the class names.
    """
    if labels.dtype != np.int64 or labels.ndim != 1:
        raise DataError(f"Labels are {labels.dtype} of shape {labels.shape}.", expected=f"int64 of shape ({items},)")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise DataError(
            f"Labels run from {labels.min()} to {labels.max()}, with {classes} class names.",
            expected="every label a row of the class names",
        )


def refuse_repeated(what: str, names: StringArray, expected: str) -> None:
    """Refuse names that occur more than once, showing the first three.

    Raises:
        DataError: There are some.
    """
    repeated = names.duplicates()
    if repeated:
        raise DataError(f"{what.capitalize()} occur more than once: {shown(repeated)}.", expected=expected)
