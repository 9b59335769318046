"""What a change of training images costs per image: whole batches as limpet does, and one image at a time by Pillow.

Every way begins and ends with uint8 arrays of a batch, and draws anew for every image: limpet from a generator of
PyTorch, Pillow's loop from Python's own, with the same probabilities, operations and amounts. (That results are equal
for equal draws is tested, not measured here.) Images are smooth patterns with noise, held decoded.

The ways take turns on one thread, a first turn that is not counted warms up, and the table shows the fastest of the
rounds, in processor time: a thread that waits for a core which other work has does not count.

    python benchmarks/augmentation.py            # writes benchmarks/results/augmentation.json and .txt
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from limpet.data.augment import Augmentation, RandAugment, ResizedCrop
from limpet.data.augmentation_policies import CIFAR_10, RAND_AUGMENT
from limpet.data.image_operations import OPERATIONS
from machine import describe

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from pillow_operations import PILLOW

RESULTS = Path(__file__).parent / "results"
Change = Callable[[Image.Image, random.Random], Image.Image]


class Way(NamedTuple):
    """One augmentation: as limpet is told, and as a loop over images does it."""

    augmentation: Augmentation
    by_pillow: Change


class Size(NamedTuple):
    """Pixels per side as images come, and as the network sees resized crops; and images in a batch."""

    side: int
    seen: int
    batch: int


SIZES = {"32 pixels": Size(32, 32, 128), "256 pixels": Size(256, 224, 32)}


def crop_and_flip(image: Image.Image, rng: random.Random) -> Image.Image:
    """Shift by up to 4 pixels, black from outside, and mirror half of the images."""
    left, top = rng.randint(0, 8), rng.randint(0, 8)
    shifted = ImageOps.expand(image, 4).crop((left, top, left + image.width, top + image.height))
    return ImageOps.mirror(shifted) if rng.random() < 0.5 else shifted


@cache
def amount_of(name: str, strength: float) -> float:
    """Return the amount of an operation for a signed share of its full strength."""
    return float(OPERATIONS[name].amount(torch.tensor([strength], dtype=torch.float64)))


def auto_augmented(image: Image.Image, rng: random.Random) -> Image.Image:
    """Apply one of the 25 sub-policies."""
    for name, probability, magnitude in rng.choice(CIFAR_10):
        if rng.random() < probability:
            image = PILLOW[name](image, amount_of(name, magnitude / 9 * rng.choice((-1, 1))))
    return image


def rand_augmented(image: Image.Image, rng: random.Random) -> Image.Image:
    """Apply two of the 14 operations at nine tenths of their strength."""
    for name in rng.choices(RAND_AUGMENT, k=2):
        if name in OPERATIONS:
            image = PILLOW[name](image, amount_of(name, 0.9 * rng.choice((-1, 1))))
    return image


def resized_crop(seen: int) -> Change:
    """Return the crop of a box of 8 to 100 percent of the area and of 3:4 to 4:3, brought to a size."""
    box = ResizedCrop()

    def change(image: Image.Image, rng: random.Random) -> Image.Image:
        for _ in range(10):
            area = image.width * image.height * rng.uniform(*box.scale)
            ratio = math.exp(rng.uniform(*map(math.log, box.ratio)))
            width, height = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
            if width <= image.width and height <= image.height:
                left, top = rng.randint(0, image.width - width), rng.randint(0, image.height - height)
                return image.resize(
                    (seen, seen), Image.Resampling.BILINEAR, box=(left, top, left + width, top + height)
                )
        return image.resize((seen, seen), Image.Resampling.BILINEAR)

    return change


def ways(size: Size) -> dict[str, Way]:
    return {
        "shifted crop and mirror": Way(Augmentation(crop_padding=4, flip=True), crop_and_flip),
        "AutoAugment (CIFAR-10)": Way(Augmentation(auto_augment="cifar-10"), auto_augmented),
        "RandAugment (2, 9 of 10)": Way(Augmentation(rand_augment=RandAugment()), rand_augmented),
        "resized crop": Way(Augmentation(resized_crop=ResizedCrop()), resized_crop(size.seen)),
    }


def images_of(size: Size) -> NDArray[np.uint8]:
    """Return a batch (batch, 3, side, side) that is neither flat nor mere noise."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (size.batch, 3, 8, 8)).repeat(size.side // 8, 2).repeat(size.side // 8, 3)
    return np.clip(coarse + rng.normal(0, 20, coarse.shape), 0, 255).astype(np.uint8)


def by_pillow(pixels: NDArray[np.uint8], change: Change, rng: random.Random) -> NDArray[np.uint8]:
    """Change a batch one image after the other, as the workers of a data loader do."""
    changed = [np.asarray(change(Image.fromarray(image), rng)) for image in pixels.transpose(0, 2, 3, 1)]
    return np.stack(changed).transpose(0, 3, 1, 2)


def by_limpet(batch: Tensor, augmentation: Augmentation, seen: int, generator: torch.Generator) -> NDArray[np.uint8]:
    """Change a batch at once."""
    return augmentation(batch, generator, (seen, seen)).numpy()


def measured(rounds: int, batches: int) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Return microseconds per image of every round, by size, augmentation and way."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for name, size in SIZES.items():
        pixels, generator, rng = images_of(size), torch.Generator().manual_seed(0), random.Random(0)
        found[name] = {}
        for label, way in ways(size).items():
            runs = {
                "limpet": partial(by_limpet, torch.from_numpy(pixels), way.augmentation, size.seen, generator),
                "Pillow": partial(by_pillow, pixels, way.by_pillow, rng),
            }
            taken: dict[str, list[float]] = {one: [] for one in runs}
            for turn in range(rounds + 1):
                for one, run in runs.items():
                    began = time.process_time()
                    for _ in range(batches):
                        run()
                    if turn:
                        taken[one].append((time.process_time() - began) / batches / size.batch * 1e6)
            found[name][label] = taken
    return found


def lines_of(record: dict[str, Any]) -> list[str]:
    lines = [
        record["machine"],
        "",
        f"{'images':<12} {'augmentation':<26} {'limpet, µs':>12} {'Pillow, µs':>12} ratio",
    ]
    slowest = 1.0
    for size, by_label in record["microseconds"].items():
        for label, taken in by_label.items():
            ours, pillow = min(taken["limpet"]), min(taken["Pillow"])
            lines.append(f"{size:<12} {label:<26} {ours:>12.1f} {pillow:>12.1f} {pillow / ours:>5.2f}")
            slowest = max(slowest, *(max(one) / min(one) for one in taken.values()))
    rounds = len(taken["limpet"])
    batches = ", ".join(f"{size.batch} images of {name}" for name, size in SIZES.items())
    return [
        *lines,
        "",
        "Processor time per image on one thread; the ratio is Pillow's over limpet's.",
        f"Batches of {batches}; resized crops of the larger ones have {SIZES['256 pixels'].seen} pixels.",
        f"The fastest of {rounds} rounds in turn: the machine was shared,",
        f"and a twin took up to {slowest:.1f} times as long.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=5, help="batches in each round")
    parser.add_argument("--tables-only", action="store_true", help="write the .txt again from the committed .json")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    path = arguments.out / "augmentation.json"
    if arguments.tables_only:
        record = json.loads(path.read_text())
    else:
        torch.set_num_threads(1)
        record = {
            "machine": describe("torch", "pillow"),
            "microseconds": measured(arguments.rounds, arguments.batches),
        }
        path.write_text(json.dumps(record, indent=1) + "\n")
    path.with_suffix(".txt").write_text("\n".join(lines_of(record)) + "\n")
    print("\n".join(lines_of(record)))


if __name__ == "__main__":
    main()
