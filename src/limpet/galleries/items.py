"""Pages and random samples of a gallery's items, and vectors of two models."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Collection, Iterator, Sequence

from limpet.engines.store import Items, Store, Vectors

ITEMS_AT_ONCE = 8192


def pages(store: Store, *, lacking: str | None = None) -> Iterator[Items]:
    """Yield all items by id, or those without a vector of a generation; concurrent writes are permitted."""
    after = ""
    while len(items := store.scan(after=after, limit=ITEMS_AT_ONCE, lacking=lacking)):
        after = items.ids[-1]
        yield items


def draw(seed: int, identifier: str) -> bytes:
    """Return random bytes that depend on the seed and the id alone: the items with the smallest are a random sample."""
    return hashlib.blake2b(f"{seed}:{identifier}".encode(), digest_size=8).digest()


def sample(
    store: Store,
    size: int,
    seed: int,
    *,
    holding: Collection[str] | None = None,
    lacking: str | None = None,
    apart_from: Collection[str] = (),
) -> list[tuple[str, frozenset[str]]]:
    """Return random items, drawn by `draw`, and the generations that each has a vector of."""
    drawn = (
        (draw(seed, identifier), identifier, generations)
        for items in pages(store, lacking=lacking)
        for identifier, generations in zip(items.ids, items.generations, strict=True)
        if (holding is None or not generations.isdisjoint(holding)) and identifier not in apart_from
    )
    return [(identifier, generations) for _, identifier, generations in heapq.nsmallest(size, drawn)]


def vectors_of_both(store: Store, first: str, second: str, ids: Sequence[str]) -> tuple[list[str], Vectors, Vectors]:
    """Return the given items that have vectors of two generations, and these vectors, in index form (n, width)."""
    ours, mine = store.vectors(first, ids)
    both, theirs = store.vectors(second, ours)
    place = {identifier: row for row, identifier in enumerate(ours)}
    return both, mine[[place[one] for one in both]], theirs
