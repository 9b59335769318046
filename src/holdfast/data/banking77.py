"""BANKING77: questions of a bank's customers, 77 intents (Casanueva et al., NLP4ConvAI 2020)."""

from __future__ import annotations

from pathlib import Path

from holdfast.data.intents import Sentences, intent_data, official_json
from holdfast.data.text_files import read_csv
from holdfast.data.text_set import TextData
from holdfast.errors import DataError


def banking77(root: Path, *, seed: int = 0, class_share: float = 1.0, unseen_share: float = 0.0) -> TextData:
    """Questions of 77 intents: fit on train; half of test searches the other half.

    Args:
        root: Folder with ``train.csv`` and ``test.csv`` (columns ``text`` and ``category``) and ``categories.json``.
        seed: Chooses the half of test, and the intents.
        class_share: Share of the intents to keep, in all parts.
        unseen_share: Share of them to leave out of train, so that unseen intents can be measured.
    """
    parts = {part: _sentences(root / f"{part}.csv") for part in ("train", "test")}
    intents = _intents(root / "categories.json")
    return intent_data("banking77", parts, intents, seed=seed, class_share=class_share, unseen_share=unseen_share)


def _sentences(path: Path) -> Sentences:
    columns = read_csv(path)
    if not {"text", "category"} <= set(columns):
        raise DataError(f"{path} has the columns {', '.join(columns)}.", expected="the columns text and category")
    return list(zip(columns["text"], columns["category"], strict=True))


def _intents(path: Path) -> list[str]:
    names = official_json(path)
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise DataError(f"{path} holds no list of names.", expected="the official categories.json")
    return names
