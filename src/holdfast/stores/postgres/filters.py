"""Filters as SQL over the metadata of items, as jsonb; every value is a parameter.

Equality is containment (``@>``), which an index (GIN) over the metadata serves, also under AND and OR and of lists;
other comparisons look at the items that are left.
"""

from __future__ import annotations

import json
from typing import Any

from holdfast.stores.filters import And, Condition, Exists, Filter, In, Not, Or, path_of

METADATA = "items.metadata::jsonb"
INDEX = "items_metadata"
INDEXED = "items USING gin ((metadata::jsonb) jsonb_path_ops) WITH (fastupdate = off)"
"""The index of metadata and what it is on; without a list of new items, which every search would have to read."""
COSTS = b"SELECT set_config('cpu_operator_cost', '0.025', true)"
"""What the database is told of looking at metadata: it takes ten times as long as comparing numbers."""

_LOOKED_UP = 200  # values of a list that the index is asked for one by one; of more, every item is looked at once


def condition(where: Filter, values: dict[str, Any]) -> str:
    """Write a checked filter as SQL over the table of items, true or false of every item.

    Args:
        where: The filter.
        values: Takes what the placeholders stand for.

    >>> values = {}
    >>> condition(Condition("price", "=", 5), values), values
    ('items.metadata::jsonb @> %(w0)s::jsonb', {'w0': '{"price": 5}'})
    """

    def placed(value: Any) -> str:
        values[f"w{len(values)}"] = value
        return f"%(w{len(values) - 1})s"

    match where:
        case And(parts) | Or(parts):
            word, alone = ("AND", "true") if isinstance(where, And) else ("OR", "false")
            return f"({f' {word} '.join(condition(part, values) for part in parts)})" if parts else alone
        case Not(part):
            return f"NOT ({condition(part, values)})"
        case Exists(column):
            steps = "".join(f" -> {placed(key)}::text" for key in path_of(column))
            return f"coalesce({METADATA}{steps} <> 'null'::jsonb, false)"
        case In(column, listed) if len(listed) > _LOOKED_UP:
            steps = "".join(f" -> {placed(key)}::text" for key in path_of(column))
            return f"coalesce({METADATA}{steps} = ANY({placed(list(map(json.dumps, listed)))}::jsonb[]), false)"
        case In(column, listed):
            return f"{METADATA} @> ANY({placed([_object(column, value) for value in listed])}::jsonb[])"
        case Condition(column, "=", value):
            return f"{METADATA} @> {placed(_object(column, value))}::jsonb"
        case Condition(column, comparison, value):
            path, compared = placed(_path(column, comparison)), placed(json.dumps({"value": value}))
            return f"coalesce(jsonb_path_exists({METADATA}, {path}::jsonpath, {compared}::jsonb, true), false)"


def _object(column: str, value: Any) -> str:
    """Return the JSON that metadata contains whose value there is this one.

    >>> _object("attributes.colour", "red")
    '{"attributes": {"colour": "red"}}'
    """
    for key in reversed(path_of(column)):
        value = {key: value}
    return json.dumps(value)


def _path(column: str, comparison: str) -> str:
    """Return the JSON path that finds a value which compares so with ``$value``, of the same type only.

    >>> _path("attributes.price", "<")
    'strict $."attributes"."price" ? (@ != null && @ < $value)'
    """
    steps = "".join(f".{json.dumps(key)}" for key in path_of(column))
    return f"strict ${steps} ? (@ != null && @ {comparison} $value)"
