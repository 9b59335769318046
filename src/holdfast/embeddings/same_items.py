"""What must hold of the same items embedded by two models: two models indeed, directions, and one class per item."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings.embedding_set import EmbeddingSet, shown
from holdfast.errors import DataError, SpaceMismatchError
from holdfast.geometry import Hypersphere


def refuse_one_model(old: EmbeddingSet, new: EmbeddingSet) -> None:
    """Refuse two sets that one model made.

    Raises:
        DataError: Their fingerprints are equal.
    """
    if old.fingerprint == new.fingerprint:
        raise DataError(
            f"Old and new embeddings have the fingerprint {old.fingerprint}: these are the same model.",
            expected="two models",
            to_do="check which files or models were given; vectors made elsewhere get the name of their model by "
            "--old-model and --new-model.",
        )


def refuse_lengths(old: EmbeddingSet, new: EmbeddingSet, what: str) -> None:
    """Refuse sets that are not on the hypersphere, for what reads directions only.

    Args:
        old: Embeddings of the old model.
        new: Embeddings of the new model.
        what: What reads them, with its verb, for the message.

    Raises:
        SpaceMismatchError: One is on another space.
    """
    for name, embeddings in (("old", old), ("new", new)):
        if not isinstance(embeddings.space, Hypersphere):
            raise SpaceMismatchError(
                f"The {name} embeddings are on the {embeddings.space}.",
                expected=f"the hypersphere on both sides: {what} directions",
                to_do="train the new model with the old one instead: `holdfast train --old RELEASE`.",
            )


def labels_as_in(reference: EmbeddingSet, other: EmbeddingSet) -> NDArray[np.int64]:
    """Return the labels of ``other`` in the numbers of ``reference``; -1 is a class without a name there.

    Numbers stay as they are unless both sets name their classes.

    Raises:
        DataError: ``other`` has no labels.
    """
    if other.labels is None:
        raise DataError("A set of embeddings has no labels.", expected="labels")
    if reference.class_names is None or other.class_names is None or reference.class_names == other.class_names:
        return other.labels
    return reference.class_names.find(other.class_names)[other.labels]


def with_common_labels(sets: Sequence[EmbeddingSet]) -> list[EmbeddingSet]:
    """Give sets of the same items, in one order, the labels of the first that has any.

    Labels that a set has already stay in its own numbers.

    Raises:
        DataError: Two sets have different labels for an item.
    """
    labelled = next((embeddings for embeddings in sets if embeddings.labels is not None), None)
    if labelled is None:
        return list(sets)
    return [_labelled_as(labelled, embeddings) for embeddings in sets]


def _labelled_as(reference: EmbeddingSet, other: EmbeddingSet) -> EmbeddingSet:
    if other.labels is None:
        return other.replace(labels=reference.labels, class_names=reference.class_names)
    differing = np.flatnonzero(labels_as_in(reference, other) != reference.labels)
    if len(differing):
        raise DataError(
            f"{len(differing)} items have different labels in two sets: {shown(reference.ids[differing])}.",
            expected="one class per item, whichever model embedded it",
            to_do="give class names with the labels where the numbers differ, or correct one of the sets.",
        )
    return other
