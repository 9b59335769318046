"""The operations of `limpet.data.image_operations` as Pillow computes them, one image at a time: slow and obvious."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor


def _affine(*matrix: float) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, matrix)


PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "shear_x": lambda image, amount: _affine(1, amount, 0, 0, 1, 0)(image),
    "shear_y": lambda image, amount: _affine(1, 0, 0, amount, 1, 0)(image),
    "translate_x": lambda image, amount: _affine(1, 0, int(amount * image.width), 0, 1, 0)(image),
    "translate_y": lambda image, amount: _affine(1, 0, 0, 0, 1, int(amount * image.height))(image),
    "rotate": lambda image, amount: image.rotate(amount),
    "auto_contrast": lambda image, amount: ImageOps.autocontrast(image),
    "invert": lambda image, amount: ImageOps.invert(image),
    "equalize": lambda image, amount: ImageOps.equalize(image),
    "solarize": lambda image, amount: ImageOps.solarize(image, amount),  # type: ignore[arg-type]
    "posterize": lambda image, amount: ImageOps.posterize(image, int(amount)),
    "contrast": lambda image, amount: ImageEnhance.Contrast(image).enhance(amount),
    "brightness": lambda image, amount: ImageEnhance.Brightness(image).enhance(amount),
    "color": lambda image, amount: ImageEnhance.Color(image).enhance(amount),
    "sharpness": lambda image, amount: ImageEnhance.Sharpness(image).enhance(amount),
}
"""From an image and an amount to the changed image, by the names of `limpet.data.image_operations.OPERATIONS`."""


def changed_by_pillow(name: str, images: Tensor, amounts: Tensor) -> Tensor:
    """Change images one by one.

    Args:
        name: Of the operation.
        images: uint8 (n, channels, height, width), with one channel or three.
        amounts: One per image (n,).

    Returns:
        Same type and shape.
    """
    changed = []
    for pixels, amount in zip(images.numpy(), amounts.tolist(), strict=True):
        image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
        found = np.asarray(PILLOW[name](image, amount))
        changed.append(found[None] if found.ndim == 2 else found.transpose(2, 0, 1))
    return torch.from_numpy(np.stack(changed))
