"""What every upgrade of a live index offers, whoever owns its rows: values and one protocol."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self, Unpack

from limpet.engines.collection import IndexStatus
from limpet.engines.sides import ModelSide
from limpet.errors import without_secrets
from limpet.upgrade.filling import Backfilled, FillOptions
from limpet.upgrade.lifecycle import Phase
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.vector_sources import VectorSource


@dataclass(frozen=True)
class NextStep:
    """What to type next.

    Args:
        purpose: What it is for, in words that follow "to".
        words: The command: what follows `limpet GROUP`, without the URL that comes after the first of them.
        group: Of the command.
    """

    purpose: str
    words: tuple[str, ...]
    group: Literal["upgrade", "gallery"] = "upgrade"

    def command(self, url: str) -> str:
        """Return what to paste, without a password.

        >>> NextStep("make it active", ("swap", "--writes", "new")).command("my gallery")
        "limpet upgrade swap 'my gallery' --writes new"
        """
        first, *others = self.words
        return shlex.join(["limpet", self.group, first, without_secrets(url), *others])


@dataclass(frozen=True)
class UpgradeStatus:
    """Where an upgrade stands, as read in one moment.

    Args:
        place: What is upgraded, in words, without secrets.
        phase: Of the upgrade.
        old: The model whose vectors were there.
        new: The model that takes over.
        serving: Whose vectors queries find; where both models share a column, whose queries it is to ask.
        writes: With which model new vectors are written.
        items: Items that have, or are to have, a vector.
        lacking: How many of them have no up-to-date vector of each model.
        empty: Items for which the application itself keeps no vector; they get none.
        indexes: Over the new vectors.
        holding: Where vectors of both models share a column: how many items hold there one of each, those of earlier
            texts not counted; empty elsewhere.
        without_text: How many of those that lack a vector have no text to make one of; of a collection, as the last
            backfill found.
        texts: Whether it is known what vectors are made of.
        unknown: Number of items with vectors of an unknown model or text, since they were written
            without our triggers. They count as lacking.
        next: What to type next, the most sensible first.
    """

    place: str
    phase: Phase
    old: UpgradeModel
    new: UpgradeModel
    serving: ModelSide
    writes: ModelSide
    items: int
    lacking: Mapping[ModelSide, int]
    empty: int
    indexes: tuple[IndexStatus, ...]
    holding: Mapping[ModelSide, int] = field(default_factory=dict)
    without_text: Mapping[ModelSide, int] = field(default_factory=dict)
    texts: bool = False
    unknown: int = 0
    next: tuple[NextStep, ...] = ()

    def model(self, side: ModelSide) -> UpgradeModel:
        """Return one of the two models."""
        return self.new if side == "new" else self.old


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
class UpgradeVerification:
    """What `Upgrade.verify` found.

    Args:
        problems: What is not as it should be in the place itself, each with what to do.
        queries: Queries of the application that should change.
        unwatched: Why queries could not be watched; empty where they were.
    """

    problems: tuple[str, ...]
    queries: tuple[NamedQuery, ...] = ()
    unwatched: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.problems and not self.queries


class Upgrade(Protocol):
    """An upgrade of a live index, which is read and written meanwhile; see `limpet.upgrade.lifecycle` for its steps.

    A step that was interrupted is resumed by the same call.

    Args:
        notes: In words, what was noticed when it was opened, such as a dump and restore, or what its end left.
    """

    notes: tuple[str, ...]

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def status(self) -> UpgradeStatus:
        """Count all items, and return where it stands and what comes next."""
        ...

    def backfill(self, source: VectorSource, **options: Unpack[FillOptions]) -> Backfilled:
        """Give items that lack one a new vector; what is written meanwhile wins."""
        ...

    def index(self) -> None:
        """Build the indexes over the new vectors that there are over the old ones, beside reads and writes."""
        ...

    def swap(self, *, allow_missing: int = 0) -> None:
        """Let queries find the new vectors, at once.

        Args:
            allow_missing: So many items may lack a vector, and are not found until they have one.
        """
        ...

    def rollback(self, *, allow_missing: int = 0) -> None:
        """Let queries find the old vectors again."""
        ...

    def finish(self, *, allow_missing: int = 0) -> None:
        """Keep the new vectors alone, and remove what the upgrade added; there is no way back."""
        ...

    def cancel(self) -> None:
        """Keep the old vectors alone, and remove what the upgrade added."""
        ...

    def verify(self) -> UpgradeVerification:
        """Look for what is not as it should be."""
        ...

    def journal(self) -> Sequence[Mapping[str, object]]:
        """Return what was done, the last event last, each with "at", a moment, and "kind", a step."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
