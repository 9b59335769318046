"""Tables of LanceDB that other programs wrote, read batch by batch: ``lance:FOLDER#TABLE``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import lance
import pyarrow as pa

from limpet.engines.address import Address
from limpet.engines.filters import And, column_name, literal, sql
from limpet.engines.moment import kept
from limpet.engines.source import declared_similarity, filter_of, metadata_kind, needed, roles_of, sampled, whole_ids
from limpet.errors import DataError, StoreError, reason, refuse, unknown_name
from limpet.support.disk import only_files

_SIMILARITIES = {"cosine": "cosine", "dot": "inner-product", "l2": "euclidean"}
_IDS_AT_ONCE = 1024


class LanceTable:
    """One table at the version of its opening.

    Args:
        address: Address whose place is the folder of LanceDB; or the table itself, a folder that ends with ``.lance``.

    Raises:
        DataError: The folder does not exist.
        ConfigError: The table does not exist.
        StoreError: The table cannot be read.
    """

    options: ClassVar[Collection[str]] = ()
    record: None = None
    key: None = None

    def __init__(self, address: Address) -> None:
        self.address, folder = address, Path(address.place)
        if address.table is None and folder.suffix == ".lance":
            folder, table = folder.parent, folder.stem
        else:
            refuse(address.table is None, f"A folder of LanceDB, '{folder}', and no table.", "lance:FOLDER#TABLE")
            table = str(address.table)
        self.name = f"table '{table}' in '{folder}'"
        if not folder.is_dir():  # connecting would create it
            raise DataError(f"There is no folder '{folder}'.", to_do="check the path.")
        with self._translated():
            only_files(folder, deep=True)
        known = sorted(path.stem for path in folder.glob("*.lance"))
        if table not in known:
            raise unknown_name("table", table, known)
        with self._translated():
            path = str(folder / f"{table}.lance")
            version = kept(("lance", path), lambda _: lance.dataset(path).version)
            self._table = lance.dataset(path, version=version)  # stays at the current version
            schema = self._table.schema
        self.schema = dict(zip(schema.names, schema.types, strict=True))
        self._where = And(filter_of(self))

    @property
    def rows(self) -> int:
        """Number of rows of a read."""
        with self._translated():
            counted = int(self._table.count_rows(sql(self._where)))
        return counted if self.address.sample is None else min(counted, self.address.sample.rows)

    def type_name(self, column: str) -> str:
        """Return the type of a column."""
        return str(self.schema[column])

    def similarity(self, vector: str) -> str | None:
        """Return the similarity of a column's index; None without an index."""
        with self._translated():
            indexes = [one for one in self._table.describe_indices() if vector in one.field_names]
            metrics = {str(one.details["metric_type"]).lower() for one in indexes if "metric_type" in one.details}
        return declared_similarity(self, vector, metrics, _SIMILARITIES)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches of at most `rows` rows, with these columns, from the version that was opened."""
        return sampled(self, columns, lambda names: self._scanned(names, rows, sql(self._where)))

    def fetch(self, ids: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these ids, in any order."""
        [key] = needed(self, roles_of(self), "id")
        text = metadata_kind(self.schema[key]) == "text"
        values: Sequence[str | int] = ids if text else whole_ids(ids)
        for start in range(0, len(values), _IDS_AT_ONCE):
            listed = ", ".join(literal(one) for one in values[start : start + _IDS_AT_ONCE])
            yield from self._scanned(columns, _IDS_AT_ONCE, f"{column_name(key)} IN ({listed})")

    def _scanned(self, columns: Sequence[str], rows: int, where: str) -> Iterator[pa.RecordBatch]:
        with self._translated():
            yield from self._table.to_batches(columns=list(columns), batch_size=rows, filter=where or None)

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
