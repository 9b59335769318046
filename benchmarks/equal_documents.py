"""Whether two checkouts write the same documents: `evaluate`, `adapt` and the demo, value by value.

    python benchmarks/equal_documents.py --before ../before     # writes equal_documents.txt

Both run with this checkout's environment, on one thread. Times, versions and paths are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from machine import describe

HERE, RESULTS = Path(__file__).parents[1], Path(__file__).parent / "results"
FILES = ["--old", "old.npz", "--new", "new.npz"]
COMMANDS = {
    "evaluate": ["evaluate", *FILES],
    "evaluate with curve": ["evaluate", *FILES, "--curve", "yes"],
    "adapt": ["adapt", *FILES],
    "demo": ["demo"],
}
PASSED_OVER = ("seconds", "per_second", "waiting", "version", "created", "started", "machine", "commit", "path",
               "folder", "memory", "digest", "fingerprint", "code", "command")  # fmt: skip


def draw(folder: Path) -> None:
    """Write vectors of two models, with labels."""
    rng, labels = np.random.default_rng(0), np.arange(3000) % 60
    old = rng.normal(size=(60, 32))[labels] + 1.2 * rng.normal(size=(3000, 32))
    new = old @ np.linalg.qr(rng.normal(size=(32, 32)))[0] + 0.2 * rng.normal(size=(3000, 32))
    for name, vectors in (("old", old), ("new", new)):
        np.savez(folder / f"{name}.npz", vectors=vectors.astype(np.float32), labels=labels)


def documents(checkout: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """Run the commands with a checkout, and return every value of every JSON file by where it stands."""
    environment = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}:{checkout / 'bench/src'}", "OMP_NUM_THREADS": "1"}
    found = {}
    folder.mkdir()
    draw(folder)
    for name, words in COMMANDS.items():
        out = folder / name.replace(" ", "-")
        done = subprocess.run([sys.executable, "-m", "limpet", *words, "--out", str(out)], cwd=folder, env=environment)
        assert done.returncode in (0, 1, 3), f"{name} of {checkout}: {done.returncode}"
        found[name] = {
            f"{file.relative_to(out)}{place}": value
            for file in sorted(out.rglob("*.json"))
            for place, value in values(json.loads(file.read_text()))
        }
    return found


def values(document: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what stands where, without times and places."""
    pairs = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in pairs:
        if any(word in str(key).lower() for word in PASSED_OVER):
            continue
        if isinstance(value, dict | list):
            yield from values(value, f"{place}/{key}")
        else:
            yield f"{place}/{key}", value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    before = parser.parse_args().before.resolve()
    with tempfile.TemporaryDirectory(prefix="limpet-documents-") as folder:
        whole = [documents(checkout, Path(folder) / name) for name, checkout in (("a", before), ("b", HERE))]
    lines, alike = [f"Before: {_revision(before)}. After: {_revision(HERE)}.", ""], True
    for name in COMMANDS:
        one, other = (documents[name] for documents in whole)
        shared = one.keys() & other.keys()
        different = sorted(key for key in shared if one[key] != other[key])
        alike &= not different
        lines.append(
            f"{name}: {len(shared)} values in both, {len(one) - len(shared)} only before, {len(other) - len(shared)} "
            f"only after; {len(different)} differ"
        )
        lines += [f"  {key}: {one[key]} {other[key]}" for key in different[:8]]
    text = "\n".join([*lines, "", describe(), ""])
    print(text)
    (RESULTS / "equal_documents.txt").write_text(text)
    return int(not alike)


def _revision(checkout: Path) -> str:
    words = ["git", "log", "-1", "--format=%h %s"]
    return subprocess.run(words, cwd=checkout, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
