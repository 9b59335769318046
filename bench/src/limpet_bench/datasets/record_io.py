"""MXNet record files: a sequence of encoded images, each after a header with its label.

A record consists of a magic number, its length, its bytes, and zero padding to a multiple of four bytes. If the bytes
contain the magic number at a multiple of four, the record is split there into parts that omit it. An image record
begins with a header of 24 bytes: the number of labels after the header (0 if the next field is the only label), a
label, and two ids.
"""

from __future__ import annotations

import hashlib
import io
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.data import DecodedImages, Digests, Fit, Pixels, RowNumbers, Shape, decode, digests_of
from limpet.errors import DataError
from limpet_bench.datasets.layout import read_columns

MAGIC = 0xCED7230A
"""First number of every record and of every part of a split one."""
_MAGIC_BYTES = MAGIC.to_bytes(4, "little")
_FRAME = np.dtype([("magic", "<u4"), ("length", "<u4")])
_HEADER = np.dtype([("labels", "<u4"), ("label", "<f4"), ("id", "<u8"), ("id2", "<u8")])
_WHOLE, _LAST = 0, 3
_RECORDS_AT_ONCE = 65_536


class RecordFile:
    """A memory-mapped record file with the positions of its records.

    Args:
        path: The record file, such as ``train.rec``.
        index: Its list of keys and byte positions, such as ``train.idx``.

    Raises:
        DataError: A file is missing, empty or damaged, or the index has a position outside the record file.
    """

    def __init__(self, path: Path, index: Path) -> None:
        table = read_columns(index, {"key": "whole number", "place": "whole number"}, separator="\t", header=False)
        keys, places = table["key"].to_numpy(), table["place"].to_numpy()
        order = np.argsort(keys, kind="stable")
        self.path, self.keys, self.places = path, keys[order], places[order]
        if not len(keys) or (np.diff(self.keys) == 0).any():
            raise DataError(f"{index} holds {len(keys)} keys, or one of them twice.", expected="one line per record")
        self._data = _mapped(path)
        wrong = (self.places < 0) | (self.places + _FRAME.itemsize + _HEADER.itemsize > len(self._data))
        if wrong.any():
            raise DataError(
                f"{index} puts the record {self.keys[wrong][0]} at byte {self.places[wrong][0]}, "
                f"{path} has {len(self._data)}.",
                expected="an index and records of one release, complete",
            )

    def __getstate__(self) -> dict[str, Any]:
        """Omit the memory map, because another process maps the file itself."""
        return {name: value for name, value in vars(self).items() if name != "_data"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._data = _mapped(self.path)

    def rows_of(self, keys: NDArray[np.int64]) -> RowNumbers:
        """Return the rows of the records with these keys, int64 (n,).

        Raises:
            DataError: A key is not in the index.
        """
        rows = np.searchsorted(self.keys, keys)
        missing = self.keys[np.minimum(rows, len(self.keys) - 1)] != keys
        if missing.any():
            raise DataError(
                f"{missing.sum()} records of {self.path} are not in its index, first: {keys[missing][0]}.",
                expected="every record that the first one announces",
                to_do="get records and index from one release.",
            )
        return rows

    def content(self, row: int) -> bytes:
        """Return the bytes of a record, header included; the parts of a split record are joined.

        Raises:
            DataError: The file is damaged at this record.
        """
        place, parts, kind = int(self.places[row]), [], -1
        while kind not in (_WHOLE, _LAST):
            frame = np.frombuffer(self._data[place : place + _FRAME.itemsize].tobytes().ljust(8, b"\0"), _FRAME)[0]
            kind, length = int(frame["length"]) >> 29, int(frame["length"]) & (1 << 29) - 1
            start = place + _FRAME.itemsize
            if frame["magic"] != MAGIC or start + length > len(self._data):
                raise self._damaged(row)
            parts.append(self._data[start : start + length].tobytes())
            place = start + -(-length // 4) * 4
        return _MAGIC_BYTES.join(parts)

    def header(self, row: int) -> tuple[NDArray[np.float32], bytes]:
        """Return the labels of a record, float32 (n,), and the bytes after its header.

        Raises:
            DataError: The file is damaged at this record.
        """
        content = self.content(row)
        count = int(np.frombuffer(content[: _HEADER.itemsize].ljust(_HEADER.itemsize, b"\0"), _HEADER)[0]["labels"])
        end = _HEADER.itemsize + 4 * count
        if len(content) < end:
            raise self._damaged(row)
        start = 4 if count == 0 else _HEADER.itemsize
        return np.frombuffer(content[start : 8 if count == 0 else end], "<f4"), content[end:]

    def first_labels(self, rows: RowNumbers, count: int = 1) -> NDArray[np.float32]:
        """Return the first labels of many records, float32 (n, count), without reading their images.

        Raises:
            DataError: A record does not begin at the position in the index, or has fewer than ``count`` labels.
        """
        found = np.empty((len(rows), count), np.float32)
        for start in range(0, len(rows), _RECORDS_AT_ONCE):
            part = rows[start : start + _RECORDS_AT_ONCE]
            found[start : start + len(part)] = self._labels_of_part(part, count)
        return found

    def _labels_of_part(self, rows: RowNumbers, count: int) -> NDArray[np.float32]:
        size = _FRAME.itemsize + _HEADER.itemsize + 4 * count
        places = np.minimum(self.places[rows], len(self._data) - size)  # the last record may be a header only
        begin = self.places[rows] - places
        taken = self._data[places[:, None] + np.arange(size)]
        if begin.any():
            for line in np.flatnonzero(begin):
                taken[line] = np.roll(taken[line], -begin[line])
        words = taken.view("<u4")
        labels = words[:, 2]
        wrong = (words[:, 0] != MAGIC) | ((labels < count) & ~((labels == 0) & (count == 1)))
        if wrong.any():
            raise self._damaged(int(rows[wrong][0]))
        several = words[:, 8 : 8 + count].view("<f4")
        found: NDArray[np.float32] = np.where((labels == 0)[:, None], words[:, 3:4].view("<f4"), several)
        return found

    def _damaged(self, row: int) -> DataError:
        return DataError(
            f"{self.path} is damaged at the record {self.keys[row]}, byte {self.places[row]}.",
            expected=f"a record that begins with {MAGIC:#x}, is complete and has a label",
            to_do="get records and index again, from one release.",
        )


class RecordImages(DecodedImages):
    """The images of some records.

    Args:
        file: The record file.
        rows: Rows of the records that hold the images (N,).
        shape: Channels (1 or 3), height and width of the images.
        fit: "crop" keeps the aspect ratio (shorter side to size, centre crop), "squash" does not.
    """

    def __init__(self, file: RecordFile, rows: RowNumbers, shape: Shape, *, fit: Fit = "crop") -> None:
        super().__init__(shape, fit)
        self._file, self._rows = file, rows

    def __len__(self) -> int:
        return len(self._rows)

    def _decoded(self, row: int) -> Pixels:
        record = int(self._rows[row])
        name = f"the record {self._file.keys[record]} of {self._file.path}"
        return decode(io.BytesIO(self._file.header(record)[1]), self._shape, self._fit, name)

    def content_digest(self, rows: RowNumbers) -> bytes:
        """Return the SHA-256 digest of the records, headers included."""
        digest = hashlib.sha256()
        for row in self._rows[rows].tolist():
            digest.update(self._file.content(row))
        return digest.digest()

    def digests(self, rows: RowNumbers) -> Digests:
        """Return the digest of each record, header included."""
        return digests_of(self._file.content(row) for row in self._rows[rows].tolist())


def _mapped(path: Path) -> NDArray[np.uint8]:
    try:
        with path.open("rb") as file:
            buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot read {path}: {error}.", expected="a file of records") from error
    if hasattr(mmap, "MADV_RANDOM"):
        buffer.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(buffer, np.uint8)
