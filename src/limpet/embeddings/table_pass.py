"""One pass over a table: vectors are yielded block by block, other columns are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from limpet.embeddings.string_array import StringArray
from limpet.errors import DataError, reason, shown

_EXAMPLES = 3


class Pass:
    """One pass over all rows: vectors are yielded block by block, other columns are kept.

    Args:
        name: Name of the table, for messages.
        columns: Names of the columns, in the order of the batches, with "vector" and optionally "id".
        batches: Record batches of the rows.
        without: Advice about missing vectors, for the error; None to skip their rows.
    """

    def __init__(self, name: str, columns: Sequence[str], batches: Iterable[Any], *, without: str | None) -> None:
        self.name, self.columns, self._batches, self._without = name, list(columns), batches, without
        self.rows = 0
        self.dim = 0
        self._kept: dict[str, list[Any]] = {name: [] for name in columns if name != "vector"}
        self._missing: list[str] = []
        self._other: list[str] = []
        self._counts = {"missing": 0, "other": 0}

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the vectors (n, D) batch by batch.

        Raises:
            DataError: Vectors are missing or differ in length; raised after reading everything, to count them.
        """
        for batch in self._batches:
            batch = batch.rename_columns(self.columns)
            lists = batch.column("vector")
            if self._without is None and lists.null_count:
                batch = batch.filter(pc.is_valid(lists))
                lists = batch.column("vector")
            lengths = pc.list_value_length(lists)
            self.dim = self.dim or next((length for length in pc.unique(lengths).to_pylist() if length), 0)
            self._look_at(batch, lengths)
            self.rows += len(batch)
            for name, parts in self._kept.items():
                parts.append(self._plain(name, batch.column(name)))
            if len(batch) and self.dim and not any(self._counts.values()):
                yield np.asarray(lists.flatten().to_numpy(zero_copy_only=False)).reshape(-1, self.dim)
        self._refuse_wrong()

    def values(self) -> dict[str, NDArray[Any] | StringArray]:
        """Return the other columns: "ids" and "labels" as numbers or strings, all others as numbers.

        Raises:
            DataError: An id or a label is missing.
        """
        found: dict[str, NDArray[Any] | StringArray] = {}
        for name, parts in self._kept.items():
            array = pa.chunked_array(parts)
            plural = {"id": "ids", "label": "labels"}.get(name)
            if plural is not None and array.null_count:
                raise DataError(
                    f"{array.null_count} of {len(array)} values of '{name}' in {self.name} are missing (null).",
                    to_do="fill them in, or remove these items.",
                )
            texts = pa.types.is_large_string(array.type)
            found[plural or name] = StringArray.from_arrow(array) if texts else array.to_numpy()
        return found

    def _look_at(self, batch: Any, lengths: Any) -> None:
        """Count the vectors that are missing or differ in length from the first, and record some of their ids."""
        if not lengths.null_count and pc.all(pc.equal(lengths, self.dim)).as_py() in (True, None):
            return
        absent, other = pc.is_null(lengths), pc.fill_null(pc.not_equal(lengths, self.dim), False)
        for what, wrong, names in (("missing", absent, self._missing), ("other", other, self._other)):
            places = np.flatnonzero(wrong.to_numpy(zero_copy_only=False))
            self._counts[what] += len(places)
            for place in places[: _EXAMPLES - len(names)].tolist():
                known = batch.column("id")[place] if "id" in self.columns else f"row {self.rows + place}"
                names.append(str(known))

    def _refuse_wrong(self) -> None:
        missing, other = self._counts.values()
        problems = [
            f"{missing} of {self.rows} are missing ({shown(self._missing, missing)})" * bool(missing),
            f"{other} of {self.rows} have another dimension than the first, {self.dim} ({shown(self._other, other)})"
            * bool(other),
            "they have no numbers" * (not self.dim and self.rows > missing),
        ]
        if any(problems):
            raise DataError(
                f"Vectors of {self.name}: {', and '.join(filter(None, problems))}.",
                expected="a vector in every row, all of one dimension of at least 1",
                to_do=(self._without if missing else None) or "remove the rows whose vector has another dimension.",
            )

    def _plain(self, name: str, values: Any) -> Any:
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            return values
        try:
            # Arrow trusts strings of a file to be UTF-8, but validates bytes that are cast to strings
            return values.cast(pa.string()).cast(pa.large_binary()).cast(pa.large_string())
        except pa.ArrowException as error:
            raise DataError(
                f"The column '{name}' of {self.name} is {values.type} and cannot be read as text: {reason(error)}.",
                expected="texts or whole numbers",
                to_do="write it as texts in UTF-8.",
            ) from error
