"""Reading every vector of a generation, and counting what is right and what is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.embeddings.embedding_set import shown
from holdfast.errors import GalleryError
from holdfast.galleries.state import Generation
from holdfast.stores.base import Items, Store

ITEMS_AT_ONCE = 8192
NAMED = 20  # ids kept of everything that is wrong


@dataclass(frozen=True)
class Census:
    """What was counted, one number per kind and the first ids of each.

    Args:
        generation: Whose vectors.
        items: Items of the gallery.
        right: Items with a vector of the item as it is now, of the right width, that is a point of the space.
        lacking: Items without a vector.
        wrong: Rows that are not right, by kind: "orphan" (no such item), "outdated" (made of an earlier version),
            "width", "no point" (NaN, infinite, zero, or out of the space), "repeated" (an id twice), "unmarked" (the
            item does not know of it) and "lost" (the item says there is one).
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
        """Refuse a generation with a wrong row.

        Raises:
            GalleryError: There is one.
        """
        if self.wrong:
            found = "; ".join(f"{count} {kind}: {shown(self.named[kind], count)}" for kind, count in self.wrong.items())
            raise GalleryError(
                f"Vectors of {self.generation} are wrong: {found}.",
                expected="one right vector per item",
                to_do="`holdfast gallery doctor` says what to do about each; nothing was changed.",
            )


def census(store: Store, generation: Generation, *, on_step: Callable[[dict[str, Any]], None] | None = None) -> Census:
    """Count the rows of a generation against the items, reading all of them.

    Args:
        store: The gallery's.
        generation: Whose vectors.
        on_step: Told "done" and "total" rows.
    """
    found: dict[str, list[str]] = {}
    counts: dict[str, int] = {}

    def tell(kind: str, ids: Sequence[str]) -> None:
        if len(ids):
            counts[kind] = counts.get(kind, 0) + len(ids)
            found.setdefault(kind, []).extend(list(ids)[: NAMED - len(found.get(kind, []))])

    space, seen, right = generation.geometry, set[str](), 0
    total = store.pointer().covered([generation.name])
    for ids, versions, vectors in store.scan_rows(generation.name, batch=ITEMS_AT_ONCE):
        names = np.array(ids, object)
        repeated = np.array([identifier in seen for identifier in ids], bool)
        seen.update(ids)
        wrong = np.zeros(len(ids), bool)
        wrong_width = vectors.shape[1] != space.index_dim
        if not wrong_width:
            wrong[space.check(np.ascontiguousarray(space.from_index_form(vectors)))] = True
        tell("repeated", names[repeated].tolist())
        tell("width", ids if wrong_width else [])
        tell("no point", names[wrong].tolist())
        standing = _standing(store.fetch(ids), ids, versions, generation.name)
        for kind in ("orphan", "outdated", "unmarked"):
            tell(kind, [identifier for identifier, what in zip(ids, standing, strict=True) if what == kind])
        fine = np.array([what == "" for what in standing], bool)
        right += 0 if wrong_width else int((fine & ~wrong & ~repeated).sum())
        if on_step is not None:
            on_step({"done": len(seen), "total": total})
    items, lacking = _without_vectors(store, generation.name, seen, tell)
    wrong_kinds = {kind: count for kind, count in counts.items() if kind != "lacking"}
    return Census(generation.name, items, right, lacking, wrong_kinds, found)


def _standing(items: Items, ids: Sequence[str], versions: Any, generation: str) -> list[str]:
    """Return what is wrong with every row as the items know it; empty for nothing."""
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


def _without_vectors(
    store: Store, generation: str, seen: set[str], tell: Callable[[str, Sequence[str]], None]
) -> tuple[int, int]:
    """Return how many items there are and how many lack a vector; tell of those that should have one."""
    after, items, lacking = "", 0, 0
    while len(part := store.scan(after=after, limit=ITEMS_AT_ONCE)):
        items, after = items + len(part), part.ids[-1]
        without = [one for one, holding in zip(part.ids, part.generations, strict=True) if generation not in holding]
        marked = [
            one
            for one, holding in zip(part.ids, part.generations, strict=True)
            if generation in holding and one not in seen
        ]
        lacking += len(without)
        tell("lacking", without)
        tell("lost", marked)
    return items, lacking
