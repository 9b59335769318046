"""Backward-compatible training by the old classifier's influence."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from limpet.geometry import Space
from limpet.losses.influence import mean_cross_entropy
from limpet.methods.base import EVERY_SPACE, CompatibilityMethod, Head, OldModel, PrototypeClassifier, Read, Step
from limpet.methods.predecessor import class_prototypes, frozen, require_old, shares_classes
from limpet.support.ranges import NonNegative, Positive

UNSCALED_TEMPERATURE = 0.05


class BCT(CompatibilityMethod):
    r"""Influence loss of backward-compatible training (Shen et al., CVPR 2020, arXiv:2003.11942, Eq. 4).

    The frozen old classifier must also classify the new model's embeddings, for classes the old model has seen. If that
    classifier is not available, or knows none of the new classes, the old model's class means replace it: one for every
    class of the new data, including classes that the classifier would ignore. In sessions that share no class, it has
    no items to classify, and replays exemplars, as in CVS's comparison.

    Loss:
        L = L_\text{task} + \frac{\lambda}{|K|} \sum_{i \in K} \text{CE}(W_\text{old} x_i, y_i)

    Args:
        weight: Factor of the influence term (the paper's lambda).
        temperature: Divisor of the similarities to class means, if these replace the old classifier. Default: the scale
            of the new head, or 0.05 for heads without a scale.
        classifier: "old", the old classifier if available; "means", always class means, as in MixBCT's comparison,
            which assumes that old classifiers are not available.

    Paper settings:
        weight: 1

    Departures:
        If the old classifier is missing or knows none of the classes, class means of the old embeddings replace it, at
        the scale of the new head. K are the items whose class the old model knows.
    """

    spaces = EVERY_SPACE
    keeps_points = True
    memory = "herding"
    replays = "without old classes"

    classifier: Head

    def __init__(
        self,
        weight: NonNegative = 1.0,
        temperature: Positive | None = None,
        classifier: Literal["old", "means"] = "old",
    ) -> None:
        super().__init__()
        self.weight, self.temperature = weight, temperature
        self.only_means, self.synthesised = classifier == "means", False

    @property
    def reads(self) -> frozenset[Read]:
        """The old embeddings, where class means are asked for."""
        return frozenset({"old_embeddings"} if self.only_means else ())

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Freeze the old classifier, or build one from class means (one row per new class)."""
        old = require_old(old, "bct")
        if not self.only_means and old.head is not None and shares_classes(old):
            self.synthesised, self.classifier = False, frozen(old.head)
        else:
            means, _ = class_prototypes(old.embeddings, space)
            scale = head.scale if head.normalised else 1 / UNSCALED_TEMPERATURE
            scale = scale if self.temperature is None else 1 / self.temperature
            self.synthesised, self.classifier = True, PrototypeClassifier(means, scale)

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss and the weighted influence; the influence is 0 when the old model saw no class."""
        targets = step.labels if self.synthesised else step.old_labels
        influence = mean_cross_entropy(self.classifier.logits(step.new), targets)
        return {"task": step.head.loss(step.new, step.labels), "influence": self.weight * influence}
