"""What tasks of each kind do."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.bench import picture_steps
from holdfast.bench.executor import Place, Step
from holdfast.bench.figures import ACCURACY
from holdfast.bench.settings import experiment_on, starting_model
from holdfast.bench.sources import (
    EVALUATION,
    Settings,
    open_images,
    open_setting,
    open_texts,
    protocol_digest,
    protocol_of,
    searched,
)
from holdfast.bench.stored_sides import (
    LEARNER,
    RUN,
    SEARCHED,
    each_once,
    ending_of,
    laid_onto,
    query_path,
    read_sides,
    released,
    stored,
)
from holdfast.continual.results import LearnerResults
from holdfast.continual.runner import run_sessions
from holdfast.data.image_set import ImageSet
from holdfast.data.text_set import TextSet
from holdfast.disk import whole_folder
from holdfast.embeddings import EmbeddingSet, StringArray, storage
from holdfast.errors import DataError
from holdfast.evaluation.accuracy import accuracy as classification_accuracy
from holdfast.evaluation.compatibility import clearly_worse, verdict
from holdfast.evaluation.intervals import clusters_of, counted_clusters, groups_drawn, mean_intervals
from holdfast.models.release import Release

FIRST = "session-1"


def first_session(settings: Settings, place: Place) -> dict[str, Any]:
    """Train the model that all learners of a plan begin with, and embed its gallery."""
    setting = open_setting(settings, place.root)
    start = starting_model(settings)
    experiment = experiment_on(settings["experiment"], place.device, place.root, settings["machine"], start)
    (record,) = run_sessions(setting, {LEARNER: experiment}, place.folder / RUN, sessions=1, encoder=start)[LEARNER]
    return {"fingerprint": record.fingerprint, "images": record.trained_images, "recall": record.recall}


def sessions(settings: Settings, place: Place) -> dict[str, Any]:
    """Train one learner through all sessions of a plan; with "first" in its needs, from that first session on."""
    setting = open_setting(settings, place.root)
    start = starting_model(settings)
    experiment = experiment_on(settings["experiment"], place.device, place.root, settings["machine"], start)
    if "first" in place.needs:
        hand_over(place.needs["first"] / RUN / FIRST, place.folder / RUN / FIRST)
    records = run_sessions(setting, {LEARNER: experiment}, place.folder / RUN, encoder=start)[LEARNER]
    learner = LearnerResults.of(experiment, records)
    recall = {f"ar@{k}": value for k, value in learner.average_recall.items()}
    last = {"last": records[-1].recall["1"], "forgetting": learner.forgetting}
    known = records[0].seconds.training if "first" in place.needs else 0.0  # that task's
    return {
        "scores": {**recall, **last},
        "sessions": [record.to_dict() for record in records],
        "seconds": learner.seconds - known,
    }


def hand_over(first: Path, folder: Path) -> None:
    """Copy a finished first session to where `run_sessions` looks for it, wholly or not at all."""
    if folder.exists():
        return
    with whole_folder(folder, "bench") as part:
        shutil.copytree(first, part, dirs_exist_ok=True)


def train(settings: Settings, place: Place) -> dict[str, Any]:
    """Train a model on the rows of "train_on"; with "old" in its needs, as that one's successor.

    "old_trained_on" are the rows that the predecessor was trained on, "machine" the settings of the recipe that change
    no result.
    """
    from holdfast.training.run_state import load_history
    from holdfast.training.train import train_release

    images = open_images(settings["data"], place.root).to_train_on()
    rows, old_rows = settings["train_on"], settings["old_trained_on"]
    start = starting_model(settings)
    experiment = experiment_on(settings["experiment"], place.device, place.root, settings["machine"], start)
    old = released(place, "old") if "old" in place.needs else None
    release = train_release(
        images.select(rows).compact(),
        experiment,
        place.folder / "release",
        old=old,
        old_images=None if old is None else images.select(old_rows).compact(),
        encoder=start,
        data_name=settings["data"]["name"],
        cache=place.cache,
    )
    history = load_history(place.folder / "release")
    return {
        "fingerprint": release.fingerprint,
        "images": len(rows),
        "classes": len(release.classes),
        "seconds": history.seconds,
        "seen": history.images,
        "waiting": history.waiting,
    }


def embed(settings: Settings, place: Place) -> dict[str, Any]:
    """Embed queries and gallery with the release of "model"."""
    from holdfast.training.encode import embed_images

    data = open_images(settings["data"], place.root)
    release = released(place, "model")
    query, gallery = searched(data, settings["part"])
    device = torch.device(place.device)
    labelled = data.labelled or settings["part"] != EVALUATION

    def embedded(images: ImageSet) -> EmbeddingSet:
        how = {"form": settings["form"], "flip": settings["flip"], "labelled": labelled}
        return embed_images(release, images, device=device, **how)

    found = embedded(gallery)
    storage.save(found, place.folder / "gallery.safetensors")
    storage.save(found if query is gallery else embedded(query), query_path(place.folder))
    return {"queries": len(query), "gallery": len(gallery), "leave_one_out": query is gallery}


def score(settings: Settings, place: Place) -> dict[str, Any]:
    """Score "new" on itself and on the gallery of "searched", and "old" and "independent" beside it."""
    sides = {role: read_sides(place.needs[role]) for role in ("old", "searched", "new", "independent")}
    gallery = laid_onto(sides["searched"][1], place, "model")
    asked = {
        "self_old": sides["old"],
        "self_independent": sides["independent"],
        "self_new": sides["new"],
        "cross": (sides["new"][0], gallery),
    }
    how = settings["protocol"]
    protocol = protocol_of(settings.get("data", {}), how, place.root, leave_one_out=how["leave_one_out"])
    if how.get("digest", protocol_digest(protocol)) != protocol_digest(protocol):
        raise DataError(
            f"The ground truth of '{how['name']}' changed since this run began.",
            expected="the ground truth that was there then",
            to_do="run the suite again; what is trained and embedded is kept.",
        )
    values = {name: protocol.measure(*pair, settings["metrics"]) for name, pair in asked.items()}
    gate = settings["gate_metric"]
    clusters = clusters_of(protocol.unit_labels(sides["old"][0]), "auto", protocol.units, protocol.name)
    gains = {metric: values["cross"][metric] - values["self_old"][metric] for metric in settings["metrics"]}
    clusters = counted_clusters(clusters, "auto", gains[gate])
    intervals = mean_intervals(gains, seed=settings["seed"], clusters=clusters)
    worse = clearly_worse({metric: interval for metric, interval in intervals.items() if metric != gate})
    return {
        "scores": {
            metric: {name: float(np.nanmean(found[metric])) for name, found in values.items()}
            for metric in settings["metrics"]
        },
        "interval": list(intervals[gate]),
        "drawn": groups_drawn(gains[gate], clusters)._asdict(),
        "verdict": verdict(intervals[gate], worse) if protocol.judges else None,
        "worse": worse,
        "queries": len(sides["old"][0]),
    }


def accuracy(settings: Settings, place: Place) -> dict[str, Any]:
    """Measure how often classifiers name the classes of all images that are searched, by queries and gallery alike.

    "cross" is the classifier of "searched_model", whose gallery the new model searches, on the features of the new one.
    """
    asked = {
        "self_old": ("old", "old"),
        "self_independent": ("independent", "independent"),
        "self_new": ("new", "new"),
        "cross": ("searched", "new"),
    }
    values = {
        name: accuracy_of(released(place, f"{reads}_model"), each_once(place.needs[embedded]))
        for name, (reads, embedded) in asked.items()
    }
    return {"scores": {ACCURACY: values}}


def session_accuracy(settings: Settings, place: Place) -> dict[str, Any]:
    """Measure how often the last model of "learner" names the class of a test query, of all classes of the plan."""
    from holdfast.training.encode import embed_images

    setting, folder = open_setting(settings, place.root), place.needs["learner"]
    release = released(place, "learner", f"{RUN}/{ending_of(folder, setting.plan.sessions).release}")
    queries = setting.queries(setting.plan.sessions - 1)
    features = embed_images(release, queries, form="features", device=torch.device(place.device))
    return {"scores": {ACCURACY: {LEARNER: accuracy_of(release, [features])}}}


def accuracy_of(release: Release, parts: Sequence[EmbeddingSet]) -> float | None:
    """Return how often the classifier of a release names the class of an item of these features.

    See `holdfast.evaluation.accuracy.accuracy`.

    Raises:
        DataError: The release has no classifier.
    """
    if release.head is None:
        raise DataError(f"The model {release.fingerprint} has no classifier.", expected="one that was kept")
    found = [(classification_accuracy(release.head, release.classes, release.space, part), len(part)) for part in parts]
    if all(share is None for share, _ in found):
        return None
    return sum((share or 0.0) * items for share, items in found) / sum(items for _, items in found)


def texts(settings: Settings, place: Place) -> dict[str, Any]:
    """Embed all parts of a set of texts with a frozen model, or take them out of "whole", where all are embedded."""
    from holdfast.models.text_encoders import open_text_encoder
    from holdfast.training.encode import embed_texts

    parts = open_texts(settings["data"], place.root).parts()
    if "whole" in place.needs:
        whole = joined([stored(place.needs["whole"], name) for name in TEXT_PARTS])
        for name, part in parts.items():
            storage.save(embedded_of(whole, part), place.folder / f"{name}.safetensors")
        return {name: len(part) for name, part in parts.items()}
    encoder = open_text_encoder(settings["model"], device=place.device, api=place.api)
    for name, part in parts.items():
        storage.save(embed_texts(encoder, part, cache=place.cache), place.folder / f"{name}.safetensors")
    return {name: len(part) for name, part in parts.items()}


def head(settings: Settings, place: Place) -> dict[str, Any]:
    """Train a head over the frozen model of "new" for the gallery of "old", and embed queries and gallery with it."""
    from holdfast.training.compatible_head import train_head

    old, new = ({part: stored(place.needs[role], part) for part in ("train", *SEARCHED)} for role in ("old", "new"))
    experiment = experiment_on(settings["experiment"], place.device)
    trained = train_head(old["train"], new["train"], experiment, place.folder / "release", start=settings["start"])
    for part in SEARCHED:
        storage.save(trained.query(new[part]), place.folder / f"{part}.safetensors")
    classes = 0 if old["train"].labels is None else len(np.unique(old["train"].labels))
    return {"fingerprint": trained.release.fingerprint, "pairs": len(old["train"]), "classes": classes}


TEXT_PARTS = ("train", *SEARCHED)


def joined(parts: Sequence[EmbeddingSet]) -> EmbeddingSet:
    """Return the rows of all parts as one set without labels."""
    ids = StringArray.of(identifier for part in parts for identifier in part.ids)
    vectors = np.concatenate([part.vectors for part in parts])
    return parts[0].replace(ids=ids, vectors=vectors, labels=None, class_names=None)


def embedded_of(whole: EmbeddingSet, part: TextSet) -> EmbeddingSet:
    """Return the rows of some texts, with their labels.

    Raises:
        DataError: A text is not among those that were embedded.
    """
    rows = whole.ids.find(part.ids)
    if (rows < 0).any():
        raise DataError(f"{int((rows < 0).sum())} texts were not embedded.", expected="texts of the whole data set")
    return whole.select(rows).replace(labels=part.labels, class_names=StringArray.of(part.class_names))


STEPS: dict[str, Step] = {
    **{"train": train, "embed": embed, "score": score, "texts": texts, "head": head},
    **{"first-session": first_session, "sessions": sessions},
    **{"accuracy": accuracy, "session-accuracy": session_accuracy},
    **picture_steps.STEPS,
}
"""By the kind of a task."""
