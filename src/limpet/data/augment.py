"""Augmentation settings for training images; only applying them requires torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Lt

from limpet.errors import refuse
from limpet.support.ranges import Count, NonNegative, Positive, PositiveInt, checked

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@checked
@dataclass(frozen=True)
class RandAugment:
    """Settings of RandAugment; see `limpet.data.augmentation_policies.rand_augment`.

    Args:
        operations: Number of operations per image, at least 1.
        magnitude: Strength of the operations, from 0 to ``scale``.
        scale: Magnitude of full strength: 10 in the paper, 30 in torchvision.
    """

    operations: PositiveInt = 2
    magnitude: NonNegative = 9
    scale: Positive = 10

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def __post_init__(self) -> None:
        refuse(
            self.magnitude > self.scale,
            f"rand_augment with magnitude = {self.magnitude}.",
            f"at most its scale, {self.scale}",
        )


@dataclass(frozen=True)
class ResizedCrop:
    """Settings of random resized crops; see `limpet.data.random_transforms.random_resized_crop`.

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


@checked
@dataclass(frozen=True)
class Augmentation:
    """Augmentation settings for training images; all are off by default.

    They are applied in this order: rotation with scale and shift, resized crop, shifted crop, flip, AutoAugment,
    RandAugment.

    Args:
        crop_padding: Maximum shift of the crop, in pixels.
        flip: Whether to flip half of the images left to right; not for characters.
        degrees: Maximum rotation each way, in degrees.
        scale: Maximum relative change of size each way, below 1.
        shift: Maximum shift each way, as a share of the side.
        resized_crop: Random boxes to crop and resize to the input size of the network; None crops none.
        auto_augment: "cifar-10", the policy that AutoAugment found on CIFAR-10; None applies none.
        rand_augment: Settings of RandAugment; None applies none.
    """

    crop_padding: Count = 0
    flip: bool = False
    degrees: NonNegative = 0.0
    scale: Annotated[float, Ge(0), Lt(1)] = 0.0
    shift: NonNegative = 0.0
    resized_crop: ResizedCrop | None = None
    auto_augment: Literal["cifar-10"] | None = None
    rand_augment: RandAugment | None = None

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # read where user settings are validated

    def __call__(self, images: Tensor, generator: torch.Generator, size: tuple[int, int] | None = None) -> Tensor:
        """Return augmented images of the same type.

        Args:
            images: Images (B, channels, height, width).
            generator: CPU generator of the random draws.
            size: Height and width of resized crops; None keeps those of the images.
        """
        from limpet.data.augmentation_policies import AUTO_AUGMENT, auto_augment, rand_augment
        from limpet.data.random_transforms import random_affine, random_crop, random_flip, random_resized_crop

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
