"""Pictures of examples as small PNG files inside the page."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from holdfast.errors import DataError

Picture = Callable[[str], "bytes | NDArray[np.uint8] | None"]

LARGEST = 96  # pixels of the longer side; the page shows them at half of that or less
_COLOURS = 64
_PNG = b"\x89PNG\r\n\x1a\n"
_DARK = 64


def data_uris(ids: Iterable[str], picture: Picture) -> dict[str, str]:
    """Return the picture of every item that has one as a data URI.

    Drawings stored as white ink on black (one channel, dark for the most part, over all pictures) become dark ink on
    white paper; PNG files are kept as they are.

    Args:
        ids: Which items; each is asked for once.
        picture: Returns a PNG file, pixels (C, H, W) with C of 1 or 3, or None for an item.

    Raises:
        DataError: It returned something else.
    """
    found = {name: picture(name) for name in dict.fromkeys(ids)}
    arrays = {name: _checked(name, pixels) for name, pixels in found.items() if isinstance(pixels, np.ndarray)}
    inverted = _are_white_ink(arrays)
    files = {name: pixels for name, pixels in found.items() if isinstance(pixels, bytes)}
    for name, content in files.items():
        if not content.startswith(_PNG):
            raise DataError(f"The picture of '{name}' is no PNG file.", expected="PNG bytes, pixels (C, H, W), or None")
    files |= {name: png(255 - pixels if inverted else pixels) for name, pixels in arrays.items()}
    return {name: f"data:image/png;base64,{b64encode(files[name]).decode()}" for name in found if name in files}


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return pixels (C, H, W) as a small PNG file: at most 96 pixels long, colours reduced to 64."""
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    picture.thumbnail((LARGEST, LARGEST))
    reduced = picture if len(pixels) == 1 else picture.quantize(_COLOURS)
    buffer = BytesIO()
    reduced.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _are_white_ink(arrays: Mapping[str, NDArray[np.uint8]]) -> bool:
    if not arrays or any(len(pixels) != 1 for pixels in arrays.values()):
        return False
    return float(np.median([np.median(pixels) for pixels in arrays.values()])) < _DARK


def _checked(name: str, pixels: NDArray[Any]) -> NDArray[np.uint8]:
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or len(pixels) not in (1, 3) or 0 in pixels.shape:
        raise DataError(
            f"The picture of '{name}' is {pixels.dtype} of shape {pixels.shape}.",
            expected="uint8 of shape (1 or 3, height, width)",
            to_do="return PNG bytes, such pixels, or None where an item has no picture.",
        )
    return pixels
