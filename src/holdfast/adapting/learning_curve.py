"""How many pairs a link needs: the same candidate, fitted on more and more of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.adapting.candidates import Candidate, cross_of, draws_of, metric_for, score_by
from holdfast.adapting.comparison import Mean, Values, means_of
from holdfast.adapting.held_out import HeldOut
from holdfast.errors import HoldfastError, refuse
from holdfast.evaluation.intervals import Draws, Resampled

FIRST_SIZE = 64
NEGLIGIBLE = 0.005  # of the metric: half a point
_PLAIN = 0.02  # a loss that counts although few queries leave open whether it is chance


@dataclass(frozen=True)
class LearningCurve:
    """Cross scores of one candidate, by the number of pairs it was fitted on.

    Args:
        candidate: Its name.
        points: Number of pairs and cross score, ascending; those that it cannot be fitted on are left out.
        enough: The fewest pairs from which on no size is two points worse than all pairs, or was shown to be half a
            point worse; None where every smaller size is, so that even more pairs may help, or where it cannot be
            fitted on all.
    """

    candidate: str
    points: tuple[tuple[int, Mean], ...]
    enough: int | None


def learning_curve(
    candidate: Candidate,
    held_out: HeldOut,
    *,
    sizes: Sequence[int] | None = None,
    metric: str | None = None,
    resamples: int = 2000,
    resample: Resampled = "auto",
    level: float = 0.95,
    seed: int = 0,
) -> LearningCurve:
    """Fit a candidate on random subsets of the pairs, each within the next, and measure all on the same held-out items.

    Args:
        candidate: What to fit.
        held_out: What to fit on and what to measure with.
        sizes: How many pairs to fit on, in any order; all pairs come in addition, and larger numbers are left out. By
            default 64, 128, 256 and so on.
        metric: See `candidates.measure`.
        resamples: Bootstrap resamples.
        resample: See `candidates.measure`.
        level: Level of the intervals.
        seed: Seed of the subsets and of the bootstrap.

    Raises:
        ConfigError: A size is below 1, or an option is wrong.
        DataError: The metric needs labels, and there are none.
    """
    draws, pairs = draws_of(held_out, resamples, level, seed, resample), len(held_out.fit_old)
    refuse(min(sizes or [1]) < 1, f"A size of {min(sizes or [1])} pairs.", "at least 1")
    metric = metric_for(held_out, metric)
    score = score_by([metric], held_out)
    order = np.random.default_rng(seed).permutation(pairs)
    values: dict[int, Values] = {}
    for size in sizes_up_to(pairs, sizes):
        rows = np.sort(order[:size])
        try:
            link = candidate.fit(held_out.fit_old.select(rows), held_out.fit_new.select(rows))
            values[size] = cross_of(link, held_out, score)[metric]
        except HoldfastError:
            continue
    means = means_of(values, draws) if values else {}
    return LearningCurve(candidate.name, tuple(means.items()), _enough(values, pairs, draws))


def sizes_up_to(pairs: int, sizes: Sequence[int] | None = None) -> list[int]:
    """Return the sizes below the number of pairs, ascending, and that number.

    >>> sizes_up_to(300), sizes_up_to(64), sizes_up_to(300, [400, 20])
    ([64, 128, 256, 300], [64], [20, 300])
    """
    if sizes is None:
        sizes = [FIRST_SIZE * 2**step for step in range(max(1, pairs).bit_length())]
    return [*sorted({size for size in sizes if size < pairs}), pairs]


def _enough(values: dict[int, Values], pairs: int, draws: Draws) -> int | None:
    if len(values) < 2 or pairs not in values:
        return None
    losses = means_of({size: values[pairs] - cross for size, cross in values.items() if size < pairs}, draws)
    enough = None
    for size, loss in sorted(losses.items(), reverse=True):
        if loss.mean >= NEGLIGIBLE and (loss.above_zero or loss.mean >= _PLAIN):
            break
        enough = size
    return enough
