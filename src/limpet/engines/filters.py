"""Conditions on metadata that select items, the same for every store.

A filter is either true or false for an item: a missing value (or, in a JSON column, null or a value of another type
than the one it is compared with) matches no comparison, and `Not` turns false into true. So ``price != 3`` matches
items with another price, and ``NOT price = 3`` also those without one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from limpet.errors import ConfigError, brief, refuse, unknown_name

Value = str | int | float | bool
Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
"""What a JSON document can hold."""
Metadata = Mapping[str, Json]
"""Metadata of an item by column: values (`Value`), or objects in JSON columns; missing values are left out."""

COLUMN_TYPES: dict[str, type] = {"text": str, "integer": int, "number": float, "truth": bool, "json": dict}
"""Types of metadata columns, by name."""

COMPARISONS = ("=", "!=", "<=", ">=", "<", ">")
_ORDERED = ("<", "<=", ">", ">=")
_DEEPEST = 20  # maximum nesting; the SQL of Lance permits 50 parentheses
_MOST_PARTS = 1000
_LEAST = -(2**63)
_LARGEST_IN_JSON = 2**53  # JSON readers disagree on larger integers


@dataclass(frozen=True)
class Condition:
    """A column compared with a value; items without a value never match.

    Args:
        column: Name of a metadata column; for a JSON column with the path to a value, such as ``attributes.colour``
            or ``attributes."max speed"``.
        comparison: "=", "!=", "<", "<=", ">" or ">=".
        value: A text, number or boolean.
    """

    column: str
    comparison: str
    value: Any


@dataclass(frozen=True)
class In:
    """The value of a column is one of these.

    Args:
        column: See `Condition`.
        values: Texts, numbers or booleans; without any, no item matches.
    """

    column: str
    values: Sequence[Any]


@dataclass(frozen=True)
class Exists:
    """A column has a value.

    Args:
        column: See `Condition`.
    """

    column: str


@dataclass(frozen=True)
class And:
    """All of these hold; true if empty."""

    parts: Sequence[Filter]


@dataclass(frozen=True)
class Or:
    """At least one of these holds."""

    parts: Sequence[Filter]


@dataclass(frozen=True)
class Not:
    """This does not hold."""

    part: Filter


Leaf = Condition | In | Exists
"""A filter on one value."""
Filter = Leaf | And | Or | Not
"""Filter on items; `checked` converts it to the form that stores take."""
Conditions = tuple[Condition, ...]
"""Comparisons that all hold."""


def between(column: str, least: Value, most: Value) -> And:
    """Return the filter for values from ``least`` to ``most``, both included."""
    return And((Condition(column, ">=", least), Condition(column, "<=", most)))


def path_of(column: str) -> tuple[str, ...]:
    """Return the name of a column and the keys of a value in it; keys with special characters are in quotes.

    >>> path_of("price"), path_of('attributes.size."max. speed"')
    (('price',), ('attributes', 'size', 'max. speed'))

    Raises:
        ConfigError: A quote or a key is missing.
    """
    keys: list[str] = []
    rest = f".{column}"
    while rest:
        quoted = rest.startswith('."')
        try:
            key, end = json.JSONDecoder().raw_decode(rest, 1) if quoted else _key(rest)
        except ValueError:
            key, end = "", 0
        wrong = not rest.startswith(".") or not key or not fits(key, "text")
        refuse(wrong, f"The column {brief(column)}.", 'a name; in JSON, keys after dots: attributes."max speed".unit')
        keys, rest = [*keys, key], rest[end:]
    return tuple(keys)


def _key(rest: str) -> tuple[str, int]:
    end = rest.find(".", 1)
    end = len(rest) if end < 0 else end
    return rest[1:end], end


def leaves(where: Filter) -> Iterator[Leaf]:
    """Yield the parts of a filter that each test one value."""
    if isinstance(where, (And, Or)):
        for part in where.parts:
            yield from leaves(part)
    elif isinstance(where, Not):
        yield from leaves(where.part)
    else:
        yield where


def checked(where: Filter | Sequence[Filter] | None, columns: Mapping[str, str]) -> Filter | None:
    """Return a filter whose values have the types of their columns, in tuples; None for no condition.

    Args:
        where: A filter, or several that all have to hold.
        columns: Types of the existing columns, by name.

    Raises:
        ConfigError: A column or comparison is unknown, a value has another type, or there are too many parts.

    >>> checked([Condition("price", "<", 5)], {"price": "number"})
    Condition(column='price', comparison='<', value=5.0)
    """
    if where is None:
        return None
    if isinstance(where, Sequence):
        where = where[0] if len(where) == 1 else And(where)
    found = _checked(where, columns, _DEEPEST)
    parts = sum(1 for _ in leaves(found))
    refuse(parts > _MOST_PARTS, f"A filter of {parts} conditions.", f"at most {_MOST_PARTS}; IN takes many values")
    return None if found == And(()) else found


def _checked(where: Filter, columns: Mapping[str, str], depth: int) -> Filter:
    refuse(not depth, "A filter with too many parts within parts.", f"at most {_DEEPEST} levels")
    match where:
        case And(parts):
            return And(tuple(_checked(part, columns, depth - 1) for part in parts))
        case Or(parts):
            return Or(tuple(_checked(part, columns, depth - 1) for part in parts))
        case Not(part):
            return Not(_checked(part, columns, depth - 1))
        case Exists(column):
            kind_of(column, columns)
            return where
        case In(column, values):
            refuse(isinstance(values, str), f"In({column!r}, {values!r}).", "a list of values")
            if _all_fit(values, kind_of(column, columns)):
                return In(column, tuple(values))
            return In(column, tuple(_fitting(column, "=", value, columns) for value in values))
        case Condition(column, comparison, value):
            return Condition(column, comparison, _fitting(column, comparison, value, columns))
    raise ConfigError(f"A filter {brief(where)}.", expected="Condition, In, Exists, And, Or or Not")


def kind_of(column: str, columns: Mapping[str, str]) -> str:
    """Return the type of a column; "json" for a path within one.

    Raises:
        ConfigError: The column is unknown, or has a path but is not JSON.
    """
    if column in columns:  # tables of other programs may have columns with dots
        return columns[column]
    name, *keys = path_of(column)
    if name not in columns:
        raise unknown_name("metadata column", name, columns)
    kind = columns[name]
    refuse(bool(keys) and kind != "json", f"'{column}', where '{name}' is a column of the type {kind}.",
           f"'{name}', or a column of JSON")  # fmt: skip
    return kind


def _fitting(column: str, comparison: str, value: Any, columns: Mapping[str, str]) -> Any:
    kind = kind_of(column, columns)
    if comparison not in COMPARISONS:
        raise unknown_name("comparison", comparison, COMPARISONS)
    within = kind == "json"
    refuse(within and len(path_of(column)) == 1, f"The whole of '{column}' compared.", f"a value in it: {column}.KEY")
    if not (isinstance(value, Value) and _fits_in_json(value) if within else fits(value, kind)):
        raise ConfigError(
            f"The condition '{column} {comparison} {brief(value)}'.",
            expected="a text, number or truth value" if within else f"a value of the column's type, {kind}",
        )
    refuse(
        within and comparison in _ORDERED and isinstance(value, (str, bool)),
        f"The condition '{column} {comparison} {brief(value)}' in a column of JSON.",
        "a number; texts in JSON are compared by = and != only, those of a column of texts by all comparisons",
    )
    return float(value) if kind == "number" else value


def _all_fit(values: Sequence[Any], kind: str) -> bool:
    """Say whether a column of a type can hold all of many plain values unchanged; False means not determined."""
    types = set(map(type, values))
    if kind == "text" and types == {str}:
        joined: str = "".join(values)
        return joined.isascii() and "\0" not in joined
    if kind == "integer" and types == {int}:
        return bool(min(values) >= _LEAST and max(values) <= -(_LEAST + 1))
    return kind == "number" and types == {float} and all(map(math.isfinite, values))


def fits(value: object, kind: str) -> bool:
    """Say whether a column of a type can hold a value: a finite number, an integer of 64 bits, a text without 0.

    A column of JSON holds objects, of which integers have at most 53 bits.

    >>> fits(3, "number"), fits(3.5, "integer"), fits(True, "integer"), fits("red", "text"), fits(math.nan, "number")
    (True, False, False, True, False)
    """
    wanted = (int, float) if kind == "number" else COLUMN_TYPES[kind]
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind != "truth"):
        return False
    if isinstance(value, str):
        return "\0" not in value and (value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value))
    if isinstance(value, dict):
        return _fits_in_json(value)
    return -(2**63) <= value < 2**63 if isinstance(value, int) else isinstance(value, float) and math.isfinite(value)


def _fits_in_json(value: object, depth: int = _DEEPEST) -> bool:
    if isinstance(value, dict):
        return depth > 0 and all(fits(key, "text") and _fits_in_json(one, depth - 1) for key, one in value.items())
    if isinstance(value, list):
        return depth > 0 and all(_fits_in_json(one, depth - 1) for one in value)
    if isinstance(value, int):
        return abs(value) <= _LARGEST_IN_JSON
    return value is None or fits(value, "text" if isinstance(value, str) else "number")


def sql(where: Filter, leaf: Callable[[Leaf], str] | None = None) -> str:
    """Write a checked filter as SQL; a condition on a missing value is NULL.

    Args:
        where: The filter.
        leaf: Writes the parts that each test one value; `leaf_sql` when left out.

    >>> sql(And((Condition("colour", "=", "it's red"), Not(In("price", (5, 7))))))
    "(`colour` = 'it''s red' AND (`price` IN (5, 7)) IS NOT TRUE)"
    """
    leaf = leaf_sql if leaf is None else leaf
    match where:
        case And(parts) | Or(parts):
            word, alone = ("AND", "TRUE") if isinstance(where, And) else ("OR", "FALSE")
            return f"({f' {word} '.join(sql(part, leaf) for part in parts)})" if parts else alone
        case Not(part):
            return f"({sql(part, leaf)}) IS NOT TRUE"  # also true for NULL
        case _:
            return leaf(where)


def leaf_sql(leaf: Leaf, prefix: str = "") -> str:
    """Write a filter on one value of a column as SQL; column names get the ``prefix``."""
    column = column_name(prefix + leaf.column)
    match leaf:
        case In(_, values):
            return f"{column} IN ({', '.join(map(literal, values))})" if values else "FALSE"
        case Exists():
            return f"{column} IS NOT NULL"
        case Condition(_, comparison, value):
            return f"{column} {comparison} {literal(value)}"


def column_name(name: str) -> str:
    """Quote the name of a column for the SQL of Lance.

    >>> column_name("max speed")
    '`max speed`'

    Raises:
        ConfigError: The name contains the quote character, which cannot be escaped.
    """
    refuse("`" in name, f"The column {name!r}.", "a name without ` where rows are compared or asked for by it")
    return f"`{name}`"


def literal(value: Any) -> str:
    """Write a value as SQL; the smallest integer as a sum, since its digits alone would be parsed as a float."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if value == _LEAST and isinstance(value, int):
        return f"({_LEAST + 1} - 1)"
    return repr(float(value) if isinstance(value, float) else int(value))
