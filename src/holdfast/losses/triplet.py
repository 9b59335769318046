"""Batch-hard triplets, by pytorch-metric-learning: an optional package, imported in this file alone and when needed."""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import Tensor

from holdfast.errors import ConfigError


def metric_learning() -> Any:
    """Import pytorch-metric-learning.

    Raises:
        ConfigError: It is not installed; the message says how to install it.
    """
    try:
        import pytorch_metric_learning
    except ImportError as error:
        raise ConfigError(
            "The triplet term needs pytorch-metric-learning, which is not installed.",
            to_do="pip install 'holdfast[triplet]', or leave out the head's option 'triplet'.",
        ) from error
    return pytorch_metric_learning


@cache
def _miner_and_loss(margin: float) -> tuple[Any, Any]:
    metric_learning()
    from pytorch_metric_learning.distances import LpDistance
    from pytorch_metric_learning.losses import TripletMarginLoss
    from pytorch_metric_learning.miners import BatchHardMiner
    from pytorch_metric_learning.reducers import MeanReducer

    distance = LpDistance(normalize_embeddings=False)
    return BatchHardMiner(distance=distance), TripletMarginLoss(margin, distance=distance, reducer=MeanReducer())


def batch_hard_triplet(points: Tensor, labels: Tensor, margin: float) -> Tensor:
    """Average the triplet loss of every row's hardest positive and negative (Hermans et al., arXiv:1703.07737, Eq. 5).

    max(0, m + max_p ‖z_i − z_p‖ − min_n ‖z_i − z_n‖), with p over the other rows of the class of i and n over the rows
    of all other classes. Departures: rows are unit vectors, where the paper leaves lengths as they are; and the rows
    that have both a p and an n are averaged (those that satisfy the margin too), where the paper sums. On an
    accelerator every call waits for the device, because mining counts the triplets.

    Args:
        points: Unit rows (B, D).
        labels: Class of every row, int64 (B,).
        margin: m >= 0, to be compared with distances, which are at most 2.

    Returns:
        A scalar in [0, 2 + m]; 0, with a gradient of 0, where no row has both.

    Raises:
        ConfigError: pytorch-metric-learning is not installed.

    >>> import torch
    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> round(batch_hard_triplet(z, torch.tensor([0, 0, 1]), 0.3).item(), 4)  # (max(0, .3 + √2 − 2) + .3) / 2
    0.15
    """
    if len(points) < 2:
        return points.sum() * 0
    mine, loss = _miner_and_loss(margin)
    value: Tensor = loss(points, labels, mine(points, labels))
    return value
