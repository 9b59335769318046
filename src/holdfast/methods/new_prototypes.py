"""The new model's class means, as methods ask for them at the start of an epoch."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from holdfast.geometry import Space
from holdfast.geometry.hypersphere import segment_sum
from holdfast.methods.base import Epoch, Step

Source = Literal["exact", "running"]


class NewPrototypes(nn.Module):
    """Mean points of all classes under the model in training.

    Args:
        source: "exact": one pass over the training set, in evaluation mode and without augmentation, as the model is
            when the epoch starts; about a third of an epoch's time. "running": the means of the batches of the epoch
            before, each as the model was then; costs one summation a step. There are none before the second epoch.
        classes: Number of classes C.
        space: Whose points are averaged.
    """

    sums: Tensor
    counts: Tensor

    def __init__(self, source: Source, classes: int, space: Space) -> None:
        super().__init__()
        self.source, self.space = source, space
        if source == "running":
            self.register_buffer("sums", torch.zeros(classes, space.dim))
            self.register_buffer("counts", torch.zeros(classes))

    def add(self, step: Step) -> None:
        """Take note of a batch, where that is the source."""
        if self.source == "running":
            points, labels = step.gather(step.new.points), step.gather(step.labels)
            sums, counts = segment_sum(points.to(self.sums.dtype), labels, len(self.sums))
            self.sums += sums
            self.counts += counts

    def collect(self, epoch: Epoch) -> Tensor:
        """Return the means (C, D); zero for a class of which nothing is known yet. Batches are counted anew."""
        if self.source == "exact":
            return epoch.new_prototypes()
        means = self.space.centre(self.sums, self.counts)
        self.sums.zero_()
        self.counts.zero_()
        return means
