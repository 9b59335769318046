"""Old class centres as directions for the new classifier, and bounds on the angle to them (LCE, ICCV 2021)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from holdfast.losses.alignment import selected_mean

LARGEST_COSINE = 1 - 1e-6  # the slope of acos is infinite at ±1; this is an angle of 0.0014


def angle_excess(points: Tensor, centres: Tensor, angles: Tensor, valid: Tensor) -> Tensor:
    """Average max(0, ∠(z, o) − θ) over the valid rows (boundary loss of LCE, as AdvBCT's benchmark has it).

    Cosines are kept within ±(1 − 1e-6), beyond which no gradient flows.

    Args:
        points: Unit rows (B, D).
        centres: The unit centre of each row's class (B, D).
        angles: The largest angle θ of each row's class in radians (B,).
        valid: Whether the row's class has a boundary, bool (B,).

    Returns:
        A scalar in [0, π]; 0 where no row is valid.

    >>> import torch
    >>> z, o = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> round(angle_excess(z, o, torch.tensor([0.5, 0.5]), torch.tensor([True, True])).item(), 4)  # (π/2 − 0.5) / 2
    0.5354
    """
    cosines = (points * centres).sum(dim=1).clamp(-LARGEST_COSINE, LARGEST_COSINE)
    return selected_mean(F.relu(cosines.acos() - angles), valid)


def cosine_shortfall(points: Tensor, centres: Tensor, cosines: Tensor, valid: Tensor) -> Tensor:
    """Average max(0, c − cos(z, o)) over the valid rows (boundary loss of LCE, the authors' re-identification code).

    Args:
        points: Unit rows (B, D).
        centres: The unit centre of each row's class (B, D).
        cosines: The smallest cosine c of each row's class to its centre (B,).
        valid: Whether the row's class has a boundary, bool (B,).

    Returns:
        A scalar in [0, 2]; 0 where no row is valid.

    >>> import torch
    >>> z, o = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> cosine_shortfall(z, o, torch.tensor([0.5, 0.5]), torch.tensor([True, True])).item()
    0.25
    """
    return selected_mean(F.relu(cosines - (points * centres).sum(dim=1)), valid)


def direction_gap(weights: Tensor, centres: Tensor, valid: Tensor) -> Tensor:
    """Average 1 − cos(W, o) over the valid rows (centre alignment of LCE, as AdvBCT's benchmark has it).

    Args:
        weights: The unit classifier weight of each row's class (B, D).
        centres: The unit centre of each row's class (B, D).
        valid: Whether the row's class has a boundary, bool (B,).

    Returns:
        A scalar in [0, 2]; 0 where no row is valid.

    >>> import torch
    >>> w = torch.tensor([[0.6, 0.8]])
    >>> round(direction_gap(w, torch.tensor([[1.0, 0.0]]), torch.tensor([True])).item(), 4)
    0.4
    """
    return selected_mean(1 - (weights * centres).sum(dim=1), valid)
