"""Several sets of items by one model as one set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings.embedding_set import EmbeddingSet
from holdfast.embeddings.string_array import StringArray


def joined(sets: Sequence[EmbeddingSet]) -> EmbeddingSet:
    """Return the rows of all sets, one after another; classes are the same by name.

    Labels are kept where every set has them with names, and further columns where every set has them.

    Args:
        sets: At least one, all by one model in one form.

    Raises:
        DataError: An id is in two of them.
    """
    first, *others = sets
    if not others:
        return first
    shared = [name for name in first.columns if all(name in other.columns for other in others)]
    labels, names = _labels(sets)
    return first.replace(
        ids=StringArray.of(identifier for one in sets for identifier in one.ids),
        vectors=np.concatenate([one.vectors for one in sets]),
        labels=labels,
        class_names=names,
        columns={name: np.concatenate([one.columns[name] for one in sets]) for name in shared},
    )


def _labels(sets: Sequence[EmbeddingSet]) -> tuple[NDArray[np.int64] | None, StringArray | None]:
    """Return the labels of all rows (N,) as rows of the names of all classes, and these."""
    named = [(one.labels, one.class_names) for one in sets if one.labels is not None and one.class_names is not None]
    if len(named) < len(sets):
        return None, None
    names = StringArray.of(dict.fromkeys(name for _, part in named for name in part))
    return np.concatenate([names.find(part)[labels] for labels, part in named]), names
