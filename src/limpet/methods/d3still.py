"""Keeping the order of old neighbours, and how much nearer one is than another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from annotated_types import Ge
from torch import Tensor

from limpet.geometry.hypersphere import root
from limpet.losses.alignment import selected_mean
from limpet.methods.base import CompatibilityMethod, Read, Step, task_of
from limpet.support.ranges import NonNegative

SLACK = 0.1  # added to a difference of old similarities, by which another one is divided


class D3still(CompatibilityMethod):
    r"""Decoupled differential distillation (Xie et al., CVPR 2024): keep the order of old neighbours.

    Every item has nearest neighbours in the batch, by the old model. A new embedding must reproduce the differences of
    similarity between them, with the largest weight on pairs in the wrong order, and the similarity to the old
    embedding of its own item. This needs no labels: items without a class contribute only to these terms.

    <https://openaccess.thecvf.com/content/CVPR2024/html/Xie_D3still_Decoupled_Differential_Distillation_for_Asymmetric_Image_Retrieval_CVPR_2024_paper.html>

    Loss:
        L = L_\text{task} + \lambda [ \lambda_o O + \lambda_- D^- + \lambda_+ D^+ ]
        O = \frac{1}{B} \sqrt{\sum_i (v_i \cdot v_i - z_i \cdot v_i)^2}
        D^\pm = \frac{1}{B K} \sum_i \sqrt{\sum_{(a, b) \in P_i^\pm} ( \frac{d_{ab} - e_{ab}}{0.1 + |e_{ab}|} )^2}
        d_{ab} = z_i \cdot (v_a - v_b), \quad e_{ab} = v_i \cdot (v_a - v_b)

    Args:
        weight: Factor of all three terms.
        own: Factor of the similarity to the own item.
        inverted: Factor of the differences of pairs in the wrong order.
        upheld: Factor of the differences of pairs in the right order.
        neighbours: Number of neighbours per item.

    Paper settings:
        own: 50 (public code)
        inverted: 2 (public code)
        upheld: 1 (public code)
        neighbours: 9, and the item itself (public code)

    Departures:
        As in the public code, similarities are computed within a batch, and a classifier is trained as well; the paper
        has none. The defaults are those of the public code, which counts the item itself as the first of ten
        neighbours.
    """

    unlabelled = True
    without_classes: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        weight: NonNegative = 1.0,
        own: NonNegative = 50.0,
        inverted: NonNegative = 2.0,
        upheld: NonNegative = 1.0,
        neighbours: Annotated[int, Ge(2)] = 9,
    ) -> None:
        super().__init__()
        self.weight, self.own, self.inverted, self.upheld, self.neighbours = weight, own, inverted, upheld, neighbours

    @property
    def reads(self) -> frozenset[Read]:
        """The old view."""
        return frozenset({"old"})

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss of the items with a class, and the three weighted terms of all."""
        space, old = step.new.space, step.predecessor.points
        cross, before = space.similarity(step.new.points, old), space.similarity(old, old)
        found = neighbour_order(cross, before, self.neighbours)
        return {
            "task": task_of(step, step.new, step.labels >= 0),
            "own": self.weight * self.own * found.own,
            "inverted": self.weight * self.inverted * found.inverted,
            "upheld": self.weight * self.upheld * found.upheld,
        }


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
