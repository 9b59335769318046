"""What finished tasks left in their folders: queries and gallery, releases, and the sessions of a learner."""

from __future__ import annotations

from pathlib import Path

from holdfast.continual.runner import Ending
from holdfast.embeddings import EmbeddingSet, storage
from holdfast.models.lifting import lift_embeddings
from holdfast.models.release import Release, load_release

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


def laid_onto(old: EmbeddingSet, release: Path) -> EmbeddingSet:
    """Return a gallery as a model searches it: as it is, or laid onto the space of the model if that is another one."""
    lifted = release / "old-lifted"
    if not (lifted / "config.json").exists():
        return old
    laid = load_release(lifted)
    return old if old.space == laid.space else lift_embeddings(old, laid)


def released(folder: Path) -> Release:
    """Return the release that a task trained."""
    return load_release(folder / "release")


def ending_of(folder: Path, session: int) -> Ending:
    """Return how a session of the learner of a task ended; sessions count from 1."""
    return Ending.read(folder / RUN / LEARNER / f"session-{session}" / "session.json")
