"""EmbeddingSets in files: safetensors for limpet itself, Parquet and NumPy for other tools.

Limpet's format is a plain safetensors file, which other programs can read. The JSON header holds only the record of the
set; ids and class names are arrays, because a header with millions of names cannot be opened.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from limpet.embeddings.embedding_set import EmbeddingSet, arrays_of, check, check_form, check_given, per_item
from limpet.embeddings.files import FILES_OF_EMBEDDINGS, refuse_other_kind
from limpet.embeddings.imports import from_npz, from_parquet
from limpet.embeddings.string_array import StringArray
from limpet.errors import DataError, LimpetError, reason, shown
from limpet.geometry import space_from_record
from limpet.support.disk import open_file
from limpet.support.documents import parsed_json

__all__ = ["from_npz", "from_parquet", "load", "save", "to_npz", "to_parquet", "write_atomically"]

_FORMAT_VERSION = 1
HEADER_LIMIT = 2**20
"""Maximum bytes of a JSON header, which names arrays and holds no ids."""
_OWN = {"id_bytes", "id_offsets"}
"""Arrays of every file of embeddings."""
_MALFORMED = (struct.error, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
_DTYPES = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
           "BOOL": "?", "U16": "<u2", "U32": "<u4", "U64": "<u8"}  # fmt: skip


def save(embeddings: EmbeddingSet, path: str | Path) -> Path:
    """Write a set to one safetensors file atomically, and return its path.

    Raises:
        DataError: The file cannot be written; an existing file is unchanged.
    """
    check_given(embeddings=embeddings)
    record = {
        "format": "limpet.EmbeddingSet",
        "format_version": _FORMAT_VERSION,
        "fingerprint": embeddings.fingerprint,
        "role": embeddings.role,
        "form": embeddings.form,
        "space": embeddings.space.record(),
        "digest": embeddings.digest(),
        **({"prefix": embeddings.prefix} if embeddings.prefix else {}),
    }
    arrays = {
        name: np.ascontiguousarray(values) for name, values in (arrays_of(embeddings) | per_item(embeddings)).items()
    }
    metadata = {"limpet": json.dumps(record, sort_keys=True)}
    return write_atomically(Path(path), lambda part: save_file(arrays, part, metadata=metadata))


def write_atomically(path: Path, write: Callable[[Path], object]) -> Path:
    """Let ``write`` fill a temporary file next to ``path``, sync it to disk, then rename it.

    Raises:
        DataError: The file cannot be written (a full disk, no permission); an existing file is unchanged.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(part)
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        part.replace(path)
    except Exception as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, LimpetError):
            raise
        raise DataError(
            f"Could not write '{path}': {error}.",
            to_do="free space or choose another place.",
            intact="A file of this name from before is intact.",
        ) from error
    return path


def load(path: str | Path, *, verify: bool = False) -> EmbeddingSet:
    """Open a set without reading its vectors: arrays are memory-mapped, and recorded vector checks are trusted.

    Everything else is checked: types and shapes, texts and their offsets, labels.

    Args:
        path: A file written by `save`.
        verify: Read everything, compare the digest and validate all values again.

    Raises:
        DataError: The file is missing, damaged, of a newer format, or (with ``verify``) was altered.
    """
    arrays, metadata = _mapped_arrays(Path(path))
    if arrays and "limpet" not in metadata and not _OWN & set(arrays):
        raise DataError(
            f"'{path}' is a safetensors file of other arrays: {shown(arrays)}.",
            expected=FILES_OF_EMBEDDINGS,
            to_do="where these are weights, give the release to `limpet embed images DATA --model release:FOLDER`; "
            "vectors made elsewhere are read from .npz, .npy and .parquet files.",
        )
    try:
        record = parsed_json(metadata["limpet"])
        version = int(record["format_version"])
        embeddings = _assemble(arrays, record) if version <= _FORMAT_VERSION else None
    except _MALFORMED as error:
        raise _damaged(path, f"it is no set of embeddings ({reason(error)})") from error
    if embeddings is None:
        raise DataError(
            f"'{path}' has format version {version}.",
            expected=f"at most {_FORMAT_VERSION}",
            to_do="install a newer limpet.",
            intact="The file is intact.",
        )
    if verify:
        if embeddings.digest() != record.get("digest"):
            raise _damaged(path, "its contents differ from the recorded digest")
        check(embeddings)
    return embeddings


def _assemble(arrays: Mapping[str, NDArray[Any]], record: Mapping[str, Any]) -> EmbeddingSet:
    names = "class_name_offsets" in arrays
    columns = {name.removeprefix("column."): values for name, values in arrays.items() if name.startswith("column.")}
    embeddings = EmbeddingSet.trusted(
        ids=StringArray(arrays["id_bytes"], arrays["id_offsets"]),
        vectors=arrays["vectors"],
        fingerprint=record["fingerprint"],
        space=space_from_record(record["space"]),
        role=record["role"],
        form=record["form"],
        labels=arrays.get("labels"),
        class_names=StringArray(arrays["class_name_bytes"], arrays["class_name_offsets"]) if names else None,
        columns=MappingProxyType(columns),
        prefix=record.get("prefix", ""),
        contents=arrays.get("contents"),
        trained_on=arrays.get("trained_on"),
    )
    check_form(embeddings)
    return embeddings


def _mapped_arrays(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Map the tensors of a safetensors file read-only; the library would copy them on access."""
    try:
        with open_file(path) as handle:
            buffer = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        refuse_other_kind(path)
        within = sorted(path.glob("*.safetensors"))
        raise DataError(
            f"Cannot open '{path}': {error}.",
            expected="a file of embeddings",
            to_do=f"give the file in this folder, '{within[0]}'." if within else "`limpet embed` writes one.",
        ) from error
    try:
        (length,) = struct.unpack_from("<Q", buffer, 0)
        if length > HEADER_LIMIT:
            raise ValueError(f"it would have {length} bytes")
        header = parsed_json(buffer[8 : 8 + length])
        metadata = header.pop("__metadata__", {})
        arrays = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            if not 0 <= begin <= end:
                raise ValueError(f"the array '{name}' would run from {begin} to {end}")
            raw = np.frombuffer(buffer, np.uint8, end - begin, 8 + length + begin)
            arrays[name] = raw.view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    except _MALFORMED as error:
        refuse_other_kind(path)  # last, because a header's length may look like the start of another file type
        raise _damaged(path, f"its header cannot be read ({reason(error)})") from error
    return arrays, metadata


def _damaged(path: str | Path, why: str) -> DataError:
    return DataError(
        f"'{path}' is damaged: {why}.",
        to_do="embed the items again with `limpet embed`, or restore the file from a copy.",
    )


def to_npz(embeddings: EmbeddingSet, path: str | Path) -> Path:
    """Write vectors, ids, labels, class names and columns as plain NumPy arrays; see `from_npz`."""
    arrays: dict[str, NDArray[Any]] = {"vectors": embeddings.vectors, "ids": np.array(list(embeddings.ids), np.str_)}
    if embeddings.labels is not None:
        arrays["labels"] = embeddings.labels
    if embeddings.class_names is not None:
        arrays["class_names"] = np.array(list(embeddings.class_names), np.str_)

    def write(part: Path) -> None:
        with part.open("wb") as handle:
            np.savez(handle, allow_pickle=False, **arrays, **embeddings.columns)

    return write_atomically(Path(path), write)


def to_parquet(embeddings: EmbeddingSet, path: str | Path) -> Path:
    """Write one row per item with columns ``id``, ``vector``, ``label`` (a class name if known)."""
    import pyarrow as pa  # lazy: most commands need no Parquet
    import pyarrow.parquet as pq

    flat = pa.array(np.ascontiguousarray(embeddings.vectors).ravel())
    columns: dict[str, Any] = {
        "id": embeddings.ids.arrow(),
        "vector": pa.FixedSizeListArray.from_arrays(flat, embeddings.dim),
    }
    if embeddings.labels is not None:
        names = embeddings.class_names
        columns["label"] = pa.array(embeddings.labels) if names is None else names[embeddings.labels].arrow()
    columns |= {name: pa.array(values) for name, values in embeddings.columns.items()}
    return write_atomically(Path(path), lambda part: pq.write_table(pa.table(columns), part))
