"""Checks of a gallery's vectors: whether they are valid, of their model, and found by searches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.engines.store import Pointer, Store
from limpet.errors import shown
from limpet.galleries.doctor.findings import NAMED, Finding, Severity
from limpet.galleries.items import pages, vectors_of_both
from limpet.galleries.links import read_adapter
from limpet.galleries.router import remainders
from limpet.galleries.state import GalleryState, Generation
from limpet.galleries.vector_check import check_vectors
from limpet.support.progress import Progress, Told
from limpet.upgrade.vector_sources import VectorSource

Differences = tuple[list[str], list[str]]

_TOLERANCE = 0.03
"""Maximum relative distance of a vector from what its model now makes: rounding on other machines, in other batches
and in half precision stays below 0.01; vectors of another model differ by 0.3 and more."""
_ALIKE = 0.01  # share of a generation with identical vectors that is no accident
WHOLE = 5_000
"""Maximum rows of a remainder for a search that lists all of them; beyond, sampled items are searched for."""

_DEPTH = 10  # an item must be among this many hits for its own vector
_QUERIES_AT_ONCE = 32

_UPSERT = "embed these items again and `limpet gallery upsert` them"
_REBUILD = (
    "`limpet gallery export` what is right, and import it into a new gallery; until then searches may return these"
)
_WRONG: dict[str, tuple[str, str]] = {
    "orphan": ("vectors belong to no item of the gallery", _REBUILD),
    "outdated": ("vectors were made of an earlier version of their item", _UPSERT),
    "width": ("vectors have another length than the generation", _UPSERT),
    "no point": ("vectors are no points of their space (NaN, infinite, zero or too long)", _UPSERT),
    "repeated": ("ids have more than one vector", _REBUILD),
    "unmarked": ("vectors are there of which their items do not know", _REBUILD),
    "lost": ("items should have a vector and have none", _UPSERT),
}


def wrong_vectors(store: Store, generation: Generation, progress: Progress[Told]) -> list[Finding]:
    """Check every vector of a generation, and report invalid ones."""
    check, findings = check_vectors(store, generation, progress=progress), []
    for kind, count in check.wrong.items():
        what, to_do = _WRONG[kind]
        what = f"{what}, in {generation.name}"
        ids = check.named[kind]
        findings.append(Finding.of_ids(kind, "error", what, to_do, ids, count=count, generation=generation.name))
    return findings


def repeated_vectors(store: Store, generation: Generation) -> list[Finding]:
    """Check for one vector with several ids; memory holds eight bytes per row, and rows are read once or twice."""
    keys = np.sort(np.concatenate([np.empty(0, np.uint64), *(hashes for _, hashes in _keys(store, generation))]))
    several, counts = _several(keys)
    if not len(several):
        return []
    groups: dict[int, list[str]] = {}
    for ids, hashes in _keys(store, generation):
        for row in np.flatnonzero(np.isin(hashes, several)):
            group = groups.setdefault(int(hashes[row]), []) if len(groups) < NAMED else groups.get(int(hashes[row]), [])
            if len(group) < NAMED:
                group.append(ids[row])
    largest = int(several[np.argmax(counts)])
    example = groups.get(largest) or max(groups.values(), key=len)
    if not _same(store, generation, example):
        return []
    surplus, most = int((counts - 1).sum()), int(counts.max())
    many = most >= max(10, _ALIKE * len(keys))
    says = (
        f"{surplus:,} vectors of {generation.name} are those of another item too, byte for byte; the most frequent one "
        f"stands for {most:,} items: {shown(example, most)}."
    )
    to_do = (
        "look at these items: a model makes one vector of many where it gets nothing to see, such as empty texts or "
        "pictures that could not be read."
        if many
        else "nothing, if these items are copies of each other."
    )
    severity: Severity = "warning" if many else "note"
    name, first = generation.name, tuple(example)
    return [Finding("same vector", severity, says, to_do, generation=name, count=surplus, ids=first)]


def _keys(store: Store, generation: Generation) -> Iterator[tuple[list[str], NDArray[np.uint64]]]:
    drawn = np.random.default_rng(20_240_229)
    width = generation.geometry.index_dim
    first, second = drawn.integers(0, 2**63, size=(2, width), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    for ids, _, vectors in store.scan_rows(generation.name):
        if vectors.shape[1] == width:
            words = np.ascontiguousarray(vectors, np.float32).view(np.uint32) * first
            yield ids, (words ^ (words >> np.uint64(29))) @ second


def _several(keys: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the numbers that occur more than once in a sorted array, ascending, and how often each does."""
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.empty(0, np.int64)
    counts = np.diff(np.append(starts, len(keys)))
    return keys[starts[counts > 1]], counts[counts > 1]


def _same(store: Store, generation: Generation, ids: Sequence[str]) -> bool:
    """Say whether the first of these vectors are equal, not only their hashes."""
    _, vectors = store.vectors(generation.name, list(ids[:2]))
    return len(vectors) == 2 and vectors[0].tobytes() == vectors[1].tobytes()


def copied_vectors(store: Store, state: GalleryState, generation: Generation, sample: Sequence[str]) -> list[Finding]:
    """Check for sampled vectors that are byte for byte those of another model of the same item."""
    findings = []
    for other in state.generations[: state.generations.index(generation)]:
        linked = {generation.mapped_from, other.mapped_from} & {generation.name, other.name}
        if linked or other.geometry != generation.geometry:
            continue
        ids, mine, theirs = vectors_of_both(store, generation.name, other.name, sample)
        wrong = tuple(np.array(ids, object)[(mine == theirs).all(axis=1)].tolist()) if ids else ()
        if wrong:
            says = (
                f"{len(wrong):,} of {len(ids):,} sampled vectors of {generation.name} are those of {other.name}, byte "
                f"for byte: {shown(wrong)}."
            )
            findings.append(_foreign(generation, wrong, says))
    return findings


def _foreign(generation: Generation, ids: tuple[str, ...], says: str) -> Finding:
    to_do = (
        f"find out what wrote them; then embed the items with {generation.fingerprint} and `limpet gallery upsert` "
        "them, or cancel the upgrade to this generation and start it again."
    )
    name, count = generation.name, len(ids)
    return Finding("another model", "error", says, to_do, generation=name, count=count, ids=ids[:NAMED])


def embedded_again(store: Store, generation: Generation, source: VectorSource, sample: Sequence[str]) -> list[Finding]:
    """Compare sampled vectors with what the generation's model now makes of the same items."""
    made = source.embed(sample)
    findings = []
    missing = sorted(set(sample) - set(made.ids))
    if missing:
        what = f"of {len(sample):,} sampled items are not in the source"
        to_do = "give a source that has all items; these were not compared."
        findings.append(Finding.of_ids("not compared", "note", what, to_do, missing, generation=generation.name))
    return findings + _compared(store, generation, made, "what its model makes of the items now")


def mapped_again(store: Store, state: GalleryState, generation: Generation, sample: Sequence[str]) -> list[Finding]:
    """Compare sampled mapped vectors with what the adapter now makes of the stored ones."""
    base = state.by_name.get(str(generation.mapped_from))
    if base is None or generation.adapter is None:
        return []
    ids, forms = store.vectors(base.name, sample)
    images = read_adapter(store, generation.adapter).map(base.geometry.from_index_form(forms))
    rows = np.flatnonzero(images.any(axis=1))
    made = EmbeddingSet(
        ids=[ids[row] for row in rows],
        vectors=np.ascontiguousarray(images[rows], np.float32),
        fingerprint=generation.fingerprint,
        space=generation.geometry,
    )
    return _compared(store, generation, made, f"what the adapter makes of {base.name} now")


def _compared(store: Store, generation: Generation, made: EmbeddingSet, what: str) -> list[Finding]:
    ids, stored = store.vectors(generation.name, list(made.ids))
    if not ids:
        return []
    again = generation.geometry.index_form(made.vectors[made.ids.find(ids)], "gallery").astype(np.float64)
    away = np.linalg.norm(stored - again, axis=1) / np.maximum(np.linalg.norm(again, axis=1), 1e-12)
    rows = np.flatnonzero(~(away <= _TOLERANCE))
    if not len(rows):
        return []
    worst = tuple(ids[row] for row in rows[np.argsort(-away[rows], kind="stable")])
    says = (
        f"{len(rows):,} of {len(ids):,} sampled vectors of {generation.name} are not {what}"
        f": {shown(worst)}, the farthest {100 * float(np.nanmax(away)):.0f} % of its length away."
    )
    return [_foreign(generation, worst, says)]


def remainder_findings(store: Store, state: GalleryState, sample: dict[str, list[str]]) -> list[Finding]:
    """Compare the search results of every remainder with the records of its items; see `Store.search`."""
    findings = []
    for generation, others in remainders(state):
        pointer = store.pointer()
        rows = sum(count for names, count in pointer.held.items() if generation in names and not names & others)
        look = _listed_whole if rows <= WHOLE else _sampled
        absent, present = look(store, state, generation, others, pointer, sample.get(generation, []))
        name = f"{generation} without {', '.join(sorted(others))}"
        for ids, what in ((absent, "are missing from"), (present, "are wrongly in")):
            if ids:
                to_do = "`limpet gallery export` and import into a new gallery; please report this as a bug."
                what = f"items {what} the searches of {name}"
                findings.append(Finding.of_ids("remainder", "error", what, to_do, ids, generation=generation))
    return findings


def _listed_whole(
    store: Store, state: GalleryState, generation: str, others: frozenset[str], at: Pointer, sample: Sequence[str]
) -> Differences:
    """List all rows with one search; return the ids that it lacks, and those that it should not have."""
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
