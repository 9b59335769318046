"""A compatibility method in a package of its own, which limpet finds once it is installed.

    pip install ./examples/own_method
    limpet methods class_pull
    limpet train --method class_pull …

Nothing in limpet is changed: the entry point in ``pyproject.toml`` names the class.
"""

from __future__ import annotations

from torch import Tensor, nn

from limpet.geometry import Space
from limpet.methods import EVERY_SPACE, CompatibilityMethod, Head, OldModel, Read, Step, class_prototypes, require_old
from limpet.support import NonNegative


class ClassPull(CompatibilityMethod):
    """Distance between new embeddings and the old mean point of their class, an example of a method of one's own.

    Args:
        weight: Factor of the pull.
        slack: A distance that costs nothing.
    """

    spaces = EVERY_SPACE
    keeps_points = True

    means: Tensor

    def __init__(self, weight: NonNegative = 5.0, slack: NonNegative = 0.0) -> None:
        super().__init__()
        self.weight, self.slack = weight, slack

    @property
    def reads(self) -> frozenset[Read]:
        """The old embeddings, whose class means it keeps."""
        return frozenset({"old_embeddings"})

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Average the old points by class."""
        means, _ = class_prototypes(require_old(old, "class_pull").embeddings, space)
        self.register_buffer("means", means)

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss and the weighted pull."""
        goals = self.means.to(step.new.points.dtype)[step.labels]
        distances = step.new.space.paired_distance(step.new.points, goals)
        pull = (distances - self.slack).clamp(min=0).sum() / max(len(distances), 1)  # a batch may be empty
        return {"task": step.head.loss(step.new, step.labels), "pull": self.weight * pull}
