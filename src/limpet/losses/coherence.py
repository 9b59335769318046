"""Staying where earlier sessions left a gallery: the two coherence losses of CVS (Wan et al., CVPR 2022).

Session after session a model goes on learning and its gallery is never embedded again. One loss holds embeddings near
the mean of all that earlier models made of their class, the other near what the last model makes of the same item.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from limpet.geometry.hypersphere import root
from limpet.losses.alignment import selected_mean

OFFSET = 1e-6  # added to every component of a difference before its length is taken, as torch's triplet loss does


def data_coherence(
    points: Tensor, replayed: Tensor, rows: Tensor, reduction: Literal["selected", "batch"] = "selected"
) -> Tensor:
    """Return the mean squared distance of embeddings to the replayed embedding of their class (CVS, Eqs. 2 to 4).

    Σ_i ‖z_i − E_c‖² over the items whose class an earlier session has seen, items replayed from memory among them.

    Args:
        points: Unit rows z (B, D).
        replayed: E (C, D), the mean of the gallery's unit vectors by class; shorter than 1, and not normalised.
        rows: Row of E for every item, int64 (B,); -1 where no earlier session had its class.
        reduction: What the sum is divided by. "selected": the number of these items, as the public code does; "batch":
            B, as Eq. 4 is printed.

    Returns:
        A scalar in [0, 4]; 0, with a gradient of 0, where no item has a row.

    >>> z, means = torch.eye(2), torch.tensor([[0.5, 0.0]])
    >>> data_coherence(z, means, torch.tensor([0, -1])).item()  # 0.5²
    0.25
    >>> data_coherence(z, means, torch.tensor([0, -1]), "batch").item()
    0.125
    """
    if not len(replayed):
        return points.sum() * 0
    seen = rows >= 0
    squared = (points - replayed[rows.clamp_min(0)]).square().sum(dim=1)
    return selected_mean(squared, seen) if reduction == "selected" else selected_mean(squared.masked_fill(~seen, 0))


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


def model_coherence(
    new: Tensor,
    old: Tensor,
    labels: Tensor,
    *,
    margin: float = 0.1,
    squared: bool = False,
    others: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Draw every embedding to the last model's of the same item, away from that of another class (CVS, Eq. 5).

    Two samples, three embeddings: max(0, d(z_i, o_i) − d(z_i, o_n) + margin), where o_n is the nearest old embedding of
    another class. Departures: the paper's d is squared, the public code's is not, and what ran is the default here; an
    anchor without a negative is left out, where the code takes the negative of the anchor before it.

    Args:
        new: Unit rows z (B, D).
        old: Unit rows o of the last session's model, the same items, detached (B, D).
        labels: Class of every item, int64 (B,).
        margin: At least 0; 0.1 in the paper.
        squared: Whether d is squared; see `frozen_triplet`.
        others: Old embeddings (G, D) and their classes (G,) that negatives are looked for among, those of all
            processes for example; those of the batch when left out.

    Returns:
        A scalar in [0, 2 + margin], or [0, 4 + margin] when squared; 0, with a gradient of 0, where no anchor has a
        negative. It holds B × G distances.

    >>> z, o = torch.eye(2), torch.tensor([[0.6, 0.8], [0.0, 1.0]])
    >>> loss = model_coherence(z, o, torch.tensor([0, 1]), margin=0.5, squared=True)
    >>> round(loss.item(), 4)  # 0.8 − 2 + 0.5 < 0 and 0 − 0.4 + 0.5, over two anchors
    0.05
    """
    keys, key_labels = (old, labels) if others is None else others
    if not len(keys):
        return new.sum() * 0
    nearest = nearest_of_other_classes(new, labels, keys, key_labels)
    negatives = keys[nearest.clamp_min(0)]
    return frozen_triplet(new, old, negatives, nearest >= 0, margin=margin, squared=squared)


def all_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return Euclidean distances (n, m) of rows (n, D) and (m, D), exactly 0 with a gradient of 0 where they coincide.

    From differences, not from inner products, which leave of short distances no more than half the digits.
    """
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def _triplet_distance(x: Tensor, y: Tensor, squared: bool) -> Tensor:
    """Return the distance of paired rows (B,), in either of the two forms of `frozen_triplet`."""
    return (x - y).square().sum(dim=1) if squared else root((x - y + OFFSET).square().sum(dim=1))
