"""Rows of one generation in RAM, with the commits between which each of them was there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limpet.engines.filters import Filter, Metadata
from limpet.engines.ledger import best_first
from limpet.engines.store import Vectors

FOREVER = np.iinfo(np.int64).max
_FILTERS_KEPT = 16
_SCORES_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class Addition:
    """Rows to add.

    Args:
        ids: One per row.
        items: Numbers of the items, the same in all tables, int64 (N,).
        versions: Versions of the items when written, int64 (N,).
        vectors: float32 (N, width).
        metadata: Of the items.
    """

    ids: Sequence[str]
    items: NDArray[np.int64]
    versions: NDArray[np.int64]
    vectors: Vectors
    metadata: Sequence[Metadata]


class MemoryTable:
    """Rows are only added, and a removal notes its commit: a search at an older pointer finds what was there then.

    One thread at a time adds and removes, and takes views; what is done with a view needs no lock.

    Args:
        width: Length of the vectors.
        created: Number of the commit that created the generation.
    """

    def __init__(self, width: int, created: int) -> None:
        self.width, self.created, self.dropped = width, created, int(FOREVER)
        self.places: dict[str, int] = {}
        self._ids: list[str] = []
        self._metadata: list[Metadata] = []
        self._vectors = np.empty((0, width), np.float32)
        self._numbers = np.empty((4, 0), np.int64)  # item, version, first commit, commit of the removal
        self._matching: dict[str, NDArray[np.bool_]] = {}

    def __len__(self) -> int:
        return len(self.places)

    @property
    def dead(self) -> int:
        """Number of rows that were removed and are kept for older pointers."""
        return len(self._ids) - len(self.places)

    @property
    def bytes(self) -> int:
        """Size of the vectors, removed ones included."""
        return len(self._ids) * self.width * self._vectors.itemsize

    def add(self, rows: Addition, sequence: int) -> None:
        """Add rows, none of which has an id that is there, as of a commit."""
        first, last = len(self._ids), len(self._ids) + len(rows.ids)
        self._reserve(last)
        self._vectors[first:last] = rows.vectors
        new = self._numbers[:, first:last]
        new[0], new[1], new[2], new[3] = rows.items, rows.versions, sequence, FOREVER
        self._metadata.extend(rows.metadata)
        self._ids.extend(rows.ids)
        self.places.update(zip(rows.ids, range(first, last), strict=True))

    def _reserve(self, rows: int) -> None:
        """Make room; views keep the arrays that they have."""
        if rows > len(self._vectors):
            room = max(rows, 2 * len(self._vectors)) - len(self._vectors)
            self._vectors = np.concatenate([self._vectors, np.empty((room, self.width), np.float32)])
            self._numbers = np.concatenate([self._numbers, np.empty((4, room), np.int64)], axis=1)

    def remove(self, ids: Sequence[str], sequence: int) -> None:
        """Remove rows as of a commit; unknown ids are passed over."""
        gone = [self.places.pop(identifier) for identifier in ids if identifier in self.places]
        self._numbers[3, gone] = sequence

    def drop(self, sequence: int) -> None:
        """Remove the generation as of a commit."""
        self.remove(list(self.places), sequence)
        self.dropped = min(self.dropped, sequence)

    def view(self, sequence: int) -> TableView:
        """Return the rows as of a commit."""
        count = len(self._ids)
        item, version, born, died = self._numbers[:, :count]
        visible = (born <= sequence) & (died > sequence)
        return TableView(self, self._ids, self._metadata, self._vectors[:count], item, version, visible)

    def kept_since(self, sequence: int, numbered: Callable[[Sequence[str]], NDArray[np.int64]]) -> MemoryTable:
        """Return a table without the rows that were removed by this commit or before it, its items numbered anew."""
        count = len(self._ids)
        left = np.flatnonzero(self._numbers[3, :count] > sequence)
        kept = MemoryTable(self.width, self.created)
        kept.dropped = self.dropped
        kept._ids = [self._ids[place] for place in left]
        kept._metadata = [self._metadata[place] for place in left]
        kept._vectors, kept._numbers = self._vectors[left], self._numbers[:, left]
        kept._numbers[0] = numbered(kept._ids)
        kept.places = {kept._ids[row]: int(row) for row in np.flatnonzero(kept._numbers[3] == FOREVER)}
        return kept

    def matching(self, where: Filter, count: int) -> NDArray[np.bool_]:
        """Say which of the first rows match a filter; a row's metadata never changes, so the answer is kept."""
        from limpet.engines.memory.filters import mask  # Arrow takes a while to load

        name = repr(where)  # as values, 1 and true would be equal
        known = self._matching.pop(name, np.empty(0, np.bool_))
        known = np.concatenate([known, mask(where, self._metadata[len(known) : count])])
        self._matching[name] = known
        for oldest in list(self._matching)[:-_FILTERS_KEPT]:
            self._matching.pop(oldest, None)
        return known[:count]


@dataclass(frozen=True)
class TableView:
    """Rows as of one commit; the lists may grow meanwhile, the arrays do not.

    Args:
        table: Where they are.
        ids: Their ids.
        metadata: Their metadata.
        vectors: float32 (N, width).
        items: Numbers of their items, int64 (N,).
        versions: Versions of their items when written, int64 (N,).
        visible: Which of them are there as of the commit, bool (N,).
    """

    table: MemoryTable
    ids: list[str]
    metadata: list[Metadata]
    vectors: Vectors
    items: NDArray[np.int64]
    versions: NDArray[np.int64]
    visible: NDArray[np.bool_]

    def allowed(self, others: Sequence[TableView], where: Filter | None) -> NDArray[np.bool_]:
        """Say which rows a search may return: no row of another view has the same item, and the filter holds."""
        allowed = self.visible.copy()
        for other in others:
            taken = other.items[other.visible]
            size = 1 + max(self.items.max(initial=0), taken.max(initial=0))
            there = np.zeros(size, np.bool_)
            there[taken] = True
            allowed &= ~there[self.items]
        if where is not None:
            allowed &= self.table.matching(where, len(allowed))
        return allowed

    def best(self, queries: Vectors, k: int, allowed: NDArray[np.bool_]) -> list[tuple[list[int], Vectors]]:
        """Return rows and scores of the k best for every query, of equal scores the smaller id first."""
        found = []
        step = max(1, _SCORES_AT_ONCE // max(1, len(self.vectors)))
        for first in range(0, len(queries), step):
            scores = queries[first : first + step] @ self.vectors.T
            scores[:, ~allowed] = -np.inf
            for row in scores:
                places = best_first(self.ids, row, min(k, int(allowed.sum())))
                found.append((places.tolist(), row[places]))
        return found
