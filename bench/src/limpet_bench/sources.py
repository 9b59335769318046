"""Opens the data of tasks, as their settings describe it; opened data, splits and digests are cached."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limpet.data import (
    DATASETS,
    SCENARIOS,
    TEXT_DATASETS,
    ImageSet,
    RetrievalData,
    Split,
    TextData,
    TextSet,
    held_out_rows,
    load_dataset,
    load_texts,
    option_names,
)
from limpet.embeddings import StringArray
from limpet.errors import ConfigError
from limpet.evaluation.protocols import PROTOCOLS, Protocol
from limpet.support import option_types
from limpet_bench.datasets.hold_out import classes_apart, set_classes_apart
from limpet_bench.sessions.closed_set import closed_set
from limpet_bench.sessions.plans import PLANS, Setting

Settings = Mapping[str, Any]

EVALUATION, VALIDATION = "evaluation", "validation"

APART = UNSEEN_SHARE, UNLABELLED_SHARE = "unseen_share", "unlabelled_share"
"""Options of a scenario of heads over image models, which the readers of texts have, too: the share of the classes that
is left out of training, and the share of the other classes whose items have no label."""

VALIDATION_SHARE = 0.2
"""Share of the training classes that a trial of heads sets apart for validation."""


def searched(data: RetrievalData, part: str) -> tuple[ImageSet, ImageSet]:
    """Return queries and gallery of the evaluation, or the validation images as both; see `searched_parts`."""
    parts = data.parts()
    query, gallery = (parts[name] for name in searched_parts(data, part))
    return query, gallery


def searched_parts(data: RetrievalData, part: str) -> tuple[str, str]:
    """Return the names of the parts that are queries and gallery, in the evaluation or in a trial.

    Raises:
        ConfigError: The data has no validation images.
    """
    if part == EVALUATION:
        return "query", "gallery"
    if data.validation is None:
        raise ConfigError(
            f"The data set '{data.name}' has no validation images with these options.",
            expected="classes set apart for choosing options",
            to_do="name options that set some apart, such as Data(..., validation={'validation_fraction': 0.2}).",
        )
    return "validation", "validation"


class Searched(NamedTuple):
    """Facts about queries and gallery of a set of images.

    Args:
        digests: Digests of the queries and of the gallery, 24 hexadecimal digits each.
        images: Number of images to embed.
        leave_one_out: Whether queries and gallery are the same images, and every query ignores itself.
        labelled: Whether labels define the relevant items of a query.
    """

    digests: tuple[str, str]
    images: int
    leave_one_out: bool
    labelled: bool


def searched_facts(data: Settings, root: Path | None, part: str) -> Searched:
    """Return the facts about the queries and the gallery of a part of a set of images; cached."""
    return _searched(data["name"], root, json.dumps(data["options"], sort_keys=True), part)


@lru_cache(maxsize=256)
def _searched(name: str, root: Path | None, options: str, part: str) -> Searched:
    data = _images(name, root, options)
    query, gallery = searched_parts(data, part)
    digests = _digest(name, root, options, query), _digest(name, root, options, gallery)
    leave_one_out = data.leave_one_out or query == gallery
    images = sum(len(data.parts()[name]) for name in ({query} if leave_one_out else {query, gallery}))
    return Searched(digests, images, leave_one_out, data.labelled or part != EVALUATION)


def protocol_of(data: Settings, asked: Settings, root: Path | None, *, leave_one_out: bool) -> Protocol:
    """Open a protocol with the ground truth of a data set.

    Args:
        data: The data set; its "name" is a name or a path.
        asked: "name", "options" and "ground_truth", a path below the folder of the data set or "" for that folder.
        root: Folder that holds the folders of the named data sets.
        leave_one_out: Whether queries and gallery are one set. A protocol with an option for this then excludes every
            query from its own results, unless its options say otherwise.

    Raises:
        ConfigError: The protocol needs a ground truth, and the data set has no folder.
        DataError: The ground truth cannot be used.
    """
    protocol, options = PROTOCOLS[asked["name"]], dict(asked["options"])
    if leave_one_out and "leave_one_out" in option_types(protocol):
        options.setdefault("leave_one_out", True)
    if protocol.ground_truth is None:
        return protocol.opened(None, **options)
    known = DATASETS.get(data["name"])
    folder = Path(data["name"]) if known is None else None if known.folder is None else (root or Path()) / known.folder
    return protocol.opened(None if folder is None else folder / asked["ground_truth"], **options)


def protocol_digest(protocol: Protocol) -> str:
    """Return a digest of a protocol, its options and its ground truth, 24 hexadecimal digits."""
    digest = hashlib.sha256()
    _feed(digest, protocol)
    return digest.hexdigest()[:24]


def _feed(digest: Any, value: Any) -> None:
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        value = tuple(value.items())
    if isinstance(value, list | tuple):
        digest.update(f"{len(value)} of ".encode())
        for item in value:
            _feed(digest, item)
    elif isinstance(value, StringArray):
        _feed(digest, list(value))
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype} {value.shape} ".encode() + np.ascontiguousarray(value).tobytes())
    elif value is None or isinstance(value, str | int | float | Path):
        digest.update(f"{value!r} ".encode())
    else:
        raise TypeError(f"A ground truth holds {type(value).__name__}, whose digest nobody knows")


def split_of(data: Settings, scenario: Settings, root: Path | None) -> Split:
    """Return which training images the old and the new model see; the last few splits are cached."""
    options = json.dumps(data["options"], sort_keys=True)
    return _split(data["name"], root, options, scenario["name"], json.dumps(scenario["options"], sort_keys=True))


@lru_cache(maxsize=32)
def _split(name: str, root: Path | None, options: str, scenario: str, scenario_options: str) -> Split:
    labels = _images(name, root, options).to_train_on().labels
    return SCENARIOS[scenario].divide(labels, **json.loads(scenario_options))


@lru_cache(maxsize=32)
def rows_of_all(split: Split) -> NDArray[np.int64]:
    """Return the rows that the old or the new model sees, ascending; the array is cached and shared."""
    return np.union1d(split.old, split.new)


def open_images(data: Settings, root: Path | None) -> RetrievalData:
    """Open a set of images by name or path; the last two are cached."""
    return _images(data["name"], root, json.dumps(data["options"], sort_keys=True))


def refuse_other_channels(data: Settings, root: Path | None, wanted: int, what: str) -> None:
    """Refuse images whose number of channels differs from that of a model, before any task runs.

    Args:
        data: "name" and "options" of the data set.
        root: Folder that holds the folders of the named data sets.
        wanted: Number of channels that the model takes.
        what: Name of the model, for the message.

    Raises:
        ConfigError: The numbers differ.
    """
    name, channels = data["name"], open_images(data, root).query.shape[0]
    if channels == wanted:
        return
    own = (
        f', or let the data have them: Data("{name}", {{"channels": {wanted}}})'
        if "channels" in option_names(name)
        else ""
    )
    raise ConfigError(
        f"The images of '{name}' have {channels} channel{'s' if channels > 1 else ''}, and the model '{what}' takes "
        f"{wanted}.",
        expected="one number for both: 3 for colour, 1 for grey",
        to_do=f"write in the suite: EncoderSpec(channels={channels}){own}.",
        intact="Nothing was run.",
    )


def refuse_unknown_classes(name: str, data: Settings, trained_on: Settings, root: Path | None) -> None:
    """Refuse to measure accuracy on images of which no class is used in training.

    Args:
        name: Name of the searched images in the leaderboard.
        data: "name" and "options" of the data set that is searched.
        trained_on: "name" and "options" of the data set that models are trained on.
        root: Folder that holds the folders of the named data sets.

    Raises:
        ConfigError: The searched images have no labels, or models are trained on none of their classes.
    """
    images, known = open_images(data, root), set(open_images(trained_on, root).to_train_on().class_names)
    named = set(images.query.class_names) if images.labelled else set()
    if not named & known:
        raise ConfigError(
            f"The suite measures accuracy, and the images to search in '{name}' have "
            f"{'no class that models are trained on' if named else 'no classes'}.",
            expected="test images of classes that are trained on, by the same names",
            to_do="write in the suite: accuracy=False; or search images of the classes of training.",
        )


def part_digest(data: Settings, root: Path | None, part: str) -> str:
    """Return the digest of one part of a set of images, such as "train", 24 hexadecimal digits; cached."""
    return _digest(data["name"], root, json.dumps(data["options"], sort_keys=True), part)


@lru_cache(maxsize=256)
def _digest(name: str, root: Path | None, options: str, part: str) -> str:
    data = _images(name, root, options)
    images = data.to_train_on() if part == "train" else data.parts()[part]
    return images.digest()[:24]


@lru_cache(maxsize=2)
def _images(name: str, root: Path | None, options: str) -> RetrievalData:
    return load_dataset(name, root, **json.loads(options))


@lru_cache(maxsize=32)
def _texts(name: str, root: Path | None, options: str, part: str) -> TextData:
    found = load_texts(name, root, **json.loads(options))
    if not isinstance(found, TextData):
        raise ConfigError(f"The texts '{name}' have no queries and gallery.", expected="texts with a protocol")
    return found if part == EVALUATION else set_apart(found)


def set_apart(data: TextData) -> TextData:
    """Return a validation set made of the training texts only.

    A share `VALIDATION_SHARE` of their classes is set apart: half of these texts are queries, the others the gallery.
    """
    everything = data.train.compact()
    labels = everything.labelled()
    aside = classes_apart(labels, len(everything.class_names), VALIDATION_SHARE, seed=0)
    chosen = everything[aside].compact()
    asking = np.zeros(len(chosen), bool)
    asking[held_out_rows(chosen.labelled(), 0.5, seed=0)] = True
    return TextData(
        data.name,
        everything[~aside].compact(),
        chosen[asking],
        chosen[~asking],
        f"{data.description}; for choosing settings, {len(chosen.class_names)} classes to fit on are searched instead",
        data.unlabelled,
    )


@dataclasses.dataclass(frozen=True)
class Items:
    """Training and test items of heads over frozen models.

    Args:
        train: Training items; they may have fewer classes than the others.
        query: Queries.
        gallery: Items to search; the query set itself if every item searches the others.
        unlabelled: Further training items without labels, of other classes; None if there are none.
    """

    train: TextSet | ImageSet
    query: TextSet | ImageSet
    gallery: TextSet | ImageSet
    unlabelled: TextSet | ImageSet | None = None

    @property
    def leave_one_out(self) -> bool:
        """Whether queries and gallery are the same set, and every query ignores itself."""
        return self.query is self.gallery

    def parts(self) -> dict[str, TextSet | ImageSet]:
        """Return the sets by name, without "unlabelled" if there are no unlabelled items."""
        named = {"train": self.train, "query": self.query, "gallery": self.gallery, "unlabelled": self.unlabelled}
        return {name: part for name, part in named.items() if part is not None}


def open_items(data: Settings, root: Path | None) -> Items:
    """Open the items of heads over frozen models: texts or images by name, or images by path.

    Args:
        data: "name" and "options" of the data set. For images also "apart", if some classes are left out of training:
            the shares of `APART`, and the "seed" that draws the classes. For a trial, "part" is `VALIDATION`: queries
            and gallery are then made of training items.
        root: Folder that holds the folders of the named data sets.

    Raises:
        ConfigError: The images to search have no labels, or the texts have no queries and gallery.
    """
    options, aside = (json.dumps(data.get(key, {}), sort_keys=True) for key in ("options", "apart"))
    part = data.get("part", EVALUATION)
    if data["name"] in TEXT_DATASETS:
        texts = _texts(data["name"], root, options, part)
        return Items(texts.train, texts.query, texts.gallery, texts.unlabelled)
    return _image_items(data["name"], root, options, aside, part)


@lru_cache(maxsize=32)
def _image_items(name: str, root: Path | None, options: str, aside: str, part: str) -> Items:
    data, asked = _images(name, root, options), json.loads(aside)
    if not data.labelled:
        raise ConfigError(
            f"The images to search in '{name}' have no labels that say who answers what.",
            expected="images with classes: heads over frozen models are scored by them",
        )
    train, unlabelled = data.to_train_on(), None
    if asked.get(UNSEEN_SHARE):
        train, _, _ = set_classes_apart(train, asked[UNSEEN_SHARE], asked["seed"])
    if asked.get(UNLABELLED_SHARE):
        train, unlabelled, _ = set_classes_apart(train, asked[UNLABELLED_SHARE], asked["seed"])
    if part == EVALUATION:
        return Items(train, data.query, data.gallery, unlabelled)
    train, searched, _ = set_classes_apart(train, VALIDATION_SHARE, seed=0)
    return Items(train, searched, searched, unlabelled)


def digests_of(data: Settings, root: Path | None) -> dict[str, str]:
    """Return the digest of every part of `open_items`, 24 hexadecimal digits; cached."""
    return dict(_item_digests(json.dumps(data, sort_keys=True), root))


@lru_cache(maxsize=64)
def _item_digests(data: str, root: Path | None) -> tuple[tuple[str, str], ...]:
    items = open_items(json.loads(data), root)
    found = {name: part.digest()[:24] for name, part in items.parts().items() if name != "gallery"}
    gallery = found["query"] if items.leave_one_out else items.gallery.digest()[:24]
    return (*found.items(), ("gallery", gallery))


def open_setting(settings: Settings, root: Path | None) -> Setting:
    """Return images, queries, plan and memory budget of a task.

    Args:
        settings: "data", "divided" (see `closed_set`), "plan" with its name and options, and "budget". A task of a
            first session has no "budget", because it replays nothing.
        root: Folder that holds the folders of the named data sets.
    """
    data = closed_set(open_images(settings["data"], root), **settings["divided"])
    plan = PLANS[settings["plan"]["name"]](data.train.labels, **settings["plan"]["options"])
    return Setting.of(data.name, data.train, data.test, plan, budget=settings.get("budget"))
