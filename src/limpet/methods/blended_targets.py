"""Old embeddings without their noise as targets, among the batch and among all classes: a method of our own."""

from __future__ import annotations

from torch import Tensor, nn

from limpet.geometry import Space
from limpet.geometry.hypersphere import normalise
from limpet.losses.contrast import high_order_contrast
from limpet.losses.prototypes import point_contrast
from limpet.methods.base import CompatibilityMethod, Head, OldModel, Read, Step
from limpet.methods.predecessor import class_prototypes, require_old
from limpet.support.ranges import NonNegative, Positive, Share


class BlendedTargets(CompatibilityMethod):
    r"""Contrast new embeddings with blends of their old embedding and the old mean of their class.

    Methods of class means (`p2s`) are worse on classes outside the training set: a mean contains no differences between
    the items of a class, which generalise to other classes. Methods of single old embeddings (`hoc`, `l2`) also learn
    the errors of the old model. Here the target of item i, of class y, is between both, for old embeddings v, their
    class means p and a share a: t_i = n(a·v_i + (1 − a)·p_y). Two terms are added to the task:

    - pairs: z_i must retrieve t_i among the targets of the batch, excluding those of its own class:
      −log( exp(z_i·t_i/τ) / ( exp(z_i·t_i/τ) + Σ_{j: y_j ≠ y_i} exp(z_i·t_j/τ) ) );
    - classes: z_i must retrieve p_y among the means of all classes, as in `p2s`.

    With a = 1 and no second term, it is the contrast of `hot_refresh` with all negatives; with only the second term, it
    is `p2s`. No paper proposes this method; docs/results/own_method.md has an ablation and its weaknesses.

    Loss:
        L = L_\text{task} + \lambda [ (1 - s) P + s C ]
        P = - \frac{1}{B} \sum_i \log \frac{\exp(z_i \cdot t_i / \tau)}
            {\exp(z_i \cdot t_i / \tau) + \sum_{j: y_j \ne y_i} \exp(z_i \cdot t_j / \tau)}
        C = - \frac{1}{B} \sum_i \log \frac{\exp(z_i \cdot p_{y_i} / \tau_c)}{\sum_c \exp(z_i \cdot p_c / \tau_c)}
        t_i = n(a v_i + (1 - a) p_{y_i})

    Args:
        weight: Factor of the sum of both terms.
        class_share: Share of the second term in their sum, in [0, 1]; the first has the rest.
        old_share: Share of the item's own old embedding in its target (a), in [0, 1].
        temperature: Divisor of the cosines of the first term.
        class_temperature: Divisor of the cosines of the second term, 0.07 as in `p2s`.
    """

    space_reason = "a target lies between two directions"

    prototypes: Tensor

    def __init__(
        self,
        weight: NonNegative = 0.8,
        class_share: Share = 0.25,
        old_share: Share = 0.5,
        temperature: Positive = 0.1,
        class_temperature: Positive = 0.07,
    ) -> None:
        super().__init__()
        self.weight, self.class_share, self.old_share = weight, class_share, old_share
        self.temperature, self.class_temperature = temperature, class_temperature

    @property
    def reads(self) -> frozenset[Read]:
        """The old view, and the old embeddings of the training set, whose class means it keeps."""
        return frozenset({"old", "old_embeddings"})

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Average the old points by class."""
        prototypes, _ = class_prototypes(require_old(old, "blended_targets").embeddings, space)
        self.register_buffer("prototypes", prototypes)

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss and both weighted terms; one of share or weight 0 is 0."""
        space, points, means = step.new.space, step.new.points, self.prototypes.to(step.new.points.dtype)
        own = self.old_share * step.predecessor.points
        targets = normalise(own + (1 - self.old_share) * means[step.labels])
        pairs = high_order_contrast(space.similarity(points, targets, 1 / self.temperature), step.labels, "infonce")
        classes = point_contrast(space, points, step.labels, means, self.class_temperature)
        return {
            "task": step.head.loss(step.new, step.labels),
            "pairs": self.weight * (1 - self.class_share) * pairs,
            "classes": self.weight * self.class_share * classes,
        }
