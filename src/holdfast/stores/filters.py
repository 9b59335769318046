"""Conditions on metadata: a conjunction of comparisons of a column with a value."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import ConfigError, brief, refuse, unknown_name
from holdfast.stores.checks import damaged

Value = str | int | float | bool
Metadata = Mapping[str, Value]
"""What is known of an item, by column; what it has no value for is left out."""

COLUMN_TYPES: dict[str, type] = {"text": str, "integer": int, "number": float, "truth": bool}
"""Types of metadata columns, by name."""

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_ORDERED = ("<", "<=", ">", ">=")


@dataclass(frozen=True)
class Condition:
    """A column compared with a value; items without a value never match.

    Args:
        column: Name of a metadata column.
        comparison: "=", "!=", "<", "<=", ">" or ">=".
        value: A text, number or truth value.
    """

    column: str
    comparison: str
    value: Any

    def matches(self, metadata: Metadata) -> bool:
        """Say whether an item matches.

        >>> Condition("price", "<", 5).matches({"price": 4.5}), Condition("price", "<", 5).matches({})
        (True, False)

        Raises:
            StoreError: An item has a value of another type.
        """
        found = metadata.get(self.column)
        try:
            return found is not None and _COMPARE[self.comparison](found, self.value)
        except TypeError as error:
            raise damaged(f"The metadata column '{self.column}'", f"an item has {found!r:.60} there") from error


Filter = tuple[Condition, ...]
"""All of these conditions hold."""


def matches(where: Filter | None, metadata: Metadata) -> bool:
    """Say whether all conditions of a filter hold."""
    return all(condition.matches(metadata) for condition in where or ())


def read_filter(words: Sequence[str], columns: Mapping[str, str]) -> Filter:
    """Read conditions such as ``price<10`` or ``colour=red``.

    Args:
        words: One condition each.
        columns: Types of the columns that there are, by name.

    Raises:
        ConfigError: No comparison, an unknown column, or a value of another type.

    >>> read_filter(["price<=10"], {"price": "integer"})
    (Condition(column='price', comparison='<=', value=10),)
    """
    return tuple(_read_condition(word, columns) for word in words)


def _read_condition(word: str, columns: Mapping[str, str]) -> Condition:
    found = [(word.find(sign), -len(sign), sign) for sign in _COMPARE if sign in word]
    refuse(not found, f"The condition '{word}'.", f"COLUMN, one of {' '.join(_COMPARE)}, and a value, such as price<10")
    sign = min(found)[2]
    name, _, text = word.partition(sign)
    refuse(
        text.strip().startswith("=" if sign in ("=", "!=") else tuple("<>=!")),
        f"The condition '{word}' has more than one comparison.",
        f"COLUMN, one of {' '.join(_COMPARE)}, and a value, such as price<10",
    )
    return checked(Condition(name.strip(), sign, text.strip()), columns, from_text=True)


def checked(condition: Condition, columns: Mapping[str, str], *, from_text: bool = False) -> Condition:
    """Return a condition whose value has the type of its column.

    Raises:
        ConfigError: The column or comparison is unknown, or the value has another type.
    """
    if condition.column not in columns:
        raise unknown_name("metadata column", condition.column, columns)
    if condition.comparison not in _COMPARE:
        raise unknown_name("comparison", condition.comparison, _COMPARE)
    kind = columns[condition.column]
    value = _from_text(condition.value, kind) if from_text else condition.value
    if from_text and kind == "text" and condition.comparison in _ORDERED and _is_number(value):
        raise ConfigError(
            f"The condition '{condition.column}{condition.comparison}{value}' compares texts, among which '10' comes "
            f"before '3': the column '{condition.column}' holds texts.",
            expected="= or != and the text, or a column of numbers",
            to_do="keep such values as numbers where the items are added; nothing was changed.",
        )
    if not fits(value, kind):
        raise ConfigError(
            f"The condition '{condition.column} {condition.comparison} {brief(condition.value)}'.",
            expected=f"a value of the column's type, {kind}",
        )
    return Condition(condition.column, condition.comparison, value)


def _is_number(value: object) -> bool:
    """Say whether a text is a number whose order among texts is another: no year or code, which have one length."""
    text = str(value)
    if text.isdecimal() and (len(text) >= 4 or text.startswith("0")):
        return False
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def fits(value: object, kind: str) -> bool:
    """Say whether a column of a type can hold a value: a finite number, an integer of 64 bits, a text without 0.

    >>> fits(3, "number"), fits(3.5, "integer"), fits(True, "integer"), fits("red", "text"), fits(math.nan, "number")
    (True, False, False, True, False)
    """
    wanted = (int, float) if kind == "number" else COLUMN_TYPES[kind]
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind != "truth"):
        return False
    if isinstance(value, str):
        return "\0" not in value and (value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value))
    return -(2**63) <= value < 2**63 if isinstance(value, int) else isinstance(value, float) and math.isfinite(value)


def _from_text(text: str, kind: str) -> Any:
    """Return the value that a text stands for, or the text where it stands for none of the kind."""
    if kind == "truth":
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return COLUMN_TYPES[kind](text)
    except ValueError:
        return text


def sql(where: Filter | None) -> str:
    """Write a filter as SQL over columns of the conditions' names; empty without conditions.

    >>> sql((Condition("colour", "=", "it's red"), Condition("price", "<", 5)))
    "`colour` = 'it''s red' AND `price` < 5"
    """
    return " AND ".join(f"`{one.column}` {one.comparison} {literal(one.value)}" for one in where or ())


def literal(value: Any) -> str:
    """Write a value as SQL does."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(float(value) if isinstance(value, float) else int(value))
