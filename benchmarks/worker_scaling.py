"""What 1, 2 and 4 workers embed a second, by processes and by Ray, on this machine, and what they cost to start.

Texts are embedded by `limpet.upgrade.vector_sources.Parallel`, as in a backfill, by a sentence-transformers model with
random weights (a BERT of six layers, 384 numbers wide); every worker has one thread. Start is the time until workers
have opened their model; memory is the highest of one of them. A machine with other work gives noisy numbers: the share
of processor time that the measuring process and its workers got is told.

    python benchmarks/worker_scaling.py            # writes benchmarks/results/worker_scaling.txt
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation import RESULTS, peak_memory
from limpet.geometry import Hypersphere
from limpet.support.workers import Opened, Processes, Workers
from limpet.upgrade.vector_sources import CallableVectors, Parallel
from machine import describe

WIDE, LONG, LAYERS = 384, 32, 6
ENGINES = ("processes", "ray")


def opened() -> CallableVectors:
    """Return a model of texts of 32 tokens."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(WIDE, 12, 4 * WIDE, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).eval()
    words = torch.randn(1000, WIDE)

    def embed(ids: Sequence[str]) -> NDArray[np.float32]:
        rows = torch.tensor([[(int(one) + place) % 1000 for place in range(LONG)] for one in ids])
        with torch.no_grad():
            made = torch.cat([model(words[some]).mean(1) for some in rows.split(32)])
        return torch.nn.functional.normalize(made).numpy()

    return CallableVectors(embed, "declared:six layers", Hypersphere(WIDE))


def used(source: object) -> tuple[float, int, int]:
    """Return processor time, memory and number of a worker."""
    return time.process_time(), peak_memory(), os.getpid()


@contextmanager
def started(engine: str, count: int) -> Iterator[Workers]:
    if engine == "processes":
        with Processes(count) as workers:
            yield workers
        return
    from limpet.integrations.ray_actors import RayActors

    actors = RayActors(count)
    yield actors
    actors.close()
    import ray

    ray.shutdown()


def measured(engine: str, count: int, items: int) -> str:
    ids, began = [str(row) for row in range(items)], time.monotonic()
    with started(engine, count) as workers:
        source, asked = Parallel(opened, workers), Opened(time.time, workers)
        source.embed(ids[:count])
        start = time.monotonic() - began
        before = {pid: busy for busy, _, pid in asked.each(used, [()] * count)}
        began = time.monotonic()
        assert len(source.embed(ids)) == items
        seconds = time.monotonic() - began
        after = list(asked.each(used, [()] * count))
    busy = sum(one - before[pid] for one, _, pid in after)
    memory = max(peak for _, peak, _ in after)
    return (
        f"{engine:12}{count:8}{start:10.1f}{items / seconds:12.1f}{items / busy:18.1f}{busy / seconds:16.2f}"
        f"{memory / 1e6:12.0f}"
    )


def installed(package: str, command: str) -> str:
    """Say how much room a package takes, and how it is installed."""
    try:
        found = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return f"{package:12}not installed here: {command}"
    files = [Path(str(found.locate_file(one))) for one in found.files or [] if one.suffix != ".pyc"]
    size = sum(file.stat().st_size for file in files if file.exists())  # commands may be elsewhere
    return f"{package:12}{size / 1e6:8.0f} MB, version {found.version}: {command}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1200)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--out", type=Path, default=RESULTS / "worker_scaling.txt")
    options = parser.parse_args()
    lines = [
        f"python benchmarks/worker_scaling.py {' '.join(sys.argv[1:])}".strip(), "",
        f"{options.items:,} texts of {LONG} tokens, {LAYERS} layers of {WIDE} numbers; a thread for every worker", "",
        f"{'engine':12}{'workers':>8}{'start, s':>10}{'texts/s':>12}{'texts/CPU s':>18}{'cores at work':>16}"
        f"{'MB of one':>12}",
    ]  # fmt: skip
    for engine in ENGINES:
        for count in options.workers:
            lines.append(measured(engine, count, options.items))
            print(lines[-1], flush=True)
    lines += ["", "processes: nothing to install",
              installed("ray", "pip install '.[ray]'; RAY_ADDRESS names a cluster, `ray start --head` starts one"),
              installed("pyspark", "apt-get install -y default-jre-headless; pip install pyspark")]  # fmt: skip
    text = "\n".join([*lines, "", describe("ray"), ""])
    print(text)
    options.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
