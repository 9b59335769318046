"""Role and form of vectors, and the space for a similarity."""

from __future__ import annotations

from typing import Literal, TypedDict

from limpet.errors import refuse, unknown_name
from limpet.geometry import Euclidean, Hypersphere, InnerProduct, Space

Role = Literal["query", "document", "both"]
Form = Literal["features", "points"]


class TableOptions(TypedDict, total=False):
    """Options for values that the columns of a table do not hold; the defaults are those of the table, or those below.

    Args:
        fingerprint: Fingerprint of the model of the vectors.
        space: Space of the vectors; by default the hypersphere of their dimension.
        similarity: Similarity that defines the space instead: "cosine", "inner-product" or "euclidean".
        role: Role of the items for the model; by default "both".
        id_column: Column of the ids; by default "id".
        vector_column: Column of the vectors; by default "vector".
        label_column: Column of the labels; by default "label".
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
"""Space by similarity, and the form of vectors of any length in it: raw features, or points."""


def space_named(similarity: str, dim: int) -> tuple[Space, Form]:
    """Return the space for a similarity, and the form of vectors in it.

    The cosine depends on directions only: the hypersphere accepts vectors of any length as features, and refuses the
    zero vector. The other spaces accept all vectors unchanged.

    Raises:
        ConfigError: The similarity is unknown.

    >>> space, form = space_named("euclidean", 3)
    >>> str(space), form
    ('euclidean space of dimension 3', 'points')
    """
    if similarity not in SIMILARITIES:
        raise unknown_name("similarity", similarity, SIMILARITIES)
    space, form = SIMILARITIES[similarity]
    return space(dim), form


def space_of(dim: int, space: Space | None, similarity: str | None) -> tuple[Space, Form]:
    """Return the space of vectors and their form in it: as given, by their similarity, or the hypersphere."""
    given = space is not None and similarity is not None
    refuse(given, f"The space {space} and the similarity '{similarity}'.", "one of the two")
    return (space or Hypersphere(dim), "points") if similarity is None else space_named(similarity, dim)
