"""Queries and gallery of one model."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from limpet.embeddings.embedding_set import EmbeddingSet
from limpet.geometry import Space


class Sides(NamedTuple):
    """Queries and gallery of one model; the same set where every item is a query among all others."""

    query: EmbeddingSet
    gallery: EmbeddingSet

    @property
    def leave_one_out(self) -> bool:
        """Whether every item is a query among all others."""
        return self.query is self.gallery

    def padded(self, space: Space) -> Sides:
        """Return both as points of a space of more dimensions, with zeros appended: `EmbeddingSet.padded`.

        Raises:
            SpaceMismatchError: There is none of fewer dimensions, or zeros do not make such points of them.
        """
        gallery = self.gallery.padded(space)
        return Sides(gallery if self.leave_one_out else self.query.padded(space), gallery)

    def without(self, ids: Collection[str]) -> Sides:
        """Return both without these items."""
        if not ids:
            return self
        query, gallery = (one.select(np.array([name not in ids for name in one.ids], np.bool_)) for one in self)
        return Sides(gallery if self.leave_one_out else query, gallery)
