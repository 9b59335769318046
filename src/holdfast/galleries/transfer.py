"""Galleries and tables of vectors: filling one from Parquet, LanceDB or PostgreSQL, and writing one to a file.

A table is read piece by piece, and a piece is one commit. What was committed stays if a later one is refused or the
process ends; the same call with ``skip_existing`` goes on after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypedDict, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from holdfast.documents import parsed_json
from holdfast.embeddings import EmbeddingSet, StringArray
from holdfast.embeddings.embedding_set import shown
from holdfast.embeddings.storage import save, to_npz, write_atomically
from holdfast.errors import (
    ConfigError,
    DataError,
    HoldfastError,
    SpaceMismatchError,
    nearest,
    reason,
    refuse,
    unknown_name,
    without_intact,
)
from holdfast.galleries.gallery import ROWS_AT_ONCE, Gallery
from holdfast.galleries.rows import checked_columns
from holdfast.galleries.state import Generation, Progress
from holdfast.geometry import SpaceRecord
from holdfast.stores.base import Store
from holdfast.stores.filters import Metadata

Part = tuple[list[str], NDArray[np.float32], list[Metadata]]

RECORD = b"holdfast"  # key in the metadata of Parquet files that `export` wrote
BATCH = 10_000  # rows of one commit
FORMATS = (".parquet", ".safetensors", ".npz")
LABEL = "label"

_ITEMS_AT_ONCE = 8192
_ARROW = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "truth": pa.bool_(), "json": pa.string()}
_NUMPY = {"text": np.str_, "integer": np.int64, "number": np.float64, "truth": np.bool_, "json": np.str_}


class VectorsRecord(TypedDict, total=False):
    """What a table says of its vectors, where it says anything.

    Args:
        fingerprint: Of the model that made them.
        space: Theirs.
        generation: Name that they had in the gallery which they come from.
    """

    fingerprint: str
    space: SpaceRecord
    generation: str


class Table(Protocol):
    """Rows with named columns, never read all at once."""

    @property
    def name(self) -> str:
        """What to call it in a message."""

    @property
    def schema(self) -> Mapping[str, pa.DataType]:
        """Arrow types of the columns by name; `pyarrow.null()` for one that cannot be read."""

    @property
    def rows(self) -> int:
        """How many rows it has."""

    @property
    def record(self) -> VectorsRecord | None:
        """What it says of its vectors; None where nothing."""

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield record batches of at most so many rows, with these columns, all of one moment."""


class ParquetTable:
    """A Parquet file, or all of a folder one after another by name.

    Args:
        path: The file, or a folder of ``.parquet`` files with the same columns.

    Raises:
        DataError: There is none, one cannot be read, or they have different columns.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.files = sorted(self.path.glob("*.parquet")) if self.path.is_dir() else [self.path]
        self.name = f"'{path}'"
        if not self.files:
            raise DataError(f"The folder {self.name} holds no .parquet file.", expected="at least one")
        opened = [_opened(file) for file in self.files]
        first = opened[0].schema_arrow
        for file, other in zip(self.files, opened, strict=True):
            if not other.schema_arrow.equals(first):
                raise DataError(
                    f"'{file}' has other columns than '{self.files[0]}'.",
                    expected="the same columns of the same types in all files of a folder",
                    to_do="import them one by one.",
                )
        self.schema = dict(zip(first.names, first.types, strict=True))
        self.rows = sum(file.metadata.num_rows for file in opened)
        if any(file.metadata.num_rows < 0 for file in opened):
            raise _unreadable(self.path, ValueError(f"it says that it has {self.rows} rows"))
        twice = next((name for name in first.names if first.names.count(name) > 1), None)
        if twice is not None:
            raise DataError(
                f"{self.name} has two columns '{twice}'.", expected="one column of a name", to_do="rename one of them."
            )
        self.record = _record_of(self.name, (first.metadata or {}).get(RECORD, b"{}"))
        for file in opened:
            file.close()

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield record batches, one row group of a file at a time."""
        for path in self.files:
            file = _opened(path)
            try:
                for batch in file.iter_batches(batch_size=rows, columns=list(columns), use_threads=False):
                    batch.validate(full=True)  # Arrow takes texts of a file for UTF-8 unseen
                    yield batch
            except (OSError, pa.ArrowException) as error:
                raise _unreadable(path, error) from error
            finally:
                file.close()


def _record_of(name: str, text: bytes) -> VectorsRecord | None:
    """Return what a file says of its vectors; None where nothing."""
    try:
        record = parsed_json(text)
        if isinstance(record, dict) and isinstance(record.get("space") or {}, dict):
            return cast(VectorsRecord, record) if record else None
        problem = "no mapping"
    except ValueError as error:
        problem = reason(error)
    raise DataError(
        f"What {name} says of its vectors (the metadata 'holdfast') cannot be read: {problem}.",
        expected="what `holdfast gallery export` wrote there",
        to_do="restore it from a copy, or write the table again without this metadata.",
    )


def _opened(path: Path) -> Any:
    try:
        return pq.ParquetFile(path)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"Cannot read '{path}': {reason(error)}.",
        expected="a complete Parquet file",
        to_do="write it again, or restore it from a copy.",
    )


# Import


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
    columns: dict[str, str] = {}
    for name, kind in possible.items():
        with suppress(ConfigError):
            columns |= checked_columns({name: kind})
    return columns


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
    made_by = fingerprint or (table.record or {}).get("fingerprint") or state.by_name[state.active].fingerprint
    generation = state.made_by(str(made_by))
    _check_space(table, generation)
    taken = {name: name for name in state.columns if name in table.schema} if columns is None else dict(columns)
    for name in taken:
        if name not in state.columns:
            raise _undeclared(name, state.columns)
    names = list(dict.fromkeys([id_column, vector_column, *taken.values()]))
    _check_names(table, names)
    run = _Import(gallery, table, generation, cast, skip_existing, on_step)
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
    said = (table.record or {}).get("space")
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
class _Import:
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

    def add(self, ids: pa.Array, vectors: pa.Array, metadata: Mapping[str, pa.Array]) -> None:
        """Commit the rows of one batch that are new."""
        try:
            embeddings = self._embeddings(ids, vectors)
            new = self._new(embeddings.ids)
            if len(new):
                values = {name: pc.take(array, pa.array(new)).to_pylist() for name, array in metadata.items()}
                self.gallery.add(embeddings.select(new), metadata=values)
                self.own_commits |= set(self.gallery.store.fetch([embeddings.ids[int(new[0])]]).versions.tolist())
        except HoldfastError as error:
            raise self._explained(error, len(ids)) from error
        self.read += len(ids)
        self.written += len(new)
        self.skipped += len(ids) - len(new)
        if self.on_step is not None:
            total = self.table.rows
            self.on_step({"read": self.read, "written": self.written, "skipped": self.skipped, "total": total})

    def _embeddings(self, ids: Any, vectors: Any) -> EmbeddingSet:
        return EmbeddingSet(
            ids=_ids(ids),
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


def _ids(array: Any) -> StringArray:
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
        told = ", ".join(sorted("missing" if length is None else str(length) for length in lengths))
        raise DataError(
            f"Vectors of these lengths: {told}.",
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


# Export


@dataclass(frozen=True)
class Exported:
    """What an export wrote.

    Args:
        path: The file.
        generation: Whose vectors.
        rows: How many items.
        left_out: Metadata columns that this kind of file cannot hold, with why.
    """

    path: Path
    generation: str
    rows: int
    left_out: Mapping[str, str]


def export(gallery: Gallery, generation: str | None, path: str | Path, *, on_step: Progress | None = None) -> Exported:
    """Write ids, points, labels and metadata of all items that have a vector of a generation, by id.

    Items that are written meanwhile come as they were or as they are, each whole. Vectors are points of the
    generation's space as the gallery keeps them: on the hypersphere, of length one.

    Args:
        gallery: Where from.
        generation: Name or fingerprint; the active one when None.
        path: ``.parquet`` holds all metadata and is written piece by piece; ``.safetensors`` is an `EmbeddingSet`;
            ``.npz`` holds NumPy arrays. For the last two the vectors pass through memory, and columns that they cannot
            hold are left out and named in the result.
        on_step: Told "done" and "total" items.

    Raises:
        ConfigError: Another kind of file, or an unknown generation.
        DataError: There is nothing to write, or the file cannot be written; one of that name from before is untouched.
    """
    pointer, state = gallery.now()
    chosen = state.named(generation or state.active)
    file = Path(path)
    if file.suffix not in FORMATS:
        raise unknown_name("kind of file", file.suffix or file.name, FORMATS)
    total = pointer.covered([chosen.name])
    if not total:
        raise DataError(
            f"{chosen.name} has no vectors.", expected="at least one item", to_do="backfill it, or name another one."
        )
    parts = _parts(gallery.store, chosen, total, on_step)
    if file.suffix == ".parquet":
        return _parquet(parts, chosen, state.columns, file)
    embeddings, left_out = _embedding_set(parts, chosen, state.columns, texts=file.suffix == ".npz")
    (to_npz if file.suffix == ".npz" else save)(embeddings, file)
    return Exported(file, chosen.name, len(embeddings), left_out)


def _parts(store: Store, generation: Generation, total: int, on_step: Progress | None) -> Iterator[Part]:
    """Yield ids, points and metadata, by id; an item that changes while it is read is read again."""
    after, space, done = "", generation.geometry, 0
    while len(items := store.scan(after=after, limit=_ITEMS_AT_ONCE)):
        ids, form = store.vectors(generation.name, items.ids)
        now = store.fetch(ids)
        before = dict(zip(items.ids, items.versions.tolist(), strict=True))
        if now.ids != ids or [before[one] for one in ids] != now.versions.tolist():
            continue  # the same page, as it is now
        after = items.ids[-1]
        if ids:
            yield ids, np.ascontiguousarray(space.from_index_form(form), np.float32), now.metadata
            done += len(ids)
            if on_step is not None:
                on_step({"done": done, "total": total})


def _parquet(parts: Iterator[Part], generation: Generation, columns: Mapping[str, str], path: Path) -> Exported:
    record = {"fingerprint": generation.fingerprint, "space": dict(generation.space), "generation": generation.name}
    fields = [("id", pa.string()), ("vector", pa.list_(pa.float32(), generation.geometry.dim))]
    fields += [(name, _ARROW[kind]) for name, kind in columns.items()]
    schema = pa.schema(fields, metadata={RECORD: json.dumps(record).encode()})
    rows = 0

    def write(file: Path) -> None:
        nonlocal rows
        with pq.ParquetWriter(file, schema) as writer:
            for ids, points, metadata in parts:
                writer.write_batch(_batch(schema, ids, points, metadata))
                rows += len(ids)

    write_atomically(path, write)
    return Exported(path, generation.name, rows, {})


def _batch(schema: Any, ids: list[str], points: NDArray[np.float32], metadata: Sequence[Metadata]) -> Any:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), points.shape[1])
    values = [[_written(one.get(name)) for one in metadata] for name in schema.names[2:]]
    columns = [pa.array(of_column, type=type_) for of_column, type_ in zip(values, schema.types[2:], strict=True)]
    return pa.record_batch([pa.array(ids), vectors, *columns], schema=schema)


def _written(value: Any) -> Any:
    """Return a value as files hold it: JSON as a text."""
    return json.dumps(value) if isinstance(value, dict) else value


def _embedding_set(
    parts: Iterator[Part], generation: Generation, columns: Mapping[str, str], *, texts: bool
) -> tuple[EmbeddingSet, dict[str, str]]:
    """Return all items as one set, and why which columns are not in it.

    Args:
        parts: Ids, points and metadata.
        generation: Whose they are.
        columns: Types of the metadata columns.
        texts: Whether columns of texts can be kept; that of labels always is.
    """
    ids: list[str] = []
    points: list[NDArray[np.float32]] = []
    values: dict[str, list[Any]] = {name: [] for name in columns}
    for some, vectors, metadata in parts:
        ids += some
        points.append(vectors)
        for name, of_column in values.items():
            of_column += [one.get(name) for one in metadata]
    labels, names = _labels(values.pop(LABEL, []))
    kept: dict[str, NDArray[Any]] = {}
    left_out = {LABEL: "some items have none"} if LABEL in columns and labels is None else {}
    for name, of_column in values.items():
        kind = columns[name]
        if kind == "text" and not texts:
            left_out[name] = "it holds texts"
        elif kind != "number" and None in of_column:
            left_out[name] = "some items have no value"
        else:  # a missing number is NaN, which no item can have
            kept[name] = np.array([np.nan if value is None else value for value in of_column], _NUMPY[kind])
    embeddings = EmbeddingSet(
        ids=StringArray.of(ids),
        vectors=np.concatenate(points),
        fingerprint=generation.fingerprint,
        space=generation.geometry,
        role="document",
        labels=labels,
        class_names=names,
        columns=kept,
    )
    return embeddings, left_out


def _labels(values: list[Any]) -> tuple[NDArray[np.int64] | None, StringArray | None]:
    """Return labels and class names; None where there are none, or some are missing."""
    if not values or None in values:
        return None, None
    if all(isinstance(value, int) for value in values):
        return np.array(values, np.int64), None
    names = sorted({str(value) for value in values})
    place = {name: row for row, name in enumerate(names)}
    return np.array([place[str(value)] for value in values], np.int64), StringArray.of(names)
