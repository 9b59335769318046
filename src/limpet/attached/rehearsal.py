"""Rehearsals of indexes that an application owns: in a gallery in memory that holds a sample of their rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from annotated_types import Ge

from limpet.attached.base import Attachment
from limpet.attached.opening import rows_of
from limpet.attached.plan import Unstarted
from limpet.embeddings import EmbeddingSet
from limpet.engines.address import Address, Sample
from limpet.engines.source import needed, roles_of, texts_of_ids
from limpet.engines.sources import open_source
from limpet.errors import without_secrets
from limpet.galleries import Gallery
from limpet.galleries.rehearsal import Rehearsal
from limpet.galleries.rehearsal import rehearse as rehearsed
from limpet.galleries.transfer import columns_of
from limpet.support.progress import Progress, Told, showing
from limpet.support.ranges import Seed, checked
from limpet.upgrade.filling import check_source
from limpet.upgrade.vector_sources import VectorSource

_ROWS = 8192


@showing("rehearsal")
@checked
def rehearse(
    url: str,
    index: Attachment | Unstarted,
    source: VectorSource,
    *,
    sample: Annotated[int, Ge(20)] = 2000,
    queries: tuple[EmbeddingSet, EmbeddingSet] | None = None,
    class_column: str = "label",
    seed: Seed = 0,
    progress: Progress[Told] = None,
) -> Rehearsal:
    """Rehearse the upgrade of a table or a collection, which is only read; see `limpet.galleries.rehearsal.rehearse`.

    Args:
        url: Of the table or collection.
        index: The same, opened by `limpet.attached.opening.previewed`; with this sample where no upgrade is started.
        source: Where the vectors of the new model come from.
        sample: Rows of the copy.
        queries: The same queries by the old and by the new model; sampled rows when left out.
        class_column: Column of the class: rows of a query's class are relevant.
        seed: Of the sample, and of what is shown.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "step", and with "done" and
            "total" while rows are embedded.
    """
    if not isinstance(index, Unstarted):
        new = index.model("new")
        check_source(source, new.fingerprint, new.dim, of="the new model")
    place = rows_of(url)
    with _copy(index, replace(place, sample=Sample(sample, seed))) as gallery:
        return rehearsed(
            gallery, source, sample=sample, queries=queries, class_column=class_column, seed=seed, progress=progress,
            live=(without_secrets(url), open_source(place).rows),
        )  # fmt: skip


def _copy(index: Attachment | Unstarted, place: Address) -> Gallery:
    """Return a gallery in memory with the old vectors of a sample, and what else its rows hold."""
    rows = open_source(place)
    columns = columns_of(rows)
    names = [*needed(rows, roles_of(rows), "id"), *columns]
    values: dict[str, tuple[object, ...]] = {}
    for batch in rows.batches(names, _ROWS):
        of_row = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        values.update(zip(texts_of_ids(batch.column(0)).to_pylist(), of_row, strict=True))
    vectors, model = index.stored.embed(list(values)), index.model("old")
    gallery = Gallery.create(
        "memory://", fingerprint=model.fingerprint, space=vectors.space, columns=columns, note=model.called
    )
    metadata = {name: [values[one][place] for one in vectors.ids] for place, name in enumerate(names) if place}
    gallery.add(vectors, metadata=metadata)
    return gallery
