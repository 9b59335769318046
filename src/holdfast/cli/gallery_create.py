"""``holdfast gallery create``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from holdfast.cli.console import console, print_json
from holdfast.cli.gallery_common import DECLARED, Model, command, model_of, open_vectors, unnamed
from holdfast.cli.gallery_import import add_set, add_table, is_parquet, tell
from holdfast.errors import HoldfastError, refuse, without_secrets

if TYPE_CHECKING:
    from holdfast.embeddings import EmbeddingSet
    from holdfast.galleries import Gallery
    from holdfast.galleries.imports import Imported
    from holdfast.galleries.tables import Table

_KINDS = {"i": "integer", "u": "integer", "f": "number", "b": "truth", "U": "text"}


def create(
    gallery: str,
    release: Path | None = None,
    model: str | None = None,
    dim: int | None = None,
    embeddings: Path | None = None,
    columns: list[str] = [],  # noqa: B006 - read only, shown as the default
    cast: bool = False,
    json: bool = False,
) -> int:
    """Make a gallery for the vectors of a model, and fill it if embeddings are given.

    ``holdfast gallery create --gallery G --embeddings runs/old`` makes one and fills it.

    Args:
        gallery: A new folder (LanceDB), memory:FOLDER (all vectors in RAM, kept in one file), or a database with
            pgvector, postgresql://USER@HOST/DATABASE?schema=NAME.
        release: Release whose vectors come first.
        model: What you call the model of vectors made elsewhere, with --dim; or of an .npz, .npy or .parquet file.
        dim: Dimension of those vectors.
        embeddings: Embeddings to begin with: a folder that `holdfast embed` wrote (its gallery), or one file. Also
            written --from.
        columns: Metadata columns with their types: label=text price=number stock=integer sold=truth. Those that the
            embeddings have when left out.
        cast: Accept other floating types than float32 in .npz, .npy and .parquet files.
        json: Print one JSON document.
    """
    from holdfast.galleries import Gallery
    from holdfast.galleries.writes import checked_columns

    types = checked_columns(dict(_column(word) for word in columns))
    refuse(len(types) < len(columns), f"--columns {' '.join(columns)}.", "every column once")
    first = None if embeddings is None else _opened(embeddings, model, cast)
    named = model_of(release, model, dim, None) if first is None else _model(first, release, model, dim, embeddings)
    types = types if columns or first is None else _columns_of(first)
    with Gallery.create(
        gallery, fingerprint=named.fingerprint, space=named.space, columns=types, note=named.note
    ) as it:
        done = None if first is None else _filled(it, first, str(embeddings), gallery, named.fingerprint, cast)
        found = it.status()
    console.print(
        f"Made the gallery {without_secrets(found.url)} ({found.kind}) for {named.fingerprint} on the {named.space}"
        + (f", with {', '.join(f'{name} ({kind})' for name, kind in types.items())}." if types else ".")
    )
    if done is None:
        console.print(f"Next, to fill it: {command('import', gallery, '--embeddings', 'FILE_OR_FOLDER')}")
    else:
        tell(done, found.items, gallery)
    if json:
        print_json({"gallery": without_secrets(found.url), "kind": found.kind, "fingerprint": named.fingerprint,
                    "space": named.space.record(), "columns": types, "items": found.items})  # fmt: skip
    return 0


def _column(word: str) -> tuple[str, str]:
    name, sign, kind = word.partition("=")
    refuse(not (sign and name and kind), f"--columns {word}.", "NAME=TYPE, such as label=text")
    return name, kind


def _opened(path: Path, model: str | None, cast: bool) -> EmbeddingSet | Table:
    from holdfast.galleries.tables import ParquetTable

    if is_parquet(path):
        return ParquetTable(path)
    return open_vectors(path, fingerprint=None if model is None else f"{DECLARED}{model}", cast=cast)


def _model(
    first: EmbeddingSet | Table, release: Path | None, model: str | None, dim: int | None, path: Path | None
) -> Model:
    """Return the model whose embeddings come first."""
    from holdfast.cli.gallery_common import name_of
    from holdfast.embeddings import EmbeddingSet
    from holdfast.galleries.imports import dim_of
    from holdfast.geometry import Hypersphere, space_from_record

    refuse(release is not None or dim is not None, "--embeddings with --release or --dim.", "the embeddings alone")
    called = model or name_of(path or Path())
    if isinstance(first, EmbeddingSet):
        return Model(first.fingerprint, first.space, called)
    if "fingerprint" in first.record:
        return Model(str(first.record["fingerprint"]), space_from_record(first.record["space"]), called)
    if model is None:
        raise unnamed(first.name)
    found = dim_of(first)
    refuse(found is None, f"{first.name} has no rows.", "at least one item")
    return Model(f"{DECLARED}{model}", Hypersphere(int(found or 0)), called)


def _columns_of(first: EmbeddingSet | Table) -> dict[str, str]:
    """Return the metadata columns that embeddings have, by type."""
    from holdfast.embeddings import EmbeddingSet
    from holdfast.galleries.imports import columns_of

    if not isinstance(first, EmbeddingSet):
        return columns_of(first) | ({"label": "text"} if "label" in first.schema else {})
    found = {} if first.labels is None else {"label": "text"}
    kinds = {name: _KINDS.get(np.asarray(values).dtype.kind) for name, values in first.columns.items()}
    return found | {name: kind for name, kind in kinds.items() if kind is not None and name.isidentifier()}


def _filled(
    gallery: Gallery, first: EmbeddingSet | Table, name: str, url: str, fingerprint: str, cast: bool
) -> Imported:
    """Fill the new gallery; of an error say that it is there."""
    from holdfast.embeddings import EmbeddingSet

    try:
        if isinstance(first, EmbeddingSet):
            return add_set(gallery, first, name)
        return add_table(gallery, first, fingerprint, cast=cast)
    except HoldfastError as error:
        again = command("import", url, "--embeddings", name, "--skip-existing")
        kept = f"The gallery was made and has {len(gallery):,} items; once this is corrected: {again}"
        raise type(error)(error.given, error.expected, f"{error.to_do.rstrip('. ')}. {kept}".lstrip(". ")) from error
