"""From images as they are stored to embeddings: the input contract, the backbone and the projection."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
)
from torch import Tensor, nn

from holdfast.errors import ConfigError, DataError, nearest, unknown_name
from holdfast.geometry.hypersphere import normalise
from holdfast.models.backbones import build_backbone


class EncoderSpec(BaseModel):
    """Everything that defines an encoder but its weights; part of its fingerprint.

    Args:
        backbone: A key of `holdfast.models.backbones.BACKBONES`.
        dim: Dimension D of the embeddings.
        channels: Channels of the images.
        image_size: Pixels per side, at least 8; other sizes are resized on entry.
        fit: How images were brought to the square input before they came here: "crop" kept the aspect and cut the
            longer side around the centre, "squash" did not. The encoder itself does not crop.
        projection: From backbone to embedding: "linear", "linear-bn" (no bias, then batch normalisation, as in
            AdvBCT), "mlp" (two layers, as in NDPP), or "none" where the backbone's width is already D. On the Lorentz
            space choose "linear-bn": the values of a plain layer, divided by √D, leave all points near the origin,
            where the classifier hardly learns.
        mean: Subtracted from each channel after scaling pixels to [0, 1]; one value serves all channels.
        std: Divides each channel; above 0.
        backbone_options: Further arguments of the backbone.
        zeta: Length ζ > 0 at which the embeddings, divided by √D, are clipped: tangent vectors of the Lorentz space
            (HBCT, section 5.1); None leaves embeddings as they are.
        lifts_directions: Give every embedding the length ζ instead, whatever its own: how a model of the hypersphere,
            where only directions count, is laid onto the Lorentz space.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    backbone: str = "convnet"
    dim: int = Field(default=128, ge=1)
    channels: int = Field(default=3, ge=1)
    image_size: int = Field(default=32, ge=8)
    fit: Literal["crop", "squash"] = "crop"
    projection: Literal["linear", "linear-bn", "mlp", "none"] = "linear"
    mean: tuple[FiniteFloat, ...] = (0.5,)
    std: tuple[FiniteFloat, ...] = (0.5,)
    backbone_options: dict[str, Any] = {}
    zeta: FiniteFloat | None = Field(default=None, gt=0)
    lifts_directions: bool = False

    @model_serializer(mode="wrap")
    def _without_lift(self, to_values: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what models of the hypersphere do not have, so that they keep the fingerprints of all versions."""
        values: dict[str, Any] = to_values(self)
        unused = {"zeta": self.zeta is None, "lifts_directions": not self.lifts_directions}
        return {name: value for name, value in values.items() if not unused.get(name)}

    @field_validator("mean", "std")
    @classmethod
    def _one_or_per_channel(cls, values: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        channels = info.data.get("channels", len(values))
        if len(values) not in (1, channels):
            raise ValueError(f"one value, or {channels}: one per channel")
        return values

    @field_validator("std")
    @classmethod
    def _above_zero(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if min(values) <= 0:
            raise ValueError("values above 0: they divide the pixels")
        return values


def encoder_spec(**values: Any) -> EncoderSpec:
    """Build a spec from values that people wrote.

    Raises:
        ConfigError: A field is unknown, or its value is of another type or out of range.

    >>> encoder_spec(dim=0)
    Traceback (most recent call last):
    ...
    holdfast.errors.ConfigError: The option 'dim' of the encoder is 0.
    Expected: input should be greater than or equal to 1
    """
    for name in values:
        if name not in EncoderSpec.model_fields:
            raise ConfigError(
                f"The encoder has no option '{name}'.{nearest(name, EncoderSpec.model_fields)}",
                expected=f"one of {', '.join(EncoderSpec.model_fields)}",
            )
    try:
        return EncoderSpec(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name, message = str(first["loc"][0]), first["msg"].removeprefix("Value error, ")
        raise ConfigError(
            f"The option '{name}' of the encoder is {values[name]!r}.", expected=message[:1].lower() + message[1:]
        ) from error


def _projection(name: str, width: int, dim: int) -> nn.Module:
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
            f"The backbone gives {width} values and the embedding has {dim}.",
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


class Encoder(nn.Module):
    """Images to raw embeddings (B, D), or to tangent vectors where the spec has a ζ.

    Args:
        spec: What to build. The attribute `spec` also holds what the weights decided, so that it rebuilds this network
            without them.
        weights: Local folder of published backbone weights; None for a fresh start.
        freeze_backbone: Train the projection only; the backbone stays in evaluation mode.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, spec: EncoderSpec, weights: Path | None = None, freeze_backbone: bool = False) -> None:
        super().__init__()
        self.freeze_backbone = freeze_backbone
        self.backbone = build_backbone(
            spec.backbone, spec.channels, spec.image_size, weights, dict(spec.backbone_options)
        )
        options = {**spec.backbone_options, **self.backbone.settled}
        self.spec = spec.model_copy(update={"backbone_options": options})
        self.projection = _projection(spec.projection, self.backbone.width, spec.dim)
        self.register_buffer("mean", torch.tensor(spec.mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(spec.std).view(1, -1, 1, 1), persistent=False)
        if freeze_backbone:
            self.backbone.requires_grad_(False)

    def train(self, mode: bool = True) -> Encoder:
        """Switch to training mode, all but a frozen backbone."""
        super().train(mode)
        if self.freeze_backbone:
            self.backbone.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Encode uint8 images, or floats in [0, 1], of shape (B, channels, height, width)."""
        if images.ndim != 4 or images.shape[1] != self.spec.channels:
            raise DataError(
                f"Images of shape {tuple(images.shape)}.",
                expected=f"(batch, {self.spec.channels} channels, height, width), as this encoder was built",
                to_do="read the images with as many channels as the model was trained on.",
            )
        pixels = images.float() / 255 if images.dtype == torch.uint8 else images
        size = self.spec.image_size
        if pixels.shape[-2:] != (size, size):
            pixels = F.interpolate(pixels, size=(size, size), mode="bilinear", antialias=True)
        features: Tensor = self.projection(self.backbone((pixels - self.mean) / self.std))
        if self.spec.zeta is None:
            return features
        with torch.autocast(features.device.type, enabled=False):  # lengths and hyperbolic points need float32
            lifted: Tensor = tangent_vectors(features, self.spec.zeta, directions=self.spec.lifts_directions)
        return lifted
