"""True accept rates at a false accept rate, with three rules for the threshold, and parsing of metric names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from limpet.errors import ConfigError, nearest, unknown_name

Rule = Literal["nearest", "full", "strict"]
Scores = NDArray[np.float64]


def accepted_at(target: float, genuine: Scores, impostor: Scores, rule: Rule = "nearest") -> NDArray[np.bool_]:
    """Return which genuine pairs are accepted at a false accept rate (G,); their share is the true accept rate.

    The ROC curve begins at (0, 0) and has one point per distinct score: the shares of impostor pairs and of genuine
    pairs with at least this score. The rule selects a point; of equally good points, the one with the higher rates:

    - "nearest": the point with the false accept rate nearest to the target, among the corners of the curve. Points
      inside a straight segment with even steps are dropped, as by default in scikit-learn's ``roc_curve``, which the
      published code uses;
    - "full": the point with the false accept rate nearest to the target, among all points;
    - "strict": the last point with a false accept rate of at most the target.

    Args:
        target: The false accept rate, between 0 and 1.
        genuine: Scores of pairs of one person (G,).
        impostor: Scores of pairs of two persons, **descending** (N,), at least one.
        rule: Rule that selects the point.

    Raises:
        ConfigError: The rule is unknown.

    A rate of 0.25 is two of eight impostor pairs. Thresholds accept one or three of them, which are equally near; only
    one is at most two:

    >>> impostor = np.array([0.9, 0.6, 0.6, 0.5, 0.2, 0.2, 0.1, 0.0])
    >>> [accepted_at(0.25, np.array([0.95, 0.6, 0.55]), impostor, rule).tolist() for rule in ("full", "strict")]
    [[True, True, True], [True, False, False]]
    """
    if rule not in get_args(Rule):
        raise unknown_name("rule for the threshold", rule, get_args(Rule))
    if rule == "strict":  # the largest number of impostors whose share is at most the target
        ends = _ends(impostor)
        false = int(ends[: np.searchsorted(ends / len(impostor), target, "right")].max(initial=0))
    else:
        points = corners(genuine, impostor) if rule == "nearest" else _ends(impostor)
        false = _nearest(target, np.append(0, points), len(impostor))
    if false >= len(impostor):
        return np.ones(len(genuine), np.bool_)
    accepted: NDArray[np.bool_] = genuine > impostor[false]
    return accepted


def corners(genuine: Scores, impostor: Scores) -> NDArray[np.int64]:
    """Return the numbers of accepted impostors at which the ROC curve has a corner, int64 (n,), ascending.

    Every group of equal impostor scores adds one number of accepted impostors. Genuine scores between two groups add
    points with the same number; the last point of such a number is always a corner. A number with a single point is
    dropped if the step before the point and the step after it accept equally many impostors and equally many genuine
    pairs. The first and the last point are always kept.
    """
    ends = _ends(impostor)
    groups, sizes = len(ends), np.diff(ends, prepend=0)
    values, counts = np.unique(genuine, return_counts=True)
    above = len(impostor) - np.searchsorted(impostor[::-1], values, "right")  # number of impostors with a higher score
    after = np.searchsorted(ends, above, "right")  # the first group at or below each genuine score
    inside = np.append(impostor[ends - 1], -np.inf)[after] == values
    with_group, between = np.zeros(groups, np.int64), np.zeros(groups + 1, np.bool_)
    with_group[after[inside]] = counts[inside]
    between[after[~inside]] = True  # a point of genuine pairs alone lies after group j - 1 and before group j
    uneven = (np.diff(sizes) != 0) | (np.diff(with_group) != 0)
    kept = between[1:] | np.append(uneven, True)
    kept[0] |= not between[0]
    found: NDArray[np.int64] = ends[kept]
    return found


def _ends(impostor: Scores) -> NDArray[np.int64]:
    """Return the number of impostors that each distinct score accepts, ascending; the scores are descending."""
    return np.append(np.flatnonzero(impostor[1:] != impostor[:-1]) + 1, len(impostor))


def _nearest(target: float, counts: NDArray[np.int64], total: int) -> int:
    place = int(np.searchsorted(counts, target * total))
    around = counts[max(place - 2, 0) : place + 2]
    distances = np.abs(around / total - target)
    return int(around[len(around) - 1 - np.argmin(distances[::-1])])


def parsed(names: Sequence[str], rates: Sequence[str], places: Sequence[str] = ()) -> dict[str, tuple[str, float]]:
    """Return the kind and the number of every metric name.

    Args:
        names: Names of metrics, such as "tar@1e-4" or "rank@5".
        rates: Kinds with a rate, above 0 and at most 1.
        places: Kinds with a rank, a whole number of at least 1.

    Raises:
        ConfigError: There is no name, or a kind is unknown, or a number is out of range.

    >>> parsed(["tpir@1e-2", "rank@5"], ["tpir"], ["rank"])
    {'tpir@1e-2': ('tpir', 0.01), 'rank@5': ('rank', 5.0)}
    """
    if isinstance(names, str) or not names:
        raise ConfigError(f"Metrics {names!r}.", expected="a sequence of names", to_do="for one metric write a tuple.")
    return {name: _parsed(name, rates, places) for name in names}


def _parsed(name: str, rates: Sequence[str], places: Sequence[str]) -> tuple[str, float]:
    kind, _, written = name.partition("@")
    if kind in rates and re.fullmatch(r"(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", written) and 0 < float(written) <= 1:
        return kind, float(written)
    if kind in places and re.fullmatch(r"[1-9]\d*", written):
        return kind, float(written)
    examples = [*(f"{known}@1e-4" for known in rates), *(f"{known}@1" for known in places)]
    raise ConfigError(
        f"Unknown metric '{name}'.{nearest(name.lower(), examples)}",
        expected=f"names such as {', '.join(examples)}: rates are above 0 and at most 1, places are counted from 1"
        if places
        else f"names such as {', '.join(examples)}, with a rate above 0 and at most 1",
    )
