"""The place where a task runs, and the type of the functions that run tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from limpet.models import ApiSettings


class Place(NamedTuple):
    """Folders, device and connections of a task.

    Args:
        folder: Folder for the output of the task.
        needs: Folders of the tasks that it needs, by role.
        root: Folder that holds the folders of the named data sets.
        device: Device that trains and runs models, such as "cpu" or "cuda:0".
        cache: Folder that tasks share, such as for an old model's embeddings of a training set.
        started_from: For each needed task whose training started from a model: that model as the suite names it, by
            role. A release of your own module is opened with it.
        api: Settings of models behind an API; None uses the defaults.
    """

    folder: Path
    needs: Mapping[str, Path]
    root: Path | None
    device: str
    cache: Path
    started_from: Mapping[str, str]
    api: ApiSettings | None = None


Step = Callable[[Mapping[str, Any], Place], Mapping[str, Any]]
"""Runs a task from its settings, and returns the values of its record.

A step that knows its duration including earlier interrupted runs returns it as "seconds"."""
