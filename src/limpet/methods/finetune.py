"""Going on from session to session with nothing held: the lower bound of learning in sessions."""

from __future__ import annotations

from torch import Tensor

from limpet.methods.base import EVERY_SPACE, CompatibilityMethod, Read, Step


class Finetune(CompatibilityMethod):
    r"""Train on every session's own images with the classification loss alone, from the weights of the previous one.

    It uses no replay, and no term keeps the embeddings close to the gallery: the lower bound of CVS's comparison (Wan
    et al., CVPR 2022, arXiv:2205.13384).

    Loss:
        L = L_\text{task}
    """

    spaces = EVERY_SPACE
    needs_old = False
    sessions_only = True
    bound = "lower"
    balance = None

    @property
    def reads(self) -> frozenset[Read]:
        """The classifier: its loss is all there is."""
        return frozenset({"head"})

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss."""
        return {"task": step.head.loss(step.new, step.labels)}
