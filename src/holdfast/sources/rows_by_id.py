"""Rows by id of what can only be read from its beginning to its end: copied once into a temporary file."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from holdfast.embeddings.room import spool_folder
from holdfast.errors import DataError, reason
from holdfast.sources.base import texts_of_ids

ROWS = 8192
"""How many rows a batch should have: one is in memory while they are copied, and each is looked into."""
_HASH = "hash of the id"


class RowsById:
    """Rows of record batches in a temporary file without a name, which is gone with this object or the process.

    Every batch is sorted by a hash of its ids, so that little more is read than the rows that are asked for.

    Args:
        schema: Of the batches; the first column holds ids.
        batches: What is copied, of about `ROWS` rows each.
        name: What to call it in messages.

    Raises:
        DataError: The temporary file has no room, or an id is missing.
    """

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], name: str) -> None:
        self._columns = schema.names
        sorted_ = pa.schema([*schema, pa.field(_HASH, pa.int64())])
        try:
            with tempfile.TemporaryFile(prefix="holdfast-", dir=spool_folder()) as file:
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
                expected="room for them there, as they are without compression",
                to_do="free some, or name another folder for temporary files: TMPDIR=FOLDER; nothing was changed.",
            ) from error
        self._batches = list(pa.ipc.open_stream(pa.py_buffer(kept)))  # of the file, which is mapped into memory

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
