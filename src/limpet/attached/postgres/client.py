"""SQL for the application whose table is attached."""

from __future__ import annotations

import re

from limpet.attached.postgres.indexes import indexed_part
from limpet.attached.postgres.ledger import SCHEMA, TableEntry
from limpet.engines.postgres.database import literal, quoted

CANDIDATES = 20
"""Rows to fetch per result from an index over a part of each vector; as in galleries."""

_OPERATORS = {"cosine": "<=>", "l2": "<->", "ip": "<#>", "l1": "<+>"}


def operator(entry: TableEntry) -> str:
    """Return the pgvector operator of the indexes over the vectors; that of the cosine distance without an index."""
    found = (re.search(r"\b(?:vector|halfvec)_(\w+?)_ops\b", one.definition) for one in entry.record.table.indexes)
    return next((_OPERATORS[one[1]] for one in found if one and one[1] in _OPERATORS), _OPERATORS["cosine"])


def client_queries(entry: TableEntry) -> dict[str, str]:
    """Return SQL for the application, by purpose."""
    record, table, sign = entry.record, entry.record.table, operator(entry)
    if record.aside:
        key = ", ".join(quoted(one.name) for one in table.key)
        beside = f"{table.identifier} JOIN {SCHEMA}.vectors_{entry.id} AS new USING ({key})"
        return {
            "to search new vectors instead of old ones": f"SELECT … FROM {beside} ORDER BY new.vector {sign} …",
            **_by_index(entry, beside, "new.vector", sign),
        }
    plain = all(re.fullmatch("[a-z_][a-z0-9_]*", name) for name in (table.schema, table.name))
    relation = f"{table.schema}.{table.name}" if plain else table.identifier
    served = f"{SCHEMA}.model_of({literal(relation)}, {literal(table.vector.name)})"
    order = f"SELECT {served} AS model, … FROM {table.identifier} ORDER BY {quoted(table.vector.name)} {sign} …"
    wrong = "if it is not the model of your query, embed the query again and repeat"
    if record.shared:
        wrong = "a query of the other model finds all rows, too"
    queries = {
        f"to read the active model in the same statement as the search; {wrong}": order,
        **_by_index(entry, table.identifier, quoted(table.vector.name), sign),
    }
    if record.old.dim != record.new.dim:  # only one of the two fits into the column
        return queries
    said = "to say in a transaction that its vectors are of the new model (without LOCAL: in a database)"
    return {**queries, said: f"SET LOCAL limpet.writes_with = {literal(entry.state.new)}"}


def _by_index(entry: TableEntry, relation: str, column: str, sign: str) -> dict[str, str]:
    """Return a search of new vectors by an index over a part of each: it fetches more rows, then compares in full."""
    record = entry.record
    if record.index in ("whole", "none") or not record.table.indexes:
        return {}
    nearer = "<~>" if record.index == "bits" else sign
    held, asked = indexed_part(record, column), indexed_part(record, "$1", query=True)
    purpose = (
        f"to search new vectors by the index, where 10 are wanted (with hnsw.ef_search at least {CANDIDATES * 10})"
    )
    return {
        purpose: f"SELECT … FROM (SELECT * FROM {relation} ORDER BY {held} {nearer} {asked} "
        f"LIMIT {CANDIDATES * 10}) AS near ORDER BY {column.removeprefix('new.')} {sign} $1 LIMIT 10"
    }
