"""What the tasks of pictures do; `holdfast.bench.pictures` asks for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from holdfast.bench.executor import Place, Step
from holdfast.bench.sources import Settings, open_images, open_setting, protocol_of, searched
from holdfast.bench.stored_sides import RUN, ending_of, laid_onto, read_sides, released
from holdfast.continual.plans import Setting
from holdfast.data.image_set import ImageSet
from holdfast.embeddings import EmbeddingSet, storage
from holdfast.evaluation.pictures import thumbnails
from holdfast.evaluation.pictures.answered_classes import with_answered_classes
from holdfast.evaluation.pictures.embedding_map import (
    NEW,
    OLD,
    choose_classes,
    embedding_map,
    prototypes_of,
    rows_of_classes,
)
from holdfast.evaluation.pictures.histograms import histograms
from holdfast.evaluation.pictures.strips import Searched, Strips, choose_strips
from holdfast.losses.denoising import credible_rows
from holdfast.methods.predecessor import labelled_features
from holdfast.models.release import Release
from holdfast.training.encode import cached_embeddings, embed_images

MOST = 50_000
"""Items of a histogram at most, drawn by its seed: more give the same shape."""


class Sides(NamedTuple):
    """The same items by the old model and by every new one, by its label; new ones may be a part of them."""

    old: EmbeddingSet
    new: Mapping[str, EmbeddingSet]


class Items:
    """The items of a picture of an upgrade, as its models embed them: a gallery, or the images of training.

    Args:
        settings: Those of the task.
        place: Where it is run.
    """

    def __init__(self, settings: Settings, place: Place) -> None:
        self.settings, self.place = settings, place
        self.roles = {label: f"model {number}" for number, label in enumerate(settings["labels"])}
        self.device = torch.device(place.device)

    @property
    def old_model(self) -> Release:
        """The old model."""
        return released(self.place, "old model")

    def images(self) -> ImageSet:
        """Return the images of training."""
        images = open_images(self.settings["data"], self.place.root).to_train_on()
        return images.select(self.settings["train_on"]).compact()

    def old(self) -> EmbeddingSet:
        """Return all items by the old model, on the space of the new ones, with labels where there are any."""
        if self.settings["part"] == "training":  # the file that training may have left is opened
            found = cached_embeddings(self.old_model, self.images(), self.place.cache, device=self.device)
        else:
            query, gallery = read_sides(self.place.needs["old"])
            how = self.settings["protocol"]
            protocol = protocol_of(self.settings["data"], how, self.place.root, leave_one_out=how["leave_one_out"])
            found = gallery if gallery.labels is not None else with_answered_classes(gallery, query, protocol)
        return laid_onto(found, self.place, "model 0")

    def new(self, old: EmbeddingSet, rows: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, EmbeddingSet]:
        """Return some of the items by every new model, by its label; without items where none is asked for."""
        chosen = old.select(rows)
        if self.settings["part"] == "training":
            images = self.images().select(rows)
            return {
                label: embed_images(released(self.place, role), images, device=self.device)
                for label, role in self.roles.items()
            }
        found = {}
        for number, label in enumerate(self.roles):
            gallery = read_sides(self.place.needs[f"new {number}"])[1]
            part = gallery.select(gallery.ids.find(chosen.ids))
            found[label] = part.replace(labels=chosen.labels, class_names=chosen.class_names)
        return found


def plane(settings: Settings, place: Place) -> dict[str, Any]:
    """Lay out a few classes by the old and by the new models, an example after the other."""
    items, seed = Items(settings, place), settings["seed"]
    old = items.old()
    prototypes = prototypes_of(old)
    named = settings["classes"] if isinstance(settings["classes"], list) else None
    ways = {"drawn": settings["classes"], "similar": settings["similar"], "nearest": settings["nearest"]}
    if all(number is None for number in ways.values()):
        ways["drawn"] = CLASSES
    chosen = [named] if named else choose_classes(prototypes, **ways, examples=settings["examples"], seed=seed)
    noise = [] if settings["credible"] is None else noisy_ids(old, settings["credible"])
    planes = []
    for classes in chosen:
        rows = rows_of_classes(old, classes, settings["items"], seed)
        new = items.new(old, rows) if NEW in settings["show"] else {}
        how = {"layout": settings["method"], "show": settings["show"], "apart": settings["apart"], "seed": seed}
        planes.append(embedding_map(old.select(rows), new, prototypes, classes, noise=noise, **how).to_dict())
    return {"planes": planes}


CLASSES = 6
"""Classes that are drawn where nothing is said."""


def noisy_ids(old: EmbeddingSet, share: float) -> list[str]:
    """Return the ids of the items that MixBCT's denoising leaves out, which keeps a share of every class."""
    credible = credible_rows(*labelled_features(old), share).numpy()
    return list(old.ids[np.flatnonzero(~credible)])


def histogram(settings: Settings, place: Place) -> dict[str, Any]:
    """Count values of single items, by the old model and by every new one."""
    items = Items(settings, place)
    generator = np.random.default_rng(settings["seed"])
    if settings["part"] == "training":
        images = items.images()
        rows = np.sort(generator.permutation(len(images))[:MOST])
        old = embed_images(items.old_model, images.select(rows), device=items.device)
        old = laid_onto(old, place, "model 0")
        new = {
            label: embed_images(released(place, role), images.select(rows), device=items.device)
            for label, role in items.roles.items()
        }
    else:
        whole = laid_onto(read_sides(place.needs["old"])[1], place, "model 0")
        rows = np.sort(generator.permutation(len(whole))[:MOST])
        old = whole.select(rows)
        new = {label: read_sides(place.needs[f"new {n}"])[1].select(rows) for n, label in enumerate(items.roles)}
    classes = items.old_model.classes if settings["split"] else None
    both = settings["of"] == "angle"
    found = histograms(settings["of"], old, new if both or NEW in settings["show"] else {}, classes)
    if OLD not in settings["show"] and not both:
        found = found.model_copy(update={"panels": {name: one for name, one in found.panels.items() if name != OLD}})
    return {"histograms": found.to_dict()}


def strips(settings: Settings, place: Place) -> dict[str, Any]:
    """Search the old gallery by the old model and by every new one, and keep a few queries."""
    old = read_sides(place.needs["old"])
    models = {OLD_MODEL: Searched(old[0], [old[1]])}
    for number, label in enumerate(settings["labels"]):
        gallery = laid_onto(old[1], place, f"model {number}")
        models[label] = Searched(read_sides(place.needs[f"new {number}"])[0], [gallery])
    chosen = choose_strips(models, queries=settings["queries"], hits=settings["hits"], seed=settings["seed"])
    images = searched(open_images(settings["data"], place.root), settings["searched"])
    return {"strips": with_pictures(chosen, images).to_dict()}


OLD_MODEL = "old model"


def session_strips(settings: Settings, place: Place) -> dict[str, Any]:
    """Search what learners embedded by then, after the last session or after every one, and keep a few queries."""
    setting = open_setting(settings, place.root)
    last = setting.plan.sessions
    every = settings["after"] == "every"
    queries = setting.queries(0 if every else last - 1)
    models = dict(_searched_by_sessions(settings, place, setting, queries, range(1 if every else last, last + 1)))
    chosen = choose_strips(models, queries=settings["queries"], hits=settings["hits"], seed=settings["seed"])
    return {"strips": with_pictures(chosen, (queries, setting.images)).to_dict()}


def _searched_by_sessions(
    settings: Settings, place: Place, setting: Setting, queries: ImageSet, sessions: range
) -> Iterator[tuple[str, Searched]]:
    for number, label in enumerate(settings["labels"]):
        role = f"learner {number}"
        folder = place.needs[role]
        for session in sessions:
            ending = ending_of(folder, session)
            release = released(place, role, f"{RUN}/{ending.release}")
            asked = embed_images(release, queries, device=torch.device(place.device))
            gallery = [storage.load(folder / RUN / part) for part in ending.galleries]
            yield label if len(sessions) == 1 else f"{label}, session {session}", Searched(asked, gallery)


def with_pictures(found: Strips, images: Iterable[ImageSet]) -> Strips:
    """Return strips with small pictures of all their items, of whichever set knows them."""
    from base64 import b64encode

    pixels: dict[str, Any] = {}
    for part in images:
        rows = part.ids.find(found.ids)
        known = np.flatnonzero(rows >= 0)
        pixels = dict(zip([found.ids[row] for row in known], part.read(rows[known]), strict=True)) | pixels
    files = thumbnails.thumbnails(pixels)
    return found.model_copy(update={"pictures": {name: b64encode(file).decode() for name, file in files.items()}})


def arrivals(settings: Settings, place: Place) -> dict[str, Any]:
    """Count the images of every class that a plan brings in every session."""
    setting = open_setting(settings, place.root)
    order = np.argsort(setting.home, kind="stable")
    counts = setting.plan.training_counts[setting.plan.classes_seen(setting.plan.sessions - 1)]
    return {
        "classes": [setting.images.class_names[row] for row in order],
        "home": (setting.home[order] + 1).tolist(),
        "images": counts[order].T.tolist(),
    }


STEPS: dict[str, Step] = {
    "plane": plane,
    "histogram": histogram,
    "strips": strips,
    "session-strips": session_strips,
    "arrivals": arrivals,
}
"""By the kind of a task."""
