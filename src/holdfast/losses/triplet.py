"""Batch-hard triplets, by pytorch-metric-learning: an optional package, imported in this file alone and when needed."""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import Tensor

from holdfast.extras import needing
from holdfast.geometry import Space


def metric_learning() -> Any:
    """Import pytorch-metric-learning.

    Raises:
        ConfigError: It is not installed; the message says how to install it.
    """
    with needing("The triplet term", "leave out the head's option 'triplet'"):
        import pytorch_metric_learning
    return pytorch_metric_learning


@cache
def _space_distance() -> Any:
    metric_learning()
    from pytorch_metric_learning.distances import BaseDistance

    class SpaceDistance(BaseDistance):  # type: ignore[misc]  # the package has no types
        def __init__(self, space: Space) -> None:
            super().__init__(normalize_embeddings=False)
            self.space = space

        def compute_mat(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
            return self.space.distance(self.space.similarity(query_emb, ref_emb))

        def pairwise_distance(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
            return self.space.paired_distance(query_emb, ref_emb)

    return SpaceDistance


def batch_hard_triplet(points: Tensor, labels: Tensor, margin: float, space: Space) -> Tensor:
    """Average the triplet loss of every row's hardest positive and negative (Hermans et al., arXiv:1703.07737, Eq. 5).

    max(0, m + max_p d(z_i, z_p) − min_n d(z_i, z_n)), with p over the other rows of the class of i and n over the rows
    of all other classes. Departures: d is the distance of the space, that of unit vectors on the hypersphere, where the
    paper leaves lengths as they are; and the rows that have both a p and an n are averaged (those that satisfy the
    margin too), where the paper sums. On an accelerator every call waits for the device, because mining counts the
    triplets.

    Args:
        points: Points of the space (B, D).
        labels: Class of every row, int64 (B,).
        margin: m >= 0, to be compared with distances; those of the hypersphere are at most 2.
        space: Whose distance counts.

    Returns:
        A scalar, at least 0; 0, with a gradient of 0, where no row has both.

    Raises:
        ConfigError: pytorch-metric-learning is not installed.

    >>> import torch
    >>> from holdfast.geometry import Hypersphere
    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> round(batch_hard_triplet(z, torch.tensor([0, 0, 1]), 0.3, Hypersphere(2)).item(), 4)  # (0 + .3 + √2 − √2) / 2
    0.15
    """
    metric_learning()
    if len(points) < 2:
        return points.sum() * 0
    from pytorch_metric_learning.losses import TripletMarginLoss
    from pytorch_metric_learning.miners import BatchHardMiner
    from pytorch_metric_learning.reducers import MeanReducer

    distance = _space_distance()(space)
    loss = TripletMarginLoss(margin, distance=distance, reducer=MeanReducer())
    value: Tensor = loss(points, labels, BatchHardMiner(distance=distance)(points, labels))
    return value
