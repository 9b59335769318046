"""Peak memory of a session, early and late: the gallery is never loaded whole.

    python benchmarks/session_memory.py

CVS takes Tiny-ImageNet at 32 × 32 pixels through ten disjoint sessions of 20 classes (the paper's plan). Every session
runs in a process of its own, which is asked for its peak resident memory at the end. Writes session_memory.txt.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
SESSIONS, LIMIT = 10, 1.2
ONE = "--session"


def run_one(session: int, root: Path | None, folder: Path) -> None:
    """Run one session and print its peak memory in MB and the gallery's rows; earlier ones are in the folder."""
    import torch

    from limpet.data.datasets import data_root, load_dataset
    from limpet.models.specs import EncoderSpec
    from limpet.training.experiment import Experiment, Recipe
    from limpet_bench.sessions.closed_set import closed_set
    from limpet_bench.sessions.plans import Setting, disjoint
    from limpet_bench.sessions.runner import run_session

    torch.set_num_threads(1)
    data = closed_set(load_dataset("tiny-imagenet-32", data_root(root)))
    plan = disjoint(data.train.labels, sessions=SESSIONS, validation=0.05)
    setting = Setting.of(data.name, data.train, data.test, plan, budget=4000)
    experiment = Experiment(
        method="cvs",
        model=EncoderSpec(dim=128, channels=3, image_size=32, backbone_options={"filters": 8}),
        head="normalised",
        recipe=Recipe(epochs=1, batch_size=64, learning_rate=0.03, accelerator="cpu"),
    )
    record = run_session(setting, "cvs", experiment, folder, session)
    print(peak_megabytes(), record.gallery_rows, record.queries)


def peak_megabytes() -> float:
    """Return the largest resident memory of this process so far (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="data root (default: the environment variable LIMPET_DATA)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of results (default: benchmarks/results)")
    parser.add_argument(ONE, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.session is not None:
        run_one(arguments.session, arguments.root, arguments.work)
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        root = [] if arguments.root is None else ["--root", str(arguments.root)]
        for session in range(SESSIONS):
            command = [sys.executable, __file__, ONE, str(session), "--work", folder, *root]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            rows.append((float(said[0]), int(said[1]), int(said[2])))
            print(f"session {session + 1:2}: {rows[-1][0]:6.0f} MB peak, gallery {rows[-1][1]:,} rows", flush=True)
    write(arguments.out, rows)


def write(out: Path, rows: list[tuple[float, int, int]]) -> None:
    from machine import describe

    ratio = rows[-1][0] / rows[1][0]
    lines = [
        "python benchmarks/session_memory.py",
        f"CVS, ten disjoint sessions of Tiny-ImageNet at 32 x 32 pixels, D = 128, memory of 4,000 images; {describe()}",
        "",
        *(f"session {place:2}: {peak:6.0f} MB peak, gallery {gallery:7,} rows, {queries:6,} test queries"
          for place, (peak, gallery, queries) in enumerate(rows, start=1)),
        "",
        f"session {SESSIONS} over session 2: {ratio:.3f} (limit {LIMIT})",
    ]  # fmt: skip
    (out / "session_memory.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    if ratio > LIMIT:
        sys.exit("The limit is not kept.")


if __name__ == "__main__":
    main()
