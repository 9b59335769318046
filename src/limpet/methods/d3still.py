"""Keeping the order of old neighbours, and how much nearer one is than another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from limpet.errors import refuse
from limpet.losses.neighbourhood import neighbour_order
from limpet.methods.base import CompatibilityMethod, Read, Step, task_of


class D3still(CompatibilityMethod):
    """Decoupled differential distillation (Xie et al., CVPR 2024): new embeddings find old neighbours in the old order.

    Each item has its nearest others in the batch, by the old model. A new embedding is asked for the same differences
    of similarity between them, those that it sees in the wrong order weighing most, and for the same similarity to the
    old embedding of its own item. That needs no labels: items without a class take part in it, and only there.

    As in the public code, similarities are those of one batch, and a classifier trains along; the paper has none. The
    defaults are those of the public code, which counts the item itself as the first of ten.

    Args:
        weight: Factor of all three terms.
        own: Factor of the similarity to the own item.
        inverted: Factor of the differences that are seen in the wrong order.
        upheld: Factor of those that are seen in the right one.
        neighbours: How many others an item has.
    """

    unlabelled = True
    without_classes: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        weight: float = 1.0,
        own: float = 50.0,
        inverted: float = 2.0,
        upheld: float = 1.0,
        neighbours: int = 9,
    ) -> None:
        super().__init__()
        factors = {"weight": weight, "own": own, "inverted": inverted, "upheld": upheld}
        for name, factor in factors.items():
            refuse(factor < 0, f"d3still was given {name}={factor}", "a value of at least 0")
        refuse(neighbours < 2, f"d3still was given neighbours={neighbours}", "at least 2: one has no order")
        self.weight, self.own, self.inverted, self.upheld, self.neighbours = *factors.values(), neighbours

    @property
    def reads(self) -> frozenset[Read]:
        """The old view."""
        return frozenset({"old"})

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss of the items with a class, and the three weighted terms of all."""
        space, old = step.new.space, step.predecessor.points
        cross, before = space.similarity(step.new.points, old), space.similarity(old, old)
        found = neighbour_order(cross, before, self.neighbours)
        return {
            "task": task_of(step, step.new, step.labels >= 0),
            "own": self.weight * self.own * found.own,
            "inverted": self.weight * self.inverted * found.inverted,
            "upheld": self.weight * self.upheld * found.upheld,
        }
