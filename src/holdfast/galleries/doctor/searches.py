"""Looking whether searches find what they should, where several generations answer one query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from holdfast.galleries.doctor.findings import Finding
from holdfast.galleries.items import pages
from holdfast.galleries.router import remainders
from holdfast.galleries.state import GalleryState
from holdfast.stores.base import Pointer, Store

WHOLE = 5_000
"""Rows of a remainder up to which a search lists all of them; beyond, sampled items are searched for."""

_DEPTH = 10  # an item has to be among so many hits of its own vector
_QUERIES_AT_ONCE = 32


def remainder_findings(store: Store, state: GalleryState, sample: dict[str, list[str]]) -> list[Finding]:
    """Compare what every remainder answers with what its items say; see `Store.search`.

    Args:
        store: The gallery's.
        state: Of the gallery.
        sample: Items with a vector of each generation, by its name.
    """
    findings = []
    for generation, others in remainders(state):
        pointer = store.pointer()
        rows = sum(count for names, count in pointer.held.items() if generation in names and not names & others)
        look = _listed_whole if rows <= WHOLE else _sampled
        absent, present = look(store, state, generation, others, pointer, sample.get(generation, []))
        name = f"{generation} without {', '.join(sorted(others))}"
        for ids, what in ((absent, "are missing from"), (present, "are wrongly in")):
            if ids:
                to_do = "`holdfast gallery export` and import into a new gallery; please report this as a bug."
                what = f"items {what} the searches of {name}"
                findings.append(Finding.of_ids("remainder", "error", what, to_do, ids, generation=generation))
    return findings


Differences = tuple[list[str], list[str]]


def _listed_whole(
    store: Store, state: GalleryState, generation: str, others: frozenset[str], at: Pointer, sample: Sequence[str]
) -> Differences:
    """Let one search list all rows; return the ids that it lacks, and those that it should not have."""
    expected = {
        identifier
        for items in pages(store)
        for identifier, names in zip(items.ids, items.generations, strict=True)
        if generation in names and not names & others
    }
    space = state.by_name[generation].geometry
    query = np.zeros((1, space.index_dim), np.float32)
    query[0, 0] = 1.0
    most = at.covered([generation]) + 1
    hits = store.search(query, most, generation=generation, without=others, at=at)
    listed = set(hits.ids[0])
    return sorted(expected - listed), sorted(listed - expected)


def _sampled(
    store: Store, state: GalleryState, generation: str, others: frozenset[str], at: Pointer, sample: Sequence[str]
) -> Differences:
    """Search for sampled items with their own vectors; return those not found, and those that should not be."""
    space = state.by_name[generation].geometry
    holding = dict(zip((items := store.fetch(sample)).ids, items.generations, strict=True))
    ids, forms = store.vectors(generation, sample)
    absent, present = [], []
    for start in range(0, len(ids), _QUERIES_AT_ONCE):
        part = ids[start : start + _QUERIES_AT_ONCE]
        stored = forms[start : start + len(part)]
        queries = space.index_form(np.ascontiguousarray(space.from_index_form(stored)), "query")
        hits = store.search(queries, _DEPTH, generation=generation, without=others, at=at)
        own = np.einsum("nd,nd->n", queries, stored)
        for place, identifier in enumerate(part):
            found = identifier in hits.ids[place]
            wanted = not holding.get(identifier, frozenset()) & others
            scores = hits.scores[place]
            crowded = len(scores) == _DEPTH and scores[-1] >= own[place] - 1e-5  # many copies of one vector
            if wanted and not found and not crowded:
                absent.append(identifier)
            if found and not wanted:
                present.append(identifier)
    return absent, present
