"""Could a mean difference between two systems be chance: the paired permutation test, which flips signs.

If two systems are equally good, the difference of a query could as well have had the other sign. The p-value is the
share of all ways of choosing signs whose mean is at least as far from zero as the one found (two-sided). Queries of
one class are correlated: pass the class of every query as ``clusters``, and whole classes flip together.

Written here because the usual routine evaluates a statistic once per resample: a product of signs with the differences
does all resamples of all metrics at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import ConfigError, DataError
from holdfast.evaluation.bootstrap import Name, cluster_sums

RESAMPLES = 10_000  # the smallest p-value that can be found is then 0.0001

_SIGNS_AT_ONCE = 2_000_000  # bounds memory: 16 MB of signs
_ROUNDING = 1e-12  # sums nearer than this share of all differences are equal: they were added in another order


def paired_p_value(
    first: ArrayLike,
    second: ArrayLike,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> float:
    """Return the two-sided p-value of mean(first) - mean(second) for the same queries; see `p_values`.

    Of the 4 ways to choose two signs, 2 give a mean as far from zero as 0.5:

    >>> paired_p_value([1.0, 0.75], [0.5, 0.25])
    0.5
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.shape != b.shape:
        raise DataError(f"{a.shape} and {b.shape} values.", expected="the same queries on both sides")
    return p_values({"difference": a - b}, resamples=resamples, seed=seed, clusters=clusters)["difference"]


def p_values(
    differences: Mapping[Name, ArrayLike],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    clusters: ArrayLike | None = None,
) -> dict[Name, float]:
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
    sums, sizes = cluster_sums(_columns(differences), clusters)
    if not len(sizes):
        return dict.fromkeys(differences, np.nan)
    return dict(zip(differences, _shares_as_far(sums, resamples, seed).tolist(), strict=True))


def _columns(differences: Mapping[Name, ArrayLike]) -> NDArray[np.float64]:
    columns = [np.asarray(values, np.float64) for values in differences.values()]
    shapes = {values.shape for values in columns}
    if len(shapes) > 1 or columns[0].ndim != 1:
        raise DataError(f"Differences of shapes {sorted(shapes)}.", expected="one value per query, the same queries")
    return np.stack(columns, axis=1)


def _shares_as_far(sums: NDArray[np.float64], resamples: int, seed: int) -> NDArray[np.float64]:
    """Return for every column of sums of groups (G, S) the share of flips whose total is as far from zero (S,)."""
    moving = sums[(sums != 0).any(axis=1)]  # a sign before nothing changes nothing
    found = moving.sum(axis=0)
    enough = np.abs(found) - _ROUNDING * np.abs(moving).sum(axis=0)
    exact = len(moving) < 63 and 2 ** len(moving) <= resamples
    count = np.zeros(sums.shape[1])
    for turned in _every_choice(len(moving)) if exact else _drawn_choices(len(moving), resamples, seed):
        count += (np.abs(found - 2 * (turned @ moving)) >= enough).sum(axis=0)
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
