"""Contrast of embeddings against class prototypes."""

from __future__ import annotations

import torch
from torch import Tensor

from limpet.geometry import Space
from limpet.geometry.hypersphere import normalise
from limpet.losses.influence import mean_cross_entropy


def point_contrast(
    space: Space,
    points: Tensor,
    labels: Tensor,
    prototypes: Tensor,
    temperature: float,
    negatives: Tensor | None = None,
) -> Tensor:
    """Classify points by their similarity to class prototypes, on any space (NDPP, the point-to-set loss).

    Args:
        space: Whose similarity counts.
        points: Points (B, D).
        labels: Class of every row, int64 (B,).
        prototypes: One point per class (C, D).
        temperature: τ > 0.
        negatives: Distinct classes, int64 (n,), that the denominator sums over beside the own one; all when left out.

    Returns:
        A scalar, at least 0.

    >>> from limpet.geometry import Hypersphere
    >>> p = torch.eye(2)
    >>> round(point_contrast(Hypersphere(2), p[:1], torch.tensor([0]), p, 1.0).item(), 4)  # ln(1 + exp(-1))
    0.3133
    """
    if negatives is None:
        return mean_cross_entropy(space.similarity(points, prototypes, 1 / temperature), labels)
    own = space.paired_similarity(points, prototypes[labels]) / temperature
    others = space.similarity(points, prototypes[negatives], 1 / temperature)
    others = others.masked_fill(negatives == labels[:, None], -torch.inf)
    return mean_cross_entropy(torch.cat([own[:, None], others], dim=1), torch.zeros_like(labels))


def prototype_contrast(
    points: Tensor,
    labels: Tensor,
    prototypes: Tensor,
    temperature: float,
    targets: Tensor | None = None,
    negatives: Tensor | None = None,
) -> Tensor:
    """Classify embeddings by their cosine to class prototypes (NDPP, the point-to-set loss and Eq. 6).

    −log( exp(<z_i, t_y>/τ) / ( exp(<z_i, t_y>/τ) + Σ_{c≠y} exp(<z_i, p_c>/τ) ) ), averaged over the batch.

    Args:
        points: Embeddings (B, D) of any length.
        labels: Class of every row, int64 (B,).
        prototypes: One unit vector per class (C, D); normalised once by the caller, not at every step.
        temperature: τ > 0.
        targets: Perturbed prototypes (C, D), of any length, that replace an item's own class, in the numerator and in
            its copy in the denominator; the prototypes themselves when left out.
        negatives: Distinct classes, int64 (n,), that the denominator sums over beside the own one; all when left out.

    Returns:
        A scalar, at least 0.

    >>> p = torch.eye(2)
    >>> round(prototype_contrast(p[:1], torch.tensor([0]), p, temperature=1.0).item(), 4)  # ln(1 + exp(-1))
    0.3133
    """
    scaled = normalise(points) / temperature  # rather than the logits: with many classes each copy of these counts
    if negatives is not None:
        own = prototypes[labels] if targets is None else normalise(targets[labels])
        others = (scaled @ prototypes[negatives].T).masked_fill(negatives == labels[:, None], -torch.inf)
        logits = torch.cat([(scaled * own).sum(dim=1, keepdim=True), others], dim=1)
        return mean_cross_entropy(logits, torch.zeros_like(labels))
    logits = scaled @ prototypes.T
    if targets is not None:
        shift = (scaled * (normalise(targets[labels]) - prototypes[labels])).sum(dim=1, keepdim=True)
        logits.scatter_add_(1, labels[:, None], shift)
    return mean_cross_entropy(logits, labels)


def drawn_classes(count: int | None, classes: int, generator: torch.Generator, device: torch.device) -> Tensor | None:
    """Draw distinct classes to serve as a batch's negatives, int64 (count,); None stands for all of them."""
    if count is None or count >= classes:
        return None
    return torch.randperm(classes, generator=generator)[:count].to(device)
