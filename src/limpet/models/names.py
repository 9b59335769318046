"""How people name models: by a folder, hf:FOLDER, FILE.py:FUNCTION, ...; without torch."""

from __future__ import annotations

from pathlib import Path

SPELLINGS = (
    "the folder of a release; hf:FOLDER or timm:FOLDER, an image model of these libraries; FILE.py:FUNCTION, which "
    "returns limpet.Release.from_module(...); or the name of an encoder that an installed package offers"
)


def called(name: str | Path) -> str:
    """Return what people call a model: the last part of what they named.

    >>> called("runs/new"), called("hf:models/dinov2-small"), called("encoder.py:small"), called("of mine:")
    ('new', 'dinov2-small', 'small', 'of mine:')
    """
    last = Path(name).resolve().name
    return last if Path(name).is_dir() else last.rpartition(":")[2] or last
