"""Writes the file of a sharded gallery, for tests and trials."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

FILE = "shards.json"
SHARDS = ("memory", "lance", "memory")
"""Kinds of the shards in trials."""


def sharded(folder: Path, kinds: Sequence[str] = ("memory", "memory", "memory"), top: str = "") -> str:
    """Write the file of a sharded gallery; return the URL of the gallery.

    Args:
        folder: Folder for the file and the shards.
        kinds: Kind of the store of every shard.
        top: URL of the database with the top; empty uses a folder beside the shards.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shards = [f"{kind}:shard{number}" for number, kind in enumerate(kinds)]
    said = {"format_version": 1, "shards": shards, **({} if top else {"top": "top"})}
    (folder / FILE).write_text(json.dumps(said))
    return f"sharded:{folder / FILE}{f'?top={top}' if top else ''}"


def folder_of(url: str) -> Path:
    """Return the folder with all files of a gallery."""
    place = Path(url.partition(":")[2])
    return place.parent if place.name == FILE else place
