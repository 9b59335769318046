"""Keeping how items lie among anchors of the old space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from limpet.errors import refuse
from limpet.geometry import Space
from limpet.losses.neighbourhood import anchor_agreement, anchors_of
from limpet.methods.base import CompatibilityMethod, Head, OldModel, Read, Step, View, task_of
from limpet.methods.predecessor import require_old

_SAMPLE = 10_000  # old embeddings among which anchors are sought


class SSP(CompatibilityMethod):
    """Structure similarity preservation (Wu et al., arXiv:2403.00648): new embeddings lie among old anchors as before.

    Old embeddings are cut into parts, and the parts clustered, as a product quantiser does. How near a part of an
    embedding is to the anchors of that part, as a softmax, is what the new model is asked to see as the old one did.
    That needs no labels: items without a class take part in it, and only there.

    Our reading, where the abstract and the public settings leave it open: cosines of parts, the temperature, the
    divergence, and a classifier that trains along. Anchors are sought among 10,000 items.

    Args:
        weight: Factor of the divergence.
        parts: Into how many parts embeddings are cut; the next smaller number that divides their dimension.
        anchors: How many of them every part has.
        temperature: Divides the cosines.
    """

    unlabelled = True
    without_classes: ClassVar[Mapping[str, Any]] = {}

    anchor_points: Tensor

    def __init__(self, weight: float = 1.0, parts: int = 32, anchors: int = 256, temperature: float = 0.1) -> None:
        super().__init__()
        refuse(weight < 0, f"ssp was given weight={weight}", "a value of at least 0")
        refuse(temperature <= 0, f"ssp was given temperature={temperature}", "a value above 0")
        refuse(parts < 1, f"ssp was given parts={parts}", "at least 1")
        refuse(anchors < 2, f"ssp was given anchors={anchors}", "at least 2: one is near to all")
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
