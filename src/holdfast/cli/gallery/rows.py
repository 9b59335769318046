"""``holdfast gallery add``, ``upsert`` and ``delete``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.console import console, print_json, rate_progress
from holdfast.cli.gallery.common import made_by, open_vectors, opened
from holdfast.embeddings.embedding_set import shown
from holdfast.errors import ConfigError, refuse

if TYPE_CHECKING:
    from holdfast.embeddings import EmbeddingSet
    from holdfast.galleries import Gallery


def add(
    gallery: str,
    embeddings: list[Path],
    model: list[str] = [],  # noqa: B006 - read only, shown as the default
    cast: bool = False,
    wait: float = 10.0,
    json: bool = False,
) -> int:
    """Add items that the gallery does not have.

    Args:
        gallery: Where it is.
        embeddings: Of the items, one file or folder per model; metadata is that of the first. Also written --from.
        model: What you call the model of each .npz, .npy and .parquet file, in their order; or a generation, as g1.
        cast: Accept other floating types than float32 in such files.
        wait: Seconds to wait for another writer.
        json: Print one JSON document.

    Examples:
        holdfast gallery add --gallery live --embeddings runs/new-items
    """
    return _write("add", gallery, embeddings, model, cast, wait, json)


def upsert(
    gallery: str,
    embeddings: list[Path],
    model: list[str] = [],  # noqa: B006
    cast: bool = False,
    wait: float = 10.0,
    json: bool = False,
) -> int:
    """Write items whole: their metadata and vectors replace what was there.

    A vector by another model is removed, since it describes what the item was before: between swap and gc, give the
    embeddings of both models, if queries of both shall find the item at once.

    Args:
        gallery: Where it is.
        embeddings: Of the items, one file or folder per model; metadata is that of the first. Also written --from.
        model: What you call the model of each .npz, .npy and .parquet file, in their order; or a generation, as g1.
        cast: Accept other floating types than float32 in such files.
        wait: Seconds to wait for another writer.
        json: Print one JSON document.

    Examples:
        holdfast gallery upsert --gallery live --embeddings runs/changed-items
    """
    return _write("upsert", gallery, embeddings, model, cast, wait, json)


def _write(kind: str, url: str, paths: list[Path], models: list[str], cast: bool, wait: float, json: bool) -> int:
    with opened(url, wait) as it:
        sets = _sets(it, paths, models, cast)
        total = len({identifier for embeddings in sets for identifier in embeddings.ids})
        refuse(not total, f"{shown(map(str, paths))} has no items.", "at least one item")
        with rate_progress("writing", total) as on_step:
            written = getattr(it, kind)(*sets, metadata=_metadata(it, paths[0], sets, total), on_step=on_step)
        items = len(it)
    console.print(f"{written:,} items written; {items:,} in the gallery.")
    if json:
        print_json({"written": written, "items": items})
    return 0


def _sets(gallery: Gallery, paths: list[Path], models: list[str], cast: bool) -> list[EmbeddingSet]:
    """Open the embeddings, with the names given to those that say nothing of their model."""
    from holdfast.cli.gallery.common import IMPORTED

    nameless = [path for path in paths if path.suffix in IMPORTED]
    refuse(
        bool(models) and len(models) != len(nameless),
        f"{len(models)} models for {len(nameless)} files that do not say which model made them.",
        "one --model for each .npz, .npy and .parquet file, in their order",
    )
    names = dict(zip(nameless, models, strict=False))
    return [open_vectors(path, fingerprint=made_by(gallery.state, names.get(path)), cast=cast) for path in paths]


def _metadata(gallery: Gallery, path: Path, sets: list[EmbeddingSet], total: int) -> dict[str, list[Any]] | None:
    """Return the metadata of a Parquet file by column, None for items of further files; None for other files."""
    if path.suffix != ".parquet":
        return None
    from holdfast.galleries.transfer import ParquetTable

    table = ParquetTable(path)
    names = [name for name in gallery.state.columns if name in table.schema]
    values: dict[str, list[Any]] = {name: [] for name in names}
    for part in table.batches(names, 50_000) if names else ():
        for name in names:
            values[name] += part.column(name).to_pylist()
    return {name: found + [None] * (total - len(sets[0])) for name, found in values.items()}


def delete(
    gallery: str,
    ids: list[str] = [],  # noqa: B006
    ids_from: Path | None = None,
    wait: float = 10.0,
    json: bool = False,
) -> int:
    """Remove items with all their vectors; a backfill does not bring them back.

    Args:
        gallery: Where it is.
        ids: The items.
        ids_from: File of ids, one a line.
        wait: Seconds to wait for another writer.
        json: Print one JSON document.

    Examples:
        holdfast gallery delete --gallery live --ids 17 42
    """
    refuse(bool(ids) == (ids_from is not None), "Both or neither of --ids and --ids-from were given.", "one of them")
    names = list(dict.fromkeys(ids if ids_from is None else _lines(ids_from)))
    refuse(not names, f"'{ids_from}' has no ids.", "one id a line")
    with opened(gallery, wait) as it:
        known = set(it.store.fetch(names).ids)
        deleted, items = it.delete(names), len(it)
    unknown = [name for name in names if name not in known]
    console.print(f"{deleted:,} items deleted; {items:,} in the gallery.")
    if unknown:
        console.print(f"Not there: {shown(unknown)}.")
    if json:
        print_json({"deleted": deleted, "unknown": unknown[:1000], "items": items})
    return 0


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ConfigError(f"'{path}' is no text in UTF-8.", expected="one id a line") from error
    return [line for line in lines if line]
