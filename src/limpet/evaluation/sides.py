"""Queries and gallery of one or several models over the same items, matched by id and by name, never by position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.embeddings.same_items import labels_as_in, refuse_one_model, with_common_labels
from limpet.errors import DataError, EmptyOverlapError, SpaceMismatchError, shown
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.ranking.vector_rows import EmbeddingRows
from limpet.geometry import Side, Space
from limpet.results import ModelIdentity

_PROJECTED_ROWS = 65_536


def vectors_for(embeddings: EmbeddingSet, side: Side) -> NDArray[np.float32]:
    """Return all vectors (N, D') in index form: inner products rank as the similarity of the space.

    Raw features are projected to points first. `EmbeddingRows` does it block by block.
    """
    rows = EmbeddingRows(embeddings, side)
    if embeddings.form == "points":
        return rows.block(0, len(rows))
    starts = range(0, len(rows), _PROJECTED_ROWS)
    return np.concatenate([rows.block(start, start + _PROJECTED_ROWS) for start in starts])


def check_sides(query: EmbeddingSet, gallery: EmbeddingSet) -> None:
    """Refuse empty sides and sides of different spaces.

    Raises:
        DataError: A side is empty.
        SpaceMismatchError: The spaces, or their dimensions, differ.
    """
    for side, embeddings in (("query set", query), ("gallery", gallery)):
        if len(embeddings) == 0:
            raise DataError(f"The {side} is empty.", expected="at least one item")
    if query.space != gallery.space:
        raise SpaceMismatchError(
            f"Queries cannot search this gallery: they are on the {query.space}, the gallery on the {gallery.space}.",
            expected="one space for both",
            to_do=_way_into_one_space(query.space, gallery.space),
        )


def _way_into_one_space(query: Space, gallery: Space) -> str:
    """Say what to type next; maps between frozen models know directions only."""
    trained = f"`limpet train --old RELEASE --dim {gallery.dim}`"
    if query.pads(gallery):
        return (
            "fit an adapter between the two models, `limpet adapt --old OLD --new NEW --out DIR`, then repeat this "
            "command with --link DIR/adapter. If the new model was trained over the old one with more dimensions, pad "
            "old vectors with zeros: --pad-old, or in Python old.padded(new.space). Or retrain the new model: "
            f"{trained}."
        )
    if not (query.lengths_count or gallery.lengths_count):
        return (
            "fit an adapter between the two models, `limpet adapt --old OLD --new NEW --out DIR`, then repeat this "
            f"command with --link DIR/adapter. Or train the new model with the dimension of the old one: {trained}."
        )
    return (
        "search with a model of the gallery's space: train the new model with the space and dimension of the old one, "
        f"{trained}; a gallery whose model was laid onto another space (--lift-old) is carried over by `limpet embed "
        "stored GALLERY --model release:…/old-lifted`. (`limpet adapt --old A --new B` links frozen models of the "
        "hypersphere only.)"
    )


def relevant_by_label(query: EmbeddingSet, gallery: EmbeddingSet) -> RowLists:
    """List for every query the gallery rows of its class.

    Classes are compared by name where both sides have names, else by number.

    Raises:
        DataError: A side has no labels.
    """
    for side, embeddings in (("queries", query), ("gallery", gallery)):
        if embeddings.labels is None:
            raise DataError(
                f"The {side} have no labels." if side == "queries" else "The gallery has no labels.",
                to_do="embed a labelled data set, write labels into the file that is imported, or say which items "
                "answer each query: --relevant PAIRS, in Python `relevant`.",
            )
    if gallery.labels is None:
        raise DataError("A set of embeddings has no labels.", expected="labels")
    return RowLists.by_label(labels_as_in(gallery, query), gallery.labels)


def class_names_of(embeddings: EmbeddingSet) -> list[str]:
    """Return the name of every item's class, its number where classes have no names; empty texts without labels."""
    labels, names = embeddings.labels, embeddings.class_names
    if labels is None:
        return [""] * len(embeddings)
    return [str(label) if names is None else names[label] for label in labels]


def same_id(query: EmbeddingSet, gallery: EmbeddingSet) -> RowLists:
    """List for every query the gallery row that is the same item, if there is one."""
    return RowLists.single(gallery.ids.find(query.ids))


def in_order_of(reference: EmbeddingSet, other: EmbeddingSet, names: tuple[str, str]) -> EmbeddingSet:
    """Return the rows of ``other`` in the order of ``reference``, matched by id.

    Raises:
        EmptyOverlapError: The two do not hold the same items; the message names some.
    """
    rows = other.ids.find(reference.ids)
    missing = reference.ids[rows < 0]
    extra = other.ids[reference.ids.find(other.ids) < 0]
    sides = (missing, names[1], names[0], other.ids), (extra, names[0], names[1], reference.ids)
    for absent, where, there, known in sides:
        if len(absent):
            raise EmptyOverlapError(
                f"{len(absent)} items of the {there} are not in the {where}: {shown(absent)}; "
                f"there are {shown(known[:3], len(known))}.",
                to_do="embed the same items with both models, under the same ids.",
            )
    return other if np.array_equal(rows, np.arange(len(rows))) else other[rows]


Sides = tuple[EmbeddingSet, EmbeddingSet]  # queries and gallery


@dataclass(frozen=True, eq=False)
class MatchedModels:
    """Queries and gallery of two or three models; row i is the same item in all of them.

    Args:
        old: Queries and gallery of the old model.
        new: Queries and gallery of the new model.
        independent: Queries and gallery of the new recipe without alignment, if there are any.
        cross: What answers the cross-test where a map or a head links the two models; None where the new queries meet
            the old gallery as they are.
    """

    old: Sides
    new: Sides
    independent: Sides | None
    cross: Sides | None = None

    @property
    def labelled(self) -> bool:
        """Whether queries and gallery have labels."""
        return self.old[0].labels is not None and self.old[1].labels is not None

    def systems(self) -> dict[str, Sides]:
        """Return who searches where, by name; the cross floor needs an independent model of the old space."""
        systems = {"self_old": self.old, "self_new": self.new, "cross": self.linked()}
        if self.independent is not None:
            systems["self_independent"] = self.independent
            if self.independent[0].space == self.old[1].space:
                systems["cross_independent"] = (self.independent[0], self.old[1])
        return systems

    def linked(self) -> Sides:
        """Return the queries and the gallery of the cross-test, which lie in one space."""
        return (self.new[0], self.old[1]) if self.cross is None else self.cross

    def one_space(self) -> bool:
        """Return whether re-embedded items may stand beside those of the cross-test: its queries are as they are."""
        return "query" not in (self.mapped() or {})

    def mapped(self) -> dict[str, str] | None:
        """Return the fingerprint of every side of the cross-test, "query" or "gallery", that is no model's own."""
        if self.cross is None:
            return None
        own = {"query": self.new[0], "gallery": self.old[1]}
        return {
            side: embeddings.fingerprint
            for (side, model), embeddings in zip(own.items(), self.cross, strict=True)
            if embeddings.fingerprint != model.fingerprint
        }

    def trained_on(self) -> dict[str, tuple[NDArray[np.bool_], NDArray[np.bool_]] | None]:
        """Return which queries and gallery items each model was trained on; None where that is not known.

        Those of "new" are also those that a map or a head of the cross-test was fitted on, on either side: with a
        mapped gallery, queries are the items of it that have their ids.
        """
        sides: dict[str, list[Sides]] = {"old": [self.old], "new": [self.new]}
        if self.independent is not None:
            sides["independent"] = [self.independent]
        if self.cross is not None:
            sides["new"].append(self.cross)
        found: dict[str, tuple[NDArray[np.bool_], NDArray[np.bool_]] | None] = {}
        for name, of_model in sides.items():
            marks = [_marks(query, gallery) for query, gallery in of_model]
            known = [mark for mark in marks if mark is not None]
            found[name] = (
                None
                if not known
                else (np.any([one[0] for one in known], axis=0), np.any([one[1] for one in known], axis=0))
            )
        return found

    def fingerprints(self) -> dict[str, ModelIdentity | None]:
        """Return who each model is; None without an independent model."""
        models = {"old": self.old, "new": self.new, "independent": self.independent}
        return {
            name: sides and ModelIdentity(fingerprint=sides[1].fingerprint, declared=sides[1].declared)
            for name, sides in models.items()
        }


def _marks(query: EmbeddingSet, gallery: EmbeddingSet) -> tuple[NDArray[np.bool_], NDArray[np.bool_]] | None:
    """Return which queries and items of a gallery were trained on; None where neither side says so."""
    if query.trained_on is None and gallery.trained_on is None:
        return None
    of_gallery = np.zeros(len(gallery), np.bool_) if gallery.trained_on is None else gallery.trained_on
    if query.trained_on is not None:
        return query.trained_on, of_gallery
    rows = gallery.ids.find(query.ids)
    return (rows >= 0) & of_gallery[rows], of_gallery


def matched(
    old: Sides,
    new: Sides,
    independent: Sides | None = None,
    cross: Sides | None = None,
) -> MatchedModels:
    """Bring the items of all models into the order of the old ones, and give all of them the same labels.

    Raises:
        DataError: Fingerprints or labels contradict each other.
        EmptyOverlapError: The models embedded different items.
        SpaceMismatchError: Old and new model have different spaces, and nothing links them; or the sides of the
            cross-test do.
    """
    models = {"old": old, "new": new} | ({} if independent is None else {"independent": independent})
    for name, sides in models.items():
        check_one_model(name, *sides)
    refuse_one_model(old[0], new[0])
    if cross is None:
        check_sides(new[0], old[1])
    else:
        _check_cross(models, cross)
        models["cross-test"] = cross
    aligned = in_one_order(models)
    return MatchedModels(aligned["old"], aligned["new"], aligned.get("independent"), aligned.get("cross-test"))


def in_one_order(models: Mapping[str, Sides]) -> dict[str, Sides]:
    """Bring the items of all models into the order of the first one, and give all of them the same labels.

    Args:
        models: Queries and gallery by the name of the model.

    Raises:
        DataError: Labels contradict each other.
        EmptyOverlapError: The models embedded different items.
    """
    first, reference = next(iter(models.items()))
    queries, galleries = (
        with_common_labels([
            in_order_of(reference[side], sides[side], (f"{first} {what}", f"{name} {what}"))
            for name, sides in models.items()
        ])
        for side, what in enumerate(("queries", "gallery"))
    )  # fmt: skip
    return dict(zip(models, zip(queries, galleries, strict=True), strict=True))


def check_one_model(name: str, query: EmbeddingSet, gallery: EmbeddingSet) -> None:
    """Refuse queries and a gallery that two models made, or that cannot be compared; the message has the name.

    Raises:
        DataError: Their fingerprints differ, or a side is empty.
        SpaceMismatchError: Their spaces differ.
    """
    if query.fingerprint != gallery.fingerprint:
        raise DataError(
            f"The {name} queries have the fingerprint {query.fingerprint}, the {name} gallery {gallery.fingerprint}.",
            expected=f"one model for both {name} sides",
            to_do="embed queries and gallery with the same release, or declare the same name for both.",
        )
    check_sides(query, gallery)


def _check_cross(models: Mapping[str, Sides], cross: Sides) -> None:
    """Refuse a cross-test of which a side is another model's own, or neither is mapped, or that has two spaces.

    A map and a head have fingerprints of their own: what none of the models made is taken for mapped.
    """
    makers = {sides[0].fingerprint: name for name, sides in models.items()}
    sources = [makers.get(embeddings.fingerprint, "mapped") for embeddings in cross]
    if sources not in (["mapped", "old"], ["new", "mapped"], ["mapped", "mapped"]):
        raise DataError(
            f"In the cross-test, the queries ({cross[0].fingerprint}) are {sources[0]} and the gallery "
            f"({cross[1].fingerprint}) is {sources[1]}.",
            expected="mapped new queries on the old gallery, new queries on the mapped old gallery, or both mapped",
            to_do="give what a map or a head made of one side; leave `cross` out where the models share a space.",
        )
    check_sides(*cross)
