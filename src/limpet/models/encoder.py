"""Image encoder: input contract, backbone and projection."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from limpet.data.image_size import settled
from limpet.errors import DataError, refuse
from limpet.models.backbones import Backbone, build_backbone
from limpet.models.embedding_network import EmbeddingNetwork
from limpet.models.specs import EncoderSpec


class Encoder(EmbeddingNetwork):
    """Network from images to raw embeddings (B, D), or to tangent vectors if the spec has a ζ.

    Args:
        spec: Specification of the network. The attribute `spec` also holds options determined by the weights, so that
            it rebuilds this network without them.
        weights: Local folder of published backbone weights; None for random weights.
        freeze_backbone: Whether to train the projection only; the backbone then stays in evaluation mode.
        freeze_batch_norm: Whether batch normalisation of the backbone stays in evaluation mode and uses its running
            statistics; its scales and shifts are still trained.
        backbone: An existing backbone; built from the spec when left out.

    Raises:
        ConfigError: The backbone is unknown, its weights cannot be read, or it has no batch normalisation to freeze.
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
        backbone: Backbone | None = None,
    ) -> None:
        size = settled(spec.seen_sides)
        backbone = backbone or build_backbone(spec.backbone, spec.channels, size, weights, dict(spec.backbone_options))
        options = {**spec.backbone_options, **backbone.settled}
        super().__init__(spec.model_copy(update={"backbone_options": options}), backbone.width)
        self.backbone, self.freeze_batch_norm = backbone, freeze_batch_norm
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
        """Switch to training mode, except for frozen parts, whose batch statistics must not change."""
        super().train(mode)
        rest_frozen(self.backbone)
        if self.freeze_batch_norm:
            for layer in self._batch_norms():
                layer.eval()
        return self

    def going_on(self, spec: EncoderSpec, freeze_backbone: bool = False, freeze_batch_norm: bool = False) -> Encoder:
        """Return a network that starts from this one's backbone, with a new projection."""
        backbone = copy.deepcopy(self.backbone).requires_grad_(True)
        return Encoder(spec, None, freeze_backbone, freeze_batch_norm, backbone=backbone)

    def _batch_norms(self) -> list[nn.Module]:
        return [layer for layer in self.backbone.modules() if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d))]

    def forward(self, images: Tensor) -> Tensor:
        """Encode uint8 images, or floats in [0, 1], of shape (B, channels, height, width)."""
        return self.embed(self.backbone(self.prepared(images)))

    def prepared(self, images: Tensor) -> Tensor:
        """Prepare uint8 images, or floats in [0, 1], of shape (B, channels, height, width) for the backbone.

        Raises:
            DataError: The number of channels is wrong.
        """
        if images.ndim != 4 or images.shape[1] != self.spec.channels:
            raise DataError(
                f"Images of shape {tuple(images.shape)}.",
                expected=f"(batch, {self.spec.channels} channels, height, width), as this encoder was built",
                to_do="read the images with as many channels as the model was trained on.",
            )
        pixels = images.float() / 255 if images.dtype == torch.uint8 else images
        whole, seen = self.spec.input_shape[1:], self.spec.seen_sides
        if pixels.shape[-2:] not in (whole, seen):
            curve = "bicubic" if self.spec.fit.endswith("bicubic") else "bilinear"
            pixels = F.interpolate(pixels, size=whole, mode=curve, antialias=True).clamp(0, 1)
        normalised: Tensor = (central(pixels, seen) - self.mean) / self.std
        return normalised


def central(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Centre-crop images (..., height, width); the larger half of an odd remainder is below and to the right.

    >>> central(torch.arange(20).view(4, 5), (2, 2)).tolist()
    [[6, 7], [11, 12]]
    """
    top, left = ((side - wanted) // 2 for side, wanted in zip(images.shape[-2:], size, strict=True))
    return images[..., top : top + size[0], left : left + size[1]]


def rest_frozen(module: nn.Module) -> None:
    """Switch the outermost modules without trainable parameters to evaluation mode."""
    if any(parameter.requires_grad for parameter in module.parameters()):
        for child in module.children():
            rest_frozen(child)
    elif any(True for _ in module.parameters()):
        module.eval()
