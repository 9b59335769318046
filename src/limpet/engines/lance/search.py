"""Search in one version of a Lance table, with filters as its SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from limpet.engines.filters import (
    Condition,
    Exists,
    Filter,
    In,
    Leaf,
    Metadata,
    column_name,
    leaf_sql,
    literal,
    path_of,
    sql,
)
from limpet.engines.lance.rows import PREFIX, Table, metadata_columns, values_of
from limpet.engines.ledger import best_first
from limpet.engines.store import Hits, Vectors

_AT_ONCE = 64  # queries per search of Lance
PROBES = 40  # partitions of the index that a search probes
_Found = tuple[list[str], Vectors, list[Metadata]]


def nearest(table: Table, schema: pa.Schema, queries: Vectors, k: int, where: Filter | None, *, exact: bool) -> Hits:
    """Find the rows with the largest inner products, see `Store.search`; the schema is that of the table."""
    search = _Search(table, k, condition(where), metadata_columns(schema), exact)
    found = [
        hits for first in range(0, len(queries), _AT_ONCE) for hits in search.best(queries[first : first + _AT_ONCE])
    ]
    return Hits([ids for ids, _, _ in found], [scores for _, scores, _ in found], [known for _, _, known in found])


@dataclass(frozen=True)
class _Search:
    """State that all queries of a search share.

    Args:
        where: Condition as SQL, or empty.
        columns: Metadata columns by column of the table.
    """

    table: Table
    k: int
    where: str
    columns: Mapping[str, str]
    exact: bool

    def best(self, queries: Vectors) -> list[_Found]:
        """Ask for one row more than wanted: if it scores like the last one, smaller ids may have that score, too."""
        limit = self.k + 1
        return [self._sorted(rows if self._complete(rows, limit) else self._with_ties(query, limit * 8))
                for query, rows in zip(queries, self._ask(queries, limit), strict=True)]  # fmt: skip

    def _with_ties(self, query: Vectors, limit: int) -> pa.Table:
        [rows] = self._ask(query[None], limit)
        return rows if self._complete(rows, limit) else self._with_ties(query, limit * 8)

    def _complete(self, rows: pa.Table, limit: int) -> bool:
        """Say whether no row outside these scores as high as one of the k best."""
        scores = _scores(rows)
        return not self.exact or len(rows) < limit or bool(scores.min() < scores[self.k - 1])

    def _ask(self, queries: Vectors, limit: int) -> list[pa.Table]:
        asked = {"column": "vector", "q": queries[0] if len(queries) == 1 else queries, "k": limit, "metric": "dot"}
        how = {"use_index": False} if self.exact else {"nprobes": PROBES}
        rows = self.table.to_table(
            columns=["id", "_distance", *self.columns], nearest=asked | how, filter=self.where or None, prefilter=True
        )
        if len(queries) == 1:
            return [rows]
        numbers = rows.column("query_index").to_numpy()
        return [rows.filter(pa.array(numbers == number)) for number in range(len(queries))]

    def _sorted(self, rows: pa.Table) -> _Found:
        ids, scores = rows.column("id").to_pylist(), _scores(rows)
        places = best_first(ids, scores, self.k)
        values = {known: values_of(rows.column(name)) for name, known in self.columns.items()}
        metadata: list[Metadata] = [
            {known: listed[place] for known, listed in values.items() if listed[place] is not None} for place in places
        ]
        return [ids[place] for place in places], scores[places], metadata


def _scores(rows: pa.Table) -> Vectors:
    """Return inner products; Lance's distances are 1 minus these."""
    scores: Vectors = np.float32(1) - rows.column("_distance").to_numpy()
    return scores


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
    written = f"json_extract({column_name(PREFIX + name)}, {literal(path)})"  # JSON, with texts in quotes
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
