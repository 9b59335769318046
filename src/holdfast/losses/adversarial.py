"""Telling old from new embeddings apart, with the gradient reversed (AdvBCT; Ganin and Lempitsky, ICML 2015)."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class _ReverseGradient(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: Tensor, factor: float) -> Tensor:
        context.factor = factor
        return values.view_as(values)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -context.factor * gradients[0], None


def reverse_gradient(values: Tensor, factor: float) -> Tensor:
    """Return the values unchanged; on the way back their gradient is multiplied by −factor."""
    reversed_values: Tensor = _ReverseGradient.apply(values, factor)  # type: ignore[no-untyped-call]
    return reversed_values


def reversal_strength(progress: float) -> float:
    """Return β = 2 / (1 + exp(−10 p)) − 1, rising from 0 at p = 0 towards 1.

    >>> reversal_strength(0.0), round(reversal_strength(0.5), 4)
    (0.0, 0.9866)
    """
    return 2 / (1 + math.exp(-10 * progress)) - 1


def domain_loss(critic: nn.Module, new: Tensor, old: Tensor, *, joint: bool = False) -> Tensor:
    """Return the critic's mean log loss on new rows (class 0) plus that on old rows (class 1).

    Args:
        critic: Maps rows (B, D) to two log-probabilities (B, 2); batch normalisation inside needs at least 2 rows.
        new: New embeddings (B, D), already passed through `reverse_gradient`.
        old: Old embeddings (B, D).
        joint: Run both through the critic together, so that its batch statistics are shared; run apart, each side is
            normalised by its own statistics, which hides differences of mean and scale.

    Returns:
        A scalar, at least 0; 2·ln 2 for a critic that cannot tell.
    """
    if joint:
        scores_new, scores_old = critic(torch.cat([new, old])).split([len(new), len(old)])
    else:
        scores_new, scores_old = critic(new), critic(old)
    zeros = torch.zeros(len(new), dtype=torch.int64, device=new.device)
    return F.nll_loss(scores_new, zeros) + F.nll_loss(scores_old, torch.ones_like(zeros))
