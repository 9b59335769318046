"""What a gallery of two generations is worth that only an adapter links, by three ways of merging their results.

While a gallery is backfilled its old rows are searched through the adapter and its new rows in the new model's own
space. `merging` makes one list of two results; here every query's list is measured against the whole gallery.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limpet.adapters.score_map import ScoreMap
from limpet.errors import refuse
from limpet.evaluation.metrics import metrics_named
from limpet.evaluation.ranking.engine import Ranked
from limpet.evaluation.ranking.merging import on_the_common_scale
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.ranking.scores import score_blocks
from limpet.evaluation.retrieval import check_any_relevant
from limpet.evaluation.sides import Sides, check_sides, in_order_of, relevant_by_label, vectors_for
from limpet.evaluation.upgrade import random_order

Rows = NDArray[np.int64]


class Part(NamedTuple):
    """What one generation finds for one query, best first."""

    scores: NDArray[np.float64]
    """Scores of its n items, never rising, (n,)."""
    places: Rows
    """0-based places of its R relevant items, ascending, (R,)."""


def mixed_gallery(
    cross: Sides, new: Sides, share: float, *, score_map: ScoreMap, metric: str = "map", seed: int
) -> dict[str, float]:
    """Measure a gallery of which a random share is re-embedded, under three ways of merging the results of its parts.

    Exact: every query ranks all items, as the functions of `merging` do, the re-embedded ones first where two are
    equal. None is left out, so that a query must not be an item of the gallery.

    Args:
        cross: Queries and gallery of the cross-test, such as mapped new queries and the old gallery.
        new: The same queries and gallery by the new model, with labels.
        share: Share of the gallery that the new model has embedded, within (0, 1); at 0 and 1 nothing is merged, and
            the values are those of `cross` and of `new`.
        score_map: From the scores of ``cross`` to those of ``new``, fitted on other queries. Scores are inner products
            in index form: on the hypersphere, cosines.
        metric: Name of a metric.
        seed: Seed of the order of re-embedding, see `random_order`.

    Returns:
        Mean of the metric over queries with a relevant item, for "reciprocal_rank" (`reciprocal_rank_merge`),
        "calibrated" (`calibrated_merge` with the score map) and "raw" (scores side by side as they are).

    Raises:
        ConfigError: An unknown metric, a share that leaves one generation no item, or a score map of the new scores.
        DataError: A side is empty or has no labels.
        EmptyOverlapError: The sides hold different items, or no query has a relevant item.
        SpaceMismatchError: A query set is of another space than its gallery.
    """
    measure = metrics_named((metric,))[metric]
    refuse(
        score_map.direction != "old_to_new",
        f"A score map of direction '{score_map.direction}'.",
        "'old_to_new': from the scores of the cross-test to those of the new model",
    )
    check_sides(*cross)
    check_sides(*new)
    query, gallery = (
        in_order_of(own, other, (f"new {what}", f"cross-test {what}"))
        for own, other, what in zip(new, cross, ("queries", "gallery"), strict=True)
    )
    new_rows, old_rows = _generations(len(gallery), share, seed)
    relevant = relevant_by_label(*new)
    parts = zip(_parts(new, new_rows, relevant), _parts((query, gallery), old_rows, relevant), strict=True)
    ranks = [_ranks(fresh, old, score_map) for fresh, old in parts]
    values = {name: measure(Ranked.of([one[name] for one in ranks], [len(gallery)] * len(query))) for name in ranks[0]}
    check_any_relevant(values["raw"])
    return {name: float(np.nanmean(value)) for name, value in values.items()}


def _generations(size: int, share: float, seed: int) -> tuple[Rows, Rows]:
    """Return the rows that are new and those that are old, each ascending."""
    refuse(not 0 <= share <= 1, f"share={share:g}", "a number between 0 and 1")
    count = round(share * size)
    refuse(
        not 0 < count < size,
        f"A share of {share:g} of {size} items, which is {count}.",
        "at least one item of either generation",
    )
    order = random_order(size, seed)
    return np.sort(order[:count]), np.sort(order[count:])


def _parts(sides: Sides, rows: Rows, relevant: RowLists) -> Iterator[Part]:
    """Yield what every query finds among some rows of a gallery, equal scores by row."""
    query, gallery = sides
    vectors = vectors_for(query, "query"), vectors_for(gallery, "gallery")[rows]
    for start, scores in score_blocks(*vectors):
        for number, row in enumerate(scores, start):
            order = np.argsort(-row, kind="stable")
            yield Part(row[order].astype(np.float64), np.flatnonzero(np.isin(rows[order], relevant[number])))


def _ranks(fresh: Part, old: Part, score_map: ScoreMap) -> dict[str, Rows]:
    """Return the ranks (R,) of the relevant items of one query in the list of every merge, ascending."""
    mapped = old._replace(scores=on_the_common_scale(old.scores, score_map))
    return {
        "reciprocal_rank": _ranks_in_turn(fresh, old),
        "calibrated": _ranks_by_score(fresh, mapped),
        "raw": _ranks_by_score(fresh, old),
    }


def _ranks_in_turn(first: Part, second: Part) -> Rows:
    """Return the ranks (R,) where the lists take turns until one of them is used up, ascending.

    >>> _ranks_in_turn(Part(np.zeros(1), np.array([0])), Part(np.zeros(3), np.array([0, 2]))).tolist()
    [0, 1, 3]
    """
    before_first = np.minimum(first.places, len(second.scores))
    before_second = np.minimum(second.places + 1, len(first.scores))
    return np.sort(np.append(first.places + before_first, second.places + before_second))


def _ranks_by_score(first: Part, second: Part) -> Rows:
    """Return the ranks (R,) by descending score, those of the first list first where two are equal, ascending.

    >>> _ranks_by_score(Part(np.array([0.5]), np.array([0])), Part(np.array([0.9, 0.5]), np.array([0, 1]))).tolist()
    [0, 1, 2]
    """
    before_first = np.searchsorted(-second.scores, -first.scores[first.places], "left")
    before_second = np.searchsorted(-first.scores, -second.scores[second.places], "right")
    return np.sort(np.append(first.places + before_first, second.places + before_second))
