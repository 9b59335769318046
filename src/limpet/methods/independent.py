"""The new recipe without any alignment: the reference for how good a new model could be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from limpet.methods.base import EVERY_SPACE, CompatibilityMethod, Read, Step


class Independent(CompatibilityMethod):
    r"""Train with the classification loss alone.

    Its self-test measures how good the new model can be; its cross-test, how poorly an unaligned model searches.

    Loss:
        L = L_\text{task}
    """

    spaces = EVERY_SPACE
    needs_old = False
    balance = None
    without_classes: ClassVar[Mapping[str, Any]] = {}

    @property
    def reads(self) -> frozenset[Read]:
        """The classifier: its loss is all there is."""
        return frozenset({"head"})

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss."""
        return {"task": step.head.loss(step.new, step.labels)}
