"""The one counting engine: where the relevant gallery items of every query rank.

A rank is the number of items with a higher score. Items with the same score share their places, and metrics take the
mean over all orders of them. Nothing of size queries x gallery is ever held. Written here because the libraries that
rank a whole gallery sort and keep all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limpet.errors import DataError
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.ranking.sharded import searching
from limpet.evaluation.ranking.side_by_side import side_by_side
from limpet.evaluation.ranking.tiles import Bounds, blocks_of
from limpet.evaluation.ranking.vector_rows import VectorRows, Vectors


class Groups(NamedTuple):
    """Relevant items of one query with one score, G groups.

    Args:
        first: The first relevant item of each (G,).
        relevant: How many there are (G,).
    """

    first: NDArray[np.int64]
    relevant: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ranked:
    """All that ranking metrics need to know of Q rankings; checked once, when built.

    Args:
        ranks: 0-based ranks of the relevant items of all queries one after another, int64 (M,), ascending per query:
            how many items score more.
        offsets: Where each query begins, int64 (Q + 1,), ending with M.
        gallery_sizes: How many gallery items each query ranked, ignored ones not counted, int64 (Q,).
        gains: What each relevant item is worth to metrics that weigh, float64 (M,) above 0; ones when left out.
        tied: How many items score the same as each relevant one, itself included, int64 (M,): it is as likely at any
            of the places from its rank to ``rank + tied - 1``. Ones, no ties, when left out.

    Raises:
        DataError: The arrays do not describe rankings.

    >>> Ranked.of([[0, 2], []], [5, 5]).relevant.tolist()
    [2, 0]
    """

    ranks: NDArray[np.int64]
    offsets: NDArray[np.int64]
    gallery_sizes: NDArray[np.int64]
    gains: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    tied: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        if not len(self.gains):
            object.__setattr__(self, "gains", np.ones(len(self.ranks)))
        if not len(self.tied):
            object.__setattr__(self, "tied", np.ones(len(self.ranks), np.int64))
        ranks, offsets, sizes, tied = self.ranks, self.offsets, self.gallery_sizes, self.tied
        ends = (len(offsets), offsets[0], offsets[-1])
        if ends != (len(sizes) + 1, 0, len(ranks)) or (np.diff(offsets) < 0).any():
            raise DataError(
                f"{len(offsets)} offsets for {len(sizes)} queries and {len(ranks)} ranks.",
                expected="ascending offsets, one more than queries, from 0 to the number of ranks",
            )
        if len(self.gains) != len(ranks) or not ((self.gains > 0) & np.isfinite(self.gains)).all():
            raise DataError(f"{len(self.gains)} gains for {len(ranks)} ranks.", expected="one above 0 for each")
        if len(tied) != len(ranks) or (tied < 1).any():
            raise DataError(f"{len(tied)} counts of tied items for {len(ranks)} ranks.", expected="at least 1 for each")
        owner = self.owner
        if ((ranks < 0) | (ranks + tied > sizes[owner])).any():
            raise DataError("A rank lies outside its gallery.", expected="0 <= rank, and rank + tied <= items ranked")
        step, one_query = np.diff(ranks), np.diff(owner) == 0
        if (step[one_query] < 0).any():
            raise DataError("Ranks of a query are not ascending.", expected="the ranks of each query, sorted")
        together, (first, relevant) = one_query & (step == 0), self.groups
        overlapping = one_query & ~together & (step < tied[:-1])
        if overlapping.any() or (np.diff(tied)[together] != 0).any() or (relevant > tied[first]).any():
            raise DataError(
                "Relevant items of a query share places that are not tied.",
                expected="each relevant item at its own rank, or at most as many at one as tie there",
            )

    @property
    def owner(self) -> NDArray[np.int64]:
        """The query of every relevant item (M,)."""
        return np.repeat(np.arange(len(self)), self.relevant)

    @cached_property
    def groups(self) -> Groups:
        """The groups of relevant items that score the same; an item that ties with none is one of its own."""
        new_query = np.zeros(len(self.ranks), np.bool_)
        new_query[self.offsets[:-1][self.relevant > 0]] = True
        first = np.flatnonzero(new_query | (np.diff(self.ranks, prepend=-1) != 0))
        return Groups(first, np.diff(first, append=len(self.ranks)))

    def __len__(self) -> int:
        return len(self.gallery_sizes)

    @property
    def relevant(self) -> NDArray[np.int64]:
        """Number of relevant items R of every query (Q,)."""
        return np.diff(self.offsets)

    @classmethod
    def of(
        cls,
        ranks: Sequence[Sequence[int] | NDArray[np.int64]],
        gallery_sizes: Sequence[int],
        tied: Sequence[Sequence[int] | NDArray[np.int64]] = (),
    ) -> Ranked:
        """Build from one ascending list of ranks per query, and how many items tie with each of them."""
        lists = RowLists.of(ranks)
        offsets, sizes = np.append(lists.starts, len(lists.values)), np.array(gallery_sizes, np.int64)
        return cls(lists.values, offsets, sizes, tied=RowLists.of(tied).values)

    @classmethod
    def joined(cls, parts: Iterable[Ranked]) -> Ranked:
        """Put rankings of different queries one after another."""
        whole = list(parts)
        relevant = np.concatenate([part.relevant for part in whole])
        return cls(
            np.concatenate([part.ranks for part in whole]),
            np.concatenate([[0], np.cumsum(relevant)]),
            np.concatenate([part.gallery_sizes for part in whole]),
            np.concatenate([part.gains for part in whole]),
            np.concatenate([part.tied for part in whole]),
        )

    @classmethod
    def graded(cls, levels: Sequence[tuple[float, Ranked]]) -> Ranked:
        """Put rankings of the same queries together, whose relevant items are worth one gain each.

        >>> both = Ranked.graded([(1.0, Ranked.of([[0, 3]], [5])), (2.0, Ranked.of([[1]], [5]))])
        >>> both.ranks.tolist(), both.gains.tolist()
        ([0, 1, 3], [1.0, 2.0, 1.0])
        """
        if len(levels) == 1:
            return levels[0][1]  # one gain for all is as good as 1
        sizes = levels[0][1].gallery_sizes
        owner = np.concatenate([np.repeat(np.arange(len(sizes)), level.relevant) for _, level in levels])
        ranks = np.concatenate([level.ranks for _, level in levels])
        tied = np.concatenate([level.tied for _, level in levels])
        gains = np.concatenate([np.full(len(level.ranks), gain) for gain, level in levels])
        order = np.lexsort((ranks, owner))
        offsets = np.append(0, np.cumsum(np.bincount(owner, minlength=len(sizes))))
        return cls(ranks[order], offsets, sizes, gains[order], tied[order])


def rank(
    query: Vectors | VectorRows,
    gallery: Vectors | VectorRows,
    relevant: RowLists,
    ignore: RowLists | None = None,
    *,
    block: int | None = None,
    device: str | None = None,
) -> Ranked:
    """Rank the relevant items of every query; see `rank_blocks`, whose parts this joins.

    >>> gallery = np.eye(3, dtype=np.float32)
    >>> rank(np.array([[0.5, 0.9, 0.1]], dtype=np.float32), gallery, RowLists.of([[0, 2]])).ranks
    array([1, 2])
    """
    return Ranked.joined(rank_blocks(query, gallery, relevant, ignore, block=block, device=device))


def rank_blocks(
    query: Vectors | VectorRows,
    gallery: Vectors | VectorRows,
    relevant: RowLists,
    ignore: RowLists | None = None,
    *,
    block: int | None = None,
    device: str | None = None,
) -> Iterator[Ranked]:
    """Rank the relevant items of one block of queries after another, in the order of the queries.

    The gallery is read tile by tile, so that it may be larger than memory.

    Args:
        query: Q queries in index form: inner products rank as the similarity of the space.
        gallery: N gallery items in index form.
        relevant: Gallery rows that are relevant to each query.
        ignore: Gallery rows to leave out of the ranking of each query, relevant or not.
        block: Queries per block; by default a number that bounds memory, at most 512.
        device: Device for products and counts, such as "cuda"; None for the CPU, without torch.

    Raises:
        ConfigError: A block of less than one query, or an unavailable device.
        DataError: A side is empty, its products overflow, or a list does not fit the sides.
        SpaceMismatchError: The sides have different dimensions.
    """
    left_out = ignore or no_rows(len(query))
    sizes = len(gallery) - left_out.counts
    with searching(query, gallery, relevant, left_out, device) as (part, workers):

        def ranked(bounds: Bounds) -> Ranked:
            (above, tied), offsets = part.counts(bounds)
            return Ranked(above, offsets, sizes[slice(*bounds)], tied=tied)

        yield from side_by_side(ranked, blocks_of(len(query), block, relevant, workers), workers)


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


def nearest_rows(
    query: Vectors | VectorRows,
    gallery: Vectors | VectorRows,
    k: int,
    ignore: RowLists | None = None,
    *,
    block: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the rows and scores (Q, min(k, N)) of the first k items per query, ties by gallery row.

    Where ignored items leave fewer, the row is -1 and the score is minus infinity.
    """
    left_out, nothing = ignore or no_rows(len(query)), no_rows(len(query))
    with searching(query, gallery, nothing, left_out) as (part, workers):
        bounds = blocks_of(len(query), block, nothing, workers)
        parts = list(side_by_side(lambda some: part.nearest(some, k), bounds, workers))
    rows, scores = zip(*parts, strict=True)
    return np.concatenate(rows), np.concatenate(scores)


def no_rows(queries: int) -> RowLists:
    """Return an empty list for every query."""
    return RowLists.single(np.full(queries, -1))
