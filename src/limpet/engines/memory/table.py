"""Rows of one generation in RAM, with the commits that added and removed each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from limpet.engines.filters import Filter, Metadata
from limpet.engines.ledger import best_first
from limpet.engines.store import Vectors

FOREVER = np.iinfo(np.int64).max
_FILTERS_KEPT = 16
_SCORES_AT_ONCE = 1 << 24
_COPIED_BELOW = 0.75
"""Share of the rows that a search may find, below which these are copied and only the copies are compared."""


@dataclass(frozen=True)
class Addition:
    """Rows to add.

    Args:
        items: Numbers of the items, the same in all tables, int64 (N,).
        versions: Versions of the items when written, int64 (N,).
        vectors: float32 (N, width).
    """

    ids: Sequence[str]
    items: NDArray[np.int64]
    versions: NDArray[np.int64]
    vectors: Vectors
    metadata: Sequence[Metadata]


class MemoryTable:
    """Append-only rows: a removal records its commit, so that a search at an older pointer finds the rows of its time.

    One thread at a time adds rows, removes rows and takes views; the use of a view needs no lock.

    Args:
        created: Number of the commit that created the generation.
    """

    def __init__(self, width: int, created: int) -> None:
        self.width, self.created, self.dropped = width, created, int(FOREVER)
        self.places: dict[str, int] = {}
        self._ids: list[str] = []
        self._metadata: list[Metadata] = []
        self._vectors = np.empty((0, width), np.float32)
        self._numbers = np.empty((4, 0), np.int64)  # item, version, commit of the addition, commit of the removal
        self._matching: dict[str, NDArray[np.bool_]] = {}
        self._changed = created  # last commit that changed it
        self._last: TableView | None = None  # as of that commit

    def __len__(self) -> int:
        return len(self.places)

    @property
    def dead(self) -> int:
        """Number of rows that were removed and are kept for older pointers."""
        return len(self._ids) - len(self.places)

    @property
    def bytes(self) -> int:
        """Size of the vectors, including removed ones."""
        return len(self._ids) * self.width * self._vectors.itemsize

    def add(self, rows: Addition, sequence: int) -> None:
        """Add rows, whose ids do not exist yet, as of a commit."""
        first, last = len(self._ids), len(self._ids) + len(rows.ids)
        self._reserve(last)
        self._vectors[first:last] = rows.vectors
        new = self._numbers[:, first:last]
        new[0], new[1], new[2], new[3] = rows.items, rows.versions, sequence, FOREVER
        self._metadata.extend(rows.metadata)
        self._ids.extend(rows.ids)
        self.places.update(zip(rows.ids, range(first, last), strict=True))
        if last > first:
            self._changed, self._last = sequence, None

    def _reserve(self, rows: int) -> None:
        """Reserve capacity; views keep their arrays."""
        if rows > len(self._vectors):
            room = max(rows, 2 * len(self._vectors)) - len(self._vectors)
            self._vectors = np.concatenate([self._vectors, np.empty((room, self.width), np.float32)])
            self._numbers = np.concatenate([self._numbers, np.empty((4, room), np.int64)], axis=1)

    def remove(self, ids: Sequence[str], sequence: int) -> None:
        """Remove rows as of a commit; unknown ids are ignored."""
        gone = [self.places.pop(identifier) for identifier in ids if identifier in self.places]
        self._numbers[3, gone] = sequence
        if gone:
            self._changed, self._last = sequence, None

    def drop(self, sequence: int) -> None:
        """Remove the generation as of a commit."""
        self.remove(list(self.places), sequence)
        self.dropped = min(self.dropped, sequence)

    def view(self, sequence: int) -> TableView:
        """Return the rows as of a commit."""
        if self._last is not None and sequence >= self._changed:
            return self._last
        count = len(self._ids)
        item, version, born, died = self._numbers[:, :count]
        visible = (born <= sequence) & (died > sequence)
        view = TableView(self, self._ids, self._metadata, self._vectors[:count], item, version, visible)
        if sequence >= self._changed:
            self._last = view
        return view

    def kept_since(self, sequence: int, numbered: Callable[[Sequence[str]], NDArray[np.int64]]) -> MemoryTable:
        """Return a table without the rows that were removed by this commit or earlier, with its items renumbered."""
        count = len(self._ids)
        left = np.flatnonzero(self._numbers[3, :count] > sequence)
        kept = MemoryTable(self.width, self.created)
        kept.dropped, kept._changed = self.dropped, self._changed
        kept._ids = [self._ids[place] for place in left]
        kept._metadata = [self._metadata[place] for place in left]
        kept._vectors, kept._numbers = self._vectors[left], self._numbers[:, left]
        kept._numbers[0] = numbered(kept._ids)
        kept.places = {kept._ids[row]: int(row) for row in np.flatnonzero(kept._numbers[3] == FOREVER)}
        return kept

    def matching(self, where: Filter, count: int) -> NDArray[np.bool_]:
        """Return which of the first rows match a filter; the result is cached, since a row's metadata never changes."""
        from limpet.engines.memory.filters import mask  # Arrow takes a while to load

        name = repr(where)  # as values, 1 and true would be equal
        known = self._matching.pop(name, np.empty(0, np.bool_))
        known = np.concatenate([known, mask(where, self._metadata[len(known) : count])])
        self._matching[name] = known
        for oldest in list(self._matching)[:-_FILTERS_KEPT]:
            self._matching.pop(oldest, None)
        return known[:count]


@dataclass(frozen=True)
class Searchable:
    """Rows that a search compares.

    Args:
        places: Positions of the rows in their table, int64 (N,).
        part: The same as an index: a slice, if possible.
        vectors: float32 (N, width).
        hidden: Rows that it must not find, bool (N,); None if it may find all.
    """

    places: NDArray[np.int64]
    part: NDArray[np.int64] | slice
    ids: list[str]
    vectors: Vectors
    hidden: NDArray[np.bool_] | None


@dataclass(frozen=True, eq=False)
class TableView:
    """Rows as of one commit; the lists may grow meanwhile, the arrays do not.

    Args:
        vectors: float32 (N, width).
        items: Numbers of their items, int64 (N,).
        versions: Versions of their items when written, int64 (N,).
        visible: Which of them exist as of the commit, bool (N,).
    """

    table: MemoryTable
    ids: list[str]
    metadata: list[Metadata]
    vectors: Vectors
    items: NDArray[np.int64]
    versions: NDArray[np.int64]
    visible: NDArray[np.bool_]
    _searchable: dict[tuple[TableView, ...], Searchable] = field(default_factory=dict)

    def searchable(self, others: tuple[TableView, ...]) -> Searchable:
        """Return the rows whose items no other view has; cached for the next search."""
        known = self._searchable.get(others)
        if known is None:
            known = self._without(others)
            for earlier in filter(None, list(self._searchable)):  # the other views have changed
                self._searchable.pop(earlier, None)
            self._searchable[others] = known
        return known

    def _without(self, others: tuple[TableView, ...]) -> Searchable:
        left = self.visible.copy()
        for other in others:
            taken = other.items[other.visible]
            there = np.zeros(1 + max(self.items.max(initial=0), taken.max(initial=0)), np.bool_)
            there[taken] = True
            left &= ~there[self.items]
        places = np.flatnonzero(left)
        first, last = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
        if len(places) < _COPIED_BELOW * (last - first):
            return Searchable(places, places, [self.ids[place] for place in places], self.vectors[places], None)
        hidden = None if len(places) == last - first else ~left[first:last]
        part = slice(first, last)
        return Searchable(np.arange(first, last), part, self.ids[part], self.vectors[part], hidden)

    def best(
        self, queries: Vectors, k: int, others: tuple[TableView, ...], where: Filter | None
    ) -> list[tuple[list[int], Vectors]]:
        """Return positions and scores of the k best rows per query, ties by id.

        Args:
            queries: float32 (Q, width).
            k: Rows per query.
            others: Views of the same commit, whose items are left out.
            where: Condition on the rows.
        """
        among = self.searchable(others)
        hidden = among.hidden
        if where is not None:
            unmet = ~self.table.matching(where, len(self.vectors))[among.part]
            hidden = unmet if hidden is None else hidden | unmet
        k = min(k, len(among.places) - (0 if hidden is None else int(np.count_nonzero(hidden))))
        found = []
        step = max(1, _SCORES_AT_ONCE // max(1, len(among.vectors)))
        for first in range(0, len(queries), step):
            scores = queries[first : first + step] @ among.vectors.T
            if hidden is not None:
                np.copyto(scores, -np.inf, where=hidden)
            for row in scores:
                best = best_first(among.ids, row, k)
                found.append((among.places[best].tolist(), row[best]))
        return found
