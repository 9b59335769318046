"""Ranking metrics and nearest neighbours of queries in a gallery."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import ConfigError, EmptyOverlapError, count_of
from limpet.evaluation.metrics import metrics_named
from limpet.evaluation.ranking.engine import Ranked, nearest_rows, no_rows, rank, rank_blocks
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.ranking.vector_rows import EmbeddingRows
from limpet.evaluation.sides import check_sides, relevant_by_label, same_id

NoRelevant = Literal["exclude", "zero"]
RelevantRows = Sequence[Sequence[int] | NDArray[Any]]  # one list of gallery rows per query


def rank_metrics(
    query: EmbeddingSet,
    gallery: EmbeddingSet,
    metrics: Sequence[str] = ("recall@1", "recall@5", "map", "map@r"),
    *,
    relevant: RelevantRows | RowLists | None = None,
    ignore: RelevantRows | RowLists | None = None,
    exclude_same_id: bool = False,
    no_relevant: NoRelevant = "exclude",
    block: int | None = None,
    device: str | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Measure every query against the gallery: one value per query and metric.

    The gallery is ordered by descending similarity (float32 inner products in index form). Where items tie, every
    metric is the mean over all orders of them, so the order of the gallery does not matter. The search is exact. Memory
    stays bounded for any sizes, and the gallery is read block by block. Metrics: "map", "map@r", "ndcg", "mrr", and
    "recall@k", "cmc@k", "map@k", "ndcg@k", "mrr@k" with a number for k; see `metrics`.

    Args:
        query: Embeddings to search with.
        gallery: Embeddings to search in, of the same space.
        metrics: Names of metrics.
        relevant: Gallery rows that are relevant to each query; by default the rows of the query's class.
        ignore: Gallery rows to leave out of the ranking of each query.
        exclude_same_id: Also leave out the gallery item with the id of the query (leave-one-out).
        no_relevant: Score of a query without any relevant item: "exclude" gives NaN, "zero" gives 0.
        block: Queries per block; by default a number that bounds memory, at most 512.
        device: Device to compute on, such as "cuda"; None for the CPU, without torch.

    Returns:
        For every metric an array (queries,), in the order of the queries.

    Raises:
        ConfigError: An unknown metric or option, or an unavailable device.
        DataError: A side is empty or has no labels, or a list names rows that do not exist.
        SpaceMismatchError: The sides are in different spaces.
        EmptyOverlapError: No query has any relevant item.

    >>> items = EmbeddingSet(np.array([[1, 0], [0, 1], [3, 4]], np.float32), model="example", labels=[0, 1, 0])
    >>> rank_metrics(items, items, ("map", "recall@1"), exclude_same_id=True)
    {'map': array([1. , nan, 0.5]), 'recall@1': array([ 1., nan,  0.])}
    """
    functions = metrics_named(metrics)
    check_no_relevant(no_relevant)
    check_sides(query, gallery)
    lists = asked_lists(query, gallery, relevant, ignore, exclude_same_id)
    sides = EmbeddingRows(query, "query"), EmbeddingRows(gallery, "gallery")
    blocks = _ranked(*sides, *lists, block=block, device=device)
    parts = [{name: metric(ranked) for name, metric in functions.items()} for ranked in blocks]
    values = {name: np.concatenate([part[name] for part in parts]) for name in functions}
    check_any_relevant(next(iter(values.values())))
    return {name: np.nan_to_num(value) for name, value in values.items()} if no_relevant == "zero" else values


def _ranked(
    query: EmbeddingRows, gallery: EmbeddingRows, relevant: RowLists, ignore: RowLists, **how: Any
) -> Iterator[Ranked]:
    """Rank as `rank_blocks` does; items of several gains are ranked gain by gain, and put together."""
    levels = [*relevant.levels()]
    if len(levels) == 1:
        yield from rank_blocks(query, gallery, relevant, ignore, **how)
    else:
        yield Ranked.graded([(gain, rank(query, gallery, lists, ignore, **how)) for gain, lists in levels])


def asked_lists(
    query: EmbeddingSet,
    gallery: EmbeddingSet,
    relevant: RelevantRows | RowLists | None,
    ignore: RelevantRows | RowLists | None,
    exclude_same_id: bool,
) -> tuple[RowLists, RowLists]:
    """List the relevant gallery rows of every query, by label unless they are given, and the ignored ones."""
    wanted = relevant_by_label(query, gallery) if relevant is None else _lists("relevant", relevant, query, gallery)
    return wanted, ignored_rows(query, gallery, ignore, exclude_same_id)


def ignored_rows(
    query: EmbeddingSet, gallery: EmbeddingSet, ignore: RelevantRows | RowLists | None, exclude_same_id: bool
) -> RowLists:
    """List the ignored gallery rows of every query."""
    same = same_id(query, gallery) if exclude_same_id else no_rows(len(query))
    return same if ignore is None else _lists("ignore", ignore, query, gallery).union(same)


def _lists(what: str, rows: RelevantRows | RowLists, query: EmbeddingSet, gallery: EmbeddingSet) -> RowLists:
    lists = rows if isinstance(rows, RowLists) else RowLists.of(rows)
    lists.check(what, len(query), len(gallery))
    return lists


def check_no_relevant(no_relevant: str) -> None:
    """Raise an error for an unknown rule for queries without relevant items."""
    if no_relevant not in get_args(NoRelevant):
        raise ConfigError(f"no_relevant='{no_relevant}'.", expected=" or ".join(get_args(NoRelevant)))


def check_any_relevant(values: NDArray[np.float64]) -> None:
    """Raise an error if no query has a value."""
    if np.isnan(values).all():
        raise EmptyOverlapError(
            f"None of the {len(values)} queries has a relevant item in the gallery.",
            expected="classes that queries and gallery share, beside the query itself where that is left out, or a "
            "ground truth that names items to be found",
            to_do="compare the class names or numbers of the two sets, or the ids of the ground truth with theirs.",
        )


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Nearest neighbours of every query.

    Args:
        rows: Gallery rows by descending similarity, ties by row, int64 (Q, k); -1 after the end of the gallery.
        scores: Their inner products in index form, float32 (Q, k); minus infinity if the row is -1.
        gallery_ids: The ids of the gallery that was searched.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    gallery_ids: StringArray

    def ids(self, query: int) -> list[str]:
        """Return the ids of the hits of one query, best first."""
        rows = self.rows[query]
        return list(self.gallery_ids[rows[rows >= 0]])


def top_k(
    query: EmbeddingSet,
    gallery: EmbeddingSet,
    k: int,
    *,
    ignore: RelevantRows | RowLists | None = None,
    exclude_same_id: bool = False,
    block: int | None = None,
) -> Neighbours:
    """Return the first k gallery items of every query (all of a smaller gallery), best first, ties by gallery row.

    Args:
        query: Embeddings to search with.
        gallery: Embeddings to search in, of the same space.
        k: Number of items, at least 1.
        ignore: Gallery rows to leave out for each query.
        exclude_same_id: Also leave out the gallery item with the id of the query.
        block: Number of queries per block.

    Raises:
        ConfigError: k is not a whole number of at least 1.
        DataError: A side is empty.
        SpaceMismatchError: The sides are of different spaces.
    """
    k = count_of("k", k)
    check_sides(query, gallery)
    left_out = ignored_rows(query, gallery, ignore, exclude_same_id)
    sides = EmbeddingRows(query, "query"), EmbeddingRows(gallery, "gallery")
    rows, scores = nearest_rows(*sides, k, left_out, block=block)
    return Neighbours(rows, scores, gallery.ids)
