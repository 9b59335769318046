"""The queries of a drill, what is right for each, and what their answers are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings import EmbeddingSet, StringArray
from holdfast.errors import DataError, EmptyOverlapError
from holdfast.evaluation.intervals import clusters_of
from holdfast.evaluation.metrics import metrics_named
from holdfast.evaluation.ranking.engine import Ranked
from holdfast.galleries.drill_result import RIGHT
from holdfast.galleries.items import draw
from holdfast.galleries.router import Hit
from holdfast.stores.base import Metadata

Rows = NDArray[np.int64]
Values = NDArray[np.float64]

DEPTH = 10  # of what is compared without labels


@dataclass(frozen=True)
class Questions:
    """Queries embedded by both models.

    Args:
        old: By the old model (Q).
        new: The same ones by the new model, in the same order.
        relevant: Places among the items of the copy of those that answer each query (Q); None where nobody knows.
        own: Place of each query among the items (Q), which it is not to find; None where queries are no items.
        metadata: What is known of each query (Q).
    """

    old: EmbeddingSet
    new: EmbeddingSet
    relevant: list[Rows] | None
    own: Rows | None
    metadata: list[Metadata]

    def __len__(self) -> int:
        return len(self.old)

    @cached_property
    def classes(self) -> NDArray[np.int64] | None:
        """Number of every query's class (Q,): queries of one class have the same right items, themselves included.

        None where no two queries share a class.
        """
        answers = [
            frozenset(rows.tolist()).union([] if self.own is None else [int(self.own[query])])
            for query, rows in enumerate(self.relevant or [])
        ]
        numbers = {answer: number for number, answer in enumerate(dict.fromkeys(answers))}
        return clusters_of(np.array([numbers[answer] for answer in answers], np.int64), "auto", "queries", "drill")

    @property
    def judged(self) -> int:
        """For how many queries an item of the copy is right."""
        return sum(bool(len(rows)) for rows in self.relevant or [])


def given_questions(
    queries: tuple[EmbeddingSet, EmbeddingSet], relevant: Mapping[str, Sequence[str]] | None, most: int, seed: int
) -> tuple[EmbeddingSet, EmbeddingSet, list[list[str]] | None]:
    """Choose at most so many of the queries that both models embedded.

    Args:
        queries: By the old and by the new model.
        relevant: Ids of the items that answer each query, by its id.
        most: How many; those of which it is known what is right first.
        seed: Of the choice.

    Returns:
        Both sets in one order, and the relevant ids of each query if they were given.

    Raises:
        EmptyOverlapError: No query is in both sets.
    """
    old, new = queries
    shared = [identifier for identifier, row in zip(old.ids, new.ids.find(list(old.ids)), strict=True) if row >= 0]
    if not shared:
        raise EmptyOverlapError(
            "No query is in both sets.",
            expected="the same queries, embedded by the old and by the new model, under the same ids",
        )
    answered = relevant or {}
    chosen = sorted(sorted(shared, key=lambda one: (not answered.get(one), draw(seed, one)))[:most])
    known = None if relevant is None else [list(answered.get(one, ())) for one in chosen]
    return old.select(old.ids.find(chosen)), new.select(new.ids.find(chosen)), known


def labels_of(queries: EmbeddingSet) -> list[str] | None:
    """Return the class of every query as the metadata of items has it, in words; None where there are none."""
    if queries.labels is None:
        return None
    names = queries.class_names
    return [str(label) if names is None else names[label] for label in queries.labels.tolist()]


def relevant_by_class(
    classes: Sequence[str | None], items: Sequence[str | None], own: Rows | None
) -> list[Rows] | None:
    """Return the places of the items of every query's class; None where no query has any.

    Args:
        classes: Of the queries; None without one.
        items: Classes of the items.
        own: Place of every query among the items, which is not its own answer; None where queries are no items.
    """
    members: dict[str, list[int]] = {}
    for row, name in enumerate(items):
        if name is not None:
            members.setdefault(name, []).append(row)
    found = [np.array(members.get(name, ()) if name is not None else (), np.int64) for name in classes]
    if own is not None:
        found = [rows[rows != me] for rows, me in zip(found, own.tolist(), strict=True)]
    return found if any(map(len, found)) else None


@dataclass(frozen=True, eq=False)
class Answers:
    """What every query found, best first, itself left out.

    Args:
        rows: Places of the items, all that were found, per query.
        scores: As long as the rows.
        first: The first hit of every query.
    """

    rows: list[Rows]
    scores: list[Values]
    first: list[Hit]

    @classmethod
    def of_hits(cls, hits: Sequence[Sequence[Hit]], questions: Questions, items: StringArray) -> Answers:
        """Take the hits of a search for as many hits as there are items."""
        place = {identifier: row for row, identifier in enumerate(items)}
        kept = without_itself(hits, questions)
        rows = [np.array([place[hit.id] for hit in of_one], np.int64) for of_one in kept]
        scores = [np.array([hit.score for hit in of_one]) for of_one in kept]
        return cls(rows, scores, firsts(kept))

    @classmethod
    def of_scores(cls, scores: NDArray[np.float32], questions: Questions, first: list[Hit]) -> Answers:
        """Rank all items by scores (Q, N); of equal ones the earlier item first."""
        order = np.argsort(-scores, axis=1, kind="stable")
        rows: list[Rows] = list(order)
        if questions.own is not None:
            rows = [places[places != me] for places, me in zip(rows, questions.own.tolist(), strict=True)]
        ranked = [row[places].astype(np.float64) for row, places in zip(scores, rows, strict=True)]
        return cls(rows, ranked, first)

    def same(self, other: Answers) -> bool:
        """Say whether every query found the same items with the same scores."""
        mine, theirs = ([*found.rows, *found.scores] for found in (self, other))
        return all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))

    def right(self, questions: Questions) -> dict[str, Values]:
        """Return the metrics of `RIGHT` per query (Q,), NaN where nothing is right; none where nobody knows.

        Right items that were not found count as if they came last.
        """
        if questions.relevant is None:
            return {}
        ranks, sizes = [], []
        for rows, wanted in zip(self.rows, questions.relevant, strict=True):
            found = np.flatnonzero(np.isin(rows, wanted))
            size = len(rows) + len(wanted) - len(found)
            ranks.append(np.concatenate([found, np.arange(len(rows), size)]))
            sizes.append(size)
        ranked = Ranked.of(ranks, sizes)
        return {name: metric(ranked) for name, metric in metrics_named(RIGHT).items()}

    def overlap(self, other: Answers) -> Values:
        """Return the share of the other's first ten items that are among the first ten here, per query (Q,)."""
        pairs = zip(self.rows, other.rows, strict=True)
        return np.array([np.isin(b[:DEPTH], a[:DEPTH]).mean() if len(b) else 1.0 for a, b in pairs])

    def first_right(self, questions: Questions) -> NDArray[np.bool_] | None:
        """Return whether the first item of every query is right (Q,); None where nobody knows."""
        if questions.relevant is None:
            return None
        pairs = zip(self.rows, questions.relevant, strict=True)
        return np.array([bool(np.isin(rows[:1], wanted).any()) for rows, wanted in pairs])


def without_itself(hits: Sequence[Sequence[Hit]], questions: Questions) -> list[list[Hit]]:
    """Leave every query out of its own hits, where queries are items."""
    if questions.own is None:
        return [list(of_one) for of_one in hits]
    return [[hit for hit in of_one if hit.id != me] for of_one, me in zip(hits, questions.old.ids, strict=True)]


def firsts(hits: Sequence[Sequence[Hit]]) -> list[Hit]:
    """Return the first hit of every query.

    Raises:
        DataError: A query found nothing.
    """
    if not all(hits):
        raise DataError("A query found nothing at all.", expected="at least two items in the copy")
    return [of_one[0] for of_one in hits]
