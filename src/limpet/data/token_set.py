"""Tokenized texts, which are tokenized once and padded per batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from limpet.data.items import check_class_rows
from limpet.embeddings import StringArray
from limpet.errors import DataError

PADDING = -1
"""Value that follows the last token of a text that is shorter than others of its batch."""


@dataclass(frozen=True, eq=False)
class TokenSet:
    """N labelled texts as tokens, validated when built.

    Args:
        tokens: Concatenated tokens of all texts, int32 (T,), from 0.
        offsets: Start of every text, followed by T, int64 (N + 1,).
        labels: Class of every text, int64 (N,), rows of `class_names`.
        ids: Ids of the texts (N).
        contents: Digest of every text, uint64 (N,); None if the texts are not available.

    Raises:
        DataError: Parts are inconsistent, a text has no token, a token is negative, or a label has no class.
    """

    kind: ClassVar[str] = "texts"

    tokens: NDArray[np.int32]
    offsets: NDArray[np.int64]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    ids: StringArray
    contents: NDArray[np.uint64] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        lengths = {"offsets - 1": len(self.offsets) - 1, "labels": len(self.labels), "ids": len(self.ids)}
        whole = len(self.offsets) > 0 and self.offsets[0] == 0 and self.offsets[-1] == len(self.tokens)
        if len(set(lengths.values())) > 1 or not whole:
            found = ", ".join(f"{count} {name}" for name, count in lengths.items())
            raise DataError(f"Tokens with {found}.", expected="one of each per text, and offsets from 0 to all tokens")
        empty = np.flatnonzero(self.lengths < 1)
        if len(empty) or (len(self.tokens) and self.tokens.min() < 0):
            raise DataError(
                f"{len(empty)} of {len(self)} texts have no token, or a token is below 0.",
                expected="at least one token in every text, from 0",
            )
        check_class_rows(self.labels, len(self.class_names), "texts")

    @classmethod
    def of(
        cls,
        tokens: Sequence[NDArray[np.int64]],
        labels: NDArray[np.int64],
        class_names: Sequence[str],
        ids: StringArray,
        contents: NDArray[np.uint64] | None = None,
    ) -> Self:
        """Build from one array of tokens per text."""
        offsets = np.concatenate([[0], np.cumsum([len(one) for one in tokens])]).astype(np.int64)
        flat = np.concatenate([np.empty(0, np.int64), *tokens]).astype(np.int32)
        return cls(flat, offsets, labels, tuple(class_names), ids, contents=contents)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of every text (N,)."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"TokenSet({len(self)} texts, {len(self.tokens):,} tokens, {len(self.class_names)} classes)"

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the tokens of chosen texts, int64 (n, longest of them); shorter ones end with `PADDING`."""
        lengths = self.lengths[rows]
        columns = np.arange(lengths.max(initial=0))
        inside = columns < lengths[:, None]
        places = self.offsets[rows][:, None] + columns
        return np.where(inside, self.tokens[np.where(inside, places, 0)], PADDING).astype(np.int64)

    def digest(self) -> str:
        """Return a sha256 over tokens, ids, labels and class names, 64 hexadecimal digits."""
        digest = hashlib.sha256(repr(self.class_names).encode())
        for values in (self.tokens, self.offsets, self.labels, self.ids.offsets, self.ids.data):
            digest.update(np.ascontiguousarray(values).data if values.size else b"")
        return digest.hexdigest()

    def digests(self) -> NDArray[np.uint64] | None:
        """Return the digest of every text (N,); None if the texts are not available."""
        return self.contents


@dataclass(frozen=True, eq=False)
class PairedTokens(TokenSet):
    """Tokenized texts, each in its own class, with the pairs or triplets to train on.

    Args:
        pairs: Rows of the texts of every pair, int64 (P, 2), or triplet (P, 3); see `TextPairs`.
    """

    pairs: NDArray[np.int64]

    def digest(self) -> str:
        """Return a sha256 over tokens, ids and pairs, 64 hexadecimal digits."""
        return hashlib.sha256(super().digest().encode() + np.ascontiguousarray(self.pairs).tobytes()).hexdigest()


def alike_in_batch(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for every text of a batch of pairs, the lowest row of the texts that are alike in the batch (P · K,).

    An anchor and its positive are alike. Likeness is transitive: pairs that share a text are alike. A negative is alike
    only to itself, unless another pair has it as anchor or positive.

    Args:
        pairs: Rows of anchor, positive and, for triplets, negative, int64 (P, K).

    >>> alike_in_batch(np.array([[0, 1], [2, 3], [4, 1]])).tolist()  # the first and the last share a positive
    [0, 0, 2, 2, 0, 0]
    """
    rows, places = np.unique(pairs, return_inverse=True)
    anchors, positives = places.reshape(pairs.shape)[:, :2].T
    graph = coo_array((np.ones(len(pairs), np.int8), (anchors, positives)), shape=(len(rows), len(rows)))
    _, groups = connected_components(graph, directed=False)
    _, lowest = np.unique(groups, return_index=True)
    alike: NDArray[np.int64] = rows[lowest[groups]][places].reshape(-1)
    return alike
