"""Texts and metadata of items, for judging search results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from limpet.data.text_files import FILE_READERS, column_of
from limpet.data.text_set import TextData
from limpet.data.texts import TEXT_DATASETS, load_texts
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import DataError

Facts = Mapping[str, str]
FactsOf = Callable[[str], Facts]

LONGEST = 300  # maximum number of characters of a value
_TABLES = tuple(suffix for suffix in FILE_READERS if suffix != ".txt")


def facts_of(
    data: str | None,
    root: Path | None,
    sets: Sequence[EmbeddingSet] = (),
    elsewhere: Callable[[str], Mapping[str, object]] = lambda identifier: {},
) -> FactsOf:
    """Return a lookup function for items: their row in a table, and their columns in embedding sets.

    Args:
        data: A .csv, .parquet or .jsonl file with a column of ids, a .txt file of texts, or texts by name; None for
            no table.
        root: Folder that holds the folders of the named data sets.
        sets: Embedding sets with further columns; the first table or set that has an item and a column counts.
        elsewhere: Lookup function with precedence over table and sets.

    Raises:
        ConfigError: The data set is unknown.
        DataError: The file cannot be read, or has no column of ids.
    """
    tables = [] if data is None else _tables(data, root)
    tables += [(one.ids, one.columns) for one in sets if one.columns]

    def look_up(identifier: str) -> Facts:
        found: dict[str, str] = {}
        for ids, columns in tables:
            row = int(ids.find([identifier])[0])
            if row >= 0:
                found = {name: text for name, values in columns.items() if (text := _shown(values[row]))} | found
        told = {name: text for name, value in elsewhere(identifier).items() if (text := _shown(value))}
        return told | found | told

    return look_up


def _tables(data: str, root: Path | None) -> list[tuple[StringArray, Mapping[str, Any]]]:
    path = Path(data)
    if data not in TEXT_DATASETS and path.suffix in _TABLES:
        columns = dict(FILE_READERS[path.suffix](path))
        name = column_of(path, "id", columns, None)
        if name is None:
            raise DataError(
                f"'{path}' has the columns {', '.join(columns) or 'none'}.",
                expected="a column 'id' with the ids of the items",
                to_do="name the column of ids 'id'; nothing was computed.",
            )
        ids = StringArray.of(map(str, columns.pop(name)))
        vectors = {
            key for key, values in columns.items() if isinstance((values or [None])[0], list | tuple | np.ndarray)
        }
        return [(ids, {key: values for key, values in columns.items() if key not in vectors})]
    found = load_texts(data, root)
    parts = found.parts().values() if isinstance(found, TextData) else [found]
    return [(texts.ids, {"text": texts.texts}) for texts in parts]


def _shown(value: Any) -> str:
    """Format a value for display; empty for a missing one."""
    if value is None or value == "":
        return ""
    text = f"{value:,.6g}" if isinstance(value, float | np.floating) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
