"""Which old embeddings can be trusted (MixBCT, section 3.3)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from limpet.geometry.hypersphere import normalise
from limpet.geometry.segments import segment_mean


def denoising_form(features: Tensor) -> Tensor:
    """Normalise rows, then divide every column by its length over the whole set: (N, D) to (N, D)."""
    unit = normalise(features)
    lengths: Tensor = torch.linalg.vector_norm(unit, dim=0)
    return unit / lengths.clamp_min(1e-12)


def credible_rows(features: Tensor, labels: Tensor, num_classes: int, share: float) -> Tensor:
    """Mark, in every class of n items, the ⌈share·n⌉ closest to the class mean in `denoising_form`.

    Args:
        features: Old embeddings of the new training set (N, D).
        labels: Class of every row, int64 (N,), in any order.
        num_classes: C.
        share: T in (0, 1]; 0.9 in the paper.

    Returns:
        bool (N,). Of equally distant items the earlier one is kept.

    >>> rows = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    >>> credible_rows(rows, torch.zeros(3, dtype=torch.int64), 1, share=0.6).tolist()
    [True, True, False]
    """
    form = denoising_form(features)
    centres, _ = segment_mean(form, labels, num_classes)
    distances = (form - centres[labels]).norm(dim=1)
    order = torch.argsort(distances, stable=True)
    order = order[torch.argsort(labels[order], stable=True)]
    counts = torch.bincount(labels, minlength=num_classes)
    starts = counts.cumsum(0) - counts
    position = torch.arange(len(order)) - starts[labels[order]]
    quota = torch.tensor([math.ceil(round(share * count, 9)) for count in counts.tolist()], dtype=torch.int64)
    credible = torch.zeros(len(order), dtype=torch.bool)
    credible[order] = position < quota[labels[order]]
    return credible
