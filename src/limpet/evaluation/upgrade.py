"""The upgrade curve: how good new queries are while the old gallery is re-embedded, share by share.

A gallery row counts with its old score until the share at which it is re-embedded, and with its new score from then on.
The number of items above a score is a sum of two histograms over (share of change, place among the scores asked for),
filled once per order: scores are sorted once per query, whatever the number of shares and orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError, refuse
from limpet.evaluation.metrics import metrics_named
from limpet.evaluation.ranking.counting import Counts
from limpet.evaluation.ranking.engine import Ranked, hide
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.ranking.scores import block_size, score_blocks
from limpet.evaluation.retrieval import NoRelevant, RelevantRows, asked_lists, check_any_relevant, check_no_relevant
from limpet.evaluation.sides import check_sides, in_order_of, vectors_for
from limpet.results import Number, Part
from limpet.support.workers import available_cores

_Order = NDArray[np.int64]  # gallery rows, the first to be re-embedded first
_SHARES: tuple[float, ...] = tuple(step / 20 for step in range(21))

_SIMILARITIES_AT_ONCE = 8_388_608
_COUNTS_AT_ONCE = 131_072  # in the second cache


@dataclass(frozen=True, eq=False)
class Curve:
    """Quality of new queries on a mixed gallery.

    Args:
        shares: Share of the gallery that the new model has embedded, ascending, within [0, 1], (S,).
        values: Mean of the metric over queries at each share (S,).
    """

    shares: NDArray[np.float64]
    values: NDArray[np.float64]
    metric: str

    @property
    def area(self) -> float:
        """Mean height by the trapezoid rule: the area divided by the range of shares (NaN for a single share).

        >>> Curve(np.array([0.0, 0.5, 1.0]), np.array([0.2, 0.4, 0.6]), "map").area
        0.4
        """
        width = self.shares[-1] - self.shares[0]
        return float(np.trapezoid(self.values, self.shares) / width) if width > 0 else float("nan")


class UpgradeCurves(Part):
    """Curves of one upgrade in several orders, over the same shares.

    Args:
        shares: Share of the gallery that the new model has embedded, ascending (S,).
        values: Mean of the metric at each share (S,), by the name of the order.
        area: `Curve.area`, by the name of the order.
    """

    metric: str
    shares: list[float]
    values: dict[str, list[Number]]
    area: dict[str, Number]

    @classmethod
    def of(cls, curves: Mapping[str, Curve]) -> Self:
        """Return curves by the name of their order."""
        some = next(iter(curves.values()))
        return cls(
            metric=some.metric,
            shares=some.shares.tolist(),
            values={name: curve.values.tolist() for name, curve in curves.items()},
            area={name: curve.area for name, curve in curves.items()},
        )


def upgrade_curves(
    new_query: EmbeddingSet,
    old_gallery: EmbeddingSet,
    new_gallery: EmbeddingSet,
    *,
    orders: Mapping[str, Sequence[_Order]] | None = None,
    shares: Sequence[float] = _SHARES,
    metric: str = "map",
    relevant: RelevantRows | RowLists | None = None,
    ignore: RelevantRows | RowLists | None = None,
    exclude_same_id: bool = False,
    no_relevant: NoRelevant = "exclude",
    seeds: Sequence[int] = (0, 1, 2),
    block: int | None = None,
) -> dict[str, Curve]:
    """Measure new queries against the gallery as it turns from old to new, in several orders.

    Every pair of query and item is scored once with each gallery, whatever the number of shares and orders. The first
    and the last share, 0 and 1, are the cross-test and the self-test of the new model.

    Args:
        new_query: Queries embedded by the new model.
        old_gallery: The gallery embedded by the old model, with labels; or what a map made of it, whose margins then
            count.
        new_gallery: The same items embedded by the new model, matched by id.
        orders: Orders of re-embedding by name; the curves of several under one name are averaged. When left out:
            "random", "margin" (the items the old model is least sure of first) and "margin_reversed".
        shares: Shares at which to measure, ascending within [0, 1].
        metric: Name of a metric.
        relevant: Rows of the old gallery that answer each query; by default those of its class.
        ignore: Rows of the old gallery to leave out for each query.
        exclude_same_id: Leave out the gallery item with the id of the query.
        no_relevant: What a query without relevant items is worth: "exclude" or "zero".
        seeds: Seeds of the random orders.
        block: Queries scored at a time.

    Returns:
        Curves by the name of the order.

    Raises:
        ConfigError: An unknown metric, wrong shares, no seed, or an order that is no permutation of the gallery.
        DataError: A side is empty or has no labels.
        EmptyOverlapError: The galleries hold different items.
        SpaceMismatchError: The sets are of different spaces.
    """
    orders = usual_orders(old_gallery, seeds) if orders is None else orders
    lists = asked_lists(new_query, old_gallery, relevant, ignore, exclude_same_id)
    measure = metrics_named((metric,))[metric]
    steps = _checked_shares(shares)
    check_no_relevant(no_relevant)
    check_sides(new_query, old_gallery)
    check_sides(new_query, new_gallery)
    new_gallery = in_order_of(old_gallery, new_gallery, ("old gallery", "new gallery"))
    every = [order for of_name in orders.values() for order in of_name]
    vectors = (
        vectors_for(new_query, "query"), vectors_for(old_gallery, "gallery"), vectors_for(new_gallery, "gallery")
    )  # fmt: skip
    changed = np.stack([first_new_share(order, steps, len(old_gallery)) for order in every])
    wanted, left_out = lists
    gains, levels = zip(*wanted.levels(), strict=True)
    rankings = (rank_mixed(*vectors, changed, len(steps), level, left_out, block=block) for level in levels)
    parts = [
        [
            [measure(Ranked.graded([*zip(gains, of_share, strict=True)])) for of_share in zip(*of_order, strict=True)]
            for of_order in zip(*of_block, strict=True)
        ]
        for of_block in zip(*rankings, strict=True)
    ]
    values = np.concatenate(parts, axis=2)  # (orders, shares, queries)
    check_any_relevant(values[0, 0])
    if no_relevant == "zero":
        values = np.nan_to_num(values)
    means = iter(np.array([[np.nanmean(row) for row in of_order] for of_order in values]))
    return {
        name: Curve(steps, np.mean([next(means) for _ in of_name], axis=0), metric) for name, of_name in orders.items()
    }


def usual_orders(old_gallery: EmbeddingSet, seeds: Sequence[int]) -> dict[str, list[_Order]]:
    """Return the orders by name that `upgrade_curves` measures unless it is given others."""
    refuse(not seeds, "No seed for the random order.", "at least one")
    margin = margin_order(old_gallery)
    random = [random_order(len(old_gallery), seed) for seed in seeds]
    return {"random": random, "margin": [margin], "margin_reversed": [margin[::-1].copy()]}


def _checked_shares(shares: Sequence[float]) -> NDArray[np.float64]:
    steps = np.asarray(shares, np.float64)
    if steps.ndim != 1 or not len(steps) or not (np.diff(steps) > 0).all() or steps[0] < 0 or steps[-1] > 1:
        raise ConfigError(f"Shares {list(shares)[:5]}.", expected="ascending shares within [0, 1], such as 0, 0.5, 1")
    return steps


def first_new_share(order: _Order, shares: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """Return for every gallery row (N,) the number of the first share at which it is new; len(shares) for never.

    At share s the first round(s N) rows of the order are new.

    >>> first_new_share(np.array([2, 0, 1]), np.array([0.0, 0.34, 1.0]), 3).tolist()
    [2, 2, 1]

    Raises:
        ConfigError: The order is no permutation of the rows.
    """
    if not np.array_equal(np.sort(order), np.arange(size)):
        raise ConfigError(f"An order of {len(order)} rows for {size} items.", expected="every row of the gallery once")
    counts = np.rint(shares * size).astype(np.int64)
    result = np.empty(size, np.int64)
    result[order] = np.searchsorted(counts, np.arange(size), "right")
    return result


def random_order(n: int, seed: int) -> _Order:
    """Return n rows in random order.

    >>> sorted(random_order(3, seed=0).tolist())
    [0, 1, 2]
    """
    return np.random.default_rng(seed).permutation(n)


def margin_order(old_gallery: EmbeddingSet) -> _Order:
    """Order rows by the label margin of the old model, small first; ties by row.

    The margin of an item is its similarity to the mean of its own class minus that to the nearest other class mean
    (FastFill's idea that what the old model confuses gains most). With a single class the rows keep their order.

    Raises:
        DataError: The gallery has no labels or no items.
    """
    return np.argsort(label_margins(old_gallery), kind="stable")


def label_margins(embeddings: EmbeddingSet) -> NDArray[np.float32]:
    """Return the label margin of every row (N,); infinite where there is a single class.

    Raises:
        DataError: The set has no labels or no items.
    """
    if embeddings.labels is None or not len(embeddings):
        raise DataError("An order by margin of items without labels.", expected="a labelled gallery with items")
    classes, labels = np.unique(embeddings.labels, return_inverse=True)
    space, rows = embeddings.space, np.asarray(embeddings.vectors)
    points = space.project_array(rows) if embeddings.form == "features" else space.canonical_array(rows)
    means = space.mean_array(points, labels, len(classes))
    margins = np.empty(len(embeddings), np.float32)
    for start in range(0, len(points), step := max(1, _SIMILARITIES_AT_ONCE // len(classes))):
        similarity = space.similarity_array(points[start : start + step], means)
        own = (np.arange(len(similarity)), labels[start : start + step])
        to_own = similarity[own]
        similarity[own] = -np.inf
        margins[start : start + step] = to_own - similarity.max(axis=1)
    return margins


def rank_mixed(
    query: NDArray[np.float32],
    old_gallery: NDArray[np.float32],
    new_gallery: NDArray[np.float32],
    changed: NDArray[np.int64],
    shares: int,
    relevant: RowLists,
    ignore: RowLists,
    *,
    block: int | None = None,
) -> Iterator[list[list[Ranked]]]:
    """Rank a block of queries after another in mixed galleries.

    Args:
        query: float32 (Q, D), in index form.
        old_gallery: float32 (N, D), in index form.
        new_gallery: The same items embedded anew, float32 (N, D).
        changed: The number of the first share at which each item is new, per order, int64 (O, N); at most ``shares``.
        shares: The number S of shares.
        relevant: Gallery rows that answer each query.
        ignore: Gallery rows to leave out for each query.
        block: Queries per block; see `score_blocks`.

    Yields:
        Rankings [order][share] of the queries of the block, those of `rank_blocks` on the mixed gallery.
    """
    size = block_size(len(old_gallery), block)
    old_blocks, new_blocks = (score_blocks(query, side, block=size) for side in (old_gallery, new_gallery))
    with ThreadPoolExecutor(available_cores()) as pool:
        for (start, old), (_, new) in zip(old_blocks, new_blocks, strict=True):
            stop = start + len(old)
            left_out = ignore.part(start, stop)
            owner, items = hide(old, relevant.part(start, stop), left_out)
            hide(new, relevant.part(start, stop), left_out)
            offsets = np.append(0, np.cumsum(np.bincount(owner, minlength=len(old))))
            wanted = np.split(items, offsets[1:-1])
            tables = list(pool.map(partial(mixed_ranks, changed=changed, shares=shares), old, new, wanted))
            above, tied = (np.concatenate(column, axis=2) for column in zip(*tables, strict=True))
            sizes = len(old_gallery) - left_out.counts
            yield [
                [Ranked(ranks, offsets, sizes, tied=beside) for ranks, beside in zip(*of_order, strict=True)]
                for of_order in zip(above, tied, strict=True)
            ]


def mixed_ranks(
    old: NDArray[np.float32],
    new: NDArray[np.float32],
    items: NDArray[np.int64],
    changed: NDArray[np.int64],
    shares: int,
) -> Counts:
    """Count the items above and beside some items in one row of mixed scores, for every order and share.

    Args:
        old: Scores of the old gallery (N,).
        new: Scores of the new gallery (N,).
        items: Gallery rows (R,).
        changed: First share at which each item is new, per order (O, N).
        shares: The number S of shares.

    Returns:
        Both counts (O, S, R); those above ascend along the last axis.
    """
    if not len(items):
        return Counts(*np.empty((2, len(changed), shares, 0), np.int64))
    asked = np.unique(np.append(old[items], new[items]))
    few = max(1, _COUNTS_AT_ONCE // (2 * len(asked) * (shares + 1)))
    if len(changed) > few:
        orders = (changed[start : start + few] for start in range(0, len(changed), few))
        parts = [mixed_ranks(old, new, items, some, shares) for some in orders]
        return Counts(*map(np.concatenate, zip(*parts, strict=True)))
    came, went = (_histograms(scores, asked, changed, shares) for scores in (new, old))
    counts = came[:, :-1] + (went[:, -1:] - went[:, :-1])
    own_old, own_new = (2 * asked.searchsorted(scores[items]) for scores in (old, new))
    own = np.where(changed[:, None, items] <= np.arange(shares)[:, None], own_new, own_old)
    not_below = np.cumsum(counts[..., ::-1], axis=2)[..., ::-1]
    equal = np.take_along_axis(counts, own, axis=2)
    more = np.take_along_axis(not_below, own, axis=2) - equal
    order = more.argsort(axis=2)
    return Counts(*(np.take_along_axis(counted, order, axis=2) for counted in (more, equal)))


def _histograms(
    scores: NDArray[np.float32], asked: NDArray[np.float32], changed: NDArray[np.int64], shares: int
) -> NDArray[np.int64]:
    """Count for every order and share, and for the end, the columns that changed by then, by the place of their score.

    Args:
        scores: Of the columns (N,).
        asked: Ascending scores that are asked for (A,).
        changed: First share at which each column is new, per order (O, N).
        shares: The number S of shares.

    Returns:
        (O, S + 1, 2 A): place 2 i is that of scores that equal number i, 2 i + 1 of those between it and the next.
        Scores below all of them are left out.
    """
    orders, size = len(changed), 2 * len(asked)
    columns = np.flatnonzero(scores >= asked[0])
    reached = scores[columns]
    order = np.argsort(reached)
    ordered = reached[order]
    begins = np.stack([ordered.searchsorted(asked, side) for side in ("left", "right")], axis=1).ravel()
    cells = changed.take(columns[order], axis=1) + (shares + 1) * np.arange(orders)[:, None]
    cells *= size
    cells += np.repeat(np.arange(size), np.diff(begins, append=len(columns)))
    table = np.bincount(cells.ravel(), minlength=orders * (shares + 1) * size)
    found: NDArray[np.int64] = table.reshape(orders, shares + 1, size).cumsum(axis=1)
    return found
