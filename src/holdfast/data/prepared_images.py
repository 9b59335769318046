"""Images in files of which each is brought to size in its own way: cropped to its box, or turned by its landmarks."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from holdfast.data.decoding import Fit, Pixels, Shape
from holdfast.data.images import FileImages, Rows
from holdfast.errors import DataError

Prepare = Callable[[Image.Image, NDArray[np.float64]], Image.Image]
"""From an RGB image and the numbers of its row to an image of the size wanted."""


class PreparedImages:
    """Images in files, decoded and prepared each time they are read; wrap in `keep_decoded` for speed.

    Args:
        paths: One file per image (N).
        numbers: What the preparation needs to know of every image, float64 (N, ...): a box, or landmarks.
        prepare: Brings an RGB image to the height and width of `shape`.
        shape: Channels (3), height and width.
        fit: How images of another size are brought to it, as `prepare` does; None where that is no matter of size.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        numbers: NDArray[np.float64],
        prepare: Prepare,
        shape: Shape,
        *,
        fit: Fit | None = None,
    ) -> None:
        if len(paths) != len(numbers):
            raise DataError(f"{len(paths)} files and {len(numbers)} rows of numbers.", expected="one row per file")
        self._paths, self._numbers, self._prepare, self._shape, self._fit = tuple(paths), numbers, prepare, shape, fit
        self._files = FileImages(self._paths, shape)

    @property
    def shape(self) -> Shape:
        """Channels, height and width of every image."""
        return self._shape

    @property
    def fit(self) -> Fit | None:
        """How images of another size are brought to `shape`."""
        return self._fit

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, rows: Rows) -> Pixels:
        """Decode and prepare the files of the chosen rows."""
        pixels = np.empty((len(rows), *self._shape), np.uint8)
        for place, row in enumerate(rows.tolist()):
            pixels[place] = self._read_one(self._paths[row], self._numbers[row])
        return pixels

    def content_digest(self, rows: Rows) -> bytes:
        """Return the sha256 of the digests of the files and of the numbers."""
        numbers: NDArray[Any] = np.ascontiguousarray(self._numbers[rows])
        return sha256(self._files.content_digest(rows) + numbers.tobytes()).digest()

    def _read_one(self, path: Path, numbers: NDArray[np.float64]) -> Pixels:
        try:
            with Image.open(path) as opened:
                prepared = self._prepare(opened.convert("RGB"), numbers)
        except (OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError) as error:
            reason = "no known image format" if isinstance(error, UnidentifiedImageError) else str(error)
            raise DataError(
                f"Cannot read the file {path}: {reason}.",
                expected="a complete image",
                to_do="unpack the images again; nothing was changed.",
            ) from error
        return np.asarray(prepared, np.uint8).transpose(2, 0, 1)
