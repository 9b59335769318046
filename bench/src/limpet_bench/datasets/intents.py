"""CLINC150 and BANKING77: sentences with intents, of which half of the test sentences search the other half."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.data import Dataset, TextData, TextSet, class_counts, generator_of, lowest_of_each_class, read_csv
from limpet.embeddings import StringArray
from limpet.errors import DataError, refuse
from limpet.support import read_json

Sentences = Sequence[tuple[str, str]]  # (text, intent) pairs

TEST = "test"
TRAIN = "train"


def intent_data(
    name: str,
    parts: Mapping[str, Sentences],
    intents: Sequence[str],
    *,
    seed: int,
    class_share: float,
    unseen_share: float,
    unlabelled_share: float = 0.0,
    remark: str = "",
) -> TextData:
    """Divide sentences into a training set, queries and a gallery.

    The training set is "train". The queries are a random half of every intent's test sentences, rounded down. The
    gallery is the other half and all further parts.

    Args:
        name: Name of the data set.
        parts: Sentences of "train", "test" and any further part, in the order of their file; ids are ``part/row``.
        intents: Names of all intents, which become the class names.
        seed: Random seed for the half, the intents to keep and the intents to leave out; each is drawn independently.
        class_share: Share of the intents to keep in all parts, above 0 and at most 1; at least two are kept.
        unseen_share: Share of the kept intents to leave out of the training set, at least 0 and below 1. A larger share
            leaves out the same intents and more.
        unlabelled_share: Share of the kept intents whose training sentences have no label, at least 0; the sum with
            `unseen_share` is below 1. These intents are disjoint from those left out.
        remark: Text to add to the description.

    Raises:
        ConfigError: A share is out of range.
        DataError: A sentence has an intent that is not in ``intents``, query and gallery share a text, or a part is
            left with fewer than two intents.
    """
    refuse(not 0 < class_share <= 1, f"class_share = {class_share}.", "above 0 and at most 1")
    refuse(not 0 <= unseen_share < 1, f"unseen_share = {unseen_share}.", "at least 0 and below 1")
    without = unseen_share + unlabelled_share
    refuse(unlabelled_share < 0 or without >= 1, f"unlabelled_share = {unlabelled_share} and unseen_share = "
           f"{unseen_share}.", "at least 0, and below 1 together")  # fmt: skip
    halves, classes, aside = generator_of(seed).spawn(3)
    whole, part = _one_set(parts, intents)
    labels = whole.labelled()
    asking = _half(labels, part == TEST, halves)
    kept = classes.permutation(len(intents))[: max(2, round(class_share * len(intents)))]
    drawn = aside.permutation(np.sort(kept))
    unseen, unlabelled = np.split(drawn, [round(unseen_share * len(kept))])
    unlabelled = unlabelled[: round(unlabelled_share * len(kept))]
    keep = np.isin(labels, kept)
    chosen = whole[keep].compact()
    train = chosen[((part == TRAIN) & ~np.isin(labels, [*unseen, *unlabelled]))[keep]].compact()
    bare = chosen[((part == TRAIN) & np.isin(labels, unlabelled))[keep]]
    query, gallery = chosen[asking[keep]], chosen[((part != TRAIN) & ~asking)[keep]]
    searched = " and ".join(["the other half", *sorted({*parts} - {TRAIN, TEST})])
    words = [
        f"{len(chosen.class_names)} intents, {len(train)} sentences to fit on",
        f"half of test ({len(query)}, seed {seed}) searches {searched} ({len(gallery)})",
        *([f"{len(unseen)} intents are only in query and gallery"] if len(unseen) else []),
        *(
            [f"{len(bare)} more sentences to fit on, of {len(unlabelled)} other intents, have no label"]
            if len(bare)
            else []
        ),
        *([remark] if remark else []),
    ]
    rest = replace(bare, labels=None, class_names=()) if len(bare) else None
    return TextData(name, train, query, gallery, "; ".join(words), rest)


def official_json(path: Path) -> Any:
    """Return the content of an official JSON file.

    Raises:
        DataError: The file is missing, unreadable or not JSON in UTF-8.
    """
    try:
        return read_json(path)
    except FileNotFoundError as error:
        raise DataError(f"There is no file {path}.", expected=f"the official {path.name}") from error
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot read {path}: {error}.", expected=f"the official {path.name}") from error


def _one_set(parts: Mapping[str, Sentences], intents: Sequence[str]) -> tuple[TextSet, NDArray[np.str_]]:
    """Return all sentences as one set, and the name of the part of each sentence (N,)."""
    sentences = [sentence for part in parts.values() for sentence in part]
    ids = [f"{part}/{row:05d}" for part, found in parts.items() for row in range(len(found))]
    rows = {intent: row for row, intent in enumerate(intents)}
    unknown = sorted({intent for _, intent in sentences} - set(rows))
    if unknown:
        raise DataError(
            f"{len(unknown)} intents are in no list of intents, first: '{unknown[0]}'.",
            expected="the intents that the data set names",
            to_do="use the files as they were published.",
        )
    labels = np.array([rows[intent] for _, intent in sentences], np.int64)
    names = np.repeat(list(parts), [len(found) for found in parts.values()])
    texts = StringArray.of(text for text, _ in sentences)
    return TextSet(texts, labels, tuple(intents), StringArray.of(ids)), names


def _half(labels: NDArray[np.int64], among: NDArray[np.bool_], generator: np.random.Generator) -> NDArray[np.bool_]:
    """Select half of every class among some rows, rounded down; return a mask (N,)."""
    candidates = np.flatnonzero(among)
    of_them = labels[candidates]
    half = lowest_of_each_class(of_them, generator.random(len(of_them)), class_counts(of_them) // 2)
    chosen = np.zeros(len(labels), np.bool_)
    chosen[candidates[half]] = True
    return chosen


def banking77(
    root: Path, *, seed: int = 0, class_share: float = 1.0, unseen_share: float = 0.0, unlabelled_share: float = 0.0
) -> TextData:
    """Questions with 77 intents: training on train; half of test searches the other half.

    BANKING77: questions of a bank's customers (Casanueva et al., NLP4ConvAI 2020).

    Args:
        root: Folder with ``train.csv`` and ``test.csv`` (columns ``text`` and ``category``) and ``categories.json``.
        seed: Random seed for the half of test, and for the intents.
        class_share: Share of the intents to keep in all parts.
        unseen_share: Share of the kept intents to leave out of train, so that queries have unseen intents.
        unlabelled_share: Share of the kept intents whose sentences in train have no label.
    """
    parts = {part: _banking_sentences(root / f"{part}.csv") for part in ("train", "test")}
    path = root / "categories.json"
    names = official_json(path)
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise DataError(f"{path} holds no list of names.", expected="the official categories.json")
    return intent_data(
        "banking77", parts, names, seed=seed, class_share=class_share, unseen_share=unseen_share,
        unlabelled_share=unlabelled_share,
    )  # fmt: skip


def _banking_sentences(path: Path) -> Sentences:
    columns = read_csv(path)
    if not {"text", "category"} <= set(columns):
        raise DataError(f"{path} has the columns {', '.join(columns)}.", expected="the columns text and category")
    return list(zip(columns["text"], columns["category"], strict=True))


_CLINC_PARTS = ("train", "val", "test")


def clinc150(
    root: Path, *, seed: int = 0, class_share: float = 1.0, unseen_share: float = 0.0, unlabelled_share: float = 0.0
) -> TextData:
    """Requests with 150 intents: training on train; half of test searches the other half and val.

    CLINC150: requests to a spoken assistant (Larson et al., EMNLP 2019).

    Out-of-scope requests (``oos_*``) are left out, because they have no relevant items.

    Args:
        root: Folder with ``data_full.json``: lists of [text, intent] by part.
        seed: Random seed for the half of test, and for the intents.
        class_share: Share of the intents to keep in all parts.
        unseen_share: Share of the kept intents to leave out of train, so that queries have unseen intents.
        unlabelled_share: Share of the kept intents whose sentences in train have no label.
    """
    path = root / "data_full.json"
    document = _document(path)
    parts = {part: _clinc_sentences(path, part, document[part]) for part in _CLINC_PARTS}
    intents = sorted({intent for found in parts.values() for _, intent in found})
    return intent_data(
        "clinc150",
        parts,
        intents,
        seed=seed,
        class_share=class_share,
        unseen_share=unseen_share,
        unlabelled_share=unlabelled_share,
        remark="out-of-scope requests are left out",
    )


def _document(path: Path) -> dict[str, Any]:
    document = official_json(path)
    found = sorted(document) if isinstance(document, dict) else []
    if not set(_CLINC_PARTS) <= set(found):
        raise DataError(
            f"{path} holds {', '.join(found) or 'no parts'}.", expected=f"lists named {', '.join(_CLINC_PARTS)}"
        )
    return dict(document)


def _clinc_sentences(path: Path, part: str, found: Any) -> Sentences:
    """Return texts with their intents; refuse the first row that is not [text, intent]."""
    rows = found if isinstance(found, list) else [found]
    for number, row in enumerate(rows):
        if not (isinstance(row, list) and len(row) == 2 and all(isinstance(value, str) for value in row)):
            raise DataError(f"Row {number} of '{part}' in {path} is {row!r:.60}.", expected="[text, intent]")
    return [(text, intent) for text, intent in rows]


CLINC150 = Dataset(clinc150, "requests of 150 intents to an assistant; test searches test and val", "clinc150")
BANKING77 = Dataset(banking77, "questions of a bank's customers, 77 intents; test searches test", "banking77")
