"""What vectors are: the role and form of their items, and the space that goes with a similarity."""

from __future__ import annotations

from typing import Literal, TypedDict

from limpet.errors import refuse, unknown_name
from limpet.geometry import Euclidean, Hypersphere, InnerProduct, Space

Role = Literal["query", "document", "both"]
Form = Literal["features", "points"]


class TableOptions(TypedDict, total=False):
    """What the columns of a table do not say, each left out where the table says it, or where this is what it is.

    Args:
        fingerprint: Which model made the vectors.
        space: What they are points of; the hypersphere of their dimension.
        similarity: How they are compared, in place of the space: "cosine", "inner-product" or "euclidean".
        role: What the items are to the model; "both".
        id_column: Column of the ids; "id".
        vector_column: Column of the vectors; "vector".
        label_column: Column of the labels; "label".
    """

    fingerprint: str
    space: Space
    similarity: str
    role: Role
    id_column: str
    vector_column: str
    label_column: str


SIMILARITIES: dict[str, tuple[type[Hypersphere | InnerProduct | Euclidean], Form]] = {
    "cosine": (Hypersphere, "features"),
    "inner-product": (InnerProduct, "points"),
    "euclidean": (Euclidean, "points"),
}
"""Spaces by the name of their similarity, and what vectors of any length are there: raw features, or points."""


def space_named(similarity: str, dim: int) -> tuple[Space, Form]:
    """Return the space in which vectors are compared by a similarity, and the form that they have there.

    Of the cosine only the direction counts: the hypersphere takes vectors of any length as features, and refuses the
    zero vector. The others take all vectors as they are.

    Raises:
        ConfigError: There is no such similarity.

    >>> space, form = space_named("euclidean", 3)
    >>> str(space), form
    ('euclidean space of dimension 3', 'points')
    """
    if similarity not in SIMILARITIES:
        raise unknown_name("similarity", similarity, SIMILARITIES)
    space, form = SIMILARITIES[similarity]
    return space(dim), form


def space_of(dim: int, space: Space | None, similarity: str | None) -> tuple[Space, Form]:
    """Return the space of vectors and their form there: as given, by their similarity, or the hypersphere."""
    given = space is not None and similarity is not None
    refuse(given, f"The space {space} and the similarity '{similarity}'.", "one of the two")
    return (space or Hypersphere(dim), "points") if similarity is None else space_named(similarity, dim)
