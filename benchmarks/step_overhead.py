"""What compatibility costs a training step, against the plain head with cross-entropy on the same machine and run.

Two measurements, both interleaved so that a busy machine slows all sides alike:

- the whole step of `fit`: ResNet-18 with the 32-pixel stem, batch 128, D = 128, C = 1,000, cached old embeddings;
- the loss alone: embeddings given, forward and backward, on the same tensors.

Run `python benchmarks/step_overhead.py`; it writes benchmarks/results/step_overhead.json and .txt.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.data.image_set import ImageSet
from holdfast.data.images import ArrayImages
from holdfast.data.loading import encoding_loader, training_loader
from holdfast.embeddings import EmbeddingSet
from holdfast.geometry import Hypersphere
from holdfast.methods import METHODS
from holdfast.methods.base import OldModel, Step, View
from holdfast.models.encoder import Encoder, EncoderSpec
from holdfast.models.heads import build_head
from holdfast.models.seeding import seeded
from holdfast.training.loop import fit
from machine import describe

BATCH, DIM, CLASSES, ITEMS = 128, 128, 1000, 4000
NAMES = tuple(f"class {c}" for c in range(CLASSES))
SPACE = Hypersphere(DIM)
RESULTS = Path(__file__).parent / "results"


class Enough(Exception):  # noqa: N818 - no error, but the end of a turn
    """Raised after the last timed step of a turn."""


def predecessor() -> tuple[OldModel, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.arange(ITEMS) % CLASSES
    vectors = rng.normal(size=(CLASSES, DIM))[labels] + rng.normal(size=(ITEMS, DIM))
    embeddings = EmbeddingSet([str(row) for row in range(ITEMS)], vectors.astype(np.float32), "declared:old", SPACE,
                              form="features", labels=labels, class_names=NAMES)  # fmt: skip
    with seeded(0):
        head = build_head("softmax", CLASSES, DIM, {})
    return OldModel(embeddings, NAMES, head, own_training=embeddings), labels


def prepared(name: str, old: OldModel, head: Any) -> Any:
    method = METHODS[name]()
    with seeded(0):
        method.prepare(old, torch.nn.Identity(), head, SPACE)
    return method.train()


def loss_alone(methods: list[str], old: OldModel, runs: int) -> dict[str, list[float]]:
    """Seconds of forward and backward of every method's loss on given embeddings, in turn."""
    with seeded(1):
        head = build_head("softmax", CLASSES, DIM, {})
    built = {name: prepared(name, old, head) for name in methods}
    rows = np.random.default_rng(1).choice(ITEMS, BATCH, replace=False)
    old_features = torch.from_numpy(np.array(old.embeddings.vectors[rows]))
    labels = torch.from_numpy(old.embeddings.labels[rows])
    features = (old_features + torch.randn(BATCH, DIM, generator=torch.Generator().manual_seed(0))).requires_grad_()
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    generator = torch.Generator().manual_seed(0)
    for run in range(runs + 10):
        for name in methods:
            start = time.perf_counter()
            step = Step(
                new=View.of(features, SPACE), old=View.of(old_features, SPACE), labels=labels, old_labels=labels,
                index=torch.from_numpy(rows), replayed=torch.zeros(BATCH, dtype=torch.bool), head=head, progress=0.5,
                epoch=1, epochs=2, generator=generator,
            )  # fmt: skip
            torch.stack(list(built[name](step).values())).sum().backward()
            if run >= 10:
                seconds[name].append(time.perf_counter() - start)
            features.grad = None
            for parameter in [*head.parameters(), *built[name].parameters()]:
                parameter.grad = None
    return seconds


def whole_step(
    methods: list[str], old: OldModel, labels: np.ndarray, rounds: int, steps: int
) -> dict[str, list[float]]:
    """Seconds of a step of `fit`, for every method in turn; the first step of each turn is left out."""
    from lightning_fabric import Fabric

    pixels = np.random.default_rng(2).integers(0, 256, (ITEMS, 3, 32, 32), dtype=np.uint8)
    images = ImageSet(ArrayImages(pixels), labels, NAMES, old.embeddings.ids)
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    fabric = Fabric(accelerator="cpu", devices=1)
    for turn in range(rounds):
        for name in methods[turn % len(methods) :] + methods[: turn % len(methods)]:
            with seeded(0):
                encoder = Encoder(EncoderSpec(backbone="resnet18", dim=DIM, image_size=32))
                head = build_head("softmax", CLASSES, DIM, {})
            stamps: list[float] = []

            def stamp(event: dict[str, Any], stamps: list[float] = stamps) -> None:
                stamps.append(time.perf_counter())
                if len(stamps) > steps:
                    raise Enough

            method = METHODS[name]()
            with suppress(Enough):
                fit(
                    encoder, head, method, training_loader(images, batch_size=BATCH, seed=0),
                    encoding_loader(images, batch_size=BATCH), space=SPACE, class_names=NAMES,
                    old=old if method.needs_old else None, optimizer=partial(torch.optim.SGD, lr=0.01, momentum=0.9),
                    fabric=fabric, epochs=1, seed=0, on_step=stamp,
                )  # fmt: skip
            seconds[name] += list(np.diff(stamps))
            print(f"  round {turn + 1}/{rounds} {name}: {np.median(np.diff(stamps)):.2f} s a step", flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="interleaved runs of the loss alone")
    parser.add_argument("--rounds", type=int, default=6, help="turns of every method through the whole step")
    parser.add_argument("--steps", type=int, default=4, help="timed steps a turn")
    arguments = parser.parse_args()
    methods = ["independent", *(name for name in METHODS if name != "independent")]
    old, labels = predecessor()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = loss_alone(methods, old, arguments.runs)
    torch.set_num_threads(threads)
    threaded = loss_alone(methods, old, arguments.runs)
    whole = whole_step(methods, old, labels, arguments.rounds, arguments.steps)
    record: dict[str, Any] = {
        "machine": describe(), "batch": BATCH, "dim": DIM, "classes": CLASSES, "threads": threads,
        "arguments": vars(arguments), "methods": {},
    }  # fmt: skip
    head = f"{'method':<12}{'step, s':>10}{'ratio':>8}{'loss, ms':>11}{'ratio':>8}{'threads':>10}"
    lines = [record["machine"], "", head]
    for name in methods:
        kinds = {"step": whole, "loss": alone, "loss_threaded": threaded}
        medians = {kind: statistics.median(times[name]) for kind, times in kinds.items()}
        ratios = {kind: medians[kind] / statistics.median(times["independent"]) for kind, times in kinds.items()}
        record["methods"][name] = {"seconds": medians, "ratio": ratios}
        lines.append(
            f"{name:<12}{medians['step']:>10.3f}{ratios['step']:>8.3f}{1000 * medians['loss']:>11.3f}"
            f"{ratios['loss']:>8.2f}{ratios['loss_threaded']:>10.2f}"
        )
    lines += [
        "",
        f"Medians and their ratios to independent. Steps ran on {threads} threads; the loss alone on one, and its",
        f"ratio once more on {threads} (last column), where operations of 0.1 ms wait for each other.",
        "Targets: step ratio at most 1.10, loss ratio at most 3.",
    ]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "step_overhead.json").write_text(json.dumps(record, indent=2) + "\n")
    (RESULTS / "step_overhead.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
