"""Where an item lies among the old embeddings, told without labels: which neighbours are nearer, and which anchors.

Class prototypes say nothing of items whose class nobody knows. The old model still says who their neighbours are, and
in which order; a new model that finds them alike can be searched with.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from limpet.geometry.hypersphere import normalise, root
from limpet.losses.alignment import selected_mean
from limpet.losses.distillation import dark_knowledge

SLACK = 0.1  # added to a difference of old similarities, by which another one is divided
ROUNDS = 10  # of k-means


class NeighbourOrder(NamedTuple):
    """What a new embedding finds otherwise than the old one did, three scalars of at least 0; see `neighbour_order`."""

    own: Tensor
    inverted: Tensor
    upheld: Tensor


def neighbour_order(cross: Tensor, old: Tensor, neighbours: int = 9) -> NeighbourOrder:
    """Compare differences of similarities to old neighbours (D3still, Xie et al., CVPR 2024).

    For an item i and two of its K nearest others a and b by old similarities t, let e = t_ia − t_ib, and let
    d = c_ia − c_ib be what a new embedding sees in the same place. The deviation is (d − e) / (0.1 + |e|).

    - own: √(Σ_i (t_ii − c_ii)²) / B;
    - inverted: the mean over items of the length of all deviations whose d and e have opposite signs, over K: the new
      embedding finds b before a;
    - upheld: the same of those with equal signs, where the order is right already.

    Args:
        cross: c, similarity of the new embedding of every item to the old one of every item (B, B).
        old: t, similarities of the old embeddings (B, B), detached.
        neighbours: K; at most B − 1 count.

    >>> old = torch.tensor([[1.0, 0.5, 0.0], [0.5, 1.0, 0.25], [0.0, 0.25, 1.0]])
    >>> [term.item() for term in neighbour_order(old, old)]
    [0.0, 0.0, 0.0]
    """
    items = len(old)
    count = max(min(neighbours, items - 1), 0)
    itself = torch.eye(items, dtype=torch.bool, device=old.device)
    nearest = old.masked_fill(itself, -torch.inf).topk(count, dim=1).indices
    seen, known = (of.gather(1, nearest) for of in (cross, old))
    d, e = (of[:, :, None] - of[:, None, :] for of in (seen, known))
    squares, agreeing = ((d - e) / (SLACK + e.abs())).square(), d.detach() * e
    inverted, upheld = (
        selected_mean(root(squares.masked_fill(~chosen, 0).sum(dim=(1, 2)))) / max(count, 1)
        for chosen in (agreeing < 0, agreeing > 0)
    )
    own = root((old.diagonal() - cross.diagonal()).square().sum()) / max(items, 1)
    return NeighbourOrder(own, inverted, upheld)


def parts_of(points: Tensor, parts: int) -> Tensor:
    """Cut rows (B, D) into M directions of D / M values each (B, M, D / M); a part that is 0 stays 0."""
    return normalise(points.reshape(len(points), parts, points.shape[1] // parts))


def anchors_of(points: Tensor, parts: int, count: int, generator: torch.Generator) -> Tensor:
    """Return the centres of every part of old points, as a product quantiser has them: (M, K, D / M).

    By k-means over the cosines of the parts, ten rounds from points that are drawn; a centre that nothing is nearest to
    stays where it is.

    Args:
        points: Of the old model (N, D).
        parts: M, a divisor of D.
        count: K; at most N.
        generator: Draws the first centres.
    """
    rows = parts_of(points, parts).transpose(0, 1)  # (M, N, D / M)
    drawn = torch.randperm(len(points), generator=generator)[:count]
    centres = rows[:, drawn]
    for _ in range(ROUNDS):
        nearest = (rows @ centres.mT).argmax(dim=2, keepdim=True).expand_as(rows)
        sums = torch.zeros_like(centres).scatter_add_(1, nearest, rows)
        centres = torch.where(sums.any(dim=2, keepdim=True), normalise(sums), centres)
    return centres


def anchor_agreement(new: Tensor, old: Tensor, anchors: Tensor, temperature: float) -> Tensor:
    """Compare which anchors new and old points are near (SSP, Wu et al., arXiv:2403.00648).

    Each of M parts of a point has a cosine to each of K anchors; over a temperature, their softmax is how it lies among
    them. The mean over items and parts of the divergence KL(old ‖ new) of the two.

    Args:
        new: Points (B, D).
        old: Old points of the same items (B, D), detached.
        anchors: What `anchors_of` returned (M, K, D / M).
        temperature: Above 0.

    Returns:
        Nats, a scalar of at least 0.

    >>> points, anchors = torch.eye(2), torch.ones(2, 3, 1)
    >>> anchor_agreement(points, points.flip(0), anchors, 0.5).item()  # anchors that are all alike tell nothing
    0.0
    """
    cosines = (torch.einsum("bms,mks->bmk", parts_of(points, len(anchors)), anchors) for points in (new, old))
    near, before = (of.flatten(0, 1) for of in cosines)
    return dark_knowledge(near, before, temperature)
