"""What a backfill, a calibration and rescoring use of a gallery."""

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
        """Be the one writer."""

    def record(self, changes: Changes, state: GalleryState, event: Document) -> Committed:
        """Commit changes that leave the state as it is."""

    def index(self, generation: str | None = None, *, graph: Graph | None = None) -> None:
        """Build an approximate index over the vectors of a generation."""

    def fill_mapped(self, *, progress: Progress[Told] = None) -> int:
        """Map stored vectors into the generations of mapped ones that lack them."""
