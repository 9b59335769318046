"""Queries and gallery of one model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from limpet.embeddings.embedding_set import EmbeddingSet
from limpet.errors import ConfigError
from limpet.geometry import Space


class QueriesAndGallery(NamedTuple):
    """Queries and gallery of one model; the same set if every item is a query among all others."""

    query: EmbeddingSet
    gallery: EmbeddingSet

    @property
    def leave_one_out(self) -> bool:
        """Whether every item is a query among all others."""
        return self.query is self.gallery

    def padded(self, space: Space) -> QueriesAndGallery:
        """Return both as points of a space of more dimensions, with zeros appended: `EmbeddingSet.padded`.

        Raises:
            SpaceMismatchError: The space does not have more dimensions, or its points cannot be padded with zeros.
        """
        gallery = self.gallery.padded(space)
        return QueriesAndGallery(gallery if self.leave_one_out else self.query.padded(space), gallery)

    def without(self, ids: Collection[str]) -> QueriesAndGallery:
        """Return both without these items."""
        if not ids:
            return self
        query, gallery = (one[np.array([name not in ids for name in one.ids], np.bool_)] for one in self)
        return QueriesAndGallery(gallery if self.leave_one_out else query, gallery)


def refuse_mixed(models: Mapping[str, QueriesAndGallery]) -> None:
    """Refuse models if some have queries and a gallery, and others one set for both.

    Raises:
        ConfigError: The models are of both kinds.
    """
    first, *others = models
    for name in others:
        if models[name].leave_one_out != models[first].leave_one_out:
            raise ConfigError(
                f"'{first}' and '{name}' follow different protocols: one has queries and a gallery, the other one set "
                "that is both.",
                expected="one protocol for all models",
                to_do="embed the same items with all models: limpet embed images DATA --model OLD NEW ...",
            )
