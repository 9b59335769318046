"""Random augmentation policies for whole batches of images: AutoAugment and RandAugment."""

from __future__ import annotations

import torch
from torch import Tensor

from limpet.data.image_operations import OPERATIONS, apply_operations

SubPolicy = tuple[tuple[str, float, int], tuple[str, float, int]]
"""Two consecutive operations, each with its probability and its magnitude from 0 to 9."""

CIFAR_10: tuple[SubPolicy, ...] = (
    (("invert", 0.1, 7), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("translate_x", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shear_y", 0.5, 8), ("translate_y", 0.7, 9)),
    (("auto_contrast", 0.5, 8), ("equalize", 0.9, 2)),
    (("shear_y", 0.2, 7), ("posterize", 0.3, 7)),
    (("color", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, 5), ("equalize", 0.5, 1)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("color", 0.7, 7), ("translate_x", 0.5, 8)),
    (("equalize", 0.3, 7), ("auto_contrast", 0.4, 8)),
    (("translate_y", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("color", 0.2, 8)),
    (("solarize", 0.5, 2), ("invert", 0.0, 3)),
    (("equalize", 0.2, 0), ("auto_contrast", 0.6, 0)),
    (("equalize", 0.2, 8), ("equalize", 0.6, 4)),
    (("color", 0.9, 9), ("equalize", 0.6, 6)),
    (("auto_contrast", 0.8, 4), ("solarize", 0.2, 8)),
    (("brightness", 0.1, 3), ("color", 0.7, 0)),
    (("solarize", 0.4, 5), ("auto_contrast", 0.9, 3)),
    (("translate_y", 0.9, 9), ("translate_y", 0.7, 9)),
    (("auto_contrast", 0.9, 2), ("solarize", 0.8, 3)),
    (("equalize", 0.8, 8), ("invert", 0.1, 3)),
    (("translate_y", 0.7, 9), ("auto_contrast", 0.9, 1)),
)
"""Policy that AutoAugment found on CIFAR-10, and also used on CIFAR-100 (Table 7 of arXiv:1805.09501)."""

AUTO_AUGMENT = {"cifar-10": CIFAR_10}
"""AutoAugment policies by the name of their data set."""

RAND_AUGMENT = (
    "identity", "auto_contrast", "equalize", "rotate", "solarize", "color", "posterize", "contrast", "brightness",
    "sharpness", "shear_x", "shear_y", "translate_x", "translate_y",
)  # fmt: skip
"""Operations of RandAugment, with equal probability (arXiv:1909.13719, Section 3)."""

_STRONGEST = 9
_NAMES = list(OPERATIONS)
_ALL = list(OPERATIONS.values())


def _numbers(names: tuple[str, ...]) -> Tensor:
    """Return the indices of operations in `OPERATIONS`; -1 for the identity."""
    return torch.tensor([_NAMES.index(name) if name in OPERATIONS else -1 for name in names])


def auto_augment(images: Tensor, policy: tuple[SubPolicy, ...], generator: torch.Generator) -> Tensor:
    """Apply a sub-policy of an AutoAugment policy to every image (Cubuk et al., CVPR 2019, arXiv:1805.09501).

    A sub-policy is drawn for each image. Each of its two operations is applied with its probability, at magnitude / 9
    of full strength, with a random sign.

    Args:
        images: uint8 (B, channels, height, width), with one channel or three.
        policy: Policy, such as `CIFAR_10`.
        generator: CPU generator of the random draws.

    Returns:
        Images of the same type and shape.

    Raises:
        DataError: The images are not uint8.
    """
    drawn = torch.randint(len(policy), (len(images),), generator=generator)
    chances = torch.rand((2, len(images)), generator=generator)
    signs = 2 * torch.randint(2, (2, len(images)), generator=generator) - 1
    for steps, chance, sign in zip(zip(*policy, strict=True), chances, signs, strict=True):
        names, probabilities, magnitudes = zip(*steps, strict=True)
        chosen = _numbers(names)[drawn].masked_fill(chance >= torch.tensor(probabilities)[drawn], -1)
        strengths = torch.tensor(magnitudes, dtype=torch.float64)[drawn] / _STRONGEST
        images = apply_operations(images, _ALL, chosen, strengths * sign)
    return images


def rand_augment(images: Tensor, operations: int, strength: float, generator: torch.Generator) -> Tensor:
    """Apply several random operations to every image, one after the other (RandAugment, arXiv:1909.13719).

    Args:
        images: uint8 (B, channels, height, width), with one channel or three.
        operations: Number of operations per image (the paper's N); the identity is one of those drawn.
        strength: Share of full strength for all operations (the paper's M / 10), from 0 to 1; the sign is random.
        generator: CPU generator of the random draws.

    Returns:
        Images of the same type and shape.

    Raises:
        DataError: The images are not uint8.
    """
    drawn = torch.randint(len(RAND_AUGMENT), (operations, len(images)), generator=generator)
    signs = 2 * torch.randint(2, (operations, len(images)), generator=generator) - 1
    for chosen, sign in zip(_numbers(RAND_AUGMENT)[drawn], signs, strict=True):
        images = apply_operations(images, _ALL, chosen, strength * sign.double())
    return images
