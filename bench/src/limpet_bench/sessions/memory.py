"""Exemplars: the images kept for replay in later sessions, within one budget for all sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from limpet import Release, embed_images
from limpet.data import ImageSet, Labels, RowNumbers, encoding_loader, generator_at, generator_of, lowest_of_each_class
from limpet.errors import ConfigError, refuse
from limpet.methods import Batch, View
from limpet.training import encoded_batches
from limpet_bench.sessions.perturbations import PERTURBATIONS

_SAME = 1e-6  # distances closer than this are a tie: two images are equally far from their mean, up to rounding


def quotas(labels: Labels, budget: int, *, fill: bool = False, seed: int = 0) -> NDArray[np.int64]:
    """Divide a budget among the classes that have candidates.

    Every class gets budget // classes, at most its number of candidates; as in the released CVS code, the rest of the
    budget stays unused. With ``fill``, or if there are more classes than slots, the rest is divided evenly among the
    classes with further candidates, and the last slots go to classes drawn at random (Rainbow Memory fills at random;
    Product-M has 3,000 slots for 2,743 classes).

    Args:
        labels: Class of every candidate (N,).
        budget: Total number of images to keep, at least 1.
        fill: Whether to use the rest of the budget.
        seed: Random seed for the classes that get the last slots.

    Returns:
        Number of images to keep of every class, int64 (largest label + 1,); the sum is at most the budget.

    Raises:
        ConfigError: The budget is below 1.

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


def herding(vectors: NDArray[np.floating[Any]], labels: Labels, wanted: NDArray[np.int64]) -> RowNumbers:
    """Choose exemplars whose mean stays closest to the mean of their class (iCaRL, arXiv:1611.07725, Algorithm 4).

    Vectors are scaled to unit length. Pick k of a class is argmin_x ‖μ - (S + x) / k‖, where S is the sum of the
    earlier picks and μ the mean of the class, which is not normalised again. Ties go to the first row. The CVS paper
    says "random neighbours around the mean", but its released code does this. All classes pick at once:
    O(picks · N · D).

    Args:
        vectors: Embeddings of the candidates (N, D), of any length.
        labels: Class of every candidate (N,).
        wanted: Number of images to choose of every class (largest label + 1,); at most all are chosen. See `quotas`.

    Returns:
        Rows class by class, each class in the order of choice: the first n rows of a class are its choice for n.

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
    rows = np.concatenate([np.empty(0, np.int64), *picks])
    return rows[np.argsort(labels[rows], kind="stable")]


def random_exemplars(labels: Labels, wanted: NDArray[np.int64], seed: int) -> RowNumbers:
    """Choose `wanted` exemplars of every class at random, or all it has; return their rows in ascending order."""
    _check(labels, wanted)
    return lowest_of_each_class(labels, generator_of(seed).random(len(labels)), wanted)


def vote_uncertainty(predictions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return 1 - (votes for the most frequent class) / A over A perturbed copies of an image (Rainbow Memory, Eq. 3).

    Args:
        predictions: Class predicted for every image and copy, int64 (N, A), A at least 1.

    Returns:
        Uncertainty of every image (N,), in [0, 1 - 1 / A].

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


def spread_by_uncertainty(
    uncertainty: NDArray[np.floating[Any]], labels: Labels, wanted: NDArray[np.int64]
) -> RowNumbers:
    """Choose exemplars from the most certain to the least (Rainbow Memory, CVPR 2021, arXiv:2103.17230, Section 4.1).

    The n candidates of a class are sorted by rising uncertainty; ties keep the order of the rows. Every
    (n // wanted)-th one is chosen, beginning with the most certain.

    Args:
        uncertainty: Uncertainty of every candidate (N,), such as from `vote_uncertainty`.
        labels: Class of every candidate (N,).
        wanted: Number of images to choose of every class (largest label + 1,).

    Returns:
        Rows class by class, each class by rising uncertainty; all rows of a class that has at most `wanted`.

    >>> spread_by_uncertainty(np.array([0.5, 0.1, 0.9, 0.3]), np.array([0, 0, 0, 0]), np.array([2])).tolist()
    [1, 0]
    """
    _check(labels, wanted)
    counts = np.bincount(labels, minlength=len(wanted))
    order = np.lexsort((uncertainty, labels))
    own = labels[order]
    rank = np.arange(len(labels)) - (np.cumsum(counts) - counts)[own]
    stride = np.maximum(1, counts // np.maximum(1, wanted))[own]
    rows: RowNumbers = order[(rank % stride == 0) & (rank // stride < wanted[own])]
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


def _first_of_lowest(values: NDArray[np.floating[Any]], groups: Labels) -> RowNumbers:
    """Return the position of the lowest value of every group, the first one of a tie; `groups` must be sorted."""
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    lowest = np.repeat(np.minimum.reduceat(values, starts), np.diff(starts, append=len(groups)))
    places = np.where(values <= lowest + _SAME, np.arange(len(values)), len(values))
    return np.minimum.reduceat(places, starts)


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidates:
    """The images from which exemplars are chosen after a session, and the model that chooses them.

    Args:
        images: The images of the session, followed by the exemplars kept so far; labels are rows of the classifier.
        release: The model of that session.
        budget: Total number of exemplars to keep, at least 1.
        first: Whether it was the first session.
        seed: Random seed of the choice.
        batch_size: Number of images read at a time.
        device: Device that embeds the images; None is the CPU.
    """

    images: ImageSet
    release: Release
    budget: int
    first: bool
    seed: int
    batch_size: int = 512
    device: torch.device | None = None


Choose = Callable[[Candidates], RowNumbers]
"""Returns distinct rows of the candidate images, int64; deterministic for a release, a seed and a batch size."""


def by_herding(candidates: Candidates) -> RowNumbers:
    """Choose the images of every class whose mean stays closest to the mean of the class (CVS); see `herding`."""
    images = candidates.images
    wanted = quotas(images.labels, candidates.budget, seed=candidates.seed)
    embedded = embed_images(candidates.release, images, batch_size=candidates.batch_size, device=candidates.device)
    return herding(embedded.vectors, images.labels, wanted)


def by_uncertainty(candidates: Candidates) -> RowNumbers:
    """Choose certain and uncertain images of every class (Rainbow Memory, CVPR 2021, arXiv:2103.17230, Section 4.1).

    An image is uncertain if the classifier predicts different classes for its perturbed copies; see
    `spread_by_uncertainty`. After the first session the choice is random, as in the comparison of CVS.
    """
    if candidates.first:
        return at_random(candidates)
    labels = candidates.images.labels
    wanted = quotas(labels, candidates.budget, fill=True, seed=candidates.seed)
    return spread_by_uncertainty(vote_uncertainty(votes(candidates)), labels, wanted)


def at_random(candidates: Candidates) -> RowNumbers:
    """Choose random images of every class within the budget, without embedding them."""
    labels, seed = candidates.images.labels, candidates.seed
    return random_exemplars(labels, quotas(labels, candidates.budget, fill=True, seed=seed), seed)


def everything(candidates: Candidates) -> RowNumbers:
    """Choose all images, whatever the budget, for learners that train on all data so far."""
    return np.arange(len(candidates.images))


EXEMPLARS: dict[str, Choose] = {
    "herding": by_herding,
    "uncertainty": by_uncertainty,
    "random": at_random,
    "everything": everything,
}


def passes(memory: str, *, first: bool) -> int:
    """Return how many times a memory embeds every candidate, which is part of the cost of a learner.

    >>> passes("herding", first=True), passes("uncertainty", first=False), passes("everything", first=True)
    (1, 12, 0)
    """
    return {"herding": 1, "uncertainty": 0 if first else len(PERTURBATIONS)}.get(memory, 0)


@torch.no_grad()
def votes(candidates: Candidates) -> NDArray[np.int64]:
    """Return the class that a release predicts for every perturbed copy of every image, int64 (N, 12).

    Images are read once. Only the predictions are kept in memory.

    Raises:
        ConfigError: The release has no classifier.
    """
    release, device = candidates.release, candidates.device
    head = release.head
    if head is None:
        raise ConfigError(
            f"The release {release.fingerprint[:20]} has no classifier, and exemplars are chosen by what it predicts.",
            expected="a release that kept its classifier",
            to_do="choose exemplars by herding or at random instead.",
        )
    encoder = release.encoder if device is None else release.encoder.to(device)
    loader = encoding_loader(candidates.images, batch_size=candidates.batch_size)
    found = []
    for features, _ in encoded_batches(encoder, perturbed(loader, candidates.seed), device=device):
        logits = head.logits(View.of(features.to(head.weight.device), release.space))  # the classifier stays in place
        found.append(logits.argmax(dim=1).cpu().numpy())
    copies = len(PERTURBATIONS)
    return np.concatenate([np.stack(found[at : at + copies], axis=1) for at in range(0, len(found), copies)])


def perturbed(loader: Iterable[Batch], seed: int) -> Iterator[Batch]:
    """Yield every batch once under each perturbation; random draws depend on the seed and the number of the batch."""
    for number, batch in enumerate(loader):
        generator = generator_at(seed, number)
        for perturb in PERTURBATIONS.values():
            yield batch._replace(inputs=perturb(batch.inputs, generator))
