"""What all encoders end with: the projection onto the embedding, and the lift of spaces in which lengths count."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, SerializerFunctionWrapHandler, model_serializer
from torch import Tensor, nn

from holdfast.errors import DataError, unknown_name
from holdfast.geometry.hypersphere import normalise


class EmbeddingSpec(BaseModel, ABC):
    """Everything that defines an encoder but its weights; part of its fingerprint.

    Args:
        dim: Dimension D of the embeddings.
        projection: From features to embedding: "linear", "linear-bn" (no bias, then batch normalisation, as in
            AdvBCT), "mlp" (two layers, as in NDPP), or "none" where there are D features already. On the Lorentz
            space choose "linear-bn": the values of a plain layer, divided by √D, leave all points near the origin,
            where the classifier hardly learns.
        zeta: Length ζ > 0 at which the embeddings, divided by √D, are clipped: tangent vectors of the Lorentz space
            (HBCT, section 5.1); None leaves embeddings as they are.
        lifts_directions: Give every embedding the length ζ instead, whatever its own: how a model of the hypersphere,
            where only directions count, is laid onto the Lorentz space.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    TOLD_WHEN_SET: ClassVar[tuple[str, ...]] = ("zeta", "lifts_directions")
    """What is left out at its default, so that models without it keep the fingerprints of all versions."""

    dim: int = Field(default=128, ge=1)
    projection: Literal["linear", "linear-bn", "mlp", "none"] = "linear"
    zeta: FiniteFloat | None = Field(default=None, gt=0)
    lifts_directions: bool = False

    @model_serializer(mode="wrap")
    def _without_what_is_not_set(self, to_values: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = to_values(self)
        unset = {name for name in self.TOLD_WHEN_SET if getattr(self, name) == type(self).model_fields[name].default}
        return {name: value for name, value in values.items() if name not in unset}

    @abstractmethod
    def build(
        self, weights: Path | None = None, freeze_backbone: bool = False, freeze_batch_norm: bool = False
    ) -> EmbeddingNetwork:
        """Build the network, with fresh weights but for those in the folder ``weights``.

        Args:
            weights: Local folder of published backbone weights; None for a fresh start.
            freeze_backbone: Train the projection only.
            freeze_batch_norm: Keep the running statistics of the backbone's batch normalisation.
        """

    @property
    @abstractmethod
    def name(self) -> str:
        """What people call it, such as the name of its backbone."""

    @property
    @abstractmethod
    def input_words(self) -> str:
        """Say what it takes, for the card of a release."""


class EmbeddingNetwork(nn.Module):
    """A network from some input to raw embeddings (B, D), or to tangent vectors where the spec has a ζ.

    Args:
        spec: What it is; the attribute rebuilds this very network.
        width: How many features reach the projection.
    """

    def __init__(self, spec: EmbeddingSpec, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.projection = build_projection(spec.projection, width, spec.dim)

    def embed(self, features: Tensor) -> Tensor:
        """Return the embeddings (B, D) of features (B, width)."""
        embeddings: Tensor = self.projection(features)
        if self.spec.zeta is None:
            return embeddings
        with torch.autocast(embeddings.device.type, enabled=False):  # lengths and hyperbolic points need float32
            return tangent_vectors(embeddings, self.spec.zeta, directions=self.spec.lifts_directions)


def build_projection(name: str, width: int, dim: int) -> nn.Module:
    """Build what brings features (B, width) to embeddings (B, dim); the names are those of `EmbeddingSpec`.

    Raises:
        ConfigError: There is no such projection.
        DataError: Without a projection, the widths differ.
    """
    layers: dict[str, Callable[[], nn.Module]] = {
        "linear": lambda: nn.Linear(width, dim),
        "linear-bn": lambda: nn.Sequential(nn.Linear(width, dim, bias=False), nn.BatchNorm1d(dim)),
        "mlp": lambda: nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, dim)),
        "none": lambda: nn.Identity(),
    }
    if name not in layers:
        raise unknown_name("projection", name, layers)
    if name == "none" and width != dim:
        raise DataError(
            f"There are {width} features and the embedding has {dim} values.",
            expected=f"--dim {width}, or a projection",
        )
    return layers[name]()


def tangent_vectors(embeddings: Tensor, zeta: float, *, directions: bool = False) -> Tensor:
    """Scale and clip embeddings (..., D) to tangent vectors at the origin of the Lorentz space (HBCT, section 5.1).

    u = z / √D, shortened to the length ζ where it is longer; at least float32. The paper rescales "by √D"; dividing is
    our reading, since multiplied vectors would all be clipped.

    Args:
        embeddings: z (..., D), raw.
        zeta: ζ > 0.
        directions: Give all the length ζ instead; zero stays zero.

    >>> tangent_vectors(torch.tensor([[3.0, 4.0]]), 1.0).norm().item()  # 5 / √2 is longer than 1
    1.0
    """
    wide = embeddings.float() if embeddings.dtype in (torch.float16, torch.bfloat16) else embeddings
    if directions:
        return zeta * normalise(wide)
    scaled = wide / math.sqrt(wide.shape[-1])
    largest = scaled.detach().abs().amax(dim=-1, keepdim=True).clamp_min(zeta)  # the square of more could overflow
    lengths = torch.linalg.vector_norm(scaled / largest, dim=-1, keepdim=True) * largest
    clipped: Tensor = scaled * (zeta / lengths.clamp_min(zeta))
    return clipped
