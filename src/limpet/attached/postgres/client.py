"""SQL for the application whose table is attached."""

from __future__ import annotations

import re

from limpet.attached.postgres.ledger import SCHEMA, Entry
from limpet.attached.postgres.session import literal, quoted

_OPERATORS = {"cosine": "<=>", "l2": "<->", "ip": "<#>", "l1": "<+>"}


def operator(entry: Entry) -> str:
    """Return the operator of pgvector that the indexes over the vectors are for; that of the cosine without one."""
    found = (re.search(r"\b(?:vector|halfvec)_(\w+?)_ops\b", one.definition) for one in entry.record.table.indexes)
    return next((_OPERATORS[one[1]] for one in found if one and one[1] in _OPERATORS), _OPERATORS["cosine"])


def client_queries(entry: Entry) -> list[tuple[str, str]]:
    """Return SQL for the application, each with what it is for."""
    record, table, sign = entry.record, entry.record.table, operator(entry)
    if record.aside:
        key = ", ".join(quoted(one.name) for one in table.key)
        return [(
            "to search new vectors instead of old ones",
            f"SELECT … FROM {table.identifier} JOIN {SCHEMA}.vectors_{entry.id} AS new USING ({key}) "
            f"ORDER BY new.vector {sign} …",
        )]  # fmt: skip
    plain = all(re.fullmatch("[a-z_][a-z0-9_]*", name) for name in (table.schema, table.name))
    relation = f"{table.schema}.{table.name}" if plain else table.identifier
    served = f"{SCHEMA}.model_of({literal(relation)}, {literal(table.vector.name)})"
    order = f"SELECT {served} AS model, … FROM {table.identifier} ORDER BY {quoted(table.vector.name)} {sign} …"
    wrong = "if it was another, embed it again and repeat"
    if record.shared:
        wrong = "one of the other model finds all rows, too"
    queries = [(f"to know in the very statement that searches which model the query is to be of; {wrong}", order)]
    if record.old.dim != record.new.dim:  # only one of the two fits into the column
        return queries
    return [
        *queries,
        ("to say in a transaction that its vectors are of the new model (without LOCAL: in a session)",
         f"SET LOCAL limpet.writes_with = {literal(entry.state.new)}"),
    ]  # fmt: skip
