"""What batch normalisation after the projection and longer training do for independent models of both spaces.

    python benchmarks/lorentz_projection.py   # half an hour on one core

Writes results/lorentz_projection.json and .txt.

Omniglot: the first 200 training characters, 15 of 20 drawings of each, the network and recipe of all_methods.py,
searched on the first 150 evaluation characters. Lengths are those of the tangent vectors or
features of the searched gallery.

On the Lorentz space, the clipped share, the uncertainty and the AUC compare 5 further drawings of the 200 characters,
which the model has seen, with 5 drawings of each of 200 other characters, which it has not seen (HBCT, Figure 2).
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
from limpet.data.datasets import data_root, load_dataset
from limpet.data.image_set import ImageSet
from limpet.evaluation.retrieval import rank_metrics
from limpet.geometry import SPACES
from limpet.training.encode import embed_images
from limpet.training.experiment import Experiment, Geometry
from limpet.training.train import train_release
from limpet_bench.pictures.histograms import histograms
from machine import describe

RESULTS = Path(__file__).parent / "results"
TRAINED, SEARCHED, DRAWINGS, EPOCHS, SEEDS = 200, 150, 15, (4, 20, 60), (0, 1, 2)


def drawings_of(images: ImageSet, classes: slice, drawings: slice) -> ImageSet:
    """Return some drawings of some classes, both in the order of the data set."""
    rows = [np.flatnonzero(images.labels == label)[drawings] for label in np.unique(images.labels)[classes]]
    return images[np.sort(np.concatenate(rows))].compact()


def measured(
    space: str, projection: str, epochs: int, seed: int, train: ImageSet, query: ImageSet, gallery: ImageSet
) -> dict[str, Any]:
    experiment = Experiment(
        model=MODEL.model_copy(update={"projection": projection}),
        geometry=Geometry(space),
        recipe=replace(RECIPE, epochs=epochs),
        seed=seed,
    )
    start = time.perf_counter()
    seen_drawings = drawings_of(train, slice(TRAINED), slice(DRAWINGS))
    with tempfile.TemporaryDirectory() as folder:
        release = train_release(seen_drawings, experiment, Path(folder) / "release")
    features = embed_images(release, gallery, form="features")
    found = rank_metrics(embed_images(release, query), embed_images(release, gallery), ("recall@1", "map"))
    lengths = np.linalg.norm(features.vectors, axis=1)
    row = {
        "space": space, "projection": projection, "epochs": epochs, "seed": seed,
        **{name: float(np.mean(values)) for name, values in found.items()},
        "length quartiles": np.quantile(lengths, [0.25, 0.5, 0.75]).tolist(),
    }  # fmt: skip
    if space == "lorentz":
        others = embed_images(release, drawings_of(train, slice(2 * TRAINED), slice(DRAWINGS, None)))
        panel = histograms("uncertainty", others, {}, release.classes).panels["old"]
        row |= {f"{group} {what}": getattr(panel.groups[group], what)
                for group in ("seen", "unseen") for what in ("clipped", "mean", "items")}  # fmt: skip
        row["auc"] = panel.auc
    return {**row, "seconds": time.perf_counter() - start}


def lines_of(record: dict[str, Any]) -> list[str]:
    lines = [
        record["machine"],
        "",
        f"{'space':<13}{'projection':<12}{'epochs':>6}{'seed':>6}{'recall@1':>10}{'mAP':>7}   lengths, quartiles  "
        "clipped seen  unseen   uncertainty seen  unseen    AUC",
    ]
    for row in record["runs"]:
        lengths = " ".join(f"{length:5.2f}" for length in row["length quartiles"])
        place = f"{row['space']:<13}{row['projection']:<12}{row['epochs']:>6}{row['seed']:>6}"
        line = f"{place}{row['recall@1']:>10.3f}{row['map']:>7.3f}   {lengths}"
        if "auc" in row:
            clipped = [100 * row[f"{group} clipped"] for group in ("seen", "unseen")]
            means = [row[f"{group} mean"] for group in ("seen", "unseen")]
            line += f"  {clipped[0]:>11.0f} %{clipped[1]:>6.0f} %{means[0]:>19.3f}{means[1]:>8.3f}{row['auc']:>7.3f}"
        lines.append(line)
    note = f"{TRAINED} characters, {DRAWINGS} drawings of each, searched among {SEARCHED} others; ζ = 1 (Lorentz)."
    return [*lines, "", note]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="data root (default: the environment variable LIMPET_DATA)")
    parser.add_argument("--epochs", type=int, nargs="+", default=EPOCHS, help="of training (default: 4 20 60)")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="(default: 0 1 2)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = load_dataset("omniglot", data_root(arguments.root))
    query, gallery = (drawings_of(images, slice(SEARCHED), slice(None)) for images in (data.query, data.gallery))
    runs = []
    for seed in arguments.seeds:
        for epochs in arguments.epochs:
            for space in SPACES:
                for projection in ("linear", "linear-bn"):
                    runs.append(measured(space, projection, epochs, seed, data.train, query, gallery))
                    print(json.dumps(runs[-1]), flush=True)
    record = {
        "machine": describe(),
        "runs": sorted(runs, key=lambda row: (row["space"], row["projection"], row["epochs"])),
    }
    text = "\n".join(lines_of(record)) + "\n"
    (RESULTS / "lorentz_projection.json").write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "lorentz_projection.txt").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
