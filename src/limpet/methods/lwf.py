"""Learning without forgetting: the old classifier's scores are kept, by a copy of it that trains along."""

from __future__ import annotations

import copy

from torch import Tensor, nn

from limpet.errors import ConfigError
from limpet.geometry import Space
from limpet.losses.distillation import softened_cross_entropy
from limpet.methods.base import EVERY_SPACE, CompatibilityMethod, Head, OldModel, Read, Step
from limpet.methods.predecessor import by_option, frozen, require_old
from limpet.support.ranges import NonNegative, Positive


class LwF(CompatibilityMethod):
    r"""Learning without forgetting (Li and Hoiem, TPAMI 2018, arXiv:1606.09282), as in CVS's comparison.

    The last model and its classifier score the batch; a trainable copy of that classifier must give the new embeddings
    the same scores. It uses no replay. Temperature and weight apply to the classifier's scores; those of a normalised
    classifier are already divided by its own temperature (0.05 in CVS).

    Loss:
        L = L_\text{task} - \frac{\lambda}{B} \sum_i \sum_c \sigma(s_i^\text{old} / T)_c \log \sigma(s_i / T)_c

    Args:
        weight: Factor of the distillation; 0 omits it, and no old classifier is then needed.
        temperature: Divisor of the scores of both models (T = 2 in the paper).

    Paper settings:
        temperature: 2
    """

    spaces = EVERY_SPACE
    keeps_points = True
    sessions_only = True
    old_view = "same"

    teacher: Head
    student: Head

    def __init__(self, weight: NonNegative = 1.0, temperature: Positive = 2.0) -> None:
        super().__init__()
        self.weight, self.temperature = weight, temperature

    @property
    def reads(self) -> frozenset[Read]:
        """The old view, unless the distillation is left out."""
        return frozenset({"old"} if self.weight else ())

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Copy the old classifier twice: one is frozen, one trains along."""
        old = require_old(old, "lwf")
        if not self.weight:
            return
        if old.head is None:
            raise ConfigError(
                "lwf keeps the scores of the old classifier, which was discarded.",
                expected="an old release with its classifier",
                to_do=f"leave the distillation out: {by_option('lwf', 'weight', 0)}.",
            )
        self.teacher = frozen(old.head)
        self.student = copy.deepcopy(old.head).requires_grad_().train()

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss and, unless it is left out, the weighted distillation."""
        terms = {"task": step.head.loss(step.new, step.labels)}
        if self.weight:
            student, teacher = self.student.logits(step.new), self.teacher.logits(step.predecessor)
            terms["distillation"] = self.weight * softened_cross_entropy(student, teacher, self.temperature)
        return terms
