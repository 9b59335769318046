"""Contrast of new embeddings against the old model's class prototypes."""

from __future__ import annotations

from torch import Tensor, nn

from limpet.geometry import Space
from limpet.losses.prototypes import drawn_classes, point_contrast
from limpet.methods.base import EVERY_SPACE, CompatibilityMethod, Head, OldModel, Read, Step
from limpet.methods.predecessor import class_prototypes, require_old
from limpet.support.ranges import NonNegative, Positive, PositiveInt


class P2S(CompatibilityMethod):
    r"""Point-to-set prototype contrast, the baseline that NDPP and ODPP perturb (arXiv:2503.14824, section III).

    Every new embedding is classified by its similarity to the old model's mean point of each class of the new
    training set; all classes are used, whether or not the old model saw them in training.

    Loss:
        L = L_\text{task} + \lambda C
        C = - \frac{1}{B} \sum_i \log \frac{\exp(z_i \cdot p_{y_i} / \tau)}{\sum_c \exp(z_i \cdot p_c / \tau)}

    Args:
        weight: Factor of the contrast (the paper's lambda).
        temperature: Divisor of the cosines (the paper's tau) or, on the Lorentz space, of the negative geodesic
            distances.
        negatives: Number of other classes in the contrast, redrawn at every step. Default: all, as in the paper. Fewer
            save time and memory with very many classes.

    Paper settings:
        weight: 1
        temperature: 0.07
        negatives: all

    Departures:
        Class means are means of unit vectors and have unit length; the paper does not specify this.
    """

    spaces = EVERY_SPACE
    keeps_points = True

    prototypes: Tensor

    def __init__(
        self, weight: NonNegative = 1.0, temperature: Positive = 0.07, negatives: PositiveInt | None = None
    ) -> None:
        super().__init__()
        self.weight, self.temperature, self.negatives = weight, temperature, negatives

    @property
    def reads(self) -> frozenset[Read]:
        """The old embeddings, whose class means it keeps."""
        return frozenset({"old_embeddings"})

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Average the old points by class; on the hypersphere, unit vectors first and the mean to unit length again."""
        prototypes, _ = class_prototypes(require_old(old, "p2s").embeddings, space)
        self.register_buffer("prototypes", prototypes)

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss and the weighted contrast."""
        view, prototypes = step.new, self.prototypes.to(step.new.points.dtype)
        negatives = drawn_classes(self.negatives, len(prototypes), step.generator, prototypes.device)
        contrast = point_contrast(view.space, view.points, step.labels, prototypes, self.temperature, negatives)
        return {"task": step.head.loss(step.new, step.labels), "contrast": self.weight * contrast}
