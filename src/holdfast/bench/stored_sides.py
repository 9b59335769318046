"""What finished tasks left in their folders: queries and gallery, releases, and the sessions of a learner."""

from __future__ import annotations

from pathlib import Path

from holdfast.bench.executor import Place
from holdfast.continual.runner import Ending
from holdfast.embeddings import EmbeddingSet, storage
from holdfast.models.lifting import lift_embeddings
from holdfast.models.named_models import needs_module, open_release
from holdfast.models.release import Release

SEARCHED = ("query", "gallery")
RUN, LEARNER = "run", "learner"

Sides = tuple[EmbeddingSet, EmbeddingSet]


def query_path(folder: Path) -> Path:
    """Return where the queries of a task are."""
    return folder / "query.safetensors"


def read_sides(folder: Path) -> Sides:
    """Return queries and gallery of a task."""
    query, gallery = (stored(folder, part) for part in SEARCHED)
    return query, gallery


def each_once(folder: Path) -> list[EmbeddingSet]:
    """Return queries and gallery of a task, or one of them where they are the same items."""
    query, gallery = read_sides(folder)
    return [gallery] if query.ids == gallery.ids else [query, gallery]


def stored(folder: Path, part: str) -> EmbeddingSet:
    """Return one part that a task embedded."""
    return storage.load(folder / f"{part}.safetensors")


def laid_onto(old: EmbeddingSet, place: Place, role: str) -> EmbeddingSet:
    """Return a gallery as a model searches it: as it is, or laid onto the space of the model if that is another one."""
    lifted = "release/old-lifted"
    if not (place.needs[role] / lifted / "config.json").exists():
        return old
    laid = released(place, role, lifted)
    return old if old.space == laid.space else lift_embeddings(old, laid)


def released(place: Place, role: str, within: str = "release") -> Release:
    """Return the release that a task trained.

    Args:
        place: Of the task that asks.
        role: Of the one that trained it.
        within: Its folder, in that of this one.
    """
    folder = place.needs[role] / within
    return open_release(folder, place.started_from.get(role) if needs_module(folder) else None)


def ending_of(folder: Path, session: int) -> Ending:
    """Return how a session of the learner of a task ended; sessions count from 1."""
    return Ending.read(folder / RUN / LEARNER / f"session-{session}" / "session.json")
