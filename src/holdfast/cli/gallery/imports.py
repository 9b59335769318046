"""``holdfast gallery import``: vectors that are there already, from files, LanceDB and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.cli.console import console, print_json, rate_progress
from holdfast.cli.gallery.common import command, made_by, open_vectors, opened, unnamed
from holdfast.embeddings.embedding_set import shown
from holdfast.embeddings.files import FileColumns
from holdfast.errors import DataError, refuse, without_secrets

if TYPE_CHECKING:
    from holdfast.embeddings import EmbeddingSet
    from holdfast.galleries import Gallery
    from holdfast.galleries.transfer import Imported, Table


def import_rows(
    gallery: str,
    embeddings: Path | None = None,
    lance: Path | None = None,
    postgres: str | None = None,
    table: str | None = None,
    id_column: str = "id",
    vector_column: str = "vector",
    take: list[str] = [],  # noqa: B006 - read only, shown as the default
    model: str | None = None,
    skip_existing: bool = False,
    batch: int = 10_000,
    cast: bool = False,
    wait: float = 10.0,
    json: bool = False,
) -> int:
    """Add items from a file of embeddings, a Parquet file or folder, a LanceDB table or a PostgreSQL table.

    Rows are read and written piece by piece. Interrupted, the same command with --skip-existing goes on. Labels and
    further columns are taken along if the gallery has columns of their names.

    Args:
        gallery: Where it is.
        embeddings: A folder that `holdfast embed` wrote (its gallery), a folder of .parquet files, or one .safetensors,
            .npz, .npy or .parquet file. Also written --from.
        lance: Folder of LanceDB, with --table.
        postgres: URL of a database, with --table.
        table: Name of the table.
        id_column: Column of ids, in tables, Parquet and .npz files.
        vector_column: Column of vectors there.
        take: Which columns of a table become metadata: title, or price=unit_price where the gallery calls it
            otherwise; all that have the name of one of the gallery's when left out.
        model: What you call the model that made the vectors, where they do not say it; or a generation of the gallery,
            such as g1.
        skip_existing: Pass over items that are there already.
        batch: Items per commit.
        cast: Accept other types of numbers than float32.
        wait: Seconds to wait for another writer.
        json: Print one JSON document.

    Examples:
        holdfast gallery import --gallery live --embeddings runs/more
        holdfast gallery import --gallery live --postgres postgresql://me@host/shop --table items --model v1
    """
    check_places(embeddings, lance, postgres, table)
    with opened(gallery, wait) as it:
        fingerprint = made_by(it.state, model)
        options: dict[str, Any] = {"skip_existing": skip_existing, "batch": batch, "cast": cast}
        found, chosen = table_of(embeddings, lance, postgres, table), taken(take)
        passed: list[str] = []
        try:
            if found is None:
                refuse(bool(take), "--take for a file of embeddings.", "it only with tables and Parquet files")
                called = columns_of(id_column, vector_column)
                read = open_vectors(embeddings or Path(), fingerprint=fingerprint, cast=cast, columns=called)
                done = add_set(it, read, str(embeddings), skip_existing=skip_existing, batch=batch)
            else:
                places = {"id_column": id_column, "vector_column": vector_column}
                done = add_table(it, found, fingerprint, columns=chosen, **places, **options)
                if chosen is None:
                    passed = left_out(found, it.state.columns, **places)
        except KeyboardInterrupt:
            console.print("\nInterrupted. What was written is kept; the same command with --skip-existing continues.")
            return 130
        items = len(it)
    if passed:
        console.print(f"Not taken, since the gallery has no columns of these names: {shown(passed)}.")
    tell(done, items, gallery)
    if json:
        print_json({**vars(done), "source": without_secrets(done.source), "items": items})
    return 0


def check_places(embeddings: Path | None, lance: Path | None, postgres: str | None, table: str | None) -> None:
    """Refuse none and several places to import from, and a table without its database.

    Raises:
        ConfigError: That was given.
    """
    places = {"embeddings": embeddings, "lance": lance, "postgres": postgres}
    given = [f"--{name}" for name, value in places.items() if value is not None]
    refuse(len(given) != 1, f"{' and '.join(given) or 'Nothing'} given to import.",
           "one of: --embeddings FILE_OR_FOLDER; --lance FOLDER --table T; --postgres URL --table T")  # fmt: skip
    refuse((table is None) != (embeddings is not None), "--table goes with --lance and --postgres.", "both, or neither")


def columns_of(id_column: str, vector_column: str) -> FileColumns:
    """Return what an .npz file calls ids and vectors, where it is not as a table usually does."""
    return FileColumns(
        vector=() if vector_column == "vector" else (vector_column,), id=() if id_column == "id" else (id_column,)
    )


def table_of(embeddings: Path | None, lance: Path | None, postgres: str | None, table: str | None) -> Table | None:
    """Return the table to read; None for a file of embeddings."""
    from holdfast.galleries.transfer import ParquetTable

    if lance is not None:
        from holdfast.stores.lance.foreign import LanceTable

        return LanceTable(lance, str(table))
    if postgres is not None:
        from holdfast.stores.postgres.foreign import PostgresTable

        return PostgresTable(postgres, str(table))
    path = embeddings or Path()
    return ParquetTable(path) if is_parquet(path) else None


def is_parquet(path: Path) -> bool:
    """Return whether this is a Parquet file, or a folder of such files."""
    return (path.is_file() and path.suffix == ".parquet") or (path.is_dir() and any(path.glob("*.parquet")))


def taken(words: list[str]) -> dict[str, str] | None:
    """Return the table's column by the gallery's name for it; None where nothing was chosen.

    >>> taken(["title", "price=unit_price"]), taken([])
    ({'title': 'title', 'price': 'unit_price'}, None)
    """
    found: dict[str, str] = {}
    for word in words:
        name, sign, column = word.partition("=")
        refuse(not name or bool(sign and not column), f"--take {word}.", "COLUMN, or NAME=COLUMN to call it otherwise")
        refuse(name in found, f"--take {' '.join(words)}.", f"'{name}' once")
        found[name] = column or name
    return found or None


def left_out(table: Table, columns: Iterable[str], *, id_column: str, vector_column: str) -> list[str]:
    """Return the columns of a table that become nothing in the gallery, in order."""
    used = {*columns, id_column, vector_column}
    return [name for name in table.schema if name not in used]


def add_table(gallery: Gallery, table: Table, fingerprint: str | None, **options: Any) -> Imported:
    """Add the rows of a table, showing progress; see `holdfast.galleries.transfer.import_table`.

    Raises:
        ConfigError: Neither the table nor anybody says which model made its vectors.
    """
    from holdfast.galleries.transfer import import_table

    if fingerprint is None and not (table.record or {}).get("fingerprint"):
        raise unnamed(table.name)
    with rate_progress("importing", table.rows) as on_step:
        return import_table(
            gallery, table, fingerprint=fingerprint, on_step=lambda event: on_step({"done": event["read"]}), **options
        )


def add_set(
    gallery: Gallery, embeddings: EmbeddingSet, name: str, *, skip_existing: bool = False, batch: int = 10_000
) -> Imported:
    """Add a set of embeddings in commits of ``batch`` items, showing progress.

    Raises:
        DataError: An id is there already, unless those are skipped.
    """
    from holdfast.galleries.transfer import Imported

    refuse(not 1 <= batch <= 50_000, f"--batch {batch}.", "1 to 50,000 items")
    if not len(embeddings):
        raise DataError(f"'{name}' has no items.", expected="at least one", to_do="embed some; nothing was changed.")
    written = 0
    with rate_progress("importing", len(embeddings)) as on_step:
        for start in range(0, len(embeddings), batch):
            part = embeddings.select(slice(start, start + batch))
            there = set(gallery.store.fetch(list(part.ids)).ids)
            if there and not skip_existing:
                raise _known(sorted(there), name, written)
            rows = np.array([row for row, one in enumerate(part.ids) if one not in there], np.int64)
            written += gallery.add(part.select(rows)) if len(rows) else 0
            on_step({"done": start + len(part)})
    return Imported(f"'{name}'", len(embeddings), written, len(embeddings) - written)


def _known(ids: list[str], name: str, written: int) -> DataError:
    kept = f"the {written:,} items written before are in the gallery" if written else "nothing was written"
    return DataError(
        f"'{name}': {len(ids)} ids are in the gallery already: {shown(ids)}.",
        expected="new ids",
        to_do=f"--skip-existing passes over them; `holdfast gallery upsert` replaces them; {kept}.",
    )


def tell(done: Imported, items: int, url: str) -> None:
    """Say what was imported, and what to type next."""
    skipped = f", {done.skipped:,} were there already" if done.skipped else ""
    console.print(f"{done.written:,} items from {without_secrets(done.source)}{skipped}; {items:,} in the gallery.")
    console.print(f"Next: {command('status', url)}")
