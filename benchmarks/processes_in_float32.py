"""How far two processes are from one in single precision, by method and space.

Every method trains eight steps as in `tests/training/test_two_processes.py`, where both agree within 1e-6 in double
precision; here in single precision. The difference is the largest of all weights and buffers in the end, beside how
much one process changes where every weight begins one part in 10^7 higher: whatever magnifies rounding magnifies that.
hot_refresh is trained at two temperatures.

    python benchmarks/processes_in_float32.py            # writes benchmarks/results/processes_in_float32.txt
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.training.test_two_processes import RUNS as OF_TESTS
from tests.training.test_two_processes import SCRIPT, Run

from limpet.geometry import SPACES
from machine import describe

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1e-5
RUNS = {name: run for name, run in OF_TESTS.items() if not run.options and not run.head} | {
    f"hot_refresh-{key}, temperature 0.1": Run("hot_refresh", {"temperature": 0.1}, space)
    for key, space in SPACES.items()
}
SINGLE = {
    "from tests.training.test_two_processes import RUNS": "from processes_in_float32 import RUNS",
    "inputs.double()": "inputs.float()",
    '"64-true"': '"32-true"',
}
BEFORE = "    method = METHODS"
MOVED = {BEFORE: f"    with torch.no_grad():\n        [one.mul_(1 + 1e-7) for one in model.parameters()]\n{BEFORE}"}


def trained(processes: int, folder: Path, *, moved: bool = False) -> Path:
    """Train everything, and return the folder with what came of it."""
    script = SCRIPT
    for before, after in {**SINGLE, **(MOVED if moved else {})}.items():
        assert before in script
        script = script.replace(before, after)
    folder.mkdir()
    (folder / "train.py").write_text(script)
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "benchmarks"), *sys.path])}
    subprocess.run([sys.executable, folder / "train.py", folder, str(processes)], check=True, env=paths)
    return folder


def apart(one: Path, other: Path, number: int) -> float:
    """Return the largest difference of a run in two folders."""
    left, right = (load_file(folder / f"{number}.0") for folder in (one, other))
    return max(float((left[name].double() - right[name].double()).abs().max()) for name in left if left[name].numel())


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        alone, two = (trained(processes, Path(place) / str(processes)) for processes in (1, 2))
        moved = trained(1, Path(place) / "moved", moved=True)
        found = [(apart(alone, two, number), apart(alone, moved, number), name) for number, name in enumerate(RUNS)]
    found.sort(reverse=True)
    beyond = [row for row in found if row[0] > LIMIT]
    text = "\n".join([
        "python benchmarks/processes_in_float32.py", "",
        f"Two processes against one in float32, {len(found)} runs: {len(found) - len(beyond)} within {LIMIT:.0e}.", "",
        f"{'run':40}{'two processes':>16}{'weights moved by 1e-7':>24}",
        *(f"{name:40}{difference:16.1e}{by:24.1e}" for difference, by, name in found), "", describe(), "",
    ])  # fmt: skip
    print(text)
    (ROOT / "benchmarks" / "results" / "processes_in_float32.txt").write_text(text)


if __name__ == "__main__":
    main()
