"""Exemplars: the few images that later sessions see again, under one budget shared by all sessions."""

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


def herding(vectors: NDArray[np.floating[Any]], labels: Labels, wanted: NDArray[np.int64]) -> RowNumbers:
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
    rows = np.concatenate([np.empty(0, np.int64), *picks])
    return rows[np.argsort(labels[rows], kind="stable")]


def random_exemplars(labels: Labels, wanted: NDArray[np.int64], seed: int) -> RowNumbers:
    """Choose `wanted` exemplars of every class at random, or all it has; return their rows in ascending order."""
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


def spread_by_uncertainty(
    uncertainty: NDArray[np.floating[Any]], labels: Labels, wanted: NDArray[np.int64]
) -> RowNumbers:
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
    """Return, for every group of a sorted list, the first place of its lowest value, up to rounding."""
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    lowest = np.repeat(np.minimum.reduceat(values, starts), np.diff(starts, append=len(groups)))
    places = np.where(values <= lowest + _SAME, np.arange(len(values)), len(values))
    return np.minimum.reduceat(places, starts)


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidates:
    """What the exemplars that are kept after a session are chosen from, and with what.

    Args:
        images: The session's images followed by the exemplars kept so far, labelled in rows of the classifier.
        release: The model of that session.
        budget: Exemplars to keep in all, at least 1.
        first: Whether it was the first session.
        batch_size: Images read at a time.
        device: Where to embed; the CPU when left out.
    """

    images: ImageSet
    release: Release
    budget: int
    first: bool
    seed: int
    batch_size: int = 512
    device: torch.device | None = None


Choose = Callable[[Candidates], RowNumbers]
"""Returns rows of the candidates' images, int64, none twice; the same for the same release, seed and batch size."""


def by_herding(candidates: Candidates) -> RowNumbers:
    """Keep of every class the images whose mean stays closest to the mean of the class (CVS); see `herding`."""
    images = candidates.images
    wanted = quotas(images.labels, candidates.budget, seed=candidates.seed)
    embedded = embed_images(candidates.release, images, batch_size=candidates.batch_size, device=candidates.device)
    return herding(embedded.vectors, images.labels, wanted)


def by_uncertainty(candidates: Candidates) -> RowNumbers:
    """Keep certain and uncertain images of every class (Rainbow Memory, CVPR 2021, arXiv:2103.17230, Section 4.1).

    Uncertain is an image whose perturbed copies the classifier does not agree on; see `spread_by_uncertainty`. After
    the first session the choice is random, as in the comparison of CVS.
    """
    if candidates.first:
        return at_random(candidates)
    labels = candidates.images.labels
    wanted = quotas(labels, candidates.budget, fill=True, seed=candidates.seed)
    return spread_by_uncertainty(vote_uncertainty(votes(candidates)), labels, wanted)


def at_random(candidates: Candidates) -> RowNumbers:
    """Keep random images of every class within the budget; nothing is embedded."""
    labels, seed = candidates.images.labels, candidates.seed
    return random_exemplars(labels, quotas(labels, candidates.budget, fill=True, seed=seed), seed)


def everything(candidates: Candidates) -> RowNumbers:
    """Keep all images, whatever the budget: for learners that train on all data so far."""
    return np.arange(len(candidates.images))


EXEMPLARS: dict[str, Choose] = {
    "herding": by_herding,
    "uncertainty": by_uncertainty,
    "random": at_random,
    "everything": everything,
}


def passes(memory: str, *, first: bool) -> int:
    """Return how often a choice embeds every candidate: part of what a learner costs.

    >>> passes("herding", first=True), passes("uncertainty", first=False), passes("everything", first=True)
    (1, 12, 0)
    """
    return {"herding": 1, "uncertainty": 0 if first else len(PERTURBATIONS)}.get(memory, 0)


@torch.no_grad()
def votes(candidates: Candidates) -> NDArray[np.int64]:
    """Return the class that a release predicts for every perturbed copy of every image, int64 (N, 12).

    Images are read once; of a batch and one perturbation only the predictions are kept.

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
    """Yield every batch once under each of the perturbations; draws depend on the seed and the place of the batch."""
    for number, batch in enumerate(loader):
        generator = generator_at(seed, number)
        for perturb in PERTURBATIONS.values():
            yield batch._replace(inputs=perturb(batch.inputs, generator))
