"""Vectors that were made elsewhere, from NumPy and Parquet files that may hold anything."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from holdfast.embeddings.embedding_set import EmbeddingSet, Role
from holdfast.embeddings.string_array import StringArray
from holdfast.errors import DataError
from holdfast.geometry import Hypersphere, Space

NPZ_ERRORS = (OSError, ValueError, EOFError, NotImplementedError, RuntimeError, struct.error, tokenize.TokenError,
              zipfile.BadZipFile, zlib.error)  # fmt: skip
"""What NumPy raises for files that are no archives, are cut off, damaged, encrypted, or hold Python objects."""


def from_npz(
    path: str | Path, *, fingerprint: str, space: Space | None = None, role: Role = "both", cast: bool = False
) -> EmbeddingSet:
    """Import vectors from ``.npz`` (arrays ``vectors``, optional ``ids``, ``labels``, ``class_names``) or ``.npy``.

    Args:
        path: The file; one that holds pickled objects is refused.
        fingerprint: ``declared:<name>`` for vectors made elsewhere.
        space: Their space; the hypersphere of their dimension when left out.
        role: What the items are to the model.
        cast: Accept other floating types than float32 and convert them.

    Raises:
        DataError: The file cannot be read, or its contents break a promise of `EmbeddingSet`.
    """
    try:
        arrays = _npz_arrays(Path(path))
    except NPZ_ERRORS as error:
        raise DataError(
            f"Cannot read '{path}': {error or type(error).__name__}.",
            expected="a complete .npy or .npz file of plain arrays (no pickled objects)",
            to_do="write it again with numpy.savez, or restore it from a copy.",
        ) from error
    return _imported(path, arrays, fingerprint, space, role, cast)


def _npz_arrays(path: Path) -> dict[str, NDArray[Any]]:
    with path.open("rb") as file:
        content = np.load(file, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return {"vectors": content}
        return {name: np.asarray(content[name]) for name in content.files}


def from_parquet(
    path: str | Path, *, fingerprint: str, space: Space | None = None, role: Role = "both", cast: bool = False
) -> EmbeddingSet:
    """Import vectors from Parquet with columns ``id``, ``vector`` and optionally ``label`` (numbers or texts).

    Further numeric columns are kept as columns of the set. The arguments are those of `from_npz`.

    Raises:
        DataError: The file cannot be read, or its contents break a promise of `EmbeddingSet`.
    """
    columns = _parquet_columns(path)
    arrays: dict[str, NDArray[Any]] = {"vectors": _matrix(path, columns.pop("vector"))}
    for name in ("id", "label"):
        if name in columns:
            _refuse_missing(path, name, columns[name].null_count, len(columns[name]))
            arrays[f"{name}s"] = _names_or_numbers(path, name, columns.pop(name))
    for name, values in columns.items():
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            arrays[name] = values.to_numpy(zero_copy_only=False)
    return _imported(path, arrays, fingerprint, space, role, cast)


def _parquet_columns(path: str | Path) -> dict[str, Any]:
    try:
        table = pq.read_table(path)
        names = table.column_names
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise DataError(
            f"Cannot read '{path}': {error}.",
            expected="a complete Parquet file",
            to_do="write it again, or restore it from a copy.",
        ) from error
    if "vector" not in names:
        raise DataError(
            f"'{path}' has columns {', '.join(names) or 'none'}.",
            expected="a column 'vector' of lists of numbers",
            to_do="rename the columns; 'id' and 'label' are optional.",
        )
    if len(table) == 0:
        raise DataError(f"'{path}' has no rows.", expected="at least one item", to_do="embed some items first.")
    return {name: table.column(name).combine_chunks() for name in names}


def _matrix(path: str | Path, lists: Any) -> NDArray[Any]:
    """Return the vectors (N, D) of a column of lists."""
    kind = lists.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise DataError(
            f"The column 'vector' of '{path}' is {kind}.",
            expected="a list of numbers in every row",
            to_do="write the numbers of an item as one list.",
        )
    lengths = pc.unique(pc.list_value_length(lists)).to_pylist()
    if lists.null_count or len(lengths) > 1 or 0 in lengths:
        shown = ", ".join(sorted("missing" if length is None else str(length) for length in lengths))
        raise DataError(
            f"'{path}' holds vectors of these lengths: {shown}.",
            expected="one dimension of at least 1",
            to_do="remove the items whose vector is missing or has another length.",
        )
    flat = lists.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat).reshape(len(lists), -1)


def _names_or_numbers(path: str | Path, name: str, values: Any) -> NDArray[Any]:
    """Return a column of texts or numbers."""
    try:
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            return np.asarray(values.to_numpy(zero_copy_only=False))
        return np.array(values.cast(pa.string()).to_pylist(), dtype=np.str_)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(
            f"The column '{name}' of '{path}' is {values.type} and cannot be read as text: {error}.",
            expected="texts or whole numbers",
            to_do="write it as texts in UTF-8.",
        ) from error


def _imported(
    path: str | Path, arrays: dict[str, NDArray[Any]], fingerprint: str, space: Space | None, role: Role, cast: bool
) -> EmbeddingSet:
    vectors = _float32(path, arrays, cast)
    _check_shapes(path, arrays)
    ids = [str(value) for value in arrays.pop("ids", np.arange(len(vectors)))]
    labels, names = arrays.pop("labels", None), arrays.pop("class_names", None)
    if labels is not None and not np.issubdtype(labels.dtype, np.integer):
        names, labels = np.unique(labels.astype(np.str_), return_inverse=True)
    return EmbeddingSet(
        ids=StringArray.of(ids),
        vectors=vectors,
        fingerprint=fingerprint,
        space=space or Hypersphere(vectors.shape[1]),
        role=role,
        labels=None if labels is None else labels.astype(np.int64),
        class_names=None if names is None else StringArray.of(str(name) for name in names),
        columns=arrays,
    )


def _float32(path: str | Path, arrays: dict[str, NDArray[Any]], cast: bool) -> NDArray[np.float32]:
    """Take the vectors out of the arrays."""
    vectors = arrays.pop("vectors", None)
    if vectors is None or vectors.ndim != 2 or vectors.shape[1] == 0:
        found = f"arrays {', '.join(arrays) or 'none'}" if vectors is None else f"vectors of shape {vectors.shape}"
        raise DataError(
            f"'{path}' has {found}.",
            expected="an array 'vectors' of shape (items, dimension)",
            to_do="write one row per item under this name.",
        )
    if vectors.dtype != np.float32 and not (cast and np.issubdtype(vectors.dtype, np.floating)):
        raise DataError(
            f"Vectors in '{path}' are {vectors.dtype}.",
            expected="float32",
            to_do="pass cast=True (--cast on the command line) to accept the rounding, or convert the file.",
        )
    return np.ascontiguousarray(vectors, np.float32)


def _check_shapes(path: str | Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays without one row per item, and ids and labels that say nothing."""
    for name, values in arrays.items():
        if values.ndim == 0 or (values.ndim > 1 and name in ("ids", "labels", "class_names")):
            raise DataError(
                f"The array '{name}' in '{path}' has shape {values.shape}.",
                expected="one value per item" if name != "class_names" else "one name per class",
                to_do="write it again with one row of each, or leave it out.",
            )
    for name in ("ids", "labels"):
        values = arrays.get(name, np.empty(0))
        if np.issubdtype(values.dtype, np.floating):
            _refuse_missing(path, name, int(np.isnan(values).sum()), len(values))


def _refuse_missing(path: str | Path, name: str, missing: int, rows: int) -> None:
    if missing:
        raise DataError(
            f"{missing} of {rows} values of '{name}' in '{path}' are missing (null or NaN).",
            expected="a value for every item",
            to_do="fill them in, or remove these items.",
        )
