"""Exemplars: the few images that later sessions see again, under one budget shared by all sessions.

Candidates are the images of a session with the exemplars kept so far; the memory is chosen anew after every session.
Every choice takes the labels of the candidates, int64 (N,), and a quota per class, and returns row numbers into them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.data.choosing import generator_of, lowest_of_each_class
from holdfast.data.image_rules import Labels, Rows
from holdfast.errors import refuse

_SAME = 1e-6  # distances nearer than this are a tie, such as those of two images to their mean, whatever the rounding


def quotas(labels: Labels, budget: int, *, fill: bool = False, seed: int = 0) -> NDArray[np.int64]:
    """Divide a budget among the classes that have candidates.

    Every class gets budget // classes, at most what it has; the released CVS code leaves the rest of the budget
    unused. With ``fill``, or where there are more classes than slots, the rest goes round, one to every class that
    has more candidates, and in the last round to classes drawn at random (Rainbow Memory fills at random; Product-M
    has 3,000 slots for 2,743 classes).

    Args:
        labels: Class of every candidate (N,).
        budget: Images to keep in all, at least 1.
        fill: Whether to spend what is left over.
        seed: Draws the classes of the last round.

    Returns:
        Images to keep of every class, int64 (largest label + 1,); their sum is at most the budget.

    >>> quotas(np.repeat([0, 1, 3], [9, 1, 9]), 10).tolist()
    [3, 1, 0, 3]
    >>> quotas(np.repeat([0, 1, 3], [9, 1, 9]), 11, fill=True).tolist()
    [5, 1, 0, 5]
    """
    refuse(budget < 1, f"budget = {budget}.", "at least 1 image")
    available, generator = np.bincount(labels), generator_of(seed)
    even = budget // max(1, int((available > 0).sum()))
    kept = np.minimum(available, even)
    while (fill or even == 0) and (left := min(budget, len(labels)) - int(kept.sum())) > 0:
        has_more = generator.permutation(np.flatnonzero(kept < available))
        kept[has_more[:left]] += np.minimum((available - kept)[has_more[:left]], max(1, left // len(has_more)))
    return kept


def herding(vectors: NDArray[np.floating[Any]], labels: Labels, wanted: NDArray[np.int64]) -> Rows:
    """Choose exemplars whose mean stays closest to the mean of their class (iCaRL, arXiv:1611.07725, Algorithm 4).

    Pick k of a class is argmin_x ‖μ - (S + x) / k‖, S being the sum of the earlier picks, over unit vectors; μ is not
    normalised again and ties go to the first row. CVS writes of "random neighbours around the mean"; its released
    code does this. All classes pick at once: O(picks · N · D).

    Args:
        vectors: Embeddings of the candidates (N, D), of any length.
        labels: Class of every candidate (N,).
        wanted: Images to choose of every class (largest label + 1,), at most all it has; see `quotas`.

    Returns:
        Rows class by class, each class in the order of choice, so that its first ones are the best of any smaller
        number.

    >>> herding(np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), np.array([0, 0, 0]), np.array([2])).tolist()
    [2, 0]
    """
    _check(labels, wanted)
    candidates = np.argsort(labels, kind="stable")
    unit = _unit(vectors)
    means = _class_means(unit, labels, len(wanted))
    sums, picks = np.zeros_like(means), []
    for pick in range(1, int(wanted.max(initial=0)) + 1):
        candidates = candidates[wanted[labels[candidates]] >= pick]
        if len(candidates) == 0:
            break
        own = labels[candidates]
        distances = np.linalg.norm((means - sums / pick)[own] - unit[candidates] / pick, axis=1)
        nearest = _first_of_lowest(distances, own)
        rows = candidates[nearest]
        sums[labels[rows]] += unit[rows]
        picks.append(rows)
        candidates = np.delete(candidates, nearest)
    return _class_by_class(picks, labels)


def random_exemplars(labels: Labels, wanted: NDArray[np.int64], seed: int) -> Rows:
    """Choose exemplars at random, ascending; of every class so many as wanted, or all it has."""
    _check(labels, wanted)
    return lowest_of_each_class(labels, generator_of(seed).random(len(labels)), wanted)


def vote_uncertainty(predictions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return 1 - (votes of the most frequent class) / A over A perturbed copies of an image (Rainbow Memory, Eq. 3).

    Args:
        predictions: Class predicted for every image and copy, int64 (N, A), A at least 1.

    Returns:
        Uncertainty of every image (N,), from 0 to 1 - 1 / A.

    >>> vote_uncertainty(np.array([[4, 4, 4, 4], [1, 2, 1, 3]])).tolist()
    [0.0, 0.5]
    """
    refuse(
        predictions.ndim != 2 or predictions.shape[1] < 1,
        f"Predictions of shape {predictions.shape}.",
        "(images, perturbed copies), with one copy or more",
    )
    votes = (predictions[:, :, None] == predictions[:, None, :]).sum(axis=2)
    uncertainty: NDArray[np.float64] = 1 - votes.max(axis=1) / predictions.shape[1]
    return uncertainty


def spread_by_uncertainty(uncertainty: NDArray[np.floating[Any]], labels: Labels, wanted: NDArray[np.int64]) -> Rows:
    """Choose exemplars from the most certain to the least (Rainbow Memory, CVPR 2021, arXiv:2103.17230, Section 4.1).

    The candidates of a class are sorted by rising uncertainty, and of n of them every (n // wanted)-th is taken,
    beginning with the most certain; ties keep the order of the rows.

    Args:
        uncertainty: Of every candidate (N,), such as `vote_uncertainty`.
        labels: Class of every candidate (N,).
        wanted: Images to choose of every class (largest label + 1,).

    Returns:
        Rows class by class, each class by rising uncertainty; all it has where that is not more than wanted.

    >>> spread_by_uncertainty(np.array([0.5, 0.1, 0.9, 0.3]), np.array([0, 0, 0, 0]), np.array([2])).tolist()
    [1, 0]
    """
    _check(labels, wanted)
    counts = np.bincount(labels, minlength=len(wanted))
    order = np.lexsort((uncertainty, labels))
    own = labels[order]
    rank = np.arange(len(labels)) - (np.cumsum(counts) - counts)[own]
    stride = np.maximum(1, counts // np.maximum(1, wanted))[own]
    rows: Rows = order[(rank % stride == 0) & (rank // stride < wanted[own])]
    return rows


def _check(labels: Labels, wanted: NDArray[np.int64]) -> None:
    classes = int(labels.max(initial=-1)) + 1
    refuse(
        len(wanted) < classes or bool((wanted < 0).any()),
        f"Quotas of {len(wanted)} classes for labels up to {classes - 1}.",
        "0 or more for every label",
    )


def _unit(vectors: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.floating[Any]] = vectors / np.maximum(lengths, 1e-12)
    return unit


def _class_means(unit: NDArray[np.floating[Any]], labels: Labels, classes: int) -> NDArray[np.floating[Any]]:
    sums = np.zeros((classes, unit.shape[1]), unit.dtype)
    np.add.at(sums, labels, unit)
    return sums / np.maximum(1, np.bincount(labels, minlength=classes))[:, None].astype(unit.dtype)


def _first_of_lowest(values: NDArray[np.floating[Any]], groups: Labels) -> Rows:
    """Return, for every group of a sorted list, the first place of its lowest value, up to rounding."""
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    lowest = np.repeat(np.minimum.reduceat(values, starts), np.diff(starts, append=len(groups)))
    places = np.where(values <= lowest + _SAME, np.arange(len(values)), len(values))
    return np.minimum.reduceat(places, starts)


def _class_by_class(picks: list[Rows], labels: Labels) -> Rows:
    rows = np.concatenate(picks) if picks else np.empty(0, np.int64)
    return rows[np.argsort(labels[rows], kind="stable")]
