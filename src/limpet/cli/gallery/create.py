"""``limpet gallery create``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from limpet.cli.console import console, print_json
from limpet.cli.gallery.common import DECLARED, Identity, command, name_of
from limpet.cli.gallery.imports import Commits, Found, Items, tell
from limpet.cli.gallery.options import GalleryUrl, GraphOptions, NewModel, note_of
from limpet.cli.models import Opening
from limpet.cli.options import DataSets
from limpet.cli.places import Place
from limpet.embeddings import EmbeddingSet
from limpet.errors import LimpetError, refuse, shown, without_secrets

if TYPE_CHECKING:
    from limpet.galleries import Gallery
    from limpet.galleries.transfer import Imported

_KINDS = {"i": "integer", "u": "integer", "f": "number", "b": "truth", "U": "text"}


def create(
    gallery: GalleryUrl,
    *,
    source: Items = Items(),
    sets: DataSets = DataSets(),
    hnsw: GraphOptions = GraphOptions(),
    dim: int | None = None,
    columns: list[str] = [],
) -> int:
    """Create a gallery for the vectors of a model, and fill it if items are given.

    ``limpet gallery create G --embeddings runs/old`` creates and fills a gallery. So does the URL of a table or
    collection, whose columns become metadata of the same types. In PostgreSQL, numeric becomes number (integer if it
    has no fraction and at most 18 digits). uuid, json, dates and times become text; timestamps with a time zone are in
    UTC.

    Args:
        source: Initial items; or the model alone: --model, or --name with --dim.
        hnsw: Options of approximate indexes, which `limpet gallery index` builds.
        dim: Dimension of the vectors of the model --name, if no items are given.
        columns: Metadata columns with their types: label=text price=number stock=integer sold=truth facts=json.
            Default: those of the embeddings or the table.

    Examples:
        limpet gallery create live --embeddings runs/old
        limpet gallery create live --texts requests.csv --model st:models/v1
    """
    from limpet.galleries import Gallery
    from limpet.galleries.rows import checked_columns

    gallery.refuse_in_ram()
    types = checked_columns(dict(_column(word) for word in columns))
    refuse(len(types) < len(columns), f"--columns {' '.join(columns)}.", "every column once")
    new = NewModel(**{name: getattr(source, name) for name in Opening.__dataclass_fields__},
                   model=source.model, name=source.name, dim=dim)  # fmt: skip
    given = source.embeds or source.embeddings is not None
    with gallery.assured("Nothing was changed."):
        first = source.opened(new.declared, sets) if given else None
        refuse(bool(source.take) and source.table is None, "--take without a table.",
               "it with the URL of one, or with Parquet files, as --embeddings")  # fmt: skip
        named = new.identity() if first is None else _model(first, new, source)
    if first is not None and (source.take or not columns):
        types = _columns_of(first, source) | types
    with Gallery.create(
        gallery,
        fingerprint=named.fingerprint,
        space=named.space,
        columns=types,
        note=named.note,
        graph=hnsw.chosen(),
    ) as it:
        done = None if first is None else _filled(it, first, named.fingerprint, gallery, source)
        found = it.status()
    source.tell()
    console.print(
        f"Made the gallery {without_secrets(found.url)} ({found.kind}) for {named.fingerprint} on the {named.space}"
        + (f", with {', '.join(f'{name} ({kind})' for name, kind in types.items())}." if types else ".")
    )
    passed = [] if first is None else source.left_out(first, types)
    if passed:
        console.print(f"Not taken as metadata: {shown(passed)}.")
    if done is None:
        if not types:
            console.print(
                "It has no metadata columns, and keeps no labels: they are declared now, --columns label=text, or "
                "taken from the items that it is made of (--embeddings, --texts, --data)."
            )
        model = [] if new.name is None else ["--name", new.name]
        console.print(
            f"Next, to fill it: {command('gallery import', gallery, '--embeddings', 'FILE_OR_FOLDER', *model)}"
        )
    else:
        tell(done, found.items, gallery)
    print_json({"gallery": without_secrets(found.url), "kind": found.kind, "fingerprint": named.fingerprint,
                   "space": named.space.record(), "columns": types, "items": found.items})  # fmt: skip
    return 0


def _column(word: str) -> tuple[str, str]:
    name, sign, kind = word.partition("=")
    refuse(not (sign and name and kind), f"--columns {word}.", "NAME=TYPE, such as label=text")
    return name, kind


def _model(first: Found, new: NewModel, source: Items) -> Identity:
    from limpet.engines.reading import unnamed, where_of
    from limpet.galleries.transfer import dim_of
    from limpet.geometry import space_from_record
    from limpet.upgrade.vector_sources import EmbeddedItems

    refuse(new.dim is not None, f"--dim {new.dim} with items.", "the items alone, whose vectors say it")
    if isinstance(first, EmbeddedItems):
        return Identity(first.fingerprint, first.space, note_of(source.named("items")))
    named = new.name or name_of(source.embeddings or Place("."))
    if isinstance(first, EmbeddingSet):
        return Identity(first.fingerprint, first.space, named)
    if first.record is not None and "fingerprint" in first.record:
        return Identity(str(first.record["fingerprint"]), space_from_record(first.record["space"]), named)
    model = new.name or first.address.model
    if model is None:
        raise unnamed(first.name)
    found = dim_of(first)
    refuse(found is None, f"{first.name} has no rows.", "at least one item")
    return Identity(f"{DECLARED}{model}", where_of(first, int(found or 0))[0], named)


def _columns_of(first: Found, source: Items) -> dict[str, str]:
    """Return the metadata columns that items have, by type; of a table those that were chosen."""
    from limpet.galleries.transfer import columns_of
    from limpet.upgrade.vector_sources import EmbeddedItems

    if not isinstance(first, EmbeddingSet | EmbeddedItems):
        take = source.columns
        label = "label" in (first.schema if take is None else take)
        found = columns_of(first, take=take)
        return found | ({"label": "text"} if label else {})
    found = {} if first.labels is None else {"label": "text"}
    kinds = {name: _KINDS.get(np.asarray(values).dtype.kind) for name, values in first.columns.items()}
    return found | {name: kind for name, kind in kinds.items() if kind is not None and name.isidentifier()}


def _filled(gallery: Gallery, first: Found, fingerprint: str, url: str, source: Items) -> Imported:
    """Fill the new gallery; of an error say that it is there."""
    try:
        return source.added(gallery, first, fingerprint, Commits())
    except LimpetError as error:
        to_do = f"{error.to_do} Once this is corrected: {again(url, source)}".lstrip()
        kept = f"The gallery was made and has {len(gallery):,} items."
        raise type(error)(error.given, error.expected, to_do, intact=kept) from error


def again(url: str, source: Items) -> str:
    """Return what goes on with filling a gallery."""
    model = [] if source.embeds else ["--name", "g1"]
    return command("gallery import", url, *replace(source, name=None).typed(), *model, "--skip-existing")
