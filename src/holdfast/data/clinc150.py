"""CLINC150: requests of 150 intents to a spoken assistant (Larson et al., EMNLP 2019)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.data.intents import Sentences, intent_data, official_json
from holdfast.data.text_set import TextData
from holdfast.errors import DataError

_PARTS = ("train", "val", "test")


def clinc150(root: Path, *, seed: int = 0, class_share: float = 1.0, unseen_share: float = 0.0) -> TextData:
    """Requests of 150 intents: fit on train; half of test searches the other half and val.

    The requests that belong to none of the intents (``oos_*``) are left out: nothing could answer them.

    Args:
        root: Folder with ``data_full.json``: lists of [text, intent] by part.
        seed: Chooses the half of test, and the intents.
        class_share: Share of the intents to keep, in all parts.
        unseen_share: Share of them to leave out of train, so that unseen intents can be measured.
    """
    path = root / "data_full.json"
    document = _document(path)
    parts = {part: _sentences(path, part, document[part]) for part in _PARTS}
    intents = sorted({intent for found in parts.values() for _, intent in found})
    return intent_data(
        "clinc150",
        parts,
        intents,
        seed=seed,
        class_share=class_share,
        unseen_share=unseen_share,
        remark="out-of-scope requests are left out",
    )


def _document(path: Path) -> dict[str, Any]:
    document = official_json(path)
    found = sorted(document) if isinstance(document, dict) else []
    if not set(_PARTS) <= set(found):
        raise DataError(f"{path} holds {', '.join(found) or 'no parts'}.", expected=f"lists named {', '.join(_PARTS)}")
    return dict(document)


def _sentences(path: Path, part: str, found: Any) -> Sentences:
    """Return texts with their intents, or refuse the first row that is something else."""
    rows = found if isinstance(found, list) else [found]
    for number, row in enumerate(rows):
        if not (isinstance(row, list) and len(row) == 2 and all(isinstance(value, str) for value in row)):
            raise DataError(f"Row {number} of '{part}' in {path} is {row!r:.60}.", expected="[text, intent]")
    return [(text, intent) for text, intent in rows]
