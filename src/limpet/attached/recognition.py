"""Check that a model is the one that made existing vectors, if the user gave that one only a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from limpet.attached.base import Attachment
from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError
from limpet.geometry import Space
from limpet.upgrade.vector_sources import VectorSource

_SAMPLE = 24
"""Maximum number of items to embed again."""
CLOSE = 0.98
"""Minimum cosine of half of them with the existing vectors; models of one family differ by far more."""


@dataclass(frozen=True)
class _Recognised:
    """Vectors of a source, under the name that the user gave its model."""

    source: VectorSource
    fingerprint: str

    @property
    def space(self) -> Space:
        return self.source.space

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        return replace(self.source.embed(ids), fingerprint=self.fingerprint)


def cosine(one: NDArray[np.float32], another: NDArray[np.float32]) -> float:
    """Return the cosine between two vectors; 0 where one is zero."""
    lengths = float(np.linalg.norm(one) * np.linalg.norm(another))
    return float(one @ another) / lengths if lengths > 0 else 0.0


def recognised(source: VectorSource, attachment: Attachment) -> VectorSource:
    """Return a source as one of the old model, if it reproduces the existing vectors.

    Raises:
        DataError: It makes other vectors, or there are none to compare with.
    """
    model = attachment.status().old
    ids = attachment.some(_SAMPLE)
    there, made = attachment.stored.embed(ids), source.embed(ids)
    place = {identifier: row for row, identifier in enumerate(made.ids)}
    both = [(row, place[identifier]) for row, identifier in enumerate(there.ids) if identifier in place]
    cosine, found = 0.0, "none can be compared"
    if source.space.dim != model.dim:
        found = f"they have {source.space.dim} and {model.dim} numbers"
    elif both:
        rows, others = map(list, zip(*both, strict=True))
        cosine = float(np.median(np.sum(there.vectors[rows] * made.vectors[others], axis=1)))
        found = f"of {len(both)} items the two have a cosine of {cosine:.3f}"
    if cosine < CLOSE:
        raise DataError(
            f"The source makes vectors of {source.fingerprint}, and those that are there are of {model.fingerprint}: "
            f"{found}.",
            expected=f"the model that made them, which makes them again (a cosine of at least {CLOSE})",
            to_do="give that model, with the prefix and the lengths it was used with.",
            intact="Nothing was changed.",
        )
    return _Recognised(source, model.fingerprint)
