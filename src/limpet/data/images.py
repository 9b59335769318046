"""Image stores: arrays, encoded bytes or files, all read as uint8 (n, channels, height, width).

Files may be resized individually: cropped to a box, or aligned by landmarks.
"""

from __future__ import annotations

import hashlib
import io
import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from limpet.data.decoding import MODES, Fit, Pixels, Shape, check_target, decode, opened
from limpet.embeddings.trained_on import Digests, digests_of
from limpet.errors import DataError
from limpet.support.disk import open_file

if TYPE_CHECKING:
    from PIL import Image


RowNumbers = NDArray[np.int64]

KEEP_LIMIT = 2 * 1024**3
"""Default maximum bytes of decoded pixels that `keep_decoded` holds in memory."""


class Images(Protocol):
    """A store of equally sized images."""

    @property
    def shape(self) -> Shape:
        """Channels, height and width of every image."""

    @property
    def fit(self) -> Fit | None:
        """Way in which images were resized to `shape`; None if they were not."""

    def __len__(self) -> int: ...

    def read(self, rows: RowNumbers) -> Pixels:
        """Return the pixels of the chosen rows, uint8 (n, channels, height, width)."""

    def content_digest(self, rows: RowNumbers) -> bytes:
        """Return a sha256 that changes with the contents of the chosen rows, without decoding them."""

    def digests(self, rows: RowNumbers) -> Digests:
        """Return the digest of each of the chosen rows, uint64 (n,): of pixels, encoded bytes, or whole files."""

    def preload(self, rows: RowNumbers) -> None:
        """Read the chosen rows now if they then stay in memory, so that a damaged image fails early."""


class ArrayImages:
    """Images held in memory.

    Args:
        pixels: uint8 (N, channels, height, width), one or three channels.

    >>> ArrayImages(np.zeros((5, 1, 28, 28), np.uint8)).shape
    (1, 28, 28)
    """

    def __init__(self, pixels: Pixels) -> None:
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1] not in MODES or 0 in pixels.shape[2:]:
            raise DataError(
                f"Pixels are {pixels.dtype} of shape {pixels.shape}.",
                expected="uint8 of shape (images, 1 or 3 channels, height, width)",
                to_do="scale them to 0..255 and move the channels to the second axis.",
            )
        self._pixels = pixels

    @property
    def shape(self) -> Shape:
        """Channels, height and width of every image."""
        _, channels, height, width = self._pixels.shape
        return channels, height, width

    @property
    def fit(self) -> None:
        """None, because arrays are not resized."""

    def __len__(self) -> int:
        return len(self._pixels)

    def read(self, rows: RowNumbers) -> Pixels:
        """Return a copy of the chosen rows."""
        return self._pixels[rows]

    def preload(self, rows: RowNumbers) -> None:
        """Do nothing: all rows are in memory."""

    def content_digest(self, rows: RowNumbers) -> bytes:
        """Return the sha256 of the pixels."""
        digest = hashlib.sha256()
        for part in chunks(rows):
            digest.update(np.ascontiguousarray(self._pixels[part]).data)
        return digest.digest()

    def digests(self, rows: RowNumbers) -> Digests:
        """Return the digest of the pixels of each row."""
        return digests_of(np.ascontiguousarray(self._pixels[row]).data for row in rows.tolist())


class DecodedImages(ABC):
    """Images that are decoded at every read; wrap them in `keep_decoded` for speed.

    Args:
        shape: Channels (1 or 3), height and width to return.
        fit: "crop" keeps the aspect ratio (shorter side to size, centre crop), "squash" does not.
    """

    def __init__(self, shape: Shape, fit: Fit) -> None:
        check_target(shape, fit)
        self._shape, self._fit = shape, fit

    @property
    def shape(self) -> Shape:
        """Channels, height and width of every image."""
        return self._shape

    @property
    def fit(self) -> Fit | None:
        """Way in which images of another size are resized to `shape`."""
        return self._fit

    def read(self, rows: RowNumbers) -> Pixels:
        """Decode the chosen rows."""
        pixels = np.empty((len(rows), *self._shape), np.uint8)
        for place, row in enumerate(rows.tolist()):
            pixels[place] = self._decoded(row)
        return pixels

    def preload(self, rows: RowNumbers) -> None:  # noqa: B027
        """Do nothing: decoded images are not kept."""

    @abstractmethod
    def _decoded(self, row: int) -> Pixels:
        """Return the pixels of one image, of `shape`."""


class EncodedImages(DecodedImages):
    """Images as encoded bytes (JPEG, PNG, ...).

    Args:
        data: Concatenated encoded bytes, uint8 (M,).
        offsets: Start of each image, int64 (N + 1,), ending with M.
        shape: Channels, height and width to return; other sizes are fitted.
        fit: "crop" keeps the aspect ratio (shorter side to size, centre crop), "squash" does not.
        source: Name of the store, for messages.
    """

    def __init__(
        self, data: Pixels, offsets: RowNumbers, shape: Shape, *, fit: Fit = "crop", source: str = "encoded images"
    ) -> None:
        super().__init__(shape, fit)
        self._data, self._offsets, self._source = data, offsets, source

    @classmethod
    def of(cls, encoded: Any, shape: Shape, *, fit: Fit = "crop", source: str = "encoded images") -> EncodedImages:
        """Build from a list of ``bytes`` or an Arrow column of binary values."""
        import pyarrow as pa

        if not isinstance(encoded, pa.Array | pa.ChunkedArray):
            encoded = pa.array(list(encoded), type=pa.large_binary())
        column = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        column = pa.concat_arrays([column.cast(pa.large_binary())])
        if column.null_count:
            raise DataError(f"{column.null_count} missing images in {source}.", expected="bytes in every row")
        _, offset_buffer, data_buffer = column.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64)[column.offset : column.offset + len(column) + 1]
        data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
        return cls(data, offsets, shape, fit=fit, source=source)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def _bytes(self, row: int) -> bytes:
        return self._data[self._offsets[row] : self._offsets[row + 1]].tobytes()

    def _decoded(self, row: int) -> Pixels:
        return decode(io.BytesIO(self._bytes(row)), self._shape, self._fit, f"image {row} of {self._source}")

    def content_digest(self, rows: RowNumbers) -> bytes:
        """Return the sha256 of the encoded bytes."""
        digest = hashlib.sha256()
        for row in rows.tolist():
            digest.update(self._bytes(row))
        return digest.digest()

    def digests(self, rows: RowNumbers) -> Digests:
        """Return the digest of the encoded bytes of each row."""
        return digests_of(self._bytes(row) for row in rows.tolist())


class FileImages(DecodedImages):
    """Images in files.

    Args:
        paths: One file per image (N).
        shape: Channels (1 or 3), height and width to return.
        fit: "crop" keeps the aspect ratio (shorter side to size, centre crop), "squash" does not.
    """

    def __init__(self, paths: Sequence[Path], shape: Shape, *, fit: Fit = "crop") -> None:
        super().__init__(shape, fit)
        self._paths = tuple(paths)
        self._digests: dict[tuple[Path, int, int], bytes] = {}

    def __len__(self) -> int:
        return len(self._paths)

    def _decoded(self, row: int) -> Pixels:
        return decode(self._paths[row], self._shape, self._fit, f"the file {self._paths[row]}")

    def content_digest(self, rows: RowNumbers) -> bytes:
        """Return the sha256 of the digests of the files.

        A file is read again only if its size or its modification time changes.
        """
        return hashlib.sha256(b"".join(self._file_digest(self._paths[row]) for row in rows.tolist())).digest()

    def digests(self, rows: RowNumbers) -> Digests:
        """Return the digest of each file; an unchanged file is not read again, as in `content_digest`."""
        return digests_of(self._file_digest(self._paths[row]) for row in rows.tolist())

    def _file_digest(self, path: Path) -> bytes:
        try:
            status = path.stat()
            key = path, status.st_size, status.st_mtime_ns
            if key not in self._digests:
                with open_file(path) as file:
                    self._digests[key] = hashlib.file_digest(file, "sha256").digest()
        except OSError as error:
            raise DataError(
                f"Cannot read the file {path}: {error.strerror}.",
                to_do="list the folder again, or put the file back.",
            ) from error
        return self._digests[key]


class _StoreBefore:
    """A store that wraps another one."""

    _images: Images

    @property
    def shape(self) -> Shape:
        return self._images.shape

    @property
    def fit(self) -> Fit | None:
        return self._images.fit


class KeptImages(_StoreBefore):
    """Rows of another store, decoded once and cached in memory.

    Memory is allocated as rows are read, so that a small share of a large set stays small.
    """

    def __init__(self, images: Images) -> None:
        self._images = images
        self._pixels = _taken_as_needed((len(images), *images.shape))
        self._known = np.zeros(len(images), np.bool_)

    def __len__(self) -> int:
        return len(self._images)

    def read(self, rows: RowNumbers) -> Pixels:
        """Return the chosen rows, decoding those that were never read before."""
        missing = np.unique(rows[~self._known[rows]])
        if len(missing):
            self._pixels[missing] = self._images.read(missing)
            self._known[missing] = True
        return self._pixels[rows]

    def preload(self, rows: RowNumbers) -> None:
        """Decode the chosen rows, and keep them."""
        for part in chunks(rows):
            self.read(part)

    def content_digest(self, rows: RowNumbers) -> bytes:
        """Return the digest of the wrapped store."""
        return self._images.content_digest(rows)

    def digests(self, rows: RowNumbers) -> Digests:
        """Return the digests of the wrapped store."""
        return self._images.digests(rows)


class SelectedImages(_StoreBefore):
    """Chosen rows of another store, in a chosen order, without copying pixels."""

    def __init__(self, images: Images, rows: RowNumbers) -> None:
        self._images = images
        self._rows = rows
        if isinstance(images, SelectedImages):
            self._images, self._rows = images._images, images._rows[rows]

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, rows: RowNumbers) -> Pixels:
        """Return the pixels of the chosen rows of this selection."""
        return self._images.read(self._rows[rows])

    def preload(self, rows: RowNumbers) -> None:
        """Preload the rows in the wrapped store."""
        self._images.preload(self._rows[rows])

    def content_digest(self, rows: RowNumbers) -> bytes:
        """Return the digest of the wrapped store."""
        return self._images.content_digest(self._rows[rows])

    def digests(self, rows: RowNumbers) -> Digests:
        """Return the digests of the wrapped store."""
        return self._images.digests(self._rows[rows])


def keep_decoded(images: Images, *, limit_bytes: int = KEEP_LIMIT) -> Images:
    """Keep decoded pixels in memory if all of them fit into ``limit_bytes``; otherwise return the store unchanged."""
    needed = len(images) * int(np.prod(images.shape))
    return KeptImages(images) if needed <= limit_bytes else images


def _taken_as_needed(shape: tuple[int, ...]) -> Pixels:
    """Return zeros (uint8) whose memory is allocated in small pages as rows are written.

    NumPy requests pages of 2 MB for large arrays, so that a few rows of every class would allocate all of it.
    """
    size = int(np.prod(shape))
    buffer = mmap.mmap(-1, max(1, size))
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with suppress(OSError):  # the kernel has no huge pages
            buffer.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(buffer, np.uint8, size).reshape(shape)


def chunks(rows: RowNumbers, size: int = 4096) -> Iterator[RowNumbers]:
    """Yield the rows in order, at most ``size`` at a time."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


Prepare = Callable[["Image.Image", NDArray[np.float64]], "Image.Image"]
"""Function from an RGB image and the parameters of its row to an image of the requested size."""


class PreparedImages(FileImages):
    """Images in files, with individual preparation.

    Args:
        paths: One file per image (N).
        numbers: Parameters of the preparation per image, float64 (N, ...): a box, or landmarks.
        prepare: Function that resizes an RGB image to the height and width of `shape`.
        shape: Channels (3), height and width.
        fit: Way in which `prepare` resizes images; None if it does not depend on size.
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
        """Way in which images are resized to `shape`; None if it does not depend on size."""
        return self._stated_fit

    def content_digest(self, rows: RowNumbers) -> bytes:
        """Return the sha256 of the digests of the files and of the numbers."""
        numbers: NDArray[Any] = np.ascontiguousarray(self._numbers[rows])
        return hashlib.sha256(super().content_digest(rows) + numbers.tobytes()).digest()

    def digests(self, rows: RowNumbers) -> Digests:
        """Return the digest of each file together with its parameters."""
        return digests_of(
            self._file_digest(self._paths[row]) + np.ascontiguousarray(self._numbers[row]).tobytes()
            for row in rows.tolist()
        )

    def _decoded(self, row: int) -> Pixels:
        with opened(self._paths[row], f"the file {self._paths[row]}") as image:
            prepared = self._prepare(image.convert("RGB"), self._numbers[row])
        return np.asarray(prepared, np.uint8).transpose(2, 0, 1)
