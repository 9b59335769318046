"""Decodes images of any size to pixels of one size."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from limpet.errors import ConfigError, DataError
from limpet.support.disk import regular
from limpet.support.extras import needing

if TYPE_CHECKING:
    from PIL import Image

Shape = tuple[int, int, int]
Fit = Literal["crop", "squash", "crop-bicubic", "squash-bicubic"]
"""Way of resizing: "crop" keeps the aspect ratio and crops the centre, "squash" changes the aspect ratio. Interpolation
is bilinear, or bicubic with "-bicubic", as in the training of many published networks."""
Pixels = NDArray[np.uint8]

MODES = {1: "L", 3: "RGB"}
"""Pillow's mode by number of channels."""


def decode(source: Path | io.BytesIO, shape: Shape, fit: Fit, name: str) -> Pixels:
    """Decode one image to uint8 (channels, height, width), rotated according to its EXIF orientation.

    Args:
        source: A path, or encoded bytes.
        shape: Channels, height and width to return.
        fit: Way of resizing an image of another size; see `Fit`.
        name: Name of the image, for messages.

    Raises:
        DataError: The image cannot be read, or its values have no defined range.
    """
    with opened(source, name) as image:
        from PIL import ImageOps

        image.draft(MODES[shape[0]], (2 * max(shape[1:]), 2 * max(shape[1:])))
        ImageOps.exif_transpose(image, in_place=True)
        sized = fitted(_flattened(image, MODES[shape[0]], name), (shape[2], shape[1]), fit)
    pixels = np.asarray(sized, dtype=np.uint8)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


@contextmanager
def opened(source: Path | io.BytesIO, name: str) -> Iterator[Image.Image]:
    """Open an image; errors of Pillow, also from the ``with`` block, become a `DataError` with its name.

    Raises:
        DataError: Pillow cannot read or process the image.
    """
    with needing("Reading images"):
        from PIL import Image, UnidentifiedImageError
    try:
        with Image.open(regular(source) if isinstance(source, Path) else source) as image:
            yield image
    except DataError:
        raise
    except (OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError) as error:
        reason = "no known image format" if isinstance(error, UnidentifiedImageError) else str(error)
        raise DataError(
            f"Cannot read {name}: {reason}.",
            expected="a complete png, jpeg, bmp, webp, gif or tiff image",
            to_do="replace or remove it, or unpack its archive again; what was finished before is kept.",
        ) from error


def _flattened(image: Image.Image, mode: str, name: str) -> Image.Image:
    """Convert to the mode; transparent parts become white, and 16-bit greys are scaled rather than clipped."""
    from PIL import Image

    if image.mode.startswith("I") or image.mode == "F":
        return Image.fromarray(_eight_bit(np.asarray(image), image.mode, name)).convert(mode)
    if "A" in image.getbands() or "transparency" in image.info:
        over = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", over.size, "white"), over).convert(mode)
    return image.convert(mode)


def _eight_bit(grey: NDArray[Any], mode: str, name: str) -> Pixels:
    """Return greys of more than 8 bits as uint8; 32-bit values are read as the 8 or 16 bits that they use."""
    low, high = (grey.min(), grey.max()) if grey.size else (0, 0)
    if mode == "F" or low < 0 or high > 65_535:
        raise DataError(
            f"{name[0].upper()}{name[1:]} holds {grey.dtype} greys from {low:g} to {high:g}.",
            expected="whole numbers of 8 or 16 bits: of others nobody knows which is black and which is white",
            to_do="scale it to 0..255 and save it with 8 bits.",
            intact="Nothing was changed.",
        )
    scaled = grey // 257 if mode != "I" or high > 255 else grey
    return scaled.astype(np.uint8)


def fitted(image: Image.Image, size: tuple[int, int], fit: Fit) -> Image.Image:
    """Resize to (width, height); see `Fit`.

    >>> from PIL import Image
    >>> fitted(Image.new("L", (40, 20)), (10, 10), "crop").size
    (10, 10)
    """
    from PIL import Image

    if image.size == size:
        return image
    box = (0.0, 0.0, float(image.width), float(image.height))
    way, _, curve = fit.partition("-")
    if way == "crop":
        scale = max(size[0] / image.width, size[1] / image.height)
        width, height = size[0] / scale, size[1] / scale
        left, top = (image.width - width) / 2, (image.height - height) / 2
        box = (max(left, 0.0), max(top, 0.0), min(left + width, image.width), min(top + height, image.height))
    return image.resize(size, Image.Resampling.BICUBIC if curve else Image.Resampling.BILINEAR, box=box)


def check_target(shape: Shape, fit: Fit) -> None:
    """Refuse a shape or a fit that `decode` does not support.

    Raises:
        ConfigError: The shape or the fit is invalid.
    """
    if shape[0] not in MODES or min(shape) < 1:
        raise ConfigError(f"Images of shape {shape}.", expected="1 or 3 channels and a height and width of at least 1")
    if fit not in get_args(Fit):
        expected = "'crop' to keep the aspect, or 'squash'; either with '-bicubic'"
        raise ConfigError(f"The fit '{fit}'.", expected=expected)
