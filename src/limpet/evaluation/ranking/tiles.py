"""Scores of queries with a gallery, a block of queries and a tile of gallery rows at a time.

The score of a query and an item is their inner product in index form, computed in double precision and rounded to
float32. A matrix product of float32 gives it but for a small error that hangs on how the product was cut up. So what
is counted by products is only what lies farther than that error from the score it is compared with; the few others are
scored again, one by one. Ranks are therefore the same for every size of block and tile, with any number of threads and
on every device. Two items tie if these scores are equal: equal vectors do, wherever they stand in the gallery.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limpet.errors import DataError, SpaceMismatchError
from limpet.evaluation.ranking.hidden import Hidden, Integers
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.ranking.vector_rows import VectorRows, Vectors, rows_of
from limpet.support.ranges import PositiveInt, checked

Bounds = tuple[int, int]

TILE_ROWS = 16_384  # gallery rows: enough for the product, few enough for the counting to stay in the caches
MOST_QUERIES = 512
LEAST_QUERIES = 32  # fewer make products slow
MOST_PAIRS = 1_000_000  # relevant items of a block of queries
_COLUMNS = 128  # summed at a time: the error of a sum grows with its length, and shorter ones make products slow
LARGEST_PRODUCT = float(np.finfo(np.float32).max) / 4
"""Differences of two scores, and what they may be off, stay within float32."""
_ADDED_AT_ONCE = 128  # queries whose sums wait to be added: fewer make products slow
_ROWS_AT_ONCE = 8_192
_NUMBERS_AT_ONCE = 32_768  # in double precision: more memory at a time is slow to get
_SHARED_AT_ONCE = 262_144  # scores of queries with the same relevant items
_SHARED_PAIRS = 1_024  # fewer of them are scored one by one


@dataclass(frozen=True, eq=False)
class QueryBlock:
    """Queries ``start`` to ``stop`` in index form.

    Args:
        stop: The one after the last.
        vectors: The queries, float32 (n, D).
        exact: The same in double precision.
        error: How far a product may be from a score of each, float32 (n,).
        rounding: How far apart two sums of such a product in double precision may be, float64 (n,).
    """

    start: int
    stop: int
    vectors: Vectors
    exact: NDArray[np.float64]
    error: NDArray[np.float32]
    rounding: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RelevantScores:
    """What is asked of a block of n queries: the scores of their relevant items, and what to leave out.

    Args:
        owner: The query in the block of each relevant item, ascending, int64 (M,).
        scores: Its score, float32 (M,), descending for each query.
        offsets: Where each query begins, int64 (n + 1,).
    """

    owner: Integers
    scores: NDArray[np.float32]
    offsets: Integers
    hidden: Hidden


class Tile(NamedTuple):
    """Gallery rows ``start`` to ``stop``, and which of their scores are hidden, by columns from ``start``."""

    start: int
    stop: int
    hidden: Hidden


@dataclass(frozen=True, eq=False)
class Search:
    """Q queries and N gallery items, checked once when built, whose scores are taken tile by tile.

    Args:
        longest: The greatest length of a gallery vector.
    """

    queries: VectorRows
    gallery: VectorRows
    longest: float

    @classmethod
    def of(cls, query: Vectors | VectorRows, gallery: Vectors | VectorRows) -> Search:
        """Look through both sides, which are in index form.

        Raises:
            DataError: A side is empty, or its inner products would overflow.
            SpaceMismatchError: The sides have different dimensions.
        """
        queries, items = rows_of(query), rows_of(gallery)
        return cls(queries, items, longest=check_rows(queries, items))

    @property
    def tile_rows(self) -> int:
        """Gallery rows of a tile: tiles are about equal, for a small one costs nearly as much as a large one."""
        return -(-len(self.gallery) // max(1, round(len(self.gallery) / TILE_ROWS)))

    def queries_at(self, bounds: Bounds) -> QueryBlock:
        """Read a block of queries."""
        vectors = self.queries.block(*bounds)
        exact = vectors.astype(np.float64)
        lengths = np.linalg.norm(exact, axis=1) * self.longest
        error = largest_error(self.queries.dim, lengths).astype(np.float32)
        rounding = 4 * self.queries.dim * np.finfo(np.float64).eps * lengths  # twice what two sums can differ
        return QueryBlock(*bounds, vectors, exact, error, rounding)

    def pairs(self, block: QueryBlock, relevant: RowLists, ignore: RowLists) -> RelevantScores:
        """Score the relevant items of a block of queries, without those that are ignored, and put them in order."""
        own = relevant.part(block.start, block.stop)
        ignored = ignore.part(block.start, block.stop).flat()
        shared, others = own.shared(_SHARED_PAIRS)
        counts = own.counts
        offsets = np.append(0, np.cumsum(counts))
        scores = np.empty(offsets[-1], np.float32)
        for places, found in self._scores_of_shared(block, shared, ignored):
            scores[offsets[places][:, None] + np.arange(found.shape[1])] = found
        owner, items = own.only(others).flat()
        if len(owner):
            found = self.scores(block, owner, items)
            if len(ignored[0]):
                size = len(self.gallery)
                found[np.isin(owner * size + items, ignored[0] * size + ignored[1])] = -np.inf
            starts = np.cumsum(counts * others) - counts * others
            scores[offsets[owner] + np.arange(len(owner)) - starts[owner]] = found[np.lexsort((-found, owner))]
        hidden = Hidden.of(np.append(owner, ignored[0]), np.append(items, ignored[1]), tuple(shared))
        owner = np.repeat(np.arange(len(counts)), counts)
        if len(ignored[0]) and not (kept := scores > -np.inf).all():
            owner, scores = owner[kept], scores[kept]
            offsets = np.append(0, np.cumsum(np.bincount(owner, minlength=len(counts))))
        return RelevantScores(owner, scores, offsets, hidden)

    def _scores_of_shared(
        self, block: QueryBlock, shared: list[tuple[Integers, Integers]], ignored: tuple[Integers, Integers]
    ) -> Iterator[tuple[Integers, NDArray[np.float32]]]:
        """Yield queries (g,) that share relevant items, and the scores (g, r) of each, descending, -infinity ignored.

        A product of matrices sums in another order than `scores` does; where that could change the rounded score, the
        pair is scored by `scores`.
        """
        group, place = np.full((2, len(block.vectors)), -1)
        for number, (queries, _) in enumerate(shared):
            group[queries], place[queries] = number, np.arange(len(queries))
        by_group = np.argsort(group[ignored[0]], kind="stable")
        bounds = group[ignored[0]][by_group].searchsorted(np.arange(len(shared) + 1))
        for number, (queries, rows) in enumerate(shared):
            left_out = by_group[bounds[number] : bounds[number + 1]]
            columns = rows.searchsorted(ignored[1][left_out])
            columns[columns == len(rows)] = 0
            named = rows[columns] == ignored[1][left_out]
            owners, columns = place[ignored[0][left_out[named]]], columns[named]
            step = max(16, _SHARED_AT_ONCE // len(rows))
            for start in range(0, len(queries), step):
                some = queries[start : start + step]
                found = self._scores_of_all(block, some, rows)
                own = (owners >= start) & (owners < start + step)
                found[owners[own] - start, columns[own]] = -np.inf
                np.negative(found, out=found)
                found.sort(axis=1)
                yield some, np.negative(found, out=found)

    def _scores_of_all(self, block: QueryBlock, queries: Integers, rows: Integers) -> NDArray[np.float32]:
        """Return the scores (g, r) of queries of the block with gallery rows."""
        scores = np.empty((len(queries), len(rows)), np.float32)
        exact, rounding = block.exact[queries], block.rounding[queries, None]
        step = max(16, 4 * _NUMBERS_AT_ONCE // self.queries.dim)
        for start in range(0, len(rows), step):
            columns = slice(start, start + step)
            sums = exact @ self.gallery.take(rows[columns]).astype(np.float64).T
            scores[:, columns] = sums
            unclear = np.nonzero((sums - rounding).astype(np.float32) != (sums + rounding).astype(np.float32))
            if len(unclear[0]):
                scores[:, columns][unclear] = self.scores(block, queries[unclear[0]], rows[columns][unclear[1]])
        return scores

    def scores(self, block: QueryBlock, owner: Integers, items: Integers) -> NDArray[np.float32]:
        """Return the score (M,) of single pairs of a query of the block and a gallery row."""
        scores = np.empty(len(items), np.float32)
        step = max(16, _NUMBERS_AT_ONCE // self.queries.dim)
        for start in range(0, len(items), step):
            chosen = slice(start, start + step)
            vectors = self.gallery.take(items[chosen]).astype(np.float64)
            scores[chosen] = np.einsum("ij,ij->i", block.exact.take(owner[chosen], axis=0), vectors)
        return scores

    def tiles(self, block: QueryBlock, pairs: RelevantScores) -> Iterator[tuple[int, Vectors, NDArray[np.float32]]]:
        """Yield the first gallery row of each tile, its rows (T, D), and products (n, T) of the block with them.

        Hidden products are -infinity. The array of products is reused: take what is needed before the next step.
        """
        buffer = np.empty(len(block.vectors) * self.tile_rows, np.float32)
        for tile in self.tile_bounds(pairs):
            width = tile.stop - tile.start
            products = buffer[: len(block.vectors) * width].reshape(-1, width)
            items = self.gallery.block(tile.start, tile.stop)
            _multiply(block.vectors, items, products)
            tile.hidden.hide(products)
            yield tile.start, items, products

    def tile_bounds(self, pairs: RelevantScores) -> Iterator[Tile]:
        """Yield the tiles of the gallery in the order of its rows."""
        size = len(self.gallery)
        for start in range(0, size, self.tile_rows):
            stop = min(start + self.tile_rows, size)
            yield Tile(start, stop, pairs.hidden.between(start, stop))


@checked
def blocks_of(queries: int, block: PositiveInt | None, relevant: RowLists, workers: int = 1) -> list[Bounds]:
    """Cut queries into blocks that keep memory bounded, and give every worker some.

    Args:
        queries: Number of queries.
        block: Queries per block; None chooses a suitable number.
        relevant: Relevant rows of each query; many of them make blocks small.
        workers: Number of blocks that are processed at once.

    Raises:
        ConfigError: A block of less than one query.
    """
    if block is not None:
        return [(start, min(start + block, queries)) for start in range(0, queries, block)]
    most = min(MOST_QUERIES, max(LEAST_QUERIES, -(-queries // workers)))
    answers, bounds, start = np.append(0, np.cumsum(relevant.counts)), [], 0
    while start < queries:
        fitting = int(answers.searchsorted(answers[start] + MOST_PAIRS, "right")) - 1
        stop = min(max(fitting, start + 1), start + most, queries)
        bounds.append((start, stop))
        start = stop
    return bounds


def columns_at_once(dim: int) -> Iterator[slice]:
    """Yield the columns over which a product is summed before its sum is added to those of the columns before."""
    return (slice(start, start + _COLUMNS) for start in range(0, dim, _COLUMNS))


def largest_error(dim: int, lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far a product of float32 can be from a score, whatever the vectors.

    Summing n numbers in any order is off by at most n roundings, each relative to the sum of their sizes, which is no
    more than the product of the lengths of the two vectors. There are `_COLUMNS` numbers, then one sum for every so
    many columns; rounding the score is one more. Products too small for float32 may become zero.

    Args:
        dim: Length D of the vectors.
        lengths: Products of the lengths of two vectors.
    """
    single = np.finfo(np.float32)
    roundings = 1.01 * (min(dim, _COLUMNS) + -(-dim // _COLUMNS))  # a hundredth for roundings of roundings
    error: NDArray[np.float64] = roundings * lengths * single.eps / 2 + dim * float(single.tiny)
    return error


def _multiply(query: Vectors, gallery: Vectors, products: NDArray[np.float32]) -> None:
    """Write the products (n, T) of two sets of vectors, a few columns at a time; see `largest_error`."""
    first, *others = columns_at_once(query.shape[1])
    np.matmul(query[:, first], gallery[:, first].T, out=products)
    spare = np.empty_like(products[:_ADDED_AT_ONCE]) if others else products
    for columns in others:
        for start in range(0, len(query), _ADDED_AT_ONCE):
            rows = slice(start, start + _ADDED_AT_ONCE)
            added = spare[: len(query[rows])]
            products[rows] += np.matmul(query[rows, columns], gallery[:, columns].T, out=added)


def check_rows(query: VectorRows, gallery: VectorRows) -> float:
    """Refuse empty sides, different dimensions, and numbers whose products leave float32.

    Returns:
        The greatest length of a gallery vector.
    """
    for side, rows in (("queries", query), ("gallery", gallery)):
        if len(rows) == 0:
            raise DataError(f"The {side} hold no item.", expected="at least one")
    if query.dim != gallery.dim:
        raise SpaceMismatchError(
            f"Queries have {query.dim} columns, the gallery has {gallery.dim}.", expected="vectors of one space"
        )
    longest = _longest(gallery)
    if not _longest(query) * longest < LARGEST_PRODUCT:
        raise DataError(
            "Inner products of these vectors overflow, or some are not finite.",
            expected="finite numbers whose products stay within float32",
            to_do="scale the vectors down; a common factor changes no ranking.",
        )
    return longest


def _longest(rows: VectorRows) -> float:
    """Return the greatest length; NaN where a vector holds NaN."""
    starts = range(0, len(rows), _ROWS_AT_ONCE)
    return float(np.max([_longest_of(rows.block(start, start + _ROWS_AT_ONCE)) for start in starts]))


def _longest_of(vectors: Vectors) -> float:
    square = float(np.einsum("ij,ij->i", vectors, vectors).max())
    if not 1e-30 < square < 1e30:  # squares of float32 may vanish or overflow
        square = float(np.square(vectors, dtype=np.float64).sum(axis=1).max())
    return float(np.sqrt(square)) * 1.0001
