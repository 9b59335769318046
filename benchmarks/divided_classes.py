"""Classifiers of a million classes x 128, trained by one process and by two among which the classes are divided.

Every run trains `independent` for some steps by `limpet.training.loop.fit`, with momentum, on the same batches of 128
items in all, and is a process (or two) of its own. Memory is the highest resident size of each process, at the last
step and after the rows of all classes are brought together at the end. The losses of one process with whole classes, by
torch's cross-entropy, and of two are compared step by step, in float64 with fewer classes.

    python benchmarks/divided_classes.py            # writes benchmarks/results/divided_classes.json and .txt
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from evaluation import RESULTS, peak_memory

DIM, BATCH, ITEMS = 128, 128, 6_400
HEADS = ("softmax", "arcface")
LIMIT_GB, LIMIT_SHARE, LIMIT_LOSS = 6.0, 0.6, 1e-9

Run = dict[str, Any]


class Drawn:
    """Batches of drawn vectors, whose classes are drawn as well; each process has its part of a batch."""

    def __init__(self, classes: int, steps: int, rank: int, processes: int) -> None:
        import torch

        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(ITEMS, DIM, generator=generator)
        self.labels = torch.randint(classes, (ITEMS,), generator=generator)
        self.dataset, self.sampler = range(ITEMS), SimpleNamespace(set_position=lambda epoch, step: None)
        self.steps, self.part = steps, slice(BATCH * rank // processes, BATCH * (rank + 1) // processes)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Any:
        import torch

        from limpet.methods.base import Batch

        for step in range(self.steps):
            rows = torch.arange(BATCH * step, BATCH * (step + 1))[self.part] % ITEMS
            yield Batch(self.inputs[rows], self.labels[rows], rows, torch.zeros(len(rows), dtype=torch.bool))


def train(asked: Run, folder: Path) -> None:
    """Train in this process, which Fabric may start others beside, and write what it took."""
    import torch
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    from limpet.geometry import Hypersphere
    from limpet.methods import METHODS
    from limpet.models.heads import build_head
    from limpet.training.loop import fit

    warnings.simplefilter("ignore")
    if asked["precision"] == "64-true":
        torch.set_default_dtype(torch.float64)  # what Fabric returns losses in
    torch.set_num_threads(max(1, 2 // asked["processes"]))
    strategy: Any = DDPStrategy(find_unused_parameters=True, broadcast_buffers=False)
    fabric = Fabric(accelerator="cpu", devices=asked["processes"], precision=asked["precision"],
                    strategy=strategy if asked["processes"] > 1 else "auto")  # fmt: skip
    if asked["processes"] > 1:
        fabric.launch()
    torch.manual_seed(0)
    model = torch.nn.Linear(DIM, DIM)
    head = build_head(asked["head"], asked["classes"], DIM, asked["options"])
    losses: list[float] = []
    memory: list[int] = []

    def note(event: Any) -> None:
        losses.append(float(event["loss"]))
        if event["done"] == event["total"]:
            memory.append(peak_memory())

    loader: Any = Drawn(asked["classes"], asked["steps"], fabric.global_rank, asked["processes"])
    names: Any = range(asked["classes"])
    started = time.perf_counter()
    fit(
        model, head, METHODS["independent"](), loader, [], space=Hypersphere(DIM), class_names=names, old=None,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9), fabric=fabric, epochs=1, seed=0,
        progress=note,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    found = {"losses": losses, "memory": [*memory, peak_memory()], "seconds": round(seconds / asked["steps"], 2)}
    (folder / f"{fabric.global_rank}.json").write_text(json.dumps(found))


def run_apart(processes: int, head: str, classes: int, steps: int, precision: str = "32-true", **options: Any) -> Run:
    asked = {"processes": processes, "head": head, "classes": classes, "steps": steps, "precision": precision}
    asked["options"] = {"divided": processes > 1, **options}
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, __file__, "--train", json.dumps(asked), "--folder", place]
        subprocess.run(command, check=True, capture_output=True)
        parts = [json.loads((Path(place) / f"{rank}.json").read_text()) for rank in range(processes)]
    print(asked, parts[0]["memory"], parts[0]["seconds"], parts[0]["losses"][-1], flush=True)
    return {**asked, "losses": parts[0]["losses"], "seconds_per_step": parts[0]["seconds"],
            "memory_mb": [[round(peak / 1e6) for peak in part["memory"]] for part in parts]}  # fmt: skip


def measured(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    large, steps = options.classes, options.steps
    lines = [
        f"{large:,} classes x {DIM}, batches of {BATCH}, {steps} steps, float32, momentum",
        f"{'head':24}{'processes':>10}{'s a step':>10}{'MB of each, in steps':>22}{'MB of each, at the end':>24}"
        f"{'last loss':>12}",
    ]
    runs, met = [], []
    asked: list[tuple[str, dict[str, Any]]] = [("softmax", {}), ("arcface", {}), ("arcface", {"sampled": 0.1})]
    for head, some in asked[: options.rows]:
        pair = [run_apart(processes, head, large, steps, **some) for processes in (1, 2)]
        runs += pair
        name = head + (", a tenth sampled" if some else "")
        for run in pair:
            in_steps, at_end = (", ".join(f"{of_one[at]:,}" for of_one in run["memory_mb"]) for at in (0, 1))
            lines.append(
                f"{name:24}{run['processes']:10}{run['seconds_per_step']:10.2f}{in_steps:>22}{at_end:>24}"
                f"{run['losses'][-1]:12.6f}"
            )
        one, two = (max(of_one[0] for of_one in run["memory_mb"]) for run in pair)
        met.append(
            f"{name}: in steps, each of two processes has {two / one:.2f} of the memory of one (goal: {LIMIT_SHARE}), "
            f"which has {one / 1e3:.1f} GB (goal: {LIMIT_GB:.0f})"
        )
    small, differences = options.compared_classes, []
    for head in options.compared_heads:
        alone, apart = (run_apart(processes, head, small, options.compared_steps, "64-true") for processes in (1, 2))
        runs += [alone, apart]
        worst = max(abs(one - other) for one, other in zip(alone["losses"], apart["losses"], strict=True))
        differences.append(
            f"{head}, {small:,} classes, {options.compared_steps} steps in float64: losses of two processes differ "
            f"from those of one, with whole classes, by {worst:.1e} at most (goal: {LIMIT_LOSS:.0e})"
        )
    return {"runs": runs}, [*lines, "", *met, *differences]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=1_000_000)
    parser.add_argument("--compared-classes", type=int, default=5_000)
    parser.add_argument("--compared-heads", nargs="+", choices=HEADS, default=HEADS)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--compared-steps", type=int, default=50)
    parser.add_argument("--rows", type=int, help="of the table, where time is short; all when left out")
    parser.add_argument("--name", default="divided_classes", help="of the files of results")
    parser.add_argument("--train", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train, options.folder)
        return
    from machine import describe

    record, lines = measured(options)
    (RESULTS / f"{options.name}.json").write_text(json.dumps({"machine": describe(), **record}, indent=1) + "\n")
    (RESULTS / f"{options.name}.txt").write_text("\n".join([describe(), "", *lines]) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
