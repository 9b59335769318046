"""Import of vectors from a source into a gallery, and export of a generation to a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from annotated_types import Ge, Le
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.embeddings.embedding_set import unusable_rows
from limpet.embeddings.forms import space_named
from limpet.embeddings.storage import save, to_npz, write_atomically
from limpet.engines.files.parquet import RECORD
from limpet.engines.filters import Metadata
from limpet.engines.source import (
    check_readable,
    metadata_kind,
    needed,
    roles_of,
    texts_of_ids,
)
from limpet.engines.sources import Source
from limpet.engines.store import Store
from limpet.errors import (
    ConfigError,
    DataError,
    LimpetError,
    SpaceMismatchError,
    nearest,
    shown,
    unknown_name,
)
from limpet.galleries.gallery import ROWS_AT_ONCE, Gallery
from limpet.galleries.rows import checked_columns
from limpet.galleries.state import Generation
from limpet.support.progress import Progress, Told, listener, showing
from limpet.support.ranges import checked

_Part = tuple[list[str], NDArray[np.float32], list[Metadata]]

BATCH = 10_000  # rows of one commit
FORMATS = (".parquet", ".safetensors", ".npz")
LABEL = "label"

_ITEMS_AT_ONCE = 8192
_ARROW = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "truth": pa.bool_(), "json": pa.string()}
_NUMPY = {"text": np.str_, "integer": np.int64, "number": np.float64, "truth": np.bool_, "json": np.str_}


# Import


@dataclass(frozen=True)
class Imported:
    """Result of an import.

    Args:
        written: Number of items that are new in the gallery.
        skipped: Number of rows whose item existed before.
    """

    source: str
    read: int
    written: int
    skipped: int


def columns_of(source: Source, *, take: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the metadata columns that a gallery of this source can have, for `Gallery.create`: type by name.

    Texts, integers, floating-point numbers and booleans are supported; columns of other types, and names that are no
    plain words, are left out.

    Args:
        source: Source of the rows; its ids and vectors are no metadata.
        take: Columns to take: the source's column by its name in the gallery.

    Raises:
        ConfigError: A column of ``take`` is not in the source, of an unsupported type, or has an invalid name.
    """
    roles = roles_of(source)
    own = (roles.id, roles.vector)
    kinds = {name: metadata_kind(type_) for name, type_ in source.schema.items() if name not in own}
    possible = {name: kind for name, kind in kinds.items() if kind is not None}
    if take is not None:
        for column in take.values():
            if column in source.schema and column not in possible:
                raise _no_metadata(source, column, possible)
            if column not in possible:
                raise unknown_name(f"column of {source.name}", column, possible)
        return checked_columns({name: possible[column] for name, column in take.items()})
    columns: dict[str, str] = {}
    for name, kind in possible.items():
        with suppress(ConfigError):
            columns |= checked_columns({name: kind})
    return columns


def _no_metadata(source: Source, column: str, possible: Mapping[str, str]) -> ConfigError:
    return ConfigError(
        f"The column '{column}' of {source.name} can be no metadata.",
        expected=f"texts, numbers or truth values: one of {', '.join(possible) or 'none that it has'}",
        to_do="take others, or name a view of the table that converts it.",
    )


def dim_of(source: Source) -> int | None:
    """Return the dimension of the vectors of a source, from its first row; None if it has no rows."""
    first = next(iter(source.batches(needed(source, roles_of(source), "vector"), 1)), None)
    return None if first is None or not len(first) else _matrix(first.column(0)).shape[1]


@checked
@showing("import")
def import_table(
    gallery: Gallery,
    source: Source,
    *,
    columns: Mapping[str, str] | None = None,
    fingerprint: str | None = None,
    skip_existing: bool = False,
    batch: Annotated[int, Ge(1), Le(ROWS_AT_ONCE)] = BATCH,
    unusable: list[str] | None = None,
    progress: Progress[Told] = None,
) -> Imported:
    """Add the rows of a source as items, in commits of ``batch`` rows, without loading the whole source.

    Args:
        gallery: Gallery to fill.
        source: Source of the rows. Ids are texts, or integers that become texts, without missing or repeated ones;
            vectors are lists of floating-point numbers, rounded to float32, of the dimension of the gallery's model.
        columns: The source's column by metadata column of the gallery; by default, columns of the same name.
        fingerprint: Fingerprint of the model that made the vectors, one of the gallery's; by default, that of the
            source, or of the active model.
        skip_existing: Skip rows whose item exists already, so that an interrupted import can be resumed.
        batch: Rows per commit, at most 50,000.
        unusable: Collects the ids of rows whose vector is zero, NaN or infinite, which are skipped; by default, such
            vectors are refused.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "done", "read", "written",
            "skipped" and "total" after every commit.

    Raises:
        ConfigError: A column is unknown, or ``batch`` out of range.
        DataError: A row violates a requirement of `EmbeddingSet`, or an id exists already or occurs twice in the
            source; the message says which part was committed.
        SpaceMismatchError: The vectors have another dimension or space than the gallery's.
        StoreError: The gallery or the source is unreachable.
    """
    state = gallery.state
    made_by = fingerprint or (source.record or {}).get("fingerprint") or state.by_name[state.active].fingerprint
    generation = state.made_by(str(made_by))
    _check_space(source, generation)
    id_column, vector_column = needed(source, roles_of(source), "id", "vector")
    taken = {name: name for name in state.columns if name in source.schema} if columns is None else dict(columns)
    for name in taken:
        if name not in state.columns:
            raise _undeclared(name, state.columns)
    names = list(dict.fromkeys([id_column, vector_column, *taken.values()]))
    check_readable(source, names)
    run = _Import(gallery, source, generation, skip_existing, unusable, progress)
    for part in source.batches(names, batch):
        columns_ = {name: part.column(place) for place, name in enumerate(names)}
        run.add(columns_[id_column], columns_[vector_column], {to: columns_[of] for to, of in taken.items()})
    return Imported(source.name, run.read, run.written, run.skipped)


def _undeclared(name: str, known: Mapping[str, str]) -> ConfigError:
    return ConfigError(
        f"The gallery has no metadata column '{name}'.{nearest(name, known)}",
        expected=f"one of {', '.join(known)}" if known else "none: it was made without any",
        to_do="columns are declared when a gallery is made: `limpet gallery create` takes them from the same table "
        "and fills a new gallery.",
        intact="Nothing was changed in this one.",
    )


def _check_space(source: Source, generation: Generation) -> None:
    said, similarity = (source.record or {}).get("space"), source.address.similarity
    if similarity is not None:
        said = space_named(similarity, generation.geometry.dim)[0].record()
    if said is not None and dict(said) != dict(generation.space):
        raise SpaceMismatchError(
            f"The vectors of {source.name} are in the space {said}.",
            expected=f"the {generation.geometry}, as {generation.name} has it",
            to_do="import them into a gallery of this space.",
            intact="This one is intact.",
        )


@dataclass
class _Import:
    """State of one import."""

    gallery: Gallery
    source: Source
    generation: Generation
    skip_existing: bool
    unusable: list[str] | None
    progress: Progress[Told]
    read: int = 0
    written: int = 0
    skipped: int = 0
    own_commits: set[int] = field(default_factory=set)

    def add(self, ids: pa.Array, vectors: pa.Array, metadata: Mapping[str, pa.Array]) -> None:
        try:
            embeddings, rows = self._embeddings(ids, vectors)
            new = self._new(embeddings.ids)
            if len(new):
                values = {name: pc.take(array, pa.array(rows[new])).to_pylist() for name, array in metadata.items()}
                self.gallery.add(embeddings[new], metadata=values)
                self.own_commits |= set(self.gallery.store.fetch([embeddings.ids[int(new[0])]]).versions.tolist())
        except LimpetError as error:
            raise self._explained(error, len(ids)) from error
        self.read += len(ids)
        self.written += len(new)
        self.skipped += len(embeddings) - len(new)
        counts: Told = {"read": self.read, "written": self.written, "skipped": self.skipped}
        listener(self.progress)({"done": self.read, "total": self.source.rows, **counts})

    def _embeddings(self, ids: Any, vectors: Any) -> tuple[EmbeddingSet, NDArray[np.int64]]:
        names, points = StringArray.from_arrow(texts_of_ids(ids)), _float32(_matrix(vectors))
        space, rows = self.generation.geometry, np.arange(len(points))
        if self.unusable is not None and points.shape[1] == space.dim:
            wrong = unusable_rows(points, space, "points")
            self.unusable += list(names[wrong])
            rows = np.delete(rows, wrong)
        made_by = self.generation.fingerprint
        return EmbeddingSet(points[rows], names[rows], made_by, space, role="document"), rows

    def _new(self, ids: StringArray) -> NDArray[np.int64]:
        """Return the rows whose item the gallery lacks; refuse ids that this import has written before."""
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
                to_do="--skip-existing passes over them; `limpet gallery upsert` replaces them.",
            )
        known = set(there.ids)
        return np.array([row for row, one in enumerate(ids) if one not in known], np.int64)

    def _explained(self, error: LimpetError, rows: int) -> LimpetError:
        place = f"{self.source.name}, rows {self.read + 1:,} to {self.read + rows:,}"
        advice = error.to_do.rstrip("; .") or "correct the table"
        advice += "; then import it again" + ", with --skip-existing to go on" * bool(self.read)
        kept = (
            f"The {self.written:,} items written before are in the gallery." if self.written else "Nothing was written."
        )
        return type(error)(f"{place}: {error.given}", error.expected, f"{advice}.", intact=kept)


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


def _float32(vectors: NDArray[Any]) -> NDArray[np.float32]:
    if vectors.dtype.kind != "f":
        raise DataError(
            f"Vectors are {vectors.dtype}.",
            expected="floating-point numbers",
            to_do="convert them; numbers of 8 bits have to be scaled back first.",
        )
    return np.ascontiguousarray(vectors, np.float32)


# Export


@dataclass(frozen=True)
class ExportedGeneration:
    """What an export wrote.

    Args:
        left_out: Metadata columns that this kind of file cannot hold, with the reason.
    """

    path: Path
    generation: str
    rows: int
    left_out: Mapping[str, str]


@showing("export")
def export(
    gallery: Gallery, generation: str | None, path: str | Path, *, progress: Progress[Told] = None
) -> ExportedGeneration:
    """Write ids, points, labels and metadata of all items that have a vector of a generation, by id.

    An item that is written meanwhile is exported completely in its earlier or its new state. Vectors are points of the
    generation's space as the gallery keeps them: on the hypersphere, of length one.

    Args:
        gallery: Gallery to export.
        generation: Name or fingerprint; the active one when None.
        path: ``.parquet`` holds all metadata and is written in parts; ``.safetensors`` is an `EmbeddingSet`;
            ``.npz`` holds NumPy arrays. The last two hold all vectors in memory, and leave out columns that they
            cannot hold, which the result names.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "done" and "total" items.

    Raises:
        ConfigError: The kind of file is not supported, or the generation is unknown.
        DataError: No item has a vector, or the file cannot be written; an existing file is untouched.
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
    parts = _parts(gallery.store, chosen, total, progress)
    if file.suffix == ".parquet":
        return _parquet(parts, chosen, state.columns, file)
    embeddings, left_out = _embedding_set(parts, chosen, state.columns, texts=file.suffix == ".npz")
    (to_npz if file.suffix == ".npz" else save)(embeddings, file)
    return ExportedGeneration(file, chosen.name, len(embeddings), left_out)


def _parts(store: Store, generation: Generation, total: int, progress: Progress[Told]) -> Iterator[_Part]:
    """Yield ids, points and metadata, by id; an item that changes meanwhile is read again."""
    after, space, done = "", generation.geometry, 0
    while len(items := store.scan(after=after, limit=_ITEMS_AT_ONCE)):
        ids, form = store.vectors(generation.name, items.ids)
        now = store.fetch(ids)
        before = dict(zip(items.ids, items.versions.tolist(), strict=True))
        if now.ids != ids or [before[one] for one in ids] != now.versions.tolist():
            continue  # the same page, in its current state
        after = items.ids[-1]
        if ids:
            yield ids, np.ascontiguousarray(space.from_index_form(form), np.float32), now.metadata
            done += len(ids)
            listener(progress)({"done": done, "total": total})


def _parquet(
    parts: Iterator[_Part], generation: Generation, columns: Mapping[str, str], path: Path
) -> ExportedGeneration:
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
    return ExportedGeneration(path, generation.name, rows, {})


def _batch(schema: Any, ids: list[str], points: NDArray[np.float32], metadata: Sequence[Metadata]) -> Any:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), points.shape[1])
    values = [[_written(one.get(name)) for one in metadata] for name in schema.names[2:]]
    columns = [pa.array(of_column, type=type_) for of_column, type_ in zip(values, schema.types[2:], strict=True)]
    return pa.record_batch([pa.array(ids), vectors, *columns], schema=schema)


def _written(value: Any) -> Any:
    """Return a value in the form of files: JSON as a text."""
    return json.dumps(value) if isinstance(value, dict) else value


def _embedding_set(
    parts: Iterator[_Part], generation: Generation, columns: Mapping[str, str], *, texts: bool
) -> tuple[EmbeddingSet, dict[str, str]]:
    """Return all items as one set, and the columns that it leaves out with the reasons."""
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
    """Return labels and class names; None if there are none, or some are missing."""
    if not values or None in values:
        return None, None
    if all(isinstance(value, int) for value in values):
        return np.array(values, np.int64), None
    return StringArray.of(map(str, values)).classes()
