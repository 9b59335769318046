"""Time `make demo` and `make test` from nothing: a fresh clone each, an empty pip cache, no environment active.

    python benchmarks/fresh_clone.py

Writes benchmarks/results/fresh_clone.txt; the closing lines of each command stand in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import describe

ROOT = Path(__file__).parent.parent


def clean_environment(cache: Path) -> dict[str, str]:
    """Return the environment of a new user: the system's Python first, nothing of ours."""
    ours = {"VIRTUAL_ENV", "PYTHONPATH", "HOLDFAST_DATA", "OMP_NUM_THREADS"}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    base = str(Path(sys.base_prefix) / "bin")
    return {**kept, "PIP_CACHE_DIR": str(cache), "PATH": f"{base}:/usr/local/bin:/usr/bin:/bin"}


def run(command: str, folder: Path) -> list[str]:
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    start = time.perf_counter()
    result = subprocess.run(
        command.split(), cwd=clone, env=clean_environment(folder / "cache"), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if result.returncode:
        sys.exit(f"{result.stdout}\n{command} ended with {result.returncode}.")
    seconds = time.perf_counter() - start
    closing = [line for line in result.stdout.splitlines() if "s in all" in line or " passed" in line]
    return [f"{command}: {seconds:.0f} s", *(f"    {line.strip('= ')}" for line in closing)]


def main() -> None:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [f"Commit {commit.stdout.strip()}, on {describe()}.", ""]
    for command in ("make demo", "make test"):
        with tempfile.TemporaryDirectory() as folder:
            lines += run(command, Path(folder))
        print("\n".join(lines), flush=True)
    (ROOT / "benchmarks" / "results" / "fresh_clone.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
