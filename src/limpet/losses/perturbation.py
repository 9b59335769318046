"""What NDPP and ODPP share: how far moved prototypes have turned, and blocks of similarities."""

from __future__ import annotations

from torch import Tensor

from limpet.geometry.hypersphere import normalise

ELEMENTS = 2**25  # of a block of similarities: 128 MiB in float32


def mean_angle(before: Tensor, after: Tensor) -> float:
    """Return the mean angle in degrees between paired vectors (C, D): how far prototypes have turned.

    >>> import torch
    >>> round(mean_angle(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 2.0]])), 3)
    45.0
    """
    half = (normalise(before) - normalise(after)).norm(dim=1) / 2  # exact where the cosine is nearly 1
    return float((2 * half.clamp_max(1).asin()).mean().rad2deg())


def block_size(columns: int) -> int:
    """Return the number of rows that are computed at a time, given the number of columns."""
    return max(1, ELEMENTS // max(columns, 1))
