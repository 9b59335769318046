"""What people give for vectors, ids and labels, as the arrays that a set of embeddings holds.

The rule is that of files: nothing is rounded, cut or guessed. What has exactly one meaning is converted; all else is
refused, with the line to write instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings.string_array import StringArray
from limpet.errors import DataError, reason


def array_of(values: Any, what: str) -> NDArray[Any]:
    """Return an array, a tensor on any device, or a list as a NumPy array; bfloat16 becomes float32, which is exact.

    Args:
        values: What was given.
        what: What it stands for, as the beginning of a sentence.

    Raises:
        DataError: It makes no array of numbers or texts.

    >>> array_of([1, 2], "Labels").dtype.kind
    'i'
    """
    if isinstance(values, np.ndarray):
        return values
    try:
        if callable(getattr(values, "detach", None)):  # a tensor, without an import of torch
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


def vectors_of(values: Any) -> NDArray[Any]:
    """Return vectors as an array; float16 becomes float32, which is exact, and other types stay what they are."""
    found = array_of(values, "Vectors")
    return found.astype(np.float32) if found.dtype == np.float16 else found


def ids_of(values: Any) -> StringArray:
    """Return ids as texts; whole numbers are written in decimal digits, as they are where a file has them.

    Raises:
        DataError: They are neither texts nor whole numbers.

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
    """Return labels as whole numbers, and names of classes.

    Texts are names of classes, which are numbered in the order of their characters, as those of files are; with names
    given, they are looked up.

    Raises:
        DataError: They are neither whole numbers nor texts, or a text is no name of a class.

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
