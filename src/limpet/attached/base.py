"""What an upgrade of vectors in somebody else's place offers, wherever that is: values and one protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, Self, Unpack

from limpet.attached.state import AttachmentEvent, AttachmentState
from limpet.engines.collection import IndexStatus
from limpet.engines.sides import ModelSide
from limpet.upgrade.filling import Backfilled, FillOptions
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.vector_sources import ItemSource, VectorSource


@dataclass(frozen=True)
class AttachmentStatus:
    """Where an attachment stands, as read in one moment.

    Args:
        place: What it is attached to, in words, without secrets.
        state: Phase, models, and who writes with which.
        old: The model whose vectors were there.
        new: The model that takes over.
        items: Items that have, or are to have, a vector.
        lacking: Of them those without an up-to-date vector of each model, by side.
        empty: Items for which the application itself keeps no vector; they get none.
        indexes: Over the new vectors.
        holding: Where vectors of both models share a column: how many items hold there one of each, by side, those of
            earlier texts not counted; empty elsewhere.
        unknown: How many items have vectors of which nobody knows the model or the text, since they were written
            without our triggers. They count as lacking.
        without_text: How many of those that lack a vector have no text to make one of, by side; of a collection, as the
            last backfill found.
        texts: Whether it is known what vectors are made of.
    """

    place: str
    state: AttachmentState
    old: UpgradeModel
    new: UpgradeModel
    items: int
    lacking: dict[ModelSide, int]
    empty: int
    indexes: tuple[IndexStatus, ...]
    holding: dict[ModelSide, int] = field(default_factory=dict)
    without_text: dict[ModelSide, int] = field(default_factory=dict)
    texts: bool = False
    unknown: int = 0


@dataclass(frozen=True)
class NamedQuery:
    """A query of the application that the upgrade concerns.

    Args:
        query: Its text, as the server keeps it, with placeholders for values.
        calls: How often it was run while it was watched; in all where it was not.
        why: What about it should change, in words.
    """

    query: str
    calls: int
    why: str


@dataclass(frozen=True)
class AttachmentVerification:
    """What `Attachment.verify` found.

    Args:
        problems: What is not as it should be in the place itself, each with what to do.
        queries: Queries of the application that should change.
        unwatched: Why queries could not be watched; empty where they were.
    """

    problems: tuple[str, ...]
    queries: tuple[NamedQuery, ...]
    unwatched: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.problems and not self.queries


class Attachment(Protocol):
    """An upgrade that is carried out where the vectors are, beside an application that goes on.

    Every step is possible again after it was interrupted anywhere, by the same call.

    Args:
        notes: In words, what was noticed when it was opened, such as a dump and restore, or what `detach` left.
    """

    notes: tuple[str, ...]

    @property
    def state(self) -> AttachmentState:
        """Where it stands."""
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

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def status(self) -> AttachmentStatus:
        """Read where it stands."""
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
        """Give rows that lack one a vector of one of the models; what the application writes meanwhile wins.

        Args:
            source: Of vectors.
            of: Of which model.
            made: When the source's vectors were made, where it does not read rows as they are.
            options: See `FillOptions`.
        """
        ...

    def index(self) -> None:
        """Build the indexes over the new vectors that there are over the old ones, beside reads and writes."""
        ...

    def swap(
        self, source: VectorSource | None = None, *, writes: ModelSide | None = None, allow_missing: int = 0
    ) -> None:
        """Let the application's queries find the new vectors, at once.

        Args:
            source: Of the new model, for rows that were written a moment ago.
            writes: With which model the application writes from then on; as before if left out.
            allow_missing: So many rows may lack a vector, and are not found until they have one. (Where vectors of both
                models share a column, all are found, and none is refused.)
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
            allow_missing: So many rows may lack a vector of that model.
        """
        ...

    def verify(self, *, watch: float = 0.0, source: VectorSource | None = None) -> AttachmentVerification:
        """Look for what is not as it should be, and for queries of the application that should change.

        Args:
            watch: Seconds to watch queries.
            source: Of the model that serves: what the application wrote since the last turn is embedded again and
                compared.
        """
        ...

    def complete(self, *, allow_missing: int = 0) -> None:
        """Declare the upgrade finished: `detach` then keeps the new vectors instead of the old ones."""
        ...

    def detach(self, *, allow_missing: int = 0, abandon: bool = False) -> None:
        """Remove everything that was added, and leave the vectors that serve; with abandon whatever happened to it."""
        ...

    def client_queries(self) -> list[tuple[str, str]]:
        """Return what the application may ask, each with what it is for."""
        ...

    def journal(self) -> Sequence[AttachmentEvent]:
        """Return what was done, the last event last, each with "at", a moment, and "kind"."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
