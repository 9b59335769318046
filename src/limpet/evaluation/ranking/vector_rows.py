"""Vectors in index form, read a block or a few rows at a time, so that no set is ever converted as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.geometry import Side

Vectors = NDArray[np.float32]

KEPT_BYTES = 64 * 2**20  # of vectors in index form
_ROWS_AT_ONCE = 8_192


class VectorRows(Protocol):
    """N vectors of length D whose inner products rank as the similarity of a space does."""

    @property
    def dim(self) -> int:
        """Length D of the vectors."""

    def __len__(self) -> int: ...

    def block(self, start: int, stop: int) -> Vectors:
        """Return rows ``start`` to ``stop``, float32 (stop - start, D)."""

    def take(self, rows: NDArray[np.int64]) -> Vectors:
        """Return chosen rows, float32 (n, D)."""


class ArrayRows:
    """Vectors that are in index form already, float32 (N, D)."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return int(self._vectors.shape[1])

    def __len__(self) -> int:
        return len(self._vectors)

    def block(self, start: int, stop: int) -> Vectors:
        """Return rows in a row, without a copy."""
        return self._vectors[start:stop]

    def take(self, rows: NDArray[np.int64]) -> Vectors:
        """Return chosen rows."""
        return self._vectors[rows]


class EmbeddingRows:
    """The vectors of a set, brought into index form as they are read; raw features are projected to points first."""

    def __init__(self, embeddings: EmbeddingSet, side: Side) -> None:
        self.embeddings, self.side = embeddings, side

    @property
    def dim(self) -> int:
        """Length of the vectors in index form."""
        return self.embeddings.space.index_dim

    def __len__(self) -> int:
        return len(self.embeddings.vectors)

    def block(self, start: int, stop: int) -> Vectors:
        """Convert rows in a row."""
        return self._converted(self.embeddings.vectors[start:stop])

    def take(self, rows: NDArray[np.int64]) -> Vectors:
        """Convert chosen rows."""
        return self._converted(self.embeddings.vectors[rows])

    def _converted(self, vectors: Vectors) -> Vectors:
        return index_form(self.embeddings, vectors, self.side)


class JoinedRows:
    """The rows of several sides of one dimension, one after another.

    Args:
        parts: At least one of them.
    """

    def __init__(self, parts: Sequence[VectorRows]) -> None:
        self._parts = [rows_of(part) for part in parts]
        self._starts = np.append(0, np.cumsum([len(part) for part in self._parts]))

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return self._parts[0].dim

    def __len__(self) -> int:
        return int(self._starts[-1])

    def block(self, start: int, stop: int) -> Vectors:
        """Read rows in a row, of as many parts as hold them."""
        parts = zip(self._parts, self._starts.tolist(), strict=False)
        return np.concatenate([
            part.block(max(start - first, 0), min(stop - first, len(part)))
            for part, first in parts
            if start < first + len(part) and stop > first
        ])  # fmt: skip

    def take(self, rows: NDArray[np.int64]) -> Vectors:
        """Read chosen rows, part by part."""
        found = np.empty((len(rows), self.dim), np.float32)
        owner = self._starts.searchsorted(rows, "right") - 1
        for number in np.unique(owner).tolist():
            own = owner == number
            found[own] = self._parts[number].take(rows[own] - self._starts[number])
        return found


def index_form(embeddings: EmbeddingSet, vectors: Vectors, side: Side) -> Vectors:
    """Return some vectors (n, D) of a set in index form (n, D'); every row is the same whatever rows are beside it.

    Raw features are projected in double precision: functions such as the hyperbolic sine have other last bits at the
    end of an array, so that equal items would not tie.
    """
    space = embeddings.space
    if embeddings.form == "features" and len(vectors):
        vectors = space.project_array(vectors.astype(np.float64)).astype(np.float32)
    return space.index_form(vectors, side)


def rows_of(vectors: Vectors | VectorRows) -> VectorRows:
    """Take an array for what it is, vectors in index form, and convert a small set once and for all."""
    if isinstance(vectors, np.ndarray):
        return ArrayRows(vectors)
    if isinstance(vectors, ArrayRows) or 4 * len(vectors) * vectors.dim > KEPT_BYTES or not len(vectors):
        return vectors
    starts = range(0, len(vectors), _ROWS_AT_ONCE)
    return ArrayRows(np.concatenate([vectors.block(start, start + _ROWS_AT_ONCE) for start in starts]))
