"""Contrast of embeddings against class prototypes."""

from __future__ import annotations

from torch import Tensor

from holdfast.geometry.hypersphere import normalise
from holdfast.losses.influence import mean_cross_entropy


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
