"""The copy for the rehearsal of an index that an application owns: a gallery in memory with a sample of its rows."""

from __future__ import annotations

from limpet.engines.source import Source, needed, roles_of, texts_of_ids
from limpet.galleries import Gallery
from limpet.galleries.transfer import columns_of
from limpet.upgrade.vector_sources import VectorSource

_ROWS = 8192


def sample_copy(rows: Source, stored: VectorSource, note: str) -> Gallery:
    """Return a gallery in memory with the vectors of rows and their other columns."""
    columns = columns_of(rows)
    names = [*needed(rows, roles_of(rows), "id"), *columns]
    values: dict[str, tuple[object, ...]] = {}
    for batch in rows.batches(names, _ROWS):
        of_row = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        values.update(zip(texts_of_ids(batch.column(0)).to_pylist(), of_row, strict=True))
    vectors = stored.embed(list(values))
    gallery = Gallery.create(
        "memory://", fingerprint=stored.fingerprint, space=vectors.space, columns=columns, note=note
    )
    metadata = {name: [values[one][place] for one in vectors.ids] for place, name in enumerate(names) if place}
    gallery.add(vectors, metadata=metadata)
    return gallery
