"""What an upgrade in somebody else's place offers beyond `limpet.upgrade.base.Upgrade`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, Unpack

from limpet.attached.state import AttachmentState
from limpet.engines.sides import ModelSide
from limpet.errors import GalleryError
from limpet.upgrade.base import Upgrade, UpgradeVerification
from limpet.upgrade.filling import Backfilled, FillOptions
from limpet.upgrade.vector_sources import ItemSource, VectorSource


@dataclass(frozen=True)
class Right:
    """A right that a start takes.

    Args:
        statement: What gives it.
        held: Whether it is there.
    """

    statement: str
    held: bool


@dataclass(frozen=True)
class StartPlan:
    """What a start would do to an index that an application owns; nothing was changed.

    Args:
        refusals: What rules the index out, in words; empty where nothing does.
        steps: What every step would do, in SQL or in words.
        rights: What the start takes, no more, and which of it is there.
        notes: What to know before.
    """

    refusals: tuple[str, ...]
    steps: Mapping[str, tuple[str, ...]]
    rights: tuple[Right, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def lacking(self) -> tuple[str, ...]:
        """The statements that give the rights that are lacking."""
        return tuple(right.statement for right in self.rights if not right.held)

    @property
    def possible(self) -> bool:
        """Whether nothing stands against the start."""
        return not (self.lacking or self.refusals)


class NotStartedError(GalleryError):
    """No upgrade of a table or a collection was started."""


class Attachment(Upgrade, Protocol):
    """An upgrade that is carried out where an application keeps its vectors, beside that application."""

    @property
    def state(self) -> AttachmentState:
        """Its phase, its models, and who writes with which."""
        ...

    @property
    def started(self) -> datetime:
        """When it began."""
        ...

    @property
    def texts(self) -> ItemSource[list[str]]:
        """Texts of the items as they are at the moment."""
        ...

    @property
    def stored(self) -> VectorSource:
        """The old vectors of the items as they are at the moment."""
        ...

    def some(self, limit: int) -> list[str]:
        """Return ids of some items that have an old vector, at most so many."""
        ...

    def backfill(
        self,
        source: VectorSource,
        *,
        of: ModelSide = "new",
        made: datetime | None = None,
        **options: Unpack[FillOptions],
    ) -> Backfilled:
        """Give items that lack one a vector of one of the models; what the application writes meanwhile wins.

        Args:
            source: Of vectors.
            of: Of which model.
            made: When the source's vectors were made, where it does not read items as they are.
            options: See `FillOptions`.
        """
        ...

    def swap(
        self, source: VectorSource | None = None, *, writes: ModelSide | None = None, allow_missing: int = 0
    ) -> None:
        """Let the application's queries find the new vectors, at once.

        Args:
            source: Of the new model, for items that were written a moment ago.
            writes: With which model the application writes from then on; as before if left out.
            allow_missing: So many items may lack a vector, and are not found until they have one. (Where vectors of
                both models share a column, all are found, and none is refused.)
        """
        ...

    def rollback(
        self, source: VectorSource | None = None, *, writes: ModelSide | None = None, allow_missing: int = 0
    ) -> None:
        """Let them find the old vectors again; the arguments are those of `swap`, for the old model."""
        ...

    def declare_writes(self, model: str, source: VectorSource | None = None, *, allow_missing: int = 0) -> ModelSide:
        """Declare with which model the application writes.

        Args:
            model: old, new, or a fingerprint.
            source: Of that model, where no triggers bring over what the application wrote until now.
            allow_missing: So many items may lack a vector of that model.
        """
        ...

    def verify(self, *, watch: float = 0.0, source: VectorSource | None = None) -> UpgradeVerification:
        """Look for what is not as it should be, and for queries of the application that should change.

        Args:
            watch: Seconds to watch queries.
            source: Of the model that serves: what the application wrote since the last turn is embedded again and
                compared.
        """
        ...

    def cancel(self, *, allow_missing: int = 0, force: bool = False) -> None:
        """Keep the old vectors alone, and remove what the upgrade added.

        Args:
            allow_missing: So many items may stay without a vector.
            force: Remove what is left of it, whatever became of the place meanwhile.
        """
        ...
