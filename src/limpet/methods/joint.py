"""Training on everything so far, and embedding the gallery again: the upper bound of learning in sessions."""

from __future__ import annotations

from torch import Tensor

from limpet.methods.base import EVERY_SPACE, CompatibilityMethod, Read, Step


class Joint(CompatibilityMethod):
    r"""Train on the images of all sessions so far with the classification loss, and embed the whole gallery again.

    Continual learning avoids this cost: it is the upper bound of CVS's comparison (Wan et al., CVPR 2022,
    arXiv:2205.13384), where it starts from the weights of the previous session, like all other methods.

    Loss:
        L = L_\text{task}
    """

    spaces = EVERY_SPACE
    needs_old = False
    sessions_only = True
    memory = "everything"
    gallery_policy = "reindex"
    bound = "upper"
    balance = None

    @property
    def reads(self) -> frozenset[Read]:
        """The classifier: its loss is all there is."""
        return frozenset({"head"})

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss."""
        return {"task": step.head.loss(step.new, step.labels)}
