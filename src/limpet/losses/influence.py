"""The influence loss of backward-compatible training (Shen et al., CVPR 2020, arXiv:2003.11942)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def mean_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Average the cross-entropy over the rows whose target is not negative.

    Args:
        logits: Class scores (B, C).
        targets: Rows of the classifier, int64 (B,); -1 leaves a row out.

    Returns:
        A scalar, at least 0; exactly 0, with a gradient of 0, where no row qualifies.

    >>> import torch
    >>> scores = torch.zeros(2, 4)
    >>> round(mean_cross_entropy(scores, torch.tensor([3, -1])).item(), 4)  # ln 4
    1.3863
    >>> mean_cross_entropy(scores, torch.tensor([-1, -1])).item()
    0.0
    """
    total = F.cross_entropy(logits, targets, ignore_index=-1, reduction="sum")
    return total / (targets >= 0).sum().clamp_min(1)
