"""Conversion of user-supplied vectors, ids and labels to the arrays of an embedding set.

As for files, nothing is rounded, truncated or guessed. Unambiguous values are converted; others are refused, with the
line to write instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings.forms import Form, Role
from limpet.embeddings.string_array import StringArray
from limpet.errors import DataError, reason
from limpet.geometry import Space

Arrays = dict[str, NDArray[Any] | StringArray]
"""Arrays of a file by name: numbers as NumPy arrays, strings as NumPy arrays or `StringArray`."""


def array_of(values: Any, what: str) -> NDArray[Any]:
    """Return an array, a tensor on any device, or a list as a NumPy array; bfloat16 becomes float32, which is exact.

    Args:
        values: Values to convert.
        what: Meaning of the values, as the beginning of a sentence.

    Raises:
        DataError: The values are not an array of numbers or strings.

    >>> array_of([1, 2], "Labels").dtype.kind
    'i'
    """
    if isinstance(values, np.ndarray):
        return values
    try:
        if callable(getattr(values, "detach", None)):  # a tensor, detected without importing torch
            values = values.detach().cpu()
            values = values.float() if str(values.dtype) == "torch.bfloat16" else values
        found = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{what} cannot be read as an array from a {type(values).__name__}: {reason(error)}.",
            expected="an array, a tensor or a list, with one row per item",
        ) from error
    if found.dtype == object or not found.ndim:
        raise DataError(
            f"{what} are {type(values).__name__} of no one type.", expected="an array, a tensor or a list of one type"
        )
    return found


def row_numbers(rows: NDArray[Any] | slice | list[int], count: int) -> NDArray[np.int64]:
    """Return the row numbers that a NumPy index selects from a set of `count` items.

    Raises:
        DataError: The index is a number, which selects an item instead of a set.
    """
    if isinstance(rows, int | np.integer):
        raise DataError(
            f"A set was indexed with the number {rows}.",
            expected="a slice, a boolean mask or a list of rows",
            to_do=f"for the set of that one item, use [[{rows}]].",
        )
    return np.arange(count)[rows]


def vectors_of(values: Any) -> NDArray[Any]:
    """Return vectors as an array; float16 becomes float32, which is exact, and other types are kept."""
    found = array_of(values, "Vectors")
    return found.astype(np.float32) if found.dtype == np.float16 else found


def ids_of(values: Any) -> StringArray:
    """Return ids as strings; integers are written in decimal digits, as for files.

    Raises:
        DataError: The ids are neither strings nor integers.

    >>> list(ids_of([7, 12])), list(ids_of(["7", "x"]))
    (['7', '12'], ['7', 'x'])
    """
    if isinstance(values, StringArray):
        return values
    if isinstance(values, np.ndarray) or callable(getattr(values, "detach", None)):
        values = array_of(values, "Ids").tolist()
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise DataError(f"Ids or names are {values!r}.", expected="a list with one of them per item")
    found = list(values)
    whole = all(isinstance(one, int | np.integer) and not isinstance(one, bool) for one in found)
    return StringArray.of(map(str, found) if whole else found)


def classes_of(labels: Any, names: StringArray | None) -> tuple[NDArray[Any], StringArray | None]:
    """Return labels as integers, and class names.

    Strings are class names, numbered in sorted order, as for files; given names define the numbers instead.

    Raises:
        DataError: The labels are neither integers nor strings, or a string is not a class name.

    >>> numbers, names = classes_of(["dog", "cat", "dog"], None)
    >>> numbers.tolist(), list(names)
    ([1, 0, 1], ['cat', 'dog'])
    """
    if isinstance(labels, StringArray):
        texts = labels
    else:
        found = array_of(labels, "Labels")
        if np.issubdtype(found.dtype, np.integer) and found.dtype != np.uint64:
            return found.astype(np.int64, copy=False), names
        if found.dtype.kind != "U" or found.ndim != 1:
            return found, names  # refused by `check`
        texts = StringArray.from_numpy(found)
    if names is None:
        return texts.classes()
    rows = names.find(texts)
    if (rows < 0).any():
        raise DataError(
            f"A label is '{texts[int(np.flatnonzero(rows < 0)[0])]}'.", expected="a name among those of the classes"
        )
    return rows, names


_LARGEST = int(np.iinfo(np.int64).max)


def values_of(
    path: str | Path, arrays: Arrays, fingerprint: str, where: tuple[Space, Form], role: Role
) -> dict[str, Any]:
    """Return the values of an `EmbeddingSet` from imported arrays.

    Ids and labels may be strings or numbers, or missing; items without ids are numbered.

    Args:
        path: Path of the source, for messages.
        arrays: "vectors", and optionally "ids", "labels", "class_names" and further columns.
        fingerprint: Fingerprint of the model.
        where: Space and form of the vectors.
        role: Role of the items for the model.

    Raises:
        DataError: An array does not have one row per item.
    """
    _check_shapes(path, arrays)
    columns = dict(arrays)
    vectors = columns.pop("vectors")
    ids, labels, names = (columns.pop(name, None) for name in ("ids", "labels", "class_names"))
    if labels is not None and not _whole(labels):
        labels, names = _texts(labels.astype(np.str_) if isinstance(labels, np.ndarray) else labels).classes()
    return {
        "ids": _texts(np.arange(len(vectors)) if ids is None else ids),
        "vectors": vectors,
        "fingerprint": fingerprint,
        "space": where[0],
        "role": role,
        "form": where[1],
        "labels": None if labels is None else int64_labels(np.asarray(labels), f"The labels in '{path}'"),
        "class_names": None if names is None else _texts(names),
        "columns": columns,
    }


def int64_labels(labels: NDArray[Any], what: str) -> NDArray[np.int64]:
    """Return integers as int64.

    Raises:
        DataError: A value exceeds int64, which uint64 allows; it would become another class.

    >>> int64_labels(np.array([2**63], np.uint64), "The labels")
    Traceback (most recent call last):
    ...
    limpet.errors.DataError: The labels reach 9223372036854775808.
    Expected: whole numbers up to 9223372036854775807 (int64)
    Next: number the classes anew, or give their names as texts.
    """
    if labels.dtype == np.uint64 and labels.max(initial=0) > _LARGEST:
        raise DataError(
            f"{what} reach {labels.max()}.",
            expected=f"whole numbers up to {_LARGEST} (int64)",
            to_do="number the classes anew, or give their names as texts.",
        )
    return labels.astype(np.int64)


def _whole(values: NDArray[Any] | StringArray) -> bool:
    return isinstance(values, np.ndarray) and np.issubdtype(values.dtype, np.integer)


def _texts(values: NDArray[Any] | StringArray) -> StringArray:
    import pyarrow as pa

    if isinstance(values, StringArray):
        return values
    if _whole(values):
        return StringArray.from_arrow(pa.array(values).cast(pa.large_string()))
    return StringArray.from_numpy(values) if values.dtype.kind == "U" else StringArray.of(map(str, values))


def _check_shapes(path: str | Path, arrays: Mapping[str, NDArray[Any] | StringArray]) -> None:
    shapes = {name: values.shape for name, values in arrays.items() if isinstance(values, np.ndarray)}
    for name, shape in shapes.items():
        if not shape or (len(shape) > 1 and name in ("ids", "labels", "class_names")):
            raise DataError(
                f"The array '{name}' in '{path}' has shape {shape}.",
                expected="one value per item" if name != "class_names" else "one name per class",
                to_do="write it again with one row of each, or leave it out.",
            )
    for name in ("ids", "labels"):
        values = arrays.get(name)
        if isinstance(values, np.ndarray) and np.issubdtype(values.dtype, np.floating):
            _refuse_missing(path, name, int(np.isnan(values).sum()), len(values))


def _refuse_missing(path: str | Path, name: str, missing: int, rows: int) -> None:
    if missing:
        raise DataError(
            f"{missing} of {rows} values of '{name}' in '{path}' are missing (null or NaN).",
            to_do="fill them in, or remove these items.",
        )
