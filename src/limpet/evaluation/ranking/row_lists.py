"""For every query a list of gallery rows: the relevant ones, or the ignored ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.errors import DataError


@dataclass(frozen=True, eq=False)
class RowLists:
    """One list of row numbers per query, as slices of one array; lists may overlap, so that classes are kept once.

    Args:
        values: Row numbers, int64 (M,).
        starts: Where the list of each query begins in ``values``, int64 (Q,).
        stops: Where it ends, int64 (Q,).
        gains: What each entry of ``values`` is worth to metrics that weigh, float64 (M,) above 0; None: all alike.

    >>> lists = RowLists.of([[4, 0], [], [2]])
    >>> lists[0].tolist(), lists[1].tolist(), len(lists)
    ([4, 0], [], 3)
    """

    values: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    gains: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, query: int) -> NDArray[np.int64]:
        return self.values[self.starts[query] : self.stops[query]]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Length of every list (Q,)."""
        return self.stops - self.starts

    @classmethod
    def of(cls, lists: Iterable[Sequence[int] | NDArray[Any]]) -> RowLists:
        """Build from one sequence of row numbers per query."""
        arrays = [np.asarray(rows) for rows in lists]
        wrong = next((rows for rows in arrays if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu")), None)
        if wrong is not None:
            raise DataError(
                f"A list of gallery rows is {wrong.dtype} of shape {wrong.shape}.",
                expected="one list of whole numbers per query",
                to_do="turn ids into rows with gallery.ids.find(ids).",
            )
        offsets = np.zeros(len(arrays) + 1, np.int64)
        np.cumsum([len(rows) for rows in arrays], out=offsets[1:])
        values = np.concatenate([np.empty(0, np.int64), *(rows.astype(np.int64) for rows in arrays)])
        return cls(values, offsets[:-1], offsets[1:])

    @classmethod
    def by_label(cls, query_labels: NDArray[np.int64], gallery_labels: NDArray[np.int64]) -> RowLists:
        """List for every query the gallery rows of its label, in gallery order.

        >>> RowLists.by_label(np.array([1, 7]), np.array([1, 0, 1]))[0].tolist()
        [0, 2]
        """
        order = np.argsort(gallery_labels, kind="stable")
        ordered = gallery_labels[order]
        starts, stops = (np.searchsorted(ordered, query_labels, side) for side in ("left", "right"))
        return cls(order, starts, stops)

    @classmethod
    def single(cls, rows: NDArray[np.int64]) -> RowLists:
        """List one row per query, or none where the row is -1."""
        found = rows >= 0
        stops = np.cumsum(found, dtype=np.int64)
        return cls(rows[found], stops - found.astype(np.int64), stops)

    def part(self, start: int, stop: int) -> RowLists:
        """Return the lists of some queries in a row."""
        return RowLists(self.values, self.starts[start:stop], self.stops[start:stop], self.gains)

    def only(self, chosen: NDArray[np.bool_]) -> RowLists:
        """Return the lists of chosen queries (Q,), and empty ones of the others."""
        return RowLists(self.values, self.starts, np.where(chosen, self.stops, self.starts), self.gains)

    def shared(self, least: int) -> tuple[list[tuple[NDArray[np.int64], NDArray[np.int64]]], NDArray[np.bool_]]:
        """Find queries that have one list in common.

        Args:
            least: Leave out lists that have fewer entries, taken once for each of their queries.

        Returns:
            Queries (g,) and their rows, ascending (r,), list by list; and which queries are in none of them (Q,).

        >>> groups, others = RowLists.by_label(np.array([1, 0, 1]), np.array([1, 0, 1])).shared(least=2)
        >>> [(queries.tolist(), rows.tolist()) for queries, rows in groups], others.tolist()
        ([([0, 2], [0, 2])], [False, True, False])
        """
        names, which = np.unique(self.starts * (len(self.values) + 1) + self.stops, return_inverse=True)
        queries = np.bincount(which, minlength=len(names))
        first = np.empty(len(names), np.int64)
        first[which] = np.arange(len(self))
        counts = self.counts
        large = queries * counts[first] >= least
        order = np.argsort(which, kind="stable")
        ends = np.cumsum(queries)
        groups = [
            (order[ends[name] - queries[name] : ends[name]], np.sort(self[first[name]]))
            for name in np.flatnonzero(large).tolist()
        ]
        return groups, ~large[which]

    def levels(self) -> Iterator[tuple[float, RowLists]]:
        """Yield every gain that entries have, ascending, and the lists of the entries that have it.

        >>> graded = RowLists(np.array([4, 0, 2]), np.array([0, 2]), np.array([2, 3]), np.array([1.0, 3.0, 1.0]))
        >>> for gain, lists in graded.levels():
        ...     print(gain, ", ".join(str(rows.tolist()) for rows in lists))
        1.0 [4], [2]
        3.0 [0], []
        """
        if self.gains is None or not len(self.gains):
            yield 1.0, self
            return
        for gain in np.unique(self.gains):
            yield float(gain), self._entries(self.gains == gain)

    def between(self, start: int, stop: int) -> RowLists:
        """Return the lists of the gallery rows ``start`` to ``stop``, numbered from ``start``, without gains.

        >>> RowLists.of([[4, 0], [2]]).between(2, 5).flat()
        (array([0, 1]), array([2, 0]))
        """
        own = self._entries((self.values >= start) & (self.values < stop))
        return RowLists(own.values - start, own.starts, own.stops)

    def _entries(self, chosen: NDArray[np.bool_]) -> RowLists:
        before = np.append(0, np.cumsum(chosen))
        return RowLists(self.values[chosen], before[self.starts], before[self.stops])

    def flat(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return all entries of all lists: the query (M,) and the row (M,) of each.

        >>> RowLists.of([[4, 0], [], [2]]).flat()
        (array([0, 0, 2]), array([4, 0, 2]))
        """
        counts = self.counts
        owner = np.repeat(np.arange(len(self)), counts)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        return owner, self.values[self.starts[owner] + within]

    def union(self, other: RowLists) -> RowLists:
        """Return for every query the rows that are in either list, ascending."""
        (owner, rows), (other_owner, other_rows) = self.flat(), other.flat()
        size = 1 + max(rows.max(initial=0), other_rows.max(initial=0))
        both = np.union1d(owner * size + rows, other_owner * size + other_rows)
        stops = np.cumsum(np.bincount(both // size, minlength=len(self)))
        return RowLists(both % size, np.append(0, stops[:-1]), stops)

    def check(self, what: str, queries: int, gallery: int) -> None:
        """Refuse lists for another number of queries, rows outside the gallery, and rows named twice."""
        if len(self) != queries:
            raise DataError(f"'{what}' has {len(self)} lists for {queries} queries.", expected="one list per query")
        owner, rows = self.flat()
        outside = np.flatnonzero((rows < 0) | (rows >= gallery))
        if len(outside):
            own = self[query := int(owner[outside[0]])]
            raise DataError(
                f"'{what}' of query {query} names rows {own.min()} to {own.max()}.",
                expected=f"rows of the gallery, 0 to {gallery - 1}",
                to_do="turn ids into rows with gallery.ids.find(ids), and drop the -1 it gives for absent ones.",
            )
        named = np.sort(owner * gallery + rows)
        twice = np.flatnonzero(named[1:] == named[:-1])
        if len(twice):
            query = int(named[twice[0]] // gallery)
            raise DataError(f"'{what}' of query {query} names a row twice.", expected="every row once")
