"""Settings that several commands share, from words to values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.data.retrieval_data import RetrievalData


def data_root(given: Path | None) -> Path | None:
    """Return the folder of the named data sets: the one given, or that of the environment variable HOLDFAST_DATA."""
    if given is not None:
        return given
    named = os.environ.get("HOLDFAST_DATA")
    return Path(named) if named else None


def open_data(data: str, root: Path | None, options: Mapping[str, Any]) -> RetrievalData:
    """Open a data set by name or path, showing that it is being read."""
    from holdfast.cli.console import console
    from holdfast.data.datasets import load_dataset

    with console.status(f"reading {data}"):
        return load_dataset(data, data_root(root), **options)


def write_settings(folder: Path, name: str, text: str) -> None:
    """Write the resolved settings of a command beside its results.

    Raises:
        ConfigError: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"Cannot write to '{folder}': {error.strerror}.",
            expected="a folder that can be written",
            to_do="change --out.",
        ) from error
