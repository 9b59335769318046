"""One task of hyperbolic.py, as a worker process does it: train a model, score it, leave a record."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import all_methods_tasks
from all_methods_tables import EXTENDED, Record, Task
from all_methods_tasks import HEAD, RECIPE, Settings, images_of, intervals
from limpet.data.scenarios import SCENARIOS
from limpet.embeddings import EmbeddingSet, storage
from limpet.evaluation.retrieval import rank_metrics
from limpet.methods import METHODS
from limpet.models.release import Release
from limpet.training.encode import cached_embeddings, embed_images
from limpet.training.experiment import Experiment, Geometry
from limpet.training.train import train_release, train_upgrade
from task_pool import write_json

LORENTZ, HYPERSPHERE = "lorentz", "hypersphere"
DATA = "extended-data"
COMPARED = (EXTENDED, DATA)
COMPARED_IN = {"tune": (EXTENDED,), "final": COMPARED}
METRICS = ("cmc@1", "map")
MODEL = all_methods_tasks.MODEL.model_copy(update={"projection": "linear-bn"})
"""Batch normalisation after the projection, for both: hyperbolic models learn more slowly without it."""
SPACES: dict[str, dict[str, Any]] = {LORENTZ: {"geometry": Geometry(LORENTZ)}, HYPERSPHERE: {"head": HEAD}}
NEW_CLIP = 1.2
"""Radius of a new Lorentz model's clip; the independent one has no predecessor from which it could follow."""


@dataclass(frozen=True)
class Row:
    """One row of the tables: a method with the options that make it this row."""

    title: str
    geometry: str
    method: str = "independent"
    options: dict[str, Any] = field(default_factory=dict)


ROWS = {
    "old_lorentz": Row("old", LORENTZ),
    "independent_lorentz": Row("independent", LORENTZ),
    "hbct": Row("hbct", LORENTZ, "hbct"),
    "hbct_without_entailment": Row("hbct without entailment", LORENTZ, "hbct", {"entail_weight": 0.0}),
    "hbct_infonce": Row("hbct with InfoNCE", LORENTZ, "hbct", {"contrast": "infonce"}),
    "hbct_infonce_without_entailment": Row(
        "hbct with InfoNCE, without entailment", LORENTZ, "hbct", {"contrast": "infonce", "entail_weight": 0.0}
    ),
    "old_hypersphere": Row("old", HYPERSPHERE),
    "independent_hypersphere": Row("independent", HYPERSPHERE),
    **{name: Row(name, HYPERSPHERE, name) for name in ("l2", "bct", "hot_refresh", "advbct", "hoc", "p2s")},
}
REFERENCES = tuple(name for name, row in ROWS.items() if row.method == "independent")
RIVALS = tuple(name for name in ROWS if name not in REFERENCES)


def old_of(geometry: str) -> str:
    return f"old_{geometry}"


def independent_of(geometry: str) -> str:
    return f"independent_{geometry}"


def tuned_as(row: str) -> str:
    """Return the row whose tuning a row shares: the plain one of its method."""
    return ROWS[row].method


def options_of(task: Task) -> dict[str, Any]:
    """Return the method's options: those of its row, and the tuned one."""
    row = ROWS[task.method]
    if task.value is None:
        return dict(row.options)
    return {**row.options, METHODS[row.method].balance or "": task.value}


def perform(task: Task, settings: Settings) -> Record:
    """Train one model, score it, write its record, and remove what nobody needs any more."""
    started = time.perf_counter()
    train, searched = images_of(task.phase, settings)
    release, seen = trained(task, settings)
    training_seconds = time.perf_counter() - started
    found = score(task, embed_images(release, searched), settings)
    record = {
        **task._asdict(), "options": options_of(task), **found,
        "head": release.record.head, "zeta": release.encoder.spec.zeta, "space": release.record.space,
        "classes": len(np.unique(train.labels[seen])), "images": len(seen),
        "searched_classes": len(np.unique(searched.labels)), "searched": len(searched),
        "training_seconds": training_seconds, "seconds": time.perf_counter() - started,
    }  # fmt: skip
    write_json(settings.work / "records" / f"{task.name}.json", record)
    if task.method != old_of(ROWS[task.method].geometry):
        shutil.rmtree(home(task, settings) / task.name)
    return record


def home(task: Task, settings: Settings, scenario: str | None = None) -> Path:
    """Return the folder of one old model, with what its successors share."""
    parts = (task.phase, str(task.seed), task.scenario if scenario is None else scenario, ROWS[task.method].geometry)
    return settings.work / "-".join(filter(None, parts))


def trained(task: Task, settings: Settings) -> tuple[Release, np.ndarray]:
    """Return the model, and the rows of the training set it saw."""
    row, (train, _), folder = ROWS[task.method], images_of(task.phase, settings), home(task, settings)
    recipe = replace(RECIPE, epochs=settings.epochs_of(task.phase))
    base = Experiment(model=MODEL, recipe=recipe, seed=task.seed, **SPACES[row.geometry])
    if task.method == independent_of(row.geometry):
        model = MODEL.model_copy(update={"zeta": NEW_CLIP}) if row.geometry == LORENTZ else MODEL
        return train_release(train, replace(base, model=model), folder / task.name), np.arange(len(train))
    split = SCENARIOS[task.scenario].divide(train.labels, seed=task.seed)
    if task.method == old_of(row.geometry):
        release = train_upgrade(train, split, base, {}, folder)["old"]
        for rows in (split.old, split.new):  # embedded once, for all new models
            cached_embeddings(release, train[rows].compact(), folder / "cache")
        return release, split.old
    new = replace(base, method=row.method, method_options=options_of(task))
    return train_upgrade(train, split, base, {task.name: new}, folder)[task.name], split.new


def score(task: Task, embedded: EmbeddingSet, settings: Settings) -> dict[str, Any]:
    """Return the means of a model, alone and on the old galleries; an old one leaves what the new ones need."""
    own = rank_metrics(embedded, embedded, METRICS, exclude_same_id=True)
    found: dict[str, Any] = {"self": means(own)}
    if task.method == old_of(ROWS[task.method].geometry):
        storage.save(embedded, home(task, settings) / "gallery.safetensors")
        np.savez(home(task, settings) / "self_old.npz", **own)
        return found
    found |= {"cross": {}, "cross_minus_self_old": {}}
    for scenario in (task.scenario,) if task.scenario else COMPARED_IN[task.phase]:
        folder = home(task, settings, scenario)
        cross = rank_metrics(embedded, storage.load(folder / "gallery.safetensors"), METRICS, exclude_same_id=True)
        with np.load(folder / "self_old.npz") as old:
            differences = {metric: intervals(cross[metric], old[metric], embedded, task.seed) for metric in METRICS}
        found["cross"][scenario], found["cross_minus_self_old"][scenario] = means(cross), differences
    return found


def means(values: dict[str, Any]) -> dict[str, float]:
    return {metric: float(np.mean(values[metric])) for metric in METRICS}
