"""Unified backward-compatible training."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from holdfast.errors import refuse
from holdfast.geometry import Space
from holdfast.losses.perturbation import mean_angle
from holdfast.losses.prototypes import prototype_margin
from holdfast.losses.refinement import refined_prototypes
from holdfast.methods.base import CompatibilityMethod, Epoch, Head, OldModel, Step
from holdfast.methods.predecessor import class_prototypes, labelled_features, require_old


class UniBCT(CompatibilityMethod):
    """Unified backward-compatible training (Zhang et al., IJCAI 2022, arXiv:2203.01583).

    A classifier made of the old model's class means, refined twice by how the new model groups the items of a class,
    must also classify new embeddings, with an angular margin. Until the first refinement there is only the task.

    Where the paper is open: refinements come at the start of epochs round(2E/7) and round(4E/7) of E, 10 and 20 of 35
    in MixBCT's comparison. The public copy of the refinement normalises similarities along columns, which undoes it;
    here rows are normalised, on unit vectors. AdvBCT's comparison leaves the refinement out: `refine` false.

    Args:
        weight: Factor of the compatibility term.
        scale: Multiplies its cosines.
        margin: Angular margin at the target, in radians.
        refine: Refine the class means; without, the term acts from the first step.
        propagation: Share of every item's old embedding that comes from similar items (lambda), below 1.
        temperature: Divides the cosines between items of a class.
    """

    prototypes: Tensor

    def __init__(
        self,
        weight: float = 1.0,
        scale: float = 30.0,
        margin: float = 0.3,
        refine: bool = True,
        propagation: float = 0.9,
        temperature: float = 0.05,
    ) -> None:
        super().__init__()
        refuse(weight < 0 or scale <= 0 or margin < 0, f"unibct was given weight={weight}, scale={scale}, "
               f"margin={margin}", "weight and margin of at least 0, a scale above 0")  # fmt: skip
        refuse(not 0 <= propagation < 1 or temperature <= 0, f"unibct was given propagation={propagation} and "
               f"temperature={temperature}", "a propagation from 0 to below 1, a temperature above 0")  # fmt: skip
        self.weight, self.scale, self.margin = weight, scale, margin
        self.refine, self.propagation, self.temperature = refine, propagation, temperature

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Average the old embeddings by class."""
        self.old, self.space = require_old(old, "unibct").embeddings, space
        prototypes, _ = class_prototypes(self.old, space)
        self.register_buffer("prototypes", prototypes)

    def on_epoch_start(self, epoch: Epoch) -> Mapping[str, float] | None:
        """Refine the prototypes where it is time; log by how many degrees they turned."""
        if not self.refine or epoch.index not in refinement_epochs(epoch.total):
            return None
        features, labels, classes = labelled_features(self.old)
        old, new = self.space.project(features).to(self.prototypes), epoch.new_embeddings().points.to(self.prototypes)
        refined = refined_prototypes(
            new, old, labels.to(new.device), classes, propagation=self.propagation, temperature=self.temperature
        )
        before, self.prototypes = self.prototypes, self.space.project(refined)
        return {"degrees moved": mean_angle(before, self.prototypes)}

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss and the weighted compatibility, 0 until the prototypes are refined."""
        points = step.new.features
        compatibility = points.new_zeros(())
        if not self.refine or step.epoch >= min(refinement_epochs(step.epochs)):
            prototypes = self.prototypes.to(points.dtype)
            compatibility = prototype_margin(points, step.labels, prototypes, scale=self.scale, margin=self.margin)
        return {"task": step.head.loss(step.new, step.labels), "compatibility": self.weight * compatibility}


def refinement_epochs(epochs: int) -> tuple[int, int]:
    """Return the epochs, from 0, at whose start prototypes are refined.

    >>> refinement_epochs(35), refinement_epochs(8)
    ((10, 20), (2, 5))
    """
    return round(2 * epochs / 7), round(4 * epochs / 7)
