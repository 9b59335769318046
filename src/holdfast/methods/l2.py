"""Paired alignment: pull every new embedding to the old one of the same item."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from holdfast.errors import refuse
from holdfast.geometry.hypersphere import normalise
from holdfast.losses.alignment import distance_alignment, squared_alignment
from holdfast.methods.base import CompatibilityMethod, Step


class L2(CompatibilityMethod):
    """Distance between new and old embeddings of the same item (the L2 baseline of MixBCT, arXiv:2308.06948).

    Args:
        weight: Factor of the alignment; 10 beside ArcFace in MixBCT's comparison.
        power: 1 for the mean length of the difference of unit vectors (MixBCT), 2 for its mean squared elements
            (OpenCompatible).
        hinge: With power 1, a distance that costs nothing; 0.2 in MixBCT's weakened form.
    """

    def __init__(self, weight: float = 10.0, power: Literal[1, 2] = 1, hinge: float = 0.0) -> None:
        super().__init__()
        refuse(weight < 0 or hinge < 0, f"l2 was given weight={weight} and hinge={hinge}", "values of at least 0")
        refuse(power not in (1, 2), f"l2 was given power={power}", "1 or 2")
        refuse(power == 2 and hinge > 0, f"l2 was given hinge={hinge} with power=2", "a hinge only with power=1")
        self.weight, self.power, self.hinge = weight, power, hinge

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss and the weighted alignment."""
        new, old = normalise(step.new.features), normalise(step.predecessor.features)
        alignment = squared_alignment(new, old) if self.power == 2 else distance_alignment(new, old, self.hinge)
        return {"task": step.head.loss(step.new, step.labels), "alignment": self.weight * alignment}
