"""Run notebooks of `docs/notebooks` as a reader does, from an empty folder, and write what their cells show into them.

`python tools/notebooks.py` runs all of them; paths after it name some.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"


def executed(
    path: Path, folder: Path, changed: Mapping[str, str] | None = None, **client: Any
) -> nbformat.NotebookNode:
    """Run a notebook in a folder, and return it with what its cells show.

    Args:
        path: Of the notebook.
        folder: Where its kernel starts.
        changed: What to run instead of some words, such as a port that is free.
        **client: Further options of `NotebookClient`.

    Raises:
        CellExecutionError: A cell raises an error.
    """
    source = path.read_text(encoding="utf-8")
    for printed, real in (changed or {}).items():
        source = source.replace(printed, real)
    notebook = nbformat.reads(source, as_version=4)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # `!limpet`
    NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(folder)}}, **client).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
        if cell.cell_type == "code":  # warnings name folders of this machine
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    return notebook


def main() -> None:
    """Run those that are named, or all."""
    for path in [*map(Path, sys.argv[1:])] or sorted(NOTEBOOKS.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(executed(path, Path(folder)), path)
        print(path.name)


if __name__ == "__main__":
    main()
