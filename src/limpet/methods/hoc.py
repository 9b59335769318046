"""High-order compatibility: a contrast traded against the task in one convex sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from torch import Tensor

from limpet.losses.contrast import high_order_contrast
from limpet.methods.base import EVERY_SPACE, CompatibilityMethod, Read, Step
from limpet.support.ranges import Positive, Share


class HOC(CompatibilityMethod):
    r"""High-order compatibility loss (Biondi et al., CVPR 2024, arXiv:2405.02581).

    Every old embedding of the batch is contrasted with the new ones: that of the same item against other classes. The
    loss is λ·task + (1 − λ)·contrast.

    Loss:
        L = \lambda L_\text{task} + (1 - \lambda) C
        C = \frac{1}{B} \sum_i [ - \mu v_i \cdot z_i + \log \sum_{j: y_j \ne y_i} \exp(\mu v_i \cdot z_j) ]

    Args:
        scale: Factor of the cosines (the paper's mu) or, on the Lorentz space, of the negative geodesic distances.
        task_share: Share of the classification loss in the sum (the paper's lambda), in [0, 1].
        form: "strict" sums only over other classes; "infonce" over these and the same item; "reference" replaces every
            item of the same class by 1, as the public code does.

    Paper settings:
        scale: 10
        task_share: 0.1, beside a fixed simplex classifier
        form: reference (public code)

    Departures:
        The paper trains beside a fixed simplex classifier, which ties the dimension to the number of classes. Here any
        head can be used, as in HBCT's comparison. As in the public code, the batch is that of one process.
    """

    spaces = EVERY_SPACE
    balance = "task_share"
    old_view = "same"
    without_classes: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        scale: Positive = 10.0,
        task_share: Share = 0.1,
        form: Literal["strict", "infonce", "reference"] = "strict",
    ) -> None:
        super().__init__()
        self.scale, self.task_share, self.form = scale, task_share, form

    @property
    def reads(self) -> frozenset[Read]:
        """The old view."""
        return frozenset({"old"})

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return both terms with their shares; with form "strict", a row without another class in the batch adds 0."""
        new, old = step.new.points, step.predecessor.points
        similarities = step.new.space.similarity(old, new, self.scale)
        contrast = high_order_contrast(similarities, step.labels, self.form)
        task = step.head.loss(step.new, step.labels)
        return {"task": self.task_share * task, "contrast": (1 - self.task_share) * contrast}
