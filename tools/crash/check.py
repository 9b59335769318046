"""Checks of a reopened gallery against its twin."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crash import world
from crash.script import BATCH, Driver, Script
from crash.twin import Twin, Violation
from limpet.embeddings import EmbeddingSet
from limpet.engines.filters import Condition
from limpet.errors import LimpetError
from limpet.galleries import Gallery
from limpet.galleries.state import GalleryState, replay

K = 7
PATIENCE = 60.0  # maximum seconds that a reader may take


def verify(gallery: Gallery, twin: Twin, seed: int = 0) -> None:
    """Compare journal, state, items, vectors, counts and searches of a gallery with its twin; nothing is written.

    Raises:
        Violation: Something differs.
    """
    try:
        _check_journal(gallery, twin)
        _check_state(gallery.state, twin)
        _check_items(gallery, twin)
        for name in twin.models:
            _check_vectors(gallery, twin, name)
            _check_counts(gallery, twin, name)
        _check_held(gallery, twin)
        for number, name in enumerate(twin.models):
            _check_search(gallery, twin, name, seed + number)
    except LimpetError as error:
        raise Violation("reads", f"{type(error).__name__}: {error}") from error
    if twin.repeated() > twin.lost:
        raise Violation("twice", f"{twin.repeated()} vectors were embedded twice, {twin.lost} were lost with a batch")


def _same(check: str, what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Violation(check, f"{what}: found {_short(found)}, expected {_short(expected)}")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) < 600 else f"{text[:600]} … ({len(text)} characters)"


def _check_journal(gallery: Gallery, twin: Twin) -> None:
    entries = gallery.store.journal()
    _same("journal", "numbers", [entry.sequence for entry in entries], list(range(1, twin.sequence + 1)))
    _same("journal", "events", [entry.event["kind"] for entry in entries], twin.events)
    pointer = gallery.store.pointer()
    _same("journal", "pointer", pointer.sequence, twin.sequence)
    replayed = replay([entry.event for entry in entries])
    _same("replay", "state told from the journal", replayed, GalleryState.from_record(pointer.manifest))


def _check_state(state: GalleryState, twin: Twin) -> None:
    found = {
        "models": {one.name: one.fingerprint for one in state.generations},
        "active": state.active,
        "started": state.started,
        "previous": list(state.previous),
        "links": {(link.query, link.gallery) for link in state.links},
    }
    for name, value in found.items():
        expected = getattr(twin, name)
        _same("state", name, value, set(expected) if name == "links" else expected)


def _check_items(gallery: Gallery, twin: Twin) -> None:
    found = gallery.store.scan(limit=10**6)
    back = sorted(set(found.ids) & twin.dead)
    if back:
        raise Violation("deleted", f"deleted items are there: {back}")
    _same("items", "ids", found.ids, sorted(twin.items))
    expected = [twin.items[identifier] for identifier in found.ids]
    _same("items", "versions", found.versions.tolist(), [item.version for item in expected])
    _same("items", "metadata", [dict(one) for one in found.metadata], [world.metadata(one.content) for one in expected])
    for identifier, holding, item in zip(found.ids, found.generations, expected, strict=True):
        _same("items", f"generations of {identifier}", set(holding), item.holding)


def _check_vectors(gallery: Gallery, twin: Twin, name: str) -> None:
    ids: list[str] = []
    versions: list[int] = []
    vectors = []
    for some, of_some, rows in gallery.store.scan_rows(name, batch=16):
        ids, versions = [*ids, *some], [*versions, *of_some.tolist()]
        vectors.append(rows)
    order = sorted(range(len(ids)), key=lambda row: ids[row])
    holders = sorted(identifier for identifier, item in twin.items.items() if name in item.holding)
    back = sorted(set(ids) & twin.dead)
    if back:
        raise Violation("deleted", f"vectors of deleted items are there: {back}")
    _same("vectors", f"ids of {name}", [ids[row] for row in order], holders)
    _same("vectors", f"versions of {name}", [versions[row] for row in order],
          [twin.items[identifier].version for identifier in holders])  # fmt: skip
    if holders:
        _close("vectors", name, np.concatenate(vectors)[order], _stored(twin, name, holders), holders)
        kept, fetched = gallery.store.vectors(name, holders)
        _same("vectors", f"ids fetched of {name}", kept, holders)
        _close("vectors", f"{name}, fetched", fetched, _stored(twin, name, holders), holders)


def _stored(twin: Twin, name: str, ids: Sequence[str]) -> NDArray[np.float32]:
    """Return the vectors (N, D) that a generation should store for these items."""
    space = world.SPACES[twin.space]
    contents = [(identifier, twin.items[identifier].content) for identifier in ids]
    return space.index_form(world.points(twin.models[name], contents, space), "gallery")


def _close(
    check: str, what: str, found: NDArray[np.float32], expected: NDArray[np.float32], ids: Sequence[str]
) -> None:
    wrong = np.flatnonzero(np.abs(found - expected).max(axis=1) > 1e-5)
    if len(wrong):
        raise Violation(check, f"vectors of {what} are not those of the items: {[ids[row] for row in wrong[:5]]}")


def _check_counts(gallery: Gallery, twin: Twin, name: str) -> None:
    counted = gallery.check_vectors(name)
    _same("vectors read again", f"wrong rows of {name}", counted.wrong, {})
    _same("vectors read again", f"items, right and lacking of {name}", (counted.items, counted.right, counted.lacking),
          (len(twin.items), len(twin.items) - twin.lacking([name]), twin.lacking([name])))  # fmt: skip


def _check_held(gallery: Gallery, twin: Twin) -> None:
    held = {names: count for names, count in gallery.store.pointer().held.items() if count}
    _same("held", "counts", held, dict(Counter(frozenset(item.holding) for item in twin.items.values())))


def asked(seed: int) -> list[tuple[str, int]]:
    """Return the two queries of a search, as pairs of id and content."""
    return [(f"query {seed}", 0), (f"query {seed + 1}", 0)]


def condition(seed: int) -> list[Condition] | None:
    """Return the filter of a search; every third search has one."""
    return [Condition("colour", "=", "red")] if seed % 3 == 0 else None


def _check_search(gallery: Gallery, twin: Twin, name: str, seed: int) -> None:
    queries = world.embedded(twin.models[name], asked(seed), world.SPACES[twin.space], "query")
    reply = gallery.search(queries, K, where=condition(seed))
    hits = [[[hit.id, hit.score, hit.generation] for hit in of_query] for of_query in reply.hits]
    compare_search(twin, name, seed, (reply.covered, reply.items, reply.sequence), hits)


def compare_search(twin: Twin, name: str, seed: int, counts: tuple[int, int, int], replied: list[list[Any]]) -> None:
    """Compare the results of a search by queries of one model with an exhaustive search of the twin.

    Args:
        twin: Twin of the gallery at that commit.
        name: Name of the generation of the model.
        seed: Seed of the queries and the filter.
        counts: Covered items, all items, and the number of the commit, from the reply.
        replied: For every query, id, score and generation of every hit.

    Raises:
        Violation: The results differ.
    """
    space = world.SPACES[twin.space]
    sources = twin.sources(name)
    _same("search", "covered, items and commit", counts,
          (len(twin.items) - twin.lacking(sources), len(twin.items), twin.sequence))  # fmt: skip
    queries = world.embedded(twin.models[name], asked(seed), space, "query")
    mapped = [source for source in sources if twin.links.get((name, source)) is not None]
    forms = {source: space.index_form(_mapped(twin, name, source, queries).vectors, "query") for source in sources}
    for row, hits in enumerate(replied):
        expected = _expected(twin, sources, {source: form[row] for source, form in forms.items()},
                             "red" if condition(seed) else None)  # fmt: skip
        _same("search", f"number of hits of {name}", len(hits), min(K, len(expected)))
        origin = {identifier: source for _, identifier, source in expected}
        for identifier, _, generation in hits:
            _same("search", f"generation of {identifier}", generation, origin.get(identifier))
        for group in ([source for source in sources if source not in mapped], *([source] for source in mapped)):
            best = [hit if not mapped else [hit[0], None, hit[2]] for hit in hits if hit[2] in group]
            _check_best(name, best, [one for one in expected if one[2] in group])


def _mapped(twin: Twin, query: str, source: str, queries: EmbeddingSet) -> EmbeddingSet:
    """Return queries in the space of a generation, mapped by an adapter if the link has one."""
    seed = twin.links.get((query, source))
    return queries if seed is None else world.adapter(twin.models[query], twin.models[source], seed).apply(queries)


def _check_best(name: str, hits: list[list[Any]], expected: list[tuple[float, str, str]]) -> None:
    """Compare hits with comparable scores with the best possible hits.

    Args:
        name: Name of the generation of the queries.
        hits: Id, score and generation of the hits. A score is None if the reply holds a rank, because the hits were
            merged with hits of other generations.
        expected: Score, id and generation of all possible hits, best first.
    """
    scores = {identifier: score for score, identifier, _ in expected}
    for (identifier, found, _), (score, _, _) in zip(hits, expected, strict=False):
        known = scores.get(identifier, 9.0)
        right = (abs((known if found is None else found) - score) < 1e-4, abs(known - score) < 1e-4)
        _same("search", f"hit {identifier} {found} of {name}, in place of {score}", right, (True, True))


def _expected(
    twin: Twin, sources: list[str], queries: Mapping[str, NDArray[np.float32]], colour: str | None
) -> list[tuple[float, str, str]]:
    """Return score, id and generation of all possible hits of a query, best first."""
    found = []
    for place, source in enumerate(sources):
        ids = [
            identifier
            for identifier, item in twin.items.items()
            if source in item.holding and not item.holding & set(sources[:place])
            and colour in (None, world.metadata(item.content)["colour"])
        ]  # fmt: skip
        scores = _stored(twin, source, ids) @ queries[source] if ids else np.zeros(0, np.float32)
        found += [(float(score), identifier, source) for score, identifier in zip(scores, ids, strict=True)]
    return sorted(found, key=lambda one: (-one[0], one[1]))


def go_on(driver: Driver, seed: int) -> None:
    """Continue after an interruption: write, finish the backfill, roll back, tidy; verify the result.

    Raises:
        Violation: A step fails, or its result differs from that without the interruption.
    """
    script, twin, gallery = Script(seed), driver.twin, driver.open()
    gallery.timeout = 2.0  # the lock of a dead process must not block
    driver.do(script._upsert(twin) if twin.items else script._add(twin))
    target = twin.started or twin.active
    driver.do(
        {"kind": "backfill", "batch": BATCH, "budget": None, "order": "id", "seed": 0, "pieces": 2, "meanwhile": {}}
    )
    unknown = {one for one in twin.items if world.unknown_to(twin.models[target], one)}
    left = {one for one, item in twin.items.items() if target not in item.holding}
    _same("backfill", f"items without a vector of {target}", left - unknown, set())
    if twin.possible("rollback"):
        driver.do({"kind": "rollback"})
    verify(gallery, twin, seed)
    for kind in ("swap", "finish", "gc"):
        if twin.possible(kind):
            driver.do({"kind": kind, **({"older_than": 0.0} if kind == "gc" else {})})
    _check_nothing_left(gallery, twin)


def _check_nothing_left(gallery: Gallery, twin: Twin) -> None:
    """Check that a gc that keeps nothing for readers has removed the rows of all former generations."""
    if twin.events[-1] == "gc" or twin.events[-2:] == ["gc", "tidy"]:
        until = time.monotonic() + PATIENCE
        while _stored_generations(gallery.store) != sorted(twin.models) and time.monotonic() < until:
            gallery.store.tidy(older_than=0.0)  # a concurrent reader may keep rows for a while
        _same("gc", "generations with rows in the store", _stored_generations(gallery.store), sorted(twin.models))


def _stored_generations(store: Any) -> list[str]:
    """Return the generations with rows in a store, sorted, once for each of their files or tables."""
    if store.kind == "sharded":
        several = [_stored_generations(shard) for shard in store.shards]
        return max(several, key=len)
    if store.kind == "lance":
        folder = Path(store.url.removeprefix("lance:"))
        return sorted(path.name.split("-")[0] for path in folder.glob("*.lance"))
    if store.kind == "s3":
        return sorted(name.split("-")[0] for name in store._tables.files.tables())
    if store.kind == "memory":
        rows = store.database.execute("SELECT DISTINCT generation FROM rows")
        return sorted({*store.ledger.bits(), *(name for (name,) in rows)})
    tables = store.database.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    return sorted(name.removeprefix("rows_") for (name,) in tables if name.startswith("rows_"))
