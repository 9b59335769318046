"""How many items of a tile score more than each relevant item, and how many score the same.

There are three exact ways, of which the cheapest is taken. A product nearer to a relevant score than its error is
replaced by the exact score, see `tiles`; so ties are found among these few alone. Written here because libraries that
rank sort the whole gallery for every query.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limpet.evaluation.ranking.tiles import QueryBlock, RelevantScores, Search
from limpet.evaluation.ranking.vector_rows import Vectors

_Scores = NDArray[np.float32]
Integers = NDArray[np.int64]

PART_ROWS = 16  # queries that are looked at together
BINS = 8_192  # per query; the bins of a part must stay below 2**24, where float32 counts no further

COMPARE, FILTER, HISTOGRAM = "compare", "filter", "histogram"
_LOOKED_AT = 64  # step between the columns of a sample
_PASS = 0.2  # nanoseconds per score of a comparison; the other costs are relative to it
_CALL = 3_000.0
_INSERT = 90.0
_BINNED = 4.2
_BIN = 2.0  # of those of a query, made once for all tiles
LOADED = 1e9  # of what numba compiled
MOST_COMPILED = 2**15 - 1  # relevant items of a query that `compiled_counting` can count


class Counts(NamedTuple):
    """Where relevant items rank.

    Args:
        above: How many items score more (M,): the first place, from 0, that an item may have; ascending per query.
        tied: How many items score the same (M,), the item itself included: how many places it may have.
    """

    above: Integers
    tied: Integers


@dataclass(eq=False)
class Counter:
    """Counts, tile by tile, the items above and beside the relevant items of a block of queries.

    Args:
        way: Always count this way, for tests; None takes the cheapest.
    """

    search: Search
    block: QueryBlock
    pairs: RelevantScores
    way: str | None = None
    parts: list[QueryPart] = field(init=False)

    def __post_init__(self) -> None:
        queries = len(self.block.vectors)
        starts = range(0, queries, PART_ROWS)
        bounds = ((start, min(start + PART_ROWS, queries)) for start in starts)
        parts = (part_of(self.search, self.block, self.pairs, *some) for some in bounds)
        self.parts = [part for part in parts if len(part.values)]

    def add(self, start: int, items: Vectors, products: _Scores) -> None:
        """Count the items of one tile.

        Args:
            start: Its first gallery row.
            items: Its gallery rows (T, D), which are not needed here.
            products: Products of the queries with them (n, T).
        """
        for part in self.parts:
            part.add(start, products[part.rows], self.way)

    def counts(self) -> Counts:
        """Return what was counted for every pair (M,)."""
        nothing = np.empty(0, np.int64)
        above, tied = zip((nothing, nothing), *(part.counts() for part in self.parts), strict=True)
        return Counts(np.concatenate(above), np.concatenate(tied))


@dataclass(eq=False)
class QueryPart:
    """Some neighbouring queries of a block with their m relevant items, by descending score.

    Args:
        rows: Which queries of the block, h of them.
        owner: The query in the part of each relevant item, ascending (m,).
        values: Its score (m,).
        offsets: Where each query begins (h + 1,).
        error: How far a product may be from a score, per query (h,).
        exact: Gives the scores of single pairs: queries in the part (e,) and gallery rows (e,).
    """

    rows: slice
    owner: Integers
    values: _Scores
    offsets: Integers
    error: _Scores
    gallery_size: int
    exact: Callable[[Integers, Integers], _Scores]
    before: Integers = field(init=False)
    """Other items known to score more than each relevant one (m,)."""
    entered: Integers = field(init=False)
    """Other items that score more than a relevant one and all of its query that follow it (m + 1,)."""
    beside: Integers = field(init=False)
    """Other items that score the same as each relevant one (m,); of equal relevant ones the first knows."""

    def __post_init__(self) -> None:
        self.before = np.zeros(len(self.values), np.int64)
        self.entered = np.zeros(len(self.values) + 1, np.int64)
        self.beside = np.zeros(len(self.values), np.int64)

    def counts(self) -> Counts:
        """Return what was counted for every relevant item (m,)."""
        entered, begins = np.append(0, np.cumsum(self.entered[:-1])), self.offsets[self.owner]
        first = np.arange(len(self.values))
        relevant: Integers | int = 1
        equal = (self.values[1:] == self.values[:-1]) & (self.owner[1:] == self.owner[:-1])
        if equal.any():
            group = np.append(0, np.cumsum(~equal))
            first, relevant = np.flatnonzero(np.append(True, ~equal))[group], np.bincount(group)[group]
        above = self.before + entered[1:] - entered[begins] + first - begins
        return Counts(above, relevant + self.beside[first])

    def add(self, start: int, products: _Scores, way: str | None) -> None:
        """Count the items of a tile in the cheapest way."""
        way = self.cheapest(products) if way is None else way
        WAYS[way](self, start, products)

    def cheapest(self, products: _Scores) -> str:
        """Return the way that takes the least time for such a tile, by some of its columns."""
        cost = {COMPARE: len(self.values) * (_CALL + 2 * _PASS * products.shape[1])}
        if cost[COMPARE] > 3 * _PASS * products.size:
            some = products[:, ::_LOOKED_AT]
            found = np.count_nonzero(some >= self.lowest) / some.size * products.size
            cost[FILTER] = 3 * _PASS * products.size + _INSERT * found
            bins = _BIN * BINS / self.gallery_size
            cost[HISTOGRAM] = (_BINNED + bins) * products.size + _INSERT * found * self.asked_share
        return min(cost, key=cost.__getitem__)

    @cached_property
    def lowest(self) -> _Scores:
        """What a product must reach to matter to a query, infinity where nothing does, as a column (h, 1)."""
        return (self._of_each(self.offsets[1:] - 1) - self.error)[:, None]

    @cached_property
    def highest(self) -> _Scores:
        """Above this a product comes before all relevant items of a query, as a column (h, 1)."""
        return (self._of_each(self.offsets[:-1]) + self.error)[:, None]

    def _of_each(self, places: Integers) -> _Scores:
        found, some = np.full(len(places), np.inf, np.float32), np.diff(self.offsets) > 0
        found[some] = self.values[places[some]]
        return found

    @cached_property
    def keys(self) -> Integers:
        """Whole numbers (m,) that ascend as scores fall, query by query."""
        return _keys(self.owner, self.values)

    def insert(self, owner: Integers, items: Integers, products: _Scores) -> None:
        """Count some items, given by query in the part, gallery row and product, each (e,)."""
        places = self.keys.searchsorted(_keys(owner, products))
        near = np.flatnonzero(self._near(owner, products, places))
        if len(near):
            places[near] = self._places(owner[near], items[near])
        counting = places < self.offsets[owner + 1]
        self.entered += np.bincount(places[counting], minlength=len(self.entered))

    def _near(self, owner: Integers, products: _Scores, places: Integers) -> NDArray[np.bool_]:
        """Tell which products are too near to one of the two relevant scores around their places, (e,)."""
        error, last = self.error[owner], len(self.values) - 1
        below = (places < self.offsets[owner + 1]) & (products - self.values[np.minimum(places, last)] <= error)
        above = (places > self.offsets[owner]) & (self.values[np.maximum(places - 1, 0)] - products <= error)
        return below | above

    def _places(self, owner: Integers, items: Integers) -> Integers:
        keys = _keys(owner, self.exact(owner, items))
        first, behind = self.keys.searchsorted(keys), self.keys.searchsorted(keys, "right")
        self.beside += np.bincount(first[first < behind], minlength=len(self.beside))
        return behind

    def bins(self, values: _Scores, rows: Integers | slice) -> Integers:
        """Return the bin of every value; a higher bin means a higher one, and queries have bins of their own.

        Every step is monotone in float32, so the relevant scores and all products fall into bins by one rule.
        """
        scale, shift, least, most = (column[rows] for column in self.scales)
        binned = values * scale
        binned += shift
        np.clip(binned, least, most, out=binned)
        return binned.astype(np.int64)

    @cached_property
    def scales(self) -> tuple[_Scores, _Scores, _Scores, _Scores]:
        """What turns a product into a bin: factor, summand, first and last bin of each query, each (h, 1)."""
        scale, shift = self.scaled(BINS)
        first = np.arange(len(scale), dtype=np.float32)[:, None] * BINS
        return scale, first + shift, first, first + np.float32(BINS - 1)

    def scaled(self, bins: int | Integers) -> tuple[_Scores, _Scores]:
        """Return the factor and the summand (h, 1) that turn what is asked into bins 2 to ``bins`` - 2."""
        low, high = (np.nan_to_num(edge, posinf=0.0) for edge in (self.lowest, self.highest))
        span = np.maximum(high - low, np.maximum(np.abs(high), np.abs(low)) * np.float32(1e-3))
        scale = np.asarray(bins - 4, np.float32) / np.maximum(span, np.float32(1e-30))
        return scale, 2 - low * scale

    @cached_property
    def asked_bins(self) -> NDArray[np.bool_]:
        """Which bins hold a product that may be nearer to a relevant score than its error (h * BINS,)."""
        asked = np.zeros(BINS * (self.rows.stop - self.rows.start), np.bool_)
        error = self.error[self.owner]
        first, last = (self.bins((self.values + edge)[:, None], self.owner)[:, 0] for edge in (-error, error))
        for step in range(int((last - first).max(initial=0)) + 1):
            asked[np.minimum(first + step, last)] = True
        return asked

    @cached_property
    def asked_share(self) -> float:
        """Share of the bins that are asked for, between the lowest and the highest."""
        return min(1.0, 2 * len(self.values) / (BINS * len(self.error)))

    @cached_property
    def runs(self) -> tuple[Integers, Integers, Integers]:
        """Runs of bins between those asked for.

        Returns:
            Where each run of bins begins (r,), which runs hold no relevant score and come before some relevant item
            (u,), and the first one that each of these comes before (u,).
        """
        asked = self.asked_bins
        edges = np.append(True, asked[1:] != asked[:-1])
        edges[::BINS] = True
        begins = np.flatnonzero(edges)
        row = begins // BINS
        falling = 2 * self.owner * BINS - self.bins(self.values[:, None], self.owner)[:, 0]
        first = falling.searchsorted(2 * row * BINS - begins, "right")
        counting = np.flatnonzero(~self.asked_bins[begins] & (first < self.offsets[row + 1]))
        return begins, counting, first[counting]


def part_of(search: Search, block: QueryBlock, pairs: RelevantScores, start: int, stop: int) -> QueryPart:
    """Return queries ``start`` to ``stop`` of a block."""
    own = slice(pairs.offsets[start], pairs.offsets[stop])
    return QueryPart(
        rows=slice(start, stop),
        owner=pairs.owner[own] - start,
        values=pairs.scores[own],
        offsets=pairs.offsets[start : stop + 1] - own.start,
        error=block.error[start:stop],
        gallery_size=len(search.gallery),
        exact=lambda owner, items: search.scores(block, owner + start, items),
    )


def compiles(gallery_size: int, relevant: Integers) -> bool:
    """Say whether numba is installed, and loading what it compiled takes less time than counting without it.

    Args:
        gallery_size: Number of gallery rows.
        relevant: Number of relevant items of every query (Q,).
    """
    if relevant.max(initial=0) > MOST_COMPILED:
        return False
    of_score = _BINNED + _INSERT * np.minimum(1, 2 * relevant / BINS)
    nanoseconds = gallery_size * float(of_score.sum())
    return ("numba" in sys.modules or nanoseconds > LOADED) and find_spec("numba") is not None


def _by_comparing(part: QueryPart, start: int, products: _Scores) -> None:
    near: list[Integers] = [np.empty(0, np.int64)] * len(part.values)
    for place, (row, value) in enumerate(zip(part.owner.tolist(), part.values, strict=True)):
        line, error = products[row], part.error[row]
        above = int(np.count_nonzero(line > value + error))
        if np.count_nonzero(line >= value - error) > above:
            near[place] = np.flatnonzero((line >= value - error) & (line <= value + error))
        part.before[place] += above
    places = np.repeat(np.arange(len(near)), [len(columns) for columns in near])
    items = start + np.concatenate(near)
    scores, values = part.exact(part.owner[places], items), part.values[places]
    part.before += np.bincount(places[scores > values], minlength=len(part.before))
    part.beside += np.bincount(places[scores == values], minlength=len(part.beside))


def _by_filtering(part: QueryPart, start: int, products: _Scores) -> None:
    _insert_places(part, start, products, np.flatnonzero(products >= part.lowest))


def _insert_places(part: QueryPart, start: int, products: _Scores, places: Integers) -> None:
    owner, columns = np.divmod(places, products.shape[1])
    part.insert(owner, start + columns, products[owner, columns])


def _by_binning(part: QueryPart, start: int, products: _Scores) -> None:
    bins = part.bins(products, slice(None)).ravel()
    counts = np.bincount(bins, minlength=len(part.asked_bins))
    begins, counting, first = part.runs
    part.entered[first] += np.add.reduceat(counts, begins)[counting]
    _insert_places(part, start, products, np.flatnonzero(part.asked_bins.take(bins)))


WAYS: dict[str, Callable[[QueryPart, int, _Scores], None]] = {
    COMPARE: _by_comparing,
    FILTER: _by_filtering,
    HISTOGRAM: _by_binning,
}


def _keys(owner: Integers, values: _Scores) -> Integers:
    """Return whole numbers (n,) that ascend query by query, and as the scores of a query fall; equal scores are alike.

    >>> _keys(np.array([0, 0, 1]), np.array([0.5, -0.5, 2.0], np.float32)).argsort().tolist()
    [0, 1, 2]
    """
    bits = (values + np.float32(0)).view(np.int32)  # turns -0.0 into 0.0
    rising = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))
    keys: Integers = (owner << 33) - rising.astype(np.int64)
    return keys
