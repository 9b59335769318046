"""Direct alignment of paired embeddings: the new model's against the old model's of the same item."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def selected_mean(values: Tensor, selected: Tensor | None = None) -> Tensor:
    """Average values (B,) over the rows selected, bool (B,), or over all; 0, with a gradient of 0, where none is.

    >>> selected_mean(torch.tensor([1.0, 2.0, 6.0]), torch.tensor([True, False, True])).item()
    3.5
    """
    if selected is None:
        return values.sum() / max(len(values), 1)
    return values.masked_fill(~selected, 0).sum() / selected.sum().clamp_min(1)


def distance_alignment(new: Tensor, old: Tensor, hinge: float = 0.0, selected: Tensor | None = None) -> Tensor:
    """Return mean_i max(0, ‖new_i − old_i‖ − hinge), the L2 loss of MixBCT's comparison and its weakened form.

    Args:
        new: Unit rows (B, D).
        old: Unit rows (B, D), detached.
        hinge: Distance that costs nothing; 0.2 in the weakened form.
        selected: Rows that count, bool (B,); all when left out.

    Returns:
        A scalar in [0, 2]. The gradient is 0, not undefined, where two rows coincide.

    >>> x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> round(distance_alignment(x, y).item(), 4)  # the square root of 2
    1.4142
    """
    squared = (new - old).square().sum(dim=1)
    distances = torch.where(squared > 0, squared, 1.0).sqrt() * (squared > 0)
    return selected_mean(F.relu(distances - hinge), selected)


def squared_alignment(new: Tensor, old: Tensor, selected: Tensor | None = None) -> Tensor:
    """Return the mean squared difference over all elements of unit rows (B, D): ‖new − old‖² / D on average.

    The form of OpenCompatible's benchmark. A scalar in [0, 4 / D]. Only the rows ``selected``, bool (B,), count,
    or all when it is left out.

    >>> squared_alignment(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])).item()
    1.0
    """
    return selected_mean((new - old).square().mean(dim=1), selected)
