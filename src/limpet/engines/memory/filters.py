"""Filters as masks over the metadata of items in RAM, by Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from limpet.engines.checks import damaged
from limpet.engines.filters import And, Condition, Exists, Filter, In, Metadata, Not, Or, path_of

_TYPES = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
_COMPARE = {
    "=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip


def mask(where: Filter, items: Sequence[Metadata]) -> NDArray[np.bool_]:
    """Return which items match a checked filter, bool (N,).

    >>> mask(Not(Condition("price", "<", 5)), [{"price": 4}, {"price": 6}, {}])
    array([False,  True,  True])

    Raises:
        StoreError: An item has a value of another type.
    """
    match where:
        case And(parts):
            found = np.ones(len(items), np.bool_)
            for part in parts:
                found &= mask(part, items)
            return found
        case Or(parts):
            found = np.zeros(len(items), np.bool_)
            for part in parts:
                found |= mask(part, items)
            return found
        case Not(part):
            return ~mask(part, items)
        case Exists(column):
            return np.array([value is not None for value in _values(column, items)], np.bool_)
        case Condition(column, comparison, value):
            return _plain(_COMPARE[comparison](_array(column, type(value), items), value))
        case In(column, values):
            found = np.zeros(len(items), np.bool_)
            for kind in {type(value) for value in values}:  # JSON values may have several types
                among = pa.array([value for value in values if type(value) is kind], _TYPES[kind])
                found |= _plain(pc.is_in(_array(column, kind, items), value_set=among))
            return found


def _values(column: str, items: Sequence[Metadata]) -> list[Any]:
    """Return the values of a column, None for missing ones."""
    name, *keys = path_of(column)
    found: list[Any] = [metadata.get(name) for metadata in items]
    for key in keys:
        found = [value.get(key) if isinstance(value, dict) else None for value in found]
    return found


def _array(column: str, kind: type, items: Sequence[Metadata]) -> pa.Array:
    values = _values(column, items)
    if len(path_of(column)) > 1:
        number = kind in (int, float)
        alike = [type(value) is kind or (number and type(value) in (int, float)) for value in values]
        values = [value if fits else None for value, fits in zip(values, alike, strict=True)]
        kind = float if number else kind
    try:
        return pa.array(values, _TYPES[kind])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise damaged(f"The metadata column '{column}'", str(error)) from error


def _plain(found: pa.Array) -> NDArray[np.bool_]:
    """Return the result of a comparison; false for missing values."""
    plain: NDArray[np.bool_] = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return plain
