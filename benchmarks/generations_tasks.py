"""One task of generations.py, as a worker process does it: train one generation, or score a whole chain."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from all_methods_tables import EXTENDED, Record, Task
from all_methods_tasks import HEAD, RECIPE
from hyperbolic_tasks import MODEL
from limpet.data.datasets import load_dataset
from limpet.data.image_set import ImageSet
from limpet.data.retrieval_data import RetrievalData
from limpet.data.scenarios import class_chain
from limpet.embeddings import EmbeddingSet, storage
from limpet.evaluation.compatibility import compatibility_matrix
from limpet.models.release import Release, load_release
from limpet.training.encode import embed_images
from limpet.training.experiment import Experiment, Geometry
from limpet.training.train import train_release
from task_pool import read_json, write_json

SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)
GENERATIONS = tuple(range(1, len(SHARES) + 1))
SMALL = MODEL
LARGE = MODEL.model_copy(update={"backbone_options": {"filters": 48}})
MODELS = dict(zip(GENERATIONS, (SMALL, SMALL, SMALL, LARGE, LARGE), strict=True))
METRICS = ("map", "cmc@1")
TRAIN, SCORE = "train", "score"
SPACES: dict[str, dict[str, Any]] = {"lorentz": {"geometry": Geometry("lorentz")}, "hypersphere": {"head": HEAD}}
FIRST_CLIP, CLIP_STEP = 1.0, 0.2
RESULTS = Path(__file__).parent / "results"
CHOICES = RESULTS / "hyperbolic.json"


class Chain(NamedTuple):
    """A method that trains every generation but the first, in one geometry."""

    geometry: str
    method: str


CHAINS = {
    "hbct": Chain("lorentz", "hbct"),
    "bct": Chain("hypersphere", "bct"),
    "hot_refresh": Chain("hypersphere", "hot_refresh"),
    "hoc": Chain("hypersphere", "hoc"),
}


@dataclass(frozen=True)
class Settings:
    """What all models of one work folder have in common, and where things are."""

    epochs: int
    classes: int | None
    seed: int
    root: Path | None = field(compare=False)
    work: Path = field(compare=False)

    def identity(self) -> dict[str, Any]:
        return {"epochs": self.epochs, "classes": self.classes, "seed": self.seed}


def independent_of(geometry: str) -> str:
    return f"independent_{geometry}"


def training_task(chain: str, generation: int, seed: int) -> Task:
    """Return the training of a generation; the first one is independent, and shared by a geometry's chains."""
    trained = chain if generation > 1 or chain not in CHAINS else independent_of(CHAINS[chain].geometry)
    return Task(TRAIN, str(generation), seed, trained)


def geometry_of(method: str) -> str:
    return CHAINS[method].geometry if method in CHAINS else method.removeprefix("independent_")


@functools.cache
def options_of_method(method: str) -> dict[str, Any]:
    """Return the options that hyperbolic.py chose for a method; its defaults before that was run."""
    if method not in CHAINS or not CHOICES.exists():
        return {}
    wanted = ("final", EXTENDED, CHAINS[method].method)
    records = read_json(CHOICES)["records"]
    fitting = (dict(one["options"]) for one in records if (one["phase"], one["scenario"], one["method"]) == wanted)
    return next(fitting, {})


def options_of(task: Task) -> dict[str, Any]:
    return options_of_method(task.method)


@functools.cache
def data_of(settings: Settings) -> RetrievalData:
    return load_dataset("omniglot", settings.root, image_size=SMALL.image_size)


@functools.cache
def images_of(generation: int, settings: Settings) -> ImageSet:
    """Return what a generation is trained on."""
    train = data_of(settings).train
    if settings.classes is not None:
        train = train.select_classes(range(settings.classes)).compact()
    steps = class_chain(train.labels, SHARES, seed=settings.seed)
    return train[steps[0].old if generation == 1 else steps[generation - 2].new].compact()


def perform(task: Task, settings: Settings) -> Record:
    """Do one task, write its record, and return it."""
    started = time.perf_counter()
    found = trained(task, settings) if task.phase == TRAIN else scored(task, settings)
    record = {**task._asdict(), "options": options_of(task), **found, "seconds": time.perf_counter() - started}
    write_json(settings.work / "records" / f"{task.name}.json", record)
    return record


def trained(task: Task, settings: Settings) -> dict[str, Any]:
    """Train one generation on the one before it, and leave its embeddings of queries and gallery."""
    generation, geometry = int(task.scenario), geometry_of(task.method)
    images, data = images_of(generation, settings), data_of(settings)
    recipe = replace(RECIPE, epochs=settings.epochs)
    experiment = Experiment(model=MODELS[generation], recipe=recipe, seed=settings.seed, **SPACES[geometry])
    if task.method in CHAINS:
        before = training_task(task.method, generation - 1, settings.seed)
        chain = CHAINS[task.method]
        experiment = replace(experiment, method=chain.method, method_options=options_of(task))
        release = train_release(
            images, experiment, settings.work / task.name, old=load_release(settings.work / before.name),
            old_images=images_of(generation - 1, settings), cache=settings.work / "cache",
        )  # fmt: skip
    else:
        clip = round(FIRST_CLIP + CLIP_STEP * (generation - 1), 1) if geometry == "lorentz" else None
        model = experiment.model.model_copy(update={"zeta": clip})
        release = train_release(images, replace(experiment, model=model), settings.work / task.name)
    embed(release, data, settings.work / task.name)
    return {
        "head": release.record.head, "zeta": release.encoder.spec.zeta, "space": release.record.space,
        "parameters": sum(weight.numel() for weight in release.encoder.parameters()),
        "classes": len(images.class_names), "images": len(images),
        "queries": len(data.query), "gallery": len(data.gallery), "searched_classes": len(data.query.class_names),
    }  # fmt: skip


def embed(release: Release, data: RetrievalData, folder: Path) -> None:
    storage.save(embed_images(release, data.query), folder / "query.safetensors")
    storage.save(embed_images(release, data.gallery), folder / "gallery.safetensors")


def scored(task: Task, settings: Settings) -> dict[str, Any]:
    """Return the compatibility matrix of a chain by every metric, or the self-tests of independent models."""

    def sides(generation: int) -> tuple[EmbeddingSet, EmbeddingSet]:
        folder = settings.work / training_task(task.method, generation, settings.seed).name
        return storage.load(folder / "query.safetensors"), storage.load(folder / "gallery.safetensors")

    models = {str(generation): sides(generation) for generation in GENERATIONS}
    if task.method in CHAINS:
        return {"matrix": {metric: plain(compatibility_matrix(models, metric)) for metric in METRICS}}
    alone = {
        metric: [float(compatibility_matrix([model], metric)[0, 0]) for model in models.values()] for metric in METRICS
    }
    return {"self": alone}


def plain(matrix: Any) -> list[list[float | None]]:
    """Return a matrix for JSON, with nothing above the diagonal."""
    return [[None if np.isnan(value) else float(value) for value in row] for row in matrix]
