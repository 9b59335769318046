"""Strings as two arrays: concatenated UTF-8 bytes and offsets (the Arrow layout)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from limpet.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_Rows = NDArray[np.int64]

_CONVERTED_AT_ONCE = 65_536


class StringArray(Sequence[str]):
    """An immutable sequence of strings over two NumPy arrays, possibly memory-mapped.

    All offsets and bytes are validated once, at construction: they may come from an untrusted file, and later reads
    follow them without checks.

    Args:
        data: Concatenated UTF-8 bytes of all strings, uint8 (M,).
        offsets: Start of each string, int64 (N + 1,), non-decreasing, from 0 to M.

    Raises:
        DataError: The arrays are invalid.

    >>> names = StringArray.of(["ape", "", "bee"])
    >>> names[2], len(names), list(names[[2, 0]])
    ('bee', 3, ['bee', 'ape'])
    """

    def __init__(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        import pyarrow as pa

        right_types = data.dtype == np.uint8 and offsets.dtype == np.int64
        if not (right_types and data.ndim == offsets.ndim == 1 and len(offsets)):
            raise DataError(
                f"String storage of types {data.dtype} and {offsets.dtype}, shapes {data.shape} and {offsets.shape}.",
                expected="uint8 bytes and at least one int64 offset",
            )
        if offsets[0] != 0 or offsets[-1] != len(data):
            raise DataError(
                f"String offsets run from {offsets[0]} to {offsets[-1]} over {len(data)} bytes.",
                expected="offsets from 0 to the number of bytes",
                to_do="the file is damaged; write it again from its source.",
            )
        self.data, self.offsets = data, offsets
        try:
            self.arrow().validate(full=True)
        except pa.ArrowInvalid as error:
            raise DataError(
                f"Strings that cannot be read: {error}.",
                expected="offsets that never fall, and UTF-8 between them",
                to_do="the file is damaged; write it again from its source.",
            ) from error

    @classmethod
    def of(cls, strings: Iterable[str]) -> StringArray:
        """Build from Python strings; an existing `StringArray` is returned unchanged."""
        import pyarrow as pa

        if isinstance(strings, StringArray):
            return strings
        values = list(strings)
        wrong = next((value for value in values if not isinstance(value, str)), None)
        if wrong is not None:
            raise DataError(
                f"An identifier of type {type(wrong).__name__}: {wrong!r}.",
                expected="text",
                to_do="convert them with str() so that you decide how they are written.",
            )
        try:
            return cls._of_one(pa.array(values, type=pa.large_string()))
        except UnicodeEncodeError as error:
            raise DataError(
                f"A text that cannot be written as UTF-8: {error.object!r}.",
                to_do="rename the file or folder, or whatever this text names.",
            ) from error

    @classmethod
    def from_numpy(cls, texts: NDArray[np.str_]) -> StringArray:
        """Build from a NumPy array of strings (N,), without creating Python strings."""
        import pyarrow as pa

        blocks = range(0, len(texts), _CONVERTED_AT_ONCE)
        parts = [_arrow_of(texts[start : start + _CONVERTED_AT_ONCE]) for start in blocks]
        return cls.from_arrow(pa.chunked_array(parts, pa.large_string()))

    @classmethod
    def from_arrow(cls, array: Any) -> StringArray:
        """Build from an Arrow array or chunked array of strings, without missing values."""
        import pyarrow as pa

        if array.null_count:
            raise DataError(f"{array.null_count} missing identifiers.", expected="a text in every row")
        parts = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        return cls._of_one(
            pa.concat_arrays([pa.array([], pa.large_string()), *(part.cast(pa.large_string()) for part in parts)])
        )

    @classmethod
    def _of_one(cls, array: Any) -> StringArray:
        """Build from one Arrow array of large strings without a copy; nothing else refers to its memory."""
        if len(array) == 0:
            return cls(np.empty(0, np.uint8), np.zeros(1, np.int64))
        _, offset_buffer, data_buffer = array.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
        data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
        return cls(data[offsets[0] : offsets[-1]], offsets - offsets[0])

    def arrow(self) -> Any:
        """Return the same strings as an Arrow array, without copying."""
        import pyarrow as pa

        return pa.LargeStringArray.from_buffers(len(self), pa.py_buffer(self.offsets), pa.py_buffer(self.data))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> str: ...
    @overload
    def __getitem__(self, index: slice | NDArray[Any] | list[int]) -> StringArray: ...
    def __getitem__(self, index: Any) -> str | StringArray:
        if isinstance(index, int | np.integer):
            row = range(len(self))[int(index)]
            return bytes(self.data[self.offsets[row] : self.offsets[row + 1]]).decode()
        if isinstance(index, slice) and index.step in (None, 1):
            start, stop, _ = index.indices(len(self))
            offsets = self.offsets[start : max(start, stop) + 1]
            return StringArray(self.data[offsets[0] : offsets[-1]], offsets - offsets[0])
        import pyarrow as pa

        rows = np.arange(len(self))[index]
        return StringArray.from_arrow(self.arrow().take(pa.array(rows)))

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrow().to_pylist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StringArray):
            return NotImplemented
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.data, other.data)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(repr(self[row]) for row in range(min(3, len(self))))
        return f"StringArray([{shown}{', ...' if len(self) > 3 else ''}], length={len(self)})"

    def classes(self) -> tuple[NDArray[np.int64], StringArray]:
        """Return the index of every string (N,) among the sorted unique strings, and these strings.

        >>> places, kinds = StringArray.of(["dog", "cat", "dog"]).classes()
        >>> places.tolist(), list(kinds)
        ([1, 0, 1], ['cat', 'dog'])
        """
        import pyarrow.compute as pc

        encoded = self.arrow().dictionary_encode()
        order = pc.sort_indices(encoded.dictionary)  # byte order equals character order
        places = np.empty(len(order), np.int64)
        places[order.to_numpy()] = np.arange(len(order))
        return places[encoded.indices.to_numpy()], StringArray.from_arrow(encoded.dictionary.take(order))

    @cached_property
    def duplicates(self) -> list[str]:
        """The strings that occur more than once, in order of first appearance."""
        import pyarrow.compute as pc

        strings = self.arrow()
        if len(pc.unique(strings)) == len(strings):
            return []
        counts = pc.value_counts(strings)
        repeated = pc.greater(counts.field("counts"), 1)
        values: list[str] = counts.field("values").filter(repeated).to_pylist()
        return values

    def find(self, wanted: Sequence[str]) -> NDArray[np.int64]:
        """Return the row of every wanted string (len(wanted),), or -1 if it does not occur."""
        import pyarrow.compute as pc

        rows = pc.index_in(StringArray.of(wanted).arrow(), value_set=self.arrow())
        found: NDArray[np.int64] = pc.fill_null(rows, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return found


def refuse_no_text(texts: NDArray[np.str_]) -> None:
    """Refuse strings of a file with characters outside Unicode, which Python cannot print.

    Raises:
        DataError: A string has such a character.
    """
    native = np.ascontiguousarray(texts, texts.dtype.newbyteorder("="))
    largest = int(np.frombuffer(native.data.cast("B"), np.uint32).max(initial=0)) if native.nbytes else 0
    if largest > sys.maxunicode:
        raise DataError(
            f"A text with the sign {largest:#x}.",
            expected=f"signs of Unicode, which ends with {sys.maxunicode:#x}",
            to_do="the file is damaged; write it again from its source.",
        )


def _arrow_of(texts: NDArray[np.str_]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(texts.astype(texts.dtype.newbyteorder("="), copy=False), pa.large_string())
    except UnicodeDecodeError:  # invalid UTF-8: decode one by one to find which
        refuse_no_text(texts)
        return StringArray.of(texts.tolist()).arrow()


class IdIndex:
    """Index from id to row, over one list of ids or several concatenated ones.

    `StringArray.find` reads all ids at every call; this looks up 4,000 among a million in about ten milliseconds and
    keeps 16 bytes per id.

    Args:
        **parts: Lists of ids; for a duplicate id the first row is found.
        hash_of: Hash function from an id to 64 bits; collisions only cost time.

    >>> index = IdIndex(StringArray.of(["a", "b"]), StringArray.of(["c"]))
    >>> index.find(["c", "x", "a"]).tolist()
    [2, -1, 0]
    """

    def __init__(self, *parts: StringArray, hash_of: Callable[[str], int] = hash) -> None:
        import pyarrow as pa  # lazy: galleries open without it

        self.starts = np.cumsum([0, *map(len, parts)])
        self.ids = pa.concat_arrays([StringArray.of([]).arrow(), *(part.arrow() for part in parts)])
        if len(parts) == 1:
            self.ids = parts[0].arrow()  # not copied: it may be mapped from a file
        self._hash_of = hash_of
        hashes = self._hashes(self.ids)
        self._rows: _Rows = np.argsort(hashes, kind="stable")
        self._sorted = hashes[self._rows]

    def __len__(self) -> int:
        return len(self.ids)

    def _hashes(self, ids: pa.LargeStringArray) -> _Rows:
        hashes = np.empty(len(ids), np.int64)
        for start in range(0, len(ids), _CONVERTED_AT_ONCE):
            part = ids.slice(start, _CONVERTED_AT_ONCE).to_pylist()
            hashes[start : start + len(part)] = np.fromiter(map(self._hash_of, part), np.int64, len(part))
        return hashes

    def find(self, wanted: Sequence[str]) -> _Rows:
        """Return the row of every wanted id (len(wanted),), or -1 if it does not occur."""
        import pyarrow as pa
        import pyarrow.compute as pc

        names = StringArray.of(wanted).arrow()
        hashes = self._hashes(names)
        places = np.searchsorted(self._sorted, hashes)
        row_of, left = np.full(len(names), -1, np.int64), np.arange(len(names))
        while len(left):
            left = left[places[left] < len(self)]
            left = left[self._sorted[places[left]] == hashes[left]]
            rows = self._rows[places[left]]
            same = pc.equal(self.ids.take(pa.array(rows)), names.take(pa.array(left))).to_numpy(zero_copy_only=False)
            row_of[left[same]] = rows[same]
            left = left[~same]
            places[left] += 1  # another id with the same hash
        return row_of

    def by_part(self, rows: _Rows) -> Iterator[tuple[int, _Rows, _Rows]]:
        """Yield, for every list that contains some of these rows, its number, these rows, and their positions in it."""
        parts = np.searchsorted(self.starts, rows, side="right") - 1
        for part in np.unique(parts):
            which = np.flatnonzero(parts == part)
            yield int(part), which, rows[which] - self.starts[part]
