"""Pictures of items as small PNG files."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

__all__ = ["thumbnails"]

LARGEST = 96  # pixels of the longer side; pages show them at half of that or less
_COLOURS = 64
_DARK = 64


def thumbnails(pixels: Mapping[str, NDArray[np.uint8]]) -> dict[str, bytes]:
    """Return a small PNG file of every picture, by its name.

    Drawings stored as white ink on black (one channel, dark for the most part, over all pictures) become dark ink on
    white paper.

    Args:
        pixels: uint8 (C, H, W), C of 1 or 3.
    """
    inverted = _are_white_ink(pixels)
    return {name: png(255 - found if inverted else found) for name, found in pixels.items()}


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return pixels (C, H, W) as a small PNG file: at most 96 pixels long, colours reduced to 64."""
    from PIL import Image

    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    picture.thumbnail((LARGEST, LARGEST))
    reduced = picture if len(pixels) == 1 else picture.quantize(_COLOURS)
    buffer = BytesIO()
    reduced.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _are_white_ink(pixels: Mapping[str, NDArray[np.uint8]]) -> bool:
    if not pixels or any(len(one) != 1 for one in pixels.values()):
        return False
    return float(np.median([np.median(one) for one in pixels.values()])) < _DARK
