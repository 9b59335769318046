"""The new model's class means, as methods ask for them at the start of an epoch."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from limpet.geometry import Space
from limpet.geometry.segments import add_by_class
from limpet.methods.base import Epoch, Step

PrototypeSource = Literal["exact", "running"]


class NewPrototypes(nn.Module):
    """Mean points of all classes under the model in training.

    Args:
        source: "exact": one pass over the training set, in evaluation mode and without augmentation, as the model is
            when the epoch starts; a quarter to half of an epoch's time, in every process alike. "running": the means
            of the batches of the epoch before, each as the model was then; costs one summation a step. There are none
            before the second epoch.
        classes: Number of classes C.
        space: Whose points are averaged.
    """

    sums: Tensor
    counts: Tensor

    def __init__(self, source: PrototypeSource, classes: int, space: Space) -> None:
        super().__init__()
        self.source, self.space = source, space
        if source == "running":
            self.register_buffer("sums", torch.zeros(classes, space.summed_dim))
            self.register_buffer("counts", torch.zeros(classes))

    def add(self, step: Step) -> None:
        """Take note of a batch, where that is the source."""
        if self.source == "running":
            add_by_class(self.sums, self.counts, self.space.summed(step.new.points.detach()), step.labels)

    def collect(self, epoch: Epoch) -> Tensor:
        """Return the means (C, D); zero for a class of which nothing is known yet. Batches are counted anew."""
        if self.source == "exact":
            return epoch.new_prototypes()
        means = self.space.centre(self.sums, self.counts)
        self.forget()
        return means

    def forget(self) -> None:
        """Count batches anew; for an epoch whose start asks for no means."""
        if self.source == "running":
            self.sums.zero_()
            self.counts.zero_()
