"""The one counting engine: where the relevant gallery items of every query rank.

Ranking metrics need the ranks of the relevant items, not a sorted gallery. A rank is the number of items that come
before: those with a higher score, and those with the same score and a smaller row. Nothing of size queries x gallery
is ever held. Written here because the libraries that rank a whole gallery sort and keep all of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import DataError
from holdfast.evaluation.row_lists import RowLists
from holdfast.evaluation.scores import score_blocks

FEW_RELEVANT = 8  # up to here comparing the gallery with each relevant score is faster than sorting it
FEW_TIED = 256  # up to here comparing for each tied item is faster than a stable sort with indices
LARGE_GALLERY = 65_536  # from here one comparison takes longer than waking a thread
SORTED_TOGETHER = 16  # rows of scores that one thread sorts at a time


@dataclass(frozen=True, eq=False)
class Ranked:
    """All that ranking metrics need to know of Q rankings; checked once, when built.

    Args:
        ranks: 0-based ranks of the relevant items of all queries one after another, int64 (M,), ascending per query.
        offsets: Where each query begins, int64 (Q + 1,), ending with M.
        gallery_sizes: How many gallery items each query ranked, ignored ones not counted, int64 (Q,).

    Raises:
        DataError: The arrays do not describe rankings.

    >>> Ranked.of([[0, 2], []], [5, 5]).relevant.tolist()
    [2, 0]
    """

    ranks: NDArray[np.int64]
    offsets: NDArray[np.int64]
    gallery_sizes: NDArray[np.int64]

    def __post_init__(self) -> None:
        ranks, offsets, sizes = self.ranks, self.offsets, self.gallery_sizes
        ends = (len(offsets), offsets[0], offsets[-1])
        if ends != (len(sizes) + 1, 0, len(ranks)) or (np.diff(offsets) < 0).any():
            raise DataError(
                f"{len(offsets)} offsets for {len(sizes)} queries and {len(ranks)} ranks.",
                expected="ascending offsets, one more than queries, from 0 to the number of ranks",
            )
        owner = np.repeat(np.arange(len(sizes)), np.diff(offsets))
        if ((ranks < 0) | (ranks >= sizes[owner])).any():
            raise DataError("A rank lies outside its gallery.", expected="0 <= rank < items ranked")
        if (np.diff(ranks)[np.diff(owner) == 0] <= 0).any():
            raise DataError(
                "Ranks of a query are not ascending.", expected="each relevant item at its own rank, sorted"
            )

    def __len__(self) -> int:
        return len(self.gallery_sizes)

    @property
    def relevant(self) -> NDArray[np.int64]:
        """Number of relevant items R of every query (Q,)."""
        return np.diff(self.offsets)

    @classmethod
    def of(cls, ranks: Sequence[Sequence[int] | NDArray[np.int64]], gallery_sizes: Sequence[int]) -> Ranked:
        """Build from one ascending list of ranks per query."""
        lists = RowLists.of(ranks)
        return cls(lists.values, np.append(lists.starts, len(lists.values)), np.array(gallery_sizes, np.int64))

    @classmethod
    def joined(cls, parts: Iterable[Ranked]) -> Ranked:
        """Put rankings of different queries one after another."""
        whole = list(parts)
        relevant = np.concatenate([part.relevant for part in whole])
        return cls(
            np.concatenate([part.ranks for part in whole]),
            np.concatenate([[0], np.cumsum(relevant)]),
            np.concatenate([part.gallery_sizes for part in whole]),
        )


def rank(
    query: NDArray[np.float32],
    gallery: NDArray[np.float32],
    relevant: RowLists,
    ignore: RowLists | None = None,
    *,
    block: int | None = None,
) -> Ranked:
    """Rank the relevant items of every query; see `rank_blocks`, whose parts this joins.

    >>> gallery = np.eye(3, dtype=np.float32)
    >>> rank(np.array([[0.5, 0.9, 0.1]], dtype=np.float32), gallery, RowLists.of([[0, 2]])).ranks
    array([1, 2])
    """
    return Ranked.joined(rank_blocks(query, gallery, relevant, ignore, block=block))


def rank_blocks(
    query: NDArray[np.float32],
    gallery: NDArray[np.float32],
    relevant: RowLists,
    ignore: RowLists | None = None,
    *,
    block: int | None = None,
) -> Iterator[Ranked]:
    """Rank the relevant items of a block of queries after another, in the order of the queries.

    Args:
        query: float32 (Q, D), in index form: inner products rank as the similarity of the space.
        gallery: float32 (N, D), in index form.
        relevant: Gallery rows that answer each query.
        ignore: Gallery rows to leave out of the ranking of each query, relevant or not.
        block: Queries per block; see `score_blocks`.

    Raises:
        DataError: A side is empty, or a list does not fit the sides.
        SpaceMismatchError: The sides have different dimensions.
    """
    ignore = ignore or no_rows(len(query))
    with ThreadPoolExecutor(available_cores()) as pool:
        for start, scores in score_blocks(query, gallery, block=block):
            stop = start + len(scores)
            owner, items = hide(scores, relevant.part(start, stop), ignore.part(start, stop))
            counts = np.bincount(owner, minlength=len(scores))
            sizes = len(gallery) - ignore.counts[start:stop]
            yield Ranked(block_ranks(scores, owner, items, pool), np.append(0, np.cumsum(counts)), sizes)


def hide(
    scores: NDArray[np.float32], relevant: RowLists, ignore: RowLists
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Move ignored items to the very end of their rows of scores (n, N), in place.

    Returns:
        The row of scores (M,) and the gallery row (M,) of every relevant item that is not ignored.
    """
    scores[ignore.flat()] = -np.inf
    owner, items = relevant.flat()
    kept = scores[owner, items] > -np.inf
    return owner[kept], items[kept]


def block_ranks(
    scores: NDArray[np.float32], owner: NDArray[np.int64], items: NDArray[np.int64], pool: ThreadPoolExecutor
) -> NDArray[np.int64]:
    """Return the ranks (M,) of items among their rows of scores, ascending within each row, ties by gallery row.

    Args:
        scores: float32 (n, N).
        owner: The row of scores of each item, ascending (M,).
        items: The gallery row of each item (M,).
        pool: Threads that share the work.
    """
    few = np.bincount(owner, minlength=len(scores))[owner] <= FEW_RELEVANT
    ranks = np.empty(len(items), np.int64)
    ranks[few] = _ranks_by_comparing(scores, owner[few], items[few], pool)
    ranks[~few] = _ranks_by_sorting(scores, owner[~few], items[~few], pool)
    before = owner * scores.shape[1]
    ascending: NDArray[np.int64] = np.sort(before + ranks) - before
    return ascending


def _ranks_by_comparing(
    scores: NDArray[np.float32], owner: NDArray[np.int64], items: NDArray[np.int64], pool: ThreadPoolExecutor
) -> NDArray[np.int64]:
    """Compare each item with its whole gallery; threads help once that takes longer than handing it over."""
    spread = map if scores.shape[1] < LARGE_GALLERY else pool.map
    return np.fromiter(spread(_rank_of, (scores[row] for row in owner), items), np.int64, len(items))


def _rank_of(row: NDArray[np.float32], item: int) -> int:
    """Count the items that come before one: at least its score in smaller rows, more in greater rows."""
    score = row[item]
    return int(np.count_nonzero(row[:item] >= score)) + int(np.count_nonzero(row[item + 1 :] > score))


def _ranks_by_sorting(
    scores: NDArray[np.float32], owner: NDArray[np.int64], items: NDArray[np.int64], pool: ThreadPoolExecutor
) -> NDArray[np.int64]:
    """Sort the rows of scores and look the items up; only items whose score occurs twice need another look."""
    values, ranks, tied = scores[owner, items], np.empty(len(items), np.int64), np.empty(len(items), np.bool_)
    rows, begins = np.unique(owner, return_index=True)
    slices = [slice(*bounds) for bounds in pairwise([*begins.tolist(), len(items)])]
    parts = [rows[start : start + SORTED_TOGETHER] for start in range(0, len(rows), SORTED_TOGETHER)]
    sorted_rows = chain.from_iterable(pool.map(lambda part: np.sort(scores[part], axis=1), parts))
    for own, ordered in zip(slices, sorted_rows, strict=True):
        not_above = ordered.searchsorted(values[own], "right")
        ranks[own] = len(ordered) - not_above
        tied[own] = ordered[not_above - 2] == values[own]
    for row in np.unique(owner[tied]).tolist():
        which = np.flatnonzero(tied & (owner == row))
        ranks[which] = tied_ranks(scores[row], items[which])
    return ranks


def tied_ranks(row: NDArray[np.float32], items: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rank (R,) of each item in one row of scores (N,), ties going to the smaller row.

    >>> tied_ranks(np.array([0.5, 0.9, 0.5], dtype=np.float32), np.array([0, 2])).tolist()
    [1, 2]
    """
    if len(items) <= FEW_TIED:
        return np.array([_rank_of(row, item) for item in items.tolist()], np.int64)
    positions = np.empty(len(row), np.int64)
    positions[np.argsort(-row, kind="stable")] = np.arange(len(row))
    return positions[items]


def nearest_rows(
    query: NDArray[np.float32],
    gallery: NDArray[np.float32],
    k: int,
    ignore: RowLists | None = None,
    *,
    block: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the rows and scores (Q, min(k, N)) of the first k items per query, in the order of `rank_blocks`.

    Where ignored items leave fewer, the row is -1 and the score is minus infinity.
    """
    ignore, width = ignore or no_rows(len(query)), min(k, len(gallery))
    rows, values = np.empty((len(query), width), np.int64), np.empty((len(query), width), np.float32)
    for start, scores in score_blocks(query, gallery, block=block):
        scores[ignore.part(start, start + len(scores)).flat()] = -np.inf
        for query_row, row in enumerate(scores, start):
            rows[query_row] = _first(row, width)
            values[query_row] = row[rows[query_row]]
    rows[values == -np.inf] = -1
    return rows, values


def _first(row: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Return the k first items (k,) of a row of scores, by descending score, ties by row."""
    least = np.partition(row, len(row) - k)[len(row) - k]
    above = np.flatnonzero(row > least)
    chosen = np.concatenate([above, np.flatnonzero(row == least)[: k - len(above)]])
    return chosen[np.argsort(-row[chosen], kind="stable")]


def no_rows(queries: int) -> RowLists:
    """Return an empty list for every query."""
    return RowLists.single(np.full(queries, -1))


def available_cores() -> int:
    """Return how many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
