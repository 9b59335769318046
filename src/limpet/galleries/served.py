"""Quality of a gallery's answers, by the classes in the metadata of its hits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from limpet.errors import DataError
from limpet.galleries.items import pages
from limpet.galleries.router import Hit, Reply

if TYPE_CHECKING:
    from limpet.embeddings import EmbeddingSet
    from limpet.engines.store import Store


@dataclass(frozen=True)
class Served:
    """Means over queries whose class the gallery has.

    Args:
        recall_at_1: Share of queries whose first hit is of their class.
        map_at_k: Average precision among the k hits requested, divided by the number of relevant items that k hits can
            hold (the rule of Google Landmarks v2); if k is at least the size of every class, it counts missed items.
        queries: Number of queries counted.
    """

    recall_at_1: float
    map_at_k: float
    queries: int


def items_of_class(store: Store, column: str = "label") -> dict[str, int]:
    """Return the number of items of every class in a gallery's store."""
    counts: Counter[str] = Counter()
    for items in pages(store):
        counts.update(str(metadata[column]) for metadata in items.metadata if column in metadata)
    return dict(counts)


def class_names_of(queries: EmbeddingSet) -> list[str]:
    """Return the class of every query as galleries write it.

    Raises:
        DataError: The queries have no labels.
    """
    if queries.labels is None:
        raise DataError("Queries without labels.", expected="labels, to judge hits by")
    names = queries.class_names
    return [str(label) for label in queries.labels] if names is None else list(names[queries.labels])


def served(reply: Reply, classes: Sequence[str], totals: Mapping[str, int], k: int, *, column: str = "label") -> Served:
    """Evaluate a reply by the classes of queries and hits.

    Args:
        reply: Reply of a search for k hits.
        classes: Class of every query.
        totals: Number of items of every class, see `items_of_class`.
        k: Number of hits requested.
        column: Metadata column of the class.

    Raises:
        DataError: No query is of a class that the gallery has.
    """
    scores = [
        (
            float(bool(hits) and hits[0].metadata.get(column) == name),
            _precision(hits, name, column, min(totals[name], k)),
        )
        for hits, name in zip(reply.hits, classes, strict=True)
        if totals.get(name)
    ]
    if not scores:
        raise DataError(
            "No query is of a class that the gallery has.",
            expected=f"classes of queries in the metadata column '{column}'",
            to_do="check the column and the labels of the queries.",
        )
    first, precision = np.mean(scores, axis=0)
    return Served(float(first), float(precision), len(scores))


def _precision(hits: Sequence[Hit], name: str, column: str, relevant: int) -> float:
    """Return the average precision of one query.

    >>> hits = [Hit("a", 0.9, "g1", {"label": "x"}), Hit("b", 0.8, "g1", {}), Hit("c", 0.7, "g1", {"label": "x"})]
    >>> round(_precision(hits, "x", "label", 2), 4)
    0.8333
    """
    ranks = np.flatnonzero([hit.metadata.get(column) == name for hit in hits])
    return float((np.arange(1, len(ranks) + 1) / (ranks + 1)).sum() / relevant)
