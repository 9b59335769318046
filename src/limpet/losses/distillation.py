"""What a new model may keep of its teacher: logits, embeddings, distances, angles or orders within a batch.

The losses that CVS compares its model coherence with (Wan et al., CVPR 2022, Tables C.3 and C.4), and LwF's. Rows are
embeddings of the same items under the model in training and under the frozen one; CVS gives them unit length. Pairs and
triples are counted as the public code of relational distillation does: all of them, those of an item with itself, which
cost nothing, among the number that is divided by.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from limpet.geometry.hypersphere import root
from limpet.losses.alignment import distance_alignment, selected_mean
from limpet.losses.coherence import all_distances, frozen_triplet, nearest_of_other_classes

COINCIDING = 1e-6  # points closer than this have no direction in float32, and a batch closer than this no scale
ELEMENTS = 2**25  # of one block of angles: 128 MiB in float32


def dark_knowledge(new: Tensor, old: Tensor, temperature: float = 2.0, selected: Tensor | None = None) -> Tensor:
    """Return the mean divergence KL(p ‖ q) of class probabilities p = softmax(old/T), q = softmax(new/T).

    Hinton et al., arXiv:1503.02531. Departure: without their factor T², which the weight of the loss takes in; CVS's
    public code has none either.

    Args:
        new: Logits of the model in training (B, C), the columns of the old classes alone.
        old: Logits of the frozen model (B, C), detached.
        temperature: T > 0, on top of what the logits were already divided by.
        selected: Rows that count, bool (B,); all when left out.

    Returns:
        Nats, a scalar of at least 0; 0, with a gradient of 0, where no row counts.

    >>> old = torch.tensor([[0.0, 0.0]])
    >>> new = torch.tensor([[0.0, 3.0]]).log1p()  # probabilities 1/5 and 4/5
    >>> round(dark_knowledge(new, old, temperature=1.0).item(), 4)  # (ln 5/2 + ln 5/8) / 2
    0.2231
    """
    teacher = F.log_softmax(old / temperature, dim=1)
    excess = teacher - F.log_softmax(new / temperature, dim=1)
    return selected_mean((teacher.exp() * excess).sum(dim=1), selected)


def softened_cross_entropy(
    new: Tensor, old: Tensor, temperature: float = 2.0, selected: Tensor | None = None
) -> Tensor:
    """Return mean_i [ −Σ_k p_ik log q_ik ], the distillation of LwF (Li and Hoiem, TPAMI 2018), for CVS's LwF and MMD.

    p and q as in `dark_knowledge`, to which this adds the entropy of p: the gradient is the same, the value does not
    reach 0.

    Args:
        new: Logits (B, C), of a copy of the old head that trains along (LwF) or the old columns of the head (MMD).
        old: Logits of the frozen model (B, C), detached.
        temperature: T > 0, on top of what the logits were already divided by; 2 in LwF.
        selected: Rows that count, bool (B,); all when left out.

    Returns:
        Nats, a scalar of at least 0; 0, with a gradient of 0, where no row counts.

    >>> old = torch.tensor([[0.0, 0.0]])
    >>> round(softened_cross_entropy(old, old).item(), 4)  # ln 2
    0.6931
    """
    rows = -(F.softmax(old / temperature, dim=1) * F.log_softmax(new / temperature, dim=1)).sum(dim=1)
    return selected_mean(rows, selected)


def absolute_distillation(new: Tensor, old: Tensor) -> Tensor:
    """Return mean_i ‖z_i − o_i‖ over paired rows (B, D), the absolute teacher (Yu et al., CVPR 2019, arXiv:1904.03624).

    The value of `distance_alignment` without a hinge. A scalar, at least 0.

    >>> absolute_distillation(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 4.0]])).item()
    5.0
    """
    return distance_alignment(root((new - old).square().sum(dim=1)))


def relative_distillation(new: Tensor, old: Tensor, form: Literal["mean", "frobenius"] = "mean") -> Tensor:
    """Compare the distances between items under both models, the relative teacher (Yu et al., arXiv:1904.03624).

    Args:
        new: Rows z (B, D).
        old: Rows o (B, D') of the same items, detached.
        form: "mean", over all pairs of |‖z_i − z_j‖ − ‖o_i − o_j‖|; "frobenius", the length of the whole matrix of
            these differences, as in the authors' public code, which grows with B.

    Returns:
        A scalar, at least 0. It holds B × B distances.

    >>> z, o = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [3.0]])
    >>> relative_distillation(z, o).item()  # (0 + 2 + 2 + 0) / 4
    1.0
    >>> round(relative_distillation(z, o, "frobenius").item(), 4)  # √8
    2.8284
    """
    difference = all_distances(new, new) - all_distances(old, old)
    if form == "frobenius":
        return root(difference.square().sum())
    return difference.abs().sum() / max(difference.numel(), 1)


def relational_distances(new: Tensor, old: Tensor) -> Tensor:
    """Compare distances in units of their mean: the distance-wise loss of RKD (Park et al., CVPR 2019, Eqs. 6 to 8).

    The Huber loss, with its bend at 1, of ‖z_i − z_j‖/μ − ‖o_i − o_j‖/μ', where μ and μ' are the mean distances above
    0. Departure: a mean below 1e-6 counts as 1e-6, so that items that all coincide have a finite gradient.

    Args:
        new: Rows z (B, D).
        old: Rows o (B, D') of the same items, detached.

    Returns:
        A scalar, at least 0, the mean over B² pairs; 0 where the old distances are multiples of the new ones. It holds
        B × B distances.

    >>> o = torch.tensor([[0.0], [1.0], [2.0]])
    >>> relational_distances(7 * o, o).item()
    0.0
    """
    difference = _in_mean_units(all_distances(new, new)) - _in_mean_units(all_distances(old, old))
    return _huber_sum(difference) / max(difference.numel(), 1)


def relational_angles(new: Tensor, old: Tensor) -> Tensor:
    """Compare the angles of all triples: the angle-wise loss of RKD (Park et al., CVPR 2019, Eqs. 9 to 11).

    The Huber loss, with its bend at 1, of cos ∠z_j z_i z_k − cos ∠o_j o_i o_k. Departure: two points within 1e-6 of
    each other give no direction, so the cosine is 0 and takes no gradient; the public code divides such a difference by
    1e-12.

    Its B³ cosines and B² directions exist for both models, and with the gradient about three times over. Where they
    exceed `ELEMENTS`, blocks of vertices are recomputed on the way back, and no more than one of them stands in memory
    at a time.

    Args:
        new: Rows z (B, D).
        old: Rows o (B, D') of the same items, detached.

    Returns:
        A scalar in [0, 1.5], the mean over B³ triples.

    >>> right, straight = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]), torch.tensor([[-1.0], [0.0], [1.0]])
    >>> round(relational_angles(right, straight).item(), 4)  # twice (1)²/2, four times (1 − √½)²/2, of 27
    0.0434
    """
    vertices = torch.arange(len(new), device=new.device)
    blocks = torch.split(vertices, max(1, ELEMENTS // max(len(new) * max(len(new), new.shape[1]), 1)))
    if len(blocks) == 1:
        total = _angle_block(new, old, vertices)
    else:
        total = torch.stack(
            [checkpoint(_angle_block, new, old, rows, use_reentrant=False, preserve_rng_state=False) for rows in blocks]
        ).sum()
    return total / max(len(new), 1) ** 3


def hard_dark_rank(new: Tensor, old: Tensor, neighbours: int = 4, scale: float = 3.0, power: float = 3.0) -> Tensor:
    """Return −log of how likely the new model ranks an item's neighbours as the old one did (Chen et al., AAAI 2018).

    Hard DarkRank, arXiv:1707.01220: mean_i [ −Σ_r ( s_ir − log Σ_{t≥r} exp(s_it) ) ] with the scores
    s_ij = −scale · ‖z_i − z_j‖^power, and r over the neighbours of i in the old model's order, the nearest first.

    Args:
        new: Rows z (B, D).
        old: Rows (B, D') of the same items, detached.
        neighbours: Length of the list; 0 stands for all other items, which is also the most there can be.
        scale: At least 0; 3 in the public code of RKD, as its power and its four neighbours.
        power: At least 1.

    Returns:
        Nats, a scalar of at least 0; 0, with a gradient of 0, for a list of one. Of old items at the same distance the
        one of the earlier row comes first. It holds B × B distances.

    >>> o = torch.tensor([[0.0], [1.0], [3.0]])
    >>> round(hard_dark_rank(torch.zeros(3, 1), o).item(), 4)  # two neighbours, a toss: ln 2
    0.6931
    """
    itself = torch.eye(len(old), dtype=torch.bool, device=old.device)
    count = min(neighbours or len(old), len(old) - 1) if len(old) else 0
    order = torch.argsort(all_distances(old, old).masked_fill(itself, torch.inf), dim=1, stable=True)[:, :count]
    ranked = -scale * all_distances(new, new).pow(power).gather(1, order)
    remaining = torch.logcumsumexp(ranked.flip(1), dim=1).flip(1)  # over the neighbour itself and all behind it
    return (remaining - ranked).sum() / max(len(new), 1)


def frozen_batch_hard(
    new: Tensor, old: Tensor, labels: Tensor, *, margin: float = 0.1, squared: bool = False
) -> Tensor:
    """Average triplets of every row with the farthest old embedding of its class and the nearest of another.

    Batch-hard mining (Hermans et al., arXiv:1703.07737) among frozen embeddings, as CVS compares its own with. Decision
    where nothing is published: the old embedding of the same item is no positive, which is why batches need two items
    of a class.

    Args:
        new: Unit rows (B, D).
        old: Unit rows of the last session's model, the same items, detached (B, D).
        labels: Class of every item, int64 (B,).
        margin: At least 0.
        squared: Whether distances are squared; see `frozen_triplet`.

    Returns:
        A scalar, at least 0; 0, with a gradient of 0, where no row has both a positive and a negative.

    >>> o = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> loss = frozen_batch_hard(o, o, torch.tensor([0, 0, 1]), squared=True)
    >>> round(loss.item(), 4)  # the first: 2 − 4 + 0.1 < 0, the second: 2 − 2 + 0.1; the third has no positive
    0.05
    """
    if not len(new):
        return new.sum() * 0
    nearest = nearest_of_other_classes(new, labels, old, labels)
    itself = torch.eye(len(old), dtype=torch.bool, device=old.device)
    outside = (labels[:, None] != labels) | itself
    farthest = all_distances(new.detach(), old).masked_fill(outside, -torch.inf).argmax(dim=1)
    valid = (nearest >= 0) & ~outside.all(dim=1)
    return frozen_triplet(new, old[farthest], old[nearest.clamp_min(0)], valid, margin=margin, squared=squared)


def _in_mean_units(distances: Tensor) -> Tensor:
    """Divide distances by the mean of those above 0, or by 1e-6 where that is less."""
    mean = distances.sum() / (distances > 0).sum().clamp_min(1)
    return distances / mean.clamp_min(COINCIDING)


def _angle_block(new: Tensor, old: Tensor, vertices: Tensor) -> Tensor:
    """Sum the Huber loss of the cosines at some vertices."""
    return _huber_sum(_cosines_at(new, vertices) - _cosines_at(old, vertices))


def _cosines_at(points: Tensor, vertices: Tensor) -> Tensor:
    """Return the cosines of the angles (V, B, B) that points (B, D) span at some of them."""
    differences = points - points[vertices, None]
    lengths = root(differences.square().sum(dim=2, keepdim=True))
    near = lengths < COINCIDING
    directions = (differences / lengths.masked_fill(near, 1.0)).masked_fill(near, 0.0)
    return directions @ directions.transpose(1, 2)


def _huber_sum(differences: Tensor) -> Tensor:
    return F.smooth_l1_loss(differences, torch.zeros_like(differences), reduction="sum")
