"""Keeping how items lie among anchors of the old space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor, nn

from limpet.geometry import Space
from limpet.geometry.hypersphere import normalise
from limpet.losses.distillation import dark_knowledge
from limpet.methods.base import CompatibilityMethod, Head, OldModel, Read, Step, View, task_of
from limpet.methods.predecessor import require_old
from limpet.support.ranges import NonNegative, Positive, PositiveInt

ROUNDS = 10  # of k-means


_SAMPLE = 10_000  # old embeddings among which anchors are sought


class SSP(CompatibilityMethod):
    r"""Structure similarity preservation (Wu et al., arXiv:2403.00648): keep similarities to anchors of the old space.

    Old embeddings are split into parts, and the parts are clustered, as in product quantisation. The softmax over the
    similarities of a part of an embedding to the anchors of that part must be the same for the new model as for the old
    one. This needs no labels: items without a class contribute only to this term.

    Loss:
        L = L_\text{task} + \frac{\lambda}{B M} \sum_i \sum_m
            \text{KL}( \sigma(A_m v_i^m / \tau) , \sigma(A_m z_i^m / \tau) )

    Args:
        weight: Factor of the divergence.
        parts: Number of parts of an embedding; rounded down to a divisor of the dimension.
        anchors: Number of anchors per part.
        temperature: Divisor of the cosines.

    Departures:
        Details that the abstract and the public settings leave open are our choice: cosines of parts, the temperature,
        the divergence, and a classifier trained as well. Anchors are computed from 10,000 items.
    """

    unlabelled = True
    without_classes: ClassVar[Mapping[str, Any]] = {}

    anchor_points: Tensor

    def __init__(
        self,
        weight: NonNegative = 1.0,
        parts: PositiveInt = 32,
        anchors: Annotated[int, Ge(2)] = 256,
        temperature: Positive = 0.1,
    ) -> None:
        super().__init__()
        self.weight, self.parts, self.anchors, self.temperature = weight, parts, anchors, temperature

    @property
    def reads(self) -> frozenset[Read]:
        """The old embeddings, among which it seeks anchors, and the old view."""
        return frozenset({"old_embeddings", "old"})

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Seek the anchors of every part (M, K, D / M)."""
        vectors = require_old(old, "ssp").embeddings.vectors
        generator = torch.Generator().manual_seed(0)
        rows = torch.randperm(len(vectors), generator=generator)[:_SAMPLE].sort().values
        points = View.of(torch.from_numpy(np.array(vectors[rows.numpy()])), space).points
        parts = next(count for count in range(min(self.parts, space.dim), 0, -1) if space.dim % count == 0)
        self.register_buffer("anchor_points", anchors_of(points, parts, self.anchors, generator))

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss of the items with a class, and the weighted divergence of all."""
        anchors = self.anchor_points.to(step.new.points)
        agreement = anchor_agreement(step.new.points, step.predecessor.points, anchors, self.temperature)
        return {"task": task_of(step, step.new, step.labels >= 0), "anchors": self.weight * agreement}


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
