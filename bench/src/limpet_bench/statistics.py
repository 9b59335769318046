"""Statistics of a leaderboard: means over seeds, ranks over cells, significance tests, and the Pareto front.

A *cell* is a data set with a scenario, such as Omniglot with new classes. A *label* is what is ranked: a method with
its options. Ranks are compared because scores of different cells are not comparable: a difference of 0.01 is large in
one cell and small in another (Demšar, "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 7, 2006).

A label without all its runs in a cell, because one failed or was not made, has the value NaN there. It shares the last
ranks of the cell, because a mean over the other seeds would reward a failure.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limpet.errors import ConfigError, DataError
from limpet_bench.leaderboard import Run, SeedMean

Key = tuple[str, str, str]  # data, scenario, label

LEVEL = 0.05
RESAMPLES = 10_000  # the smallest possible p-value is then about 0.0001

_AT_ONCE = 2_000_000  # ranks shuffled at once: 16 MB
_ROUNDING = 1e-9  # statistics closer than this are equal: they may differ by the order of summation


class Friedman(NamedTuple):
    """Result of the Friedman test of the hypothesis that all labels are equally good.

    Args:
        chi_square: Friedman's statistic (Demšar, section 3.2.2).
        f: The statistic of Iman and Davenport, which is less conservative; infinite if all cells have the same order.
        f_p_value: The p-value of ``f``, valid only for many cells (Demšar: more than ten).
        p_value: Share of random permutations that agree at least as much; also valid for few cells.
        cells: Number of rows of ranks: cells, or data sets if the cells of each were pooled.
        labels: Number of labels.
    """

    chi_square: float
    f: float
    f_p_value: float
    p_value: float
    cells: int
    labels: int


def mean_over_seeds(values: ArrayLike) -> SeedMean | None:
    """Return mean and standard deviation of the values (S,) that are not NaN; None if all are.

    The deviation is that of a sample (divisor S - 1); None for a single value.

    >>> mean_over_seeds([0.25, 0.75, float("nan")])
    SeedMean(mean=0.5, deviation=0.3535533905932738, seeds=2)
    >>> mean_over_seeds([0.5])
    SeedMean(mean=0.5, deviation=None, seeds=1)
    """
    found = np.asarray(values, np.float64).ravel()
    found = found[~np.isnan(found)]
    if not len(found):
        return None
    deviation = float(found.std(ddof=1)) if len(found) > 1 else None
    return SeedMean(mean=float(found.mean()), deviation=deviation, seeds=len(found))


def seed_means(rows: Sequence[Run], measure: str) -> dict[Key, SeedMean | None]:
    """Return mean and standard deviation over seeds for every (data, scenario, label), in the order of the rows.

    Raises:
        DataError: Two runs have the same data, scenario, label and seed.
    """
    values: dict[Key, list[float]] = {}
    seen: set[Hashable] = set()
    for row in rows:
        key = (row.data, row.scenario, row.label)
        if (key, row.seed) in seen:
            raise DataError(
                f"Two runs of {', '.join(key)} with seed {row.seed}.",
                expected="one run of a label per data set, scenario and seed",
                to_do="give methods that differ in options labels that differ.",
            )
        seen.add((key, row.seed))
        values.setdefault(key, []).append(row.number(measure))
    return {key: mean_over_seeds(found) for key, found in values.items()}


def cell_ranks(values: ArrayLike, *, higher_is_better: bool = True) -> NDArray[np.float64]:
    """Rank the labels of every cell: 1 is best, and equal values share the mean of their ranks.

    Args:
        values: One row per cell and one column per label, (N, k). NaN is worse than any number; several NaN share the
            last ranks. So the ranks of a cell always add up to k (k + 1) / 2.
        higher_is_better: Whether the highest value has rank 1.

    Returns:
        Ranks (N, k), each in [1, k].

    Raises:
        DataError: The values do not have two dimensions, or one is infinite.

    >>> cell_ranks([[0.5, 0.25, 0.5, float("nan")]]).tolist()
    [[1.5, 3.0, 1.5, 4.0]]
    """
    from scipy.stats import rankdata

    found = np.asarray(values, np.float64)
    if found.ndim != 2 or np.isinf(found).any():
        raise DataError(f"Values of shape {found.shape}.", expected="(cells, labels), finite or NaN")
    badness = np.where(np.isnan(found), np.inf, -found if higher_is_better else found)
    if not found.size:
        return np.empty(found.shape)
    return np.asarray(rankdata(badness, axis=1), np.float64)


def ranks_by_data_set(ranks: ArrayLike, data: Sequence[Hashable]) -> NDArray[np.float64]:
    """Return ranks with one row per data set: labels are ranked by their mean rank over its cells.

    Scenarios of one data set, and test sets for the same models, share images, splits and often an old model. So they
    rank labels similarly. The tests below ask how often *independent* rankings would agree as much. Without this
    pooling, such cells would count as independent evidence, and chance could look like a difference (Demšar, section 3:
    N data sets).

    Args:
        ranks: Ranks (N, k) from `cell_ranks`.
        data: Data set that the models of every cell were trained on, (N,).

    Returns:
        Ranks (data sets, k), in the order of their first cells, each in [1, k].

    >>> ranks_by_data_set([[1, 2], [1, 2], [2, 1]], ["a", "a", "b"]).tolist()
    [[1.0, 2.0], [2.0, 1.0]]
    """
    found = np.asarray(ranks, np.float64)
    rows = {name: [row for row, one in enumerate(data) if one == name] for name in dict.fromkeys(data)}
    if len(rows) == len(found):
        return found
    return cell_ranks([found[cells].mean(axis=0) for cells in rows.values()], higher_is_better=False)


def friedman(ranks: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> Friedman:
    """Test whether labels differ, by their ranks in cells (Friedman 1937; Demšar, section 3.2.2).

    With R_j the average rank of label j over N cells and k labels::

        chi_square = 12 N / (k (k + 1)) (sum_j R_j^2 - k (k + 1)^2 / 4)
        f = (N - 1) chi_square / (N (k - 1) - chi_square)       with k - 1 and (k - 1)(N - 1) degrees of freedom

    as printed, without a correction for ties. Both distributions are valid for many cells, but a bench has few. If two
    cells rank three labels in the same order, ``f`` is infinite, although chance does this one time in six. So ranks
    are also shuffled within every cell, and ``p_value`` is (count + 1) / (resamples + 1), never 0 (Phipson and Smyth,
    2010).

    Args:
        ranks: Ranks (N, k) whose rows are independent of one another; see `ranks_by_data_set`.
        resamples: Number of shuffles.
        seed: Random seed of the shuffles.

    Raises:
        ConfigError: Fewer than 2 cells or 2 labels, or fewer than 1 resample.
    """
    from scipy.stats import f as f_distribution

    found = np.asarray(ranks, np.float64)
    if found.ndim != 2 or min(found.shape) < 2 or resamples < 1:
        raise ConfigError(
            f"Ranks of shape {found.shape}, {resamples} resamples.",
            expected="ranks of at least 2 labels in at least 2 cells: how much orders agree takes two of them",
        )
    cells, labels = found.shape
    chi_square = float(_chi_square(found.mean(axis=0), cells))
    rest = cells * (labels - 1) - chi_square
    f = (cells - 1) * chi_square / rest if rest > _ROUNDING else float("inf")
    f_p_value = float(f_distribution.sf(f, labels - 1, (labels - 1) * (cells - 1)))
    return Friedman(chi_square, f, f_p_value, _share_as_large(found, chi_square, resamples, seed), cells, labels)


def _chi_square(average: NDArray[np.float64], cells: int) -> NDArray[np.float64]:
    labels = average.shape[-1]
    spread: NDArray[np.float64] = ((average - (labels + 1) / 2) ** 2).sum(axis=-1)  # the bracket, without cancellation
    statistic: NDArray[np.float64] = 12 * cells / (labels * (labels + 1)) * spread
    return statistic


def _share_as_large(ranks: NDArray[np.float64], least: float, resamples: int, seed: int) -> float:
    generator = np.random.default_rng(seed)
    count = 0
    for start in range(0, resamples, step := max(1, _AT_ONCE // ranks.size)):
        drawn = np.broadcast_to(ranks, (min(step, resamples - start), *ranks.shape))
        shuffled = generator.permuted(drawn, axis=2)
        count += int((_chi_square(shuffled.mean(axis=1), len(ranks)) >= least - _ROUNDING).sum())
    return (count + 1) / (resamples + 1)


def critical_difference(labels: int, cells: int, *, level: float = LEVEL) -> float:
    """Return the smallest significant difference of average ranks (Nemenyi 1963; Demšar, section 3.2.2).

    CD = q sqrt(k (k + 1) / (6 N)), where q is the quantile of the Studentized range for k groups and infinitely many
    degrees of freedom, divided by sqrt(2).

    Args:
        labels: Number of labels k; all pairs are compared.
        cells: Number of independent rows N of ranks.
        level: Significance level: the probability of any significant difference if no labels differ.

    Raises:
        ConfigError: Fewer than 2 labels or 1 cell, or a level not between 0 and 1.
    """
    from scipy.stats import studentized_range

    if labels < 2 or cells < 1 or not 0 < level < 1:
        raise ConfigError(
            f"{labels} labels in {cells} cells at level {level:g}.",
            expected="at least 2 labels, at least 1 cell and a level between 0 and 1, such as 0.05",
        )
    q = studentized_range.ppf(1 - level, labels, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(labels * (labels + 1) / (6 * cells)))


def indistinct_groups(average_ranks: ArrayLike, difference: float) -> list[list[int]]:
    """Return the groups of labels that the bars of a critical-difference diagram connect (Demšar, section 3.2.4).

    Args:
        average_ranks: Average ranks of the labels (k,).
        difference: Critical difference, from `critical_difference`; ranks at least this far apart differ significantly.

    Returns:
        Positions of the labels of every group, best first. A group is maximal and has at least two labels. Its best
        and worst ranks differ by less than the critical difference.

    >>> indistinct_groups([2.0, 3.5, 1.0, 2.75], 1.5)
    [[2, 0], [0, 3], [3, 1]]
    """
    ranks = np.asarray(average_ranks, np.float64)
    order = np.argsort(ranks, kind="stable")
    groups, reached = [], 0
    for first in range(len(order)):
        last = first
        while last + 1 < len(order) and ranks[order[last + 1]] - ranks[order[first]] < difference:
            last += 1
        if last > first and last + 1 > reached:
            groups.append(order[first : last + 1].tolist())
            reached = last + 1
    return groups


def pareto_front(points: ArrayLike) -> NDArray[np.bool_]:
    """Return a mask of the points that no other point dominates.

    A point dominates another if it is at least as large in every coordinate and larger in one. Equal points get the
    same value. A point with a NaN is never in the front and dominates nothing.

    Args:
        points: Points (n, d), such as P_comp and P_up; larger is better in every coordinate.

    Returns:
        Mask (n,) of the Pareto front.

    Raises:
        DataError: The points do not have two dimensions.

    >>> pareto_front([[0.5, 0.25], [0.25, 0.5], [0.25, 0.25]]).tolist()
    [True, True, False]
    """
    found = np.asarray(points, np.float64)
    if found.ndim != 2:
        raise DataError(f"Points of shape {found.shape}.", expected="(points, coordinates)")
    at_least = (found[:, None] >= found[None]).all(axis=2)  # comparisons with NaN are false
    beyond = (found[:, None] > found[None]).any(axis=2)
    dominated = (at_least & beyond).any(axis=0)
    return np.asarray(~np.isnan(found).any(axis=1) & ~dominated)
