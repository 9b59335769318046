"""Random transforms of whole batches of images, with an individual draw per image.

All draws come from the CPU generator that is passed in, so a batch and a seed give the same result on every run. Images
are changed on their device: crops and flips are bit-identical everywhere, but `random_affine` may round differently on
another device.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate, pad

from limpet.data.resident import moved


def random_crop(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Shift every image by up to ``padding`` pixels each way, filling with zeros.

    Args:
        images: Images of any type (B, channels, height, width).
        padding: Maximum shift in pixels; 0 returns the images unchanged.
        generator: CPU generator of the draws.

    Returns:
        Same type and shape.
    """
    if padding == 0 or len(images) == 0:  # inputs without spatial axes also take this path
        return images
    count, channels, height, width = images.shape
    top, left = torch.randint(0, 2 * padding + 1, (2, count), generator=generator)
    padded = pad(images, [padding] * 4)
    # All padded images form one line of pixels; each row of a crop is copied as a whole from its start in that line.
    across, size = padded.shape[3], padded[0, 0].numel()
    planes = torch.arange(count * channels, device=images.device).view(count, channels, 1) * size
    rows = torch.arange(height, device=images.device) * across
    begins = planes + rows + moved(top * across + left, images.device)[:, None, None]
    return padded.reshape(-1).unfold(0, width, 1).index_select(0, begins.view(-1)).view(images.shape)


def random_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Flip every image (B, channels, height, width) left to right with probability one half."""
    flipped = moved(torch.rand(len(images), generator=generator) < 0.5, images.device)
    columns = torch.arange(images.shape[3], device=images.device)
    chosen = torch.where(flipped[:, None], columns.flip(0), columns)
    return images.gather(3, chosen[:, None, None].expand(images.shape))


def random_affine(images: Tensor, degrees: float, scale: float, shift: float, generator: torch.Generator) -> Tensor:
    """Rotate, scale and shift every image about its centre, filling with zeros.

    Args:
        images: uint8 or floating (B, channels, height, width).
        degrees: Maximum rotation each way, in degrees.
        scale: Maximum relative change of size each way, below 1.
        shift: Maximum shift each way, as a share of the side.
        generator: CPU generator of the draws.

    Returns:
        Images of the same type and shape; uint8 is rounded. Right angles are preserved, also in images that are not
        square.
    """
    count = len(images)
    if count == 0:
        return images
    draws = 2 * torch.rand((4, count), generator=generator) - 1
    angle, size = draws[0] * math.radians(degrees), 1 + draws[1] * scale
    cosine, sine = angle.cos() / size, angle.sin() / size
    aspect = images.shape[2] / images.shape[3]  # the grid counts both sides from -1 to 1
    rows = [cosine, -sine * aspect, 2 * shift * draws[2], sine / aspect, cosine, 2 * shift * draws[3]]
    maps = torch.stack(rows, dim=1).view(count, 2, 3)
    pixels = images if images.is_floating_point() else images.float()
    grid = affine_grid(moved(maps.to(pixels.dtype), pixels.device), list(images.shape), align_corners=False)
    changed = grid_sample(pixels, grid, align_corners=False)
    return changed if images.is_floating_point() else changed.round().clamp(0, 255).to(images.dtype)


def random_resized_crop(
    images: Tensor,
    size: tuple[int, int],
    scale: tuple[float, float],
    ratio: tuple[float, float],
    generator: torch.Generator,
) -> Tensor:
    """Crop a box of random area, shape and position from every image, and resize it.

    This is the crop of Inception (Szegedy et al., CVPR 2015): the first of ten draws whose box lies within the image,
    or else the largest centred box of an allowed shape.

    Args:
        images: uint8, float32 or float64 (B, channels, height, width).
        size: Height and width of the result.
        scale: Smallest and largest area of a box, as a share of the image in (0, 1].
        ratio: Smallest and largest ratio of width to height, above 0; their logarithm is uniform.
        generator: CPU generator of the draws.

    Returns:
        Same type, (B, channels, *size); uint8 is rounded.
    """
    count, _, height, width = images.shape
    area, shape = torch.rand((2, _ATTEMPTS, count), generator=generator, dtype=torch.float64)
    place = torch.rand((2, count), generator=generator, dtype=torch.float64)
    area = height * width * (scale[0] + (scale[1] - scale[0]) * area)
    shape = ratio[0] * (ratio[1] / ratio[0]) ** shape
    sides = torch.stack([(area / shape).sqrt(), (area * shape).sqrt()]).round()
    within = ((sides >= 1) & (sides <= torch.tensor([height, width])[:, None, None])).all(dim=0)
    first = within.int().argmax(dim=0)
    drawn = sides.gather(1, first.expand(2, 1, count))[:, 0]
    widest, narrowest = min(width, round(height * ratio[1])), min(height, round(width / ratio[0]))
    centred = torch.tensor([[narrowest], [widest]], dtype=torch.float64)
    found = within.any(dim=0)
    boxes = torch.where(found, drawn, centred)
    room = torch.tensor([[height], [width]]) - boxes
    begins = torch.where(found, (place * (room + 1)).floor(), (room / 2).floor())
    return cut_and_resized(images, begins, boxes, size)


def cut_and_resized(images: Tensor, begins: Tensor, sides: Tensor, size: tuple[int, int]) -> Tensor:
    """Crop a box from every image and resize it: bilinear, with area averaging for downscaling.

    On the CPU boxes are resized one after the other, elsewhere all at once by `resampled`, which is ten times slower on
    a CPU. Results agree with each other and with Pillow up to rounding.

    Args:
        images: uint8, float32 or float64 (B, channels, height, width).
        begins: Top and left of every box in whole pixels, (2, B), on the CPU.
        sides: Height and width of every box in whole pixels, at least 1, (2, B), on the CPU.
        size: Height and width of the result.

    Returns:
        Same type, (B, channels, *size); uint8 is rounded.
    """
    if images.device.type != "cpu":
        return resampled(images, begins, sides, size)
    changed = images.new_empty((*images.shape[:2], *size))
    for number, (top, left, height, width) in enumerate(torch.cat([begins, sides]).long().T.tolist()):
        box = images[number : number + 1, :, top : top + height, left : left + width]
        changed[number] = interpolate(box, size=size, mode="bilinear", antialias=True)[0]
    return changed


def resampled(images: Tensor, begins: Tensor, sides: Tensor, size: tuple[int, int]) -> Tensor:
    """Compute `cut_and_resized` as two matrix products, one for columns and one for rows."""
    pixels = images if images.is_floating_point() else images.float()
    boxes = moved(torch.stack([begins, sides], dim=1).double(), images.device)
    down, across = (
        _resampling(box, from_side, to_side).to(pixels.dtype)[:, None]
        for box, from_side, to_side in zip(boxes, images.shape[2:], size, strict=True)
    )
    changed = down @ (pixels @ across.mT)
    return changed if images.is_floating_point() else changed.round().clamp(0, 255).to(images.dtype)


def _resampling(boxes: Tensor, from_side: int, to_side: int) -> Tensor:
    """Return the weight of each old pixel of a line in each new one, float64 (B, to_side, from_side), rows of sum 1.

    Weights form a triangle around the centre of a new pixel, one old pixel wide to each side, or one new pixel if that
    is wider. They are restricted to the box, whose start and length are in the two rows of ``boxes``.
    """
    begins, sides = boxes[:, :, None, None]
    step = sides / to_side
    numbers = torch.arange(max(from_side, to_side), dtype=torch.float64, device=begins.device) + 0.5
    centres, places = begins + numbers[:to_side, None] * step, numbers[:from_side]
    inside = (places > begins) & (places < begins + sides)
    weights = (1 - (places - centres).abs() / step.clamp(min=1)).clamp(min=0) * inside
    shares: Tensor = weights / weights.sum(dim=2, keepdim=True)
    return shares


_ATTEMPTS = 10
