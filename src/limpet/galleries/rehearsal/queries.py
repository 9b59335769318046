"""The queries of a rehearsal, their relevant items, and the metrics of their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.engines.filters import Metadata
from limpet.errors import DataError, EmptyOverlapError
from limpet.evaluation.intervals import clusters_of
from limpet.evaluation.metrics import metrics_named
from limpet.evaluation.ranking.engine import Ranked
from limpet.evaluation.thresholds import Thresholds
from limpet.galleries.items import draw
from limpet.galleries.rehearsal.results import RIGHT
from limpet.galleries.rehearsal.sample import EmbeddedSample, RehearsalSample
from limpet.galleries.router import Hit
from limpet.galleries.served import class_names_of

_Rows = NDArray[np.int64]
Values = NDArray[np.float64]

DEPTH = 10  # hits to compare without labels


@dataclass(frozen=True)
class GivenQueries:
    """Queries that both models embedded, chosen from the given ones.

    Args:
        new: The same queries by the new model, in the same order.
        relevant: Ids of the relevant items of each query; None if they were not given.
    """

    old: EmbeddingSet
    new: EmbeddingSet
    relevant: list[list[str]] | None

    @classmethod
    def of(
        cls, old: EmbeddingSet, new: EmbeddingSet, relevant: Mapping[str, Sequence[str]] | None, most: int, seed: int
    ) -> GivenQueries:
        """Choose at most `most` of the queries that are in both sets.

        Args:
            old: Queries by the old model.
            new: Queries by the new model.
            relevant: Ids of the relevant items of each query, by its id.
            most: Maximum number of queries; queries whose relevant items are known come first.
            seed: Random seed of the choice.

        Raises:
            EmptyOverlapError: No query is in both sets.
        """
        shared = [identifier for identifier, row in zip(old.ids, new.ids.find(list(old.ids)), strict=True) if row >= 0]
        if not shared:
            raise EmptyOverlapError(
                "No query is in both sets.",
                expected="the same queries, embedded by the old and by the new model, under the same ids",
            )
        answered = relevant or {}
        chosen = sorted(sorted(shared, key=lambda one: (not answered.get(one), draw(seed, one)))[:most])
        known = None if relevant is None else [list(answered.get(one, ())) for one in chosen]
        return cls(old[old.ids.find(chosen)], new[new.ids.find(chosen)], known)

    @property
    def answers(self) -> list[str]:
        """Ids of the items that are relevant to any of the queries."""
        return [identifier for ids in self.relevant or [] for identifier in ids]


@dataclass(frozen=True)
class Queries:
    """Queries embedded by both models.

    Args:
        old: Queries by the old model (Q).
        new: The same queries by the new model, in the same order.
        relevant: Positions of the relevant items of each query among the items of the copy (Q); None if unknown.
        own: Position of each query among the items (Q), which it must not find; None if the queries are not items.
        metadata: Metadata of each query (Q).
    """

    old: EmbeddingSet
    new: EmbeddingSet
    relevant: list[_Rows] | None
    own: _Rows | None
    metadata: list[Metadata]

    @classmethod
    def given(cls, given: GivenQueries, items: RehearsalSample, class_column: str) -> Queries:
        """Return given queries: the items listed for each are relevant, or else those of its class."""
        relevant = None
        if given.relevant is not None:
            places = [items.old.ids.find(ids) if ids else np.empty(0, np.int64) for ids in given.relevant]
            rows = [np.unique(one[one >= 0]) for one in places]
            relevant = rows if any(map(len, rows)) else None
        else:
            labelled = next((one for one in (given.old, given.new) if one.labels is not None), None)
            if labelled is not None:
                relevant = relevant_by_class(class_names_of(labelled), items.classes(class_column), None)
        return cls(given.old, given.new, relevant, None, [{} for _ in given.old.ids])

    @classmethod
    def of_items(cls, items: RehearsalSample, made: EmbeddedSample, class_column: str, most: int, seed: int) -> Queries:
        """Use sampled items as queries that search for the other items of their class."""
        ids = sorted(sorted(made.all.ids, key=lambda one: draw(seed + 1, one))[:most])
        own = items.old.ids.find(ids)
        classes = items.classes(class_column)
        relevant = relevant_by_class([classes[row] for row in own], classes, own)
        return cls(items.old[own], made.embed(ids), relevant, own, [items.metadata[row] for row in own])

    def __len__(self) -> int:
        return len(self.old)

    @cached_property
    def classes(self) -> NDArray[np.int64] | None:
        """Class number of every query (Q,); queries of one class have the same relevant items, themselves included.

        None if no two queries share a class.
        """
        answers = [
            frozenset(rows.tolist()).union([] if self.own is None else [int(self.own[query])])
            for query, rows in enumerate(self.relevant or [])
        ]
        numbers = {answer: number for number, answer in enumerate(dict.fromkeys(answers))}
        return clusters_of(np.array([numbers[answer] for answer in answers], np.int64), "auto", "queries", "rehearsal")

    @property
    def judged(self) -> int:
        """Number of queries with a relevant item in the copy."""
        return sum(bool(len(rows)) for rows in self.relevant or [])

    def without_own(self, hits: Sequence[Sequence[Hit]]) -> list[list[Hit]]:
        """Remove every query from its own hits, if queries are items.

        Raises:
            DataError: A query has no other hit.
        """
        names = [None] * len(hits) if self.own is None else list(self.old.ids)
        kept = [[hit for hit in of_one if hit.id != name] for of_one, name in zip(hits, names, strict=True)]
        if not all(kept):
            raise DataError("A query found nothing at all.", expected="at least two items in the copy")
        return kept


def relevant_by_class(
    classes: Sequence[str | None], items: Sequence[str | None], own: _Rows | None
) -> list[_Rows] | None:
    """Return the positions of the items of every query's class; None if no query has any.

    Args:
        classes: Classes of the queries; None without one.
        items: Classes of the items.
        own: Position of every query among the items, which is not its own answer; None if queries are no items.
    """
    members: dict[str, list[int]] = {}
    for row, name in enumerate(items):
        if name is not None:
            members.setdefault(name, []).append(row)
    relevant = [np.array(members.get(name, ()) if name is not None else (), np.int64) for name in classes]
    if own is not None:
        relevant = [rows[rows != me] for rows, me in zip(relevant, own.tolist(), strict=True)]
    return relevant if any(map(len, relevant)) else None


@dataclass(frozen=True, eq=False)
class Answers:
    """Hits of every query, best first, without the query itself.

    Args:
        rows: Positions of all retrieved items, per query.
        scores: Scores of the rows, of the same length.
        first: The first hit of every query.
    """

    rows: list[_Rows]
    scores: list[Values]
    first: list[Hit]

    @classmethod
    def of_hits(cls, hits: Sequence[Sequence[Hit]], queries: Queries, items: StringArray) -> Answers:
        """Take the hits of a search that returns all items."""
        place = {identifier: row for row, identifier in enumerate(items)}
        kept = queries.without_own(hits)
        rows = [np.array([place[hit.id] for hit in of_one], np.int64) for of_one in kept]
        scores = [np.array([hit.score for hit in of_one]) for of_one in kept]
        return cls(rows, scores, [of_one[0] for of_one in kept])

    @classmethod
    def of_scores(cls, scores: NDArray[np.float32], hits: Sequence[Sequence[Hit]], queries: Queries) -> Answers:
        """Rank all items by scores (Q, N), ties by position; the first hits are those of a search."""
        rows: list[_Rows] = list(np.argsort(-scores, axis=1, kind="stable"))
        if queries.own is not None:
            rows = [places[places != me] for places, me in zip(rows, queries.own.tolist(), strict=True)]
        ranked = [row[places].astype(np.float64) for row, places in zip(scores, rows, strict=True)]
        return cls(rows, ranked, [of_one[0] for of_one in queries.without_own(hits)])

    def same(self, other: Answers) -> bool:
        """Say whether every query has the same items with the same scores."""
        mine, theirs = [*self.rows, *self.scores], [*other.rows, *other.scores]
        return all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))

    def right(self, queries: Queries) -> dict[str, Values]:
        """Return the metrics of `RIGHT` per query (Q,), NaN for a query without relevant items; none if unknown.

        Each is a mean over all orders of tied items, which are adjacent hits with the same score; see `metrics`.
        Relevant items that were not found count as if they ranked last.
        """
        if queries.relevant is None:
            return {}
        ranks, tied, sizes = [], [], []
        for rows, scores, wanted in zip(self.rows, self.scores, queries.relevant, strict=True):
            right = np.flatnonzero(np.isin(rows, wanted))
            starts = np.append(0, 1 + np.flatnonzero(scores[1:] != scores[:-1]))
            counts = np.diff(np.append(starts, len(rows)))
            groups = np.searchsorted(starts, right, "right") - 1
            size = len(rows) + len(wanted) - len(right)
            ranks.append(np.concatenate([starts[groups], np.arange(len(rows), size)]))
            tied.append(np.concatenate([counts[groups], np.ones(size - len(rows), np.int64)]))
            sizes.append(size)
        ranked = Ranked.of(ranks, sizes, tied)
        return {name: metric(ranked) for name, metric in metrics_named(RIGHT).items()}

    def thresholds(self, before: Answers, queries: Queries, seed: int) -> Thresholds | None:
        """Return the thresholds here that correspond to those of other answers; None if they cannot be determined."""
        if len({len(scores) for side in (before, self) for scores in side.scores}) > 1:
            return None  # items without a vector
        relevant = None if queries.relevant is None else (before._relevant(queries), self._relevant(queries))
        with suppress(DataError):
            return Thresholds.of(np.stack(before.scores), np.stack(self.scores), relevant, seed=seed)
        return None

    def _relevant(self, queries: Queries) -> NDArray[np.bool_]:
        """Return whether each retrieved item is relevant (Q, N)."""
        return np.stack([np.isin(rows, right) for rows, right in zip(self.rows, queries.relevant or [], strict=True)])

    def overlap(self, other: Answers) -> Values:
        """Return the share of the other's first ten items that are among the first ten here, per query (Q,)."""
        shares = []
        for mine, others in zip(self.rows, other.rows, strict=True):
            first, wanted = set(mine[:DEPTH].tolist()), others[:DEPTH].tolist()
            shares.append(sum(row in first for row in wanted) / len(wanted) if wanted else 1.0)
        return np.array(shares)
