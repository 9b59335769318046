"""From images as they are stored to embeddings: the input contract, the backbone and the projection."""

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
    """Images to raw embeddings (B, D), or to tangent vectors where the spec has a ζ.

    Args:
        spec: What to build. The attribute `spec` also holds what the weights decided, so that it rebuilds this network
            without them.
        weights: Local folder of published backbone weights; None for a fresh start.
        freeze_backbone: Train the projection only; the backbone stays in evaluation mode.
        freeze_batch_norm: Batch normalisation of the backbone stays in evaluation mode: its running statistics do not
            change, and images are normalised by them; its scales and shifts are trained.
        backbone: The backbone where it is at hand; built by the spec when left out.

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
        """Switch to training mode, all but the parts that do not learn: their batch statistics must not change."""
        super().train(mode)
        rest_frozen(self.backbone)
        if self.freeze_batch_norm:
            for layer in self._batch_norms():
                layer.eval()
        return self

    def going_on(self, spec: EncoderSpec, freeze_backbone: bool = False, freeze_batch_norm: bool = False) -> Encoder:
        """Return a network that starts from this one's backbone, with a fresh projection."""
        backbone = copy.deepcopy(self.backbone).requires_grad_(True)
        return Encoder(spec, None, freeze_backbone, freeze_batch_norm, backbone=backbone)

    def _batch_norms(self) -> list[nn.Module]:
        return [layer for layer in self.backbone.modules() if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d))]

    def forward(self, images: Tensor) -> Tensor:
        """Encode uint8 images, or floats in [0, 1], of shape (B, channels, height, width)."""
        return self.embed(self.backbone(self.prepared(images)))

    def prepared(self, images: Tensor) -> Tensor:
        """Return uint8 images, or floats in [0, 1], of shape (B, channels, height, width), as the backbone takes them.

        Raises:
            DataError: They have other channels.
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
    """Cut the middle out of images (..., height, width); of an odd rest the larger half is below and to the right.

    >>> central(torch.arange(20).view(4, 5), (2, 2)).tolist()
    [[6, 7], [11, 12]]
    """
    top, left = ((side - wanted) // 2 for side, wanted in zip(images.shape[-2:], size, strict=True))
    return images[..., top : top + size[0], left : left + size[1]]


def rest_frozen(module: nn.Module) -> None:
    """Switch the outermost parts of which no parameter learns to evaluation mode."""
    if any(parameter.requires_grad for parameter in module.parameters()):
        for child in module.children():
            rest_frozen(child)
    elif any(True for _ in module.parameters()):
        module.eval()
