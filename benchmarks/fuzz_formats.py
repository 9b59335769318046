"""Every format of files that limpet reads, altered many times: each file is read, or refused in words.

Bits are flipped; files cut, spliced and overwritten; shapes, types, places and metadata in headers and values in JSON
and YAML replaced by others, among them numbers outside 64 bits, nesting without end, and texts that steer terminals. In
most trials with digests those are computed anew, as somebody would who altered a file on purpose. A forked process
reads and uses the files; it is counted what was refused (a `LimpetError`), accepted, met with any other exception,
ended the process, did not end within 30 seconds of computing, or took more memory than the bound.

    nice -n 19 python benchmarks/fuzz_formats.py    # an hour alone; adds to benchmarks/results/fuzz_formats.{json,txt}
    python benchmarks/fuzz_formats.py --trials 1000 --formats npz suite --out somewhere
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from fuzz.formats import FORMATS
from fuzz.trials import CPU_SECONDS, MEMORY_BOUND, run
from machine import describe
from task_pool import write_json

RESULTS = Path(__file__).parent / "results"
COLUMNS = ("mutations", "refused", "accepted", "tracebacks", "crashes", "hangs", "over_memory")


def page(document: dict[str, Any]) -> str:
    """Return the counts as text."""
    bounds = f"{document['memory_bound'] // 2**20} MiB beyond the process, {document['cpu_seconds']} s of computing"
    names = "".join(f"{name.replace('_', ' '):>13}" for name in COLUMNS)
    lines = [document["command"], document["machine"], f"Bounds of one file: {bounds}.", ""]
    lines += [f"{'format':24}{names}{'peak MiB':>10}{'seconds':>10}"]
    for row in document["formats"].values():
        counts = "".join(f"{row[name]:13,}" for name in COLUMNS)
        lines.append(f"{row['format']:24}{counts}{row['peak_bytes'] / 2**20:10.1f}{row['seconds']:10,.0f}")
        lines += [f"    {fault}" for fault in row["faults"]]
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=100_000, help="mutations of each format")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    path = arguments.out / "fuzz_formats.json"
    document: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/fuzz_formats.py", *sys.argv[1:]]), "machine": describe("pyarrow"),
        "memory_bound": MEMORY_BOUND, "cpu_seconds": CPU_SECONDS,
        "formats": json.loads(path.read_text(encoding="utf-8"))["formats"] if path.exists() else {},
    }  # fmt: skip
    sound = True
    for name in arguments.formats:
        counts = run(name, arguments.trials, arguments.seed)
        sound &= counts.sound
        document["formats"][name] = counts.to_dict()
        write_json(path, document)
        (arguments.out / "fuzz_formats.txt").write_text(page(document), encoding="utf-8")
        print(f"{name}: {counts}")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
