"""Writing the vectors of a gallery into files that other programs read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from holdfast.embeddings import EmbeddingSet, StringArray
from holdfast.embeddings.storage import save, to_npz, write_atomically
from holdfast.errors import DataError, unknown_name
from holdfast.galleries.state import Generation, Progress
from holdfast.galleries.tables import RECORD
from holdfast.stores.base import Metadata, Store

if TYPE_CHECKING:
    from holdfast.galleries.gallery import Gallery

Part = tuple[list[str], NDArray[np.float32], list[Metadata]]

FORMATS = (".parquet", ".safetensors", ".npz")
LABEL = "label"

_ITEMS_AT_ONCE = 8192
_ARROW = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "truth": pa.bool_()}
_NUMPY = {"text": np.str_, "integer": np.int64, "number": np.float64, "truth": np.bool_}


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
    parts = _told(_parts(gallery.store, chosen), total, on_step)
    if file.suffix == ".parquet":
        return _parquet(parts, chosen, state.columns, file)
    embeddings, left_out = _embedding_set(parts, chosen, state.columns, texts=file.suffix == ".npz")
    (to_npz if file.suffix == ".npz" else save)(embeddings, file)
    return Exported(file, chosen.name, len(embeddings), left_out)


def _parts(store: Store, generation: Generation) -> Iterator[Part]:
    """Yield ids, points and metadata, by id; an item that changes while it is read is read again."""
    after, space = "", generation.geometry
    while len(items := store.scan(after=after, limit=_ITEMS_AT_ONCE)):
        ids, form = store.vectors(generation.name, items.ids)
        now = store.fetch(ids)
        before = dict(zip(items.ids, items.versions.tolist(), strict=True))
        if now.ids != ids or [before[one] for one in ids] != now.versions.tolist():
            continue  # the same page, as it is now
        after = items.ids[-1]
        if ids:
            yield ids, np.ascontiguousarray(space.from_index_form(form), np.float32), now.metadata


def _told(parts: Iterator[Part], total: int, on_step: Progress | None) -> Iterator[Part]:
    done = 0
    for part in parts:
        yield part
        done += len(part[0])
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
    values = [[one.get(name) for one in metadata] for name in schema.names[2:]]
    columns = [pa.array(found, type=type_) for found, type_ in zip(values, schema.types[2:], strict=True)]
    return pa.record_batch([pa.array(ids), vectors, *columns], schema=schema)


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
        for name, found in values.items():
            found += [one.get(name) for one in metadata]
    labels, names = _labels(values.pop(LABEL, []))
    kept: dict[str, NDArray[Any]] = {}
    left_out = {LABEL: "some items have none"} if LABEL in columns and labels is None else {}
    for name, found in values.items():
        why = _unfit(columns[name], found, texts)
        if why:
            left_out[name] = why
        else:
            kept[name] = _array(columns[name], found)
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


def _unfit(kind: str, values: list[Any], texts: bool) -> str:
    """Say why a column cannot be kept; empty if it can."""
    if kind == "text" and not texts:
        return "it holds texts"
    return "some items have no value" if kind != "number" and None in values else ""


def _array(kind: str, values: list[Any]) -> NDArray[Any]:
    """Return a column; a missing number is NaN, which no item can have."""
    return np.array([np.nan if value is None else value for value in values], _NUMPY[kind])
