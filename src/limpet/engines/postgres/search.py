"""Nearest-neighbour queries of pgvector: over all rows, or over those whose items match a condition."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from limpet.engines.filters import And, Condition, Exists, Filter, In, Not, Or, path_of
from limpet.engines.postgres.address import Connection
from limpet.engines.postgres.database import PostgresDatabase, translated
from limpet.engines.postgres.graphs import VectorForm, built, chosen, form_of, table_of
from limpet.engines.store import Graph, Vectors

FoundRow = tuple[str, float, str]
"""Id, score, and metadata as JSON."""

_FEW_ITEMS = 2000  # maximum number of items to look up one by one instead of joining
_NEAREST = 50  # rows per hit whose items are looked up before all items are joined
SETTINGS = b"""
SELECT set_config('enable_nestloop', %(nested)s, true), set_config('enable_seqscan', %(scanned)s, true),
    set_config('hnsw.iterative_scan', 'strict_order', true), set_config('hnsw.ef_search', %(breadth)s, true)
"""


@dataclass(frozen=True)
class Selection:
    """The rows that a search may return; all rows without a condition.

    Args:
        condition: Condition on their items, in SQL over the table of items.
        values: Values of its placeholders.
        ids: The matching items, if they are few and were looked up.
        late: Whether the condition is applied only to the nearest rows, of which too few may match.
    """

    condition: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    ids: list[str] | None = None
    late: bool = False

    def statement(self, table: str, k: int, form: VectorForm | None = None) -> bytes:
        """Return the statement that finds the rows with the largest inner products with the value ``query``."""
        distance = "r.vector <#> %(query)b"
        order = f"-({distance}) DESC"  # an index serves the distance only, not its negative
        if self.late:
            nearest = f"SELECT r.id, -({distance}) AS score FROM {table} AS r ORDER BY {order}, r.id"
            return (
                f"SELECT found.id, found.score, metadata FROM ({nearest} LIMIT {_NEAREST * int(k)}) AS found "
                f"JOIN items USING (id) WHERE {self.condition} ORDER BY found.score DESC, found.id LIMIT {int(k)}"
            ).encode()
        rows = f"{table} AS r {self._rows(form is not None)}"
        if form is not None:
            held, asked = (
                form.held.format(vector="r.vector", schema=""),
                form.asked.format(query="%(query)b", schema=""),
            )
            near = f"{held} {form.distance} {asked}"
            if form.candidates == 1:
                order = near
            else:
                rows = f"(SELECT r.id, r.vector FROM {rows} ORDER BY {near} LIMIT {int(k) * form.candidates}) AS r"
        return (
            "SELECT found.id, found.score, (SELECT metadata FROM items WHERE items.id = found.id) FROM ("
            f"SELECT r.id, -({distance}) AS score FROM {rows} "
            f"ORDER BY {order}, r.id LIMIT {int(k)}) AS found ORDER BY found.score DESC, found.id"
        ).encode()

    def _rows(self, indexed: bool) -> str:
        if self.ids is not None:
            return "WHERE r.id = ANY(%(ids)s)"
        if not self.condition:
            return ""
        if indexed:  # row by row along the index
            return f"WHERE (SELECT {self.condition} FROM items WHERE items.id = r.id)"
        return f"JOIN items ON items.id = r.id WHERE {self.condition}"

    def settings(self, k: int, form: VectorForm | None = None, graph: Graph | None = None) -> dict[str, str]:
        """Return values for `SETTINGS`: the planner cannot estimate how many items match a condition."""
        indexed = form is not None
        joined = bool(self.condition) and not indexed and not self.late
        wanted = k * max(2, form.candidates) if form else 0
        return {
            "nested": "off" if joined else "on",
            "scanned": "off" if indexed else "on",
            "breadth": str(min(max(wanted, (graph or Graph()).ef_search), 1000)),
        }


def nearest(
    database: PostgresDatabase,
    queries: Vectors,
    k: int,
    *,
    generation: str,
    mask: int,
    where: Filter | None,
    exact: bool,
) -> list[list[FoundRow]]:
    """Find the rows with the largest inner products, at most k per query, ties by id.

    Args:
        database: Connection in a transaction with one snapshot.
        queries: float32 (Q, width).
        k: Hits per query.
        generation: Generation of the rows.
        mask: Bits of generations in which their items must have no vector.
        where: Condition on their metadata.
        exact: Compare all rows, even with an approximate index.
    """
    with database.connection() as connection, translated(database.address.url):
        selection = _selected(connection, *_condition(mask, where))
        table = table_of(generation)
        # an index exists only if it finds near rows
        form = None if exact or selection.ids is not None else form_of(queries.shape[1], directions=True)
        if form is not None and built(database, generation) is not None:
            found = _run(connection, queries, k, selection, table, form, chosen(database))
        elif mask and where is None and selection.ids is None:
            found = _run(connection, queries, k, replace(selection, late=True), table)
        else:
            return _run(connection, queries, k, selection, table)
        short = [number for number, rows in enumerate(found) if len(rows) < k]  # there may be further ones
        if short:
            exactly = _run(connection, queries[short], k, selection, table)
            for number, rows in zip(short, exactly, strict=True):
                found[number] = rows
        return found


def _run(
    connection: Connection,
    queries: Vectors,
    k: int,
    selection: Selection,
    table: str,
    form: VectorForm | None = None,
    graph: Graph | None = None,
) -> list[list[FoundRow]]:
    statement = selection.statement(table, k, form)
    values = {**selection.values, "ids": selection.ids}
    with connection.pipeline():
        connection.execute(SETTINGS, selection.settings(k, form, graph))
        cursors = [connection.execute(statement, {**values, "query": query}, binary=True) for query in queries]
    return [cast("list[FoundRow]", cursor.fetchall()) for cursor in cursors]


def _selected(connection: Connection, condition: str, values: Mapping[str, Any]) -> Selection:
    if not condition:
        return Selection()
    connection.execute(COSTS)
    cursor = connection.execute(f"SELECT id FROM items WHERE {condition} LIMIT {_FEW_ITEMS + 1}".encode(), values)
    ids = [str(identifier) for (identifier,) in cursor]
    connection.execute(b"SET LOCAL cpu_operator_cost TO DEFAULT")
    return Selection(condition, values, ids if len(ids) <= _FEW_ITEMS else None)


def _condition(mask: int, where: Filter | None) -> tuple[str, dict[str, object]]:
    """Return the condition on items in SQL, and its values; empty if every item matches."""
    parts: list[str] = []
    values: dict[str, object] = {}
    if mask:
        parts.append("items.mask & %(mask)s = 0")
        values["mask"] = mask
    if where is not None:
        parts.append(condition(where, values))
    return " AND ".join(parts), values


_METADATA = "items.metadata::jsonb"
INDEX = "items_metadata"
INDEXED = "items USING gin ((metadata::jsonb) jsonb_path_ops) WITH (fastupdate = off)"
"""Definition of the metadata index; without a list of pending items, which every search would have to read."""
COSTS = b"SELECT set_config('cpu_operator_cost', '0.025', true)"
"""Sets the planner's cost of evaluating metadata: ten times the cost of comparing numbers."""

_LOOKED_UP = 200  # values of a list to look up in the index one by one; for more, every item is read once


def condition(where: Filter, values: dict[str, object]) -> str:
    """Write a checked filter as SQL over the table of items, true or false for every item.

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
            return f"coalesce({_METADATA}{steps} <> 'null'::jsonb, false)"
        case In(column, listed) if len(listed) > _LOOKED_UP:
            steps = "".join(f" -> {placed(key)}::text" for key in path_of(column))
            return f"coalesce({_METADATA}{steps} = ANY({placed(list(map(json.dumps, listed)))}::jsonb[]), false)"
        case In(column, listed):
            return f"{_METADATA} @> ANY({placed([_object(column, value) for value in listed])}::jsonb[])"
        case Condition(column, "=", value):
            return f"{_METADATA} @> {placed(_object(column, value))}::jsonb"
        case Condition(column, comparison, value):
            path, compared = placed(_path(column, comparison)), placed(json.dumps({"value": value}))
            return f"coalesce(jsonb_path_exists({_METADATA}, {path}::jsonpath, {compared}::jsonb, true), false)"


def _object(column: str, value: Any) -> str:
    """Return the JSON object that metadata contains if the value of the column is `value`.

    >>> _object("attributes.colour", "red")
    '{"attributes": {"colour": "red"}}'
    """
    for key in reversed(path_of(column)):
        value = {key: value}
    return json.dumps(value)


def _path(column: str, comparison: str) -> str:
    """Return the JSON path of a value that compares to ``$value``, of the same type only.

    >>> _path("attributes.price", "<")
    'strict $."attributes"."price" ? (@ != null && @ < $value)'
    """
    steps = "".join(f".{json.dumps(key)}" for key in path_of(column))
    return f"strict ${steps} ? (@ != null && @ {comparison} $value)"
