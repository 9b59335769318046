"""Small networks over the embeddings of a frozen model: what a compatible head is, beside its classifier."""

from __future__ import annotations

import math
from pathlib import Path

from pydantic import Field
from torch import Tensor

from holdfast.errors import DataError, refuse
from holdfast.geometry.hypersphere import normalise
from holdfast.models.embedding_network import EmbeddingNetwork, EmbeddingSpec


class FeatureSpec(EmbeddingSpec):
    """Everything that defines a network over a frozen model but its weights; see `EmbeddingSpec` for the rest.

    Args:
        frozen: Fingerprint of the frozen model; embeddings of another one are not understood.
        width: Dimension of its embeddings.
    """

    frozen: str
    width: int = Field(ge=1)

    def build(
        self, weights: Path | None = None, freeze_backbone: bool = False, freeze_batch_norm: bool = False
    ) -> FeatureEncoder:
        """Build the network; see `FeatureEncoder`.

        Raises:
            ConfigError: Weights for a backbone were given, or it, or a part of it, was to be frozen.
        """
        asked = weights is not None or freeze_backbone or freeze_batch_norm
        refuse(asked, "A backbone for a network over a frozen model.", "neither")
        return FeatureEncoder(self)

    @property
    def name(self) -> str:
        """What projects, and over which model."""
        return f"{self.projection} over {self.frozen[:20]}"

    @property
    def input_words(self) -> str:
        """Whose embeddings it takes."""
        return f"embeddings of {self.width} dimensions by the frozen model {self.frozen}"


class FeatureEncoder(EmbeddingNetwork):
    """Embeddings of a frozen model to raw embeddings of another space.

    Only directions of the input count: every row is brought to the length √F, so that its F values have mean square 1
    and one learning rate suits all models. Without a projection nothing is learned, and rows stay as they are.

    Args:
        spec: What to build.
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
