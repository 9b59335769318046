"""How the images that later sessions see again are chosen with the model that a session has just trained.

The choices themselves are pure functions in `holdfast.continual.memory`; here they are fed with embeddings and votes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.continual.memory import herding, quotas, random_exemplars, spread_by_uncertainty, vote_uncertainty
from holdfast.data.image_rules import Rows
from holdfast.data.image_set import ImageSet
from holdfast.data.loading import encoding_loader, generator_at
from holdfast.data.perturbations import PERTURBATIONS
from holdfast.errors import ConfigError
from holdfast.geometry import Space
from holdfast.methods.base import Batch, Head, View
from holdfast.models.release import Release
from holdfast.training.encode import embed_images, encoded_batches


class Choose(Protocol):
    """A way to choose the exemplars that are kept after a session."""

    def __call__(
        self,
        candidates: ImageSet,
        release: Release,
        budget: int,
        *,
        first: bool,
        seed: int,
        batch_size: int = 512,
        device: torch.device | None = None,
    ) -> Rows:
        """Return rows of the candidates, int64, none twice; the same for the same release, seed and batch size.

        Args:
            candidates: The session's images followed by the exemplars kept so far, labelled in rows of the classifier.
            release: The model of that session.
            budget: Exemplars to keep in all, at least 1.
            first: Whether it was the first session.
            seed: Decides what is drawn.
            batch_size: Images read at a time.
            device: Where to embed; the CPU when left out.
        """
        ...


def by_herding(
    candidates: ImageSet,
    release: Release,
    budget: int,
    *,
    first: bool,
    seed: int,
    batch_size: int = 512,
    device: torch.device | None = None,
) -> Rows:
    """Keep of every class the images whose mean stays closest to the mean of the class (CVS); see `herding`."""
    wanted = quotas(candidates.labels, budget, seed=seed)
    embedded = embed_images(release, candidates, batch_size=batch_size, device=device)
    return herding(embedded.vectors, candidates.labels, wanted)


def by_uncertainty(
    candidates: ImageSet,
    release: Release,
    budget: int,
    *,
    first: bool,
    seed: int,
    batch_size: int = 512,
    device: torch.device | None = None,
) -> Rows:
    """Keep certain and uncertain images of every class (Rainbow Memory, CVPR 2021, arXiv:2103.17230, Section 4.1).

    Uncertain is an image whose perturbed copies the classifier does not agree on; see `spread_by_uncertainty`. After
    the first session the choice is random, as in the comparison of CVS.
    """
    wanted = quotas(candidates.labels, budget, fill=True, seed=seed)
    if first:
        return random_exemplars(candidates.labels, wanted, seed)
    uncertainty = vote_uncertainty(votes(candidates, release, seed=seed, batch_size=batch_size, device=device))
    return spread_by_uncertainty(uncertainty, candidates.labels, wanted)


def at_random(
    candidates: ImageSet,
    release: Release,
    budget: int,
    *,
    first: bool,
    seed: int,
    batch_size: int = 512,
    device: torch.device | None = None,
) -> Rows:
    """Keep random images, of every class as many as the budget allows; nothing is embedded."""
    return random_exemplars(candidates.labels, quotas(candidates.labels, budget, fill=True, seed=seed), seed)


def everything(
    candidates: ImageSet,
    release: Release,
    budget: int,
    *,
    first: bool,
    seed: int,
    batch_size: int = 512,
    device: torch.device | None = None,
) -> Rows:
    """Keep all images, whatever the budget: for learners that train on all data so far."""
    return np.arange(len(candidates))


EXEMPLARS: dict[str, Choose] = {
    "herding": by_herding,
    "uncertainty": by_uncertainty,
    "random": at_random,
    "everything": everything,
}


def passes(memory: str, *, first: bool) -> int:
    """Return how often a choice embeds every candidate: part of what a learner costs.

    Args:
        memory: A key of `EXEMPLARS`.
        first: Whether it was the first session.

    >>> passes("herding", first=True), passes("uncertainty", first=False), passes("everything", first=True)
    (1, 12, 0)
    """
    return {"herding": 1, "uncertainty": 0 if first else len(PERTURBATIONS)}.get(memory, 0)


def votes(
    images: ImageSet, release: Release, *, seed: int, batch_size: int = 512, device: torch.device | None = None
) -> NDArray[np.int64]:
    """Return the class that a release predicts for every perturbed copy of every image, int64 (N, 12).

    Images are read once; of a batch and one perturbation only the predictions are kept.

    Args:
        images: What to predict.
        release: The model, with its classifier.
        seed: Decides the draws, with the place of the batch.
        batch_size: Images at a time.
        device: Where to embed; the CPU when left out.

    Raises:
        ConfigError: The release has no classifier.
    """
    head = release.head
    if head is None:
        raise ConfigError(
            f"The release {release.fingerprint[:20]} has no classifier, and exemplars are chosen by what it predicts.",
            expected="a release that kept its classifier",
            to_do="choose exemplars by herding or at random instead.",
        )
    encoder = release.encoder if device is None else release.encoder.to(device)
    loader = encoding_loader(images, batch_size=batch_size)
    found = [
        predicted(head, features, release.space)
        for features, _ in encoded_batches(encoder, perturbed(loader, seed), device=device)
    ]
    copies = len(PERTURBATIONS)
    return np.concatenate([np.stack(found[at : at + copies], axis=1) for at in range(0, len(found), copies)])


def perturbed(loader: Iterable[Batch], seed: int) -> Iterator[Batch]:
    """Yield every batch once under each of the perturbations; draws depend on the seed and the place of the batch."""
    for number, batch in enumerate(loader):
        generator = generator_at(seed, number)
        for perturb in PERTURBATIONS.values():
            yield batch._replace(inputs=perturb(batch.inputs, generator))


@torch.no_grad()
def predicted(head: Head, features: Tensor, space: Space) -> NDArray[np.int64]:
    """Return the class (B,) of the largest logit for features (B, D); the classifier stays where it is."""
    logits = head.logits(View.of(features.to(head.weight.device), space))
    classes: NDArray[np.int64] = logits.argmax(dim=1).cpu().numpy()
    return classes
