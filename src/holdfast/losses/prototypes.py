"""Contrast of embeddings against class prototypes."""

from __future__ import annotations

from torch import Tensor

from holdfast.geometry.hypersphere import normalise
from holdfast.losses.influence import mean_cross_entropy
from holdfast.losses.margin import arcface_logits


def prototype_contrast(
    points: Tensor, labels: Tensor, prototypes: Tensor, temperature: float, targets: Tensor | None = None
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

    Returns:
        A scalar, at least 0.

    >>> import torch
    >>> p = torch.eye(2)
    >>> round(prototype_contrast(p[:1], torch.tensor([0]), p, temperature=1.0).item(), 4)  # ln(1 + exp(-1))
    0.3133
    """
    unit = normalise(points)
    cosines = unit @ prototypes.T
    if targets is not None:
        own = (unit * normalise(targets[labels])).sum(dim=1, keepdim=True)
        cosines = cosines.scatter(1, labels[:, None], own)
    return mean_cross_entropy(cosines / temperature, labels)


def prototype_margin(points: Tensor, labels: Tensor, prototypes: Tensor, *, scale: float, margin: float) -> Tensor:
    """Classify embeddings by scaled cosines to class prototypes, with an angular margin at the target (UniBCT).

    Args:
        points: Embeddings (B, D) of any length.
        labels: Row of the prototypes for every embedding, int64 (B,); -1 leaves one out.
        prototypes: One unit vector per class (C, D).
        scale: s > 0, multiplies the cosines.
        margin: m in radians, added to the target's angle; no guard beyond pi - m.

    Returns:
        A scalar, at least 0; 0 where no row qualifies.

    >>> import torch
    >>> p = torch.eye(2)
    >>> round(prototype_margin(p[:1], torch.tensor([0]), p, scale=1.0, margin=0.0).item(), 4)  # ln(1 + exp(-1))
    0.3133
    """
    cosines = normalise(points) @ prototypes.T
    logits = arcface_logits(cosines, labels.clamp_min(0), scale=scale, margin=margin, guard=False)
    return mean_cross_entropy(logits, labels)
