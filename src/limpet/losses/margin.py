"""Softmax over cosines with an angular margin.

Written here although pytorch-metric-learning has ArcFace: that one owns its weights and has no guard, and mixed
batches need logits of rows that are no model's output.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def with_margin(cosines: Tensor, margin: float, guard: bool = True) -> Tensor:
    """Return cos(θ + m) of target cosines cos θ, in any shape.

    Args:
        cosines: cos θ in [-1, 1].
        margin: m in radians.
        guard: Beyond π − m, where cos(θ + m) rises again, use cos θ − m·sin m (insightface).

    >>> round(with_margin(torch.tensor(1.0), math.pi / 3).item(), 2)  # 60 degrees, up to the guard of the square root
    0.5
    """
    # the square root has an infinite slope at 0; 1e-7 is the smallest step from 1 that float32 can tell
    sine = (1 - cosines.square()).clamp_min(1e-7).sqrt()
    shifted = cosines * math.cos(margin) - sine * math.sin(margin)
    if guard:
        shifted = torch.where(cosines > math.cos(math.pi - margin), shifted, cosines - margin * math.sin(margin))
    return shifted


def arcface_logits(cosines: Tensor, labels: Tensor, *, scale: float, margin: float, guard: bool = True) -> Tensor:
    """Add an angular margin to the target class (ArcFace, Deng et al., CVPR 2019, Eq. 3) and scale.

    Args:
        cosines: Cosines (B, C) of embeddings to class directions.
        labels: Target class of every row, int64 (B,); -1 where it is none of these.
        scale: s > 0, multiplies all logits.
        margin: m in radians, added to the target's angle.
        guard: For targets beyond π − m, where cos(θ + m) rises again, use cos θ − m·sin m (insightface).

    Returns:
        Logits (B, C).

    >>> logits = arcface_logits(torch.tensor([[1.0, 0.0]]), torch.tensor([0]), scale=10.0, margin=math.pi / 3)
    >>> [round(value, 2) for value in logits[0].tolist()]  # 10 cos(60 degrees), up to the guard of the square root
    [5.0, 0.0]
    """
    columns = labels.clamp_min(0)[:, None]
    own = cosines.gather(1, columns)
    target = torch.where(labels[:, None] >= 0, with_margin(own, margin, guard), own)
    logits = scale * cosines
    return logits.scatter_(1, columns, scale * target)
