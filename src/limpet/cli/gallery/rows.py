"""``limpet gallery add``, ``upsert`` and ``delete``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from limpet.cli.console import console, print_json, progress_bar
from limpet.cli.gallery.common import made_by, open_vectors
from limpet.cli.gallery.imports import EMBEDDED_AT_ONCE, tell_left_out, unknown_columns
from limpet.cli.gallery.options import WAIT, GalleryUrl
from limpet.cli.gallery.sources import TO_EMBED, Embedder, fingerprints_of
from limpet.cli.options import DataSets
from limpet.cli.parameters import RARE
from limpet.cli.places import Place
from limpet.embeddings.embedding_set import joined
from limpet.errors import ConfigError, refuse, shown
from limpet.support.disk import regular

if TYPE_CHECKING:
    from limpet.embeddings import EmbeddingSet
    from limpet.galleries import Gallery


@dataclass(frozen=True)
class Items(Embedder):
    """The items: embeddings, or texts or images that a model embeds now.

    Args:
        embeddings: Embeddings of the items, one file, folder or URL per model; the first one provides the metadata.
        name: Name of the model of each URL and .npz, .npy and .parquet file, in their order; or a generation, such as
            g1.
        skip_unusable: Skip items whose vector is zero, NaN or infinite, and list their ids.
    """

    embeddings: list[Place] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    skip_unusable: Annotated[bool, RARE] = False

    def opened(self, gallery: Gallery, sets: DataSets) -> list[EmbeddingSet]:
        """Open the embeddings, with the names given to those that say nothing of their model, or make them."""
        given = {"embeddings": self.embeddings, "texts": self.texts, "data": self.data}
        names = [f"--{name}" for name, value in given.items() if value]
        refuse(len(names) != 1, f"{' and '.join(names) or 'No items'} given.",
               f"one of: --embeddings FILE_OR_FOLDER; {TO_EMBED}")  # fmt: skip
        if not self.embeddings:
            found = self.items(sets, fingerprints_of(gallery))
            with progress_bar("embedding", len(found)) as bar:
                parts = []
                for start in range(0, len(found), EMBEDDED_AT_ONCE):
                    bar({"done": start})
                    parts.append(found[np.arange(start, min(start + EMBEDDED_AT_ONCE, len(found)))])
            return [joined(parts)]
        nameless = [place for place in self.embeddings if place.nameless]
        refuse(
            bool(self.name) and len(self.name) != len(nameless),
            f"{len(self.name)} names for {len(nameless)} files that do not say which model made them.",
            "one --name for each URL and each .npz, .npy and .parquet file, in their order",
        )
        models = dict(zip(nameless, self.name, strict=False))
        return [
            open_vectors(
                place,
                fingerprint=made_by(gallery.state, models.get(place)),
                skip_unusable=self.skip_unusable,
            )
            for place in self.embeddings
        ]


def add(
    gallery: GalleryUrl,
    *,
    items: Items = Items(),
    sets: DataSets = DataSets(),
) -> int:
    """Add items that the gallery does not have.

    Examples:
        limpet gallery add live --embeddings runs/new-items
        limpet gallery add live --texts new.csv --model package:wordllama
    """
    return _write(gallery, items, sets, replace=False)


def upsert(
    gallery: GalleryUrl,
    *,
    items: Items = Items(),
    sets: DataSets = DataSets(),
) -> int:
    """Add items, or replace existing items with all their metadata and vectors.

    Vectors from other models are removed, because they describe the item before the change. Between swap and finish,
    give the embeddings of both models if queries of both have to find the item at once.

    Examples:
        limpet gallery upsert live --embeddings runs/changed-items
        limpet gallery upsert live --texts changed.csv --model release:runs/link/head
    """
    return _write(gallery, items, sets, replace=True)


def _write(gallery: GalleryUrl, items: Items, sets: DataSets, *, replace: bool) -> int:
    with gallery.opened(WAIT) as it:
        found = items.opened(it, sets)
        total = len({identifier for embeddings in found for identifier in embeddings.ids})
        refuse(not total, f"{shown(map(str, items.embeddings))} has no items.", "at least one item")
        metadata = _metadata(it, items.embeddings[0], found, total) if items.embeddings else None
        passed = unknown_columns(found[0], it.state.columns)
        with progress_bar("writing", total) as bar:
            written = (it.upsert if replace else it.add)(*found, metadata=metadata, progress=bar)
        count = len(it)
    items.tell()
    tell_left_out(passed)
    console.print(f"{written:,} items written; {count:,} in the gallery.")
    print_json({"written": written, "items": count})
    return 0


def _metadata(gallery: Gallery, place: Place, sets: list[EmbeddingSet], total: int) -> dict[str, list[Any]] | None:
    """Return the metadata of a table by column, None for items of further sets; None for files that hold none."""
    if place.address is None and place.path.suffix != ".parquet":
        return None
    from limpet.engines.source import roles_of, texts_of_ids
    from limpet.engines.sources import Address, open_source

    source = open_source(place.address or Address("parquet", place.given))
    names = [name for name in gallery.state.columns if name in source.schema]
    key = [str(roles_of(source).id)] if place.address is not None else []  # a file is read twice in one order
    values: dict[str, list[Any]] = {name: [] for name in names}
    ids: list[str] = []
    for part in source.batches([*key, *names], 50_000) if names else ():
        ids += texts_of_ids(part.column(0)).to_pylist() if key else []
        for name, column in zip(names, part.columns[len(key) :], strict=True):
            values[name] += column.to_pylist()
    if key:
        known = {identifier: row for row, identifier in enumerate(ids)}
        rows = [known.get(identifier) for identifier in sets[0].ids]
        values = {name: [None if row is None else found[row] for row in rows] for name, found in values.items()}
    return {name: found + [None] * (total - len(sets[0])) for name, found in values.items()}


def delete(gallery: GalleryUrl, *, ids: list[str] = [], ids_from: Path | None = None) -> int:
    """Remove items with all their vectors; a backfill does not restore them.

    Args:
        ids: Ids of the items to remove.
        ids_from: File of ids, one per line.

    Examples:
        limpet gallery delete live --ids 17 42
    """
    refuse(bool(ids) == (ids_from is not None), "Both or neither of --ids and --ids-from were given.", "one of them")
    names = list(dict.fromkeys(ids if ids_from is None else _lines(ids_from)))
    refuse(not names, f"'{ids_from}' has no ids.", "one id a line")
    with gallery.opened(WAIT) as it:
        known = set(it.store.fetch(names).ids)
        deleted, items = it.delete(names), len(it)
    unknown = [name for name in names if name not in known]
    console.print(f"{deleted:,} items deleted; {items:,} in the gallery.")
    if unknown:
        console.print(f"Not there: {shown(unknown)}.")
    print_json({"deleted": deleted, "unknown": unknown[:1000], "items": items})
    return 0


def _lines(path: Path) -> list[str]:
    try:
        lines = regular(path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ConfigError(f"'{path}' is no text in UTF-8.", expected="one id a line") from error
    return [line for line in lines if line]
