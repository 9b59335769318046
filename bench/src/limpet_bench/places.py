"""Where a task is run, and what runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from limpet.models import ApiSettings


class Place(NamedTuple):
    """Where a task is run.

    Args:
        needs: The folders of the tasks it needs, by role.
        root: Folder that holds the folders of the named data sets.
        device: Where models are trained and used, such as "cpu" or "cuda:0".
        cache: Folder for what tasks share, such as an old model's embeddings of a training set.
        started_from: The models that training of the tasks it needs started from, by role, as the suite names them:
            what opens a release that was made of a module of one's own.
        api: How a model behind an API is asked; as usual when None.
    """

    folder: Path
    needs: Mapping[str, Path]
    root: Path | None
    device: str
    cache: Path
    started_from: Mapping[str, str]
    api: ApiSettings | None = None


Step = Callable[[Mapping[str, Any], Place], Mapping[str, Any]]
"""Does what the settings of a task say, and returns the values of its record.

Among them may be "seconds", where it knows how long it took with what was done before an interruption."""
