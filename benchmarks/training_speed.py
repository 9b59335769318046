"""How many images a second the training loop takes in, how long it waits for them, and how much of a GPU it keeps busy.

Two networks: the small convnet of the small recipe on Omniglot-sized images (1 x 28 x 28, as they are), and ResNet-18
on 3 x 32 x 32 (cropped and flipped). Each is trained by `fit` in float32, in bfloat16, and in bfloat16 with images and
weights as `channels_last`; every time with the images on the host, and kept on the device. Images are drawn and held
decoded, so that decoding is no part of it.

The ways take turns, a first turn that is not counted warms up, and the table shows the median over rounds. An epoch
ends with a reading of its losses, which waits for the device. Floating-point operations are counted by PyTorch for one
step of network and classifier, forward and backward; `--peak-tflops` says what their share is taken of.

    python benchmarks/training_speed.py                                  # writes results/training_speed.json and .txt
    python benchmarks/training_speed.py --device cuda --batch 1024 --steps 200 --peak-tflops 989 --out FOLDER
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from limpet.data.augment import Augmentation
from limpet.data.image_set import ImageSet
from limpet.data.images import ArrayImages
from limpet.data.loading import encoding_loader, training_loader
from limpet.data.resident import resident_inputs
from limpet.geometry import Hypersphere
from limpet.methods import METHODS
from limpet.models.building import build_network
from limpet.models.heads import build_head
from limpet.models.seeding import seeded
from limpet.models.specs import EncoderSpec
from limpet.training.experiment import Recipe
from limpet.training.loop import fit
from machine import describe
from task_pool import read_json, write_json

CLASSES, DIM = 200, 64
RESULTS = Path(__file__).parent / "results"


class Network(NamedTuple):
    """What is trained, and how its images are augmented."""

    spec: EncoderSpec
    augmentation: Augmentation


NETWORKS = {
    "convnet": Network(
        EncoderSpec(dim=DIM, channels=1, image_size=28, backbone_options={"filters": 16}), Augmentation()
    ),
    "resnet18": Network(
        EncoderSpec(backbone="resnet18", dim=DIM, channels=3, image_size=32), Augmentation(crop_padding=4, flip=True)
    ),
}


@dataclass(frozen=True)
class Way:
    """One way to train."""

    precision: str
    channels_last: bool
    on_device: bool

    @property
    def name(self) -> str:
        """Return precision and layout in words."""
        return ("fp32" if self.precision == "32-true" else "bf16") + (" channels-last" if self.channels_last else "")


WAYS = [
    Way(precision, channels_last, on_device)
    for (precision, channels_last), on_device in product(
        [("32-true", False), ("bf16-mixed", False), ("bf16-mixed", True)], [False, True]
    )
]


def drawn_images(spec: EncoderSpec, count: int) -> ImageSet:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, spec.channels, spec.image_size, spec.image_size), dtype=np.uint8)
    labels = np.arange(count) % CLASSES
    return ImageSet(ArrayImages(pixels), labels, tuple(f"class {c}" for c in range(CLASSES)), [*map(str, range(count))])


def one_epoch(network: Network, way: Way, images: ImageSet, arguments: argparse.Namespace) -> tuple[float, float]:
    """Train for an epoch; return images a second, and the share of time that was spent waiting for them."""
    fabric = Recipe(accelerator=arguments.device, precision=way.precision).build_fabric()  # type: ignore[arg-type]
    reading: dict[str, Any] = {
        "batch_size": arguments.batch,
        "workers": arguments.workers,
        "pin_memory": fabric.device.type == "cuda",
    }
    if way.on_device:
        reading["resident"] = resident_inputs(encoding_loader(images, **reading), fabric.device, "always")
    with seeded(0):
        encoder, head = build_network(network.spec), build_head("softmax", CLASSES, DIM, {})
    history = fit(
        encoder, head, METHODS["independent"](),
        training_loader(images, seed=0, augmentation=network.augmentation, **reading),
        encoding_loader(images, **reading), space=Hypersphere(DIM), class_names=images.class_names, old=None,
        optimizer=partial(torch.optim.SGD, lr=0.01, momentum=0.9), fabric=fabric, epochs=1, seed=0,
        channels_last=way.channels_last,
    )  # fmt: skip
    return history.images / history.seconds, history.waiting_share


def operations_per_image(spec: EncoderSpec) -> float:
    """Return the floating-point operations of a training step, per image: a product and a sum are two."""
    with seeded(0):
        encoder, head = build_network(spec), build_head("softmax", CLASSES, DIM, {})
    images = torch.zeros(2, spec.channels, spec.image_size, spec.image_size)
    with FlopCounterMode(display=False) as counter:
        scores = functional.linear(encoder(images), head.weight)
        functional.cross_entropy(scores, torch.tensor([0, 1])).backward()
    return counter.get_total_flops() / len(images)


def measured(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a record for every network and way."""
    for name in arguments.networks:
        network = NETWORKS[name]
        images = drawn_images(network.spec, arguments.batch * arguments.steps)
        warm_up = images[: arguments.batch * min(arguments.steps, 5)]
        operations = operations_per_image(network.spec)
        found: dict[Way, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for turn in range(arguments.rounds + 1):
            for way in WAYS:
                taken = one_epoch(network, way, images if turn else warm_up, arguments)
                found[way] += [taken] if turn else []
            print(f"{name}: {turn} of {arguments.rounds} rounds", flush=True)
        for way, rounds in found.items():
            yield {
                "network": name, "way": way.name, "data on device": way.on_device, "operations per image": operations,
                "images per second": [speed for speed, _ in rounds], "waiting": [waiting for _, waiting in rounds],
            }  # fmt: skip


def lines_of(record: dict[str, Any]) -> list[str]:
    peak = record["peak tflops"]
    lines = [
        record["machine"],
        f"Device {record['device']}, {record['threads']} threads, batch {record['batch']}, "
        f"{record['workers']} workers, {record['steps']} steps an epoch; medians of {record['rounds']} rounds.",
        "",
        f"{'network':<10} {'way':<20} {'images':<10} {'images/s':>10} {'waiting':>8} {'TFLOP/s':>8}"
        + (f" {'of peak':>8}" if peak else ""),
    ]
    for row in record["rows"]:
        speed, waiting = (statistics.median(row[name]) for name in ("images per second", "waiting"))
        tflops = speed * row["operations per image"] / 1e12
        place = "on device" if row["data on device"] else "on host"
        lines.append(
            f"{row['network']:<10} {row['way']:<20} {place:<10} {speed:>10,.0f} {waiting:>8.1%} {tflops:>8.3f}"
            + (f" {tflops / peak:>8.1%}" if peak else "")
        )
    spread = max(max(row["images per second"]) / min(row["images per second"]) for row in record["rows"])
    note = (
        f"The fastest of {record['rounds']} rounds was up to {spread:.2f} times as fast as the slowest of the same way."
    )
    return [*lines, "", note, *([f"The peak is {peak:g} TFLOP/s, for every way alike."] if peak else [])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--networks", nargs="+", choices=tuple(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20, help="steps of an epoch")
    parser.add_argument("--rounds", type=int, default=3, help="counted epochs of every way")
    parser.add_argument("--workers", type=int, default=0, help="processes that read images on the host")
    parser.add_argument(
        "--peak-tflops", type=float, help="what the device can do at most, in 10^12 operations a second"
    )
    parser.add_argument("--tables-only", action="store_true", help="write the .txt again from the .json")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder to write to")
    arguments = parser.parse_args()
    path = arguments.out / "training_speed.json"
    if not arguments.tables_only:
        record = {
            "machine": describe(), "threads": torch.get_num_threads(), "peak tflops": arguments.peak_tflops,
            **{name: getattr(arguments, name) for name in ("device", "batch", "steps", "rounds", "workers")},
            "rows": list(measured(arguments)),
        }  # fmt: skip
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_json(path, record)
    text = "\n".join(lines_of(read_json(path))) + "\n"
    path.with_suffix(".txt").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
