"""Geometric and photometric operations on whole batches of images, with the results of Pillow.

The operations are those of AutoAugment (Cubuk et al., CVPR 2019, arXiv:1805.09501, Table 6), with an individual amount
per image. Sums are of integers, or of floats in the order of Pillow. So results are bit-identical on every device and
equal to Pillow's. The exception is a rotation whose source lies within 2^-16 pixels of the border between two pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from limpet.data.resident import moved
from limpet.errors import DataError

LEVELS = 256
"""Number of pixel values, from black to white."""

SHARE_OF_SIDE = 150 / 331
"""Largest translation as a share of the side: 150 pixels in AutoAugment, whose images of ImageNet had 331."""

_FIXED_POINT = 2**16
"""Units per pixel in which Pillow adds up source coordinates."""


@dataclass(frozen=True)
class Operation:
    """One operation.

    Args:
        kernel: Function from images (n, channels, height, width) and parameters (n, ...) to images.
        parameters: Function from images and amounts, float64 (n,) on the CPU, to the parameters of the kernel.
        amount: Function from signed strengths (n,), from -1 to 1 and 0 for the weakest, to amounts.
    """

    kernel: Callable[[Tensor, Tensor], Tensor]
    parameters: Callable[[Tensor, Tensor], Tensor]
    amount: Callable[[Tensor], Tensor]

    def __call__(self, images: Tensor, amounts: Tensor) -> Tensor:
        """Return changed images.

        Args:
            images: uint8 (n, channels, height, width), with one channel or three.
            amounts: float64 (n,), on the CPU.
        """
        return self.kernel(images, self.parameters(images, amounts))


def apply_operations(images: Tensor, operations: Sequence[Operation], chosen: Tensor, strengths: Tensor) -> Tensor:
    """Apply one of several operations to each image.

    Args:
        images: uint8 (B, channels, height, width), with one channel or three.
        operations: Available operations; adjacent ones of the same kernel are computed together.
        chosen: int64 (B,), on the CPU: the number of an operation for each image; below 0 for none.
        strengths: float64 (B,), on the CPU, from -1 to 1.

    Raises:
        DataError: The images are not uint8.
    """
    if images.dtype != torch.uint8:
        raise DataError(
            f"Images of type {images.dtype} for operations on levels.",
            expected="uint8: levels from 0 to 255",
            to_do="leave auto_augment and rand_augment out, or give images as they are read from files.",
        )
    changed = images.clone()
    for kernel, members in groupby(enumerate(operations), key=lambda member: member[1].kernel):
        parts = [(one, rows) for number, one in members if len(rows := (chosen == number).nonzero()[:, 0])]
        if parts:
            rows = torch.cat([rows for _, rows in parts])
            places = moved(rows, images.device)
            taken = images.index_select(0, places)
            pieces = torch.split(taken, [len(rows) for _, rows in parts])
            parameters = [
                one.parameters(piece, one.amount(strengths[rows]))
                for piece, (one, rows) in zip(pieces, parts, strict=True)
            ]
            changed.index_copy_(0, places, kernel(taken, torch.cat(parameters)))
    return changed


def transformed(images: Tensor, matrices: Tensor) -> Tensor:
    """Apply an affine map to every image, with nearest-neighbour sampling; pixels from outside are zero.

    Args:
        images: Images of any type (n, channels, height, width).
        matrices: Maps from result to source, float64 (n, 6), on the CPU. With a, b, c, d, e, f, the pixel whose centre
            is (x, y) is taken from (a x + b y + c, d x + e y + f).
    """
    count, channels, height, width = images.shape
    slopes = matrices.view(count, 2, 3)
    begins = slopes @ torch.tensor([0.5, 0.5, 1.0], dtype=matrices.dtype)
    fixed = torch.cat([slopes[:, :, :2], begins[:, :, None]], dim=2).mul(_FIXED_POINT).add(0.5).floor().int()
    if images.device.type == "cpu":
        changed = torch.empty_like(images, memory_format=torch.contiguous_format)
        for image, result, numbers in zip(images.numpy(), changed.numpy(), fixed.numpy(), strict=True):
            _take_pixels(image, result, numbers)
        return changed
    by_x, by_y, begin = moved(fixed, images.device).view(count, 2, 3, 1, 1).unbind(2)
    across, down = (torch.arange(side, device=images.device, dtype=torch.int32) for side in (width, height))
    from_x, from_y = ((begin + by_x * across + by_y * down[:, None]) >> 16).unbind(1)
    outside = (from_x < 0) | (from_x >= width) | (from_y < 0) | (from_y >= height)
    places = (from_y * width + from_x).masked_fill_(outside, 0).long().view(count, 1, -1).expand(-1, channels, -1)
    return images.flatten(2).gather(2, places).view(images.shape).masked_fill_(outside[:, None], 0)


def _take_pixels(image: NDArray[Any], changed: NDArray[Any], numbers: NDArray[np.int32]) -> None:
    """Compute `transformed` for one image (channels, height, width), which fits into the caches of a CPU.

    Args:
        image: Source image.
        changed: Result, which is written.
        numbers: The matrix in units of `_FIXED_POINT`, (2, 3); the last column is the source of the centre of the first
            pixel.
    """
    height, width = image.shape[1:]
    across, down = np.arange(width, dtype=np.int32), np.arange(height, dtype=np.int32)[:, None]
    from_x, from_y = ((begin + by_x * across + by_y * down) >> 16 for by_x, by_y, begin in numbers)
    outside = (from_x.view(np.uint32) >= width) | (from_y.view(np.uint32) >= height)
    places = from_y.astype(np.intp) * width + from_x
    for plane, result in zip(image, changed, strict=True):
        plane.ravel().take(places, mode="clip", out=result)
        np.copyto(result, 0, where=outside)


def looked_up(images: Tensor, tables: Tensor) -> Tensor:
    """Replace every level by the entry in the table of its image and channel; tables are uint8 (n, channels, 256)."""
    return tables.gather(2, images.flatten(2).long()).view(images.shape)


def blended(start: Tensor, images: Tensor, factors: Tensor) -> Tensor:
    """Return start + factor (images - start), computed in float32, clipped to 0 to 255 and truncated to uint8.

    Args:
        start: uint8 or integers of another type, which broadcast to the images.
        images: uint8 (n, ...), or integers of another type.
        factors: float64 (n,): 0 gives the start, 1 the images, and larger factors extrapolate.
    """
    factor = moved(factors.float(), images.device).view(-1, *[1] * (images.ndim - 1))
    begin = start.float()
    return images.float().sub_(begin).mul_(factor).add_(begin).clamp_(0, LEVELS - 1).to(torch.uint8)


def colored(images: Tensor, factors: Tensor) -> Tensor:
    """Blend images with their grey versions: a factor of 0 gives grey, 1 the image."""
    return blended(_grey(images), images, factors)


def sharpened(images: Tensor, factors: Tensor) -> Tensor:
    """Blend images with smoothed versions: 5/13 of a pixel and 1/13 of each neighbour; the border is not smoothed."""
    smooth = images.clone()
    if min(images.shape[2:]) > 2:
        levels = images.to(torch.int16)
        sums = levels[:, :, :-2] + levels[:, :, 1:-1] + levels[:, :, 2:]
        sums = sums[..., :-2] + sums[..., 1:-1] + sums[..., 2:] + 4 * levels[:, :, 1:-1, 1:-1]
        smooth[:, :, 1:-1, 1:-1] = sums.float().mul_(1 / 13).round_()  # exact: thirteenths are never close to a half
    return blended(smooth, images, factors)


def _grey(images: Tensor) -> Tensor:
    """Return the luma of images (n, channels, ...) as float32 (n, 1, ...), by the weights of ITU-R 601-2."""
    levels = images.float()
    if images.shape[1] == 1:
        return levels
    red, green, blue = levels.unbind(1)
    sums = (red * 19595).add_(green, alpha=38470).add_(blue, alpha=7471)  # below 2^24: exact
    return sums.add_(0x8000).mul_(2**-16).floor_()[:, None]


def _rotation(images: Tensor, degrees: Tensor) -> Tensor:
    height, width = images.shape[2:]
    angles = degrees * (math.pi / 180)
    cosine, sine = angles.cos(), angles.sin()
    right, down = width / 2, height / 2
    rows = [cosine, -sine, right - right * cosine + down * sine, sine, cosine, down - right * sine - down * cosine]
    return torch.stack(rows, dim=1)


def _matrices(amounts: Tensor, place: int) -> Tensor:
    matrices = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 0.0], dtype=torch.float64).repeat(len(amounts), 1)
    matrices[:, place] = amounts
    return matrices


def _for_all_channels(images: Tensor, tables: Tensor) -> Tensor:
    """Return tables (n, 256) as uint8 (n, channels, 256) where the images are."""
    return moved(tables.to(torch.uint8), images.device)[:, None].expand(-1, images.shape[1], -1)


def _levels(count: int) -> Tensor:
    return torch.arange(LEVELS).expand(count, -1)


def _solarized(images: Tensor, thresholds: Tensor) -> Tensor:
    levels = _levels(len(images))
    return _for_all_channels(images, torch.where(levels < thresholds[:, None], levels, LEVELS - 1 - levels))


def _posterized(images: Tensor, bits: Tensor) -> Tensor:
    dropped = 8 - bits.long()[:, None]
    return _for_all_channels(images, _levels(len(images)) >> dropped << dropped)


def _brightened(images: Tensor, factors: Tensor) -> Tensor:
    levels = _levels(len(images))
    return _for_all_channels(images, blended(torch.zeros_like(levels), levels, factors))


def _contrasted(images: Tensor, factors: Tensor) -> Tensor:
    grey = _grey(images).flatten(1).long()
    mean = (2 * grey.sum(dim=1, keepdim=True) + grey.shape[1]) // (2 * grey.shape[1])
    levels = torch.arange(LEVELS, device=images.device).expand(len(images), -1)
    return _for_all_channels(images, blended(mean, levels, factors))


def _auto_contrasted(images: Tensor, amounts: Tensor) -> Tensor:
    """Stretch the levels of each channel so that they reach from 0 to 255."""
    planes = images.flatten(2)
    lowest, highest = (end.double() for end in (planes.amin(dim=2, keepdim=True), planes.amax(dim=2, keepdim=True)))
    levels = torch.arange(LEVELS, device=images.device, dtype=torch.float64)
    scale = levels[-1] / (highest - lowest)
    stretched = (levels * scale - lowest * scale).clamp(0, LEVELS - 1)
    return torch.where(highest > lowest, stretched, levels).to(torch.uint8)


def _equalized(images: Tensor, amounts: Tensor) -> Tensor:
    """Spread the levels of each channel so that all are about equally frequent."""
    planes = images.flatten(2).long()
    counts = torch.zeros(*images.shape[:2], LEVELS, dtype=torch.int32, device=images.device)
    counts.scatter_add_(2, planes, torch.ones_like(counts[..., :1]).expand_as(planes))
    below = counts.cumsum(dim=2) - counts
    step = below.gather(2, planes.amax(dim=2, keepdim=True)) // (LEVELS - 1)
    levels = torch.arange(LEVELS, device=images.device)
    spread = ((step // 2 + below) // step.clamp(min=1)).clamp(max=LEVELS - 1)
    return torch.where(step > 0, spread, levels).to(torch.uint8)


OPERATIONS = {
    "shear_x": Operation(transformed, lambda images, amounts: _matrices(amounts, 1), lambda signed: 0.3 * signed),
    "shear_y": Operation(transformed, lambda images, amounts: _matrices(amounts, 3), lambda signed: 0.3 * signed),
    "translate_x": Operation(
        transformed,
        lambda images, amounts: _matrices((amounts * images.shape[3]).trunc(), 2),
        lambda signed: SHARE_OF_SIDE * signed,
    ),
    "translate_y": Operation(
        transformed,
        lambda images, amounts: _matrices((amounts * images.shape[2]).trunc(), 5),
        lambda signed: SHARE_OF_SIDE * signed,
    ),
    "rotate": Operation(transformed, _rotation, lambda signed: 30 * signed),
    "auto_contrast": Operation(looked_up, _auto_contrasted, torch.abs),
    "invert": Operation(looked_up, lambda images, amounts: _solarized(images, torch.zeros_like(amounts)), torch.abs),
    "equalize": Operation(looked_up, _equalized, torch.abs),
    "solarize": Operation(looked_up, _solarized, lambda signed: LEVELS * (1 - signed.abs())),
    "posterize": Operation(looked_up, _posterized, lambda signed: 8 - (4 * signed.abs()).round()),
    "contrast": Operation(looked_up, _contrasted, lambda signed: 1 + 0.9 * signed),
    "brightness": Operation(looked_up, _brightened, lambda signed: 1 + 0.9 * signed),
    "color": Operation(colored, lambda images, factors: factors, lambda signed: 1 + 0.9 * signed),
    "sharpness": Operation(sharpened, lambda images, factors: factors, lambda signed: 1 + 0.9 * signed),
}
"""Operations by name.

Amounts are: for shears the tangent of the angle; for translations a share of the side, truncated to whole pixels; for
rotations degrees; for solarize a threshold; for posterize the number of bits to keep; for contrast, brightness, color
and sharpness a factor. Full strength is the end of the range in Table 6 of AutoAugment that changes the image most:
0.3, 150 of 331 pixels, 30 degrees, threshold 0, 4 bits, factors 0.1 and 1.9. The sign of the strength selects the
direction of operations with two. The paper gives only ranges; the random direction, and which end is weak, follow
common implementations."""
