"""From images as they are stored to embeddings: the input contract, the backbone and the projection."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, FiniteFloat, ValidationError, ValidationInfo, field_validator
from torch import Tensor, nn

from holdfast.errors import ConfigError, DataError, nearest, refuse
from holdfast.models.backbones import build_backbone
from holdfast.models.embedding_network import EmbeddingNetwork, EmbeddingSpec

LARGEST_IMAGE = 2**14


class EncoderSpec(EmbeddingSpec):
    """Everything that defines an encoder of images but its weights; see `EmbeddingSpec` for what all encoders share.

    Args:
        backbone: A key of `holdfast.models.backbones.BACKBONES`.
        channels: Channels of the images.
        image_size: Pixels per side, from 8 to 16,384; other sizes are resized on entry.
        fit: How images were brought to the square input before they came here: "crop" kept the aspect and cut the
            longer side around the centre, "squash" did not. The encoder itself does not crop.
        mean: Subtracted from each channel after scaling pixels to [0, 1]; one value serves all channels.
        std: Divides each channel; above 0.
        backbone_options: Further arguments of the backbone.
    """

    backbone: str = "convnet"
    channels: int = Field(default=3, ge=1)
    image_size: int = Field(default=32, ge=8, le=LARGEST_IMAGE)
    fit: Literal["crop", "squash"] = "crop"
    mean: tuple[FiniteFloat, ...] = (0.5,)
    std: tuple[FiniteFloat, ...] = (0.5,)
    backbone_options: dict[str, Any] = Field(default_factory=dict)

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

    def build(
        self, weights: Path | None = None, freeze_backbone: bool = False, freeze_batch_norm: bool = False
    ) -> Encoder:
        """Build the network; see `Encoder`."""
        return Encoder(self, weights, freeze_backbone, freeze_batch_norm)

    @property
    def name(self) -> str:
        """The name of the backbone."""
        return self.backbone

    @property
    def input_words(self) -> str:
        """The shape of the images."""
        return f"{self.channels} × {self.image_size} × {self.image_size} pixels"


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


class Encoder(EmbeddingNetwork):
    """Images to raw embeddings (B, D), or to tangent vectors where the spec has a ζ.

    Args:
        spec: What to build. The attribute `spec` also holds what the weights decided, so that it rebuilds this network
            without them.
        weights: Local folder of published backbone weights; None for a fresh start.
        freeze_backbone: Train the projection only; the backbone stays in evaluation mode.
        freeze_batch_norm: Batch normalisation of the backbone stays in evaluation mode: its running statistics do not
            change, and images are normalised by them; its scales and shifts are trained.

    Raises:
        ConfigError: There is no such backbone, its weights cannot be read, or it has no batch normalisation to freeze.
    """

    spec: EncoderSpec
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        spec: EncoderSpec,
        weights: Path | None = None,
        freeze_backbone: bool = False,
        freeze_batch_norm: bool = False,
    ) -> None:
        backbone = build_backbone(spec.backbone, spec.channels, spec.image_size, weights, dict(spec.backbone_options))
        options = {**spec.backbone_options, **backbone.settled}
        super().__init__(spec.model_copy(update={"backbone_options": options}), backbone.width)
        self.backbone, self.freeze_backbone, self.freeze_batch_norm = backbone, freeze_backbone, freeze_batch_norm
        refuse(
            freeze_batch_norm and not self._batch_norms(),
            f"The recipe was given freeze_batch_norm=True, and '{spec.backbone}' has no batch normalisation.",
            "false, or a backbone with batch normalisation, such as a ResNet",
        )
        self.register_buffer("mean", torch.tensor(spec.mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(spec.std).view(1, -1, 1, 1), persistent=False)
        if freeze_backbone:
            self.backbone.requires_grad_(False)

    def train(self, mode: bool = True) -> Encoder:
        """Switch to training mode, all but what is frozen."""
        super().train(mode)
        if self.freeze_backbone:
            self.backbone.eval()
        if self.freeze_batch_norm:
            for layer in self._batch_norms():
                layer.eval()
        return self

    def _batch_norms(self) -> list[nn.Module]:
        return [layer for layer in self.backbone.modules() if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d))]

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
        return self.embed(self.backbone((pixels - self.mean) / self.std))
