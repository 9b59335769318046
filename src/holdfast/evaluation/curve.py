"""The upgrade curve: how good new queries are while the old gallery is re-embedded, share by share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings import EmbeddingSet
from holdfast.errors import ConfigError, DataError
from holdfast.evaluation.matching import check_sides, in_order_of, vectors_for
from holdfast.evaluation.metrics import metrics_named
from holdfast.evaluation.mixing import rank_mixed
from holdfast.evaluation.retrieval import NoRelevant, Rows, asked_lists, check_any_relevant, check_no_relevant
from holdfast.evaluation.row_lists import RowLists
from holdfast.results import Number, Part

Order = NDArray[np.int64]  # gallery rows, the first to be re-embedded first
SHARES: tuple[float, ...] = tuple(step / 20 for step in range(21))

_SIMILARITIES_AT_ONCE = 8_388_608


@dataclass(frozen=True, eq=False)
class Curve:
    """Quality of new queries on a mixed gallery.

    Args:
        shares: Share of the gallery that the new model has embedded, ascending, within [0, 1], (S,).
        values: Mean of the metric over queries at each share (S,).
        metric: Name of the metric.
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
        metric: Name of the metric.
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


def upgrade_curve(
    new_query: EmbeddingSet,
    old_gallery: EmbeddingSet,
    new_gallery: EmbeddingSet,
    *,
    order: Order,
    shares: Sequence[float] = SHARES,
    metric: str = "map",
    relevant: Rows | RowLists | None = None,
    ignore: Rows | RowLists | None = None,
    exclude_same_id: bool = False,
    no_relevant: NoRelevant = "exclude",
    block: int | None = None,
) -> Curve:
    """Measure new queries against the gallery as it turns from old to new in one order; see `upgrade_curves`.

    Raises:
        ConfigError: An unknown metric, wrong shares, or an order that is no permutation of the gallery.
    """
    lists = asked_lists(new_query, old_gallery, relevant, ignore, exclude_same_id)
    return _curves(new_query, old_gallery, new_gallery, [order], shares, metric, lists, no_relevant, block)[0]


def upgrade_curves(
    new_query: EmbeddingSet,
    old_gallery: EmbeddingSet,
    new_gallery: EmbeddingSet,
    *,
    shares: Sequence[float] = SHARES,
    metric: str = "map",
    relevant: Rows | RowLists | None = None,
    ignore: Rows | RowLists | None = None,
    exclude_same_id: bool = False,
    no_relevant: NoRelevant = "exclude",
    seeds: Sequence[int] = (0, 1, 2),
    block: int | None = None,
) -> dict[str, Curve]:
    """Measure new queries against the gallery as it turns from old to new, in three orders.

    Every pair of query and item is scored once with each gallery, whatever the number of shares and orders. The first
    and the last share, 0 and 1, are the cross-test and the self-test of the new model.

    Args:
        new_query: Queries embedded by the new model.
        old_gallery: The gallery embedded by the old model, with labels; or what a map made of it, whose margins then
            count.
        new_gallery: The same items embedded by the new model, matched by id.
        shares: Shares at which to measure, ascending within [0, 1].
        metric: Name of a metric.
        relevant: Rows of the old gallery that answer each query; by default those of its class.
        ignore: Rows of the old gallery to leave out for each query.
        exclude_same_id: Leave out the gallery item with the id of the query.
        no_relevant: What a query without relevant items is worth: "exclude" or "zero".
        seeds: Seeds of the random orders, whose curves are averaged.
        block: Queries scored at a time.

    Returns:
        Curves "random", "margin" (the items the old model is least sure of first) and "margin_reversed".

    Raises:
        ConfigError: An unknown metric, wrong shares, or no seed.
        DataError: A side is empty or has no labels.
        EmptyOverlapError: The galleries hold different items.
        SpaceMismatchError: The sets are of different spaces.
    """
    if not seeds:
        raise ConfigError("No seed for the random order.", expected="at least one")
    margin = margin_order(old_gallery)
    orders = [margin, reverse(margin), *(random_order(len(old_gallery), seed) for seed in seeds)]
    lists = asked_lists(new_query, old_gallery, relevant, ignore, exclude_same_id)
    by_margin, reversed_margin, *random = _curves(
        new_query, old_gallery, new_gallery, orders, shares, metric, lists, no_relevant, block
    )
    mean = Curve(by_margin.shares, np.mean([curve.values for curve in random], axis=0), metric)
    return {"random": mean, "margin": by_margin, "margin_reversed": reversed_margin}


def _curves(
    new_query: EmbeddingSet,
    old_gallery: EmbeddingSet,
    new_gallery: EmbeddingSet,
    orders: Sequence[Order],
    shares: Sequence[float],
    metric: str,
    lists: tuple[RowLists, RowLists],
    no_relevant: NoRelevant,
    block: int | None,
) -> list[Curve]:
    measure = metrics_named((metric,))[metric]
    steps = _checked_shares(shares)
    check_no_relevant(no_relevant)
    check_sides(new_query, old_gallery)
    check_sides(new_query, new_gallery)
    new_gallery = in_order_of(old_gallery, new_gallery, ("old gallery", "new gallery"))
    changed = np.stack([first_new_share(order, steps, len(old_gallery)) for order in orders])
    parts = [
        [[measure(ranked) for ranked in of_order] for of_order in rankings]
        for rankings in rank_mixed(
            vectors_for(new_query, "query"),
            vectors_for(old_gallery, "gallery"),
            vectors_for(new_gallery, "gallery"),
            changed,
            len(steps),
            *lists,
            block=block,
        )
    ]
    values = np.concatenate(parts, axis=2)  # (orders, shares, queries)
    check_any_relevant(values[0, 0])
    if no_relevant == "zero":
        values = np.nan_to_num(values)
    return [Curve(steps, np.array([np.nanmean(row) for row in of_order]), metric) for of_order in values]


def _checked_shares(shares: Sequence[float]) -> NDArray[np.float64]:
    steps = np.asarray(shares, np.float64)
    if steps.ndim != 1 or not len(steps) or not (np.diff(steps) > 0).all() or steps[0] < 0 or steps[-1] > 1:
        raise ConfigError(f"Shares {list(shares)[:5]}.", expected="ascending shares within [0, 1], such as 0, 0.5, 1")
    return steps


def first_new_share(order: Order, shares: NDArray[np.float64], size: int) -> NDArray[np.int64]:
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


def random_order(n: int, seed: int) -> Order:
    """Return n rows in random order.

    >>> sorted(random_order(3, seed=0).tolist())
    [0, 1, 2]
    """
    return np.random.default_rng(seed).permutation(n)


def reverse(order: Order) -> Order:
    """Return the rows last to first: the control that should do worst where an order does well."""
    return order[::-1].copy()


def margin_order(old_gallery: EmbeddingSet) -> Order:
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
    import torch

    if embeddings.labels is None or not len(embeddings):
        raise DataError("An order by margin of items without labels.", expected="a labelled gallery with items")
    classes, labels = np.unique(embeddings.labels, return_inverse=True)
    points = torch.from_numpy(np.array(embeddings.vectors))
    space = embeddings.space
    points = space.project(points) if embeddings.form == "features" else space.canonical(points)
    means, _ = space.mean(points, torch.from_numpy(labels), len(classes))
    margins = np.empty(len(embeddings), np.float32)
    for start in range(0, len(points), step := max(1, _SIMILARITIES_AT_ONCE // len(classes))):
        similarity = space.similarity(points[start : start + step], means).numpy()
        own = (np.arange(len(similarity)), labels[start : start + step])
        to_own = similarity[own]
        similarity[own] = -np.inf
        margins[start : start + step] = to_own - similarity.max(axis=1)
    return margins
