"""A few queries with the first hits of several models, each marked as right or wrong (CVS, Fig. A.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from limpet.embeddings import EmbeddingSet, labels_as_in
from limpet.errors import DataError, count_of, refuse
from limpet.evaluation import class_names_of, top_k
from limpet.results import Part


class Searched(NamedTuple):
    """Queries embedded by one model, and the parts of the searched gallery, which may be embedded by other models."""

    query: EmbeddingSet
    gallery: Sequence[EmbeddingSet]


class Hit(Part):
    """A retrieved item.

    Args:
        label: Class name; empty if the item has no class.
        right: Whether its class is that of the query; None if unknown.
    """

    id: str
    label: str
    right: bool | None


class Strip(Part):
    """One query with its hits.

    Args:
        query: Id of the query.
        label: Class name of the query; empty if it has no class.
        hits: Hits of every model, best first, by the name of the model.
    """

    query: str
    label: str
    hits: dict[str, list[Hit]]


class Strips(Part):
    """Some queries with their hits, and pictures of the items.

    Args:
        models: Names of the models, in their order in the chart.
        pictures: PNG files in base64 by the id of the item, for items with a picture.
    """

    models: list[str]
    strips: list[Strip]
    pictures: dict[str, str] = Field(default_factory=dict)

    @property
    def ids(self) -> list[str]:
        """Ids of all queries and hits, each once."""
        found = (
            name for strip in self.strips for name in (strip.query, *(h.id for one in strip.hits.values() for h in one))
        )
        return list(dict.fromkeys(found))

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return columns and rows of a table, with one row per hit."""
        words = {True: "right", False: "wrong", None: ""}
        rows = [
            [strip.query, strip.label, model, str(place), hit.id, hit.label, words[hit.right]]
            for strip in self.strips
            for model, hits in strip.hits.items()
            for place, hit in enumerate(hits, start=1)
        ]
        return ["query", "class", "model", "place", "item", "class of the item", "right"], rows


def choose_strips(models: Mapping[str, Searched], *, queries: int = 4, hits: int = 4, seed: int = 0) -> Strips:
    """Choose random queries, and return the hits of every model.

    Queries for which the models differ in the number of right hits are preferred. An item with the id of the query is
    never a hit.

    Args:
        models: Queries and gallery of every model, by the name of the model; all models have the same queries.
        queries: Number of queries.
        hits: Number of hits per query and model.
        seed: Random seed.

    Raises:
        ConfigError: There is no model, or the number of queries or hits is less than 1.
        DataError: Models have different queries, or a gallery is empty.
    """
    queries, hits = count_of("queries", queries), count_of("hits", hits)
    refuse(not models, "Strips of no model.", "at least one model")
    first = next(iter(models.values())).query
    for name, searched in models.items():
        if searched.query.ids != first.ids:
            raise DataError(f"'{name}' has other queries than the first model.", expected="the same, in one order")
    found = {name: _found(searched, hits) for name, searched in models.items()}
    right = np.stack([(one.right * (one.rows >= 0)).sum(axis=1) for one in found.values()])
    differ = (right != right[0]).any(axis=0)
    order = np.random.default_rng(seed).permutation(len(first))
    rows = np.sort(order[np.argsort(~differ[order], kind="stable")][:queries])
    labels = class_names_of(first)
    strips = [
        Strip(query=first.ids[row], label=labels[row], hits={name: one.of(row) for name, one in found.items()})
        for row in rows.tolist()
    ]
    return Strips(models=list(models), strips=strips)


class _Found(NamedTuple):
    """Hits of one model: rows of its whole gallery (-1 for none) and whether they are right (Q, k), and the gallery."""

    rows: NDArray[np.int64]
    right: NDArray[np.bool_]
    gallery: Sequence[EmbeddingSet]
    judged: bool

    def of(self, query: int) -> list[Hit]:
        starts = np.cumsum([0, *map(len, self.gallery)])
        hits = []
        for row, right in zip(self.rows[query].tolist(), self.right[query].tolist(), strict=True):
            if row >= 0:
                number = int(np.searchsorted(starts, row, side="right")) - 1
                item = self.gallery[number][[row - int(starts[number])]]
                hits.append(Hit(id=item.ids[0], label=class_names_of(item)[0], right=right if self.judged else None))
        return hits


def _found(searched: Searched, k: int) -> _Found:
    """Search all parts and keep the first k hits of each query; ties go to the earlier part."""
    query, start, columns = searched.query, 0, []
    judged = query.labels is not None and all(part.labels is not None for part in searched.gallery)
    for part in searched.gallery:
        near = top_k(query, part, k, exclude_same_id=True)
        own = labels_as_in(query, part)[near.rows] == query.labels[:, None] if judged else near.rows < -1  # type: ignore[index]
        columns.append((near.scores, np.where(near.rows >= 0, near.rows + start, -1), own))
        start += len(part)
    if not columns:
        raise DataError("A gallery has no part.", expected="what at least one model embedded")
    scores, rows, right = (np.concatenate(parts, axis=1) for parts in zip(*columns, strict=True))
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    rows, right = (np.take_along_axis(values, best, axis=1) for values in (rows, right))
    return _Found(rows, right, searched.gallery, judged)
