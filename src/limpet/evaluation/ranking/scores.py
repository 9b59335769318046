"""Scores of a block of queries with a whole gallery, for what needs all of a row of scores at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from limpet.errors import ConfigError
from limpet.evaluation.ranking.tiles import TILE_ROWS, check_rows
from limpet.evaluation.ranking.vector_rows import ArrayRows

SCORE_BYTES = 128 * 2**20  # memory of one block of scores when the caller does not choose
_MOST_QUERIES = 256  # per block: more gain nothing in the product and leave the cache


def score_blocks(
    query: NDArray[np.float32], gallery: NDArray[np.float32], *, block: int | None = None
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield the first query of each block and its scores with the whole gallery, (block, N).

    Scores are products in double precision, rounded, as in `tiles`; equal gallery rows get equal scores. The array is
    reused: take what is needed before the next step.

    Args:
        query: float32 (Q, D), in index form.
        gallery: float32 (N, D), in index form.
        block: Queries per block; by default what fits into 128 MiB of scores, at most 256.

    Raises:
        DataError: A side is empty, or its inner products would overflow.
        SpaceMismatchError: The sides have different dimensions.
    """
    check_rows(ArrayRows(query), ArrayRows(gallery))
    size = min(block_size(len(gallery), block), len(query))
    repeats, firsts = repeated_rows(gallery)
    buffer = np.empty((size, len(gallery)), np.float32)
    for start in range(0, len(query), size):
        rows = query[start : start + size].astype(np.float64)
        scores = buffer[: len(rows)]
        for first in range(0, len(gallery), TILE_ROWS):
            columns = slice(first, first + TILE_ROWS)
            scores[:, columns] = rows @ gallery[columns].astype(np.float64).T
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
    return int(np.clip(SCORE_BYTES // (4 * gallery), 1, _MOST_QUERIES))


def repeated_rows(vectors: NDArray[np.floating]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows (M,) equal to an earlier row, and for each the first row (M,) it equals.

    >>> repeated_rows(np.array([[1, 2], [0, 0], [1, 2], [-0.0, 0]], dtype=np.float32))
    (array([2, 3]), array([0, 1]))
    """
    rows = vectors + np.float32(0)  # turns -0.0 into 0.0: equal numbers, equal bytes
    texts = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, group = np.unique(texts, return_index=True, return_inverse=True)
    repeats = np.flatnonzero(first[group] != np.arange(len(vectors)))
    return repeats, first[group[repeats]]
