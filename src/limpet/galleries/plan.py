"""What a backfill of a gallery will take, before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

import numpy as np
from annotated_types import Ge

from limpet.errors import refuse
from limpet.galleries.items import sample as sampled_items
from limpet.galleries.links import link_from_report
from limpet.galleries.state import GalleryState, Link, advance
from limpet.support.ranges import Seed, checked
from limpet.upgrade.filling import check_source
from limpet.upgrade.plan import BackfillPlan, PlanOptions, measured_plan
from limpet.upgrade.vector_sources import VectorSource

if TYPE_CHECKING:
    from limpet.galleries.gallery import Gallery


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
    """Say what a backfill of the started or active generation will take; nothing is changed.

    A source of another model, while no upgrade is started, stands for the new one.

    Args:
        gallery: Where.
        source: Where the vectors will come from; without it nothing is said of time.
        reports: See `Gallery.start`; only where the upgrade is not started yet.
        sample: Items to embed, at least 2, drawn from those without a vector.
        seed: Of the sample.
        **options: See `measured_plan`.

    Raises:
        ConfigError: A number is out of range, or a budget needs a price or a source.
        DataError: The source is of another model.
        GalleryError: A report does not vouch for the new model.
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
    return measured_plan(known, source, ids, **options)


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
