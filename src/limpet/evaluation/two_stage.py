"""Evaluation of two-stage search: one model finds candidates, another one re-scores them.

The first N items of each query are sorted by the second model's scores; the rest follows in the order of the first
stage. Metrics take the mean over all orders of items that tie in a stage. Where items tie at the cut, their ids decide
which of them are candidates, never the order of the gallery.

Retrieval calls this re-ranking (Nogueira and Cho, arXiv:1901.04085, with a network that reads query and item together).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from limpet.evaluation.metrics import metrics_named
from limpet.evaluation.ranking.engine import Ranked, nearest_rows, rank
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.ranking.tiles import MOST_QUERIES, Search
from limpet.evaluation.ranking.vector_rows import EmbeddingRows
from limpet.evaluation.retrieval import (
    NoRelevant,
    RelevantRows,
    asked_lists,
    check_any_relevant,
    check_no_relevant,
    ignored_rows,
)
from limpet.evaluation.sides import Sides, check_sides, in_order_of
from limpet.support.ranges import Count, checked

RowTable = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rescored:
    """The candidates of Q queries, in the order of each stage.

    Args:
        found: Gallery rows by the first stage, int64 (Q, n), best first; -1 after the last item.
        rows: The same rows in the order of the second stage.
        scores: Their scores there, float32 (Q, n); minus infinity if the row is -1.
        size: Number of items.
    """

    found: RowTable
    rows: RowTable
    scores: NDArray[np.float32]
    size: int

    @cached_property
    def new_encodings(self) -> NDArray[np.int64]:
        """Number of candidates of every query that are new (Q,): items to encode if vectors are kept.

        >>> scores = np.ones((2, 2), np.float32)
        >>> Rescored(np.array([[4, 1], [1, 2]]), np.array([[1, 4], [1, 2]]), scores, 5).new_encodings.tolist()
        [2, 1]
        """
        rows = self.found.ravel()
        first = np.unique(rows, return_index=True)[1]
        first = first[rows[first] >= 0]
        return np.bincount(first // max(1, self.found.shape[1]), minlength=len(self.found))

    @property
    def encoded(self) -> float:
        """Share of the items that the second model has encoded after all queries, within [0, 1]."""
        return float(self.new_encodings.sum() / self.size)


@checked
def rescored(
    first: Sides,
    second: Sides,
    candidates: Count,
    *,
    ignore: RelevantRows | RowLists | None = None,
    exclude_same_id: bool = False,
) -> Rescored:
    """Find the candidates of every query with one model, and re-rank them with another.

    Memory grows with queries times candidates.

    Args:
        first: Queries and gallery that find the candidates.
        second: The same queries and items by the model that re-scores them.
        candidates: Number of candidates per query, at least 0; all items if there are fewer.
        ignore: Gallery rows to ignore in the ranking of each query.
        exclude_same_id: Also ignore the item with the id of the query.

    Raises:
        ConfigError: The number of candidates is negative.
        DataError: A side is empty.
        EmptyOverlapError: The two stages hold different items.
        SpaceMismatchError: A query set is of another space than its gallery.
    """
    first, second = _checked(first, second, candidates)
    left_out = ignored_rows(*first, ignore, exclude_same_id)
    if candidates == 0:
        nothing = np.empty((len(first[0]), 0), np.int64)
        return Rescored(nothing, nothing, np.empty(nothing.shape, np.float32), len(first[1]))
    found = _candidates(first, candidates, left_out)
    return Rescored(found, *_by_second(second, found), len(first[1]))


@checked
def rescored_metrics(
    first: Sides,
    second: Sides,
    candidates: Count,
    metrics: Sequence[str] = ("recall@1", "recall@5", "map", "map@r"),
    *,
    relevant: RelevantRows | RowLists | None = None,
    ignore: RelevantRows | RowLists | None = None,
    exclude_same_id: bool = False,
    no_relevant: NoRelevant = "exclude",
) -> dict[str, NDArray[np.float64]]:
    """Evaluate two-stage search: one value per query and metric. Arguments are those of `rescored` and `rank_metrics`.

    Raises:
        ConfigError: A metric or option is unknown, or the number of candidates is negative.
        DataError: A side is empty or has no labels, or a list names rows that do not exist.
        EmptyOverlapError: The two stages hold different items, or no query has any relevant item.
        SpaceMismatchError: A query set is of another space than its gallery.
    """
    functions = metrics_named(metrics)
    check_no_relevant(no_relevant)
    first, second = _checked(first, second, candidates)
    lists, left_out = asked_lists(*first, relevant, ignore, exclude_same_id)
    second_stage = rescored(first, second, candidates, ignore=ignore, exclude_same_id=exclude_same_id)
    ranked = Ranked.graded([
        (gain, _ranks(rank(*_rows(first), level, left_out), second_stage, level)) for gain, level in lists.levels()
    ])  # fmt: skip
    values = {name: metric(ranked) for name, metric in functions.items()}
    check_any_relevant(next(iter(values.values())))
    return {name: np.nan_to_num(value) for name, value in values.items()} if no_relevant == "zero" else values


def _checked(first: Sides, second: Sides, candidates: int) -> tuple[Sides, Sides]:
    """Refuse what cannot be two stages of one search; return them in the order of the first one."""
    check_sides(*first)
    check_sides(*second)
    query, gallery = (
        in_order_of(one, other, (f"first stage's {what}", f"second stage's {what}"))
        for one, other, what in zip(first, second, ("queries", "gallery"), strict=True)
    )
    return first, (query, gallery)


def _rows(sides: Sides) -> tuple[EmbeddingRows, EmbeddingRows]:
    return EmbeddingRows(sides[0], "query"), EmbeddingRows(sides[1], "gallery")


def _candidates(first: Sides, count: int, left_out: RowLists) -> RowTable:
    """Return the first rows of every query (Q, n); of items that tie at the cut, those that come first by their ids."""
    rows, scores = nearest_rows(*_rows(first), count + 1, left_out)
    cut = scores[:, -2:]
    if rows.shape[1] > count and ((cut[:, 0] == cut[:, 1]) & (cut[:, 1] > -np.inf)).any():
        query, gallery = first
        digests = np.array([int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) for name in gallery.ids])
        by_id = np.argsort(digests, kind="stable")
        place = np.empty(len(by_id), np.int64)
        place[by_id] = np.arange(len(by_id))
        stops = left_out.counts.cumsum()
        hidden = RowLists(place[left_out.flat()[1]], stops - left_out.counts, stops)
        rows, scores = nearest_rows(*_rows((query, gallery[by_id])), count, hidden)
        rows = np.where(rows < 0, -1, by_id[rows])
        rows = np.take_along_axis(rows, np.lexsort((rows, -scores), axis=1), axis=1)
    return rows[:, :count]


def _by_second(second: Sides, found: RowTable) -> tuple[RowTable, NDArray[np.float32]]:
    """Order every query's rows by descending score, ties by row, -1 last; return rows and scores (Q, n)."""
    search, ordered = Search.of(*_rows(second)), np.empty_like(found)
    values = np.full(found.shape, -np.inf, np.float32)
    for start in range(0, len(found), MOST_QUERIES):
        part = slice(start, start + MOST_QUERIES)
        rows, scores = found[part], values[part]
        block = search.queries_at((start, start + len(rows)))
        owner, place = np.nonzero(rows >= 0)
        scores[owner, place] = search.scores(block, owner, rows[owner, place])
        order = np.lexsort((rows, -scores), axis=1)
        ordered[part], values[part] = (np.take_along_axis(column, order, axis=1) for column in (rows, scores))
    return ordered, values


def _ranks(first: Ranked, second: Rescored, relevant: RowLists) -> Ranked:
    """Return the ranks after both stages: among candidates by the second, beyond them as the first stage has them."""
    rows, (queries, width) = second.rows, second.rows.shape
    wanted_of, wanted = relevant.flat()
    names = np.where(rows < 0, -1, np.arange(queries)[:, None] * second.size + rows)
    among_of, place = np.nonzero(np.isin(names, wanted_of * second.size + wanted))
    new_score = np.diff(second.scores, prepend=np.inf, axis=1) != 0
    starts = np.flatnonzero(new_score)
    group = np.cumsum(new_score.ravel())[among_of * width + place] - 1
    above, tied = starts[group] - among_of * width, np.diff(starts, append=new_score.size)[group]
    found, owner = np.bincount(among_of, minlength=queries), first.owner
    beyond = np.arange(len(owner)) - first.offsets[owner] >= found[owner]  # tied items are interchangeable
    last = first.ranks[beyond] + first.tied[beyond]
    begins = np.maximum(first.ranks[beyond], (rows >= 0).sum(axis=1)[owner[beyond]])
    owner = np.append(among_of, owner[beyond])
    ranks, tied = np.append(above, begins), np.append(tied, last - begins)
    order = np.lexsort((ranks, owner))
    offsets = np.append(0, np.cumsum(np.bincount(owner, minlength=queries)))
    return Ranked(ranks[order], offsets, first.gallery_sizes, tied=tied[order])
