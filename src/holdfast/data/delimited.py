"""Columns of large text files, read by Arrow: millions of lines a second, and the first wrong line named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from holdfast.errors import DataError

Kind = Literal["text", "whole number", "number"]
_BLOCK = 16 * 1024**2


def read_columns(path: Path, kinds: Mapping[str, Kind], *, separator: str = ",", header: bool = True) -> Any:
    """Return the wanted columns of a file as an Arrow table.

    Args:
        path: A text file with one record per line and one character between fields.
        kinds: What every wanted column holds, by name.
        separator: That character.
        header: Whether the first line names the columns; other columns are left out. Without, a line holds exactly the
            wanted columns in their order.

    Returns:
        A table whose columns are of types large_string, int64 and float64, without missing values.

    Raises:
        DataError: The file is missing or empty, a column is missing, or a line cannot be read.
    """
    import pyarrow as pa
    from pyarrow import csv

    types = {"text": pa.large_string(), "whole number": pa.int64(), "number": pa.float64()}
    names = list(kinds)
    try:
        table = csv.read_csv(
            path,
            csv.ReadOptions(block_size=_BLOCK, column_names=None if header else names),
            csv.ParseOptions(delimiter=separator),
            csv.ConvertOptions(
                column_types={name: types[kind] for name, kind in kinds.items()},
                include_columns=names,
                strings_can_be_null=False,
                null_values=[],
            ),
        )
    except FileNotFoundError as error:
        raise DataError(f"There is no file {path}.", expected=_lines(kinds, separator)) from error
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} cannot be read: {str(error).splitlines()[0][:200]}.",
            expected=_lines(kinds, separator),
            to_do="get the file again; nothing was changed.",
        ) from error
    return table


def _lines(kinds: Mapping[str, Kind], separator: str) -> str:
    return f"lines of {separator.join(kinds)} ({', '.join(kinds.values())})"
