"""Ranking metrics: pure functions from rankings to one value per query.

A query without any relevant item has no value: NaN. Means, intervals and the decision to count such a query as zero
come after. Definitions are those of the literature; precision at a relevant item of 0-based rank r, with i relevant
items up to and including it, is i / (r + 1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from limpet.errors import ConfigError, count_of, nearest
from limpet.evaluation.ranking.engine import Ranked
from limpet.registry import Registry

Metric = Callable[[Ranked], NDArray[np.float64]]


def average_precision(ranked: Ranked) -> NDArray[np.float64]:
    """Full, non-interpolated average precision: the mean over relevant items of the precision at their rank.

    Relevant items at ranks 0 and 2 have precisions 1/1 and 2/3, whose mean is 5/6:

    >>> average_precision(Ranked.of([[0, 2]], [4])).round(4).tolist()
    [0.8333]
    """
    return _sum_of_precisions(ranked, np.ones(len(ranked.ranks), np.bool_)) / _or_nan(ranked.relevant)


def average_precision_at_r(ranked: Ranked) -> NDArray[np.float64]:
    """Average precision of the first R places, divided by R, the number of relevant items (mAP@R).

    With R = 2 only ranks 0 and 1 count, so the item at rank 2 adds nothing: (1/1) / 2.

    >>> average_precision_at_r(Ranked.of([[0, 2]], [4])).tolist()
    [0.5]
    """
    limit = np.repeat(ranked.relevant, ranked.relevant)
    return _sum_of_precisions(ranked, ranked.ranks < limit) / _or_nan(ranked.relevant)


def average_precision_at(k: int) -> Metric:
    """Average precision of the first k places, divided by min(R, k) (mAP@k, the rule of Google Landmarks v2).

    Relevant items at ranks 0, 1 and 7; within k = 2 places both precisions are 1, and min(R, k) is 2:

    >>> average_precision_at(2)(Ranked.of([[0, 1, 7]], [9])).tolist()
    [1.0]
    """
    k = count_of("k", k)

    def metric(ranked: Ranked) -> NDArray[np.float64]:
        return _sum_of_precisions(ranked, ranked.ranks < k) / _or_nan(np.minimum(ranked.relevant, k))

    return metric


def average_precision_by_trapezoids(ranked: Ranked) -> NDArray[np.float64]:
    """Average precision as the area under the precision-recall curve (revisited Oxford and Paris).

    At the j-th relevant item (0-based), of rank r, the area grows by the mean of the precisions before and at it,
    j / r and (j + 1) / (r + 1), divided by R; before rank 0 the precision is 1. Ranks 0 and 2 of two relevant items:
    (1 + 1) / 2 and (1/2 + 2/3) / 2 = 7/12, whose mean is 19/24:

    >>> average_precision_by_trapezoids(Ranked.of([[0, 2]], [4])).round(4).tolist()
    [0.7917]

    Paper: Radenović et al., Revisiting Oxford and Paris, CVPR 2018.
    """
    owner, before = _found_before(ranked)
    left = np.where(ranked.ranks > 0, before / np.maximum(ranked.ranks, 1), 1)
    areas = (left + (before + 1) / (ranked.ranks + 1)) / 2
    sums: NDArray[np.float64] = np.bincount(owner, areas, len(ranked)).astype(np.float64)
    return sums / _or_nan(ranked.relevant)


def precision_at(k: int) -> Metric:
    """Precision of the first k' places, k' = min(k, place of the last relevant item) (mP@k, revisited Oxford).

    Relevant items at ranks 0 and 2: the last is at place 3, so 10 places count as 3, and 2/3 of them are relevant.

    >>> precision_at(10)(Ranked.of([[0, 2]], [40])).round(4).tolist()
    [0.6667]
    >>> precision_at(2)(Ranked.of([[0, 2]], [40])).tolist()
    [0.5]

    Paper: Radenović et al., Revisiting Oxford and Paris, CVPR 2018.
    """
    k = count_of("k", k)

    def metric(ranked: Ranked) -> NDArray[np.float64]:
        answered = ranked.relevant > 0
        places = np.full(len(ranked), np.nan)
        places[answered] = np.minimum(ranked.ranks[ranked.offsets[1:][answered] - 1] + 1, k)
        owner, _ = _found_before(ranked)
        found: NDArray[np.float64] = np.bincount(owner[ranked.ranks < k], minlength=len(ranked)) / places
        return found

    return metric


def recall_at(k: int) -> Metric:
    """Whether any relevant item is among the first k: 1 or 0 (recall@k; re-identification says CMC@k).

    >>> recall_at(1)(Ranked.of([[0, 2], [1]], [4, 4])).tolist()
    [1.0, 0.0]
    """
    k = count_of("k", k)

    def metric(ranked: Ranked) -> NDArray[np.float64]:
        answered = ranked.relevant > 0
        result = np.full(len(ranked), np.nan)
        result[answered] = ranked.ranks[ranked.offsets[:-1][answered]] < k
        return result

    return metric


def discounted_gain(k: int | None = None) -> Metric:
    """Normalised discounted cumulative gain of the first k places, or of all (nDCG, nDCG@k).

    A relevant item at 0-based rank r adds its gain divided by log2(r + 2); the sum is divided by that of the best
    order, so that 1 is the most. Gains are the grades of relevance as they are given, 1 each where there are none.

    A gain of 1 at rank 0 and one of 3 at rank 1: (1 + 3 / log2(3)) / (3 + 1 / log2(3)).

    >>> graded = Ranked.graded([(1.0, Ranked.of([[0]], [4])), (3.0, Ranked.of([[1]], [4]))])
    >>> discounted_gain()(graded).round(4).tolist(), discounted_gain(1)(graded).round(4).tolist()
    ([0.7967], [0.3333])

    Paper: Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, TOIS 2002, in the form with
    log2(r + 2), which discounts from the second place on.
    """
    k = None if k is None else count_of("k", k)

    def metric(ranked: Ranked) -> NDArray[np.float64]:
        owner, place = _found_before(ranked)
        best = ranked.gains[np.lexsort((-ranked.gains, owner))]
        found, most = (
            np.bincount(owner, gains * (places < (np.inf if k is None else k)) / np.log2(places + 2), len(ranked))
            for gains, places in ((ranked.gains, ranked.ranks), (best, place))
        )
        result: NDArray[np.float64] = np.divide(found, most, out=np.full(len(ranked), np.nan), where=most > 0)
        return result

    return metric


def reciprocal_rank(k: int | None = None) -> Metric:
    """Reciprocal of the place of the first relevant item, 0 where none is within k places (MRR, MRR@k).

    First relevant items at ranks 0 and 2, places 1 and 3:

    >>> reciprocal_rank()(Ranked.of([[0, 5], [2]], [9, 9])).round(4).tolist(), reciprocal_rank(2)(Ranked.of([[2]], [9]))
    ([1.0, 0.3333], array([0.]))

    Papers: Voorhees, The TREC-8 question answering track report, TREC 1999; with k = 10 the measure of MS MARCO.
    """
    k = None if k is None else count_of("k", k)

    def metric(ranked: Ranked) -> NDArray[np.float64]:
        answered = ranked.relevant > 0
        result = np.full(len(ranked), np.nan)
        places = ranked.ranks[ranked.offsets[:-1][answered]] + 1
        result[answered] = np.where(places <= (np.inf if k is None else k), 1 / places, 0)
        return result

    return metric


METRICS: Registry[Metric] = Registry(
    "metric",
    "metrics",
    {
        "map": average_precision,
        "map@r": average_precision_at_r,
        "map-trapezoid": average_precision_by_trapezoids,
        "ndcg": discounted_gain(),
        "mrr": reciprocal_rank(),
    },
    fits=callable,
    expected="a function from limpet.evaluation.ranking.Ranked to one value per query",
)
FAMILIES: Registry[Callable[[int], Metric]] = Registry(
    "metric",
    "metric_families",
    {
        "recall@k": recall_at,
        "cmc@k": recall_at,
        "map@k": average_precision_at,
        "mp@k": precision_at,
        "ndcg@k": discounted_gain,
        "mrr@k": reciprocal_rank,
    },
    fits=callable,
    expected="a function from k to a metric, offered under a name that ends in @k",
)


def metrics_named(names: Sequence[str]) -> dict[str, Metric]:
    """Return the metric functions of these names; k stands for any whole number from 1.

    Raises:
        ConfigError: No names, or an unknown one.

    >>> sorted(metrics_named(["map", "recall@5"]))
    ['map', 'recall@5']
    """
    if isinstance(names, str) or not names:
        raise ConfigError(f"Metrics {names!r}.", expected="a sequence of names", to_do="for one metric write ('map',).")
    return {name: _metric_named(name) for name in names}


def _metric_named(name: str) -> Metric:
    if name in METRICS:
        return METRICS[name]
    family = re.sub(r"@[1-9][0-9]{0,17}$", "@k", name)
    if family in FAMILIES and family != name:
        return FAMILIES[family](int(name.rpartition("@")[2]))
    examples = [*METRICS, *(known.replace("@k", f"@{k}") for known in FAMILIES for k in (1, 5, 10, 100))]
    raise ConfigError(
        f"Unknown metric '{name}'.{nearest(name.lower(), examples)}",
        expected=f"one of {', '.join([*METRICS.names(), *FAMILIES.names()])}, with a whole number from 1 for k",
    )


def _sum_of_precisions(ranked: Ranked, counted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Sum the precisions at the counted relevant items of each query (Q,)."""
    owner, before = _found_before(ranked)
    precision = (before + 1) / (ranked.ranks + 1)
    sums: NDArray[np.float64] = np.bincount(owner[counted], precision[counted], len(ranked)).astype(np.float64)
    return sums


def _found_before(ranked: Ranked) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for every relevant item its query (M,), and how many relevant items come before it there (M,)."""
    owner = np.repeat(np.arange(len(ranked)), ranked.relevant)
    return owner, np.arange(len(owner)) - ranked.offsets[:-1][owner]


def _or_nan(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(counts > 0, counts, np.nan)
