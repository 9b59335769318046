"""Try the wheels and the source distributions of both packages in clean environments.

    make dist && python benchmarks/wheels.py                  # needs uv, of the dev extra
    python benchmarks/wheels.py --python 3.11 /opt/python3.13/bin/python3 --only core train

For every Python, a fresh environment gets the wheel of limpet: without an extra, with each extra alone, with `all`, and
with the wheel of limpet-bench; and the source distributions, which are built again. Versions are those of
constraints.txt, but for `mlflow` and `wandb`, which need older packages. In every environment `limpet --version` and
`limpet --help` run, everything that the extra promises is imported, torchvision and timm are absent, torch too where no
extra asks for it, and two sets of vectors are compared, which writes results; some extras do a job of their own besides
(`JOBS`). Writes wheels.txt. It fails where anything does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from limpet.support.extras import EXTRAS
from machine import describe

ROOT = Path(__file__).parent.parent
CLEAN = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
UNPINNED = ("mlflow", "wandb")
UNWANTED = ("torchvision", "timm")

FILES = ["--old", "old.npz", "--new", "new.npz"]
COMPARE = ["evaluate", *FILES, "--out", "evidence"]
CREATE = ["--embeddings", "old.npz", "--name", "a"]
JOBS: dict[str, list[list[str]]] = {
    "core": [["export", "adapter:link", "--to", "npz", "--out", "exported"],
             ["gallery", "create", "memory:held", *CREATE]],
    "train": [["adapt", *FILES, "--out", "head", "--method", "p2s"]],
    "gallery": [["gallery", "create", "live", *CREATE], ["doctor", "live"]],
    "onnx": [["export", "adapter:link", "--to", "onnx", "--out", "exported"]],
}  # fmt: skip
"""Commands of limpet that environments run besides the comparison."""

TRIED = """
import importlib, importlib.util, json, sys
import numpy as np

packages, absent, commands = json.loads(sys.argv[1])
for package in packages:
    importlib.import_module(package)
found = [package for package in absent if importlib.util.find_spec(package)]
assert not found, found
rng, labels = np.random.default_rng(0), np.arange(200) % 20
old = rng.normal(size=(20, 8))[labels] + rng.normal(size=(200, 8))
for name, vectors in (("old", old), ("new", old @ np.linalg.qr(rng.normal(size=(8, 8)))[0])):
    np.savez(f"{name}.npz", vectors=vectors.astype("float32"), labels=labels)
import limpet
from limpet.adapters.storage import save_adapter
sets = [limpet.EmbeddingSet(np.load(f"{name}.npz")["vectors"], model=name) for name in ("old", "new")]
save_adapter(limpet.ADAPTERS["ridge"]().fit(*sets), "link")
from limpet.cli import main
for words in commands:
    code = main(words)
    assert code in (0, 1), (words, code)  # 1 is a verdict that did not pass
"""


class Environment(NamedTuple):
    """What is installed, and what is tried in it."""

    name: str
    installs: list[str]
    pinned: bool
    imports: tuple[str, ...]
    absent: tuple[str, ...]
    commands: list[list[str]]
    programs: tuple[str, ...] = ("limpet",)


def environments(dist: Path) -> Iterator[Environment]:
    """Yield every environment for the files of a folder."""
    (limpet,), (bench,) = (list(dist.glob(f"{name}-*.whl")) for name in ("limpet", "limpet_bench"))
    sources = [str(path) for path in sorted(dist.glob("*.tar.gz"))]
    yield Environment("core", [str(limpet)], True, ("limpet",), (*UNWANTED, "torch"), [COMPARE, *JOBS["core"]])
    for extra, packages in {**EXTRAS, "all": tuple(all_packages())}.items():
        pinned = extra not in UNPINNED
        yield Environment(
            extra, [f"limpet[{extra}] @ {limpet.as_uri()}"], pinned, ("limpet", *packages), UNWANTED,
            [COMPARE, *JOBS.get(extra, [])],
        )  # fmt: skip
    bench_imports = ("limpet", "limpet_bench", "torch", "optuna")
    for name, installs, imports in (
        ("bench", [str(limpet), str(bench)], ()),
        ("bench-extras", [str(limpet), f"limpet-bench[tsne,umap] @ {bench.as_uri()}"], ("sklearn", "umap")),
        ("sources", sources, ()),
    ):
        yield Environment(name, installs, True, (*bench_imports, *imports), UNWANTED, [COMPARE],
                          ("limpet", "limpet-bench"))  # fmt: skip


def all_packages() -> set[str]:
    """Return what `all` promises: every package of an extra, but of those that it leaves out."""
    return {package for extra, packages in EXTRAS.items() if extra not in UNPINNED for package in packages}


def run(words: Sequence[str], folder: Path) -> str:
    """Run a command; returns what it printed, and raises with that where it fails.

    Compiled modules are kept beside the folder: environments of one path share them, as uv's cache shares the sources.
    """
    compiled = {**CLEAN, "PYTHONPYCACHEPREFIX": str(folder.parent / "compiled")}
    done = subprocess.run(words, cwd=folder, env=compiled, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[:4])} … ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


def tried(environment: Environment, python: str, scratch: Path) -> str:
    """Install and try; returns a line for the table."""
    home, folder = scratch / "environment", scratch / environment.name
    folder.mkdir()
    run(["uv", "venv", "--quiet", "--clear", "--python", python, str(home)], folder)
    versions = ["--constraint", str(ROOT / "constraints.txt")] if environment.pinned else []
    torch = [] if environment.pinned else ["torch==2.13.0"]
    run(["uv", "pip", "install", "--quiet", "--python", str(home / "bin/python"), *versions,
         *environment.installs, *torch], folder)  # fmt: skip
    said = [run([str(home / "bin" / name), "--version"], folder).strip() for name in environment.programs]
    for name in environment.programs:
        run([str(home / "bin" / name), "--help"], folder)
    asked = [environment.imports, environment.absent, environment.commands]
    run([str(home / "bin/python"), "-P", "-c", TRIED, json.dumps(asked)], folder)
    count = len(list(home.glob("lib/python*/site-packages/*.dist-info")))
    jobs = ", ".join(" ".join(words[:2] if words[0] == "gallery" else words[:1]) for words in environment.commands)
    return f"{environment.name:15}{count:>5}  {', '.join(said)}; {len(environment.imports)} imports; {jobs}"


class Table:
    """What was found so far, in a file that is written after every environment."""

    def __init__(self, file: Path, pythons: Sequence[str]) -> None:
        self.file, self.lines = file, {python: list[str]() for python in pythons}
        self.head = ["python benchmarks/wheels.py", describe(), "", "environment, packages in it, what ran", ""]
        self.lock = Lock()

    def add(self, python: str, line: str) -> None:
        """Add a line below those of its Python."""
        with self.lock:
            self.lines[python].append(line)
            parts = ["\n".join(lines) + "\n" for lines in self.lines.values() if lines]
            self.file.write_text("\n".join([*self.head, *parts]), encoding="utf-8")
        print(f"{self.lines[python][0]}: {line}", flush=True)


def on(python: str, dist: Path, only: Sequence[str], table: Table) -> bool:
    """Try every environment with one Python; returns whether all of them did."""
    found = subprocess.run(["uv", "python", "find", python], env=CLEAN, text=True, capture_output=True)
    if found.returncode:
        table.add(python, f"Python {python}: not on this machine, not tried")
        return True
    passed, path = True, found.stdout.strip()
    table.add(python, run([path, "--version"], ROOT).strip())
    with tempfile.TemporaryDirectory() as scratch:
        for environment in environments(dist):
            if only and environment.name not in only:
                continue
            try:
                table.add(python, tried(environment, path, Path(scratch)))
            except RuntimeError as error:
                passed = False
                table.add(python, f"{environment.name:15}FAILED: {error}")
    return passed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=["3.11", "3.12", "3.13"], help="versions or paths")
    parser.add_argument("--only", nargs="+", default=[], help="environments; all when left out")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "wheels.txt")
    arguments = parser.parse_args()
    table = Table(arguments.out, arguments.python)
    with ThreadPoolExecutor(len(arguments.python)) as pool:
        passed = list(pool.map(lambda one: on(one, arguments.dist.resolve(), arguments.only, table), arguments.python))
    sys.exit(not all(passed))


if __name__ == "__main__":
    main()
