"""Contrast of a new embedding and its old one against the hardest items of other classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from limpet.losses.contrast import INFINITY
from limpet.methods.base import EVERY_SPACE, CompatibilityMethod, Read, Step
from limpet.support.ranges import Count, NonNegative, Positive


class HotRefresh(CompatibilityMethod):
    r"""Regression-alleviating compatible training, RACT (Zhang et al., ICLR 2022, arXiv:2201.09724).

    A new embedding must be closer to the old one of the same item than to the old embeddings, and to the new ones, of
    other classes: the latter make an upgrade lose correct results.

    Loss:
        L = L_\text{task} + \lambda C
        C = - \frac{1}{B} \sum_i \log \frac{\exp(z_i \cdot v_i / \tau)}
            {\exp(z_i \cdot v_i / \tau) + \sum_{k \in N_i} [ \exp(z_i \cdot v_k / \tau) + \exp(z_i \cdot z_k / \tau) ]}

    Args:
        weight: Factor of the contrast.
        temperature: Divisor of the cosines or, on the Lorentz space, of the geodesic distances; 0.01 as in the public
            configurations. Form "contrast" only.
        negatives: Number of most similar old negatives, and of new ones, per item; 0 uses all. If fewer exist, all are
            used.
        new_to_new: Compare with new negatives as well; otherwise it is plain compatible contrast.
        form: "contrast", a softmax over the negatives; "triplet", a hinge on the distance to each.
        margin: Distance by which a negative must be farther than the item's own old embedding. Form "triplet" only; the
            default is ours, the paper uses the contrast.

    Paper settings:
        temperature: 0.01 (public configurations)
        negatives: 10 (public configurations)
    """

    spaces = EVERY_SPACE
    old_view = "same"
    without_classes: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        weight: NonNegative = 1.0,
        temperature: Positive = 0.01,
        negatives: Count = 10,
        new_to_new: bool = True,
        form: Literal["contrast", "triplet"] = "contrast",
        margin: NonNegative = 0.3,
    ) -> None:
        super().__init__()
        self.weight, self.temperature, self.negatives = weight, temperature, negatives
        self.new_to_new, self.form, self.margin = new_to_new, form, margin

    @property
    def reads(self) -> frozenset[Read]:
        """The old view."""
        return frozenset({"old"})

    def negative_blocks(self, step: Step) -> list[Tensor]:
        """Return similarities to the hardest old negatives and, if asked for, to the new ones, each (B, k)."""
        new, space = step.new.points, step.new.space
        keys = [step.predecessor.points, *([new] if self.new_to_new else [])]
        other = step.labels[:, None] != step.labels
        return [hardest(space.similarity(new, rows), other, self.negatives) for rows in keys]

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss and the weighted contrast; it is 0 where a batch has one class only."""
        new, old, space = step.new.points, step.predecessor.points, step.new.space
        blocks = self.negative_blocks(step)
        if self.form == "contrast":
            contrast = hard_negative_contrast(space.paired_similarity(new, old), blocks, self.temperature)
        else:
            distances = [space.distance(block) for block in blocks]
            contrast = hard_negative_triplet(space.paired_distance(new, old), distances, self.margin)
        return {"task": step.head.loss(step.new, step.labels), "contrast": self.weight * contrast}


def hardest(similarities: Tensor, other: Tensor, count: int) -> Tensor:
    """Return the largest similarities of every row among its negatives.

    Args:
        similarities: Of rows to keys (B, G).
        other: Whether a key is of another class than the row, bool (B, G).
        count: How many to keep; 0 keeps all.

    Returns:
        (B, G), or (B, min(count, G)) in falling order; −inf where a row has fewer negatives.

    >>> hardest(torch.tensor([[0.9, 0.1, 0.5]]), torch.tensor([[False, True, True]]), 1).tolist()
    [[0.5]]
    """
    negatives = similarities.masked_fill(~other, -INFINITY)
    return negatives.topk(min(count, negatives.shape[1]), dim=1).values if count else negatives


def hard_negative_contrast(positive: Tensor, blocks: Sequence[Tensor], temperature: float) -> Tensor:
    """Classify every item's old embedding against its negatives (Hot-Refresh, arXiv:2201.09724).

    −log( exp(s_i/τ) / ( exp(s_i/τ) + Σ_blocks Σ_k exp(s_ik/τ) ) ), averaged over the batch.

    Args:
        positive: Similarity s of every new embedding to the old one of the same item (B,).
        blocks: Similarities to negatives, each (B, k), −inf where one is missing; see `hardest`.
        temperature: τ > 0.

    Returns:
        A scalar, at least 0; a row without negatives counts 0.

    >>> round(hard_negative_contrast(torch.ones(1), [torch.zeros(1, 1)], 1.0).item(), 4)  # ln(1 + exp(-1))
    0.3133
    """
    logits = torch.cat([positive[:, None], *blocks], dim=1) / temperature
    return (torch.logsumexp(logits, dim=1) - logits[:, 0]).sum() / max(len(positive), 1)


def hard_negative_triplet(near: Tensor, blocks: Sequence[Tensor], margin: float) -> Tensor:
    """Average max(0, d_i − d_ik + margin) over negatives k, then over rows i; sum over the blocks.

    The triplet form of OpenCompatible's Hot-Refresh. Departure: its rows always have k negatives; here a row averages
    over those that it has, and counts 0 when it has none.

    Args:
        near: Distance d of every new embedding to the old one of the same item (B,).
        blocks: Distances to negatives, each (B, k), +inf where one is missing; see `hardest`.
        margin: Distance by which negatives must be farther than the positive, at least 0.

    Returns:
        A scalar, at least 0.

    >>> hard_negative_triplet(torch.zeros(1), [torch.ones(1, 1)], margin=1.25).item()
    0.25
    """
    loss = near.sum() * 0
    for distances in blocks:
        excess = F.relu(near[:, None] - distances + margin)
        rows = excess.sum(dim=1) / torch.isfinite(distances).sum(dim=1).clamp_min(1)
        loss = loss + rows.sum() / max(len(near), 1)
    return loss
