"""Import of vectors from NumPy and Parquet files of any origin and size."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings.conversion import Arrays, values_of
from limpet.embeddings.embedding_set import EmbeddingSet, unusable_rows
from limpet.embeddings.files import NUMPY, NUMPY_ARCHIVE, PARQUET, by_role, refuse_other_kind
from limpet.embeddings.forms import Form, Role, space_of
from limpet.embeddings.numpy_files import NumpyFile
from limpet.embeddings.room import gather, rows_at_once
from limpet.embeddings.string_array import StringArray
from limpet.errors import DataError, LimpetError, reason
from limpet.geometry import Space

NPZ_ERRORS = (OSError, ValueError, EOFError, NotImplementedError, RuntimeError, KeyError, struct.error,
              tokenize.TokenError, SyntaxError, zipfile.BadZipFile, zlib.error)  # fmt: skip
"""Exceptions of NumPy for files that are not archives, or are truncated, damaged, encrypted, or hold Python objects."""

_ARRAYS = {"vector": "vectors", "id": "ids", "label": "labels"}


def from_npz(
    path: str | Path,
    *,
    fingerprint: str,
    space: Space | None = None,
    similarity: str | None = None,
    role: Role = "both",
    most_memory: int | None = None,
    unusable: list[str] | None = None,
) -> EmbeddingSet:
    """Import vectors from ``.npz`` (arrays ``vectors``, optional ``ids``, ``labels``, ``class_names``) or ``.npy``.

    Arrays may have any of `limpet.embeddings.files.USUAL_NAMES`. Other floating types are rounded to float32. An
    ``.npy`` file of float32 is memory-mapped and must not be altered while the set is in use.

    Args:
        path: Path of the file; a file with pickled objects is refused.
        fingerprint: ``declared:<name>`` for vectors made elsewhere.
        space: Space of the vectors; the hypersphere of their dimension when left out.
        similarity: Similarity that defines the space instead: "cosine", "inner-product" or "euclidean"; see
            `limpet.embeddings.forms.space_named`.
        role: Role of the items for the model.
        most_memory: Maximum bytes of vectors to keep in memory; half of the available memory when left out.
        unusable: List that receives the ids of items whose vector is zero, NaN or infinite; these items are skipped. By
            default, such vectors are refused.

    Raises:
        ConfigError: Both a space and a similarity were given, or an unknown similarity.
        DataError: The file cannot be read, or its contents violate a constraint of `EmbeddingSet`.
    """
    refuse_other_kind(path, NUMPY, NUMPY_ARCHIVE)
    try:
        arrays = _npz_arrays(Path(path), most_memory)
    except LimpetError:
        raise
    except NPZ_ERRORS as error:
        raise DataError(
            f"Cannot read '{path}': {reason(error)}.",
            expected="a complete .npy or .npz file of plain arrays (no pickled objects)",
            to_do="write it again with numpy.savez, or restore it from a copy.",
        ) from error
    return imported(
        path, arrays, fingerprint, space_of(np.shape(arrays["vectors"])[1], space, similarity), role, unusable
    )


def _npz_arrays(path: Path, most_memory: int | None) -> Arrays:
    file = NumpyFile(path)
    found = by_role(file.names)
    if "vector" not in found:
        raise _without_vectors(path, f"arrays {', '.join(file.names) or 'none'}")
    vector, called = found["vector"], {name: _ARRAYS[what] for what, name in found.items()}
    others = [name for name in file.names if name in called or name not in _ARRAYS.values()]
    header = file.header(vector)
    check_vectors(path, header.shape, header.dtype)
    arrays: Arrays = {called.get(name, name): _npz_array(file, name, called) for name in others if name != vector}
    vectors = file.mapped(vector, header)
    if vectors is None or vectors.dtype != np.float32 or not vectors.flags.c_contiguous:
        vectors = gather(file.blocks(vector, header), *header.shape, most_memory=most_memory)
    return arrays | {"vectors": vectors}


def _npz_array(file: NumpyFile, name: str, called: Mapping[str, str]) -> NDArray[Any] | StringArray:
    """Read one of the smaller arrays; strings take eight times less memory in UTF-8 than in NumPy."""
    import pyarrow as pa  # lazy: most commands read no such file

    header = file.header(name)
    if name not in (*called, "class_names") or header.dtype.kind != "U" or len(header.shape) != 1:
        return file.array(name)
    parts = [StringArray.from_numpy(block).arrow() for block in file.blocks(name, header)]
    return StringArray.from_arrow(pa.chunked_array(parts, pa.large_string()))


def from_parquet(
    path: str | Path,
    *,
    fingerprint: str,
    space: Space | None = None,
    similarity: str | None = None,
    role: Role = "both",
    most_memory: int | None = None,
    unusable: list[str] | None = None,
) -> EmbeddingSet:
    """Import vectors from Parquet with columns ``id``, ``vector`` and optionally ``label`` (numbers or strings).

    Columns may have any of `limpet.embeddings.files.USUAL_NAMES`; `limpet.load_embeddings` reads others by the URL
    ``parquet:FILE?vector=NAME``. Further numeric columns are kept as columns of the set. The path may be a folder of
    ``.parquet`` files, read one after another by name. The other arguments are those of `from_npz`.

    Raises:
        ConfigError: Both a space and a similarity were given, or an unknown similarity.
        DataError: The file cannot be read, or its contents violate a constraint of `EmbeddingSet`.
    """
    from limpet.embeddings.parquet_files import ParquetFiles, unreadable
    from limpet.embeddings.table_pass import Pass

    refuse_other_kind(path, PARQUET)
    files = ParquetFiles(path)
    if "vectors" in files.taken:
        raise DataError(
            f"'{path}' has numbers called 'vectors'.",
            expected="vectors in the column 'vector', and nothing else of a like name",
            to_do="rename the column.",
        )
    dim, dtype = files.vectors()
    if dim:
        check_vectors(path, (files.rows, dim), dtype)
    batches = files.batches(files.taken, rows_at_once(4 * dim))
    run = Pass(f"'{path}'", files.taken, batches, without="remove the items whose vector is missing.")
    with unreadable(path):
        arrays: Arrays = {"vectors": gather(run.blocks(), files.rows, dim, most_memory=most_memory)}
    arrays |= run.values()
    return imported(
        path, arrays, fingerprint, space_of(np.shape(arrays["vectors"])[1], space, similarity), role, unusable
    )


def imported(
    path: str | Path,
    arrays: Arrays,
    fingerprint: str,
    where: tuple[Space, Form],
    role: Role,
    unusable: list[str] | None = None,
) -> EmbeddingSet:
    """Return the set of imported arrays; see `values_of`.

    Args:
        path: Path of the source, for messages.
        arrays: "vectors", and optionally "ids", "labels", "class_names" and further columns.
        fingerprint: Fingerprint of the model.
        where: Space and form of the vectors.
        role: Role of the items for the model.
        unusable: List that receives the ids of skipped items with unusable vectors; see `from_npz`.

    Raises:
        DataError: The arrays violate a constraint of `EmbeddingSet`.
    """
    values = values_of(path, arrays, fingerprint, where, role)
    ids, vectors, labels = values["ids"], values["vectors"], values["labels"]
    rows = None if unusable is None else unusable_rows(vectors, *where)
    if unusable is not None and rows is not None and len(rows) and len(ids) == len(vectors):
        unusable += list(ids[rows])
        kept = np.delete(np.arange(len(vectors)), rows)
        values |= {
            "ids": ids[kept],
            "vectors": vectors[kept],
            "labels": None if labels is None else labels[kept],
            "columns": {name: column[kept] for name, column in values["columns"].items()},
        }
    return EmbeddingSet(**values)


def check_vectors(path: str | Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse vectors by the shape and type in a file's header, before they are read."""
    if len(shape) != 2 or shape[1] == 0:
        raise _without_vectors(path, f"vectors of shape {shape}")
    if not np.issubdtype(dtype, np.floating):
        raise DataError(
            f"Vectors in '{path}' are {dtype}.",
            expected="floating-point numbers",
            to_do="convert them; numbers of 8 bits have to be scaled back first.",
        )


def _without_vectors(path: str | Path, found: str) -> DataError:
    return DataError(
        f"'{path}' has {found}.",
        expected="an array 'vectors' of shape (items, dimension)",
        to_do="write one row per item under this name.",
    )
