"""Paired alignment: pull every new embedding to the old one of the same item."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Gt, Le
from torch import Tensor, nn

from limpet.errors import refuse
from limpet.geometry import Space
from limpet.losses.alignment import distance_alignment, selected_mean
from limpet.losses.denoising import credible_rows
from limpet.methods.base import EVERY_SPACE, CompatibilityMethod, Head, OldModel, Read, Step
from limpet.methods.predecessor import labelled_features, require_old
from limpet.support.ranges import NonNegative


class L2(CompatibilityMethod):
    r"""Distance between new and old embeddings of the same item (the L2 baseline of MixBCT, arXiv:2308.06948).

    On the Lorentz space, it is the geodesic distance, the mean distortion in HBCT's comparison.

    Loss:
        L = L_\text{task} + \frac{\lambda}{B} \sum_i \lVert z_i - v_i \rVert

    Args:
        weight: Factor of the alignment; 10 with ArcFace in MixBCT's comparison.
        power: 1 for the mean length of the difference of unit vectors (MixBCT), 2 for its mean squared elements
            (OpenCompatible); on the Lorentz space, the mean squared distance over D.
        hinge: With power 1, the largest distance without a loss; 0.2 in MixBCT's weakened form.
        denoise: Share of every class that is treated as credible, by the direction of the old features; only these
            items are aligned (MixBCT's L2*, with 0.9). 1 aligns all.

    Paper settings:
        weight: 10 (MixBCT, beside ArcFace)
        power: 1 (MixBCT), 2 (OpenCompatible)
        hinge: 0; 0.2 in the weakened form (MixBCT)
        denoise: 1; 0.9 for L2* (MixBCT)
    """

    spaces = EVERY_SPACE
    without_classes: ClassVar[Mapping[str, Any]] = {"denoise": 1.0}

    credible: Tensor | None

    def __init__(
        self,
        weight: NonNegative = 10.0,
        power: Literal[1, 2] = 1,
        hinge: NonNegative = 0.0,
        denoise: Annotated[float, Gt(0), Le(1)] = 1.0,
    ) -> None:
        super().__init__()
        refuse(power == 2 and hinge > 0, f"l2 was given hinge={hinge} with power=2", "a hinge only with power=1")
        self.weight, self.power, self.hinge, self.denoise = weight, power, hinge, denoise
        self.register_buffer("credible", None)  # none needed where all rows count

    @property
    def reads(self) -> frozenset[Read]:
        """The old view, and where it may be left out, the training set's rows."""
        return frozenset({"old", "old_embeddings", "index"} if self.denoise < 1 else {"old"})

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Mark the credible old embeddings once, over the whole new training set, unless all of them count."""
        old = require_old(old, "l2")
        if self.denoise < 1:
            features, labels, classes = labelled_features(old.embeddings)
            self.register_buffer("credible", credible_rows(features, labels, classes, self.denoise))

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss and the weighted alignment; the alignment is 0 where no row of the batch is credible."""
        distances = step.new.space.paired_distance(step.new.points, step.predecessor.points)
        selected = None if self.credible is None else self.credible[step.index]
        if self.power == 2:
            alignment = selected_mean(distances.square() / step.new.space.dim, selected)
        else:
            alignment = distance_alignment(distances, self.hinge, selected)
        return {"task": step.head.loss(step.new, step.labels), "alignment": self.weight * alignment}
