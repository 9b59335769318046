"""Staying where earlier sessions left a gallery: the two coherence losses of CVS (Wan et al., CVPR 2022).

Session after session a model goes on learning and its gallery is never embedded again. One loss holds embeddings near
the mean of all that earlier models made of their class, the other near what the last model makes of the same item.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from limpet.geometry.hypersphere import root
from limpet.losses.alignment import selected_mean

OFFSET = 1e-6  # added to every component of a difference before its length is taken, as torch's triplet loss does


def nearest_of_other_classes(points: Tensor, labels: Tensor, keys: Tensor, key_labels: Tensor) -> Tensor:
    """Find for every row the nearest key of another class: int64 (B,), -1 where all keys are of its own.

    Args:
        points: Rows (B, D).
        labels: Class of every row, int64 (B,).
        keys: Rows (G, D).
        key_labels: Class of every key, int64 (G,).

    >>> nearest_of_other_classes(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), torch.tensor([0, 0])).tolist()
    [-1, 1]
    """
    if not len(keys):
        return torch.full_like(labels, -1)
    distances = all_distances(points.detach(), keys).masked_fill(labels[:, None] == key_labels, torch.inf)
    nearest = distances.min(dim=1)
    return nearest.indices.masked_fill(torch.isinf(nearest.values), -1)


def frozen_triplet(
    points: Tensor, positives: Tensor, negatives: Tensor, valid: Tensor, *, margin: float, squared: bool = False
) -> Tensor:
    """Average max(0, d(z_i, p_i) − d(z_i, n_i) + margin) over the valid rows.

    Args:
        points: z (B, D).
        positives: p (B, D), constant.
        negatives: n (B, D), constant.
        valid: Rows that have both, bool (B,); the others may hold anything finite.
        margin: At least 0, in units of d.
        squared: Whether d is the squared Euclidean distance, or the distance with 1e-6 added to every component of the
            difference, as torch's `TripletMarginLoss` has it.

    Returns:
        A scalar, at least 0; 0, with a gradient of 0, where no row is valid.

    >>> z = torch.tensor([[1.0, 0.0]])
    >>> valid = torch.tensor([True])
    >>> frozen_triplet(z, torch.zeros(1, 2), torch.tensor([[3.0, 0.0]]), valid, margin=1.5, squared=True).item()
    0.0
    >>> round(frozen_triplet(z, torch.zeros(1, 2), torch.tensor([[3.0, 0.0]]), valid, margin=1.5).item(), 4)
    0.5
    """
    near, far = (_triplet_distance(points, others, squared) for others in (positives, negatives))
    return selected_mean(F.relu(near - far + margin), valid)


def all_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return Euclidean distances (n, m) of rows (n, D) and (m, D), exactly 0 with a gradient of 0 where they coincide.

    From differences, not from inner products, which leave of short distances no more than half the digits.
    """
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def _triplet_distance(x: Tensor, y: Tensor, squared: bool) -> Tensor:
    """Return the distance of paired rows (B,), in either of the two forms of `frozen_triplet`."""
    return (x - y).square().sum(dim=1) if squared else root((x - y + OFFSET).square().sum(dim=1))
