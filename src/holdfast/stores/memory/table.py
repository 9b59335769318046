"""Rows of one generation in RAM, with the commits between which each of them was there; filters over metadata."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from holdfast.stores.base import Vectors
from holdfast.stores.checks import damaged
from holdfast.stores.filters import And, Condition, Exists, Filter, In, Metadata, Not, Or, path_of
from holdfast.stores.ledger import best_first

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

    def view(self, sequence: int) -> View:
        """Return the rows as of a commit."""
        count = len(self._ids)
        item, version, born, died = self._numbers[:, :count]
        visible = (born <= sequence) & (died > sequence)
        return View(self, self._ids, self._metadata, self._vectors[:count], item, version, visible)

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
        from holdfast.stores.memory.table import mask  # Arrow takes a while to load

        name = repr(where)  # as values, 1 and true would be equal
        known = self._matching.pop(name, np.empty(0, np.bool_))
        known = np.concatenate([known, mask(where, self._metadata[len(known) : count])])
        self._matching[name] = known
        for oldest in list(self._matching)[:-_FILTERS_KEPT]:
            self._matching.pop(oldest, None)
        return known[:count]


@dataclass(frozen=True)
class View:
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

    def allowed(self, others: Sequence[View], where: Filter | None) -> NDArray[np.bool_]:
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


_TYPES = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
_COMPARE = {
    "=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip


def mask(where: Filter, items: Sequence[Metadata]) -> NDArray[np.bool_]:
    """Say which items meet a checked filter, bool (N,).

    >>> mask(Not(Condition("price", "<", 5)), [{"price": 4}, {"price": 6}, {}])
    array([False,  True,  True])

    Raises:
        StoreError: An item has a value of another type.
    """
    match where:
        case And(parts):
            found = np.ones(len(items), np.bool_)
            for part in parts:
                found &= mask(part, items)
            return found
        case Or(parts):
            found = np.zeros(len(items), np.bool_)
            for part in parts:
                found |= mask(part, items)
            return found
        case Not(part):
            return ~mask(part, items)
        case Exists(column):
            return np.array([value is not None for value in _values(column, items)], np.bool_)
        case Condition(column, comparison, value):
            return _plain(_COMPARE[comparison](_array(column, type(value), items), value))
        case In(column, values):
            found = np.zeros(len(items), np.bool_)
            for kind in {type(value) for value in values}:  # in JSON several
                among = pa.array([value for value in values if type(value) is kind], _TYPES[kind])
                found |= _plain(pc.is_in(_array(column, kind, items), value_set=among))
            return found


def _values(column: str, items: Sequence[Metadata]) -> list[Any]:
    """Return the values of a column, None for those that are missing."""
    name, *keys = path_of(column)
    found: list[Any] = [metadata.get(name) for metadata in items]
    for key in keys:
        found = [value.get(key) if isinstance(value, dict) else None for value in found]
    return found


def _array(column: str, kind: type, items: Sequence[Metadata]) -> pa.Array:
    """Return the values of a column that can be compared with one of a type, null for all others."""
    values = _values(column, items)
    if len(path_of(column)) > 1:
        number = kind in (int, float)
        alike = [type(value) is kind or (number and type(value) in (int, float)) for value in values]
        values = [value if fits else None for value, fits in zip(values, alike, strict=True)]
        kind = float if number else kind
    try:
        return pa.array(values, _TYPES[kind])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise damaged(f"The metadata column '{column}'", str(error)) from error


def _plain(found: pa.Array) -> NDArray[np.bool_]:
    """Return what a comparison says; false where a value is missing."""
    plain: NDArray[np.bool_] = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return plain
