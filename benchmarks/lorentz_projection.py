"""What batch normalisation after the projection does for models of both spaces: independent ones, on Omniglot.

    python benchmarks/lorentz_projection.py        # writes benchmarks/results/lorentz_projection.json and .txt

The first 200 training characters, four epochs of the network and recipe of all_methods.py, searched on the first 150
evaluation characters. Lengths are those of the tangent vectors or features of the searched gallery.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from all_methods_tasks import MODEL, RECIPE
from limpet.cli.choices import data_root
from limpet.data.datasets import load_dataset
from limpet.data.image_set import ImageSet
from limpet.evaluation.retrieval import rank_metrics
from limpet.experiment import Experiment, Geometry
from limpet.geometry import SPACES
from limpet.training.encode import embed_images
from limpet.training.train import train_release
from machine import describe

RESULTS = Path(__file__).parent / "results"
TRAINED, SEARCHED, EPOCHS, SEEDS = 200, 150, 4, (0, 1)


def first_classes(images: ImageSet, count: int) -> ImageSet:
    return images.select(np.flatnonzero(np.isin(images.labels, np.unique(images.labels)[:count]))).compact()


def measured(
    space: str, projection: str, seed: int, train: ImageSet, query: ImageSet, gallery: ImageSet
) -> dict[str, Any]:
    experiment = Experiment(
        model=MODEL.model_copy(update={"projection": projection}),
        geometry=Geometry(space),
        recipe=replace(RECIPE, epochs=EPOCHS),
        seed=seed,
    )
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        release = train_release(train, experiment, Path(folder) / "release")
    features = embed_images(release, gallery, form="features")
    found = rank_metrics(embed_images(release, query), embed_images(release, gallery), ("recall@1", "map"))
    lengths = np.linalg.norm(features.vectors, axis=1)
    return {
        "space": space, "projection": projection, "seed": seed, "seconds": time.perf_counter() - start,
        **{name: float(np.mean(values)) for name, values in found.items()},
        "length quartiles": np.quantile(lengths, [0.25, 0.5, 0.75]).tolist(),
    }  # fmt: skip


def lines_of(record: dict[str, Any]) -> list[str]:
    lines = [
        record["machine"],
        "",
        f"{'space':<13}{'projection':<12}{'seed':>5}{'recall@1':>10}{'mAP':>7}   lengths, quartiles",
    ]
    for row in record["runs"]:
        lengths = " ".join(f"{length:.2f}" for length in row["length quartiles"])
        place = f"{row['space']:<13}{row['projection']:<12}{row['seed']:>5}"
        lines.append(f"{place}{row['recall@1']:>10.3f}{row['map']:>7.3f}   {lengths}")
    note = f"{TRAINED} characters, {EPOCHS} epochs, searched among {SEARCHED} others; ζ = 1 on the Lorentz space."
    return [*lines, "", note]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="data root (default: the environment variable LIMPET_DATA)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = load_dataset("omniglot", data_root(arguments.root))
    train = first_classes(data.train, TRAINED)
    query, gallery = (first_classes(images, SEARCHED) for images in (data.query, data.gallery))
    runs = [
        measured(space, projection, seed, train, query, gallery)
        for seed in SEEDS
        for space in SPACES
        for projection in ("linear", "linear-bn")
    ]
    record = {"machine": describe(), "runs": sorted(runs, key=lambda row: (row["space"], row["projection"]))}
    text = "\n".join(lines_of(record)) + "\n"
    (RESULTS / "lorentz_projection.json").write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "lorentz_projection.txt").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
