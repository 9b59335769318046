"""The same counting in one compiled pass over a tile, with numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from limpet.evaluation.ranking.counting import Counts, part_of
from limpet.evaluation.ranking.hidden import Integers
from limpet.evaluation.ranking.tiles import QueryBlock, RelevantScores, Search
from limpet.evaluation.ranking.vector_rows import Vectors

LEAST_BINS, MOST_BINS = 4_096, 32_768  # tables of the fewest stay in the first cache
_BINS_PER_ITEM = 16
_ASKED = 2**15  # marks bins that are asked for; places have the other 15 bits
_ROWS = 32  # queries of a call, which note the products to be scored by `Search.scores`
_MOST_UNCLEAR = 65_536  # of these products, which wait to be scored together
_CHUNK = 1_024  # products whose bins are computed at a time
_ITEMS = 512  # of a tile
_FEW = 16  # filter a tile first if fewer than one in this many products matters


class CompiledCounter:
    """Counts, tile by tile, the items above and beside the relevant items of a block of queries.

    Args:
        pairs: Their relevant items, at most `MOST_COMPILED` for each.
    """

    def __init__(self, search: Search, block: QueryBlock, pairs: RelevantScores) -> None:
        self.part = part_of(search, block, pairs, 0, len(block.vectors))
        self.exact, self.rounding = block.exact, block.rounding
        self.unclear: list[tuple[Integers, Integers, NDArray[np.float32]]] = []
        relevant = np.diff(pairs.offsets)
        wanted = np.maximum(_BINS_PER_ITEM * relevant, 1)
        bins = np.clip(2 ** np.ceil(np.log2(wanted)).astype(np.int64), LEAST_BINS, MOST_BINS)
        scale, shift = self.part.scaled(bins[:, None])
        self.scale, self.shift = scale[:, 0], shift[:, 0]
        self.ends = np.append(0, np.cumsum(np.where(relevant > 0, bins, 0)))
        self.tables = np.empty(self.ends[-1], np.uint16)
        _fill(self.part.values, pairs.offsets, self.part.error, self.scale, self.shift, self.ends, self.tables)

    def add(self, start: int, items: Vectors, products: NDArray[np.float32]) -> None:
        """Count the items of one tile."""
        part, items = self.part, np.ascontiguousarray(items)
        unclear = np.empty((2, _ROWS * len(items)), np.int32)
        for first in range(0, len(products), _ROWS):
            noted = _count(
                first, products[first : first + _ROWS], items, self.exact, self.rounding, part.values, part.offsets,
                part.error, self.scale, self.shift, self.ends, self.tables, part.entered, part.beside, unclear,
            )  # fmt: skip
            if noted:
                owner, columns = unclear[:, :noted].astype(np.int64)
                self.unclear.append((owner, start + columns, products[owner, columns]))
        if sum(len(owner) for owner, _, _ in self.unclear) > _MOST_UNCLEAR:
            self._insert()

    def _insert(self) -> None:
        if self.unclear:
            self.part.insert(*map(np.concatenate, zip(*self.unclear, strict=True)))
            self.unclear.clear()

    def counts(self) -> Counts:
        """Return what was counted for every pair (M,)."""
        self._insert()
        return self.part.counts()


def _given(kind: Any, dimensions: int) -> types.Array:
    return types.Array(kind, dimensions, "C", readonly=True)


_single, _double, _whole = (_given(kind, 1) for kind in (types.float32, types.float64, types.int64))


@njit(inline="always")
def _bin(value: Any, scale: Any, shift: Any, last: Any) -> Any:
    """Return the bin of a product; every step is monotone in float32."""
    place = value * scale + shift
    place = place if place > np.float32(0) else np.float32(0)
    place = place if place < last else last
    return np.uint16(np.int32(place))


@njit(types.void(_single, _whole, _single, _single, _single, _whole, types.uint16[::1]), nogil=True, cache=True)
def _fill(values: Any, offsets: Integers, error: Any, scale: Any, shift: Any, ends: Integers, tables: Any) -> None:
    """Write for every query and bin how many relevant items are in higher bins, marked where one is near."""
    for query in range(len(error)):
        first, stop = offsets[query], offsets[query + 1]
        if first == stop:
            continue
        table = tables[ends[query] : ends[query + 1]]
        last, factor, summand = np.float32(len(table) - 1), scale[query], shift[query]
        end = np.int64(len(table))
        for item in range(first, stop):
            begin = np.int64(_bin(values[item], factor, summand, last))
            for place in range(begin, end):
                table[place] = np.uint16(item - first)
            end = min(begin, end)
        for place in range(end):
            table[place] = np.uint16(stop - first)
        end = np.int64(len(table))
        for item in range(first, stop):
            lower = np.int64(_bin(values[item] - error[query], factor, summand, last))
            upper = np.int64(_bin(values[item] + error[query], factor, summand, last))
            for place in range(lower, min(upper + 1, end)):
                table[place] |= np.uint16(_ASKED)
            end = min(lower, end)


@njit(fastmath={"reassoc", "contract"})
def _product(exact: Any, query: int, items: Any, item: int) -> float:
    total = 0.0
    for column in range(exact.shape[1]):
        total += exact[query, column] * np.float64(items[item, column])
    return total


@njit(inline="always")
def _above(value: float, values: Any, low: int, high: int) -> int:
    while low < high:
        middle = (low + high) >> 1
        if values[middle] > value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(inline="always")
def _not_below(value: float, values: Any, low: int, high: int) -> int:
    while low < high:
        middle = (low + high) >> 1
        if values[middle] >= value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(
    types.int64(
        types.int64, types.Array(types.float32, 2, "C"), _given(types.float32, 2), _given(types.float64, 2), _double,
        types.float32[::1], _whole, _single, _single, _single, _whole, types.uint16[::1], types.int64[::1],
        types.int64[::1], types.int32[:, ::1],
    ),
    nogil=True,
    cache=True,
)  # fmt: skip
def _count(
    block: int, products: Any, items: Any, exact: Any, rounding: Any, values: Any, offsets: Any, error: Any,
    scale: Any, shift: Any, ends: Any, tables: Any, entered: Any, beside: Any, unclear: Any,
) -> int:  # fmt: skip
    """Count a tile of some queries; return how many products are noted in ``unclear``."""
    noted, width = 0, products.shape[1]
    columns, bins = np.empty(width + 1, np.uint32), np.empty(_CHUNK, np.uint16)
    most = 0
    for row in range(products.shape[0]):
        most = max(most, offsets[block + row + 1] - offsets[block + row])
    near_columns, near_places = np.empty((2, len(products), width), np.int32)
    found_near = np.zeros(len(products), np.int64)
    places = np.empty((4, most + 1), np.int32)  # neighbours count apart: a processor waits for what it just wrote
    for row in range(products.shape[0]):
        query = block + row
        first, stop = offsets[query], offsets[query + 1]
        relevant = stop - first
        if relevant == 0:
            continue
        own, line, table = values[first:stop], products[row], tables[ends[query] : ends[query + 1]]
        last, factor, summand, near = np.float32(len(table) - 1), scale[query], shift[query], error[query]
        lowest = own[relevant - 1] - near
        places[:, : relevant + 1] = 0
        looked, matter, step = 0, 0, max(1, width // 64)
        for column in range(0, width, step):
            looked += 1
            matter += line[column] >= lowest
        found = np.uint64(0)
        filtered = _FEW * matter < looked
        if filtered:
            for column in range(width):
                if line[column] >= lowest:
                    columns[found] = column
                    found += np.uint64(1)
        else:
            for start in range(0, width, _CHUNK):
                size = min(_CHUNK, width - start)
                for column in range(size):
                    bins[column] = _bin(line[start + column], factor, summand, last)
                for column in range(size):
                    place = table[bins[column]]
                    places[np.uint64(column) & np.uint64(3), place & np.uint16(_ASKED - 1)] += 1
                    columns[found] = start + column
                    found += np.uint64(place >> np.uint16(15))
        for number in range(found):
            column = columns[number]
            value = line[column]
            its_bin = _bin(value, factor, summand, last)
            place = table[its_bin]
            low = np.int64(place & np.uint16(_ASKED - 1))
            if filtered:
                if place < _ASKED:
                    places[0, low] += 1
                    continue
            else:
                places[0, low] -= 1
                if value < lowest:
                    continue
            high = relevant if its_bin == 0 else np.int64(table[its_bin - np.uint16(1)] & np.uint16(_ASKED - 1))
            low = _above(value, own, low, high)
            if (low < relevant and value - own[low] <= near) or (low > 0 and own[low - 1] - value <= near):
                near_columns[row, found_near[row]], near_places[row, found_near[row]] = column, low
                found_near[row] += 1
            else:
                places[0, low] += 1
        for place in range(relevant):
            entered[first + place] += places[0, place] + places[1, place] + places[2, place] + places[3, place]
    looked_at = np.zeros(len(products), np.int64)
    for end in range(_ITEMS, width + _ITEMS, _ITEMS):  # a few items at a time, which stay in the caches
        for row in range(products.shape[0]):
            query = block + row
            first, relevant = offsets[query], offsets[query + 1] - offsets[query]
            while looked_at[row] < found_near[row] and near_columns[row, looked_at[row]] < end:
                column, low = near_columns[row, looked_at[row]], near_places[row, looked_at[row]]
                looked_at[row] += 1
                score = _product(exact, query, items, column)
                rounded = np.float32(score)
                if np.float32(score - rounding[query]) != np.float32(score + rounding[query]):
                    unclear[0, noted], unclear[1, noted] = query, column
                    noted += 1
                    continue
                if low < relevant and values[first + low] > rounded:
                    low += 1
                elif low > 0 and values[first + low - 1] <= rounded:
                    low -= 1
                if (low < relevant and values[first + low] > rounded) or (
                    low > 0 and values[first + low - 1] <= rounded
                ):
                    low = _above(rounded, values[first : first + relevant], 0, relevant)
                if low < relevant and values[first + low] == rounded:
                    beside[first + low] += 1
                    low = _not_below(rounded, values[first : first + relevant], low, relevant)
                entered[first + low] += low < relevant
    return noted
