"""Direct alignment of paired embeddings: the new model's against the old model's of the same item."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def selected_mean(values: Tensor, selected: Tensor | None = None) -> Tensor:
    """Average values (B,) over the rows selected, bool (B,), or over all; 0, with a gradient of 0, where none is.

    >>> import torch
    >>> selected_mean(torch.tensor([1.0, 2.0, 6.0]), torch.tensor([True, False, True])).item()
    3.5
    """
    if selected is None:
        return values.sum() / max(len(values), 1)
    return values.masked_fill(~selected, 0).sum() / selected.sum().clamp_min(1)


def distance_alignment(distances: Tensor, hinge: float = 0.0, selected: Tensor | None = None) -> Tensor:
    """Return mean_i max(0, d_i − hinge) over distances d (B,) of new embeddings to their old ones.

    Of unit vectors it is the L2 loss of MixBCT's comparison and its weakened form; of points of the Lorentz space,
    HBCT's mean distortion.

    Args:
        distances: d (B,), at least 0.
        hinge: Distance that costs nothing; 0.2 in the weakened form.
        selected: Rows that count, bool (B,); all when left out.

    Returns:
        A scalar, at least 0.

    >>> import torch
    >>> distance_alignment(torch.tensor([0.1, 0.5]), hinge=0.25).item()
    0.125
    """
    return selected_mean(F.relu(distances - hinge), selected)


def similarity_alignment(new: Tensor, old: Tensor) -> Tensor:
    """Return the mean of (s_ij − s'_ij)² over all pairs of a batch's similarities s and s' (B, B); 0 where B is 0.

    It says nothing of where the items lie, only of how they lie to each other, so that both may have any dimension.

    >>> import torch
    >>> similarity_alignment(torch.tensor([[1.0, 0.5], [0.5, 1.0]]), torch.eye(2)).item()
    0.125
    """
    return (new - old).square().sum() / max(new.numel(), 1)


def all_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return Euclidean distances (n, m) of rows (n, D) and (m, D), exactly 0 with a gradient of 0 where they coincide.

    From differences, not from inner products, which leave of short distances no more than half the digits.
    """
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
