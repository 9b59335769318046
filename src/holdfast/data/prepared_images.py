"""Images in files of which each is brought to size in its own way: cropped to its box, or turned by its landmarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdfast.data.decoding import Fit, Pixels, Shape, opened
from holdfast.data.images import FileImages, Rows
from holdfast.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

Prepare = Callable[["Image.Image", NDArray[np.float64]], "Image.Image"]
"""From an RGB image and the numbers of its row to an image of the size wanted."""


class PreparedImages(FileImages):
    """Images in files, each prepared in its own way.

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
        super().__init__(paths, shape, fit="crop" if fit is None else fit)
        self._numbers, self._prepare, self._stated_fit = numbers, prepare, fit

    @property
    def fit(self) -> Fit | None:
        """How images of another size are brought to `shape`; None where that is no matter of size."""
        return self._stated_fit

    def content_digest(self, rows: Rows) -> bytes:
        """Return the sha256 of the digests of the files and of the numbers."""
        numbers: NDArray[Any] = np.ascontiguousarray(self._numbers[rows])
        return sha256(super().content_digest(rows) + numbers.tobytes()).digest()

    def _decoded(self, row: int) -> Pixels:
        with opened(self._paths[row], f"the file {self._paths[row]}") as image:
            prepared = self._prepare(image.convert("RGB"), self._numbers[row])
        return np.asarray(prepared, np.uint8).transpose(2, 0, 1)
