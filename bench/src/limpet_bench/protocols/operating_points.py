"""Rates of true accepts at a rate of false accepts: which threshold a target stands for, under three readings."""

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

    A ROC curve has one point per distinct score: the shares of impostor and of genuine pairs that score at least as
    much; it begins at (0, 0). The point taken is, with ties going to the higher rates,

    - "nearest": the one whose false accept rate is nearest to the target, among the corners of the curve; points of
      a straight piece with even steps are dropped, as scikit-learn's ``roc_curve`` does by default, hence as published;
    - "full": the nearest among all points;
    - "strict": the last one whose false accept rate is at most the target.

    Args:
        target: The false accept rate, between 0 and 1.
        genuine: Scores of pairs of one person (G,).
        impostor: Scores of pairs of two persons, **descending** (N,), at least one.
        rule: Which point is taken.

    Thresholds let in one or three of eight impostor pairs, both as near to two; only one is at most two:

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
    """Return the numbers of accepted impostors, ascending, at which the ROC curve has a corner.

    For each number only its last point matters, which is a corner wherever another point has the same number. The
    numbers are those of groups of equal impostor scores; a group's only point is dropped where the step before and
    the step after it accept as many impostors and as many genuine pairs. The first and last point always stay.
    """
    ends = _ends(impostor)
    groups, sizes = len(ends), np.diff(ends, prepend=0)
    values, counts = np.unique(genuine, return_counts=True)
    above = len(impostor) - np.searchsorted(impostor[::-1], values, "right")  # impostors that score more
    after = np.searchsorted(ends, above, "right")  # the first group at or below each genuine score
    inside = np.append(impostor[ends - 1], -np.inf)[after] == values
    with_group, between = np.zeros(groups, np.int64), np.zeros(groups + 1, np.bool_)
    with_group[after[inside]] = counts[inside]
    between[after[~inside]] = True  # after group j - 1 and before group j, there is a point of genuine pairs alone
    uneven = (np.diff(sizes) != 0) | (np.diff(with_group) != 0)
    kept = between[1:] | np.append(uneven, True)
    kept[0] |= not between[0]
    found: NDArray[np.int64] = ends[kept]
    return found


def _ends(impostor: Scores) -> NDArray[np.int64]:
    """Return how many impostors each distinct score accepts, ascending; the scores descend."""
    return np.append(np.flatnonzero(impostor[1:] != impostor[:-1]) + 1, len(impostor))


def _nearest(target: float, counts: NDArray[np.int64], total: int) -> int:
    place = int(np.searchsorted(counts, target * total))
    around = counts[max(place - 2, 0) : place + 2]
    distances = np.abs(around / total - target)
    return int(around[len(around) - 1 - np.argmin(distances[::-1])])


def parsed(names: Sequence[str], rates: Sequence[str], places: Sequence[str] = ()) -> dict[str, tuple[str, float]]:
    """Return the kind and the number of every metric.

    Args:
        names: Metrics, such as "tar@1e-4" or "rank@5".
        rates: Kinds whose number is a rate, above 0 and at most 1.
        places: Kinds whose number is a whole one, from 1.

    Raises:
        ConfigError: No names, an unknown kind, or another number.

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
