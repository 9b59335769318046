"""What the new class means of ndpp and odpp cost an epoch: an exact pass, or the running means of the last batches.

Whole epochs of `fit`, epoch starts included, of three runs in turn: p2s (no new means), ndpp with `new_prototypes`
"running", ndpp with "exact". 100 classes, so that the neighbour search itself is negligible.

    python benchmarks/new_prototypes.py            # writes benchmarks/results/new_prototypes.json and .txt
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from limpet.data.image_set import ImageSet
from limpet.data.images import ArrayImages
from limpet.data.loading import encoding_loader, training_loader
from limpet.embeddings import EmbeddingSet
from limpet.geometry import Hypersphere
from limpet.methods import METHODS
from limpet.methods.base import OldModel
from limpet.models.encoder import Encoder
from limpet.models.heads import build_head
from limpet.models.seeding import seeded
from limpet.models.specs import EncoderSpec
from limpet.training.loop import fit
from machine import describe

BATCH, CLASSES, DIM = 128, 100, 64
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "p2s": ("p2s", {}),
    "ndpp, running": ("ndpp", {"new_prototypes": "running"}),
    "ndpp, exact": ("ndpp", {"new_prototypes": "exact"}),
}
NETWORKS = {
    "convnet, 32 filters, 28 pixels": (
        EncoderSpec(dim=DIM, channels=1, image_size=28, backbone_options={"filters": 32}),
        6_400,
    ),
    "resnet18, 32 pixels": (EncoderSpec(backbone="resnet18", dim=DIM, channels=3, image_size=32), 1_280),
}
RESULTS = Path(__file__).parent / "results"


def images_and_predecessor(spec: EncoderSpec, items: int) -> tuple[ImageSet, OldModel]:
    rng = np.random.default_rng(0)
    labels = np.arange(items) % CLASSES
    pixels = rng.integers(0, 256, (items, spec.channels, spec.image_size, spec.image_size), dtype=np.uint8)
    names = [f"class {c}" for c in range(CLASSES)]
    images = ImageSet(ArrayImages(pixels), labels, names, [str(row) for row in range(items)])
    vectors = rng.normal(size=(CLASSES, DIM))[labels] + rng.normal(size=(items, DIM))
    embeddings = EmbeddingSet(vectors.astype(np.float32), images.ids, "declared:old", Hypersphere(DIM),
                              form="features", labels=labels, class_names=names)  # fmt: skip
    return images, OldModel(embeddings, names)


def epoch_seconds(run: str, spec: EncoderSpec, images: ImageSet, old: OldModel) -> float:
    """Return the seconds of the second of two epochs, its start included."""
    from lightning_fabric import Fabric

    name, options = RUNS[run]
    ends: list[float] = []

    def note(event: dict[str, Any]) -> None:
        if event["step"] + 1 == event["steps"]:
            ends.append(time.perf_counter())

    with seeded(0):
        encoder, head = Encoder(spec), build_head("softmax", CLASSES, DIM, {})
    fit(
        encoder, head, METHODS[name](**options), training_loader(images, batch_size=BATCH, seed=0),
        encoding_loader(images, batch_size=BATCH), space=Hypersphere(DIM), class_names=images.class_names, old=old,
        optimizer=partial(torch.optim.SGD, lr=0.01, momentum=0.9), fabric=Fabric(accelerator="cpu", devices=1),
        epochs=2, seed=0, progress=note,
    )  # fmt: skip
    return ends[1] - ends[0]


def lines_of(record: dict[str, Any]) -> list[str]:
    lines = [record["machine"], "", f"{'network':<32} {'run':<14} {'epoch, s':>9} {'over p2s':>9}"]
    for network, seconds in record["seconds"].items():
        for run, taken in seconds.items():
            ratio = min(taken) / min(seconds["p2s"])
            lines.append(f"{network:<32} {run:<14} {min(taken):>9.2f} {ratio:>9.2f}")
    rounds = len(next(iter(record["seconds"].values()))["p2s"])
    slowest = max(max(taken) / min(taken) for seconds in record["seconds"].values() for taken in seconds.values())
    note = (
        f"The fastest of {rounds} rounds in turn, {record['threads']} threads, batch {BATCH}: the machine was shared,"
    )
    return [*lines, "", note, f"and a twin took up to {slowest:.1f} times as long."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tables-only", action="store_true", help="write the .txt again from the committed .json")
    arguments = parser.parse_args()
    path = RESULTS / "new_prototypes.json"
    if arguments.tables_only:
        record = json.loads(path.read_text())
    else:
        record = {"machine": describe(), "threads": torch.get_num_threads(), "seconds": measured(arguments.rounds)}
        path.write_text(json.dumps(record, indent=1) + "\n")
    path.with_suffix(".txt").write_text("\n".join(lines_of(record)) + "\n")
    print("\n".join(lines_of(record)))


def measured(rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of every round, by network and run."""
    found = {}
    for network, (spec, items) in NETWORKS.items():
        images, old = images_and_predecessor(spec, items)
        seconds: dict[str, list[float]] = {run: [] for run in RUNS}
        for _ in range(rounds):
            for run in RUNS:
                seconds[run].append(epoch_seconds(run, spec, images, old))
        found[network] = seconds
    return found


if __name__ == "__main__":
    main()
