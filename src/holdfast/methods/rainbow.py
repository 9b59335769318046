"""Rainbow memory: exemplars from certain to uncertain, half of every batch, and mixed images."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.errors import refuse
from holdfast.losses.cutmix import cutmix
from holdfast.methods.base import EVERY_SPACE, Batch, CompatibilityMethod, Step


class Rainbow(CompatibilityMethod):
    """Rainbow memory (Bang et al., CVPR 2021, arXiv:2103.17230).

    Exemplars range from those that the model is certain of to those it is not, whatever is done to the image
    (`holdfast.continual.memory`); half of every batch are exemplars; and a batch may be mixed by CutMix (Yun et al.,
    ICCV 2019), whose loss is shared out between the classes of both images by area.

    Args:
        cutmix: Probability that a batch is mixed; 0.5 in the public code.
        alpha: α of Beta(α, α), from which the share of the own image is drawn; 1 draws it uniformly.
    """

    spaces = EVERY_SPACE
    needs_old = False
    sessions_only = True
    memory = "uncertainty"
    memory_share = 0.5
    balance = None

    def __init__(self, cutmix: float = 0.5, alpha: float = 1.0) -> None:
        super().__init__()
        refuse(
            not 0 <= cutmix <= 1 or alpha <= 0,
            f"rainbow was given cutmix={cutmix} and alpha={alpha}",
            "cutmix in [0, 1] and alpha above 0",
        )
        self.cutmix, self.alpha = cutmix, alpha
        self.mixing: tuple[Tensor, float] | None = None

    def change_inputs(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Mix the whole batch or none of it, and remember with what until `forward` has shared out the loss."""
        self.mixing = None
        if not torch.rand((), generator=generator) < self.cutmix:
            return batch.inputs
        mixed = cutmix(batch.inputs, generator, self.alpha)
        self.mixing = mixed.partner, mixed.share
        return mixed.images

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss, for a mixed batch shared out between both images' classes."""
        mixing, self.mixing = self.mixing, None
        own = step.head.loss(step.new, step.labels)
        if mixing is None:
            return {"task": own}
        partner, share = mixing
        other = step.head.loss(step.new, step.labels[partner.to(step.labels.device)])
        return {"task": share * own + (1 - share) * other}
