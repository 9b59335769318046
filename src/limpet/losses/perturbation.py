"""Moving old prototypes a little, so that aligning to them costs the new model less (NDPP and ODPP).

A perturbation is computed once an epoch and never back-propagated. Nothing of size C x C is held: neighbours are found
block by block, and sums over them are formed without gathering their vectors.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from limpet.geometry.hypersphere import normalise

ELEMENTS = 2**25  # of a block of similarities: 128 MiB in float32
_NEGLIGIBLE = 1e-6  # a smaller sum of similarities has no direction to speak of


def block_size(columns: int) -> int:
    """Return how many rows of so many columns are computed at a time."""
    return max(1, ELEMENTS // max(columns, 1))


def nearest_prototypes(queries: Tensor, prototypes: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Find for every class the K most similar prototypes of *other* classes.

    Args:
        queries: One vector per class (C, D), of any length.
        prototypes: One vector per class (C, D), of any length; row c never is a neighbour of query c.
        count: K; at most C - 1 are returned.

    Returns:
        Classes, int64 (C, K'), nearest first, and their cosines (C, K') with K' = min(K, C - 1).

    >>> corners = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> nearest_prototypes(corners, corners, 1)[0].flatten().tolist()
    [2, 2, 1]
    """
    classes = len(prototypes)
    unit, count = normalise(prototypes), min(count, classes - 1)
    found = []
    for rows in torch.split(torch.arange(classes, device=prototypes.device), block_size(classes)):
        similarities = normalise(queries[rows]) @ unit.T
        similarities[torch.arange(len(rows)), rows] = -torch.inf
        found.append(similarities.topk(count))
    return torch.cat([best.indices for best in found]), torch.cat([best.values for best in found])


def neighbour_repulsion(origins: Tensor, prototypes: Tensor, neighbours: Tensor, similarities: Tensor) -> Tensor:
    """Return r = Σ s (o − p) / Σ s over every class's neighbours p: the way from them to its origin (NDPP, Eqs. 4, 7).

    Similarities below 0 count as 0, or a distant class would attract; where what is left sums to less than 1e-6 the
    direction is 0. Both never happen in the paper's setting, with K = 100 of thousands of classes.

    Args:
        origins: o, one vector per class (C, D).
        prototypes: p, one vector per class (C, D).
        neighbours: Classes, int64 (C, K), of `nearest_prototypes`.
        similarities: Their cosines (C, K).

    Returns:
        (C, D); K may be 0.

    >>> o, p = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> neighbour_repulsion(o, p, torch.tensor([[0]]), torch.tensor([[0.5]])).tolist()
    [[1.0, -1.0]]
    """
    if neighbours.shape[1] == 0:
        return torch.zeros_like(origins)
    weights = similarities.clamp_min(0)
    total = weights.sum(dim=1, keepdim=True)
    pull = F.embedding_bag(neighbours, prototypes, per_sample_weights=weights, mode="sum")
    return torch.where(total < _NEGLIGIBLE, 0.0, origins - pull / total.clamp_min(_NEGLIGIBLE))


def pair_hinge(left: Tensor, right: Tensor, threshold: float) -> Tensor:
    """Return max(0, <l_i, r_i> − θ), plain inner products row by row: (M,) from (M, D) twice (ODPP, Eqs. 9 and 11).

    >>> round(pair_hinge(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.8, 0.6]]), 0.6).item(), 4)
    0.2
    """
    return F.relu((left * right).sum(dim=1) - threshold)


def descend_pairs(
    points: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    step: float,
    threshold: float,
    others: Tensor | None = None,
    other_threshold: float = 0.0,
    gamma: float = 1.0,
) -> None:
    """Move points one gradient step down the hinges of sampled pairs, in place (ODPP, Algorithm 2).

    The objective is the sum over the pairs of max(0, <q_i, q_j> − θ) + γ max(0, <q_i, p_j> − θ'), of which only the q
    move. Written out instead of differentiated, because at 81,313 classes nearly all pairs have no gradient.

    Args:
        points: q, perturbed prototypes (C, D); changed.
        first: i of every ordered pair, int64 (M,).
        second: j of every ordered pair, int64 (M,), never equal to i.
        step: Learning rate.
        threshold: θ.
        others: p, new prototypes (C, D), constant; None for the first stage, which has no second term.
        other_threshold: θ'.
        gamma: γ.
    """
    left, right = points[first], points[second]
    active = pair_hinge(left, right, threshold) > 0
    toward = None
    if others is not None:
        toward = others[second]
        near = pair_hinge(left, toward, other_threshold) > 0
        points.index_add_(0, first[near], toward[near], alpha=-step * gamma)
    points.index_add_(0, first[active], right[active], alpha=-step)
    points.index_add_(0, second[active], left[active], alpha=-step)


def mean_angle(before: Tensor, after: Tensor) -> float:
    """Return the mean angle in degrees between paired vectors (C, D): how far prototypes have turned.

    >>> round(mean_angle(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 2.0]])), 3)
    45.0
    """
    half = (normalise(before) - normalise(after)).norm(dim=1) / 2  # exact where the cosine is nearly 1
    return float((2 * half.clamp_max(1).asin()).mean().rad2deg())
