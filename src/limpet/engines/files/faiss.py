"""FAISS indexes of exact vectors: ``faiss:FILE?ids=FILE``.

The files are parsed here and not by FAISS, which trusts their content: every length is checked against the size of the
file before memory is allocated, vectors stay in the file until they are requested, and no crafted file can crash the
process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from limpet.embeddings import StringArray
from limpet.embeddings.imports import NPZ_ERRORS
from limpet.embeddings.numpy_files import NumpyFile
from limpet.embeddings.string_array import IdIndex
from limpet.engines.address import Address
from limpet.engines.source import chosen, filter_of, kept, texts_of_ids
from limpet.errors import ConfigError, DataError, reason
from limpet.support.disk import regular

ID, VECTOR = "id", "vector"
_SIMILARITIES = {0: "inner-product", 1: "euclidean"}
_FLAT = ("IxFI", "IxF2", "IxFl")
_MAPS = ("IxMp", "IxM2")
_NESTED = 4
"""Maximum nesting of indexes in a file."""
_KEPT = "IndexFlat, IndexIDMap, IndexIVFFlat or IndexHNSWFlat, which keep the vectors as they are"


@dataclass(frozen=True)
class Stored:
    """Vectors of an index.

    Args:
        metric: FAISS's number of the metric.
        parts: Float32 (n, D), each mapped from the file.
        ids: Ids of the rows of all parts, one part after another, int64 (N,).
    """

    dim: int
    metric: int
    parts: tuple[NDArray[np.float32], ...]
    ids: NDArray[np.int64]


class _File:
    """A file that is read from the start, with bounds checks."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, regular(path).stat().st_size
        self._bytes = np.memmap(path, np.uint8, "r") if self.size else np.empty(0, np.uint8)
        self.place = 0

    def array(self, dtype: str, count: int) -> NDArray[Any]:
        length = count * np.dtype(dtype).itemsize
        if not 0 <= length <= self.size - self.place:
            raise EOFError(f"at byte {self.place} it announces {length} more, and has {self.size - self.place}")
        found = self._bytes[self.place : self.place + length].view(dtype)
        self.place += length
        return found

    def number(self, dtype: str) -> int:
        return int(self.array(dtype, 1)[0])

    def vector(self, dtype: str, unit: int = 1) -> NDArray[Any]:
        """Map an array that follows its count; each counted element has `unit` numbers."""
        return self.array(dtype, self.number("<u8") * unit)

    def name(self) -> str:
        return self.array("u1", 4).tobytes().decode("latin-1")


class FaissIndex:
    """The vectors of an index in a file, under the columns "id" and "vector".

    Ids are those of an ``IndexIDMap`` or an ``IndexIVFFlat``, else the row numbers; with ``ids=FILE``, an ``.npy`` file
    or one with a line per id, these numbers are positions of the ids in that file.

    Raises:
        ConfigError: The file does not exist.
        DataError: The file is no index of exact vectors, or damaged; or the ids do not fit.
    """

    options: ClassVar[Collection[str]] = ("ids",)
    record: None = None
    key = ID

    def __init__(self, address: Address) -> None:
        self.address, path = address, Path(address.place)
        self.name = f"index '{path}'"
        if not path.is_file():
            raise ConfigError(f"There is no file '{path}'.", to_do="check the path.")
        try:
            file = _File(path)
            self._stored = _read(file)
            if file.place < file.size:
                raise ValueError(f"{file.size - file.place} bytes follow its end")
        except (EOFError, ValueError) as error:
            raise DataError(
                f"Cannot read '{path}' as an index of FAISS: {reason(error)}.",
                expected=_KEPT,
                to_do="write it again by faiss.write_index, or give the vectors in another file.",
            ) from error
        self._ids = self._named(address.options.get("ids"))
        self.schema: Mapping[str, pa.DataType] = {ID: self._ids.type, VECTOR: pa.list_(pa.float32(), self._stored.dim)}
        self._where = filter_of(self)
        self._starts = np.cumsum([0, *map(len, self._stored.parts)])

    def _named(self, file: str | None) -> pa.Array:
        rows = self._stored.ids
        if file is None:
            return pa.array(rows)
        names = _ids_of(Path(file))
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(names):
            raise DataError(
                f"'{file}' holds {len(names)} ids, and the rows of {self.name} are numbered from {rows.min()} to "
                f"{rows.max()}.",
                expected="an id for every row",
            )
        return names.take(pa.array(rows))

    @property
    def rows(self) -> int:
        """Number of rows of a read, before conditions."""
        count = int(self._starts[-1])
        return count if self.address.sample is None else min(count, self.address.sample.rows)

    def type_name(self, column: str) -> str:
        """Return the type of a column."""
        return str(self.schema[column])

    def similarity(self, vector: str) -> str | None:
        """Return the similarity of the index.

        Raises:
            DataError: The metric is neither the inner product nor the Euclidean distance.
        """
        if self._stored.metric not in _SIMILARITIES:
            raise DataError(
                f"{self.name} compares by the metric {self._stored.metric} of FAISS.",
                expected="METRIC_INNER_PRODUCT or METRIC_L2",
            )
        return _SIMILARITIES[self._stored.metric]

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches of at most `rows` rows, with these columns, in the order of the file."""
        if self.address.sample is not None:
            ids = (texts_of_ids(batch.column(0)) for batch in self._read([ID], rows))
            yield from self.fetch(chosen(self.address.sample, ids), columns)
            return
        yield from self._read(columns, rows)

    def fetch(self, ids: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these ids, in any order."""
        found = self._index.find(ids)
        for start in range(0, len(found), 1024):
            rows = found[start : start + 1024]
            yield self._batch(rows[rows >= 0], columns)

    @cached_property
    def _index(self) -> IdIndex:
        return IdIndex(StringArray.from_arrow(texts_of_ids(self._ids)))

    def _read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        wanted = list(dict.fromkeys([*columns, *(one.column for one in self._where)]))
        for start in range(0, len(self._ids), rows):
            batch = self._batch(np.arange(start, min(start + rows, len(self._ids))), wanted)
            yield kept(batch, self._where).select(list(columns))

    def _batch(self, rows: NDArray[np.int64], columns: Sequence[str]) -> pa.RecordBatch:
        arrays = [self._ids.take(pa.array(rows)) if name == ID else self._vectors(rows) for name in columns]
        return pa.record_batch(arrays, names=list(columns))

    def _vectors(self, rows: NDArray[np.int64]) -> pa.Array:
        parts = np.searchsorted(self._starts, rows, side="right") - 1
        vectors = np.empty((len(rows), self._stored.dim), np.float32)
        for part in np.unique(parts):
            which = parts == part
            vectors[which] = self._stored.parts[part][rows[which] - self._starts[part]]
        return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), self._stored.dim)


def _read(file: _File, depth: int = 0) -> Stored:
    kind = file.name()
    if kind not in (*_FLAT, *_MAPS, "IwFl", "IHNf"):
        raise ValueError(f"it is of the kind '{kind}', which keeps no exact vectors or is unknown")
    if depth == _NESTED:
        raise ValueError(f"more than {_NESTED} indexes within each other")
    dim, total = file.number("<i4"), file.number("<i8")
    file.array("<i8", 2)  # unused
    file.number("u1")  # whether it is trained
    metric = file.number("<i4")
    if metric > 1:
        file.number("<f4")  # its argument
    if dim < 1 or total < 0:
        raise ValueError(f"it has {total} vectors of dimension {dim}")
    if kind in _FLAT:
        vectors = file.vector("<f4").reshape(-1, dim)
        return _checked(Stored(dim, metric, (vectors,), np.arange(len(vectors))), dim, total)
    if kind == "IwFl":
        return _checked(_inverted(file, depth, dim, metric), dim, total)
    if kind == "IHNf":
        for dtype in ("<f8", "<i4", "<i4", "<u8", "<i4"):
            file.vector(dtype)  # the graph
        file.array("<i4", 5)
    nested = _read(file, depth + 1)
    if kind in _MAPS:
        ids = file.vector("<i8")
        if len(nested.ids) and not 0 <= nested.ids.min() <= nested.ids.max() < len(ids):
            raise ValueError(f"it has {len(ids)} ids for {len(nested.ids)} vectors")
        nested = Stored(nested.dim, nested.metric, nested.parts, ids[nested.ids])
    return _checked(nested, dim, total)


def _checked(stored: Stored, dim: int, total: int) -> Stored:
    """Refuse an index whose content contradicts its header."""
    if stored.dim != dim or len(stored.ids) != total:
        raise ValueError(
            f"it announces {total} vectors of dimension {dim}, and holds {len(stored.ids)} of {stored.dim}"
        )
    return stored


def _inverted(file: _File, depth: int, dim: int, metric: int) -> Stored:
    """Read the rest of an ``IndexIVFFlat``: vectors and ids by list."""
    file.array("<u8", 2)  # number of lists, and of lists to search
    _read(file, depth + 1)  # the quantizer
    direct = file.number("u1")
    file.vector("<i8")
    if direct == 2:
        file.vector("<i8", 2)
    kind = file.name()
    if kind != "ilar":
        raise ValueError(f"its lists are of the kind '{kind}', and not in the file itself")
    lists, code_size, layout = file.number("<u8"), file.number("<u8"), file.name()
    if code_size != 4 * dim or layout not in ("full", "sprs"):
        raise ValueError(f"lists of {code_size} bytes a vector, laid out as '{layout}'")
    numbers = file.vector("<u8")
    sizes = numbers if layout == "full" else numbers[1::2]
    if len(sizes) > lists or (layout == "full" and len(sizes) != lists):
        raise ValueError(f"{len(sizes)} of its {lists} lists have a size")
    vectors, ids = [], [np.empty(0, np.int64)]
    for size in map(int, sizes[sizes > 0]):
        vectors.append(file.array("<f4", size * dim).reshape(size, dim))
        ids.append(file.array("<i8", size))
    return Stored(dim, metric, tuple(vectors), np.concatenate(ids))


def _ids_of(path: Path) -> pa.Array:
    if not path.is_file():
        raise ConfigError(f"There is no file '{path}'.", expected="the ids of the rows: ids=FILE")
    try:
        if path.suffix != ".npy":
            return pa.array(regular(path).read_text(encoding="utf-8").splitlines(), pa.large_string())
        array = NumpyFile(path).array("vectors")
    except NPZ_ERRORS as error:
        raise DataError(
            f"Cannot read '{path}': {reason(error)}.", expected="an .npy file of ids, or one in every line"
        ) from error
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        raise DataError(f"'{path}' holds {array.dtype} of shape {array.shape}.", expected="one id for every row")
    return StringArray.from_numpy(array).arrow() if array.dtype.kind == "U" else pa.array(array.astype(np.int64))
