"""Named text data sets, and functions that open texts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from limpet.data.datasets import Dataset, open_named
from limpet.data.text_files import FILE_READERS, OnEmpty, texts
from limpet.data.text_pairs import TextPairs, text_pairs
from limpet.data.text_set import TextData, TextSet
from limpet.errors import DataError
from limpet.registry import Registry
from limpet.support.options import bound, option_types

TEXT_DATASETS: Registry[Dataset[TextData]] = Registry(
    "text data set or file",
    "text_datasets",
    {},
    fits=lambda thing: isinstance(thing, Dataset),
    expected="a limpet.data.datasets.Dataset",
    listing="limpet data",
    in_bench=("clinc150", "banking77"),
)


def load_texts(
    name_or_path: str | Path, root: str | Path | None = None, *, on_empty: OnEmpty = "fail", **options: Any
) -> TextData | TextSet:
    """Open texts by name, with their protocol, or a file of your own.

    Args:
        name_or_path: A name of `TEXT_DATASETS`, or a ``.csv``, ``.parquet``, ``.jsonl`` or ``.txt`` file.
        root: Folder that holds the folders of the named data sets.
        on_empty: What to do with a missing or blank text of a file; see `texts`.
        options: Options of the reader, such as ``seed`` or ``label_column``.

    Returns:
        Training texts, queries and gallery for a name; one set for a file.

    Raises:
        ConfigError: The name or an option is unknown, or an option has another type or is out of range.
        DataError: Files are missing or cannot be used; the message says which.

    >>> load_texts("requests.csv")
    Traceback (most recent call last):
    ...
    limpet.errors.DataError: There is no file requests.csv.
    Expected: a file of texts: .csv, .parquet, .jsonl, .txt
    """
    if str(name_or_path) in TEXT_DATASETS:
        return open_named(TEXT_DATASETS, str(name_or_path), root, options)
    path = Path(name_or_path)
    _check_file(path)
    return texts(path, **{"on_empty": on_empty, **bound(texts, options, f"texts in '{path}'")})


def load_pairs(name_or_path: str | Path, **options: Any) -> TextPairs | None:
    """Open pairs or triplets of texts in a file of your own; None for other texts, which `load_texts` opens.

    Raises:
        ConfigError: An option is unknown, or has another type.
        DataError: The file is missing or cannot be used; the message says which.
    """
    path = Path(name_or_path)
    if str(name_or_path) in TEXT_DATASETS or options.keys() & option_types(texts):
        return None
    _check_file(path)
    return text_pairs(path, **bound(text_pairs, options, f"pairs in '{path}'"))


def _check_file(path: Path) -> None:
    """Refuse a path that is not a file of texts.

    Raises:
        ConfigError: The path does not exist and looks like the name of a data set.
        DataError: The path does not exist, or is another kind of file.
    """
    kinds = ", ".join(FILE_READERS)
    if path.is_file() and path.suffix in FILE_READERS:
        return
    if path.exists():
        raise DataError(f"{path} is no file that ends in {kinds}.", expected=f"a file of texts: {kinds}")
    if os.sep in str(path) or path.suffix in FILE_READERS:
        raise DataError(f"There is no file {path}.", expected=f"a file of texts: {kinds}")
    raise TEXT_DATASETS.unknown(str(path))
