"""Check of every vector of a generation: counts of valid and invalid rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limpet.engines.store import Items, Store
from limpet.errors import GalleryError, shown
from limpet.galleries.items import ITEMS_AT_ONCE, pages
from limpet.galleries.state import Generation
from limpet.support.progress import Progress, Told, listener, showing

_NAMED = 20  # maximum number of ids to keep of each kind


@dataclass(frozen=True)
class VectorCheck:
    """Number of valid vectors of a generation, of invalid ones by kind, and the first ids of each kind.

    Args:
        right: Items with a vector of their current version, of the right width, that is a point of the space.
        wrong: Number of invalid rows by kind: "orphan" (no such item), "outdated" (made of an earlier version),
            "width", "no point" (NaN, infinite, zero, or out of the space), "repeated" (an id twice), "unmarked" (the
            item does not record it) and "lost" (the item records a missing vector).
        named: The first ids of every kind, and of "lacking".
    """

    generation: str
    items: int
    right: int
    lacking: int
    wrong: dict[str, int]
    named: dict[str, list[str]]

    def shown_lacking(self) -> str:
        """Return the first ids without a vector, in words."""
        return shown(self.named.get("lacking", []), self.lacking)

    def refuse_wrong(self) -> None:
        """Refuse a generation with an invalid row.

        Raises:
            GalleryError: The generation has an invalid row.
        """
        if self.wrong:
            kinds = "; ".join(f"{count} {kind}: {shown(self.named[kind], count)}" for kind, count in self.wrong.items())
            raise GalleryError(
                f"Vectors of {self.generation} are wrong: {kinds}.",
                expected="one right vector per item",
                to_do="`limpet doctor` says what to do about each.",
                intact="Nothing was changed.",
            )


@showing("check")
def check_vectors(store: Store, generation: Generation, *, progress: Progress[Told] = None) -> VectorCheck:
    """Read all rows of a generation, and compare them with the items.

    Others may write meanwhile: rows that they replaced or removed are not counted. Memory holds eight bytes per row.

    Args:
        store: Store of the gallery.
        generation: The generation.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "done" and "total" rows.
    """
    counts: Counter[str] = Counter()
    named: dict[str, list[str]] = {}

    def note(kind: str, ids: Sequence[str] | NDArray[np.object_]) -> None:
        if len(ids):
            counts[kind] += len(ids)
            known = named.setdefault(kind, [])
            known.extend(ids[: _NAMED - len(known)])

    name, space, right, read = generation.name, generation.geometry, 0, 0
    pointer = store.pointer()
    began, total = pointer.sequence, pointer.covered([name])
    hashes = [np.empty(0, np.int64)]
    for ids, versions, vectors in store.scan_rows(name, batch=ITEMS_AT_ONCE):
        names = np.array(ids, object)
        hashes.append(_hashes(ids))
        no_point = np.zeros(len(ids), bool)
        wrong_width = vectors.shape[1] != space.index_dim
        if not wrong_width:
            no_point[space.check(np.ascontiguousarray(space.from_index_form(vectors)))] = True
        standing = np.array(_standing(store.fetch(ids), ids, versions, name), object)
        suspects = np.flatnonzero(standing != "")
        standing[suspects[_written_since(store, began, name, names[suspects].tolist(), lost=False)]] = "written"
        note("width", ids if wrong_width else [])
        note("no point", names[no_point])
        for kind in ("orphan", "outdated", "unmarked"):
            note(kind, names[standing == kind])
        right += 0 if wrong_width else int(((standing == "") & ~no_point).sum())
        read += len(ids)
        listener(progress)({"done": read, "total": total})
    known = np.concatenate(hashes)
    del hashes
    known.sort()
    repeated = _repeated(store, name, np.unique(known[1:][known[1:] == known[:-1]]))
    note("repeated", repeated)
    right -= min(right, len(repeated))
    count = 0
    for items in pages(store):
        count += len(items)
        holding = np.array([name in generations for generations in items.generations], bool)
        names = np.array(items.ids, object)
        note("lacking", names[~holding])
        lost = names[holding & ~_among(_hashes(items.ids), known)]
        note("lost", lost[~_written_since(store, began, name, lost.tolist(), lost=True)])
    lacking = counts.pop("lacking", 0)
    return VectorCheck(name, count, right, lacking, dict(counts), named)


def _hashes(ids: Sequence[str]) -> NDArray[np.int64]:
    return np.fromiter(map(hash, ids), np.int64, len(ids))


def _among(hashes: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which numbers are among sorted ones."""
    places = known.searchsorted(hashes)
    places[places == len(known)] = 0
    return known[places] == hashes if len(known) else np.zeros(len(hashes), np.bool_)


def _repeated(store: Store, generation: str, hashes: NDArray[np.int64]) -> list[str]:
    """Return the id of every further row of an item, of ids with these hashes, which are sorted."""
    seen, found = set[str](), list[str]()
    for ids, _, _ in store.scan_rows(generation, batch=ITEMS_AT_ONCE) if len(hashes) else ():
        for row in np.flatnonzero(_among(_hashes(ids), hashes)).tolist():
            found += [ids[row]] if ids[row] in seen else []
            seen.add(ids[row])
    return found


def _written_since(store: Store, began: int, generation: str, ids: list[str], *, lost: bool) -> NDArray[np.bool_]:
    """Return which items were written, filled or deleted since a commit; no row of ``lost`` ones was read."""
    if not ids or (now := store.pointer().sequence) == began:
        return np.zeros(len(ids), np.bool_)
    items = store.fetch(ids)
    versions, rows = dict(zip(items.ids, items.versions.tolist(), strict=True)), set(store.vectors(generation, ids)[0])
    return np.array(
        [began < versions[one] <= now or (lost and one in rows) if one in versions else one not in rows for one in ids],
        np.bool_,
    )


def _standing(items: Items, ids: Sequence[str], versions: Iterable[int], generation: str) -> list[str]:
    """Return the problem of every row according to the items; empty for none."""
    place = {identifier: row for row, identifier in enumerate(items.ids)}
    result = []
    for identifier, version in zip(ids, versions, strict=True):
        row = place.get(identifier)
        if row is None:
            result.append("orphan")
        elif generation not in items.generations[row]:
            result.append("unmarked")
        else:
            result.append("" if items.versions[row] == version else "outdated")
    return result
