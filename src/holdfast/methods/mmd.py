"""Keeping the features of a batch distributed as the last model had them."""

from __future__ import annotations

from torch import Tensor, nn

from holdfast.errors import refuse
from holdfast.geometry import Space
from holdfast.losses.discrepancy import mean_discrepancy
from holdfast.losses.distillation import softened_cross_entropy
from holdfast.methods.base import EVERY_SPACE, CompatibilityMethod, Head, OldModel, Step
from holdfast.methods.old_scores import OldScores
from holdfast.methods.predecessor import require_old


class MMD(CompatibilityMethod):
    """Maximum mean discrepancy with distillation (Chen et al., BMVC 2020, arXiv:2010.08020), as CVS compares with it.

    The features of a batch, lengths included, shall be distributed as the last model's of the same items. On items of
    classes that the last model has not seen, the classifier also has to score the old classes as the last one did;
    where every class is old, as with blurry sessions, that term is 0. Nothing is replayed.

    Args:
        weight: Factor of the discrepancy.
        distillation_weight: Factor of the distillation; 0 leaves it out, and then no old classifier is needed.
        temperature: Divides the scores of both models.
        bandwidth: Of the kernel exp(−‖x − y‖² / bandwidth); D² when left out.
    """

    spaces = EVERY_SPACE
    keeps_points = True
    sessions_only = True
    old_view = "same"

    scores: OldScores

    def __init__(
        self,
        weight: float = 1.0,
        distillation_weight: float = 1.0,
        temperature: float = 2.0,
        bandwidth: float | None = None,
    ) -> None:
        super().__init__()
        refuse(
            weight < 0 or distillation_weight < 0 or temperature <= 0 or (bandwidth is not None and bandwidth <= 0),
            f"mmd was given weight={weight}, distillation_weight={distillation_weight}, temperature={temperature}, "
            f"bandwidth={bandwidth}",
            "weights of at least 0; temperature and bandwidth above 0",
        )
        self.weight, self.distillation_weight = weight, distillation_weight
        self.temperature, self.bandwidth = temperature, bandwidth

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Freeze the old classifier and find its classes in the new one, unless the distillation is left out."""
        old = require_old(old, "mmd")
        if self.distillation_weight:
            self.scores = OldScores(old, "mmd", "distillation_weight 0")

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss, the weighted discrepancy and, unless it is left out, the weighted distillation."""
        discrepancy = mean_discrepancy(step.new.features, step.predecessor.features, self.bandwidth)
        terms = {"task": step.head.loss(step.new, step.labels), "discrepancy": self.weight * discrepancy}
        if self.distillation_weight:
            new, old = self.scores(step)
            kept = softened_cross_entropy(new, old, self.temperature, selected=step.old_labels < 0)
            terms["distillation"] = self.distillation_weight * kept
        return terms
