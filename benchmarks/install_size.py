"""What `pip install .` weighs: megabytes on disk, distributions, and seconds of `import limpet`.

    python benchmarks/install_size.py                       # 15 minutes on two cores, most of them pip's
    python benchmarks/install_size.py --against 9cc99ef     # or any other revision

For every line a fresh virtual environment without pip of its own gets a wheel of this package and what it asks for, in
the versions of constraints.txt (the CPU build of torch, where constraints.txt leads to that). "before" is what the
other revision installed by default. Megabytes (10^6 bytes) are those of site-packages, compiled modules included.
`import limpet` is timed in a new process, less one that imports nothing; so is `import limpet` with
`limpet.evaluate`, which loads what evaluating vectors takes. Writes install_size.json and install_size.txt.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gallery_verification import ROOT, checked_out, spread
from limpet.support.extras import EXTRAS
from machine import describe
from task_pool import write_json

RESULTS = ROOT / "benchmarks" / "results"
AGAINST = "9cc99ef"
CLEAN = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # nothing of this checkout
TIMED = {"import limpet": "import limpet", "limpet.evaluate": "import limpet; limpet.evaluate"}


def wheel(tree: Path, folder: Path) -> Path:
    """Build the wheel of a tree."""
    folder.mkdir()
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(tree)]
    subprocess.run(command, check=True, env=CLEAN)
    (built,) = folder.glob("limpet-*.whl")
    return built


def installed(built: Path, extras: str, folder: Path) -> tuple[Path, Path]:
    """Install a wheel with extras into a new environment, and return its Python and site-packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--constraint",
               str(ROOT / "constraints.txt"), f"{built}{extras}"]  # fmt: skip
    subprocess.run(command, check=True, env=CLEAN)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    return python, packages


def seconds(python: Path, code: str, folder: Path) -> float:
    """Return how long a new process takes for some code."""
    started = time.perf_counter()
    subprocess.run([str(python), "-c", code], check=True, env=CLEAN, cwd=folder)
    return time.perf_counter() - started


def measured(built: Path, extras: str, repetitions: int) -> dict[str, Any]:
    """Install, weigh and time."""
    with tempfile.TemporaryDirectory() as scratch:
        python, packages = installed(built, extras, Path(scratch) / "environment")
        files = [path for path in packages.rglob("*") if path.is_file() and not path.is_symlink()]
        result: dict[str, Any] = {
            "megabytes": round(sum(path.stat().st_size for path in files) / 1e6, 1),
            "distributions": len(list(packages.glob("*.dist-info"))),
            "heaviest": {
                one.name: round(sum(file.stat().st_size for file in one.rglob("*") if file.is_file()) / 1e6, 1)
                for one in packages.iterdir()
                if one.is_dir()
            },
        }
        heaviest = sorted(result["heaviest"].items(), key=lambda one: -one[1])[:5]
        result["heaviest"] = dict(heaviest)
        for name, code in TIMED.items():
            for warm in ("pass", code):
                seconds(python, warm, Path(scratch))
            times = [
                seconds(python, code, Path(scratch)) - seconds(python, "pass", Path(scratch))
                for _ in range(repetitions)
            ]
            result[name] = spread(times)
    return result


def page(document: dict[str, Any]) -> str:
    lines = [
        document["command"], document["machine"], "",
        f"Seconds: median of {document['repetitions']} (smallest to largest).", "",
        f"{'':30}{'MB':>8}{'packages':>10}{'import limpet, s':>26}{'limpet.evaluate, s':>26}  heaviest, MB",
    ]  # fmt: skip
    for name, row in document["installed"].items():
        times = [
            f"{row[one]['median']:.3f} ({row[one]['min']:.3f} to {row[one]['max']:.3f})"
            if one in row
            else "not measured"
            for one in TIMED
        ]
        heaviest = ", ".join(f"{one} {size:.0f}" for one, size in list(row["heaviest"].items())[:3])
        lines.append(
            f"{name:30}{row['megabytes']:>8.0f}{row['distributions']:>10}{times[0]:>26}{times[1]:>26}  {heaviest}"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--against", default=AGAINST, help=f"revision to compare with (default: {AGAINST})")
    parser.add_argument("--extras", nargs="*", default=[*EXTRAS, "train,gallery,report", "all"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows: dict[str, Any] = {}
    with checked_out(arguments.against) as tree, tempfile.TemporaryDirectory() as scratch:
        wheels = {"before": wheel(tree, Path(scratch) / "before"), "now": wheel(ROOT, Path(scratch) / "now")}
        asked = {
            f"before ({arguments.against})": (wheels["before"], ""),
            "limpet": (wheels["now"], ""),
            **{f"limpet[{extra}]": (wheels["now"], f"[{extra}]") for extra in arguments.extras},
        }
        for name, (built, extras) in asked.items():
            rows[name] = measured(built, extras, arguments.repetitions)
            print(name, rows[name], flush=True)
    document = {
        "command": f"python benchmarks/install_size.py --against {arguments.against}",
        "machine": describe(), "repetitions": arguments.repetitions, "installed": rows,
    }  # fmt: skip
    write_json(arguments.out / "install_size.json", document)
    (arguments.out / "install_size.txt").write_text(page(document))
    print(page(document))


if __name__ == "__main__":
    main()
