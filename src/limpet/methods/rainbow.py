"""Rainbow memory: exemplars from certain to uncertain, half of every batch, and mixed images."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from limpet.methods.base import EVERY_SPACE, Batch, CompatibilityMethod, Read, Step
from limpet.support.ranges import Positive, Share


class Rainbow(CompatibilityMethod):
    r"""Rainbow memory (Bang et al., CVPR 2021, arXiv:2103.17230).

    Exemplars range from items with low to items with high uncertainty of the model under image augmentation
    (`limpet_bench.sessions.memory`). Half of every batch are exemplars, and a batch may be mixed by CutMix (Yun et al.,
    ICCV 2019), whose loss is split between the classes of both images by area.

    Loss:
        L = s L_\text{task}(\tilde x, y) + (1 - s) L_\text{task}(\tilde x, y'), \quad s \sim \text{Beta}(\alpha, \alpha)

    Args:
        cutmix: Probability that a batch is mixed; 0.5 in the public code.
        alpha: α of Beta(α, α), from which the share of the own image is drawn; 1 draws it uniformly.

    Paper settings:
        cutmix: 0.5 (public code)
        alpha: 1 (public code)
    """

    spaces = EVERY_SPACE
    needs_old = False
    sessions_only = True
    memory = "uncertainty"
    memory_share = 0.5
    balance = None

    def __init__(self, cutmix: Share = 0.5, alpha: Positive = 1.0) -> None:
        super().__init__()
        self.cutmix, self.alpha = cutmix, alpha
        self.mixing: tuple[Tensor, float] | None = None

    @property
    def reads(self) -> frozenset[Read]:
        """The classifier: its loss is all there is."""
        return frozenset({"head"})

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


class Mixed(NamedTuple):
    """A batch of which every image has a box of another one."""

    images: Tensor
    """In the form and type of those that were mixed."""
    partner: Tensor
    """Row of the image that the box is from, int64 (B,), on the CPU."""
    share: float
    """λ: the part of an image's area that is its own, and the factor of the loss at its own class."""


def cut_box(height: int, width: int, share: float, row: int, column: int) -> tuple[slice, slice]:
    """Return the rows and columns of a box of the image's proportions around a point, clipped at the border.

    Args:
        height: Of the image, in pixels.
        width: Of the image.
        share: λ in [0, 1]; before clipping, the box has the area 1 − λ of the image, sides rounded down.
        row: Centre of the box, from 0 to height − 1.
        column: From 0 to width − 1.

    >>> cut_box(8, 16, 0.75, row=4, column=8)  # half as long as the image, both ways
    (slice(2, 6, None), slice(4, 12, None))
    >>> cut_box(8, 16, 0.75, row=0, column=15)
    (slice(0, 2, None), slice(11, 16, None))
    """
    side = math.sqrt(1 - share)
    return _cut(height, int(height * side), row), _cut(width, int(width * side), column)


def cutmix(images: Tensor, generator: torch.Generator, alpha: float = 1.0) -> Mixed:
    """Paste into every image the same box of another image of the batch.

    One λ from Beta(α, α), one box and one permutation for the batch; λ is then what the box, clipped, leaves of the
    area. The area counts a box that an image is given of itself too.

    Args:
        images: (B, channels, height, width), of any type; left as they are.
        generator: CPU generator, from which all draws are made.
        alpha: α > 0; 1 draws λ uniformly.
    """
    count, _, height, width = images.shape
    row, column = (int(torch.randint(size, (), generator=generator)) for size in (height, width))
    rows, columns = cut_box(height, width, _beta(alpha, generator), row, column)
    partner = torch.randperm(count, generator=generator)
    mixed = images.clone()
    mixed[:, :, rows, columns] = images[:, :, rows, columns][partner.to(images.device)]
    area = (rows.stop - rows.start) * (columns.stop - columns.start)
    return Mixed(mixed, partner, 1 - area / (height * width))


def _cut(length: int, size: int, centre: int) -> slice:
    start = centre - size // 2
    return slice(max(start, 0), min(start + size, length))


def _beta(alpha: float, generator: torch.Generator) -> float:
    """Draw from Beta(α, α); torch's own distribution takes no generator, so NumPy's is seeded by it."""
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    return float(np.random.default_rng(seed).beta(alpha, alpha))
