"""Which scores no tile shows: those of relevant items, which are counted apart, and of ignored ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Hidden:
    """Pairs of a query of the block and a gallery row.

    Args:
        queries: The queries of single pairs (H,).
        rows: Their gallery rows, ascending (H,).
        shared: Queries (g,) that all have the same relevant rows, and these rows, ascending (r,).
    """

    queries: Integers
    rows: Integers
    shared: tuple[tuple[Integers, Integers], ...] = ()

    @classmethod
    def of(cls, queries: Integers, rows: Integers, shared: tuple[tuple[Integers, Integers], ...] = ()) -> Hidden:
        """Put single pairs in the order of their rows."""
        by_row = np.argsort(rows, kind="stable")
        return cls(queries[by_row], rows[by_row], shared)

    def between(self, start: int, stop: int) -> Hidden:
        """Return those of gallery rows ``start`` to ``stop``, numbered from ``start``."""

        def within(rows: Integers) -> slice:
            return slice(*rows.searchsorted((start, stop)))

        own = within(self.rows)
        shared = ((queries, rows[within(rows)] - start) for queries, rows in self.shared)
        return Hidden(self.queries[own], self.rows[own] - start, tuple(group for group in shared if len(group[1])))

    def hide(self, products: NDArray[np.float32]) -> None:
        """Write -infinity for them into products (n, T), in place."""
        products[self.queries, self.rows] = -np.inf
        for queries, rows in self.shared:
            products[queries[:, None], rows] = -np.inf

    def pairs(self) -> tuple[Integers, Integers]:
        """Return all of them one by one: queries and rows, each (P,)."""
        queries = [np.repeat(queries, len(rows)) for queries, rows in self.shared]
        rows = [np.tile(rows, len(queries)) for queries, rows in self.shared]
        return np.concatenate([self.queries, *queries]), np.concatenate([self.rows, *rows])
