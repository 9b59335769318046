"""Time `make demo` and `make test` from nothing: a fresh clone each, an empty pip cache, no environment active.

    python benchmarks/fresh_clone.py
    python benchmarks/fresh_clone.py --python python3 /usr/bin/python3      # with one interpreter after the other

How an interpreter was built counts: pure Python is slower with some. Writes benchmarks/results/fresh_clone.txt; the
closing lines of each command stand in it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import describe

ROOT = Path(__file__).parent.parent


def clean_environment(python: Path, cache: Path) -> dict[str, str]:
    """Return the environment of a new user: one interpreter first, nothing of ours."""
    ours = {"VIRTUAL_ENV", "PYTHONPATH", "LIMPET_DATA", "OMP_NUM_THREADS"}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {**kept, "PIP_CACHE_DIR": str(cache), "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin"}


def run(command: str, python: Path, folder: Path) -> list[str]:
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    start = time.perf_counter()
    result = subprocess.run(
        command.split(), cwd=clone, env=clean_environment(python, folder / "cache"), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if result.returncode:
        sys.exit(f"{result.stdout}\n{command} ended with {result.returncode}.")
    seconds = time.perf_counter() - start
    closing = [line for line in result.stdout.splitlines() if "s in all" in line or " passed" in line]
    return [f"{command}: {seconds:.0f} s", *(f"    {line.strip('= ')}" for line in closing)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", nargs="+", default=["python3"], help="names or paths of interpreters")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [f"Commit {commit.stdout.strip()}, on {describe()}."]
    for name in parser.parse_args().python:
        if (python := shutil.which(name, path=f"{sys.base_prefix}/bin:{os.environ['PATH']}")) is None:
            raise SystemExit(f"There is no interpreter {name}.")
        version = subprocess.run([python, "-c", "import sys; print(sys.version)"], capture_output=True, check=True)
        lines += ["", f"{name}: Python {' '.join(version.stdout.decode().split())}"]
        for command in ("make demo", "make test"):
            with tempfile.TemporaryDirectory() as folder:
                lines += run(command, Path(python), Path(folder))
            print("\n".join(lines), flush=True)
    (ROOT / "benchmarks" / "results" / "fresh_clone.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
