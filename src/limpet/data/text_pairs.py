"""Reads pairs of an anchor and a positive text, or triplets with a negative text, from one file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from limpet.data.text_files import FILE_READERS, USUAL_NAMES, column_of, written_texts
from limpet.data.text_set import TextSet
from limpet.embeddings import StringArray
from limpet.errors import DataError, shown

KINDS = {2: "pairs", 3: "triplets"}
"""Name by number of texts: pairs or triplets."""


@dataclass(frozen=True, eq=False)
class TextPairs:
    """N pairs or triplets of texts, validated when built.

    Args:
        texts: Unique texts without labels. A text is its own id, which identifies its old embedding.
        rows: Row of the anchor, the positive and, for triplets, the negative, int64 (N, 2) or (N, 3).

    Raises:
        DataError: Rows have another shape or are out of range, a negative is the anchor or the positive of its own
            triplet, or there are fewer than two different anchors or positives.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = ("anchor", "positive", "negative")

    texts: TextSet
    rows: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.rows.dtype != np.int64 or self.rows.ndim != 2 or self.rows.shape[1] not in KINDS:
            raise DataError(
                f"Rows of pairs are {self.rows.dtype} of shape {self.rows.shape}.", expected="int64 (N, 2) or (N, 3)"
            )
        if self.rows.size and not 0 <= self.rows.min() <= self.rows.max() < len(self.texts):
            raise DataError(
                f"Rows of pairs run from {self.rows.min()} to {self.rows.max()}.",
                expected=f"rows of the {len(self.texts)} texts",
            )
        fewest = min(len(np.unique(self.rows[:, side])) for side in (0, 1))
        if fewest < 2:
            raise DataError(
                f"{len(self)} {self.kind}, of {len(np.unique(self.rows[:, 0]))} anchors and "
                f"{len(np.unique(self.rows[:, 1]))} positives.",
                expected="at least two of both: an anchor learns to find its positive among those of others",
            )
        same = np.flatnonzero((self.rows[:, :2, None] == self.rows[:, None, 2:]).any(axis=(1, 2)))
        if len(same):
            raise DataError(
                f"{len(same)} triplets have a negative that is their anchor or positive: rows "
                f"{shown([str(row) for row in same])}.",
                expected="a negative that says something else",
                to_do="remove these rows, or give them another negative.",
            )

    @classmethod
    def of(cls, columns: Sequence[Sequence[str]]) -> Self:
        """Build from the anchors, the positives and, for triplets, the negatives, row by row.

        Raises:
            DataError: Columns differ in length, or a text is empty; see also `TextPairs`.

        >>> TextPairs.of([["a", "b", "a"], ["c", "d", "e"]])
        TextPairs(3 pairs of 5 texts)
        """
        lengths = [len(column) for column in columns]
        if len(columns) not in KINDS or len(set(lengths)) > 1:
            raise DataError(f"Columns of {lengths} texts.", expected="two or three columns of one length")
        # a dict and not np.unique, because NumPy strings drop trailing NUL characters
        numbers: dict[str, int] = {}
        rows = [[numbers.setdefault(text, len(numbers)) for text in column] for column in columns]
        names = StringArray.of(list(numbers))
        return cls(TextSet(names, None, (), names), np.array(rows, np.int64).T.copy())

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"TextPairs({len(self)} {self.kind} of {len(self.texts)} texts)"

    @property
    def width(self) -> int:
        """Number of texts per pair or triplet: 2 or 3."""
        return int(self.rows.shape[1])

    @property
    def kind(self) -> str:
        """Kind of the rows: pairs or triplets."""
        return KINDS[self.width]

    def digest(self) -> str:
        """Return a sha256 over texts and rows, 64 hexadecimal digits."""
        return hashlib.sha256(self.texts.digest().encode() + np.ascontiguousarray(self.rows).tobytes()).hexdigest()


def text_pairs(
    path: Path,
    *,
    anchor_column: str | None = None,
    positive_column: str | None = None,
    negative_column: str | None = None,
) -> TextPairs | None:
    """Your own pairs or triplets of texts; None if no column was named and the file has no such columns.

    Args:
        path: A ``.csv``, ``.parquet`` or ``.jsonl`` file with a column of anchors, such as questions, and one of
            positives, such as their answers; with a column of negatives these are triplets.
        anchor_column: Name of the column of anchors. Default: the one with a usual name (`USUAL_NAMES`).
        positive_column: Name of the column of positives. Default: the one with a usual name.
        negative_column: Name of the column of negatives. Default: the one with a usual name; without one these are
            pairs.

    Raises:
        DataError: The file cannot be read, anchors or positives are missing, a column is ambiguous, a text is empty or
            missing, or the pairs are invalid (see `TextPairs`).
    """
    columns = FILE_READERS[path.suffix](path)
    wanted = dict(zip(TextPairs.COLUMNS, (anchor_column, positive_column, negative_column), strict=True))
    found = {role: column_of(path, role, columns, name) for role, name in wanted.items()}
    missing = next((role for role in ("anchor", "positive") if found[role] is None), None)
    if missing is not None:
        named = any(name is not None for name in wanted.values())
        other = found["anchor"] == found["positive"] or any(
            column_of(path, role, columns, None) for role in ("text", "label")
        )
        if not named and other:  # neither column exists, or the file holds single texts
            return None
        raise DataError(
            f"'{path}' has the columns {', '.join(columns)}, and none of {missing}s.",
            expected=f"pairs of texts: a column of {missing}s, called {' or '.join(USUAL_NAMES[missing])}",
            to_do=f"name it: --data-options.{missing}_column NAME.",
        )
    names = [name for name in found.values() if name is not None]
    if len(set(names)) < len(names):
        raise DataError(f"'{path}': {' and '.join(names)} were to be {' and '.join(KINDS.values())}.", "other columns")
    for name in names:
        empty = [row for row, text in enumerate(columns[name]) if not str("" if text is None else text).strip()]
        if empty:
            raise DataError(
                f"{len(empty)} of {len(columns[name])} texts in the column '{name}' of '{path}' are empty: rows "
                f"{shown([str(row) for row in empty])}.",
                expected="a text in every row",
                to_do="fill them in, or remove these rows; where there are no negatives at all, remove the column.",
            )
    return TextPairs.of([written_texts(path, name, columns[name]) for name in names])
