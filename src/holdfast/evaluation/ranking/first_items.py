"""The first items of every query, merged tile by tile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.evaluation.ranking.tiles import QueryBlock, Search


class First:
    """The first k items of n queries among the tiles seen so far, by descending score, ties by gallery row.

    Args:
        search: What is searched.
        block: The queries.
        k: How many items.
    """

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
