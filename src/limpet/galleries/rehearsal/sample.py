"""Inputs of a rehearsal: the upgrade, the items of the copy, and their vectors by the new model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from limpet.embeddings import EmbeddingSet
from limpet.engines.filters import Metadata
from limpet.errors import DataError, EmptyOverlapError, UpgradeStateError, refuse
from limpet.galleries.gallery import Gallery
from limpet.galleries.items import sample
from limpet.galleries.rehearsal.results import Linked
from limpet.galleries.state import Generation, Link
from limpet.support.progress import Progress, Told, listener
from limpet.upgrade.filling import check_source
from limpet.upgrade.vector_sources import ROLE, VectorSource, joined_points

if TYPE_CHECKING:
    from limpet.adapters import Adapter, ScoreMap
    from limpet.evaluation.ranking.cohort import Cohort

_EMBEDDED_AT_ONCE = 256


@dataclass(frozen=True)
class RehearsedUpgrade:
    """The two models of an upgrade, and why new queries may search old vectors.

    Args:
        new: Generation of the new model, if it has one already.
        note: Readable name of the new model.
        links: Links between the two models in the gallery.
        reports: Reports to use in place of links; see `Gallery.start`.
        adapter: Adapter between the two, from the gallery or as given.
    """

    old: Generation
    new: Generation | None = None
    note: str = ""
    links: tuple[Link, ...] = ()
    reports: Sequence[Path] = ()
    adapter: Path | Adapter | None = None
    score_map: Path | ScoreMap | Cohort | None = None

    @classmethod
    def of(
        cls,
        gallery: Gallery,
        source: VectorSource,
        reports: Sequence[Path],
        adapter: Path | None,
        score_map: Path | None,
    ) -> RehearsedUpgrade:
        """Return the upgrade of a gallery to the model of a source.

        Raises:
            ConfigError: Reports or an adapter are given for a model that the gallery has links for.
            UpgradeStateError: The source is of the active model, and no upgrade to it was started.
            DataError: An upgrade to another model is started.
        """
        state = gallery.state
        if state.started is not None:
            started = state.by_name[state.started]
            check_source(source, started.fingerprint, started.geometry, of=started.name)
        new = state.of(source.fingerprint)
        if new is None:
            return cls(state.by_name[state.active], None, "", (), reports, adapter, score_map)
        old = state.active
        if new.name == state.active:
            if not state.previous:
                raise UpgradeStateError(
                    f"The source makes vectors of the active model, {source.fingerprint}.",
                    expected="a source of the model to upgrade to",
                    to_do="give the new release, or its vectors.",
                )
            old = state.previous[-1]
        ends = {old, new.name, *(one.name for one in state.generations if one.mapped_from == old)}
        links = tuple(link for link in state.links if {link.query, link.gallery} <= ends)
        refuse(
            bool(links) and (bool(reports) or adapter is not None),
            "Reports or an adapter for an upgrade that was started with links.",
            "those of the gallery, which the rehearsal uses",
        )
        names = [state.by_name[link.gallery].adapter if link.how == "mapped" else link.adapter for link in links]
        own = next((gallery.files.adapter(name) for name in names if name is not None), None)
        if own is None:
            return cls(state.by_name[old], new, new.note, links, reports, adapter, score_map)
        maps = (gallery.files.scores(link.score_map) for link in links if link.score_map is not None)
        return cls(state.by_name[old], new, new.note, links, reports, own, next(maps, None))

    def start(self, copy: Gallery, source: VectorSource) -> Linked:
        """Start the upgrade in a copy, and return why new queries may search old vectors."""
        started = copy.start(
            source.fingerprint,
            source.space,
            reports=self.reports,
            adapter=self.adapter,
            score_map=self.score_map,
            note=self.note,
        )
        fingerprints = {one.name: one.fingerprint for one in (self.old, self.new) if one is not None}
        for link in self.links:
            if link.how in ("report", "forced"):
                ends = fingerprints[link.query], fingerprints[link.gallery]
                copy.link(*ends, force=link.reason or "as the gallery has it")
        own = [link.how for link in self.links if self.new is not None and link.query == self.new.name]
        given = [link.how for link in copy.state.links if link.query == started.name]
        return next(iter(own or given), "none")


@dataclass(frozen=True)
class RehearsalSample:
    """The items of the copy.

    Args:
        old: Their vectors as stored.
        metadata: Metadata of each item.
        columns: Types of the metadata columns.
        traffic: Number of retrievals by item, for items that were retrieved.
    """

    old: EmbeddingSet
    metadata: list[Metadata]
    columns: dict[str, str]
    traffic: dict[str, int]

    @classmethod
    def of(cls, gallery: Gallery, old: Generation, size: int, seed: int, first: Sequence[str]) -> RehearsalSample:
        """Draw items of a gallery by a hash of their ids.

        Raises:
            EmptyOverlapError: The gallery has fewer than two.
        """
        store = gallery.store
        wanted = store.fetch(list(dict.fromkeys(first))[:size])
        taken = [one for one, names in zip(wanted.ids, wanted.generations, strict=True) if old.name in names]
        others = sample(store, size - len(taken), seed, holding=[old.name], apart_from=set(taken))
        known, forms = store.vectors(old.name, sorted([*taken, *(identifier for identifier, _ in others)]))
        if len(known) < 2:
            raise EmptyOverlapError(
                f"{len(known)} items have a vector of {old.name}.", expected="at least two to rehearse with"
            )
        items = store.fetch(known)
        kept = [row for row, names in enumerate(items.generations) if old.name in names]
        place = {identifier: row for row, identifier in enumerate(known)}
        ids = [items.ids[row] for row in kept]
        points = old.geometry.from_index_form(forms[[place[one] for one in ids]])
        vectors = EmbeddingSet(
            ids=ids,
            vectors=np.ascontiguousarray(points, np.float32),
            fingerprint=old.fingerprint,
            space=old.geometry,
            role=ROLE,
        )
        traffic = store.traffic()
        retrieved = {one: traffic[one] for one in ids if one in traffic}
        return cls(vectors, [items.metadata[row] for row in kept], dict(gallery.state.columns), retrieved)

    def __len__(self) -> int:
        return len(self.old)

    def classes(self, column: str) -> list[str | None]:
        """Return the class of every item by a metadata column, None without one."""
        return [None if one.get(column) is None else str(one[column]) for one in self.metadata]

    def copy(self, note: str) -> Gallery:
        """Create a gallery in memory with the old vectors only."""
        gallery = Gallery.create(
            "memory://", fingerprint=self.old.fingerprint, space=self.old.space, columns=self.columns, note=note
        )
        gallery.add(self.old, metadata={name: [one.get(name) for one in self.metadata] for name in self.columns})
        if self.traffic:
            gallery.store.add_traffic(self.traffic)
        return gallery


class EmbeddedSample:
    """Vectors of the sample by the new model, made once and timed; a `VectorSource`.

    Args:
        progress: Called with "step", "done" and "total".

    Raises:
        DataError: The source has none of the items.
    """

    def __init__(self, source: VectorSource, ids: Sequence[str], progress: Progress[Told]) -> None:
        self.fingerprint, self.space = source.fingerprint, source.space
        self.seconds = 0.0
        parts, per_item = [], []
        for start in range(0, len(ids), _EMBEDDED_AT_ONCE):
            some = list(ids[start : start + _EMBEDDED_AT_ONCE])
            begun = time.perf_counter()
            parts.append(source.embed(some))
            taken = time.perf_counter() - begun
            self.seconds += taken
            if len(parts[-1]):
                per_item.append(taken / len(parts[-1]))
            listener(progress)({"step": "embedding", "done": start + len(some), "total": len(ids)})
        self.all = joined_points(self, parts)
        if not len(self.all):
            raise DataError(
                f"The source has none of the {len(ids)} sampled items.",
                expected="vectors of the items of this gallery, under the same ids",
                to_do="compare the ids of the source with `limpet gallery search`.",
                intact="The gallery is intact.",
            )
        self.seconds_per_item = float(np.median(per_item))  # median over the batches: a slow start does not count

    def __len__(self) -> int:
        return len(self.all)

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return the vectors of the ids that the sample has."""
        rows = self.all.ids.find(list(ids))
        return self.all[rows[rows >= 0]]
