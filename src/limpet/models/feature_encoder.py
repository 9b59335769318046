"""Small networks over the embeddings of a frozen model: a compatible head without its classifier."""

from __future__ import annotations

import math

from torch import Tensor

from limpet.errors import DataError
from limpet.geometry.hypersphere import normalise
from limpet.models.embedding_network import EmbeddingNetwork
from limpet.models.specs import FeatureSpec
from limpet.support.steps import Normalise, Scale, Steps


class FeatureEncoder(EmbeddingNetwork):
    """Network from embeddings of a frozen model to raw embeddings of another space.

    Only directions of the input count: every row is scaled to the length √F, so that its F values have mean square 1
    and one learning rate suits all models. Without a projection nothing is learned, and rows are unchanged.
    """

    spec: FeatureSpec

    def __init__(self, spec: FeatureSpec) -> None:
        super().__init__(spec, spec.width)

    def forward(self, features: Tensor) -> Tensor:
        """Encode embeddings of the frozen model (B, width)."""
        if features.ndim != 2 or features.shape[1] != self.spec.width:
            raise DataError(
                f"Embeddings of shape {tuple(features.shape)}.",
                expected=f"(batch, {self.spec.width}): those of the frozen model {self.spec.frozen}",
            )
        if self.spec.projection == "none":
            return self.embed(features)
        return self.embed(math.sqrt(self.spec.width) * normalise(features))

    def as_steps(self) -> Steps:
        """Return the computation of `forward` in evaluation mode as plain steps."""
        if self.spec.projection == "none":
            return self.embedding_as_steps()
        return (Normalise(), Scale(math.sqrt(self.spec.width)), *self.embedding_as_steps())
