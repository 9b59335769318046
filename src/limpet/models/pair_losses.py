"""Losses on pairs and triplets of texts: those of sentence-transformers, applied to embeddings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from limpet.errors import refuse, unknown_name
from limpet.methods.base import NoClassifier, View
from limpet.models.sentence_models import of_library
from limpet.support.extras import needing
from limpet.support.options import bound
from limpet.support.ranges import Positive, checked


class PairLoss(NoClassifier):
    """A loss in place of a classifier. A batch holds the texts of each pair, or triplet, side by side.

    Args:
        width: Number of texts per pair or triplet: 2 or 3.
    """

    normalised = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def loss(self, view: View, labels: Tensor) -> Tensor:
        """Return the loss of a batch, a scalar.

        Args:
            view: View of the texts (P · K).
            labels: Labels (P · K,), equal for texts that are alike; such a text is not a negative of the anchor.
        """
        return self.of(view, view.points.view(-1, self.width, view.points.shape[1]), labels.view(-1, self.width))

    @abstractmethod
    def of(self, view: View, points: Tensor, alike: Tensor) -> Tensor:
        """Return the loss of points (P, K, D); `alike` (P, K) labels the texts that belong together."""


@checked
class RankingLoss(PairLoss):
    """Loss for finding the positive of every anchor among all positives and negatives of the batch.

    MultipleNegativesRankingLoss of sentence-transformers (Henderson et al., arXiv:1705.00652, section 4.4), with the
    similarity of the space, the cosine on the hypersphere. Departure: texts like the anchor other than its own positive
    are left out of its candidates, not of the batch.

    Args:
        width: Number of texts per pair or triplet: 2 or 3.
    """

    def __init__(self, width: int, scale: Positive = 20.0) -> None:
        super().__init__(width)
        self.scale = scale

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"scale={self.scale:g}"

    def of(self, view: View, points: Tensor, alike: Tensor) -> Tensor:
        """Return the mean cross-entropy of the anchors' scores, a scalar of at least 0."""
        with needing("Training on pairs"):
            ranking_loss = of_library("losses").MultipleNegativesRankingLoss

        own = torch.eye(len(alike), len(alike) * (self.width - 1), dtype=torch.bool, device=alike.device)
        hidden = (alike[:, :1] == alike[:, 1:].T.reshape(-1)) & ~own

        def similarity(anchors: Tensor, others: Tensor) -> Tensor:
            return view.space.similarity(anchors, others).masked_fill(hidden, -torch.inf)

        loss: Any = ranking_loss(None, scale=self.scale, similarity_fct=similarity)
        found: Tensor = loss.compute_loss_from_embeddings(list(points.unbind(1)), alike)
        return found


@checked
class TripletLoss(PairLoss):
    """Loss for bringing every anchor nearer to its positive than to its own negative, by a margin.

    TripletLoss of sentence-transformers, with the distance of the space. Departure: the margin suits unit vectors,
    whose distances are at most 2, instead of 5.

    Args:
        width: Number of texts per triplet: 3.
    """

    def __init__(self, width: int, margin: Positive = 0.3) -> None:
        super().__init__(width)
        refuse(
            width != 3, "The triplet loss was given pairs.", "triplets, with a column of negatives; or --loss ranking"
        )
        self.margin = margin

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"margin={self.margin:g}"

    def of(self, view: View, points: Tensor, alike: Tensor) -> Tensor:
        """Return the mean of max(0, d(anchor, positive) − d(anchor, negative) + margin), a scalar.

        Triplets whose negative is a positive of the anchor elsewhere in the batch are left out; 0 if all are.
        """
        with needing("Training on triplets"):
            triplet_loss = of_library("losses").TripletLoss

        kept = points[alike[:, 0] != alike[:, 2]]
        if not len(kept):
            return points.sum() * 0
        loss: Any = triplet_loss(None, view.space.paired_distance, self.margin)
        found: Tensor = loss.compute_loss_from_embeddings(list(kept.unbind(1)), alike)
        return found


PAIR_LOSSES: Mapping[str, type[PairLoss]] = {"ranking": RankingLoss, "triplet": TripletLoss}
"""Losses on pairs and triplets, by name."""


def build_pair_loss(name: str, width: int, options: Mapping[str, object]) -> PairLoss:
    """Build a loss by name.

    Args:
        name: A key of `PAIR_LOSSES`.
        width: Number of texts per pair or triplet: 2 or 3.
        options: Options of the loss.

    Raises:
        ConfigError: The name or an option is unknown, or the loss requires triplets.
    """
    if name not in PAIR_LOSSES:
        raise unknown_name("loss", name, PAIR_LOSSES)
    loss: Any = PAIR_LOSSES[name]
    built: PairLoss = loss(width, **bound(loss, options, f"loss '{name}'"))
    return built
