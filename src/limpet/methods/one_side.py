"""A head that learns from labels and from pairs without, and comes to old vectors that stay as they are; our own."""

from __future__ import annotations

from torch import Tensor

from limpet.losses.contrast import each_its_own, high_order_contrast
from limpet.methods.base import CompatibilityMethod, Read, Step, task_of
from limpet.support.ranges import NonNegative, Positive


class OneSide(CompatibilityMethod):
    r"""One classifier of new and old views, and a contrast of pairs, labelled or not; old vectors do not change.

    A variant of `both_sides` for stored old vectors that cannot be mapped: it has no map, and aligns the new view z_i
    with the old one v_i instead. Two terms are added to the task:

    - the task, of the old view: the classifier learns from z_i and from v_i, if a class is known, so that both are on
      the same side of its decision boundaries;
    - a contrast: z_i must retrieve v_i among the v_j of the batch, excluding items of its own class.

    It has no protection against mismatched pairs. No paper proposes this method; `benchmarks/label_free.py` measures
    it.

    Loss:
        L = L_\text{task}(z) + L_\text{task}(v) + \lambda C
        C = - \frac{1}{B} \sum_i \log \frac{\exp(s z_i \cdot v_i)}
            {\exp(s z_i \cdot v_i) + \sum_{j: y_j \ne y_i} \exp(s z_i \cdot v_j)}

    Args:
        weight: Factor of the contrast.
        scale: Factor of the cosines of the contrast.
    """

    unlabelled = True
    balance = None  # it is for heads, which are chosen on items held out

    def __init__(self, weight: NonNegative = 1.0, scale: Positive = 6.0) -> None:
        super().__init__()
        self.weight, self.scale = weight, scale

    @property
    def reads(self) -> frozenset[Read]:
        """The old view."""
        return frozenset({"old"})

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task of both views, and the weighted contrast; each may be 0."""
        space, known = step.new.space, step.labels >= 0
        apart = each_its_own(step.labels)
        similarities = space.similarity(step.new.points, step.predecessor.points, self.scale)
        return {
            "task": task_of(step, step.new, known),
            "old_task": task_of(step, step.predecessor, known),
            "contrast": self.weight * high_order_contrast(similarities, apart, "infonce"),
        }
