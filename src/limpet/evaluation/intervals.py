"""Bootstrap confidence intervals of means over queries, and permutation tests of mean differences.

All systems are resampled with the same queries, so that what is common to them cancels in a difference. Queries of
one class are correlated; resampling single queries then gives intervals that are too narrow for the question "what
about other classes?". Pass the class of every query as ``clusters`` to resample whole classes instead, as `clusters_of`
does by default.

Percentile intervals of few groups are too narrow. They are expanded as Hesterberg (The American Statistician, 2015)
proposes: the quantiles taken are those at which a normal distribution has the half-width t sqrt(n / (n - 1)) of
Student's interval. The means of fewer than ten groups do not spread so far; there it is Student's interval itself,
with the deviation of the resampled means.

Written here because the usual routines evaluate a statistic once per resample: a product of counts, or of signs, with
the values does all resamples of all systems at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limpet.errors import ConfigError, DataError, refuse
from limpet.support.ranges import Fraction, PositiveInt, Seed, checked

Interval = tuple[float, float]
Resampled = Literal["auto", "queries", "classes"]
_Name = TypeVar("_Name", bound=Hashable)

FEW = 10
"""Fewer groups than these have Student's interval."""
_DRAWS_AT_ONCE = 2_000_000  # bounds memory: 16 MB of counts and as much of drawn rows
_COUNTED_AT_ONCE = 65_536  # of these: few enough for the caches


@checked
def resampled_means(
    sums: NDArray[np.float64], sizes: NDArray[np.float64], resamples: PositiveInt = 2000, seed: Seed = 0
) -> NDArray[np.float64]:
    """Return the means (resamples, S) of S systems over resampled clusters of queries, the same for all systems.

    Args:
        sums: Sums of every cluster's values per system, (G, S); see `cluster_sums`.
        sizes: Number of queries per cluster (G,).
        resamples: Number of resamples of G clusters, with replacement.
        seed: Random seed of the draws.

    Returns:
        All NaN if no cluster is left.

    Raises:
        ConfigError: Fewer than 1 resample.
    """
    if not len(sizes):
        return np.full((resamples, sums.shape[1]), np.nan)
    draws = _draws(len(sizes), resamples, seed)
    return np.concatenate([counts @ sums / (counts @ sizes)[:, None] for counts in draws])


def paired_interval(
    first: ArrayLike,
    second: ArrayLike,
    *,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> Interval:
    """Return the percentile interval of mean(first) - mean(second) over the same resampled queries.

    >>> paired_interval([1.0, 0.75], [0.5, 0.25])
    (0.5, 0.5)
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.shape != b.shape:
        raise DataError(f"{a.shape} and {b.shape} values.", expected="the same queries on both sides")
    return mean_interval(a - b, resamples=resamples, level=level, seed=seed, clusters=clusters)


def mean_interval(
    values: ArrayLike,
    *,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> Interval:
    """Return the percentile interval of the mean over queries.

    Args:
        values: One per query (Q,); a NaN leaves the query out.
        resamples: Bootstrap resamples.
        level: Level of the interval.
        seed: Seed of the draws.
        clusters: The group of every query (Q,), such as its class, to draw whole groups.

    >>> mean_interval([0.25, 0.25])
    (0.25, 0.25)
    """
    return mean_intervals({0: values}, resamples=resamples, level=level, seed=seed, clusters=clusters)[0]


def mean_intervals(
    columns: Mapping[_Name, ArrayLike],
    *,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> dict[_Name, Interval]:
    """Return the percentile interval of the mean of every column, over the same resampled queries for all.

    A query with a NaN in any column is left out of all. For the interval of a difference pass the differences as a
    column of their own. The other arguments are those of `mean_interval`.
    """
    values = np.stack([np.asarray(column, np.float64) for column in columns.values()], axis=1)
    sums, sizes = cluster_sums(values, clusters)
    means = resampled_means(sums, sizes, resamples, seed)
    if not len(sizes):
        return dict.fromkeys(columns, (np.nan, np.nan))
    return {
        name: _within(percentile_interval(drawn_means, level, len(sizes)), of_queries)
        for name, drawn_means, of_queries in zip(columns, means.T, values.T, strict=True)
    }


def chosen_interval(
    scores: Mapping[_Name, ArrayLike],
    baseline: ArrayLike,
    *,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> Interval:
    """Return the interval of the gain over a baseline of the best of several candidates, chosen by the same scores.

    Every resample chooses again, and measures how far the score of its choice is above that candidate's score on all
    queries, including selection bias. The interval is the gain of the chosen candidate minus the quantiles of these
    errors. With one candidate it is the interval of the basic bootstrap.

    Args:
        scores: One value per query (Q,) of every candidate, by name.
        baseline: One value per query (Q,) of the baseline.
        resamples: Bootstrap resamples.
        level: Level of the interval.
        seed: Seed of the draws.
        clusters: The group of every query (Q,), such as its class, to draw whole groups.

    >>> chosen_interval({"a": [0.5, 0.75], "b": [0.25, 0.5]}, [0.25, 0.5])
    (0.25, 0.25)
    """
    old = np.asarray(baseline, np.float64)
    gains = np.stack([np.asarray(column, np.float64) - old for column in scores.values()], axis=1)
    sums, sizes = cluster_sums(gains, clusters)
    means = resampled_means(sums, sizes, resamples, seed)
    if not len(sizes):
        return np.nan, np.nan
    gain = sums.sum(axis=0) / sizes.sum()
    best = means.argmax(axis=1)
    luck = means[np.arange(len(means)), best] - gain[best]
    low, high = percentile_interval(luck, level, len(sizes))
    return _within((float(gain.max()) - high, float(gain.max()) - low), gains)


@checked
def percentile_interval(means: NDArray[np.float64], level: Fraction = 0.95, groups: int | None = None) -> Interval:
    """Return the central interval that holds this share of the resampled means (resamples,).

    Args:
        means: Means of the resamples.
        level: Level of the interval.
        groups: Number of queries or clusters drawn from, to widen the interval if there are few.

    Raises:
        ConfigError: The level is not between 0 and 1.
    """
    below = (1 - level) / 2
    if groups == 1:
        return -np.inf, np.inf  # nothing tells how far another one would be from it
    if groups is not None and groups > 1:
        from scipy.special import ndtr, stdtrit  # takes longer to import than all the rest of this package

        half_width = float(stdtrit(groups - 1, 1 - below) * np.sqrt(groups / (groups - 1)))
        if groups < FEW:
            centre, deviation = float(means.mean()), float(means.std())
            return centre - half_width * deviation, centre + half_width * deviation
        below = float(ndtr(-half_width))
    low, high = np.quantile(means, [below, 1 - below])
    return float(low), float(high)


def _within(interval: Interval, values: NDArray[np.float64]) -> Interval:
    """Return an interval within the bounds that means have: scores lie in [0, 1], their differences in [-1, 1]."""
    low, high = np.nanmin(values), np.nanmax(values)
    if low < -1 or high > 1:
        return interval
    return max(interval[0], 0.0 if low >= 0 else -1.0), min(interval[1], 1.0)


@checked
def clusters_of(
    classes: NDArray[np.int64] | None, resample: Resampled, units: str, protocol: str
) -> NDArray[np.int64] | None:
    """Return the clusters to draw: the class of every query, or None for single queries.

    Args:
        classes: Class of every query (Q,); None if queries have no classes.
        resample: "queries", "classes", or "auto": classes if several queries share one, and there are two or more.
        units: The protocol's name for queries.
        protocol: Name of the protocol.

    Raises:
        ConfigError: The value is unknown, or classes are requested but queries have none.

    >>> clusters_of(np.array([0, 0, 1]), "auto", "queries", "labels"), clusters_of(np.arange(3), "auto", "", "")
    (array([0, 0, 1]), None)
    """
    refuse(
        resample == "classes" and classes is None,
        f"Classes were to be drawn, and the {units} of the protocol '{protocol}' have none.",
        "--resample queries",
    )
    if resample == "queries" or classes is None:
        return None
    different = len(np.unique(classes))
    return classes if resample == "classes" or 1 < different < len(classes) else None


class Drawn(NamedTuple):
    """Unit of resampling, "queries" or "classes", and the number of units."""

    resample: str
    groups: int


def groups_drawn(values: NDArray[np.float64], clusters: NDArray[np.int64] | None) -> Drawn:
    """Return the unit of resampling and the number of units.

    Args:
        values: One per query (Q,); NaN for an excluded query.
        clusters: Return value of `clusters_of`.
    """
    counted = ~np.isnan(values)
    if clusters is None:
        return Drawn("queries", int(counted.sum()))
    return Drawn("classes", len(np.unique(clusters[counted])))


@checked
@dataclass(frozen=True)
class Draws:
    """Settings for resampling means over queries.

    Args:
        seed: Seed of the draws.
        clusters: Class of every query (Q,), to draw whole classes; None to draw single queries.

    Raises:
        ConfigError: Fewer than 1 resample, or a level that is not between 0 and 1.
    """

    resamples: PositiveInt = 2000
    level: Fraction = 0.95
    seed: Seed = 0
    clusters: NDArray[np.int64] | None = field(default=None, repr=False, compare=False)

    def intervals(self, columns: Mapping[_Name, ArrayLike]) -> dict[_Name, Interval]:
        """Return the interval of the mean of every column; see `mean_intervals`."""
        return mean_intervals(
            columns, resamples=self.resamples, level=self.level, seed=self.seed, clusters=self.clusters
        )

    def counting(self, values: NDArray[np.float64], resample: str) -> Draws:
        """Return the draws for the queries that have values: with "auto", single queries if all are of one class.

        Args:
            values: One per query (Q,); NaN for an excluded query.
            resample: Requested unit; see `clusters_of`.
        """
        one = self.clusters is not None and len(np.unique(self.clusters[~np.isnan(values)])) < 2
        return replace(self, clusters=None) if resample == "auto" and one else self

    def of(self, chosen: NDArray[np.bool_]) -> Draws:
        """Return how to resample a subset of the queries: single queries if the subset has few classes.

        Few classes do not generalise to others, but losses on them must still be reported.
        """
        clusters = None if self.clusters is None else self.clusters[chosen]
        few = clusters is not None and len(np.unique(clusters)) < FEW
        return replace(self, clusters=None if few else clusters)


def cluster_sums(
    columns: NDArray[np.float64], clusters: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the sums (G, S) of the columns (Q, S) over every cluster, and the sizes of the clusters (G,).

    Queries with a NaN in any column are left out. Without clusters every query is one.

    Raises:
        DataError: Lengths differ.
    """
    groups = np.arange(len(columns)) if clusters is None else np.asarray(clusters)
    if groups.shape != columns.shape[:1]:
        raise DataError(f"{groups.shape} clusters for {len(columns)} queries.", expected="one per query")
    kept = ~np.isnan(columns).any(axis=1)
    names, group = np.unique(groups[kept], return_inverse=True)
    sums = np.zeros((len(names), columns.shape[1]))
    np.add.at(sums, group, columns[kept])
    return sums, np.bincount(group, minlength=len(names)).astype(np.float64)


def _draws(groups: int, resamples: int, seed: int) -> Iterator[NDArray[np.float64]]:
    generator = np.random.default_rng(seed)
    for start in range(0, resamples, step := max(1, _DRAWS_AT_ONCE // groups)):
        counts = np.empty((min(step, resamples - start), groups))
        drawn = generator.integers(groups, size=counts.shape)
        rows = max(1, _COUNTED_AT_ONCE // groups)
        for first in range(0, len(counts), rows):
            part = drawn[first : first + rows] + groups * np.arange(min(rows, len(counts) - first))[:, None]
            counts[first : first + rows] = np.bincount(part.ravel(), minlength=part.size).reshape(part.shape)
        yield counts


RESAMPLES = 10_000  # the smallest p-value that can be found is then 0.0001

_SIGNS_AT_ONCE = 2_000_000  # bounds memory: 16 MB of signs
_ROUNDING = 1e-12  # sums nearer than this share of all differences are equal: they were added in another order


def p_values(
    differences: Mapping[_Name, ArrayLike],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> dict[_Name, float]:
    """Test several mean differences, such as those of several metrics, with the same flips for all.

    The p-value is (count + 1) / (resamples + 1), where count is how many drawn means are at least as far from zero as
    the one found: never 0, and valid for any number of resamples (Phipson and Smyth, 2010). Where all ways of choosing
    signs are at most ``resamples``, every way is taken once and the p-value is exact.

    Args:
        differences: One value per query (Q,) by name. A query with a NaN in any of them is left out of all.
        resamples: How many times to draw signs.
        seed: Seed of the draws.
        clusters: The group of every query (Q,), such as its class: whole groups flip together.

    Returns:
        One p-value per name; NaN where no query is left.

    Raises:
        ConfigError: Fewer than 1 resample, or nothing to test.
        DataError: Lengths differ.
    """
    if resamples < 1 or not differences:
        raise ConfigError(f"{resamples} resamples of {len(differences)} differences.", expected="at least 1 of each")
    columns = [np.asarray(values, np.float64) for values in differences.values()]
    shapes = {values.shape for values in columns}
    if len(shapes) > 1 or columns[0].ndim != 1:
        raise DataError(f"Differences of shapes {sorted(shapes)}.", expected="one value per query, the same queries")
    sums, sizes = cluster_sums(np.stack(columns, axis=1), clusters)
    if not len(sizes):
        return dict.fromkeys(differences, np.nan)
    return dict(zip(differences, _shares_as_far(sums, resamples, seed).tolist(), strict=True))


def _shares_as_far(sums: NDArray[np.float64], resamples: int, seed: int) -> NDArray[np.float64]:
    """Return for every column of sums of groups (G, S) the share of flips whose total is as far from zero (S,)."""
    moving = sums[(sums != 0).any(axis=1)]  # a sign before nothing changes nothing
    total = moving.sum(axis=0)
    enough = np.abs(total) - _ROUNDING * np.abs(moving).sum(axis=0)
    exact = len(moving) < 63 and 2 ** len(moving) <= resamples
    count = np.zeros(sums.shape[1])
    for turned in _every_choice(len(moving)) if exact else _drawn_choices(len(moving), resamples, seed):
        count += (np.abs(total - 2 * (turned @ moving)) >= enough).sum(axis=0)
    share: NDArray[np.float64] = count / 2 ** len(moving) if exact else (count + 1) / (resamples + 1)
    return share


def _every_choice(groups: int) -> Iterator[NDArray[np.float64]]:
    """Yield every way of turning groups: 1 where one is turned, (some ways, groups) at a time."""
    step = max(1, _SIGNS_AT_ONCE // max(1, groups))
    for start in range(0, 2**groups, step):
        ways = np.arange(start, min(start + step, 2**groups))
        yield (ways[:, None] >> np.arange(groups) & 1).astype(np.float64)


def _drawn_choices(groups: int, resamples: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """Yield random choices: 1 where a group is turned, (some resamples, groups) at a time."""
    generator = np.random.default_rng(seed)
    words = -(-groups // 64)  # whole words, so that the draws do not depend on how many are made at once
    step = max(1, _SIGNS_AT_ONCE // groups)
    for start in range(0, resamples, step):
        drawn = generator.integers(2**64, size=(min(step, resamples - start), words), dtype=np.uint64)
        yield np.unpackbits(drawn.view(np.uint8), axis=1, count=groups).astype(np.float64)
