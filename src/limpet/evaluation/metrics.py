"""Ranking metrics: pure functions from rankings to one value per query.

A query without any relevant item has the value NaN. Callers compute means and intervals, and decide whether such a
query counts as zero. Definitions are those of the literature; precision at a relevant item of 0-based rank r, with i
relevant items up to and including it, is i / (r + 1).

Where items tie, that is, have the same score, every metric is its expectation over all orders of the tied items, each
order being equally likely. Take a group of n tied items, r of them relevant, with a items above it, b of these
relevant. Three facts give all expectations:

1. A relevant item of the group is as likely at each of the places a, ..., a + n - 1. A sum over relevant items of a
   discount of their place becomes the mean discount of these places for each of them (`discounted_gain`).
2. Given that a relevant item is at place a + j, each of the other n - 1 items is as likely at each of the other n - 1
   places, of which j come before. So j (r - 1) / (n - 1) relevant ones of the group are expected before it, and the
   precision there is (b + 1 + j (r - 1) / (n - 1)) / (a + j + 1) (all forms of average precision).
3. The first m places of the group hold no relevant item with the probability C(n - m, r) / C(n, r), which gives the
   distribution of the first relevant item, and counted from the end that of the last one (`recall_at`,
   `reciprocal_rank`, `precision_at`).

With n = 1 they are the definitions for rankings without ties. The same expectations are in McSherry and Najork,
Computing information retrieval performance measures efficiently in the presence of tied scores, ECIR 2008.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limpet.errors import ConfigError, count_of, nearest
from limpet.evaluation.ranking.engine import Ranked
from limpet.registry import Registry

Metric = Callable[[Ranked], NDArray[np.float64]]

TIED = "hangs on ties"
"""Name of `hangs_on_ties`, which is measured beside metrics and is not offered as a metric."""
HANGS = 0.01
"""How much of its average precision makes a query hang on ties."""


def average_precision(ranked: Ranked) -> NDArray[np.float64]:
    """Full, non-interpolated average precision: the mean over relevant items of the precision at their rank.

    Relevant items at ranks 0 and 2 have precisions 1/1 and 2/3, whose mean is 5/6:

    >>> average_precision(Ranked.of([[0, 2]], [4])).round(4).tolist()
    [0.8333]

    One relevant item that ties with another one is as likely first as second: (1 + 1/2) / 2.

    >>> average_precision(Ranked.of([[0]], [4], tied=[[2]])).tolist()
    [0.75]
    """
    return _sum_of_precisions(ranked) / _or_nan(ranked.relevant)


def average_precision_at_r(ranked: Ranked) -> NDArray[np.float64]:
    """Average precision of the first R places, divided by R, the number of relevant items (mAP@R).

    With R = 2 only ranks 0 and 1 count, so the item at rank 2 adds nothing: (1/1) / 2.

    >>> average_precision_at_r(Ranked.of([[0, 2]], [4])).tolist()
    [0.5]
    """
    return _sum_of_precisions(ranked, np.repeat(ranked.relevant, ranked.relevant)) / _or_nan(ranked.relevant)


def average_precision_at(k: int) -> Metric:
    """Average precision of the first k places, divided by min(R, k) (mAP@k, the rule of Google Landmarks v2).

    Relevant items at ranks 0, 1 and 7; within k = 2 places both precisions are 1, and min(R, k) is 2:

    >>> average_precision_at(2)(Ranked.of([[0, 1, 7]], [9])).tolist()
    [1.0]
    """
    k = count_of("k", k)

    def metric(ranked: Ranked) -> NDArray[np.float64]:
        limit = np.full(len(ranked.ranks), k)
        return _sum_of_precisions(ranked, limit) / _or_nan(np.minimum(ranked.relevant, k))

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
    before, pace = _found_before(ranked)
    ranks, tied = ranked.ranks, ranked.tied
    left = np.where(ranks > 0, before / np.maximum(ranks, 1), 1)
    open_places = np.flatnonzero(tied > 1)
    if len(open_places):  # as in `_sum_of_precisions`, with a + j in place of a + j + 1; the place 0 counts as 1
        a, n, b = (counts[open_places] for counts in (ranks, tied, before))
        t = pace[open_places]
        top = (a == 0).astype(np.int64)
        left[open_places] = (top + t * (n - top) + (b - t * a) * _sums(_reciprocals, a + top, a + n)) / n
    areas = (left + _precisions(ranked, ranks + tied)) / 2
    return _per_query(ranked, areas) / _or_nan(ranked.relevant)


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
        last = ranked.offsets[1:][answered] - 1
        within = _per_query(ranked, np.clip(k - ranked.ranks, 0, ranked.tied) / ranked.tied)
        found = np.full(len(ranked), np.nan)
        found[answered] = within[answered] / np.minimum(ranked.ranks[last] + 1, k)
        for query, group in _open_groups(ranked, last[ranked.tied[last] > 1]):
            # the probability that the last relevant item is at each of the first k places: as the first, from behind
            reached = -np.diff(group.none_within(group.tied))[::-1][: max(0, k - group.rank)]
            total = ranked.relevant[query]
            places = group.rank + 1 + np.arange(len(reached))
            found[query] = total * (reached / places).sum() + (within[query] - total * reached.sum()) / k
        return found

    return metric


def recall_at(k: int) -> Metric:
    """Whether any relevant item is among the first k: 1 or 0 (recall@k; CMC@k in re-identification).

    >>> recall_at(1)(Ranked.of([[0, 2], [1]], [4, 4])).tolist()
    [1.0, 0.0]
    """
    k = count_of("k", k)

    def metric(ranked: Ranked) -> NDArray[np.float64]:
        answered = ranked.relevant > 0
        first = ranked.offsets[:-1][answered]
        result = np.full(len(ranked), np.nan)
        result[answered] = ranked.ranks[first] < k
        for query, group in _open_groups(ranked, first[(ranked.tied[first] > 1) & (ranked.ranks[first] < k)]):
            result[query] = 1 - group.none_within(min(k - group.rank, group.tied))[-1]
        return result

    return metric


def discounted_gain(k: int | None = None) -> Metric:
    """Normalised discounted cumulative gain of the first k places, or of all (nDCG, nDCG@k).

    A relevant item at 0-based rank r adds its gain divided by log2(r + 2); the sum is divided by that of the best
    order, so the maximum is 1. Gains are the given grades of relevance, or 1 without grades.

    A gain of 1 at rank 0 and one of 3 at rank 1: (1 + 3 / log2(3)) / (3 + 1 / log2(3)).

    >>> graded = Ranked.graded([(1.0, Ranked.of([[0]], [4])), (3.0, Ranked.of([[1]], [4]))])
    >>> discounted_gain()(graded).round(4).tolist(), discounted_gain(1)(graded).round(4).tolist()
    ([0.7967], [0.3333])

    Paper: Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, TOIS 2002, in the form with
    log2(r + 2), which discounts from the second place on.
    """
    k = None if k is None else count_of("k", k)

    def metric(ranked: Ranked) -> NDArray[np.float64]:
        owner = ranked.owner
        place = np.arange(len(owner)) - ranked.offsets[:-1][owner]
        best = ranked.gains[np.lexsort((-ranked.gains, owner))]
        discounts, ideal = (
            np.where(places < (np.inf if k is None else k), _discounts(places), 0) for places in (ranked.ranks, place)
        )
        open_places = np.flatnonzero(ranked.tied > 1)
        if len(open_places):
            start, tied = ranked.ranks[open_places], ranked.tied[open_places]
            stop = start + tied if k is None else np.minimum(start + tied, k)
            discounts[open_places] = _sums(_discounts, start, stop) / tied
        found, most = _per_query(ranked, ranked.gains * discounts), _per_query(ranked, best * ideal)
        result: NDArray[np.float64] = np.divide(found, most, out=np.full(len(ranked), np.nan), where=most > 0)
        return result

    return metric


def reciprocal_rank(k: int | None = None) -> Metric:
    """Reciprocal of the place of the first relevant item, 0 if none is within k places (MRR, MRR@k).

    First relevant items at ranks 0 and 2, places 1 and 3:

    >>> reciprocal_rank()(Ranked.of([[0, 5], [2]], [9, 9])).round(4).tolist(), reciprocal_rank(2)(Ranked.of([[2]], [9]))
    ([1.0, 0.3333], array([0.]))

    Papers: Voorhees, The TREC-8 question answering track report, TREC 1999; with k = 10 the measure of MS MARCO.
    """
    k = None if k is None else count_of("k", k)

    def metric(ranked: Ranked) -> NDArray[np.float64]:
        answered = ranked.relevant > 0
        first = ranked.offsets[:-1][answered]
        result = np.full(len(ranked), np.nan)
        places = ranked.ranks[first] + 1
        result[answered] = np.where(places <= (np.inf if k is None else k), 1 / places, 0)
        for query, group in _open_groups(ranked, first[ranked.tied[first] > 1]):
            within = group.tied if k is None else min(group.tied, max(0, k - group.rank))
            at = -np.diff(group.none_within(within))
            result[query] = (at / (group.rank + 1 + np.arange(within))).sum()
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
        ConfigError: No names are given, or a name is unknown.

    >>> sorted(metrics_named(["map", "recall@5"]))
    ['map', 'recall@5']
    """
    if isinstance(names, str) or not names:
        raise ConfigError(f"Metrics {names!r}.", expected="a sequence of names", to_do="for one metric write ('map',).")
    return {name: _metric_named(name) for name in names}


def _metric_named(name: str) -> Metric:
    if name == TIED:
        return hangs_on_ties
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


def hangs_on_ties(ranked: Ranked) -> NDArray[np.float64]:
    """Whether the order of tied items changes the average precision of a query by `HANGS` or more: 1 or 0.

    The best order has the relevant ones of every group first, the worst one has them last. One relevant item in a tie
    of two for the first place gives 1 or 1/2:

    >>> hangs_on_ties(Ranked.of([[0], [0, 0], [500]], [600] * 3, tied=[[2], [2, 2], [2]])).tolist()
    [1.0, 0.0, 0.0]
    """
    first, relevant = ranked.groups
    within = np.arange(len(ranked.ranks)) - np.repeat(first, relevant)
    best = ranked.ranks + within
    worst = best + ranked.tied - np.repeat(relevant, relevant)
    most, least = (average_precision(Ranked(ranks, ranked.offsets, ranked.gallery_sizes)) for ranks in (best, worst))
    return np.where(np.isnan(most), np.nan, most - least >= HANGS)


def _sum_of_precisions(ranked: Ranked, limit: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """Sum the precisions at the relevant items of each query (Q,), at those within the first ``limit`` places (M,)."""
    return _per_query(ranked, _precisions(ranked, ranked.ranks + ranked.tied if limit is None else limit))


def _precisions(ranked: Ranked, limit: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the precision expected at each relevant item (M,), 0 where it stands behind the first ``limit`` (M,).

    With t = (r - 1) / (n - 1) the mean over the places a + j, of which m count, is

        1/n sum over j < m of (b + 1 + j t) / (a + j + 1) = (m t + (b + 1 - t (a + 1)) (H(a + m) - H(a))) / n

    where H(i) is the sum of the reciprocals of 1, ..., i.
    """
    before, pace = _found_before(ranked)
    precisions = np.where(ranked.ranks < limit, (before + 1) / (ranked.ranks + 1), 0)
    open_places = np.flatnonzero(ranked.tied > 1)
    if len(open_places):
        a, n, b = (counts[open_places] for counts in (ranked.ranks, ranked.tied, before))
        t, m = pace[open_places], np.clip(limit[open_places] - a, 0, n)
        sums = _sums(_reciprocals, a + 1, a + 1 + m)
        precisions[open_places] = (m * t + (b + 1 - t * (a + 1)) * sums) / n
    return precisions


def _found_before(ranked: Ranked) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return for every relevant item b, how many score more (M,), and (r - 1) / (n - 1) of those it ties with (M,)."""
    first, relevant = ranked.groups
    before = np.repeat(first, relevant) - ranked.offsets[:-1][ranked.owner]
    return before, np.repeat(relevant - 1, relevant) / np.maximum(ranked.tied - 1, 1)


def _per_query(ranked: Ranked, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum one value per relevant item over each query (Q,)."""
    sums: NDArray[np.float64] = np.bincount(ranked.owner, values, len(ranked)).astype(np.float64)
    return sums


def _discounts(places: NDArray[np.int64]) -> NDArray[np.float64]:
    return 1 / np.log2(places + 2)


def _reciprocals(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    return 1 / np.maximum(numbers, 1)


def _sums(
    terms: Callable[[NDArray[np.int64]], NDArray[np.float64]], start: NDArray[np.int64], stop: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Add up terms(start), ..., terms(stop - 1) of every pair (P,), each pair once; 0 where stop is not above start.

    Differences of sums from 0 would lose the digits that small groups far down need.
    """
    stop = np.maximum(start, stop)
    width = int(stop.max(initial=0)) + 1
    pairs, where = np.unique(start * width + stop, return_inverse=True)
    start, stop = pairs // width, pairs % width
    table = np.append(terms(np.arange(width)), 0)
    sums = np.add.reduceat(table, np.stack([start, stop], axis=1).ravel())[::2]
    found: NDArray[np.float64] = np.where(stop > start, sums, 0)[where]
    return found


class _Group(NamedTuple):
    """Tied items of one query.

    Args:
        rank: How many items are above.
        relevant: How many of them are relevant.
    """

    rank: int
    tied: int
    relevant: int

    def none_within(self, most: int) -> NDArray[np.float64]:
        """Return the probability that the first m places hold no relevant item, for m = 0, ..., most (most + 1,).

        >>> _Group(rank=0, tied=4, relevant=2).none_within(2).round(4).tolist()
        [1.0, 0.5, 0.1667]
        """
        other = np.arange(self.tied - self.relevant, self.tied - self.relevant - most, -1)
        return np.append(1.0, np.cumprod(np.maximum(other, 0) / np.arange(self.tied, self.tied - most, -1)))


def _open_groups(ranked: Ranked, items: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], _Group]]:
    """Yield every kind of group that holds one of these relevant items (P,), and the queries that have such a one."""
    if not len(items):
        return
    number = ranked.groups.first.searchsorted(items, "right") - 1
    kinds = np.stack([ranked.ranks[items], ranked.tied[items], ranked.groups.relevant[number]], axis=1)
    groups, which = np.unique(kinds, axis=0, return_inverse=True)
    queries = ranked.owner[items][np.argsort(which, kind="stable")]
    ends = np.cumsum(np.bincount(which, minlength=len(groups)))
    for group, of_group in zip(groups.tolist(), np.split(queries, ends[:-1]), strict=True):
        yield of_group, _Group(*group)


def _or_nan(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(counts > 0, counts, np.nan)
