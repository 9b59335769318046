"""Repair of a gallery: roll back to the last complete commit if the disk damaged later ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from limpet.errors import GalleryError, shown
from limpet.galleries.doctor.findings import NAMED
from limpet.galleries.state import replay

if TYPE_CHECKING:
    from limpet.galleries.gallery import Gallery


@dataclass(frozen=True)
class Repaired:
    """Result of a repair.

    Args:
        damage: The data that could not be read.
        sequence: Number of the commit that the gallery was rolled back to.
        commits: Number of later commits that are lost.
        lost: Items that were written since: they have their earlier state, or are missing.
        returned: Items that were deleted since, and exist again.
        unfilled: Items that lost only vectors of a backfill.
    """

    damage: tuple[str, ...]
    sequence: int
    commits: int
    lost: int
    lost_ids: tuple[str, ...]
    returned: int
    returned_ids: tuple[str, ...]
    unfilled: int

    def to_dict(self) -> dict[str, object]:
        """Return plain values."""
        return asdict(self)

    def __str__(self) -> str:
        """Say what is lost."""
        parts = [
            f"The gallery is as it was at commit {self.sequence}; {self.commits:,} later commits are lost.",
            f"Write again what was written since: {self.lost:,} items, {shown(self.lost_ids, self.lost)}."
            if self.lost
            else "No item was written since.",
            f"Delete again: {self.returned:,} items, {shown(self.returned_ids, self.returned)}."
            if self.returned
            else "",
            f"Backfill again: {self.unfilled:,} items lost vectors." if self.unfilled else "",
        ]
        return " ".join(part for part in parts if part)


def repair(gallery: Gallery) -> Repaired | None:
    """Roll back to the last commit that can be read completely; return None if nothing is damaged.

    Raises:
        GalleryError: No commit can be read completely; nothing was changed.
    """
    store = gallery.store
    with store.writing("repair", timeout=gallery.timeout) as pointer:
        damage = store.damage()
        if not damage:
            return None
        sequence = store.last_whole()
        if sequence is None:
            raise GalleryError(
                f"No commit of the gallery can be read whole: {damage[0]}",
                to_do="`limpet gallery restore` a backup, or import an export.",
                intact="Nothing was changed.",
            )
        state = replay([entry.event for entry in store.journal() if entry.sequence <= sequence]).to_record()
        event = {"kind": "repair", "to": sequence, "state": state}
        result = store.go_back(sequence, state, event)
    return Repaired(
        tuple(damage),
        sequence,
        pointer.sequence - sequence,
        len(result.lost),
        tuple(result.lost[:NAMED]),
        len(result.returned),
        tuple(result.returned[:NAMED]),
        result.unfilled,
    )
