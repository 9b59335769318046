"""Estimates for a backfill of a gallery before it starts."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

import numpy as np
from annotated_types import Ge

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.embeddings.room import spool_folder
from limpet.errors import refuse
from limpet.galleries.items import sample as sampled_items
from limpet.galleries.links import link_from_report
from limpet.galleries.state import GalleryState, Link, advance
from limpet.support.ranges import Seed, checked
from limpet.upgrade.filling import check_source
from limpet.upgrade.plan import BackfillPlan, PlanOptions, measured_plan
from limpet.upgrade.vector_sources import CallableVectors, VectorSource

if TYPE_CHECKING:
    from limpet.galleries.gallery import Gallery

_COMMITTED = 20_000  # vectors whose commits are timed


@checked
def plan(
    gallery: Gallery,
    source: VectorSource | None = None,
    *,
    reports: Sequence[Path] = (),
    sample: Annotated[int, Ge(2)] = 256,
    seed: Seed = 0,
    **options: Unpack[PlanOptions],
) -> BackfillPlan:
    """Estimate the effort of a backfill of the started or active generation; nothing is changed.

    If no upgrade is started, a source of another model stands for the new one.

    Args:
        gallery: The gallery.
        source: Source of the vectors; without it, times are not estimated.
        reports: See `Gallery.start`; only if the upgrade is not started yet.
        sample: Number of items to embed, at least 2, drawn from those without a vector.
        seed: Random seed of the sample.
        **options: See `measured_plan`.

    Raises:
        ConfigError: A number is out of range, or a budget needs a price or a source.
        DataError: The source is of another model.
        GalleryError: A report does not pass for the new model.
    """
    pointer, state = gallery.now()
    started = source is None or state.of(source.fingerprint) is not None or state.started is not None
    refuse(
        started and bool(reports),
        "--evidence for an upgrade that is started.",
        "it only before; the gallery has it now",
    )
    if source is not None and not started:
        state = _with_started(state, source, reports)
    target = state.by_name[state.target]
    ids: list[str] = []
    if source is not None:
        check_source(source, target.fingerprint, target.geometry, of=target.name)
        drawn = sampled_items(gallery.store, sample, seed, lacking=target.name if started else None)
        ids = [identifier for identifier, _ in drawn]
    rows = pointer.items - pointer.covered([target.name])
    known = BackfillPlan(
        generation=target.name,
        items=pointer.items,
        rows=rows,
        bytes_written=rows * target.geometry.index_dim * np.dtype(np.float32).itemsize,
        bytes_until_finish=sum(gallery.store.upkeep(name).bytes for name in state.by_name if name != target.name),
        meanwhile=tuple(_meanwhile(link) for link in state.links if link.query == target.name),
    )
    if source is None or options.get("items") is None:
        return measured_plan(known, source, ids, **options)
    kept = _Kept(source)
    found = measured_plan(known, kept, ids, **options)
    if kept.last is None or gallery.store.folder is None or not gallery.store.in_folder:
        return found
    rate, size = _committing(gallery, kept.last, ids)
    return replace(found, committed_per_second=rate, stored_per_item=size)


class _Kept:
    """A source that keeps its last vectors."""

    def __init__(self, source: VectorSource) -> None:
        self._source, self.fingerprint, self.space = source, source.fingerprint, source.space
        self.last: EmbeddingSet | None = None

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        found = self._source.embed(ids)
        self.last = found if len(found) else self.last
        return found


def _committing(gallery: Gallery, some: EmbeddingSet, ids: Sequence[str]) -> tuple[float, float]:
    """Return the vectors per second that a temporary gallery of the same kind commits, and their bytes."""
    from limpet.galleries.gallery import Gallery

    width = max(len(str(_COMMITTED)), sum(map(len, ids)) // max(1, len(ids)))
    rows = np.arange(_COMMITTED) % len(some)
    items = EmbeddingSet(
        some.vectors[rows],
        StringArray.of(f"{row:0{width}d}" for row in range(_COMMITTED)),
        some.fingerprint,
        some.space,
    )
    new = CallableVectors(lambda asked: items.vectors[[int(one) for one in asked]], "declared:planned", some.space)
    like = gallery.store.fetch(list(ids)).metadata
    columns = {name: [like[row % len(like)].get(name) for row in range(_COMMITTED)] for name in gallery.state.columns}
    with tempfile.TemporaryDirectory(prefix="limpet-plan-", dir=spool_folder()) as place:
        url = f"{gallery.store.kind}:{place}/gallery"
        with Gallery.create(url, fingerprint=some.fingerprint, space=some.space, columns=gallery.state.columns) as it:
            it.add(items, metadata=columns)
            it.start(new.fingerprint, new.space)
            before, began = _size(place), time.perf_counter()
            it.backfill(new)
            seconds = time.perf_counter() - began
            it.gc(older_than=0.0)  # replaced files are otherwise removed after an hour
            return _COMMITTED / seconds, (_size(place) - before) / _COMMITTED


def _size(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def _meanwhile(link: Link) -> str:
    said = f"Meanwhile new queries search vectors of {link.gallery}, too ({link.how}: {link.reason})"
    scores = {"now": "cross", "old queries": "self_old", "at the end": "self_new"}
    known = {name: link.evidence.get(key) for name, key in scores.items()}
    if known["now"] is None or "metric" not in link.evidence:
        return f"{said}."
    listed = ", ".join(f"{name} {value:.3f}" for name, value in known.items() if value is not None)
    return f"{said}: {link.evidence['metric']} {listed}."


def _with_started(state: GalleryState, source: VectorSource, reports: Sequence[Path]) -> GalleryState:
    new = state.new_generation(source.fingerprint, source.space)
    links = [link_from_report(path, new, state.by_name[state.active]) for path in reports]
    return advance(state, {"kind": "start", "generation": new.to_record(), "links": [vars(link) for link in links]})
