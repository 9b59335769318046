"""What each EfficientNet-lite finds at several sizes, on images that the suite image-upgrade does not search.

Ten training images each of 60 classes of Tiny-ImageNet at 32 pixels, brought to the size, search one another. By this
the sizes of the suites were chosen: an old model that saves time, and newer ones that find more.

    LIMPET_DATA=FOLDER python benchmarks/image_sizes.py     # writes results/image_sizes.txt
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch

from image_encoders import opened
from limpet import embed_images, load_dataset
from limpet.evaluation.protocols import PROTOCOLS
from machine import describe

RESULTS = Path(__file__).parent / "results"
CLASSES, IMAGES, SEED = 60, 10, 5
SIZES = (("lite0", 64), ("lite0", 128), ("lite1", 96), ("lite1", 128), ("lite2", 128), ("lite2", 192))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    train = load_dataset("tiny-imagenet-32", Path(os.environ["LIMPET_DATA"])).to_train_on()
    rng = np.random.default_rng(SEED)
    chosen = rng.permutation(len(train.class_names))[:CLASSES]
    rows = [rng.permutation(np.flatnonzero(train.labels == label))[:IMAGES] for label in chosen]
    images = train[np.sort(np.concatenate(rows))].compact()
    lines = [
        f"{describe('torch', 'efficientnet-lite-pytorch')}; one thread.",
        f"{len(images)} training images of {CLASSES} classes of Tiny-ImageNet, each searches the others.",
        "",
        f"{'model':6} {'pixels':>6} {'recall@1':>9} {'mAP':>6} {'images/s':>9}",
    ]
    protocol = PROTOCOLS["labels"].opened(None, leave_one_out=True)
    for name, side in SIZES:
        release, started = opened(name, side), time.monotonic()
        found = embed_images(release, images, batch_size=32)
        speed = len(images) / (time.monotonic() - started)
        values = protocol.measure(found, found, ["recall@1", "map"])
        recall, precision = (float(np.nanmean(values[metric])) for metric in ("recall@1", "map"))
        lines.append(f"{name:6} {side:6} {recall:9.3f} {precision:6.3f} {speed:9.1f}")
        print(lines[-1], flush=True)
    (arguments.out / "image_sizes.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
