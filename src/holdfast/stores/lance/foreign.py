"""Tables of LanceDB that other programs wrote, read batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from holdfast.errors import DataError, StoreError, reason, unknown_name


class LanceTable:
    """One table as it was when it was opened.

    Args:
        folder: A folder of LanceDB.
        table: Name of the table, without ``.lance``.

    Raises:
        DataError: There is no such folder.
        ConfigError: There is no such table.
        StoreError: It cannot be read.
    """

    record: None = None

    def __init__(self, folder: str | Path, table: str) -> None:
        self.name = f"table '{table}' in '{folder}'"
        if not Path(folder).is_dir():  # connecting would make it
            raise DataError(
                f"There is no folder '{folder}'.", expected="one that LanceDB wrote", to_do="check the path."
            )
        known = sorted(path.stem for path in Path(folder).glob("*.lance"))
        if table not in known:
            raise unknown_name("table", table, known)
        with self._translated():
            self._table = lance.dataset(str(Path(folder) / f"{table}.lance"))  # stays at the version it has now
            schema = self._table.schema
            self.rows = int(self._table.count_rows())
        self.schema = dict(zip(schema.names, schema.types, strict=True))

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield record batches of at most so many rows, with these columns."""
        with self._translated():
            yield from self._table.to_batches(columns=list(columns), batch_size=rows)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
            raise StoreError(
                f"Cannot read {self.name}: {reason(error)}.",
                expected="a table of LanceDB",
                to_do="check the path and the table.",
            ) from error
