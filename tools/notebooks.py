"""Run the notebooks of `docs/notebooks` in an empty folder, as a reader does, and write the outputs of cells into them.

`python tools/notebooks.py` runs all notebooks; `python tools/notebooks.py PATH ...` runs some.
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
    """Run a notebook in a folder, and return it with the outputs of its cells.

    Args:
        path: Path of the notebook.
        folder: Working directory of its kernel.
        changed: Replacements in the source before the run, such as a free port.
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
        cell.metadata.pop("execution", None)  # timestamps would change with every run
        if cell.cell_type == "code":  # warnings contain paths of this machine
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    return notebook


def main() -> None:
    """Run the notebooks given on the command line, or all."""
    for path in [*map(Path, sys.argv[1:])] or sorted(NOTEBOOKS.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(executed(path, Path(folder)), path)
        print(path.name)


if __name__ == "__main__":
    main()
