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

    space, seen, right = generation.geometry, set[str](), 0
    total = store.pointer().covered([generation.name])
    for ids, versions, vectors in store.scan_rows(generation.name, batch=ITEMS_AT_ONCE):
        names = np.array(ids, object)
        repeated = np.array([identifier in seen for identifier in ids], bool)
        seen.update(ids)
        no_point = np.zeros(len(ids), bool)
        wrong_width = vectors.shape[1] != space.index_dim
        if not wrong_width:
            no_point[space.check(np.ascontiguousarray(space.from_index_form(vectors)))] = True
        standing = np.array(_standing(store.fetch(ids), ids, versions, generation.name), object)
        note("repeated", names[repeated])
        note("width", ids if wrong_width else [])
        note("no point", names[no_point])
        for kind in ("orphan", "outdated", "unmarked"):
            note(kind, names[standing == kind])
        right += 0 if wrong_width else int(((standing == "") & ~no_point & ~repeated).sum())
        listener(progress)({"done": len(seen), "total": total})
    count = 0
    for items in pages(store):
        count += len(items)
        holding = [generation.name in generations for generations in items.generations]
        note("lacking", [one for one, holds in zip(items.ids, holding, strict=True) if not holds])
        note("lost", [one for one, holds in zip(items.ids, holding, strict=True) if holds and one not in seen])
    lacking = counts.pop("lacking", 0)
    return VectorCheck(generation.name, count, right, lacking, dict(counts), named)


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
