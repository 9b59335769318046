"""Compatibility of a block: the first dimensions answer to the old classes, the others are free."""

from __future__ import annotations

from torch import Tensor, nn

from limpet.geometry import Space
from limpet.losses.prototypes import point_contrast
from limpet.methods.base import CompatibilityMethod, Head, OldModel, Read, Step
from limpet.methods.predecessor import class_prototypes, require_old
from limpet.support.ranges import NonNegative, Positive


class OCA(CompatibilityMethod):
    r"""Orthogonal compatible aligned representations (Ricci et al., ECCV workshops 2024, arXiv:2408.08793).

    The new model has D dimensions, the old one d < D. The first d dimensions are aligned with the prototypes of the old
    model; the classifier learns the task from all of them. Old galleries are padded with zeros, so only the first d
    dimensions of a query are compared with them, by direction alone.

    Loss:
        L = L_\text{task} + \lambda C
        C = - \frac{1}{B} \sum_i \log \frac{\exp(b_i \cdot p_{y_i} / \tau)}{\sum_c \exp(b_i \cdot p_c / \tau)}
        b_i = n(x_{i, 1..d})

    Args:
        weight: Factor of the contrast.
        temperature: Divisor of the cosines between the block and the old prototypes.

    Departures:
        The paper puts a learnt orthogonal layer between embedding and classifier, which training uses and a release
        does not have. A trained linear classifier can undo any such rotation in its rows, so the layer is omitted
        (`free_dimensions` has a basis that cannot be undone). The prototypes are class means of the old embeddings,
        while the paper uses rows of the old classifier. Written from the description of the paper, without its code.
    """

    space_reason = "its block ends where zeros begin, and padding knows directions only"
    widens = True

    prototypes: Tensor
    block: Space

    def __init__(self, weight: NonNegative = 1.0, temperature: Positive = 0.07) -> None:
        super().__init__()
        self.weight, self.temperature = weight, temperature

    @property
    def reads(self) -> frozenset[Read]:
        """The old embeddings of the training set."""
        return frozenset({"old_embeddings"})

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Average the old points by class, without the zeros."""
        old = require_old(old, "oca")
        self.block = old.own_space or space
        prototypes, _ = class_prototypes(old.embeddings, space)
        self.register_buffer("prototypes", prototypes[:, : self.block.dim])

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss and the weighted contrast of the block."""
        block = step.new.first(self.block)
        prototypes = self.prototypes.to(block.points.dtype)
        contrast = point_contrast(self.block, block.points, step.labels, prototypes, self.temperature)
        return {"task": step.head.loss(step.new, step.labels), "contrast": self.weight * contrast}
