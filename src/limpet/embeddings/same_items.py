"""Checks on the same items embedded by two models: different models, directions, and one class per item."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings.embedding_set import EmbeddingSet
from limpet.embeddings.string_array import StringArray
from limpet.errors import DataError, SpaceMismatchError, shown
from limpet.geometry import Hypersphere


def refuse_one_model(old: EmbeddingSet, new: EmbeddingSet) -> None:
    """Refuse two sets from the same model.

    Raises:
        DataError: Their fingerprints are equal.
    """
    if old.fingerprint == new.fingerprint:
        raise DataError(
            f"Old and new embeddings have the fingerprint {old.fingerprint}: these are the same model.",
            to_do="check which files or models were given; vectors made elsewhere get the name of their model by "
            "--old-name and --new-name.",
        )


def refuse_lengths(old: EmbeddingSet, new: EmbeddingSet, what: str) -> None:
    """Refuse sets that are not on the hypersphere, for functions that use directions only.

    Raises:
        SpaceMismatchError: A set is on another space.
    """
    for name, embeddings in (("old", old), ("new", new)):
        if not isinstance(embeddings.space, Hypersphere):
            raise SpaceMismatchError(
                f"The {name} embeddings are on the {embeddings.space}.",
                expected=f"the hypersphere on both sides: {what} directions",
                to_do="train the new model with the old one instead: `limpet train --old RELEASE`.",
            )


def labels_as_in(reference: EmbeddingSet, other: EmbeddingSet) -> NDArray[np.int64]:
    """Return the labels of ``other`` in the numbers of ``reference``; -1 is a class without a name there.

    Classes match by name. Labels without names are numbers: they are the names if the other set's names are integers,
    as in a file with "7" where another has 7, and otherwise indices into its names.

    Raises:
        DataError: ``other`` has no labels.
    """
    if other.labels is None:
        raise DataError("A set of embeddings has no labels.", expected="labels")
    names, others = reference.class_names, other.class_names
    if names == others:
        return other.labels
    if names is not None and others is not None:
        return names.find(others)[other.labels]
    numbers = _numbers(names if others is None else others)
    if numbers is None:
        return other.labels
    if names is None:
        return numbers[other.labels]
    kinds, places = np.unique(other.labels, return_inverse=True)
    return names.find([str(kind) for kind in kinds])[places]


def _numbers(names: StringArray | None) -> NDArray[np.int64] | None:
    """Return class names as integers; None if one is not an integer."""
    try:
        numbers = [int(name) for name in names or ()]
        found = np.array(numbers, np.int64)
    except (ValueError, OverflowError):
        return None
    return found if list(map(str, numbers)) == list(names or ()) else None


def with_common_labels(sets: Sequence[EmbeddingSet]) -> list[EmbeddingSet]:
    """Give sets of the same items, in the same order, the labels of the first set that has any.

    Existing labels of a set keep their numbers.

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
        first, second = (_label_of(embeddings, differing[0]) for embeddings in (reference, other))
        raise DataError(
            f"{len(differing)} items have different labels in two sets: {shown(reference.ids[differing])}; "
            f"the first is {first} in one of them and {second} in the other.",
            expected="one class per item, whichever model embedded it",
            to_do="give class names with the labels where the numbers differ, or correct one of the sets.",
        )
    return other


def _label_of(embeddings: EmbeddingSet, row: int) -> str:
    """Return the stored class of an item: a name in quotes, or a number."""
    label = int(np.asarray(embeddings.labels)[row])
    return str(label) if embeddings.class_names is None else f"'{embeddings.class_names[label]}'"
