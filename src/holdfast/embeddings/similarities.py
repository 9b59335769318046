"""The similarities that people name for vectors of their own, and the spaces that have them."""

from __future__ import annotations

from holdfast.embeddings.embedding_set import Form
from holdfast.errors import unknown_name
from holdfast.geometry import Euclidean, Hypersphere, InnerProduct, Space

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

    Args:
        similarity: A key of `SIMILARITIES`.
        dim: Dimension of the vectors.

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
