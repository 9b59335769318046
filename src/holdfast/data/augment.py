"""Random changes to whole batches of images, with a draw of its own for every image.

All draws come from the CPU generator that is passed in, so a batch and a seed give the same result on every run. The
images are changed on the device they are on: crops and flips are the same bit for bit everywhere, `random_affine` is
computed, and another device may round it otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, pad

from holdfast.data.resident import moved
from holdfast.errors import ConfigError


def random_crop(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Shift every image by up to ``padding`` pixels each way; what comes in from outside is zero.

    Args:
        images: Any type, (B, channels, height, width).
        padding: Largest shift in pixels; 0 returns the images as they are.
        generator: CPU generator of the draws.

    Returns:
        Same type and shape.
    """
    if padding == 0 or len(images) == 0:  # rows of vectors come here too, unchanged
        return images
    count, channels, height, width = images.shape
    top, left = torch.randint(0, 2 * padding + 1, (2, count), generator=generator)
    padded = pad(images, [padding] * 4)
    # All padded images are one line of pixels; each row of a crop is copied whole, from where it begins in that line.
    across, size = padded.shape[3], padded[0, 0].numel()
    planes = torch.arange(count * channels, device=images.device).view(count, channels, 1) * size
    rows = torch.arange(height, device=images.device) * across
    begins = planes + rows + moved(top * across + left, images.device)[:, None, None]
    return padded.reshape(-1).unfold(0, width, 1).index_select(0, begins.view(-1)).view(images.shape)


def random_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror every image (B, channels, height, width) left to right with probability one half."""
    flipped = moved(torch.rand(len(images), generator=generator) < 0.5, images.device)
    columns = torch.arange(images.shape[3], device=images.device)
    chosen = torch.where(flipped[:, None], columns.flip(0), columns)
    return images.gather(3, chosen[:, None, None].expand(images.shape))


def random_affine(images: Tensor, degrees: float, scale: float, shift: float, generator: torch.Generator) -> Tensor:
    """Rotate, scale and shift every image about its centre; what comes in from outside is zero.

    Args:
        images: uint8 or floating (B, channels, height, width).
        degrees: Largest rotation each way.
        scale: Largest relative change of size each way, below 1.
        shift: Largest shift each way, as a share of the side.
        generator: CPU generator of the draws.

    Returns:
        Same type and shape; uint8 is rounded.
    """
    count = len(images)
    if count == 0:
        return images
    draws = 2 * torch.rand((4, count), generator=generator) - 1
    angle, size = draws[0] * math.radians(degrees), 1 + draws[1] * scale
    cosine, sine = angle.cos() / size, angle.sin() / size
    rows = [cosine, -sine, 2 * shift * draws[2], sine, cosine, 2 * shift * draws[3]]
    maps = torch.stack(rows, dim=1).view(count, 2, 3)
    pixels = images if images.is_floating_point() else images.float()
    grid = affine_grid(moved(maps.to(pixels.dtype), pixels.device), list(images.shape), align_corners=False)
    changed = grid_sample(pixels, grid, align_corners=False)
    return changed if images.is_floating_point() else changed.round().clamp(0, 255).to(images.dtype)


@dataclass(frozen=True)
class Augmentation:
    """Which random changes training images go through; all off by default.

    Args:
        crop_padding: Largest shift of the crop, in pixels.
        flip: Whether to mirror half of the images; not for characters.
        degrees: Largest rotation each way.
        scale: Largest relative change of size each way, below 1.
        shift: Largest shift each way, as a share of the side.
    """

    crop_padding: int = 0
    flip: bool = False
    degrees: float = 0.0
    scale: float = 0.0
    shift: float = 0.0

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # where settings that people write are checked

    def __post_init__(self) -> None:
        for name in ("crop_padding", "degrees", "scale", "shift"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} = {getattr(self, name)}.", expected="0 (off) or more")
        if self.scale >= 1:
            raise ConfigError(f"scale = {self.scale}.", expected="below 1: a change of size relative to the image")

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return changed images (B, channels, height, width) of the same type."""
        if self.degrees or self.scale or self.shift:
            images = random_affine(images, self.degrees, self.scale, self.shift, generator)
        images = random_crop(images, self.crop_padding, generator)
        return random_flip(images, generator) if self.flip else images
