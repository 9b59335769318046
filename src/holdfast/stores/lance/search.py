"""Searching one version of a Lance table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.stores.base import Hits, Vectors
from holdfast.stores.filters import Filter, Metadata
from holdfast.stores.lance.filters import condition
from holdfast.stores.lance.rows import Table, metadata_columns, values_of
from holdfast.stores.ledger import best_first

_AT_ONCE = 64  # queries of one search of Lance
PROBES = 40  # parts of the index that a search looks into
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
    """What all queries of a search share.

    Args:
        table: Where to search.
        k: Hits per query.
        where: Condition as SQL, or empty.
        columns: Metadata columns by column of the table.
        exact: Compare with every row.
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
        """Return for every query the rows with the smallest distances, in this order."""
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
    """Return inner products; the distances of Lance are 1 minus these."""
    scores: Vectors = np.float32(1) - rows.column("_distance").to_numpy()
    return scores
