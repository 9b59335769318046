"""Inner products of queries with a gallery, a block of queries at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import ConfigError, DataError, SpaceMismatchError

SCORE_BYTES = 128 * 2**20  # memory of one block of scores when the caller does not choose
MOST_QUERIES = 256  # per block: more gain nothing in the product and leave the cache
_HASHED_ROWS = 8192


def score_blocks(
    query: NDArray[np.float32], gallery: NDArray[np.float32], *, block: int | None = None
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield the first query of each block and its inner products with the whole gallery, (block, N).

    Equal gallery rows get equal scores to the last bit, which a blocked product alone does not promise. The array is
    reused: take what is needed before the next step. Its size is all the memory that scoring needs.

    Args:
        query: float32 (Q, D), in index form.
        gallery: float32 (N, D), in index form.
        block: Queries per block; by default as many as fit 128 MiB of scores, at most 256.

    Raises:
        DataError: A side is empty, or its inner products would overflow.
        SpaceMismatchError: The sides have different dimensions.
    """
    check_vectors(query, gallery)
    size = min(block_size(len(gallery), block), len(query))
    repeats, firsts = repeated_rows(gallery)
    buffer = np.empty((size, len(gallery)), np.float32)
    for start in range(0, len(query), size):
        rows = query[start : start + size]
        scores = np.matmul(rows, gallery.T, out=buffer[: len(rows)])
        if len(repeats):
            scores[:, repeats] = scores[:, firsts]
        yield start, scores


def block_size(gallery: int, block: int | None = None) -> int:
    """Return how many queries are scored at a time against a gallery of this size.

    >>> block_size(50_000), block_size(10_000_000), block_size(50_000, 7)
    (256, 3, 7)
    """
    if block is not None:
        if block < 1:
            raise ConfigError(f"A block of {block} queries.", expected="at least 1")
        return block
    return int(np.clip(SCORE_BYTES // (4 * gallery), 1, MOST_QUERIES))


def check_vectors(query: NDArray[np.float32], gallery: NDArray[np.float32]) -> None:
    """Refuse empty sides, different dimensions, and lengths whose products leave float32."""
    for side, vectors in (("queries", query), ("gallery", gallery)):
        if len(vectors) == 0:
            raise DataError(f"The {side} hold no item.", expected="at least one")
    if query.shape[1] != gallery.shape[1]:
        raise SpaceMismatchError(
            f"Queries have {query.shape[1]} columns, the gallery has {gallery.shape[1]}.",
            expected="vectors of one space",
        )
    largest = query.shape[1] * _largest(query) * _largest(gallery)
    if not largest < float(np.finfo(np.float32).max):
        raise DataError(
            "Inner products of these vectors overflow, or some are not finite.",
            expected="finite numbers whose products stay within float32",
            to_do="scale the vectors down; a common factor changes no ranking.",
        )


def _largest(vectors: NDArray[np.float32]) -> float:
    return max(float(vectors.max()), -float(vectors.min()))


def repeated_rows(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows (M,) equal to an earlier row, and for each the first row (M,) it equals.

    >>> repeated_rows(np.array([[1, 2], [0, 0], [1, 2], [-0.0, 0]], dtype=np.float32))
    (array([2, 3]), array([0, 1]))
    """
    hashes = _row_hashes(vectors)
    order = np.argsort(hashes, kind="stable")
    equal = hashes[order[1:]] == hashes[order[:-1]]
    alike = np.sort(order[np.append(equal, False) | np.insert(equal, 0, False)])
    if not len(alike):
        return alike, alike
    rows = vectors[alike] + np.float32(0)  # turns -0.0 into 0.0: equal numbers, equal bytes
    texts = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, group = np.unique(texts, return_index=True, return_inverse=True)
    repeats = np.flatnonzero(first[group] != np.arange(len(alike)))
    return alike[repeats], alike[first[group[repeats]]]


def _row_hashes(vectors: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Hash rows by the bits of their numbers; equal rows hash alike, and hardly any others do."""
    factors = np.random.default_rng(0).integers(2**63, size=vectors.shape[1], dtype=np.uint64) * np.uint64(2) + 1
    hashes = np.empty(len(vectors), np.uint64)
    for start in range(0, len(vectors), _HASHED_ROWS):
        rows = np.ascontiguousarray(vectors[start : start + _HASHED_ROWS] + np.float32(0))
        hashes[start : start + _HASHED_ROWS] = rows.view(np.uint32).astype(np.uint64) @ factors
    return hashes
