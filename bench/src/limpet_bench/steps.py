"""Implementations of all kinds of tasks, and functions that read their outputs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
from pydantic import JsonValue

from limpet import Release, embed_images, open_release
from limpet.adapters import build_adapter
from limpet.data import ImageSet, TextSet
from limpet.embeddings import EmbeddingSet, StringArray, as_points, joined, storage
from limpet.errors import DataError
from limpet.evaluation import (
    Draws,
    FirstHits,
    Verdict,
    clearly_worse,
    clusters_of,
    groups_drawn,
    verdict,
)
from limpet.evaluation.thumbnails import thumbnails
from limpet.geometry import space_from_record
from limpet.methods import build_method, credible_rows, labelled_features
from limpet.models import lift_embeddings, load_record, needs_module
from limpet.support import whole_folder
from limpet.training import cached_embeddings
from limpet_bench.accuracy import accuracy as classification_accuracy
from limpet_bench.figures import ACCURACY
from limpet_bench.pictures.answered_classes import with_answered_classes
from limpet_bench.pictures.embedding_map import (
    NEW,
    OLD,
    EmbeddingMap,
    choose_classes,
    embedding_map,
    prototypes_of,
    rows_of_classes,
)
from limpet_bench.pictures.histograms import Histograms, histograms
from limpet_bench.pictures.strips import Searched, Strips, choose_strips
from limpet_bench.places import Place, Step
from limpet_bench.sessions.plans import Setting
from limpet_bench.sessions.results import LearnerResults
from limpet_bench.sessions.runner import Ending, run_sessions
from limpet_bench.settings import experiment_on, proven_model, starting_model
from limpet_bench.sources import (
    EVALUATION,
    Settings,
    open_images,
    open_items,
    open_setting,
    protocol_digest,
    protocol_of,
    searched,
)

SEARCHED = ("query", "gallery")
RUN, LEARNER = "run", "learner"

Sides = tuple[EmbeddingSet, EmbeddingSet]


def read_sides(folder: Path) -> Sides:
    """Return queries and gallery of a task."""
    query, gallery = (stored(folder, part) for part in SEARCHED)
    return query, gallery


def each_once(folder: Path) -> list[EmbeddingSet]:
    """Return queries and gallery of a task, or one of them if they are the same items."""
    query, gallery = read_sides(folder)
    return [gallery] if query.ids == gallery.ids else [query, gallery]


def stored(folder: Path, part: str) -> EmbeddingSet:
    """Return one part that a task embedded."""
    return storage.load(folder / f"{part}.safetensors")


MAPPED = "mapped.safetensors"
"""File of the mapped old gallery, for a row that maps it."""

CROSS_QUERY = "cross-query.safetensors"
"""File of the queries for the old gallery, if they differ from those after a backfill."""


def laid_onto(old: EmbeddingSet, place: Place, role: str) -> EmbeddingSet:
    """Return a gallery as a model searches it: unchanged, or lifted to the space of the model if that differs.

    A row that maps the old gallery did so already. A gallery of fewer dimensions is padded with zeros, because its
    successor was trained with more.
    """
    lifted = "release/old-lifted"
    if (place.needs[role] / MAPPED).exists():
        return storage.load(place.needs[role] / MAPPED)
    if not (place.needs[role] / "release").exists():  # an adapter, which maps queries
        return old
    if not (place.needs[role] / lifted / "config.json").exists():
        space = space_from_record(load_record(place.needs[role] / "release").space)
        return old.padded(space) if space.pads(old.space) else old
    laid = released(place, role, lifted)
    return old if old.space == laid.space else lift_embeddings(old, laid)


def released(place: Place, role: str, within: str = "release") -> Release:
    """Return the release that a task trained."""
    folder = place.needs[role] / within
    return open_release(folder, place.started_from.get(role) if needs_module(folder) else None)


def ending_of(folder: Path, session: int) -> Ending:
    """Return the ending of a session of a task's learner; sessions count from 1."""
    return Ending.read(folder / RUN / LEARNER / f"session-{session}" / "session.json")


FIRST = "session-1"


class Trained(TypedDict, total=False):
    """Record of a training: model, amount of data, and total time including interrupted parts."""

    fingerprint: str
    images: int
    pairs: int
    labels: int
    classes: int
    gallery: str
    recall: Mapping[str, float]
    seconds: float
    seen: int
    waiting: float


class SessionScores(TypedDict):
    """Results of a learner, per session, with the time taken."""

    scores: dict[str, float | None]
    sessions: list[dict[str, JsonValue]]
    seconds: float


class Scores(TypedDict):
    """Scores by metric and system, with the verdict on the gate metric."""

    scores: dict[str, dict[str, float]]
    interval: list[float]
    drawn: dict[str, str | int]
    verdict: Verdict | None
    worse: tuple[str, ...]
    first_hits: dict[str, JsonValue] | None
    queries: int


def first_session(settings: Settings, place: Place) -> Trained:
    """Train the first model that all learners of a plan share, and embed its gallery."""
    setting = open_setting(settings, place.root)
    start = starting_model(settings)
    experiment = experiment_on(settings["experiment"], place.device, place.root, settings["machine"], start)
    (record,) = run_sessions(setting, {LEARNER: experiment}, place.folder / RUN, sessions=1, encoder=start)[LEARNER]
    return {"fingerprint": record.fingerprint, "images": record.trained_images, "recall": record.recall}


def sessions(settings: Settings, place: Place) -> SessionScores:
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
    known = records[0].seconds.training if "first" in place.needs else 0.0  # counted by that task
    return {
        "scores": {**recall, **last},
        "sessions": [record.to_dict() for record in records],
        "seconds": learner.seconds - known,
    }


def hand_over(first: Path, folder: Path) -> None:
    """Copy a finished first session atomically to where `run_sessions` expects it."""
    if folder.exists():
        return
    with whole_folder(folder, "bench") as part:
        shutil.copytree(first, part, dirs_exist_ok=True)


def train(settings: Settings, place: Place) -> Trained:
    """Train a model on the rows of "train_on"; as the successor of "old" if that is needed.

    "old_trained_on" are the rows that the predecessor was trained on, "machine" the settings of the recipe that change
    no result.
    """
    from limpet import train_release
    from limpet.training import load_history

    images = open_images(settings["data"], place.root).to_train_on()
    rows, old_rows = settings["train_on"], settings["old_trained_on"]
    start = starting_model(settings)
    experiment = experiment_on(settings["experiment"], place.device, place.root, settings["machine"], start)
    old = released(place, "old") if "old" in place.needs else None
    release = train_release(
        images[rows].compact(),
        experiment,
        place.folder / "release",
        old=old,
        old_images=None if old is None else images[old_rows].compact(),
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


def embed(settings: Settings, place: Place) -> dict[str, int]:
    """Embed queries and gallery with the release of "model"."""
    data = open_images(settings["data"], place.root)
    release = released(place, "model")
    query, gallery = searched(data, settings["part"])
    how = {"device": torch.device(place.device), "form": settings["form"], "flip": settings["flip"]}
    how["labelled"] = data.labelled or settings["part"] != EVALUATION
    found = embed_images(release, gallery, **how)
    storage.save(found, place.folder / "gallery.safetensors")
    storage.save(found if query is gallery else embed_images(release, query, **how), place.folder / "query.safetensors")
    return {"queries": len(query), "gallery": len(gallery), "leave_one_out": query is gallery}


def score(settings: Settings, place: Place) -> Scores:
    """Score "new" on its own gallery and on that of "searched", and "old" and "independent" on their own."""
    sides = {role: read_sides(place.needs[role]) for role in ("old", "searched", "new", "independent")}
    gallery = laid_onto(sides["searched"][1], place, "model")
    through = place.needs["new"] / CROSS_QUERY
    asked = {
        "self_old": sides["old"],
        "self_independent": sides["independent"],
        "self_new": sides["new"],
        "cross": (storage.load(through) if through.exists() else sides["new"][0], gallery),
    }
    how = settings["protocol"]
    protocol = protocol_of(settings.get("data", {}), how, place.root, leave_one_out=how["leave_one_out"])
    if how.get("digest", protocol_digest(protocol)) != protocol_digest(protocol):
        raise DataError(
            f"The ground truth of '{how['name']}' changed since this run began.",
            expected="the ground truth that was there then",
            to_do="run the suite again; what is trained and embedded is kept.",
        )
    answers = protocol.answer_metrics()
    names = list(dict.fromkeys((*settings["metrics"], *answers)))
    values = {name: protocol.measure(*pair, names) for name, pair in asked.items()}
    gate = settings["gate_metric"]
    clusters = clusters_of(protocol.unit_labels(sides["old"][0]), "auto", protocol.units, protocol.name)
    gains = {metric: values["cross"][metric] - values["self_old"][metric] for metric in settings["metrics"]}
    draws = Draws(seed=settings["seed"], clusters=clusters).counting(gains[gate], "auto")
    intervals = draws.intervals(gains)
    worse = clearly_worse({metric: interval for metric, interval in intervals.items() if metric != gate})
    old, cross = values["self_old"], values["cross"]
    hits = next((FirstHits.of(answer, old[answer], cross[answer], draws) for answer in answers), None)
    marks = asked["cross"][0].trained_on
    share = 0.0 if marks is None else float(marks.mean())
    return {
        "scores": {
            metric: {name: float(np.nanmean(found[metric])) for name, found in values.items()}
            for metric in settings["metrics"]
        },
        "interval": list(intervals[gate]),
        "drawn": groups_drawn(gains[gate], draws.clusters)._asdict(),
        "verdict": verdict(intervals[gate], worse, trained_share=share) if protocol.judges else None,
        "worse": worse,
        "first_hits": None if hits is None else hits.to_dict(),
        "queries": len(sides["old"][0]),
    }


def accuracy(settings: Settings, place: Place) -> dict[str, dict[str, dict[str, float | None]]]:
    """Measure the accuracy of classifiers on all searched images, over queries and gallery together.

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


def session_accuracy(settings: Settings, place: Place) -> dict[str, dict[str, dict[str, float | None]]]:
    """Measure the accuracy of the last model of "learner" on test queries, over all classes of the plan."""
    setting, folder = open_setting(settings, place.root), place.needs["learner"]
    release = released(place, "learner", f"{RUN}/{ending_of(folder, setting.plan.sessions).release}")
    queries = setting.queries(setting.plan.sessions - 1)
    features = embed_images(release, queries, form="features", device=torch.device(place.device))
    return {"scores": {ACCURACY: {LEARNER: accuracy_of(release, [features])}}}


def accuracy_of(release: Release, parts: Sequence[EmbeddingSet]) -> float | None:
    """Return the accuracy of the classifier of a release on these features.

    See `limpet_bench.accuracy.accuracy`.

    Raises:
        DataError: The release has no classifier.
    """
    if release.head is None:
        raise DataError(f"The model {release.fingerprint} has no classifier.", expected="one that was kept")
    found = [(classification_accuracy(release.head, release.classes, release.space, part), len(part)) for part in parts]
    if all(share is None for share, _ in found):
        return None
    return sum((share or 0.0) * items for share, items in found) / sum(items for _, items in found)


UNLABELLED = "unlabelled"

Embedder = Callable[[Any], EmbeddingSet]
"""Function that embeds one part of a set of texts or images."""


def each_part(settings: Settings, place: Place, opened: Callable[[Settings, Place], Embedder]) -> dict[str, int]:
    """Embed all parts with a frozen model and save them; queries that are the gallery are embedded once.

    If the task needs "whole", which embedded all items, the parts are selected from it.
    """
    items = open_items(settings["data"], place.root)
    if "whole" in place.needs:
        folder = place.needs["whole"]
        embed: Embedder = partial(embedded_of, without_labels([stored(folder, "train"), *each_once(folder)]))
    else:
        embed = opened(settings, place)
    storage.save(embed(items.train), place.folder / "train.safetensors")
    if items.unlabelled is not None:
        unlabelled = embed(items.unlabelled).replace(labels=None, class_names=None)
        storage.save(unlabelled, place.folder / f"{UNLABELLED}.safetensors")
    query = embed(items.query)
    storage.save(query, place.folder / "query.safetensors")
    storage.save(query if items.leave_one_out else embed(items.gallery), place.folder / "gallery.safetensors")
    return {name: len(part) for name, part in items.parts().items()}


def _text_embedder(settings: Settings, place: Place) -> Embedder:
    from limpet.models import embed_texts, open_text_encoder

    encoder = open_text_encoder(settings["model"], device=place.device, api=place.api)
    return partial(embed_texts, encoder, cache=place.cache)


def _image_embedder(settings: Settings, place: Place) -> Embedder:
    release, how = proven_model(settings), {"device": torch.device(place.device), "batch_size": IMAGES_AT_ONCE}
    return lambda images: as_points(cached_embeddings(release, images, place.cache, **how))


IMAGES_AT_ONCE = 64
"""Batch size of frozen image models, which may see far more pixels than the data have."""


def head(settings: Settings, place: Place) -> Trained:
    """Train a head over the frozen model of "new" for the gallery of "old", and embed all parts with it.

    Training parts are for the head of the next generation, if any.
    """
    from limpet.training import train_head

    old, new = (parts_in(place.needs[role]) for role in ("old", "new"))
    experiment, unlabelled = experiment_on(settings["experiment"], place.device), unlabelled_of(old, new)
    trained = train_head(
        old["train"], new["train"], experiment, place.folder / "release", start=settings["start"],
        unlabelled=unlabelled,
    )  # fmt: skip
    for name, part in new.items():
        storage.save(trained.query(part), place.folder / f"{name}.safetensors")
    if trained.adapter is not None:
        storage.save(trained.gallery(old["gallery"]), place.folder / MAPPED)
    classes = 0 if old["train"].labels is None else len(np.unique(old["train"].labels))
    reads = build_method(experiment.method, experiment.method_options)
    rest = 0 if unlabelled is None or not reads.unlabelled else len(unlabelled[0])
    return {
        "fingerprint": trained.release.fingerprint,
        "pairs": len(old["train"]) + rest,
        "labels": len(old["train"]),
        "classes": classes,
        "gallery": "as it is" if trained.adapter is None else "mapped",
    }


def adapter(settings: Settings, place: Place) -> Trained:
    """Fit an adapter between the frozen models of "old" and "new" on all pairs, and map queries or gallery with it."""
    asked = settings["experiment"]
    old, new = (parts_in(place.needs[role]) for role in ("old", "new"))
    pairs = old["train"], new["train"]
    if (rest := unlabelled_of(old, new)) is not None:
        pairs = without_labels([pairs[0], rest[0]]), without_labels([pairs[1], rest[1]])
    fitted = build_adapter(asked["method"], asked["options"]).fit(*pairs)
    for part in SEARCHED:  # after a backfill, the new model searches its own embeddings
        storage.save(new[part], place.folder / f"{part}.safetensors")
    if fitted.direction == "old_to_new":
        storage.save(fitted.apply(old["gallery"]), place.folder / MAPPED)
    else:
        storage.save(fitted.apply(new["query"]), place.folder / CROSS_QUERY)
    gallery = "mapped" if fitted.direction == "old_to_new" else "as it is"
    return {"fingerprint": fitted.fingerprint, "pairs": len(pairs[0]), "labels": 0, "gallery": gallery}


def unlabelled_of(old: Mapping[str, EmbeddingSet], new: Mapping[str, EmbeddingSet]) -> Sides | None:
    """Return the unlabelled items to fit on, by the old and the new model; None without any."""
    return (old[UNLABELLED], new[UNLABELLED]) if UNLABELLED in old and UNLABELLED in new else None


def parts_in(folder: Path) -> dict[str, EmbeddingSet]:
    """Return all parts that a task embedded, by name."""
    return {path.stem: storage.load(path) for path in sorted(folder.glob("*.safetensors"))}


def without_labels(parts: Sequence[EmbeddingSet]) -> EmbeddingSet:
    """Return the rows of all parts as one set without labels."""
    return joined(parts).replace(labels=None, class_names=None)


def embedded_of(whole: EmbeddingSet, part: TextSet | ImageSet) -> EmbeddingSet:
    """Return the rows of some texts or images, with their labels.

    Raises:
        DataError: An item was not embedded.
    """
    rows = whole.ids.find(part.ids)
    if (rows < 0).any():
        raise DataError(f"{int((rows < 0).sum())} items were not embedded.", expected="items of the whole data set")
    names = None if part.labels is None else StringArray.of(part.class_names)
    return whole[rows].replace(labels=part.labels, class_names=names)


MOST = 50_000
"""Maximum number of items of a histogram, drawn by its seed; more give the same shape."""


class Items:
    """The items of a picture of an upgrade, embedded by its models: a gallery, or training images."""

    def __init__(self, settings: Settings, place: Place) -> None:
        self.settings, self.place = settings, place
        self.roles = {label: f"model {number}" for number, label in enumerate(settings["labels"])}
        self.device = torch.device(place.device)

    @property
    def old_model(self) -> Release:
        """The old model."""
        return released(self.place, "old model")

    def images(self) -> ImageSet:
        """Return the training images."""
        images = open_images(self.settings["data"], self.place.root).to_train_on()
        return images[self.settings["train_on"]].compact()

    def old(self) -> EmbeddingSet:
        """Return all items by the old model, on the space of the new ones, with labels if available."""
        if self.settings["part"] == "training":  # reuses the cache file that training may have left
            found = cached_embeddings(self.old_model, self.images(), self.place.cache, device=self.device)
        else:
            query, gallery = read_sides(self.place.needs["old"])
            how = self.settings["protocol"]
            protocol = protocol_of(self.settings["data"], how, self.place.root, leave_one_out=how["leave_one_out"])
            found = gallery if gallery.labels is not None else with_answered_classes(gallery, query, protocol)
        return laid_onto(found, self.place, "model 0")

    def new(self, old: EmbeddingSet, rows: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, EmbeddingSet]:
        """Return some of the items by every new model, by label; without items if none are requested."""
        chosen = old[rows]
        if self.settings["part"] == "training":
            images = self.images()[rows]
            return {
                label: embed_images(released(self.place, role), images, device=self.device)
                for label, role in self.roles.items()
            }
        found = {}
        for number, label in enumerate(self.roles):
            gallery = read_sides(self.place.needs[f"new {number}"])[1]
            part = gallery[gallery.ids.find(chosen.ids)]
            found[label] = part.replace(labels=chosen.labels, class_names=chosen.class_names)
        return found


def plane(settings: Settings, place: Place) -> dict[str, list[EmbeddingMap]]:
    """Lay out embeddings of a few classes by the old and the new models, one map per example."""
    items, seed = Items(settings, place), settings["seed"]
    old = items.old()
    prototypes = prototypes_of(old)
    named = settings["classes"] if isinstance(settings["classes"], list) else None
    ways = {"drawn": settings["classes"], "similar": settings["similar"], "nearest": settings["nearest"]}
    if all(number is None for number in ways.values()):
        ways["drawn"] = CLASSES
    chosen = [named] if named else choose_classes(prototypes, **ways, examples=settings["examples"], seed=seed)
    noise: list[str] = []
    if settings["credible"] is not None:  # noise is what MixBCT's denoising leaves out of every class
        credible = credible_rows(*labelled_features(old), settings["credible"]).numpy()
        noise = list(old.ids[np.flatnonzero(~credible)])
    planes = []
    for classes in chosen:
        rows = rows_of_classes(old, classes, settings["items"], seed)
        new = items.new(old, rows) if NEW in settings["show"] else {}
        how = {"layout": settings["method"], "show": settings["show"], "apart": settings["apart"], "seed": seed}
        planes.append(embedding_map(old[rows], new, prototypes, classes, noise=noise, **how))
    return {"planes": planes}


CLASSES = 6
"""Default number of drawn classes."""


def histogram(settings: Settings, place: Place) -> dict[str, Histograms]:
    """Compute histograms of values of items, for the old model and every new one."""
    items = Items(settings, place)
    generator = np.random.default_rng(settings["seed"])
    if settings["part"] == "training":
        images = items.images()
        rows = np.sort(generator.permutation(len(images))[:MOST])
        old = embed_images(items.old_model, images[rows], device=items.device)
        old = laid_onto(old, place, "model 0")
        new = {
            label: embed_images(released(place, role), images[rows], device=items.device)
            for label, role in items.roles.items()
        }
    else:
        whole = laid_onto(read_sides(place.needs["old"])[1], place, "model 0")
        rows = np.sort(generator.permutation(len(whole))[:MOST])
        old = whole[rows]
        new = {label: read_sides(place.needs[f"new {n}"])[1][rows] for n, label in enumerate(items.roles)}
    classes = items.old_model.classes if settings["split"] else None
    both = settings["of"] == "angle"
    found = histograms(settings["of"], old, new if both or NEW in settings["show"] else {}, classes)
    if OLD not in settings["show"] and not both:
        found = found.model_copy(update={"panels": {name: one for name, one in found.panels.items() if name != OLD}})
    return {"histograms": found}


def strips(settings: Settings, place: Place) -> dict[str, Strips]:
    """Search the old gallery with the old model and with every new one, and keep a few queries."""
    old = read_sides(place.needs["old"])
    models = {OLD_MODEL: Searched(old[0], [old[1]])}
    for number, label in enumerate(settings["labels"]):
        gallery = laid_onto(old[1], place, f"model {number}")
        models[label] = Searched(read_sides(place.needs[f"new {number}"])[0], [gallery])
    chosen = choose_strips(models, queries=settings["queries"], hits=settings["hits"], seed=settings["seed"])
    images = searched(open_images(settings["data"], place.root), settings["searched"])
    return {"strips": with_pictures(chosen, images)}


OLD_MODEL = "old model"


def session_strips(settings: Settings, place: Place) -> dict[str, Strips]:
    """Search the galleries of learners after the last session or after every one, and keep a few queries."""
    setting = open_setting(settings, place.root)
    last = setting.plan.sessions
    every = settings["after"] == "every"
    queries = setting.queries(0 if every else last - 1)
    models = dict(_searched_by_sessions(settings, place, setting, queries, range(1 if every else last, last + 1)))
    chosen = choose_strips(models, queries=settings["queries"], hits=settings["hits"], seed=settings["seed"])
    return {"strips": with_pictures(chosen, (queries, setting.images))}


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
    """Return strips with thumbnails of their items, from whichever image set has them."""
    from base64 import b64encode

    pixels: dict[str, Any] = {}
    for part in images:
        rows = part.ids.find(found.ids)
        known = np.flatnonzero(rows >= 0)
        pixels = dict(zip([found.ids[row] for row in known], part.read(rows[known]), strict=True)) | pixels
    files = thumbnails(pixels)
    return found.model_copy(update={"pictures": {name: b64encode(file).decode() for name, file in files.items()}})


def arrivals(settings: Settings, place: Place) -> dict[str, list[JsonValue]]:
    """Count the images of every class in every session of a plan."""
    setting = open_setting(settings, place.root)
    order = np.argsort(setting.home, kind="stable")
    counts = setting.plan.training_counts[setting.plan.classes_seen(setting.plan.sessions - 1)]
    return {
        "classes": [setting.images.class_names[row] for row in order],
        "home": (setting.home[order] + 1).tolist(),
        "images": counts[order].T.tolist(),
    }


STEPS: dict[str, Step] = {
    **{"train": train, "embed": embed, "score": score},
    "texts": partial(each_part, opened=_text_embedder),
    "frozen-images": partial(each_part, opened=_image_embedder),
    **{"head": head, "adapter": adapter},
    **{"first-session": first_session, "sessions": sessions},
    **{"accuracy": accuracy, "session-accuracy": session_accuracy},
    "plane": plane,
    "histogram": histogram,
    "strips": strips,
    "session-strips": session_strips,
    "arrivals": arrivals,
}
"""Implementations by kind of task."""
