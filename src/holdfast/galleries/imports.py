"""Filling a gallery from tables that are there already, batch by batch: Parquet, LanceDB, PostgreSQL.

A batch is one commit. What was committed stays if a later batch is refused or the process ends; the same call with
``skip_existing`` goes on after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from holdfast.embeddings import EmbeddingSet, StringArray
from holdfast.embeddings.embedding_set import shown
from holdfast.errors import (
    ConfigError,
    DataError,
    HoldfastError,
    SpaceMismatchError,
    nearest,
    refuse,
    unknown_name,
    without_intact,
)
from holdfast.galleries.gallery import ROWS_AT_ONCE, Gallery
from holdfast.galleries.rows import checked_columns
from holdfast.galleries.state import Generation, Progress
from holdfast.galleries.tables import ParquetTable, Table

BATCH = 10_000  # rows of one commit


@dataclass(frozen=True)
class Imported:
    """What an import did.

    Args:
        source: What was read.
        read: Rows of it.
        written: Items that are new in the gallery.
        skipped: Rows whose item was there before.
    """

    source: str
    read: int
    written: int
    skipped: int


def import_parquet(gallery: Gallery, path: str | Path, **options: Any) -> Imported:
    """Add the rows of a Parquet file, or of all files of a folder; see `import_table` for the options."""
    return import_table(gallery, ParquetTable(path), **options)


def import_lance(gallery: Gallery, folder: str | Path, table: str, **options: Any) -> Imported:
    """Add the rows of a table in a folder of LanceDB; see `import_table` for the options."""
    from holdfast.stores.lance.foreign import LanceTable

    return import_table(gallery, LanceTable(folder, table), **options)


def import_postgres(gallery: Gallery, url: str, table: str, **options: Any) -> Imported:
    """Add the rows of a table of PostgreSQL; see `import_table` for the options."""
    from holdfast.stores.postgres.foreign import PostgresTable

    return import_table(gallery, PostgresTable(url, table), **options)


def columns_of(
    table: Table,
    *,
    id_column: str = "id",
    vector_column: str = "vector",
    take: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the metadata columns that a gallery of this table can have, for `Gallery.create`: type by name.

    Texts, whole numbers, numbers and truth values are taken; columns of other types, and names that are no plain
    words, are left out.

    Args:
        table: Where the rows come from.
        id_column: No metadata.
        vector_column: No metadata.
        take: Take these only: the table's column by the name it is to have.

    Raises:
        ConfigError: One of ``take`` is none of the table's, of a type that metadata cannot have, or has a wrong name.
    """
    kinds = {name: _kind(type_) for name, type_ in table.schema.items() if name not in (id_column, vector_column)}
    possible = {name: kind for name, kind in kinds.items() if kind is not None}
    if take is not None:
        for column in take.values():
            if column in table.schema and column not in possible:
                raise _no_metadata(table, column, possible)
            if column not in possible:
                raise unknown_name(f"column of {table.name}", column, possible)
        return checked_columns({name: possible[column] for name, column in take.items()})
    found: dict[str, str] = {}
    for name, kind in possible.items():
        with suppress(ConfigError):
            found |= checked_columns({name: kind})
    return found


def _no_metadata(table: Table, column: str, possible: Mapping[str, str]) -> ConfigError:
    return ConfigError(
        f"The column '{column}' of {table.name} can be no metadata.",
        expected=f"texts, numbers or truth values: one of {', '.join(possible) or 'none that it has'}",
        to_do="take others, or name a view of the table that converts it.",
    )


def dim_of(table: Table, *, vector_column: str = "vector") -> int | None:
    """Return the dimension of the vectors of a table as its first row has it; None for one without rows."""
    _check_names(table, [vector_column])
    first = next(iter(table.batches([vector_column], 1)), None)
    return None if first is None or not len(first) else _matrix(first.column(0)).shape[1]


def _kind(type_: Any) -> str | None:
    """Return the type of a metadata column for an Arrow type; None where there is none."""
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return "text"
    if pa.types.is_boolean(type_):
        return "truth"
    return "integer" if pa.types.is_integer(type_) else "number" if pa.types.is_floating(type_) else None


def import_table(
    gallery: Gallery,
    table: Table,
    *,
    id_column: str = "id",
    vector_column: str = "vector",
    columns: Mapping[str, str] | None = None,
    fingerprint: str | None = None,
    cast: bool = False,
    skip_existing: bool = False,
    batch: int = BATCH,
    on_step: Progress | None = None,
) -> Imported:
    """Add the rows of a table as items, in commits of ``batch`` rows; the table is never in memory as a whole.

    Args:
        gallery: Where to.
        table: Where from.
        id_column: Texts, or whole numbers that become texts; none missing and none twice.
        vector_column: Lists of float32, all of the dimension of the gallery's model.
        columns: Which column of the table holds each metadata column of the gallery; all of the same name when left
            out.
        fingerprint: Of the model that made the vectors, one of the gallery's; what the table says, or the active one,
            when left out.
        cast: Accept other types of numbers than float32 and convert them.
        skip_existing: Pass over rows whose item is there already, so that an interrupted import can go on.
        batch: Rows per commit, at most 50,000.
        on_step: Told "read", "written", "skipped" and "total" after every commit.

    Raises:
        ConfigError: A column is unknown, or ``batch`` out of range.
        DataError: A row breaks a promise of `EmbeddingSet`, an id is there already or twice in the table; the message
            says what of the table was committed.
        SpaceMismatchError: The vectors have another dimension or space than the gallery's.
        StoreError: The gallery or the table is out of reach.
    """
    refuse(not 1 <= batch <= ROWS_AT_ONCE, f"batch={batch}", f"1 to {ROWS_AT_ONCE} rows")
    state = gallery.state
    made_by = fingerprint or table.record.get("fingerprint") or state.by_name[state.active].fingerprint
    generation = state.made_by(str(made_by))
    _check_space(table, generation)
    taken = {name: name for name in state.columns if name in table.schema} if columns is None else dict(columns)
    for name in taken:
        if name not in state.columns:
            raise _undeclared(name, state.columns)
    names = list(dict.fromkeys([id_column, vector_column, *taken.values()]))
    _check_names(table, names)
    run = _Run(gallery, table, generation, cast, skip_existing, on_step)
    for part in table.batches(names, batch):
        columns_ = {name: part.column(place) for place, name in enumerate(names)}
        run.add(columns_[id_column], columns_[vector_column], {to: columns_[of] for to, of in taken.items()})
    return Imported(table.name, run.read, run.written, run.skipped)


def _undeclared(name: str, known: Mapping[str, str]) -> ConfigError:
    return ConfigError(
        f"The gallery has no metadata column '{name}'.{nearest(name, known)}",
        expected=f"one of {', '.join(known)}" if known else "none: it was made without any",
        to_do="columns are declared when a gallery is made: `holdfast gallery create` takes them from the same table "
        "and fills a new gallery; nothing was changed in this one.",
    )


def _check_space(table: Table, generation: Generation) -> None:
    said = table.record.get("space")
    if said is not None and dict(said) != dict(generation.space):
        raise SpaceMismatchError(
            f"The vectors of {table.name} are in the space {said}.",
            expected=f"the {generation.geometry}, as {generation.name} has it",
            to_do="import them into a gallery of this space; this one is intact.",
        )


def _check_names(table: Table, names: list[str]) -> None:
    for name in names:
        if name not in table.schema:
            raise unknown_name(f"column of {table.name}", name, table.schema)
        if table.schema[name] == pa.null():
            raise DataError(
                f"The column '{name}' of {table.name} is of a type that cannot be read.",
                expected="texts, numbers, truth values, or a list of numbers",
                to_do="name another column, or make a view that converts it.",
            )


@dataclass
class _Run:
    """One import so far."""

    gallery: Gallery
    table: Table
    generation: Generation
    cast: bool
    skip_existing: bool
    on_step: Progress | None
    read: int = 0
    written: int = 0
    skipped: int = 0
    own_commits: set[int] = field(default_factory=set)

    def add(self, ids: Any, vectors: Any, metadata: Mapping[str, Any]) -> None:
        """Commit the rows of one batch that are new."""
        try:
            found = self._embeddings(ids, vectors)
            new = self._new(found.ids)
            if len(new):
                values = {name: pc.take(array, pa.array(new)).to_pylist() for name, array in metadata.items()}
                self.gallery.add(found.select(new), metadata=values)
                self.own_commits |= set(self.gallery.store.fetch([found.ids[int(new[0])]]).versions.tolist())
        except HoldfastError as error:
            raise self._explained(error, len(ids)) from error
        self.read += len(ids)
        self.written += len(new)
        self.skipped += len(ids) - len(new)
        if self.on_step is not None:
            done = {"read": self.read, "written": self.written, "skipped": self.skipped}
            self.on_step({**done, "total": self.table.rows})

    def _embeddings(self, ids: Any, vectors: Any) -> EmbeddingSet:
        return EmbeddingSet(
            ids=_names(ids),
            vectors=_float32(_matrix(vectors), self.cast),
            fingerprint=self.generation.fingerprint,
            space=self.generation.geometry,
            role="document",
        )

    def _new(self, ids: StringArray) -> NDArray[np.int64]:
        """Return the rows whose item the gallery does not have; refuse what this very import wrote."""
        there = self.gallery.store.fetch(list(ids))
        twice = [one for one, version in zip(there.ids, there.versions, strict=True) if version in self.own_commits]
        if twice:
            raise DataError(
                f"{len(twice)} ids occur more than once: {shown(twice)}.",
                expected="one row per item",
                to_do="remove the repeated rows, or give each its own id.",
            )
        if there.ids and not self.skip_existing:
            raise DataError(
                f"{len(there)} ids are in the gallery already: {shown(there.ids)}.",
                expected="new ids",
                to_do="--skip-existing passes over them; `holdfast gallery upsert` replaces them.",
            )
        known = set(there.ids)
        return np.array([row for row, one in enumerate(ids) if one not in known], np.int64)

    def _explained(self, error: HoldfastError, rows: int) -> HoldfastError:
        """Return the error with where it was met, and what is true of the gallery now."""
        place = f"{self.table.name}, rows {self.read + 1:,} to {self.read + rows:,}"
        advice = without_intact(error.to_do).rstrip("; .") or "correct the table"
        advice += "; then import it again" + ", with --skip-existing to go on" * bool(self.read)
        kept = (
            f"the {self.written:,} items written before are in the gallery" if self.written else "nothing was written"
        )
        return type(error)(f"{place}: {error.given}", error.expected, f"{advice}; {kept}.")


def _names(array: Any) -> StringArray:
    """Return ids, those that are whole numbers as texts."""
    if array.null_count:
        raise DataError(f"{array.null_count} ids are missing.", expected="an id in every row")
    if _kind(array.type) not in ("text", "integer"):
        raise DataError(f"Ids are {array.type}.", expected="texts or whole numbers")
    return StringArray.from_arrow(array.cast(pa.large_string()))


def _matrix(lists: Any) -> NDArray[Any]:
    """Return the vectors (N, D) of a column of lists."""
    kind = lists.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise DataError(f"The column of vectors is {kind}.", expected="a list of numbers in every row")
    lengths = pc.unique(pc.list_value_length(lists)).to_pylist()
    if lists.null_count or len(lengths) > 1 or 0 in lengths:
        found = ", ".join(sorted("missing" if length is None else str(length) for length in lengths))
        raise DataError(
            f"Vectors of these lengths: {found}.",
            expected="one dimension of at least 1",
            to_do="remove the items whose vector is missing or has another length.",
        )
    return np.asarray(lists.flatten().to_numpy(zero_copy_only=False)).reshape(len(lists), -1)


def _float32(vectors: NDArray[Any], cast: bool) -> NDArray[np.float32]:
    if vectors.dtype != np.float32 and not (cast and vectors.dtype.kind in "fiu"):
        raise DataError(
            f"Vectors are {vectors.dtype}.",
            expected="float32",
            to_do="--cast converts them, and may lose digits.",
        )
    return np.ascontiguousarray(vectors, np.float32)
