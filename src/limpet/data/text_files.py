"""Reads texts from one file: CSV, Parquet, JSON lines, or plain lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from limpet.data.text_set import TextSet
from limpet.embeddings import StringArray
from limpet.errors import DataError, nearest, reason
from limpet.support.disk import regular

_Columns = dict[str, list[Any]]
OnEmpty = Literal["fail", "skip"]

USUAL_NAMES = {
    "text": ("text", "sentence", "utterance"),
    "label": ("label", "category", "class", "intent"),
    "id": ("id",),
    "anchor": ("anchor", "query", "question", "sentence1"),
    "positive": ("positive", "answer", "sentence2"),
    "negative": ("negative",),
}
"""Usual names of columns by role; upper and lower case are equal."""


def texts(
    path: Path,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    on_empty: OnEmpty = "fail",
) -> TextSet:
    """Your own texts, with their labels and ids if the file has them.

    Args:
        path: A ``.csv``, ``.parquet`` or ``.jsonl`` file with a column of texts, or a ``.txt`` file with one text per
            line.
        text_column: Name of the column of texts. Default: the one with a usual name (`USUAL_NAMES`).
        label_column: Name of the column of classes. Default: the one with a usual name; without one the texts have no
            labels.
        id_column: Name of the column of ids. Default: the one with a usual name; without one the ids are row numbers
            from 00000000.
        on_empty: What to do with a missing or blank text: "fail", or "skip", which leaves the row out and keeps its id
            in `TextSet.without_text`.

    Raises:
        DataError: The file cannot be read, a column is missing or ambiguous, or a text is blank.
    """
    columns = FILE_READERS[path.suffix](path)
    wanted = {"text": text_column, "label": label_column, "id": id_column}
    names = {role: column_of(path, role, columns, name) for role, name in wanted.items()}
    values = {
        role: written_texts(path, name, columns[name], missing_as="" if (role, on_empty) == ("text", "skip") else None)
        for role, name in names.items()
        if name is not None
    }
    if not columns:
        raise DataError(f"'{path}' is empty.", expected="a line with the names of columns, and at least one text below")
    if "text" not in values:
        raise DataError(
            f"'{path}' has the columns {', '.join(columns) or 'none'}.",
            expected=f"a column of texts, called {' or '.join(USUAL_NAMES['text'])}",
            to_do="name it: --data-options.text_column NAME.",
        )
    if not values["text"]:
        raise DataError(f"'{path}' holds no texts.", expected="at least one")
    class_names, labels = np.unique(values.get("label", []), return_inverse=True)
    made = TextSet.skipping_blank if on_empty == "skip" else TextSet
    return made(
        texts=StringArray.of(values["text"]),
        labels=labels.astype(np.int64) if "label" in values else None,
        class_names=tuple(str(name) for name in class_names),
        ids=StringArray.of(values.get("id", [f"{row:08d}" for row in range(len(values["text"]))])),
    )


def read_csv(path: Path) -> _Columns:
    """Return the columns of a CSV file with a header, all values as text.

    Raises:
        DataError: The file is missing or not UTF-8, a row has too few or too many values, or two columns have the same
            name.
    """
    with readable(path), regular(path).open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, strict=True)
        header = next(lines, [])
        _refuse_repeated(path, header)
        rows = []
        for row in lines:
            if row and len(row) != len(header):
                raise DataError(
                    f"Line {lines.line_num} of '{path}' has {len(row)} values.",
                    expected=f"{len(header)}, one for each of {', '.join(header)}",
                    to_do="put texts with commas or line breaks between double quotes.",
                )
            rows += [row] if row else []
    return {name: [row[place] for row in rows] for place, name in enumerate(header)}


def read_parquet(path: Path) -> _Columns:
    """Return the columns of a Parquet file.

    Raises:
        DataError: The file cannot be read, or two columns have the same name.
    """
    import pyarrow.parquet as pq

    with readable(path):
        table = pq.read_table(regular(path))
        _refuse_repeated(path, table.column_names)
        return dict(table.to_pydict())


def read_json_lines(path: Path) -> _Columns:
    """Return the columns of a file with one JSON object per line; a missing value is None.

    Raises:
        DataError: The file cannot be read, or a line is not a JSON object.
    """
    rows = []
    for number, line in enumerate(_lines(path), start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"Line {number} of '{path}' is no JSON: {error}.", expected="one object per line"
            ) from error
        if not isinstance(row, dict):
            raise DataError(f"Line {number} of '{path}' is {line:.40}.", expected='an object, as {"text": "..."}')
        rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def read_lines(path: Path) -> _Columns:
    """Return one text per line, without its line break, as the column "text".

    Raises:
        DataError: The file cannot be read.
    """
    return {"text": _lines(path)}


FILE_READERS: Mapping[str, Callable[[Path], _Columns]] = {
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".jsonl": read_json_lines,
    ".txt": read_lines,
}
"""Functions that read a file, by its extension."""


def _lines(path: Path) -> list[str]:
    with readable(path):
        content = regular(path).read_text(encoding="utf-8-sig")
    return content.removesuffix("\n").split("\n") if content else []


@contextmanager
def readable(path: Path, what: str = "a file of texts") -> Iterator[None]:
    """Translate errors of reading a table of texts in the ``with`` block into a `DataError`."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"There is no file '{path}'.", expected=what) from error
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowException) as error:
        raise DataError(
            f"Cannot read '{path}': {reason(error)}.",
            expected=f"a complete {path.suffix} file, its texts in UTF-8",
            to_do="write it again, or restore it from a copy.",
        ) from error


def _refuse_repeated(path: Path, names: Sequence[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"'{path}' has several columns '{repeated[0]}'.", expected="one column of each name")


def column_of(path: Path, role: str, columns: _Columns, chosen: str | None) -> str | None:
    """Return the name of the column with a role of `USUAL_NAMES`; None if no column has it.

    Args:
        path: The file, for messages.
        role: Role, a key of `USUAL_NAMES`.
        columns: Columns of the file.
        chosen: Name that the user chose; None finds a usual name.

    Raises:
        DataError: The chosen column does not exist, or several columns have a usual name.
    """
    if chosen is not None and chosen not in columns:
        raise DataError(
            f"'{path}' has no column '{chosen}'.{nearest(chosen, columns)}",
            expected=f"one of {', '.join(columns) or 'no columns at all'}",
        )
    found = [name for name in columns if name.strip().lower() in USUAL_NAMES[role]] if chosen is None else [chosen]
    if len(found) > 1:
        raise DataError(
            f"'{path}' has the columns {' and '.join(found)}: each could be the {role}.",
            expected=f"one of them, named by you; the file has the columns {', '.join(columns)}",
            to_do=f"name it: --data-options.{role}_column {found[0]}.",
        )
    return found[0] if found else None


def written_texts(path: Path, name: str, values: Sequence[Any], *, missing_as: str | None = None) -> list[str]:
    """Return the texts and integers of a column as texts.

    Args:
        path: The file, for messages.
        name: Name of the column, for messages.
        values: Values of the column.
        missing_as: Replacement of missing values; None refuses them.

    Raises:
        DataError: A value is missing, or is neither a text nor an integer.
    """
    values = [missing_as if value is None else value for value in values]
    for row, value in enumerate(values):
        if value is None or not isinstance(value, str | int) or isinstance(value, bool):
            found = "missing" if value is None else f"{value!r:.40}"
            raise DataError(
                f"The value of '{name}' in row {row} of '{path}' is {found}.",
                expected="a text, or a whole number, in every row",
                to_do="fill it in, remove the row, or choose another column.",
            )
    return [str(value) for value in values]
