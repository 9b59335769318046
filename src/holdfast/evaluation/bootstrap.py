"""Intervals of means over queries, by resampling queries.

All systems are resampled with the same queries, so that what is common to them cancels in a difference. Queries of
one class are correlated; resampling single queries then gives intervals that are too narrow for the question "what
about other classes?". Pass the class of every query as ``clusters`` to resample whole classes instead.

Written here because the usual routines evaluate a statistic once per resample: a product of counts with the values
does all resamples of all systems at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import ConfigError, DataError

Interval = tuple[float, float]
Name = TypeVar("Name", bound=Hashable)

_DRAWS_AT_ONCE = 2_000_000  # bounds memory: 16 MB of counts and as much of drawn rows


def resampled_means(
    values: ArrayLike, *, resamples: int = 2000, seed: int = 0, clusters: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Return the means (resamples, S) of S systems over resampled queries, the same queries for all systems.

    Args:
        values: One row per query, one column per system, (Q, S) or (Q,). Rows with a NaN anywhere are left out.
        resamples: How many times to draw as many queries as there are, with replacement.
        seed: Seed of the draws.
        clusters: Draw whole groups of queries instead, such as classes: the group of every query (Q,).

    Returns:
        NaN throughout where no query is left.

    Raises:
        ConfigError: Fewer than 1 resample.
        DataError: Lengths differ.
    """
    if resamples < 1:
        raise ConfigError(f"{resamples} resamples.", expected="at least 1")
    columns = np.asarray(values, np.float64)
    columns = columns[:, None] if columns.ndim == 1 else columns
    sums, sizes = cluster_sums(columns, clusters)
    if not len(sizes):
        return np.full((resamples, columns.shape[1]), np.nan)
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
    """Return the percentile interval of the mean over queries; see `resampled_means` for the arguments.

    >>> mean_interval([0.25, 0.25])
    (0.25, 0.25)
    """
    return percentile_interval(resampled_means(values, resamples=resamples, seed=seed, clusters=clusters)[:, 0], level)


def mean_intervals(
    columns: Mapping[Name, ArrayLike],
    *,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> dict[Name, Interval]:
    """Return the percentile interval of the mean of every column, over the same resampled queries for all.

    A query with a NaN in any column is left out of all. For the interval of a difference pass the differences as a
    column of their own. The other arguments are those of `mean_interval`.
    """
    values = np.stack([np.asarray(column, np.float64) for column in columns.values()], axis=1)
    means = resampled_means(values, resamples=resamples, seed=seed, clusters=clusters)
    return {name: percentile_interval(column, level) for name, column in zip(columns, means.T, strict=True)}


def percentile_interval(means: NDArray[np.float64], level: float = 0.95) -> Interval:
    """Return the central interval that holds this share of the resampled means (resamples,).

    Raises:
        ConfigError: The level is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise ConfigError(f"An interval at level {level:g}.", expected="a level between 0 and 1, such as 0.95")
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


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
    """Yield how often each group was drawn, (some resamples, groups) at a time."""
    generator = np.random.default_rng(seed)
    for start in range(0, resamples, step := max(1, _DRAWS_AT_ONCE // groups)):
        counts = np.empty((min(step, resamples - start), groups))
        for row, drawn in zip(counts, generator.integers(groups, size=counts.shape), strict=True):
            row[:] = np.bincount(drawn, minlength=groups)
        yield counts
