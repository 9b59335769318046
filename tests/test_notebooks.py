"""The notebooks run from an empty folder, with the packages that they name, and show what they are committed with."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from bare_python import FINDER, all_but
from notebooks import NOTEBOOKS, executed

SAID = {
    "prove_upgrade": ("can search your old gallery once it is mapped", "not compatible"),
    "upgrade_table": ("no write lost: True | problems: []", "waterproof cycling jacket", "data are deleted"),
    "train_compatible": ("inconclusive",),
}
"""What the outputs of a notebook must say."""


def kernel(notebook: Path, folder: Path) -> AsyncKernelManager:
    """Return a manager of kernels that find the packages which the first cell of a notebook names, and no others."""
    head = nbformat.read(notebook, as_version=4).cells[0].source
    extras = re.search(r"pip install '\.\[([\w,-]+)\]' jupyterlab`", head)
    assert extras, f"{notebook.name} does not say which extras it needs"
    also = ["ipykernel", *re.findall(r"pip install ([\w.=-]+)`", head)]
    absent, hidden = all_but(extras[1].split(","), also)
    names = f"ABSENT, HIDDEN = {sorted(absent)!r}, {sorted(hidden)!r}"
    start = "from ipykernel.kernelapp import launch_new_instance\nlaunch_new_instance()"
    program = folder / "kernel.py"
    program.write_text(f"{FINDER}\n{names}\nlook_no_further()\n{start}\n", encoding="utf-8")
    (folder / "named").mkdir()
    spec = {"argv": [sys.executable, str(program), "-f", "{connection_file}"], "display_name": "", "language": "python"}
    (folder / "named" / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    specs = KernelSpecManager(kernel_dirs=[str(folder)], ensure_native_kernel=False)
    return AsyncKernelManager(kernel_name="named", kernel_spec_manager=specs)


def outputs(notebook: nbformat.NotebookNode) -> list[list[dict[str, Any]]]:
    return [cell.get("outputs", []) for cell in notebook.cells]


def texts(notebook: nbformat.NotebookNode) -> str:
    return "\n".join(one.get("text") or one["data"]["text/plain"] for cell in outputs(notebook) for one in cell)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")))
def test_the_notebook_runs_and_shows_what_is_committed(name: str, tmp_path: Path) -> None:
    """But for digits, which differ between processors and runs."""
    notebook, kernels = NOTEBOOKS / f"{name}.ipynb", tmp_path / "kernels"
    kernels.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    try:
        ran = executed(notebook, tmp_path, {"54320": port}, km=kernel(notebook, kernels))
    finally:  # a cell that failed left its server
        for running in tmp_path.glob("*/postgres-folder.txt"):
            subprocess.run([sys.executable, "start_postgres.py", "--stop"], cwd=running.parent, check=True)
    committed = nbformat.read(notebook, as_version=4)
    assert [[sorted(one.get("data", ())) for one in cell] for cell in outputs(ran)] == [
        [sorted(one.get("data", ())) for one in cell] for cell in outputs(committed)
    ]
    for words in SAID[name]:
        assert words in texts(ran) and words in texts(committed)


def test_a_cell_that_fails_is_an_error(tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell("1 / 0")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "wrong.ipynb")
    with pytest.raises(Exception, match="ZeroDivisionError"):
        executed(tmp_path / "wrong.ipynb", tmp_path)
