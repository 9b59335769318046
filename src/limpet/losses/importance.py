"""How much every weight matters to what was learned before, and what moving it costs (EWC, RWalk).

Functions of tensors by name. The classifier, whose rows grow with the sessions, is left out by leaving out its name.
Sources: Kirkpatrick et al., PNAS 2017, arXiv:1612.00796 (EWC); Chaudhry et al., ECCV 2018, arXiv:1801.10112 (RWalk).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]
"""Weights, or numbers of their shapes, by the weights' names."""


def quadratic_penalty(weights: Tensors, anchors: Tensors, importance: Tensors) -> Tensor:
    """Return Σ F (θ − θ*)² over all weights that have an importance F (EWC's Eq. 3 without its λ/2; RWalk's Eq. 8).

    Args:
        weights: θ, in training; names beyond those of the importance do not count.
        anchors: θ*, the weights of the last session.
        importance: F, at least 0.

    Returns:
        A scalar, at least 0; 0, with a gradient of 0, where no weight has an importance.

    >>> weights, anchors = {"a": torch.tensor([1.0, 2.0])}, {"a": torch.tensor([0.0, 4.0])}
    >>> quadratic_penalty(weights, anchors, {"a": torch.tensor([3.0, 0.5])}).item()  # 3 + 0.5 · 4
    5.0
    """
    if not importance:
        return torch.stack([weight.sum() for weight in weights.values()]).sum() * 0
    costs = [(factor * (weights[name] - anchors[name]).square()).sum() for name, factor in importance.items()]
    return torch.stack(costs).sum()
