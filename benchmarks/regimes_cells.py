"""One cell of regimes.py: an old model, a new one trained to fit it, and what a search finds, class by class."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from limpet.data.vector_set import VectorSet
from limpet.embeddings import EmbeddingSet
from limpet.evaluation.retrieval import rank_metrics
from limpet.methods.predecessor import class_prototypes
from limpet.models.release import Release
from limpet.models.specs import FeatureSpec
from limpet.training.encode import embed_features
from limpet.training.experiment import Experiment, Geometry, Recipe
from limpet.training.run_state import load_history
from limpet.training.train import CLASSIFIER, train_release
from regimes_data import INTENTS, Items, items_of

CROWDED = 0.6
"""Cosine above which ODPP, by its paper, pushes two prototypes apart."""
PARTS = ("trained", "held_out")


@dataclass(frozen=True)
class Setting:
    """Where the rows of a family are compared.

    Args:
        data: "intents" or "characters".
        classes: Trained classes; the held-out ones are others.
        old_share: Share of the trained classes that the old model learns.
        old_model: What the old model is a head over: "words" or "sentences"; "pixels" of characters.
        old_epochs: Epochs of the old model.
        epochs: Epochs of the new model, and of the independent one.
        dim: Dimension of all embeddings.
        batch: Items per step.
        head: The classifier of the new models; that of old ones is "softmax".
        lorentz: Whether all models are hyperbolic, clipped at 1 and 1.2.
        projection: What new models are over intents; None for a linear layer, as old ones are.
    """

    data: str = INTENTS
    classes: int = 170
    old_share: float = 0.3
    old_model: str = "words"
    old_epochs: int = 10
    epochs: int = 10
    dim: int = 32
    batch: int = 128
    head: str = "softmax"
    lorentz: bool = False
    projection: str | None = None

    @property
    def new_model(self) -> str:
        """What new models are heads over."""
        return "sentences" if self.data == INTENTS else self.old_model

    @property
    def alike(self) -> Setting:
        """The setting without what does not change the old model."""
        return replace(self, epochs=0, batch=0, head="", projection=None)


@dataclass(frozen=True)
class Row:
    """What is trained in a setting.

    Args:
        label: Its name on the page.
        method: A key of `limpet.METHODS`.
        options: Options of the method.
        start: What it starts from instead of random weights: "old first", a classifier that has learned old vectors
            alone; or "new first", the classifier and the network of the independent model.
    """

    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    start: str | None = None


INDEPENDENT = Row("independent", "independent")
ON_OLD = Row("on old vectors", "mixbct", {"ratio": 1.0, "denoise": 1.0})
"""Every new vector is replaced by the old one of its item, so that only the classifier learns."""


@dataclass(frozen=True)
class Place:
    """Where data and results are."""

    root: Path
    work: Path

    def record(self, *parts: Any) -> Path:
        """Return the file of what these values decide."""
        text = json.dumps([plain(part) if hasattr(part, "__dataclass_fields__") else part for part in parts])
        return self.work / "records" / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"

    def folder(self, *parts: Any) -> Path:
        """Return the folder of the model that these values decide."""
        return self.work / "models" / self.record(*parts).stem


def plain(part: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that are set."""
    return {name: value for name, value in asdict(part).items() if value is not None}


def sides(setting: Setting, place: Place) -> tuple[Items, Items]:
    """Return the items of the setting for the old and for the new model."""
    found = []
    for model in (setting.old_model, setting.new_model):
        items = items_of(setting.data, model, place.root, place.work)
        classes = np.unique(items.train.labels)
        chosen = np.random.default_rng(1).permutation(classes)[: setting.classes]
        parts = (one[np.isin(one.labels, chosen)] for one in (items.train, items.trained))
        found.append(Items(*parts, items.held_out))
    return found[0], found[1]


def old_classes(items: Items, setting: Setting, seed: int) -> NDArray[np.int64]:
    """Return the classes that the old model learns."""
    classes = np.unique(items.train.labels)
    return np.sort(np.random.default_rng([seed, 2]).permutation(classes)[: round(setting.old_share * len(classes))])


def experiment(setting: Setting, row: Row, of: EmbeddingSet, seed: int, *, old: bool) -> Experiment:
    """Return how a model of the setting is trained, over the vectors of a frozen model."""
    lorentz, characters = setting.lorentz, setting.data != INTENTS
    spec = FeatureSpec(
        frozen=of.fingerprint,
        width=of.dim,
        dim=setting.dim,
        projection="mlp" if characters else "linear-bn" if lorentz else ((not old and setting.projection) or "linear"),
        zeta=(1.0 if old else 1.2) if lorentz else None,
    )
    recipe = Recipe(
        epochs=setting.old_epochs if old else setting.epochs,
        batch_size=128 if old else setting.batch,
        optimizer="adamw",
        learning_rate=0.004,
        weight_decay=1e-4,
        accelerator="cpu",
    )
    head = None if lorentz else "softmax" if old else setting.head
    space = Geometry(space="lorentz") if lorentz else Geometry()
    return Experiment(row.method, dict(row.options), spec, space, head, recipe=recipe, seed=seed)


def old_release(setting: Setting, seed: int, place: Place) -> Release:
    """Train the old model, or open it; settings of new models do not change it.

    Over the same vectors it starts from other random weights than the new one, or both would be alike unaligned.
    """
    items = sides(setting, place)[0]
    shown = VectorSet.of(items.train[np.isin(items.train.labels, old_classes(items, setting, seed))])
    start = seed if setting.old_model != setting.new_model else seed + 1000
    how = experiment(setting, INDEPENDENT, items.train, start, old=True)
    return train_release(shown, how, place.folder(setting.alike, "old", seed))


def old_facts(setting: Setting, seed: int, place: Place) -> dict[str, Any]:
    """Measure the old model: its search, and how well it tells the classes of the new training set apart."""
    file = place.record(setting.alike, "old", seed)
    if file.exists():
        return dict(json.loads(file.read_text()))
    items, release = sides(setting, place)[0], old_release(setting, seed, place)
    parts = {part: embed_features(release, getattr(items, part)) for part in PARTS}
    train = VectorSet.of(embed_features(release, items.train))
    names = list(train.class_names)
    known = {str(one) for one in np.array(items.train.class_names)[old_classes(items, setting, seed)]}
    unseen = np.array([name not in known for name in names])
    record: dict[str, Any] = {
        "self": {part: by_class(one, one) for part, one in parts.items()},
        "unseen": unseen.tolist(),
    }
    if not setting.lorentz:
        prototypes, _ = class_prototypes(train.embeddings, release.space)
        record |= confusion(prototypes.numpy(), parts["trained"], names, unseen)
    else:
        record |= lengths(release, items.trained, known)
    return written(file, record)


def confusion(
    prototypes: NDArray[np.float32], searched: EmbeddingSet, names: list[str], unseen: NDArray[np.bool_]
) -> dict[str, float]:
    """Return how well class means tell items apart: shares of new items of all classes, and of those new to the model.

    ``crowded`` is the share of ordered pairs of prototypes above `CROWDED`, ``nearest`` the mean cosine of a prototype
    to the nearest other one.
    """
    place = {name: row for row, name in enumerate(names)}
    labels = np.array([place[str(name)] for name in np.array(searched.class_names)[searched.labels]])
    wrong = (np.asarray(searched.vectors) @ prototypes.T).argmax(axis=1) != labels
    cosines = prototypes @ prototypes.T
    others = cosines[~np.eye(len(cosines), dtype=bool)]
    np.fill_diagonal(cosines, -1)
    return {
        "confused": float(wrong.mean()),
        "confused_unseen": float(wrong[unseen[labels]].mean()) if unseen.any() else float(wrong.mean()),
        "crowded": float((others > CROWDED).mean()),
        "nearest": float(cosines.max(axis=1).mean()),
    }


def lengths(release: Release, searched: EmbeddingSet, known: set[str]) -> dict[str, float]:
    """Return the clipped shares of new items by whether the model knows their class, and how well lengths tell."""
    found = np.linalg.norm(embed_features(release, searched, form="features").vectors, axis=1)
    seen = np.isin(np.array(searched.class_names)[searched.labels], list(known))
    clipped = found >= found.max() * (1 - 1e-4)
    return {
        "clipped_seen": float(clipped[seen].mean()),
        "clipped_unseen": float(clipped[~seen].mean()),
        "auc": float(roc_auc_score(~seen, -found)),
    }


def cell(setting: Setting, row: Row, seed: int, place: Place) -> dict[str, Any]:
    """Train one new model and measure it, or read what was measured.

    The independent model knows nothing of the old one: its settings change it only by the gallery that it searches.
    """
    file = place.record(setting, row, seed)
    if file.exists():
        return dict(json.loads(file.read_text()))
    started = time.process_time()
    before, after = sides(setting, place)
    old = old_release(setting, seed, place)
    release, folder = new_release(setting, row, seed, place)
    found: dict[str, Any] = {"self": {}, "cross": {}}
    for part in PARTS:
        new = embed_features(release, getattr(after, part))
        gallery = embed_features(old, getattr(before, part))
        found["self"][part], found["cross"][part] = by_class(new, new), by_class(new, gallery)
        if part == "trained" and row.method == "advbct":
            found["told_apart"] = told_apart(np.asarray(new.vectors), np.asarray(gallery.vectors))
    moved = [epoch["degrees moved"] for epoch in load_history(folder).epochs if "degrees moved" in epoch]
    if moved:
        found["degrees"] = moved[-1]
    return written(file, {**found, "seconds": time.process_time() - started})


def new_release(setting: Setting, row: Row, seed: int, place: Place) -> tuple[Release, Path]:
    """Train a new model, or open it, and return it with its folder."""
    before, after = sides(setting, place)
    alone = row.method == "independent"
    alike = replace(setting, old_share=0.0, old_epochs=0) if alone and row.start is None else setting
    folder = place.folder(alike, row, seed)
    given: dict[str, Any] = {}
    if not alone:
        given = {"old": old_release(setting, seed, place), "old_embeddings": VectorSet.of(before.train).embeddings}
    if row.start is not None:
        first, _ = new_release(setting, ON_OLD if row.start == "old first" else INDEPENDENT, seed, place)
        if first.head is None:
            raise RuntimeError(f"the model that '{row.label}' starts from kept no classifier")
        given["start"] = {f"{CLASSIFIER}.{name}": value for name, value in first.head.state_dict().items()}
        if row.start == "new first":
            given["start"] |= first.encoder.state_dict()
    how = experiment(setting, row, after.train, seed, old=False)
    return train_release(VectorSet.of(after.train), how, folder, **given), folder


def finished_cell(setting: Setting, row: Row, seed: int, place: Place) -> bool:
    """Return whether a cell was measured."""
    return place.record(setting, row, seed).exists()


def by_class(query: EmbeddingSet, gallery: EmbeddingSet) -> list[float]:
    """Return the mean average precision of every class, no item asking for itself, in the order of labels."""
    found = rank_metrics(query, gallery, ("map",), exclude_same_id=True)["map"]
    return [float(found[query.labels == label].mean()) for label in np.unique(query.labels)]


def told_apart(new: NDArray[np.float32], old: NDArray[np.float32]) -> float:
    """Return how often a linear classifier, fitted on half of the items, names the model that made a vector."""
    rows = np.random.default_rng(0).permutation(len(new))
    fitted, asked = np.array_split(rows, 2)
    sides = [(np.concatenate([new[part], old[part]]), np.repeat([0, 1], len(part))) for part in (fitted, asked)]
    return float(LogisticRegression(max_iter=200).fit(*sides[0]).score(*sides[1]))


def written(file: Path, record: dict[str, Any]) -> dict[str, Any]:
    """Write a record whole or not at all, and return it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(record))
    part.replace(file)
    return record


def one_thread() -> None:
    """Let others have the other cores."""
    torch.set_num_threads(1)
