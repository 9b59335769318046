"""Commands that do next to nothing import next to nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from limpet.cli import main
from option_names import commands

HEAVY = {"torch", "scipy", "sklearn", "altair", "vl_convert", "transformers", "pandas", "lightning_fabric", "lancedb",
         "faiss", "lance", "PIL", "pyarrow", "psycopg", "jinja2"}  # fmt: skip
PARSING = {"pydantic", "rich", "cyclopts", "yaml"}
WATCHED = HEAVY | PARSING | {"numpy"}

COMMANDS: dict[str, set[str]] = {
    "--version": set(),
    "--help": set(),
    "gallery --help": {"rich", "cyclopts"},
    "gallery status memory:held": PARSING | {"numpy"},
    "upgrade log memory:held": set(),
    "methods": set(),
    "methods bct": set(),
    "methods --json": set(),
    **{f"{command} --help": set() for command in (*commands(), "data", "embed")},
    "upgrade backfill --help": {"yaml"},
    "data list": {"PIL", "pyarrow", "yaml"},
    "gallery status lance:live": {"lance", "pyarrow", "pandas"},  # which Arrow imports where it is there
}
"""Commands, those that import less first, and which of the watched packages each may be the first to import."""

CALL = """
import contextlib, io, json, sys
from limpet.cli import main

asked, seen = json.load(sys.stdin), set()
for command in asked["commands"]:
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            code = main(command.split())
        except SystemExit as end:
            code = end.code or 0
    new = {name.partition(".")[0] for name in sys.modules} & set(asked["watched"]) - seen
    seen |= new
    print(json.dumps([command, code, sorted(new), told.getvalue()]))
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return what each command is the first to import, of all in one process, one after the other."""
    folder = tmp_path_factory.mktemp("startup")
    np.savez(folder / "old.npz", ids=np.arange(4).astype(str), vectors=np.eye(4, dtype=np.float32))
    for kind, name in (("lance", "live"), ("memory", "held")):
        words = [
            "gallery",
            "create",
            f"{kind}:{folder / name}",
            "--embeddings",
            str(folder / "old.npz"),
            "--name",
            "v1",
        ]
        assert main(words) == 0
    done = subprocess.run(
        [sys.executable, "-c", CALL], cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        input=json.dumps({"commands": list(COMMANDS), "watched": sorted(WATCHED)}),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(command, told) for command, code, _, told in rows if code != 0] == []
    return {command: set(new) for command, _, new, _ in rows}


def test_only_a_process_of_ours_looks_for_garbage_more_rarely() -> None:
    program = (
        "import gc, sys; from limpet.cli import main; usual = gc.get_threshold(); main(['--version']); "
        "kept = gc.get_threshold() == usual; sys.argv = ['limpet', '--version']; main(); "
        "print(kept, gc.get_threshold() > usual)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True True"


def test_only_a_process_of_ours_keeps_pandas_from_arrow(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    np.savez(tmp_path / "old.npz", ids=np.arange(4).astype(str), vectors=np.eye(4, dtype=np.float32))
    told = "import sys; from limpet.cli import main; code = main({}); print(code, 'pandas' in sys.modules)"
    named = "; import pandas; print(pandas.DataFrame().empty)"
    words = ["gallery", "create", "lance:live", "--embeddings", "old.npz", "--name", "v1", "--quiet"]
    for call, seen in ((told.format("") + named, ["0 False", "True"]), (told.format("sys.argv[1:]"), ["2 True"])):
        done = subprocess.run(
            [sys.executable, "-c", call, *words], cwd=tmp_path, capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert done.stdout.splitlines() == seen, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_light_commands_stay_light(command: str, imported: dict[str, set[str]]) -> None:
    assert imported[command] <= COMMANDS[command]
