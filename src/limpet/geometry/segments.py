"""Sums and means by class, of vectors of any space."""

from __future__ import annotations

import torch
from torch import Tensor


def segment_sum(values: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Sum values (N, D) by label; return the sums (C, D) and the counts (C,) in the dtype of the values.

    >>> segment_sum(torch.tensor([[1.0], [2.0], [5.0]]), torch.tensor([0, 0, 2]), 3)[0].flatten().tolist()
    [3.0, 0.0, 5.0]
    """
    sums = values.new_zeros(num_classes, values.shape[1]).index_add_(0, labels, values)
    counts = values.new_zeros(num_classes).index_add_(0, labels, torch.ones_like(labels, dtype=values.dtype))
    return sums, counts


def add_by_class(sums: Tensor, counts: Tensor, values: Tensor, labels: Tensor) -> None:
    """Add values (N, D) and their number to sums (C, D) and counts (C,) by label, in place: N rows are touched, not C.

    >>> sums, counts = torch.zeros(2, 1), torch.zeros(2)
    >>> add_by_class(sums, counts, torch.tensor([[1.0], [2.0]]), torch.tensor([1, 1]))
    >>> sums.flatten().tolist(), counts.tolist()
    ([0.0, 3.0], [0.0, 2.0])
    """
    sums.index_add_(0, labels, values.detach().to(sums.dtype))
    counts.index_add_(0, labels, torch.ones_like(labels, dtype=counts.dtype))


def segment_mean(values: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Average values (N, D) by label; return the means (C, D) and counts (C,). An absent class has mean zero."""
    sums, counts = segment_sum(values, labels, num_classes)
    return sums / counts.clamp_min(1)[:, None], counts
