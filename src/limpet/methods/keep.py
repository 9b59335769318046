"""Learning what labels tell while the neighbours of items without a label stay as they were."""

from __future__ import annotations

from torch import Tensor

from limpet.losses.alignment import similarity_alignment
from limpet.methods.base import EVERY_SPACE, CompatibilityMethod, Read, Step, task_of
from limpet.support.ranges import NonNegative


class Keep(CompatibilityMethod):
    r"""Train the task on items with a class; on the others, keep the similarities of the previous model.

    Labels change the space around labelled items, and no term keeps unlabelled items in place: retrieval gets worse for
    classes that the labels do not cover. This method keeps them in place without labels. For points z of the items of a
    batch without a class, and points z' of the previous model, the term is the mean of (z_i·z_j − z'_i·z'_j)². Items
    with a class are not constrained. If all classes are known, training is the same as `independent`.

    A head of this method stays in the space of its frozen model. An adapter, fitted on all pairs, then maps the stored
    vectors of an older model to that space ("two-step"). `benchmarks/partial_labels.py` measures it.

    Loss:
        L = L_\text{task} + \frac{\lambda}{|U|^2} \sum_{i, j \in U} (z_i \cdot z_j - v_i \cdot v_j)^2

    Args:
        weight: Factor of the kept similarities.

    Departures:
        The term is similarity-preserving distillation (Tung and Mori, ICCV 2019, arXiv:1907.09682), with squared
        differences of the similarities themselves, while the paper normalises the rows of their matrix first; here it
        reads only items without a class, and the teacher is the previous model.
    """

    spaces = EVERY_SPACE
    unlabelled = True
    stays = True
    slower_when_wide = True
    balance = None  # where every item has a class, there is nothing to weigh

    def __init__(self, weight: NonNegative = 100.0) -> None:
        super().__init__()
        self.weight = weight

    @property
    def reads(self) -> frozenset[Read]:
        """The old view, and the classifier."""
        return frozenset({"old", "head"})

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss of the items with a class, and the weighted term of the others; either may be 0."""
        known, space = step.labels >= 0, step.new.space
        new, old = step.new.points[~known], step.predecessor.points[~known]
        kept = similarity_alignment(space.similarity(new, new), space.similarity(old, old))
        return {"task": task_of(step, step.new, known), "keep": self.weight * kept}
