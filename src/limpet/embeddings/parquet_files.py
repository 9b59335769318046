"""Vectors, ids, labels and numbers in Parquet files, read batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from limpet.embeddings.files import USUAL_NAMES, by_role
from limpet.errors import DataError, reason
from limpet.support.disk import regular

READ_BYTES = 2**20  # bytes of a column per read; without a limit a reader loads a whole row group
ERRORS = (OSError, EOFError, UnicodeDecodeError, pa.ArrowException)
"""Exceptions of Arrow and Python for files that are not Parquet, or are truncated or damaged."""


class ParquetFiles:
    """Rows of a Parquet file, or of all files of a folder in the order of their names.

    Args:
        path: Path of the file, or of a folder of ``.parquet`` files with the same columns.

    Raises:
        DataError: No file exists, one cannot be read or holds no vectors or rows, or their columns differ.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.files = sorted(Path(path).glob("*.parquet")) if Path(path).is_dir() else [Path(path)]
        if not self.files:
            raise DataError(f"The folder '{path}' holds no .parquet file.", expected="at least one")
        with unreadable(path):
            opened = [
                (found.schema_arrow, found.metadata.num_rows)
                for found in (pq.ParquetFile(regular(file)) for file in self.files)
            ]
            self.schema = opened[0][0]
            self.rows = sum(rows for _, rows in opened)
            if any(rows < 0 for _, rows in opened):
                raise pa.ArrowInvalid(f"it says that it has {self.rows} rows")
            self._called = by_role(self.schema.names)
            self._check(schema for schema, _ in opened)

    def _check(self, schemas: Iterator[Any]) -> None:
        names = self.schema.names
        if "vector" not in self._called:
            raise DataError(
                f"'{self.path}' has columns {', '.join(names) or 'none'}.",
                expected="a column 'vector' of lists of numbers",
                to_do=f"rename the columns ('id' and 'label' are optional), or say which is which by a URL: "
                f"'parquet:{self.path}?vector=NAME&id=NAME&label=NAME'.",
            )
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise pa.ArrowInvalid(f"Multiple matches for the column '{repeated}'")
        for file, schema in zip(self.files, schemas, strict=True):
            if not schema.equals(self.schema):
                raise DataError(
                    f"'{file}' has other columns than '{self.files[0]}'.",
                    expected="the same columns of the same types in all files of a folder",
                    to_do="import them one by one.",
                )
        if not self.rows:
            raise DataError(
                f"'{self.path}' has no rows.", expected="at least one item", to_do="embed some items first."
            )

    @property
    def taken(self) -> list[str]:
        """Names of the columns to read: vectors, ids, labels and numbers."""
        own = [*self._called.values(), *USUAL_NAMES]
        numbers = [
            one.name
            for one in self.schema
            if one.name not in own and (pa.types.is_integer(one.type) or pa.types.is_floating(one.type))
        ]
        return [*self._called, *numbers]

    def vectors(self) -> tuple[int, np.dtype[Any]]:
        """Return the dimension D of the first vector, 0 if it is missing, and the type of its values.

        Raises:
            DataError: The column does not hold lists.
        """
        kind = self.schema.field(self._called["vector"]).type
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
            raise DataError(
                f"The column '{self._called['vector']}' of '{self.path}' is {kind}.",
                expected="a list of numbers in every row",
                to_do="write the numbers of an item as one list.",
            )
        if pa.types.is_fixed_size_list(kind):
            return kind.list_size, _type_of(kind.value_type)
        first = next(self.batches(["vector"], 1), None)
        length = None if first is None else pc.list_value_length(first.column("vector"))[0].as_py()
        return length or 0, _type_of(kind.value_type)

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield record batches of at most `rows` rows with the columns `names`."""
        called = {self._called.get(name, name): name for name in names}
        with unreadable(self.path):
            for path in self.files:
                with pq.ParquetFile(path, buffer_size=READ_BYTES, pre_buffer=False) as file:
                    for batch in file.iter_batches(batch_size=rows, columns=list(called)):
                        yield batch.rename_columns([called[name] for name in batch.schema.names])


@contextmanager
def unreadable(path: str | Path) -> Iterator[None]:
    """Turn exceptions for damaged files into an error that names this file."""
    try:
        yield
    except ERRORS as error:
        raise DataError(
            f"Cannot read '{path}': {reason(error)}.",
            to_do="write it again, or restore it from a copy.",
        ) from error


def _type_of(arrow: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(arrow.to_pandas_dtype())
    except NotImplementedError:
        return np.dtype(object)
    return found
