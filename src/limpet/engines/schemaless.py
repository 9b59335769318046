"""Values without a schema, such as the payloads of a collection: their types, and Arrow arrays of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from limpet.engines.address import Address
from limpet.errors import DataError, reason

LOOKED_AT = 256
"""Number of rows from which columns and types are inferred."""

_Row = Mapping[str, object]
"""Values by name, as a service returns them: texts, numbers, lists, and mappings of these."""

_CONDITION = re.compile(r"\s*([^=!<>]+?)\s*[=!<>]")


def asked_names(address: Address) -> list[str]:
    """Return the columns that an address names, in its roles and its conditions."""
    named = [name for name in vars(address.roles).values() if name is not None]
    return [*named, *(found[1] for found in map(_CONDITION.match, address.where) if found)]


def named_values(row: _Row, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the names and values of a row; nested values are also yielded under their own, dotted names.

    >>> list(named_values({"price": 3, "meta": {"topic": "cats"}}))
    [('price', 3), ('meta', {'topic': 'cats'}), ('meta.topic', 'cats')]
    """
    for name, value in row.items():
        yield f"{prefix}{name}", value
        if isinstance(value, Mapping):
            yield from named_values(value, f"{prefix}{name}.")


def names_without_path(row: _Row, prefix: str = "") -> Iterator[str]:
    """Yield the names of values below a key with a dot, which a service would parse as nested keys.

    >>> list(names_without_path({"price": 3, "max.speed": 5, "meta": {"x.y": 1}}))
    ['max.speed', 'meta.x.y']
    """
    for name, value in row.items():
        if "." in name:
            yield from (one for one, _ in named_values({name: value}, prefix))
        elif isinstance(value, Mapping):
            yield from names_without_path(value, f"{prefix}{name}.")


def value_at(row: _Row, name: str) -> object:
    """Return the value of a name, dotted for a nested value; None if missing.

    >>> value_at({"meta": {"topic": "cats"}}, "meta.topic"), value_at({}, "meta.topic")
    ('cats', None)
    """
    if name in row:
        return row[name]
    head, _, rest = name.partition(".")
    nested = row.get(head)
    return value_at(nested, rest) if rest and isinstance(nested, Mapping) else None


def types_of(rows: Iterable[_Row]) -> dict[str, pa.DataType]:
    """Return the Arrow types of all columns of some rows; `pa.null()` for values of several types.

    Lists and objects are JSON texts.

    >>> types_of([{"price": 3, "tags": ["a"]}, {"price": 2.5, "id": 1}, {"id": "one"}])
    {'price': DataType(double), 'tags': DataType(string), 'id': DataType(null)}
    """
    found: dict[str, set[type]] = {}
    for row in rows:
        for name, value in named_values(row):
            found.setdefault(name, set()).update({type(value)} - {type(None)})
    return {name: _type(kinds) for name, kinds in found.items() if kinds}


def _type(kinds: set[type]) -> pa.DataType:
    if kinds <= {str} or all(issubclass(kind, list | dict) for kind in kinds):
        return pa.string()
    numbers = pa.int64() if kinds == {int} else pa.float64() if kinds <= {int, float} else pa.null()
    return pa.bool_() if kinds == {bool} else numbers


def array_of(values: Sequence[Any], type_: pa.DataType, name: str) -> pa.Array:
    """Return the values of a column, None for missing ones.

    Args:
        values: Texts, numbers, booleans, and for a text column also lists and objects; or lists of numbers.
        type_: Type of the column; a list of a fixed size for vectors.
        name: Name and place of the column, for messages.

    Raises:
        DataError: A value is of another type.
    """
    if pa.types.is_fixed_size_list(type_):
        return _vectors(values, type_, name)
    try:
        if type_ == pa.string():
            return pa.array([_text(value) for value in values], type_)
        return pa.array(values, type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"The {name} holds something else than the first {LOOKED_AT} values say, {type_}: {reason(error)}.",
            expected="values of one type",
            to_do="correct them, or declare an index of the right type on it.",
            intact="Nothing was changed.",
        ) from error


def _text(value: Any) -> str | None:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{value!r:.60} is no text")


def _vectors(values: Sequence[Any], type_: pa.DataType, name: str) -> pa.Array:
    dim, missing = type_.list_size, np.array([value is None for value in values], bool)
    vectors = np.zeros((len(values), dim), type_.value_type.to_pandas_dtype())
    try:
        vectors[~missing] = np.array([value for value in values if value is not None], vectors.dtype).reshape(-1, dim)
    except (TypeError, ValueError) as error:
        raise DataError(f"The {name} holds vectors of another dimension.", expected=f"{dim} numbers in each") from error
    mask = pa.array(missing) if missing.any() else None
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), dim, mask=mask)


def batch_of(
    rows: Sequence[_Row], schema: Mapping[str, pa.DataType], columns: Iterable[str], name: str
) -> pa.RecordBatch:
    """Return a record batch of some columns of rows, whose values are looked up by name."""
    fields = pa.schema([(column, schema[column]) for column in columns])
    arrays = [
        array_of([value_at(row, one.name) for row in rows], one.type, f"column '{one.name}' of {name}")
        for one in fields
    ]
    return pa.record_batch(arrays, schema=fields)
