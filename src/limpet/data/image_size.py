"""Image sizes in their accepted notations: 224, 256x128, or [256, 128]."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator

from limpet.errors import ConfigError, refuse

_SPELLINGS = "pixels per side, such as 224; or height and width, such as 256x128 or [256, 128]"
SMALLEST = 8
"""Minimum side of an image in pixels."""

_WRITTEN = re.compile(r"(\d+)(?:\s*[x×]\s*(\d+))?", re.IGNORECASE)


def settled(size: object) -> int | tuple[int, int]:
    """Return one number if height and width are equal, otherwise both.

    Args:
        size: One number, two numbers, or a text such as "256x128".

    Raises:
        ValueError: The size is none of these; the message says what was expected.

    >>> settled(224), settled("256x128"), settled([256, 128]), settled((64, 64))
    (224, (256, 128), (256, 128), 64)
    """
    found: Sequence[object] = (size, size)
    if isinstance(size, str):
        read = _WRITTEN.fullmatch(size.strip())
        found = (int(read[1]), int(read[2] or read[1])) if read else ()
    elif isinstance(size, list | tuple):
        found = size
    whole = [side for side in found if isinstance(side, int) and not isinstance(side, bool)]
    if not len(whole) == len(found) == 2:
        raise ValueError(_SPELLINGS)
    return whole[0] if whole[0] == whole[1] else (whole[0], whole[1])


ImageSize = Annotated[int | tuple[int, int], BeforeValidator(settled)]
"""Pixels per side, or height and width. `settled` validates options and settings of this type. Settings hold its
result; options are passed on as given."""


def one_side(size: object) -> int:
    """Return the pixels per side of images that must be square.

    Raises:
        ValueError: Height and width differ, or the value is no size.

    >>> one_side(28), one_side("28x28")
    (28, 28)
    """
    found = settled(size)
    if not isinstance(found, int):
        raise ValueError("one number of pixels per side, such as 28: these images are square")
    return found


SquareSize = Annotated[int, BeforeValidator(one_side)]
"""Pixels per side of images that must be square; validated by `one_side`."""


def sides(size: ImageSize) -> tuple[int, int]:
    """Return height and width.

    >>> sides(32), sides((256, 128))
    ((32, 32), (256, 128))
    """
    found = settled(size)
    return (found, found) if isinstance(found, int) else found


def readable_sides(size: ImageSize) -> tuple[int, int]:
    """Return the height and width at which to read images.

    Raises:
        ConfigError: The size is invalid, or a side is below `SMALLEST`.
    """
    try:
        height, width = sides(size)
    except ValueError as error:
        raise ConfigError(f"image_size = {size!r}.", expected=str(error)) from error
    refuse(min(height, width) < SMALLEST, f"image_size = {written(size)}.", f"at least {SMALLEST} pixels")
    return height, width


def written(size: ImageSize) -> str:
    """Return a size in the notation of the command line.

    >>> written(32), written((256, 128))
    ('32', '256x128')
    """
    found = settled(size)
    return str(found) if isinstance(found, int) else f"{found[0]}x{found[1]}"
