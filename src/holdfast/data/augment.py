"""Random changes to whole batches of images, with a draw of its own for every image.

All draws come from the CPU generator that is passed in, so a batch and a seed give the same result on every run. The
images are changed on the device they are on: crops and flips are the same bit for bit everywhere, `random_affine` is
computed, and another device may round it otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate, pad

from holdfast.data.augmentation_policies import AUTO_AUGMENT, auto_augment, rand_augment
from holdfast.data.resident import moved
from holdfast.errors import ConfigError, refuse


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
        Same type and shape; uint8 is rounded. Right angles stay right angles in images that are not square, too.
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
    """Cut a box of random area, shape and place out of every image, and bring it to a size.

    The crop of Inception (Szegedy et al., CVPR 2015). Of ten draws the first whose box lies within the image counts;
    where none does, the largest centred box of an allowed shape is taken.

    Args:
        images: uint8 or floating (B, channels, height, width).
        size: Height and width of the result.
        scale: Smallest and largest area of a box, as a share of the image, above 0 to 1.
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
    """Cut a box out of every image and bring it to a size: bilinear, averaged over an area where it becomes smaller.

    On the CPU boxes are resized one after the other, elsewhere all at once by `resampled`, which costs a CPU ten times
    as much; the results are equal to within rounding, and to those of Pillow.

    Args:
        images: uint8 or floating (B, channels, height, width).
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
    """Do what `cut_and_resized` does as two products with matrices, one down and one across the images."""
    pixels = images if images.is_floating_point() else images.float()
    boxes = moved(torch.stack([begins, sides], dim=1).double(), images.device)
    down, across = (
        _resampling(box, from_side, to_side).to(pixels.dtype)[:, None]
        for box, from_side, to_side in zip(boxes, images.shape[2:], size, strict=True)
    )
    changed = down @ (pixels @ across.mT)
    return changed if images.is_floating_point() else changed.round().clamp(0, 255).to(images.dtype)


def _resampling(boxes: Tensor, from_side: int, to_side: int) -> Tensor:
    """Return how much each new pixel of a line takes of each old one, float64 (B, to_side, from_side), rows of sum 1.

    A new pixel takes by a triangle around its centre, one old pixel wide to each side, or one new pixel where that is
    wider; from within the box only, whose begin and length are in the two rows of ``boxes``.
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


@dataclass(frozen=True)
class RandAugment:
    """How RandAugment changes images; see `holdfast.data.augmentation_policies.rand_augment`.

    Args:
        operations: How many are drawn for each image, at least 1.
        magnitude: How strong they are, from 0 to ``scale``.
        scale: The magnitude of full strength: 10 in the paper; 30 where magnitudes are counted as torchvision does.
    """

    operations: int = 2
    magnitude: float = 9
    scale: float = 10

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def __post_init__(self) -> None:
        refuse(self.operations < 1, f"rand_augment with operations = {self.operations}.", "at least 1")
        refuse(self.scale <= 0, f"rand_augment with scale = {self.scale}.", "above 0: the magnitude of full strength")
        refuse(
            not 0 <= self.magnitude <= self.scale,
            f"rand_augment with magnitude = {self.magnitude}.",
            f"from 0 to its scale, {self.scale}",
        )


@dataclass(frozen=True)
class ResizedCrop:
    """Which boxes are cut out of images and resized; see `random_resized_crop`.

    Args:
        scale: Smallest and largest area, as a share of the image.
        ratio: Smallest and largest ratio of width to height.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def __post_init__(self) -> None:
        refuse(
            not 0 < self.scale[0] <= self.scale[1] <= 1,
            f"resized_crop with scale = {list(self.scale)}.",
            "two shares of the area above 0 and up to 1, the smaller one first",
        )
        refuse(
            not 0 < self.ratio[0] <= self.ratio[1],
            f"resized_crop with ratio = {list(self.ratio)}.",
            "two ratios of width to height above 0, the smaller one first",
        )


@dataclass(frozen=True)
class Augmentation:
    """Which random changes training images go through; all off by default.

    Args:
        crop_padding: Largest shift of the crop, in pixels.
        flip: Whether to mirror half of the images; not for characters.
        degrees: Largest rotation each way.
        scale: Largest relative change of size each way, below 1.
        shift: Largest shift each way, as a share of the side.
        resized_crop: Boxes to cut out and bring to the size that the network sees; none leaves images whole.
        auto_augment: "cifar-10", the policy that AutoAugment found on CIFAR-10; none for none.
        rand_augment: Operations to draw; none for none.

    They are applied in this order: rotation with scale and shift, resized crop, shifted crop, mirror, AutoAugment,
    RandAugment.
    """

    crop_padding: int = 0
    flip: bool = False
    degrees: float = 0.0
    scale: float = 0.0
    shift: float = 0.0
    resized_crop: ResizedCrop | None = None
    auto_augment: Literal["cifar-10"] | None = None
    rand_augment: RandAugment | None = None

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # where settings that people write are checked

    def __post_init__(self) -> None:
        for name in ("crop_padding", "degrees", "scale", "shift"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} = {getattr(self, name)}.", expected="0 (off) or more")
        if self.scale >= 1:
            raise ConfigError(f"scale = {self.scale}.", expected="below 1: a change of size relative to the image")

    def __call__(self, images: Tensor, generator: torch.Generator, size: tuple[int, int] | None = None) -> Tensor:
        """Return changed images of the same type.

        Args:
            images: (B, channels, height, width).
            generator: CPU generator of the draws.
            size: Height and width of resized crops; those of the images when left out.
        """
        if self.degrees or self.scale or self.shift:
            images = random_affine(images, self.degrees, self.scale, self.shift, generator)
        if self.resized_crop is not None:
            boxes, (height, width) = self.resized_crop, images.shape[2:]
            images = random_resized_crop(images, size or (height, width), boxes.scale, boxes.ratio, generator)
        images = random_crop(images, self.crop_padding, generator)
        images = random_flip(images, generator) if self.flip else images
        if self.auto_augment is not None:
            images = auto_augment(images, AUTO_AUGMENT[self.auto_augment], generator)
        if self.rand_augment is not None:
            drawn = self.rand_augment
            images = rand_augment(images, drawn.operations, drawn.magnitude / drawn.scale, generator)
        return images
