"""Common interface of all upgrades of a live index, regardless of who owns its rows: values and one protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, Unpack

from limpet.embeddings import EmbeddingSet
from limpet.engines.sides import ModelSide
from limpet.support.progress import Progress, Told
from limpet.upgrade.filling import Backfilled, FillOptions
from limpet.upgrade.lifecycle import Phase, UpgradeStep
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.plan import BackfillPlan, PlanOptions
from limpet.upgrade.status import UpgradeStatus
from limpet.upgrade.vector_sources import VectorSource

if TYPE_CHECKING:
    from limpet.results import Results


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


class UpgradeSteps(Protocol):
    """The steps of an upgrade of a live index, which is read and written meanwhile; see `limpet.upgrade.lifecycle`.

    A step that was interrupted is resumed by the same call.

    Args:
        notes: In words, what was noticed when it was opened, such as a dump and restore, or what a step left.
    """

    notes: tuple[str, ...]

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        ...

    @property
    def serving(self) -> ModelSide:
        """Whose vectors queries find; where both models share a column, whose queries it is to ask."""
        ...

    def model(self, side: ModelSide) -> UpgradeModel:
        """Return one of the two models."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def status(self) -> UpgradeStatus:
        """Count all items, and return where it stands and what comes next."""
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

    def journal(self, last: int | None = None) -> Sequence[Mapping[str, object]]:
        """Return what was done, the last event last, each with "at", a moment, and "kind", a step.

        Args:
            last: So many of the last events; all when left out.
        """
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class Upgrade(UpgradeSteps, Protocol):
    """The same, where this process has the index: what needs items and vectors of its own."""

    def plan(self, source: VectorSource | None = None, **options: Unpack[PlanOptions]) -> BackfillPlan:
        """Say what a backfill will take; nothing is changed. See `limpet.upgrade.plan.measured_plan`."""
        ...

    def remaining(self, *, at_once: bool) -> tuple[UpgradeStep, ...]:
        """Return the steps that are left until queries find new vectors of all items, in order.

        Args:
            at_once: Whether queries of the new model may search old vectors.
        """
        ...

    def rehearse(
        self, source: VectorSource, *, sample: int = 2000, queries: tuple[EmbeddingSet, EmbeddingSet] | None = None,
        class_column: str = "label", seed: int = 0, progress: Progress[Told] = None,
    ) -> Results:  # fmt: skip
        """Take all steps on a copy of a sample in memory, and measure searches throughout; nothing is changed.

        Args:
            source: Where the vectors of the new model come from.
            sample: Items of the copy.
            queries: The same queries by the old and by the new model; sampled items when left out.
            class_column: Metadata column, or column of a table, of the class: items of a query's class are relevant.
            seed: Of the sample, and of what is shown.
            progress: "rich" or "tqdm" for a bar, or a function that is called with "step", and with "done" and
                "total" while items are embedded.
        """
        ...

    def backfill(self, source: VectorSource, **options: Unpack[FillOptions]) -> Backfilled:
        """Give items that lack one a new vector; what is written meanwhile wins."""
        ...
