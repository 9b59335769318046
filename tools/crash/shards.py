"""The file of a gallery of several stores, for tests and trials."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

FILE = "shards.json"
SHARDS = ("memory", "lance", "memory")
"""Of the galleries of trials."""


def sharded(folder: Path, kinds: Sequence[str] = ("memory", "memory", "memory"), top: str = "") -> str:
    """Write the file of a gallery with a shard of each of these kinds; return the gallery's URL.

    Args:
        folder: For the file and the shards.
        kinds: Of the stores.
        top: URL of the database that has the top; a folder beside the shards if empty.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shards = [f"{kind}:shard{number}" for number, kind in enumerate(kinds)]
    said = {"format_version": 1, "shards": shards, **({} if top else {"top": "top"})}
    (folder / FILE).write_text(json.dumps(said))
    return f"sharded:{folder / FILE}{f'?top={top}' if top else ''}"


def folder_of(url: str) -> Path:
    """Return the folder in which everything of a gallery is."""
    place = Path(url.partition(":")[2])
    return place.parent if place.name == FILE else place
