"""The part of a gallery that a backfill, a calibration and rescoring use."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from limpet.engines.store import Changes, Committed, Document, Graph, Pointer, Store
from limpet.galleries.links import Files
from limpet.galleries.state import GalleryState
from limpet.support.progress import Progress, Told


class OpenGallery(Protocol):
    """An open gallery; `limpet.galleries.gallery.Gallery` is one, and describes its methods."""

    store: Store
    timeout: float
    files: Files

    @property
    def state(self) -> GalleryState:
        """Its state as of the last commit."""

    def now(self) -> tuple[Pointer, GalleryState]:
        """Return the pointer, and the state that it names."""

    def writing(self, who: str, *, timeout: float | None = None) -> AbstractContextManager[Pointer]:
        """Hold the writer's lock."""

    def record(self, changes: Changes, state: GalleryState, event: Document) -> Committed:
        """Commit changes that do not change the state."""

    def index(self, generation: str | None = None, *, graph: Graph | None = None) -> None:
        """Build an approximate index over the vectors of a generation."""

    def fill_mapped(self, *, progress: Progress[Told] = None) -> int:
        """Map stored vectors into the generations of mapped vectors that lack them."""
