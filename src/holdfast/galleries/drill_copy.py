"""A small copy of a gallery in which an upgrade can be rehearsed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.embeddings import EmbeddingSet
from holdfast.errors import DataError, EmptyOverlapError, UpgradeStateError
from holdfast.galleries.drill_result import Linked
from holdfast.galleries.items import sample
from holdfast.galleries.sources import VectorSource, check_source
from holdfast.galleries.state import Generation, Link
from holdfast.geometry import Space
from holdfast.stores.base import Metadata, Store

if TYPE_CHECKING:
    from holdfast.adapters import Adapter, ScoreMap
    from holdfast.galleries.gallery import Gallery

Progress = Callable[[dict[str, Any]], None]

EMBEDDED_AT_ONCE = 256


@dataclass(frozen=True)
class Sides:
    """What an upgrade goes from and to.

    Args:
        old: Generation that is replaced.
        note: What people call the new model.
        links: Who may search what, of these two, as the gallery has it.
        new: Generation of the new model, if it has one already.
        adapter: That of the gallery between the two, if there is one.
        score_map: What goes with it.
    """

    old: Generation
    note: str
    links: tuple[Link, ...]
    new: Generation | None
    adapter: Adapter | None
    score_map: ScoreMap | None


def sides_of(gallery: Gallery, source: VectorSource) -> Sides:
    """Return from what and to what a gallery would be upgraded with a source.

    Raises:
        UpgradeStateError: The source is of the active model, with nothing to upgrade from.
        DataError: Another model is prepared.
    """
    state = gallery.state
    if state.prepared is not None:
        check_source(source, state.by_name[state.prepared])
    new = state.of(source.fingerprint)
    old = state.active
    if new is not None and new.name == state.active:
        if not state.previous:
            raise UpgradeStateError(
                f"The source makes vectors of the active model, {source.fingerprint}.",
                expected="a source of the model to upgrade to",
                to_do="give the new release, or its vectors; the gallery is intact.",
            )
        old = state.previous[-1]
    if new is None:
        return Sides(state.by_name[old], "", (), None, None, None)
    mapped = {one.name for one in state.generations if one.mapped_from == old}
    ends = {old, new.name} | mapped
    links = tuple(link for link in state.links if {link.query, link.gallery} <= ends)
    names = [state.by_name[link.gallery].adapter if link.how == "mapped" else link.adapter for link in links]
    adapter = next((gallery.files.adapter(name) for name in names if name is not None), None)
    score_map = next((gallery.files.score_map(link.score_map) for link in links if link.score_map is not None), None)
    return Sides(state.by_name[old], new.note, links, new, adapter, score_map)


def sampled_ids(store: Store, generation: str, size: int, seed: int, first: Sequence[str]) -> list[str]:
    """Return items with a vector of a generation, drawn by a hash of their ids, ascending.

    Args:
        store: The gallery's.
        generation: Its name.
        size: How many at most.
        seed: Of the draw.
        first: Items to take before others, the answers of queries.
    """
    wanted = list(dict.fromkeys(first))[:size]
    there = store.fetch(wanted)
    taken = [one for one, names in zip(there.ids, there.generations, strict=True) if generation in names]
    others = sample(store, size - len(taken), seed, holding=[generation], apart_from=set(taken))
    return sorted([*taken, *(identifier for identifier, _ in others)])


@dataclass(frozen=True)
class Sample:
    """The items of the copy.

    Args:
        old: Their vectors as they are stored.
        metadata: What is known of each.
        columns: Types of the metadata columns.
        traffic: How often each was retrieved, those that were.
    """

    old: EmbeddingSet
    metadata: list[Metadata]
    columns: dict[str, str]
    traffic: dict[str, int]

    @classmethod
    def of(cls, gallery: Gallery, old: Generation, ids: Sequence[str]) -> Sample:
        """Read items of a gallery.

        Raises:
            EmptyOverlapError: There are fewer than two.
        """
        store, state = gallery.store, gallery.state
        known, forms = store.vectors(old.name, ids)
        if len(known) < 2:
            raise EmptyOverlapError(
                f"{len(known)} items have a vector of {old.name}.", expected="at least two to rehearse with"
            )
        items = store.fetch(known)
        kept = [row for row, names in enumerate(items.generations) if old.name in names]
        place = {identifier: row for row, identifier in enumerate(known)}
        there = [items.ids[row] for row in kept]
        points = old.geometry.from_index_form(forms[[place[one] for one in there]])
        vectors = EmbeddingSet(
            ids=there,  # type: ignore[arg-type]
            vectors=np.ascontiguousarray(points, np.float32),
            fingerprint=old.fingerprint,
            space=old.geometry,
            role="document",
        )
        traffic = store.traffic()
        retrieved = {one: traffic[one] for one in there if one in traffic}
        return cls(vectors, [items.metadata[row] for row in kept], dict(state.columns), retrieved)


class Embedded:
    """Vectors of the sample by the new model, made once and timed; a `VectorSource`.

    Args:
        source: Where they come from.
        ids: The items.
        on_step: Told "done" and "total".
    """

    def __init__(self, source: VectorSource, ids: Sequence[str], on_step: Progress | None = None) -> None:
        self.fingerprint: str = source.fingerprint
        self.space: Space = source.space
        self.per_item: list[float] = []
        self.seconds = 0.0
        parts = []
        for start in range(0, len(ids), EMBEDDED_AT_ONCE):
            some = list(ids[start : start + EMBEDDED_AT_ONCE])
            begun = time.perf_counter()
            parts.append(source.embed(some))
            took = time.perf_counter() - begun
            self.seconds += took
            if len(parts[-1]):
                self.per_item.append(took / len(parts[-1]))
            if on_step is not None:
                on_step({"done": start + len(some), "total": len(ids)})
        made = [identifier for part in parts for identifier in part.ids]
        if not made:
            raise DataError(
                f"The source has none of the {len(ids)} sampled items.",
                expected="vectors of the items of this gallery, under the same ids",
                to_do="compare the ids of the source with `holdfast gallery search`; the gallery is intact.",
            )
        vectors = np.concatenate([part.vectors for part in parts])
        self.all = EmbeddingSet(
            ids=made,  # type: ignore[arg-type]
            vectors=np.ascontiguousarray(vectors, np.float32),
            fingerprint=self.fingerprint,
            space=self.space,
            role="document",
        )

    @property
    def typical(self) -> float:
        """Seconds per item: the median over batches, so that a slow start does not count."""
        return float(np.median(self.per_item))

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return the vectors of those of the ids that there are."""
        rows = self.all.ids.find(list(ids))
        return self.all.select(rows[rows >= 0])


def copied(sample: Sample, sides: Sides, url: str) -> Gallery:
    """Create a gallery of the sample with the old vectors only."""
    from holdfast.galleries.gallery import Gallery

    copy = Gallery.create(
        url,
        fingerprint=sides.old.fingerprint,
        space=sides.old.geometry,
        columns=sample.columns,
        note=sides.old.note,
    )
    values = {name: [one.get(name) for one in sample.metadata] for name in sample.columns}
    copy.add(sample.old, metadata=values)
    if sample.traffic:
        copy.store.add_traffic(sample.traffic)
    return copy


def prepare(copy: Gallery, source: Embedded, sides: Sides, given: dict[str, Any]) -> Linked:
    """Prepare the new model in a copy with the links that the gallery has, or else with those given.

    Args:
        copy: Where.
        source: Of the new model.
        sides: What is upgraded.
        given: "reports", "adapter" and "score_map" as `Gallery.prepare` takes them.

    Returns:
        Why new queries may search old vectors: "report", "adapter", "mapped", "forced" or "none".
    """
    options = dict(given)
    if sides.adapter is not None:
        options |= {"adapter": sides.adapter, "score_map": sides.score_map}
    prepared = copy.prepare(source.fingerprint, source.space, note=sides.note, **options)
    names = {sides.old.name: sides.old.fingerprint}
    if sides.new is not None:
        names[sides.new.name] = sides.new.fingerprint
    for link in sides.links:
        if link.how in ("report", "forced"):
            copy.vouch(names[link.query], names[link.gallery], force=link.reason or "as the gallery has it")
    before = [link.how for link in sides.links if sides.new is not None and link.query == sides.new.name]
    now = [link.how for link in copy.state.links if link.query == prepared.name]
    return next(iter(before or now), "none")
