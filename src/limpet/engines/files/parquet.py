"""Parquet files, and folders of them, as tables: ``parquet:PATH``; lookup of rows by id uses a copy."""

from __future__ import annotations

import mmap
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from limpet.embeddings.room import spool_folder
from limpet.engines.address import Address
from limpet.engines.source import (
    VectorsRecord,
    chosen,
    filter_of,
    kept,
    needed,
    roles_of,
    texts_of_ids,
)
from limpet.errors import DataError, reason, refuse
from limpet.support.documents import parsed_json

RECORD = b"limpet"
"""Metadata key of Parquet files for the description of their vectors."""


class ParquetTable:
    """A Parquet file, or all files of a folder, one after another by name.

    Args:
        address: Address whose place is the file, or a folder of ``.parquet`` files with the same columns.

    Raises:
        DataError: No file exists, a file cannot be read, or they have different columns.
    """

    options: ClassVar[Collection[str]] = ()
    key: None = None

    def __init__(self, address: Address) -> None:
        refuse(address.table is not None, f"A Parquet file and the table '{address.table}'.", "the file alone")
        self.address, path = address, address.place
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
        rows, sample = sum(file.metadata.num_rows for file in opened), address.sample
        if any(file.metadata.num_rows < 0 for file in opened):
            raise _unreadable(self.path, ValueError(f"it says that it has {rows} rows"))
        self.rows = rows if sample is None else min(rows, sample.rows)
        twice = next((name for name in first.names if first.names.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"{self.name} has two columns '{twice}'.", to_do="rename one of them.")
        self.record = _record_of(self.name, (first.metadata or {}).get(RECORD, b"{}"))
        for file in opened:
            file.close()
        self._where = filter_of(self)
        self._copies: dict[tuple[str, ...], RowsById] = {}
        self._copying = threading.Lock()

    def type_name(self, column: str) -> str:
        """Return the type of a column."""
        return str(self.schema[column])

    def similarity(self, vector: str) -> str | None:
        """Return None: a file declares no similarity."""
        return None

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches of at most `rows` rows, with these columns, one row group of a file at a time."""
        if self.address.sample is None:
            yield from self._counting(columns, rows)
            return
        [key] = needed(self, roles_of(self), "id")
        ids = (texts_of_ids(batch.column(0)) for batch in self._counting([key], rows))
        yield from self._of_ids(key, chosen(self.address.sample, ids), columns, rows)

    def fetch(self, ids: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these ids, in any order, from the files' state when these columns were first requested."""
        [key] = needed(self, roles_of(self), "id")
        names = tuple(dict.fromkeys([key, *columns]))
        with self._copying:
            if names not in self._copies:
                schema = pa.schema([(name, self.schema[name]) for name in names])
                self._copies[names] = RowsById(schema, self._read(names, _ROWS), self.name)
        for batch in self._copies[names].fetch(ids):
            yield batch.select(list(columns))

    def _counting(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        compared = [one.column for one in self._where]
        for batch in self._read(list(dict.fromkeys([*columns, *compared])), rows):
            yield kept(batch, self._where).select(list(columns))

    def _of_ids(self, key: str, ids: Sequence[str], columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        wanted = pa.array(ids, pa.large_string())
        for batch in self._read(list(dict.fromkeys([key, *columns])), rows):
            yield batch.filter(pc.is_in(texts_of_ids(batch.column(0)), wanted)).select(list(columns))

    def _read(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        for path in self.files:
            file = _opened(path)
            try:
                for batch in file.iter_batches(batch_size=rows, columns=list(columns), use_threads=False):
                    batch.validate(full=True)  # Arrow does not validate UTF-8 of files
                    yield batch.select(list(columns))
            except (OSError, pa.ArrowException) as error:
                raise _unreadable(path, error) from error
            finally:
                file.close()


def _record_of(name: str, text: bytes) -> VectorsRecord | None:
    """Return a file's declaration about its vectors; None if it has none."""
    try:
        record = parsed_json(text)
        if isinstance(record, dict) and isinstance(record.get("space") or {}, dict):
            return cast(VectorsRecord, record) if record else None
        problem = "no mapping"
    except ValueError as error:
        problem = reason(error)
    raise DataError(
        f"What {name} says of its vectors (the metadata 'limpet') cannot be read: {problem}.",
        expected="what `limpet gallery export` wrote there",
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
        to_do="write it again, or restore it from a copy.",
    )


_ROWS = 8192
"""Target number of rows per batch: one is in memory while rows are copied, and lookups search each."""
_HASH = "hash of the id"


class RowsById:
    """Rows of record batches in an unnamed temporary file, which is removed with this object or the process.

    Every batch is sorted by a hash of its ids, so that little more is read than the requested rows.

    Args:
        schema: Schema of the batches; the first column holds ids.
        batches: Batches to copy, of about `_ROWS` rows each.
        name: Name for messages.

    Raises:
        DataError: The disk of the temporary file is full, or an id is missing.
    """

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], name: str) -> None:
        self._columns = schema.names
        sorted_ = pa.schema([*schema, pa.field(_HASH, pa.int64())])
        try:
            with tempfile.TemporaryFile(prefix="limpet-", dir=spool_folder()) as file:
                with pa.ipc.new_stream(file, sorted_) as writer:
                    for batch in batches:
                        hashes = _hashes(texts_of_ids(batch.column(0)).to_pylist())
                        order = np.argsort(hashes)
                        columns = [*batch.take(pa.array(order)).columns, pa.array(hashes[order])]
                        writer.write_batch(pa.record_batch(columns, schema=sorted_))
                file.flush()
                kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise DataError(
                f"The columns {', '.join(self._columns)} of {name} do not fit into a temporary file in "
                f"'{spool_folder()}': {reason(error)}.",
                to_do="free some, or name another folder for temporary files: TMPDIR=FOLDER.",
                intact="Nothing was changed.",
            ) from error
        self._batches = list(pa.ipc.open_stream(pa.py_buffer(kept)))  # views of the memory-mapped file

    def fetch(self, ids: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these ids, in any order."""
        wanted, texts = np.unique(_hashes(ids)), pa.array(ids, pa.large_string())
        for batch in self._batches:
            hashes = batch.column(_HASH).to_numpy()
            first, end = np.searchsorted(hashes, wanted), np.searchsorted(hashes, wanted, "right")
            ranges = [np.arange(*one) for one in zip(first, end, strict=True) if one[0] < one[1]]
            if ranges:
                part = batch.take(pa.array(np.concatenate(ranges))).select(self._columns)
                yield part.filter(pc.is_in(texts_of_ids(part.column(0)), texts))


def _hashes(ids: Sequence[str]) -> NDArray[np.int64]:
    return np.fromiter(map(hash, ids), np.int64, len(ids))
