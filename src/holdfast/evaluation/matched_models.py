"""Old, new and independent model over the same items: matched by id, with one set of labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.embeddings import EmbeddingSet
from holdfast.embeddings.embedding_set import shown
from holdfast.errors import ConfigError, DataError
from holdfast.evaluation.matching import check_sides, in_order_of, labels_as_in

Sides = tuple[EmbeddingSet, EmbeddingSet]  # queries and gallery


@dataclass(frozen=True, eq=False)
class MatchedModels:
    """Queries and gallery of two or three models; row i is the same item in all of them.

    Args:
        old: Queries and gallery of the old model.
        new: Queries and gallery of the new model.
        independent: Queries and gallery of the new recipe without alignment, if there are any.
    """

    old: Sides
    new: Sides
    independent: Sides | None

    @property
    def labelled(self) -> bool:
        """Whether queries and gallery have labels."""
        return self.old[0].labels is not None and self.old[1].labels is not None

    def systems(self) -> dict[str, Sides]:
        """Return who searches where, by name; the cross floor needs an independent model of the old space."""
        systems = {"self_old": self.old, "self_new": self.new, "cross": (self.new[0], self.old[1])}
        if self.independent is not None:
            systems["self_independent"] = self.independent
            if self.independent[0].space == self.old[1].space:
                systems["cross_independent"] = (self.independent[0], self.old[1])
        return systems

    def fingerprints(self) -> dict[str, Any]:
        """Return fingerprint and whether a person declared it, per model; None without an independent model."""
        models = {"old": self.old, "new": self.new, "independent": self.independent}
        return {
            name: sides and {"fingerprint": sides[1].fingerprint, "declared": sides[1].declared}
            for name, sides in models.items()
        }


def matched(old: Sides, new: Sides, independent: tuple[EmbeddingSet | None, EmbeddingSet | None]) -> MatchedModels:
    """Bring the items of all models into the order of the old ones, and give all of them the same labels.

    Raises:
        ConfigError: Queries or gallery of the independent model are missing.
        DataError: Fingerprints or labels contradict each other.
        EmptyOverlapError: The models embedded different items.
        SpaceMismatchError: Old and new model have different spaces.
    """
    third = _whole(independent)
    models = {"old": old, "new": new} | ({"independent": third} if third else {})
    for name, sides in models.items():
        _check_one_model(name, *sides)
    if old[0].fingerprint == new[0].fingerprint:
        raise DataError(
            f"Old and new embeddings have the fingerprint {old[0].fingerprint}: these are the same model.",
            expected="two models",
            to_do="check which files were given; for vectors made elsewhere, declare another name for the new model.",
        )
    check_sides(new[0], old[1])
    queries, galleries = (
        _with_common_labels([
            in_order_of(old[side], sides[side], (f"old {what}", f"{name} {what}")) for name, sides in models.items()
        ])
        for side, what in enumerate(("queries", "gallery"))
    )  # fmt: skip
    pairs = list(zip(queries, galleries, strict=True))
    return MatchedModels(pairs[0], pairs[1], pairs[2] if third else None)


def _whole(sides: tuple[EmbeddingSet | None, EmbeddingSet | None]) -> Sides | None:
    query, gallery = sides
    if query is None and gallery is None:
        return None
    if query is None or gallery is None:
        raise ConfigError(
            f"The independent model has {'no queries' if query is None else 'no gallery'}.",
            expected="both of its sides, or neither",
        )
    return query, gallery


def _check_one_model(name: str, query: EmbeddingSet, gallery: EmbeddingSet) -> None:
    if query.fingerprint != gallery.fingerprint:
        raise DataError(
            f"The {name} queries have the fingerprint {query.fingerprint}, the {name} gallery {gallery.fingerprint}.",
            expected=f"one model for both {name} sides",
            to_do="embed queries and gallery with the same release, or declare the same name for both.",
        )
    check_sides(query, gallery)


def _with_common_labels(sets: Sequence[EmbeddingSet]) -> list[EmbeddingSet]:
    """Give sets of the same items the labels of the first one that has any; refuse those that differ."""
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
