"""The twelve perturbations of Rainbow Memory, under which the predictions of a classifier are compared.

Bang et al., CVPR 2021, arXiv:2103.17230, Section 4.1, with the parameters of the released code: holes, flips, rotations
and changes of brightness. Each takes uint8 images (B, channels, height, width) and a CPU generator, and returns the
same type and shape. Random parameters are drawn for every image.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from limpet.data import random_affine, random_flip

Perturbation = Callable[[Tensor, torch.Generator], Tensor]


def cutout(images: Tensor, generator: torch.Generator, *, share: float) -> Tensor:
    """Cover a square hole in every image (Cutout, DeVries and Taylor, arXiv:1708.04552).

    The centre of the hole is a random pixel, so a part of the hole may lie outside the image. This departs twice from
    the released code of Rainbow Memory. The size of the hole is a share of the side of the image: the 8, 16, 24 and 32
    pixels of that code are meant for images of 32 pixels. The hole is filled with the mean of its image, by channel;
    that code uses the mean of one data set.

    Args:
        images: uint8 (B, channels, height, width).
        generator: CPU generator that draws the centres.
        share: Side of the hole as a share of the side of the image, above 0.
    """
    count, _, height, width = images.shape
    rows = _covered(height, share, torch.randint(0, height, (count,), generator=generator))
    columns = _covered(width, share, torch.randint(0, width, (count,), generator=generator))
    hole = (rows[:, :, None] & columns[:, None, :])[:, None]
    means = images.float().mean(dim=(2, 3), keepdim=True).round().to(images.dtype)
    return torch.where(hole, means, images)


def _covered(side: int, share: float, centres: Tensor) -> Tensor:
    """Return a mask (B, side) of the rows or columns that are within the hole around each centre (B,)."""
    length = max(1, round(share * side))
    places = torch.arange(side) - centres[:, None] + length // 2
    return (places >= 0) & (places < length)


def vertical_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Flip every image vertically with probability one half."""
    return random_flip(images.transpose(2, 3), generator).transpose(2, 3)


def rotation(images: Tensor, generator: torch.Generator, *, degrees: float) -> Tensor:
    """Rotate every image by a random angle of at most `degrees` in either direction; fill the corners with zeros."""
    return random_affine(images, degrees, 0.0, 0.0, generator)


def inversion(images: Tensor, generator: torch.Generator) -> Tensor:
    """Invert the brightness of all images; nothing is random."""
    return 255 - images


def solarisation(images: Tensor, generator: torch.Generator, *, threshold: int) -> Tensor:
    """Invert the pixels that are at or above a threshold; nothing is random.

    >>> solarisation(torch.tensor([0, 127, 128, 255], dtype=torch.uint8), torch.Generator(), threshold=128).tolist()
    [0, 127, 127, 0]
    """
    return torch.where(images >= threshold, 255 - images, images)


PERTURBATIONS: dict[str, Perturbation] = {
    "cutout-quarter": partial(cutout, share=1 / 4),
    "cutout-half": partial(cutout, share=1 / 2),
    "cutout-three-quarters": partial(cutout, share=3 / 4),
    "cutout-whole": partial(cutout, share=1.0),
    "horizontal-flip": random_flip,
    "vertical-flip": vertical_flip,
    "rotation-45": partial(rotation, degrees=45.0),
    "rotation-90": partial(rotation, degrees=90.0),
    "inversion": inversion,
    "solarisation-128": partial(solarisation, threshold=128),
    "solarisation-64": partial(solarisation, threshold=64),
    "solarisation-32": partial(solarisation, threshold=32),
}
"""The A = 12 perturbations of the paper, by name."""
