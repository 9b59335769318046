"""One task of all_methods.py, as a worker process does it: train a model, score it, leave a record."""

from __future__ import annotations

import functools
import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from all_methods_tables import COMPARED, EXTENDED, OLD, OPEN, Record, Task
from limpet.data.datasets import load_dataset
from limpet.data.image_set import ImageSet
from limpet.data.images import ArrayImages
from limpet.data.scenarios import SCENARIOS
from limpet.embeddings import EmbeddingSet, StringArray, storage
from limpet.evaluation.intervals import Interval, paired_interval
from limpet.evaluation.retrieval import rank_metrics
from limpet.methods import METHODS
from limpet.models.specs import EncoderSpec
from limpet.training.encode import cached_embeddings, embed_images
from limpet.training.experiment import Experiment, Recipe
from limpet.training.train import train_upgrade
from task_pool import write_json

Values = NDArray[np.float64]

MODEL = EncoderSpec(dim=64, channels=1, image_size=28, backbone_options={"filters": 32})
HEAD = "softmax"
RECIPE = Recipe(learning_rate=0.3, warmup_epochs=0.5, accelerator="cpu")
PRECISION: dict[str, dict[str, Any]] = {"tune": {}, "final": {"precision": "bf16-mixed", "channels_last": True}}
"""Convolutions of the models in the tables are computed in bfloat16, losses in float32: half the time of float32."""
VALIDATION_FRACTION = 0.2


class Forced(NamedTuple):
    """Options without which a method refuses a scenario."""

    options: dict[str, Any]
    reason: str


FORCED = {
    ("advbct", OPEN): Forced(
        {"classes": "new"}, "it measures class boundaries on the old training set, which has no class of the new one"
    ),
}


@dataclass(frozen=True)
class Settings:
    """What all models of one work folder have in common, and where things are."""

    epochs: int
    classes: int | None
    root: Path | None = field(compare=False)
    work: Path = field(compare=False)

    def identity(self) -> dict[str, Any]:
        return {"epochs": self.epochs, "classes": self.classes}

    def epochs_of(self, phase: str) -> int:
        return self.epochs if phase == "final" else (self.epochs + 1) // 2


def options_of(task: Task) -> dict[str, Any]:
    """Return the method's options: those that the scenario forces, and the tuned one."""
    forced = FORCED[task.method, task.scenario].options if (task.method, task.scenario) in FORCED else {}
    if task.value is None:
        return dict(forced)
    return {**forced, METHODS[task.method].balance or "": task.value}


@functools.cache
def images_of(phase: str, settings: Settings) -> tuple[ImageSet, ImageSet]:
    """Return what is trained on, and what is searched leave-one-out: validation classes, or evaluation classes."""
    fraction = VALIDATION_FRACTION if phase == "tune" else 0.0
    data = load_dataset("omniglot", settings.root, image_size=MODEL.image_size, validation_fraction=fraction)
    train = data.train
    if settings.classes is not None:
        train = train.select_classes(range(settings.classes)).compact()
    return train, data.validation if data.validation is not None else joined(data.query, data.gallery)


def joined(first: ImageSet, second: ImageSet) -> ImageSet:
    pixels = np.concatenate([part.read(np.arange(len(part))) for part in (first, second)])
    labels = np.concatenate([first.labels, second.labels])
    ids = StringArray.of([*first.ids, *second.ids])
    return ImageSet(ArrayImages(pixels), labels, first.class_names, ids)


def perform(task: Task, settings: Settings) -> Record:
    """Train one model, score it, write its record, and remove what nobody needs any more."""
    started = time.perf_counter()
    train, searched = images_of(task.phase, settings)
    folder = settings.work / f"{task.phase}-{task.seed}"
    recipe = replace(RECIPE, epochs=settings.epochs_of(task.phase), **PRECISION[task.phase])
    base = Experiment(model=MODEL, head=HEAD, recipe=recipe, seed=task.seed)
    split = SCENARIOS[task.scenario or EXTENDED].divide(train.labels, seed=task.seed)
    if task.method == OLD:
        release = train_upgrade(train, split, base, {}, folder)[OLD]
        seen = split.old
        new_sides = (SCENARIOS[scenario].divide(train.labels, seed=task.seed).new for scenario in COMPARED)
        for rows in (split.old, *new_sides):  # embedded once, for all new models
            cached_embeddings(release, train[rows].compact(), folder / "cache")
    else:
        new = replace(base, method=task.method, method_options=options_of(task))
        release = train_upgrade(train, split, base, {task.name: new}, folder)[task.name]
        seen = split.new
    training_seconds = time.perf_counter() - started
    found = score(task, embed_images(release, searched), folder)
    record = {
        **task._asdict(), "options": options_of(task), **found,
        "classes": len(np.unique(train.labels[seen])), "images": len(seen),
        "searched_classes": len(np.unique(searched.labels)), "searched": len(searched),
        "training_seconds": training_seconds, "seconds": time.perf_counter() - started,
    }  # fmt: skip
    write_json(settings.work / "records" / f"{task.name}.json", record)
    if task.method != OLD:
        shutil.rmtree(folder / task.name)
    return record


def intervals(cross: Values, self_old: Values, searched: EmbeddingSet, seed: int) -> dict[str, Interval]:
    """Return the 95 % interval of cross − self (old), as single queries are drawn, and as whole classes are."""
    return {
        "queries": paired_interval(cross, self_old, seed=seed),
        "classes": paired_interval(cross, self_old, seed=seed, clusters=searched.labels),
    }


def score(task: Task, embedded: EmbeddingSet, folder: Path) -> dict[str, Any]:
    """Return the mAP of a model, alone and on the old model's gallery; the old one leaves what the new ones need."""

    def average_precision(gallery: EmbeddingSet) -> Values:
        return rank_metrics(embedded, gallery, ("map",), exclude_same_id=True)["map"]

    own = average_precision(embedded)  # of every item, since all have others of their class
    if task.method == OLD:
        storage.save(embedded, folder / "gallery.safetensors")
        np.save(folder / "self_old.npy", own)
        return {"self": float(own.mean())}
    cross, self_old = average_precision(storage.load(folder / "gallery.safetensors")), np.load(folder / "self_old.npy")
    differences = intervals(cross, self_old, embedded, task.seed)
    return {"self": float(own.mean()), "cross": float(cross.mean()), "cross_minus_self_old": differences}
