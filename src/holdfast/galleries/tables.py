"""Tables of vectors that others wrote, read piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.documents import parsed_json
from holdfast.errors import DataError, reason

RECORD = b"holdfast"  # key in the metadata of Parquet files that `export` wrote


class Table(Protocol):
    """Rows with named columns, never read all at once."""

    @property
    def name(self) -> str:
        """What to call it in a message."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """Arrow types of the columns by name; `pyarrow.null()` for one that cannot be read."""

    @property
    def rows(self) -> int:
        """How many rows it has."""

    @property
    def record(self) -> Mapping[str, Any]:
        """What it says of its vectors ("fingerprint" and "space"), where it says anything."""

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield record batches of at most so many rows, with these columns, all of one moment."""


class ParquetTable:
    """A Parquet file, or all of a folder one after another by name.

    Args:
        path: The file, or a folder of ``.parquet`` files with the same columns.

    Raises:
        DataError: There is none, one cannot be read, or they have different columns.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.files = sorted(self.path.glob("*.parquet")) if self.path.is_dir() else [self.path]
        self.name = f"'{path}'"
        if not self.files:
            raise DataError(f"The folder {self.name} holds no .parquet file.", expected="at least one")
        opened = [_opened(file) for file in self.files]
        first = opened[0].schema_arrow
        for file, other in zip(self.files, opened, strict=True):
            if not other.schema_arrow.equals(first):
                raise DataError(
                    f"'{file}' has other columns than '{self.files[0]}'.",
                    expected="the same columns of the same types in all files of a folder",
                    to_do="import them one by one.",
                )
        self.schema = dict(zip(first.names, first.types, strict=True))
        self.rows = sum(file.metadata.num_rows for file in opened)
        if any(file.metadata.num_rows < 0 for file in opened):
            raise _unreadable(self.path, ValueError(f"it says that it has {self.rows} rows"))
        twice = next((name for name in first.names if first.names.count(name) > 1), None)
        if twice is not None:
            raise DataError(
                f"{self.name} has two columns '{twice}'.", expected="one column of a name", to_do="rename one of them."
            )
        self.record = _record_of(self.name, (first.metadata or {}).get(RECORD, b"{}"))
        for file in opened:
            file.close()

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield record batches, one row group of a file at a time."""
        for path in self.files:
            file = _opened(path)
            try:
                for batch in file.iter_batches(batch_size=rows, columns=list(columns), use_threads=False):
                    batch.validate(full=True)  # Arrow takes texts of a file for UTF-8 unseen
                    yield batch
            except (OSError, pa.ArrowException) as error:
                raise _unreadable(path, error) from error
            finally:
                file.close()


def _record_of(name: str, text: bytes) -> Mapping[str, Any]:
    """Return what a file says of its vectors."""
    try:
        record = parsed_json(text)
        if isinstance(record, dict) and isinstance(record.get("space") or {}, dict):
            return record
        problem = "no mapping"
    except ValueError as error:
        problem = reason(error)
    raise DataError(
        f"What {name} says of its vectors (the metadata 'holdfast') cannot be read: {problem}.",
        expected="what `holdfast gallery export` wrote there",
        to_do="restore it from a copy, or write the table again without this metadata.",
    )


def _opened(path: Path) -> Any:
    try:
        return pq.ParquetFile(path)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"Cannot read '{path}': {reason(error)}.",
        expected="a complete Parquet file",
        to_do="write it again, or restore it from a copy.",
    )
