"""Filters as the SQL of Lance, which leaves rows out before it compares vectors."""

from __future__ import annotations

import json
from typing import Any

from holdfast.stores.filters import Condition, Exists, Filter, In, Leaf, column_name, leaf_sql, literal, path_of, sql
from holdfast.stores.lance.rows import PREFIX


def condition(where: Filter | None) -> str:
    """Write a checked filter as SQL over the columns of a Lance table; empty without conditions.

    >>> condition(Condition("colour", "=", "red"))
    "`meta_colour` = 'red'"
    >>> print(condition(Condition("attributes.price", "<", 5)))
    try_cast(json_extract(`meta_attributes`, '$."price"') AS double) < 5.0
    """
    return "" if where is None else sql(where, _leaf)


def _leaf(leaf: Leaf) -> str:
    name, *keys = path_of(leaf.column)
    if not keys:
        return leaf_sql(leaf, PREFIX)
    path = "$" + "".join(f".{json.dumps(key, ensure_ascii=False)}" for key in keys)
    written = f"json_extract({column_name(PREFIX + name)}, {literal(path)})"  # as JSON, texts in quotes
    number = f"try_cast({written} AS double)"
    match leaf:
        case Exists():
            return f"{written} != 'null'"
        case In(_, values):
            numbers = [literal(float(value)) for value in values if _is_number(value)]
            others = [literal(_json(value)) for value in values if not _is_number(value)]
            parts = [
                f"{of} IN ({', '.join(listed)})" for of, listed in ((number, numbers), (written, others)) if listed
            ]
            return f"({' OR '.join(parts)})" if parts else "FALSE"
        case Condition(_, comparison, value) if _is_number(value):
            return f"{number} {comparison} {literal(float(value))}"
        case Condition(_, "=", value):
            return f"{written} = {literal(_json(value))}"
        case Condition(_, _, bool(value)):
            return f"{written} = {literal(_json(not value))}"
        case Condition(_, _, value):
            return f"(starts_with({written}, '\"') AND {written} != {literal(_json(value))})"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
