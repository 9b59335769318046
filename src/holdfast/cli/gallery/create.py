"""``holdfast gallery create``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.cli.console import console, print_json
from holdfast.cli.gallery.common import DECLARED, Model, command, model_of, open_vectors, unnamed
from holdfast.cli.gallery.imports import add_set, add_table, check_places, columns_of, left_out, table_of, taken, tell
from holdfast.embeddings import EmbeddingSet
from holdfast.embeddings.embedding_set import shown
from holdfast.embeddings.files import FileColumns
from holdfast.errors import HoldfastError, refuse, without_intact, without_secrets

if TYPE_CHECKING:
    from holdfast.galleries import Gallery
    from holdfast.galleries.transfer import Imported, Table

_KINDS = {"i": "integer", "u": "integer", "f": "number", "b": "truth", "U": "text"}


def create(
    gallery: str,
    release: Path | None = None,
    model: str | None = None,
    dim: int | None = None,
    embeddings: Path | None = None,
    lance: Path | None = None,
    postgres: str | None = None,
    table: str | None = None,
    id_column: str = "id",
    vector_column: str = "vector",
    take: list[str] = [],  # noqa: B006 - read only, shown as the default
    columns: list[str] = [],  # noqa: B006 - read only, shown as the default
    cast: bool = False,
    json: bool = False,
) -> int:
    """Make a gallery for the vectors of a model, and fill it if embeddings are given.

    ``holdfast gallery create --gallery G --embeddings runs/old`` makes one and fills it. So does a table of LanceDB or
    PostgreSQL, whose columns become metadata of the types that they have there: numeric becomes number (integer where
    it has no fraction and at most 18 digits), uuid, json, dates and times become text, moments of time in UTC.

    Args:
        gallery: A new folder (LanceDB), memory:FOLDER (all vectors in RAM, kept in one file), or a database with
            pgvector, postgresql://USER@HOST/DATABASE?schema=NAME.
        release: Release whose vectors come first.
        model: What you call the model of vectors made elsewhere, with --dim; or of an .npz, .npy or .parquet file.
        dim: Dimension of those vectors.
        embeddings: Embeddings to begin with: a folder that `holdfast embed` wrote (its gallery), a folder of .parquet
            files, or one file. Also written --from.
        lance: Folder of LanceDB to begin with, with --table.
        postgres: URL of a database to begin with, with --table.
        table: Name of the table.
        id_column: Column of ids, in tables, Parquet and .npz files.
        vector_column: Column of vectors there.
        take: Which columns of a table become metadata: title, or price=unit_price to call it otherwise; all that can
            when left out.
        columns: Metadata columns with their types: label=text price=number stock=integer sold=truth. Those that the
            embeddings or the table have when left out.
        cast: Accept other floating types than float32 in .npz, .npy and .parquet files.
        json: Print one JSON document.

    Examples:
        holdfast gallery create --gallery live --embeddings runs/old
    """
    from holdfast.galleries import Gallery
    from holdfast.galleries.rows import checked_columns

    types = checked_columns(dict(_column(word) for word in columns))
    refuse(len(types) < len(columns), f"--columns {' '.join(columns)}.", "every column once")
    places = (embeddings, lance, postgres, table)
    first = None if places == (None,) * 4 else _opened(*places, model, cast, columns_of(id_column, vector_column))
    read = {"id_column": id_column, "vector_column": vector_column, "take": taken(take)}
    refuse(bool(take) and (first is None or isinstance(first, EmbeddingSet)), "--take without a table.",
           "it with --postgres URL --table T, --lance FOLDER --table T, or Parquet files")  # fmt: skip
    named = (
        model_of(release, model, dim, None)
        if first is None
        else _model(first, release, model, dim, embeddings, vector_column)
    )
    if first is not None and (take or not columns):
        types = _columns_of(first, **read) | types
    with Gallery.create(
        gallery, fingerprint=named.fingerprint, space=named.space, columns=types, note=named.note
    ) as it:
        again = _again(gallery, places, read, take, cast)
        done = None if first is None else _filled(it, first, str(embeddings), again, named.fingerprint, cast, read)
        found = it.status()
    console.print(
        f"Made the gallery {without_secrets(found.url)} ({found.kind}) for {named.fingerprint} on the {named.space}"
        + (f", with {', '.join(f'{name} ({kind})' for name, kind in types.items())}." if types else ".")
    )
    if first is not None and not isinstance(first, EmbeddingSet) and not take:
        passed = left_out(first, types, id_column=id_column, vector_column=vector_column)
        if passed:
            console.print(f"Not taken as metadata: {shown(passed)}.")
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


def _opened(
    embeddings: Path | None,
    lance: Path | None,
    postgres: str | None,
    table: str | None,
    model: str | None,
    cast: bool,
    called: FileColumns,
) -> EmbeddingSet | Table:
    check_places(embeddings, lance, postgres, table)
    fingerprint = None if model is None else f"{DECLARED}{model}"
    return table_of(embeddings, lance, postgres, table) or open_vectors(
        embeddings or Path(), fingerprint=fingerprint, cast=cast, columns=called
    )


def _model(
    first: EmbeddingSet | Table,
    release: Path | None,
    model: str | None,
    dim: int | None,
    path: Path | None,
    vector_column: str,
) -> Model:
    """Return the model whose embeddings come first."""
    from holdfast.cli.gallery.common import name_of
    from holdfast.galleries.transfer import dim_of
    from holdfast.geometry import Hypersphere, space_from_record

    refuse(release is not None or dim is not None, "--embeddings with --release or --dim.", "the embeddings alone")
    called = model or name_of(path or Path())
    if isinstance(first, EmbeddingSet):
        return Model(first.fingerprint, first.space, called)
    if first.record is not None and "fingerprint" in first.record:
        return Model(str(first.record["fingerprint"]), space_from_record(first.record["space"]), called)
    if model is None:
        raise unnamed(first.name)
    found = dim_of(first, vector_column=vector_column)
    refuse(found is None, f"{first.name} has no rows.", "at least one item")
    return Model(f"{DECLARED}{model}", Hypersphere(int(found or 0)), called)


def _columns_of(first: EmbeddingSet | Table, **read: Any) -> dict[str, str]:
    """Return the metadata columns that embeddings have, by type; of a table those that were chosen."""
    from holdfast.galleries.transfer import columns_of

    if not isinstance(first, EmbeddingSet):
        label = "label" in (first.schema if read["take"] is None else read["take"])
        return columns_of(first, **read) | ({"label": "text"} if label else {})
    found = {} if first.labels is None else {"label": "text"}
    kinds = {name: _KINDS.get(np.asarray(values).dtype.kind) for name, values in first.columns.items()}
    return found | {name: kind for name, kind in kinds.items() if kind is not None and name.isidentifier()}


def _filled(
    gallery: Gallery,
    first: EmbeddingSet | Table,
    name: str,
    again: str,
    fingerprint: str,
    cast: bool,
    read: Mapping[str, Any],
) -> Imported:
    """Fill the new gallery; of an error say that it is there."""
    try:
        if isinstance(first, EmbeddingSet):
            return add_set(gallery, first, name)
        options = {"columns": read["take"], "id_column": read["id_column"], "vector_column": read["vector_column"]}
        return add_table(gallery, first, fingerprint, cast=cast, **options)
    except HoldfastError as error:
        kept = f"The gallery was made and has {len(gallery):,} items; once this is corrected: {again}"
        raise type(error)(
            error.given, error.expected, f"{without_intact(error.to_do).rstrip('. ')}. {kept}".lstrip(". ")
        ) from error


def _again(url: str, places: Sequence[Any], read: Mapping[str, Any], take: list[str], cast: bool) -> str:
    """Return what goes on with filling a gallery."""
    named = zip(("--embeddings", "--lance", "--postgres", "--table"), places, strict=True)
    words = [word for name, value in named if value is not None for word in (name, without_secrets(str(value)))]
    for option, usual in (("id_column", "id"), ("vector_column", "vector")):
        words += [f"--{option.replace('_', '-')}", read[option]] if read[option] != usual else []
    words += ["--take", *take] if take else []
    return command("import", url, *words, "--model", "g1", *(["--cast"] if cast else []), "--skip-existing")
