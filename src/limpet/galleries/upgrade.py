"""A gallery's upgrade by the steps that every live index has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self, Unpack

from limpet.engines.collection import IndexStatus
from limpet.engines.sides import ModelSide
from limpet.galleries.backfill import BackfillOptions
from limpet.galleries.gallery import Gallery
from limpet.galleries.next_steps import next_steps
from limpet.galleries.state import GalleryState
from limpet.upgrade.base import UpgradeStatus, UpgradeVerification
from limpet.upgrade.filling import Backfilled
from limpet.upgrade.lifecycle import Phase
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.vector_sources import VectorSource


class GalleryUpgrade:
    """The upgrade of one gallery: an `Upgrade`. `Gallery` has the same steps and all that is special to galleries.

    Args:
        gallery: Which; closed with it.
    """

    notes: tuple[str, ...] = ()

    def __init__(self, gallery: Gallery) -> None:
        self.gallery = gallery

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        return self.gallery.state.phase

    def status(self) -> UpgradeStatus:
        """Count items by model, and return where the upgrade stands and what comes next."""
        pointer, state = self.gallery.now()
        old, new = _sides(state)
        upkeep = self.gallery.store.upkeep(state.target)
        indexes = (IndexStatus(state.target, upkeep.indexed >= upkeep.rows),) if upkeep.indexed else ()
        lacking: dict[ModelSide, int] = {
            "old": pointer.items - pointer.covered([old]),
            "new": pointer.items - pointer.covered([new]),
        }
        return UpgradeStatus(
            place=self.gallery.store.url,
            phase=state.phase,
            old=_model(state, old),
            new=_model(state, new),
            serving="new" if state.active == new else "old",
            writes="new" if state.active == new else "old",
            items=pointer.items,
            lacking=lacking,
            empty=0,
            indexes=indexes,
            next=next_steps(self.gallery.status()),
        )

    def backfill(self, source: VectorSource, **options: Unpack[BackfillOptions]) -> Backfilled:
        """Give items that lack one a new vector; see `Gallery.backfill`."""
        return self.gallery.backfill(source, **options)

    def index(self) -> None:
        """Build an approximate index over the new vectors; searches go on."""
        self.gallery.index()

    def swap(self, *, allow_missing: int = 0) -> None:
        """Make the new model the active one, in one commit; see `Gallery.swap`."""
        self.gallery.swap(allow_missing=allow_missing)

    def rollback(self, *, allow_missing: int = 0) -> None:
        """Make the old model active again, in one commit. Nothing is deleted.

        Args:
            allow_missing: Not used: a gallery never refuses a rollback. Items with a new vector only are kept.
        """
        self.gallery.rollback()

    def finish(self, *, allow_missing: int = 0) -> None:
        """Check every new vector and delete the old ones; see `Gallery.finish`."""
        self.gallery.finish(allow_missing=allow_missing)

    def cancel(self) -> None:
        """Delete the new vectors; see `Gallery.cancel`."""
        self.gallery.cancel()

    def verify(self) -> UpgradeVerification:
        """Read every vector of the new model, and name rows that are not right."""
        found = self.gallery.check_vectors()
        return UpgradeVerification(
            tuple(
                f"{count} vectors of {found.generation} are {kind}; `limpet gallery doctor` names them"
                for kind, count in found.wrong.items()
            )
        )

    def journal(self) -> Sequence[Mapping[str, object]]:
        """Return what was done, the last event last, with "at" as a moment in UTC."""
        return [entry.to_dict() for entry in self.gallery.store.journal()]

    def close(self) -> None:
        """Let go of the gallery."""
        self.gallery.close()


def _sides(state: GalleryState) -> tuple[str, str]:
    """Return the generations of the old and the new model; without an upgrade the active one is both."""
    if state.phase == "swapped":
        return state.previous[-1], state.active
    return state.active, state.target


def _model(state: GalleryState, name: str) -> UpgradeModel:
    generation = state.by_name[name]
    return UpgradeModel(generation.fingerprint, int(generation.geometry.dim), generation.note)
