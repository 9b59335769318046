"""A gallery, or a part of it, searched by one process: what it counts, and which of its items are the nearest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from limpet.evaluation.ranking.counting import Counter, Counts, compiles
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.ranking.tiles import Bounds, QueryBlock, RelevantScores, Search
from limpet.evaluation.ranking.vector_rows import VectorRows, Vectors

if TYPE_CHECKING:
    from limpet.evaluation.ranking.compiled_counting import CompiledCounter

Nearest = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Gallery rows (n, k) and their scores (n, k); -1 and minus infinity where there are fewer."""


class GalleryPart:
    """Q queries that rank the items of a gallery, or of a part of one.

    Args:
        query: Queries in index form.
        gallery: Items in index form.
        relevant: Rows of these items that answer each query.
        ignore: Rows of these items to leave out for each query.
        device: Where products and counts are computed; None for the processor, without torch.
        answers: How many items of the whole gallery answer each query (Q,); those of `relevant` when left out.

    Raises:
        DataError: A side is empty, or its products overflow.
        SpaceMismatchError: The sides have different dimensions.
    """

    def __init__(
        self,
        query: Vectors | VectorRows,
        gallery: Vectors | VectorRows,
        relevant: RowLists,
        ignore: RowLists,
        device: str | None = None,
        answers: NDArray[np.int64] | None = None,
    ) -> None:
        self.search = Search.of(query, gallery)
        self._relevant, self._ignore, self._device = relevant, ignore, device
        self._counting: type[Counter | CompiledCounter] = Counter
        if device is None and compiles(len(self.search.gallery), relevant.counts if answers is None else answers):
            from limpet.evaluation.ranking.compiled_counting import CompiledCounter

            self._counting = CompiledCounter

    def pairs(self, bounds: Bounds) -> tuple[QueryBlock, RelevantScores]:
        """Read a block of queries, and score those of these items that answer them."""
        block = self.search.queries_at(bounds)
        return block, self.search.pairs(block, self._relevant, self._ignore)

    def count(self, block: QueryBlock, pairs: RelevantScores) -> Counts:
        """Count these items above and beside every relevant one."""
        if self._device is not None:
            from limpet.evaluation.ranking.device_counting import counts_on

            return counts_on(self._device, self.search, block, pairs)
        counter = self._counting(self.search, block, pairs)
        for start, items, products in self.search.tiles(block, pairs):
            counter.add(start, items, products)
        return counter.counts()

    def counts(self, bounds: Bounds) -> tuple[Counts, NDArray[np.int64]]:
        """Count for every relevant item of a block of n queries; also return where each begins (n + 1,)."""
        block, pairs = self.pairs(bounds)
        return self.count(block, pairs), pairs.offsets

    def nearest(self, bounds: Bounds, k: int) -> Nearest:
        """Return the first k of these items for each query of a block, ties by row."""
        block, pairs = self.pairs(bounds)
        found = _First(self.search, block, min(k, len(self.search.gallery)))
        for start, _, products in self.search.tiles(block, pairs):
            found.add(start, products)
        return found.rows, found.values


class _First:
    """The first k items of n queries among the tiles seen so far, by descending score, ties by gallery row."""

    def __init__(self, search: Search, block: QueryBlock, k: int) -> None:
        self._search, self._block = search, block
        self.rows = np.full((len(block.vectors), k), -1)
        """Gallery rows, int64 (n, k); -1 where there are fewer."""
        self.values = np.full((len(block.vectors), k), -np.inf, np.float32)
        """Their scores, float32 (n, k); minus infinity where there are fewer."""

    def add(self, start: int, products: NDArray[np.float32]) -> None:
        """Take in a tile of products (n, T) whose first gallery row is ``start``; tiles come in the order of rows.

        An item is passed over only if its score must be below the k-th of its own tile, or of those before.
        """
        threshold, error = self.values[:, -1], self._block.error
        width, k = products.shape[1], self.values.shape[1]
        if k < width:
            threshold = np.maximum(threshold, np.partition(products, width - k, axis=1)[:, width - k] - error)
        chosen = (products >= (threshold - error)[:, None]) & (products > -np.inf)
        owner, columns = np.nonzero(chosen)
        if len(owner):
            self._merge(owner, start + columns)

    def _merge(self, owner: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        changed, local = np.unique(owner, return_inverse=True)
        k = self.values.shape[1]
        owners = np.concatenate([np.repeat(np.arange(len(changed)), k), local])
        all_values = np.concatenate([self.values[changed].ravel(), self._search.scores(self._block, owner, rows)])
        all_rows = np.concatenate([self.rows[changed].ravel(), rows])
        order = np.lexsort((-all_values, owners))  # stable: among equals the earlier row stays first
        owners = owners[order]
        place = np.arange(len(owners)) - owners.searchsorted(owners)
        kept = order[place < k]
        self.rows[changed] = all_rows[kept].reshape(-1, k)
        self.values[changed] = all_values[kept].reshape(-1, k)
