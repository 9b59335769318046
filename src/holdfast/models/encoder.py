"""From images as they are stored to embeddings: the input contract, the backbone and the projection."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, FiniteFloat, ValidationError, ValidationInfo, field_validator
from torch import Tensor, nn

from holdfast.data.image_size import SMALLEST, ImageSize, settled, sides, written
from holdfast.errors import ConfigError, DataError, nearest, refuse
from holdfast.models.backbones import build_backbone
from holdfast.models.embedding_network import EmbeddingNetwork, EmbeddingSpec

LARGEST_IMAGE = 2**14


class EncoderSpec(EmbeddingSpec):
    """Everything that defines an encoder of images but its weights; see `EmbeddingSpec` for what all encoders share.

    Args:
        backbone: A key of `holdfast.models.backbones.BACKBONES`.
        channels: Channels of the images.
        image_size: Height and width, or one number for both, from 8 to 16,384; other sizes are resized on entry.
        fit: How images were brought to that size before they came here: "crop" kept the aspect and cut what is too
            long around the centre, "squash" did not.
        mean: Subtracted from each channel after scaling pixels to [0, 1]; one value serves all channels.
        std: Divides each channel; above 0.
        backbone_options: Further arguments of the backbone.
        centre_crop: Height and width, or one number for both, of the middle of an image that the backbone sees, such as
            224 of 256; None for all of it. Images that come at this size, as random crops in training do, are seen
            whole.
    """

    TOLD_WHEN_SET: ClassVar = (*EmbeddingSpec.TOLD_WHEN_SET, "centre_crop")

    backbone: str = "convnet"
    channels: int = Field(default=3, ge=1)
    image_size: ImageSize = 32
    fit: Literal["crop", "squash"] = "crop"
    mean: tuple[FiniteFloat, ...] = (0.5,)
    std: tuple[FiniteFloat, ...] = (0.5,)
    backbone_options: dict[str, Any] = Field(default_factory=dict)
    centre_crop: ImageSize | None = None

    @field_validator("image_size", "centre_crop")
    @classmethod
    def _of_a_size_that_backbones_take(cls, size: ImageSize | None, info: ValidationInfo) -> ImageSize | None:
        if size is not None and not all(SMALLEST <= side <= LARGEST_IMAGE for side in sides(size)):
            raise ValueError(f"from {SMALLEST} to {LARGEST_IMAGE:,} pixels per side")
        whole = info.data.get("image_size") if info.field_name == "centre_crop" else None
        if size is not None and whole is not None and any(map(operator.gt, sides(size), sides(whole))):
            raise ValueError(f"at most the image_size, {written(whole)}: it is the middle of an image of that size")
        return size

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
        height, width = sides(self.image_size)
        seen = "" if self.centre_crop is None else ", of which the middle {} × {} are seen".format(*self.seen_sides)
        return f"{self.channels} × {height} × {width} pixels{seen}"

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width that images are to be read at."""
        return self.channels, *sides(self.image_size)

    @property
    def seen_sides(self) -> tuple[int, int]:
        """Height and width that the backbone sees."""
        return sides(self.image_size if self.centre_crop is None else self.centre_crop)


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
        size = settled(spec.seen_sides)
        backbone = build_backbone(spec.backbone, spec.channels, size, weights, dict(spec.backbone_options))
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
        whole, seen = self.spec.input_shape[1:], self.spec.seen_sides
        if pixels.shape[-2:] not in (whole, seen):
            pixels = F.interpolate(pixels, size=whole, mode="bilinear", antialias=True)
        return self.embed(self.backbone((central(pixels, seen) - self.mean) / self.std))


def central(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Cut the middle out of images (..., height, width); of an odd rest the larger half is below and to the right.

    >>> central(torch.arange(20).view(4, 5), (2, 2)).tolist()
    [[6, 7], [11, 12]]
    """
    top, left = ((side - wanted) // 2 for side, wanted in zip(images.shape[-2:], size, strict=True))
    return images[..., top : top + size[0], left : left + size[1]]
