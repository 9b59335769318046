"""Which items and classes of two embedding sets are the same, by id and by name; never by position."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings import EmbeddingSet
from holdfast.embeddings.embedding_set import shown
from holdfast.embeddings.same_items import labels_as_in
from holdfast.errors import DataError, EmptyOverlapError, SpaceMismatchError
from holdfast.evaluation.row_lists import RowLists
from holdfast.evaluation.vector_rows import EmbeddingRows
from holdfast.geometry import Side, Space

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
            f"Queries are on the {query.space}, the gallery on the {gallery.space}.",
            expected="one space for both",
            to_do=_way_into_one_space(query.space, gallery.space),
        )


def _way_into_one_space(query: Space, gallery: Space) -> str:
    """Say what to type next; maps between frozen models know directions only."""
    trained = f"`holdfast train --old RELEASE --dim {gallery.dim}`"
    if not (query.lengths_count or gallery.lengths_count):
        return (
            "link the two frozen models by a map, `holdfast adapt --old A --new B`, and evaluate with --adapter; or "
            f"train the new model with the dimension of the old one, {trained}."
        )
    return (
        "search with a model of the gallery's space: train the new model with the space and dimension of the old one, "
        f"{trained}; a gallery whose model was laid onto another space (--lift-old) is carried over by `holdfast embed "
        "--stored GALLERY --release …/old-lifted`. (`holdfast adapt --old A --new B` links frozen models of the "
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
                expected="labels on both sides",
                to_do="embed a labelled data set, write labels into the file that is imported, or say which items "
                "answer each query: --relevant PAIRS, in Python `relevant`.",
            )
    return RowLists.by_label(labels_as_in(gallery, query), _labels(gallery))


def _labels(embeddings: EmbeddingSet) -> NDArray[np.int64]:
    if embeddings.labels is None:
        raise DataError("A set of embeddings has no labels.", expected="labels")
    return embeddings.labels


def same_id(query: EmbeddingSet, gallery: EmbeddingSet) -> RowLists:
    """List for every query the gallery row that is the same item, if there is one."""
    return RowLists.single(gallery.ids.find(query.ids))


def in_order_of(reference: EmbeddingSet, other: EmbeddingSet, names: tuple[str, str]) -> EmbeddingSet:
    """Return the rows of ``other`` in the order of ``reference``, matched by id.

    Args:
        reference: The set whose order counts.
        other: A set of the same items.
        names: What to call the two in a message.

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
                expected="the same items on both sides, matched by id",
                to_do="embed the same items with both models, under the same ids.",
            )
    return other if np.array_equal(rows, np.arange(len(rows))) else other.select(rows)
