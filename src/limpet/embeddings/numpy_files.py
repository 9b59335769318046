"""Arrays in ``.npy`` and ``.npz`` files; large ones are read block by block."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from limpet.embeddings.room import rows_at_once, spool_folder
from limpet.embeddings.string_array import refuse_no_text
from limpet.support.disk import open_file

_ARCHIVE = b"PK"
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


@dataclass(frozen=True)
class Header:
    """Header of an array in a file.

    Args:
        dtype: Type of the elements.
        by_columns: Whether the array is stored column by column (Fortran order).
        offset: Start of the contents, in bytes.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool
    offset: int

    @property
    def size(self) -> int:
        """Size of the contents in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        """Size of a row in bytes."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize


class NumpyFile:
    """Arrays of a file by name; the array of an ``.npy`` file is named "vectors".

    The caller handles NumPy's exceptions for files that are damaged or hold Python objects.

    Args:
        path: Path of the file. The attribute `archive` tells whether it holds several arrays; `names` lists them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_file(path) as file:
            begin = file.read(len(npy.MAGIC_PREFIX))
            single = begin == npy.MAGIC_PREFIX
            if begin and not single and not begin.startswith(_ARCHIVE):
                raise ValueError("it begins like neither of these files")
            file.seek(0)
            self.names = ["vectors"] if single else list(np.load(file, allow_pickle=False).files)
        self.archive = not single

    def header(self, name: str) -> Header:
        """Read the header of an array, and compare it with the size of the contents."""
        with self._stream(name) as (stream, length):
            version = npy.read_magic(stream)
            if version not in _HEADERS:
                raise ValueError(f"'{name}' is of format version {'.'.join(map(str, version))}")
            try:
                shape, by_columns, dtype = _HEADERS[version](stream)
            except TypeError as error:  # NumPy sorts the header's names, which may be of any type
                raise ValueError(f"the header of '{name}' makes no sense") from error
            found = Header(shape, dtype, by_columns and len(shape) > 1, stream.tell())
        if any(type(length) is not int or length < 0 for length in shape):
            raise ValueError(f"'{name}' would be of shape {shape}")
        if dtype.hasobject or dtype.kind == "V":
            raise ValueError(f"'{name}' holds {'Python objects' if dtype.hasobject else 'records'}")
        if found.offset + found.size > length:
            raise EOFError(f"'{name}' is cut off: {length - found.offset} of {found.size} bytes are there")
        return found

    def array(self, name: str) -> NDArray[Any]:
        """Read a whole array, given its header."""
        self.header(name)
        with open_file(self.path) as file:
            content = np.load(file, allow_pickle=False)
            array = np.asarray(content[name] if self.archive else content)
        if array.dtype.kind == "U":
            refuse_no_text(array)
        return array

    def mapped(self, name: str, header: Header) -> NDArray[Any] | None:
        """Memory-map the contents if their layout in the file is that in memory; otherwise return None."""
        if self.archive or not header.size or header.offset % header.dtype.alignment:
            return None
        return _map(self.path, header)

    def blocks(self, name: str, header: Header) -> Iterator[NDArray[Any]]:
        """Yield an array in blocks of rows; a block is valid until the next one is requested."""
        if not header.size:
            return
        if not header.by_columns:
            yield from self._by_rows(name, header)
            return
        array = self.mapped(name, header)
        array = self._unpacked(name, header) if array is None else array
        for start in range(0, len(array), step := rows_at_once(header.row_bytes)):
            yield array[start : start + step]

    def _by_rows(self, name: str, header: Header) -> Iterator[NDArray[Any]]:
        step = rows_at_once(header.row_bytes)
        buffer = memoryview(bytearray(min(step, header.shape[0]) * header.row_bytes))
        with self._stream(name) as (stream, _):
            stream.seek(header.offset)
            for start in range(0, header.shape[0], step):
                count = min(step, header.shape[0] - start)
                part = buffer[: count * header.row_bytes]
                _fill(stream, part)
                yield np.frombuffer(part, header.dtype).reshape(count, *header.shape[1:])
            while stream.read(2**20):  # an archive verifies its checksum at the end
                pass

    def _unpacked(self, name: str, header: Header) -> NDArray[Any]:
        """Map an array of an archive from a temporary file, to read it in another order than it is stored."""
        with tempfile.TemporaryFile(prefix="limpet-", dir=spool_folder()) as file, self._stream(name) as (stream, _):
            shutil.copyfileobj(stream, file, 2**20)
            file.flush()
            return _map(file, header)

    @contextmanager
    def _stream(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        """Open the byte stream of an array, and return it with its size."""
        if not self.archive:
            with open_file(self.path) as file:
                yield file, os.fstat(file.fileno()).st_size
            return
        with zipfile.ZipFile(self.path) as archive:
            info = archive.getinfo(name if name in archive.namelist() else f"{name}.npy")
            with archive.open(info) as member:
                yield member, info.file_size


def _map(file: Path | IO[bytes], header: Header) -> NDArray[Any]:
    order = "F" if header.by_columns else "C"
    mapped = np.memmap(file, header.dtype, "r", header.offset, header.shape, order)  # type: ignore[call-overload]
    return np.asarray(mapped)


def _fill(stream: IO[bytes], part: memoryview) -> None:
    done = 0
    while done < len(part):
        count = stream.readinto(part[done:])  # type: ignore[attr-defined]
        if not count:
            raise EOFError(f"the file ends {len(part) - done} bytes early")
        done += count
