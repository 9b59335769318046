"""Boundaries of old classes, and the loss of leaving them."""

from __future__ import annotations

import torch
from torch import Tensor


def class_boundaries(distances: Tensor, labels: Tensor, num_classes: int, iqr: float = 1.5) -> tuple[Tensor, Tensor]:
    """Return how far each class reaches, outliers left out (AdvBCT, section 3.2 and its released code).

    Classes of four items and more drop distances outside [q1 − iqr·(q3 − q1), q3 + iqr·(q3 − q1)], with
    q1 = sorted[⌊n/4⌋] and q3 = sorted[⌊3n/4⌋].

    Args:
        distances: Distance (or angle) of every item to its class centre (N,).
        labels: Class of every item, int64 (N,).
        num_classes: C.
        iqr: Width of the accepted range in interquartile ranges; infinity keeps all.

    Returns:
        The largest kept distance of every class (C,), 0 for an absent one, and the number of kept items (C,), int64.

    >>> reach, kept = class_boundaries(torch.tensor([1.0, 1.1, 1.2, 1.3, 9.0]), torch.zeros(5, dtype=torch.int64), 1)
    >>> round(reach.item(), 1), kept.item()
    (1.3, 4)
    """
    order = torch.argsort(distances, stable=True)
    order = order[torch.argsort(labels[order], stable=True)]
    ordered, owners = distances[order], labels[order]
    counts = torch.bincount(owners, minlength=num_classes)
    starts = counts.cumsum(0) - counts
    last = max(len(ordered) - 1, 0)
    lower = ordered[(starts + counts // 4).clamp_max(last)] if len(ordered) else distances.new_zeros(num_classes)
    upper = ordered[(starts + 3 * counts // 4).clamp_max(last)] if len(ordered) else lower
    slack = iqr * (upper - lower) if iqr != float("inf") else torch.full_like(upper, float("inf"))
    inside = (ordered >= (lower - slack)[owners]) & (ordered <= (upper + slack)[owners])
    kept = inside | (counts[owners] < 4)
    reach = distances.new_zeros(num_classes).scatter_reduce(0, owners[kept], ordered[kept], "amax", include_self=True)
    return reach, torch.bincount(owners[kept], minlength=num_classes)
