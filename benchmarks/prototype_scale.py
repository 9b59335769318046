"""Prototype perturbation at the size of GLDv2-clean: 81,313 classes, 1,580,470 images, 256 dimensions.

Old prototypes lie in about 2,000 clusters, so that a realistic share of their pairs is too similar for ODPP. Measured,
each with the time and the highest memory of the process so far: class means of all old embeddings (read from their
file), NDPP's neighbours before training and at the start of an epoch, ODPP's optimisation with all active pairs before
training and at the start of an epoch, and some of its inner epochs with sampled pairs.

    python benchmarks/prototype_scale.py            # writes benchmarks/results/prototype_scale.json and .txt
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from limpet.embeddings import EmbeddingSet, storage
from limpet.geometry import Hypersphere
from limpet.geometry.hypersphere import normalise
from limpet.losses.perturbation import mean_angle
from limpet.methods import METHODS
from limpet.methods.base import Epoch, OldModel, View
from limpet.methods.odpp import ActivePairs
from machine import describe

CLUSTERS, SPREAD, ITEM_NOISE, CHANGE = 2_000, 0.75, 0.8, 0.25
LIMIT_GB = 6.0
RESULTS = Path(__file__).parent / "results"


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class Clock:
    """Times one stage after another, and notes the peak memory after each."""

    def __init__(self) -> None:
        self.stages: list[dict[str, Any]] = []

    def measure(self, name: str, work: Callable[[], dict[str, Any] | None]) -> None:
        start = time.perf_counter()
        found = work() or {}
        stage = {"stage": name, "seconds": round(time.perf_counter() - start, 1), "peak_gb": round(peak_gb(), 2)}
        self.stages.append({**stage, **found})
        print(self.stages[-1], flush=True)


def draw_centres(classes: int, dim: int, generator: torch.Generator) -> torch.Tensor:
    """Class directions in clusters of unequal size; two classes of a cluster have a cosine of about 0.64."""
    clusters = normalise(torch.randn(CLUSTERS, dim, generator=generator))
    sizes = torch.empty(CLUSTERS).exponential_(generator=generator)
    owners = torch.multinomial(sizes, classes, replacement=True, generator=generator)
    return around(clusters[owners], SPREAD, generator)


def around(points: torch.Tensor, noise: float, generator: torch.Generator) -> torch.Tensor:
    return normalise(points + noise * torch.randn(points.shape, generator=generator) / points.shape[1] ** 0.5)


def write_old_embeddings(path: Path, classes: int, items: int, dim: int) -> None:
    generator = torch.Generator().manual_seed(0)
    centres, labels = draw_centres(classes, dim, generator), torch.arange(items) % classes
    vectors = np.empty((items, dim), np.float32)
    for rows in torch.split(torch.arange(items), 65_536):
        vectors[rows.numpy()] = around(centres[labels[rows]], ITEM_NOISE, generator).numpy()
    names = [f"class {c}" for c in range(len(centres))]
    embeddings = EmbeddingSet(vectors, [str(row) for row in range(items)], "declared:old", Hypersphere(dim),
                              form="features", labels=labels.numpy(), class_names=names)  # fmt: skip
    storage.save(embeddings, path)


def prepare(name: str, old: OldModel, dim: int, **options: Any) -> Any:
    method = METHODS[name](**options)
    torch.manual_seed(0)
    method.prepare(old, torch.nn.Identity(), None, Hypersphere(dim))  # type: ignore[arg-type]
    return method


def measure(classes: int, items: int, dim: int, folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    from multiprocessing import get_context

    path, generator = folder / "old.safetensors", torch.Generator().manual_seed(1)
    writer = get_context("spawn").Process(target=write_old_embeddings, args=(path, classes, items, dim))
    writer.start()  # in a process of its own: making the data is not what is measured
    writer.join()
    old, clock = OldModel(storage.load(path), classes=()), Clock()
    held: dict[str, Any] = {}

    def means() -> None:
        held["p2s"] = prepare("p2s", old, dim)

    clock.measure("class means of all old embeddings (p2s)", means)
    prototypes = held["p2s"].prototypes
    new = around(prototypes, CHANGE, generator)
    epoch = Epoch(0, 1, items, torch.Generator().manual_seed(0), lambda: View(new, new), lambda: new)

    def ndpp_old() -> None:
        held["ndpp"] = prepare("ndpp", old, dim)

    clock.measure("ndpp before training: class means, 100 old neighbours each", ndpp_old)
    clock.measure("ndpp at an epoch's start: 100 new neighbours each", lambda: dict(held["ndpp"].on_epoch_start(epoch)))

    def odpp_old() -> dict[str, float]:
        held["odpp"] = prepare("odpp", old, dim, pairs="active")
        return {"degrees moved": mean_angle(prototypes, held["odpp"].targets)}

    clock.measure("odpp before training: class means, 50 inner epochs over all active pairs", odpp_old)
    clock.measure("odpp at an epoch's start: 50 inner epochs, both objectives",
                  lambda: dict(held["odpp"].on_epoch_start(epoch)))  # fmt: skip
    threshold = held["odpp"].threshold_old
    counts = {
        "old pairs": ActivePairs(threshold).look(prototypes, prototypes).pairs,
        "old-to-new pairs": ActivePairs(threshold).look(prototypes, new).pairs,
        "all pairs": classes * (classes - 1),
    }

    def sampled() -> dict[str, float]:
        method = held["odpp"]
        method.pairs, method.inner_epochs, method.targets = "sampled", 5, prototypes.clone()
        return dict(method.on_epoch_start(epoch))

    clock.measure("odpp at an epoch's start: 5 inner epochs of sampled pairs, both objectives", sampled)
    return clock.stages, counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=81_313)
    parser.add_argument("--items", type=int, default=1_580_470)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the two files")
    arguments = parser.parse_args()
    out = vars(arguments).pop("out")
    with tempfile.TemporaryDirectory() as folder:
        stages, counts = measure(arguments.classes, arguments.items, arguments.dim, Path(folder))
    record = {"machine": describe(), **vars(arguments), "threads": torch.get_num_threads(), "clusters": CLUSTERS,
              "pairs": counts, "stages": stages}  # fmt: skip
    lines = [record["machine"], "",
             f"{arguments.classes:,} classes in {CLUSTERS:,} clusters, {arguments.items:,} old embeddings of "
             f"{arguments.dim} dimensions, {record['threads']} threads.", ""]  # fmt: skip
    lines += [f"Ordered {name} above 0.6: {counts[name]:,} of {counts['all pairs']:,} "
              f"({counts[name] / counts['all pairs']:.3%})" for name in ("old pairs", "old-to-new pairs")]  # fmt: skip
    lines += ["", f"{'stage':<77} {'seconds':>8} {'peak GB':>8} {'degrees moved':>14}"]
    for stage in stages:
        moved = f"{stage['degrees moved']:.4f}" if "degrees moved" in stage else ""
        lines.append(f"{stage['stage']:<77} {stage['seconds']:>8.1f} {stage['peak_gb']:>8.2f} {moved:>14}")
    peak, mapped = stages[-1]["peak_gb"], 4e-9 * arguments.items * arguments.dim
    verdict = "kept" if peak <= LIMIT_GB else "EXCEEDED"
    lines += ["", f"Highest memory of the process, with {mapped:.1f} GB of mapped file: {peak:.2f} GB "
              f"(limit {LIMIT_GB:g} GB: {verdict})."]  # fmt: skip
    out.mkdir(exist_ok=True)
    (out / "prototype_scale.json").write_text(json.dumps(record, indent=1) + "\n")
    (out / "prototype_scale.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
