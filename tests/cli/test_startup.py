"""Commands that do next to nothing import next to nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from holdfast.cli import main

HEAVY = {"torch", "scipy", "sklearn", "matplotlib", "transformers", "pandas", "lightning_fabric", "lancedb", "faiss"}
CALL = (
    "import json, sys; from holdfast.cli import main\n"
    "try: main(sys.argv[1:])\n"
    "except SystemExit: pass\n"
    "print(json.dumps(sorted(name for name in sys.modules if '.' not in name)), file=sys.stderr)"
)


def imported(*words: object, folder: Path) -> set[str]:
    """Return what a command imports."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", CALL, *map(str, words)], cwd=folder, env=environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("--help", {"numpy", "pyarrow", "pydantic", "rich", "jsonargparse", "lance"}),
        ("--version", {"numpy", "pyarrow", "pydantic", "rich", "jsonargparse", "lance"}),
        ("gallery --help", {"numpy", "pyarrow", "lance"}),
        ("methods", {"pyarrow", "lance", "PIL"}),
        ("methods bct", {"pyarrow", "lance", "PIL"}),
        ("methods --json", {"pyarrow", "lance", "PIL"}),
        ("data list", {"lance"}),
        ("evaluate --help", {"lance", "PIL"}),
        ("gallery backfill --help", {"lance", "PIL"}),
        ("gallery search --help", {"lance", "PIL"}),
        ("gallery rehearse --help", {"lance", "PIL"}),
        ("gallery doctor --help", {"lance", "PIL"}),
        ("embed --help", {"lance", "PIL"}),
        ("embed images --help", {"lance", "PIL"}),
        ("embed texts --help", {"lance", "PIL"}),
        ("embed stored --help", {"lance", "PIL"}),
        ("recommend --help", {"lance", "PIL"}),
        ("bench --help", {"lance", "PIL"}),
        ("demo --help", {"lance", "PIL"}),
        ("data check --help", {"lance", "PIL"}),
        ("evaluate chain --help", {"lance", "PIL"}),
        ("gallery status --gallery lance:live", {"PIL"}),
        ("gallery status --gallery memory:held", {"lance", "PIL", "pyarrow"}),
        ("gallery journal --gallery memory:held", {"lance", "PIL", "pyarrow"}),
    ],
)
def test_light_commands_stay_light(command: str, more: set[str], tmp_path: Path) -> None:
    if "--gallery" in command:
        np.savez(tmp_path / "old.npz", ids=np.arange(4).astype(str), vectors=np.eye(4, dtype=np.float32))
        kind, _, name = command.split()[-1].partition(":")
        words = ["gallery", "create", f"{kind}:{tmp_path / name}", "--from", str(tmp_path / "old.npz"), "--model", "v1"]
        assert main(words) == 0
    found = imported(*command.split(), folder=tmp_path)
    assert "holdfast" in found and not found & (HEAVY | more)
