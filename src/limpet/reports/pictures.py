"""Pictures of examples as small PNG files inside the page."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.errors import DataError
from limpet.evaluation.thumbnails import thumbnails

Picture = Callable[[str], "bytes | NDArray[np.uint8] | None"]

_PNG = b"\x89PNG\r\n\x1a\n"


def data_uris(ids: Iterable[str], picture: Picture) -> dict[str, str]:
    """Return the pictures of items as data URIs, for items that have one.

    Pixels become small files, see `thumbnails`; PNG files are kept as they are.

    Args:
        ids: Ids of the items; each is requested once.
        picture: Function from an id to a PNG file, pixels (C, H, W) with C of 1 or 3, or None.

    Raises:
        DataError: The function returned something else.
    """
    found = {name: picture(name) for name in dict.fromkeys(ids)}
    arrays = {name: _checked(name, pixels) for name, pixels in found.items() if isinstance(pixels, np.ndarray)}
    files = {name: pixels for name, pixels in found.items() if isinstance(pixels, bytes)}
    for name, content in files.items():
        if not content.startswith(_PNG):
            raise DataError(f"The picture of '{name}' is no PNG file.", expected="PNG bytes, pixels (C, H, W), or None")
    files |= thumbnails(arrays)
    return {name: f"data:image/png;base64,{b64encode(files[name]).decode()}" for name in found if name in files}


def _checked(name: str, pixels: NDArray[Any]) -> NDArray[np.uint8]:
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or len(pixels) not in (1, 3) or 0 in pixels.shape:
        raise DataError(
            f"The picture of '{name}' is {pixels.dtype} of shape {pixels.shape}.",
            expected="uint8 of shape (1 or 3, height, width)",
            to_do="return PNG bytes, such pixels, or None where an item has no picture.",
        )
    return pixels
