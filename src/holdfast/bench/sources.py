"""The data that cells are made from, opened by what their settings say of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.class_hold_out import classes_apart
from holdfast.data.datasets import load_dataset
from holdfast.data.hold_out import held_out_rows
from holdfast.data.image_set import ImageSet
from holdfast.data.retrieval_data import RetrievalData
from holdfast.data.scenarios import SCENARIOS
from holdfast.data.split import Split
from holdfast.data.text_data import TextData
from holdfast.data.texts import load_texts
from holdfast.errors import ConfigError

Settings = Mapping[str, Any]

EVALUATION, VALIDATION = "evaluation", "validation"

VALIDATION_SHARE = 0.2
"""Share of the classes to fit on that a trial sets apart, where the data has no validation part: sets of texts."""


def searched(data: RetrievalData, part: str) -> tuple[ImageSet, ImageSet]:
    """Return queries and gallery of the evaluation, or the validation images for both; see `searched_parts`."""
    parts = data.parts()
    query, gallery = (parts[name] for name in searched_parts(data, part))
    return query, gallery


def searched_parts(data: RetrievalData, part: str) -> tuple[str, str]:
    """Return which parts of the data are queries and gallery: in the evaluation, or in a trial.

    Raises:
        ConfigError: There are no validation images.
    """
    if part == EVALUATION:
        return "query", "gallery"
    if data.validation is None:
        raise ConfigError(
            f"The data set '{data.name}' has no validation images with these options.",
            expected="classes set apart for choosing options",
            to_do="give the tuning of the suite data_options that set some apart, such as validation_fraction: 0.2.",
        )
    return "validation", "validation"


def divided(images: ImageSet, scenario: Settings) -> Split:
    """Return who sees what."""
    return SCENARIOS[scenario["name"]].divide(images.labels, **scenario["options"])


def open_images(data: Settings, root: Path | None) -> RetrievalData:
    """Open a set of images by name or path; the last few are kept open."""
    return _images(data["name"], root, json.dumps(data["options"], sort_keys=True))


def part_digest(data: Settings, root: Path | None, part: str) -> str:
    """Return the digest of one part of a set of images, such as "train"; computed once."""
    return _digest(data["name"], root, json.dumps(data["options"], sort_keys=True), part)


@lru_cache(maxsize=256)
def _digest(name: str, root: Path | None, options: str, part: str) -> str:
    data = _images(name, root, options)
    images = data.to_train_on() if part == "train" else data.parts()[part]
    return images.digest()[:24]


@lru_cache(maxsize=2)
def _images(name: str, root: Path | None, options: str) -> RetrievalData:
    return load_dataset(name, root, **json.loads(options))


def open_texts(data: Settings, root: Path | None) -> TextData:
    """Open a set of texts by name; for a trial, "part" is `VALIDATION`, and only texts to fit on are returned."""
    return _texts(data["name"], root, json.dumps(data["options"], sort_keys=True), data.get("part", EVALUATION))


@lru_cache(maxsize=32)
def _texts(name: str, root: Path | None, options: str, part: str) -> TextData:
    found = load_texts(name, root, **json.loads(options))
    if not isinstance(found, TextData):
        raise ConfigError(f"The texts '{name}' have no queries and gallery.", expected="texts with a protocol")
    return found if part == EVALUATION else set_apart(found)


def set_apart(data: TextData) -> TextData:
    """Return a set made of the texts to fit on alone: some of their classes are searched, half asks the other half."""
    everything = data.train.compact()
    labels = everything.labelled()
    aside = classes_apart(labels, len(everything.class_names), VALIDATION_SHARE, seed=0)
    chosen = everything.select(aside).compact()
    asking = np.zeros(len(chosen), bool)
    asking[held_out_rows(chosen.labelled(), 0.5, seed=0)] = True
    return TextData(
        data.name,
        everything.select(~aside).compact(),
        chosen.select(asking),
        chosen.select(~asking),
        f"{data.description}; for choosing settings, {len(chosen.class_names)} classes to fit on are searched instead",
    )
