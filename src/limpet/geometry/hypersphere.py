"""Directions and cosines: pure functions on tensors of unit or raw vectors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from limpet.geometry.segments import segment_mean

EPSILON = 1e-12  # vectors shorter than this, or than the smallest normal number of their type, are divided by that


def normalise(x: Tensor) -> Tensor:
    """Divide vectors (..., D) by their Euclidean length; the result has length 1, or 0 for the zero vector."""
    return F.normalize(x, dim=-1, eps=max(EPSILON, torch.finfo(x.dtype).tiny))


def root(squared: Tensor) -> Tensor:
    """Return the square root, 0 with a gradient of 0 where rounding left nothing or less."""
    return torch.where(squared > 0, squared, 1.0).sqrt() * (squared > 0)


def mean_direction(points: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Average unit vectors by class and normalise the mean: directions (C, D) and counts (C,)."""
    means, counts = segment_mean(normalise(points), labels, num_classes)
    return normalise(means), counts
