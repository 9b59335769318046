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
    """A query of the application that the upgrade affects.

    Args:
        query: Text of the query, as recorded by the server, with placeholders for values.
        calls: Number of calls while it was watched; otherwise, in total.
        why: Change that the query needs, as a sentence.
    """

    query: str
    calls: int
    why: str


@dataclass(frozen=True)
class UpgradeVerification:
    """What `Upgrade.verify` found.

    Args:
        problems: Errors found in the index itself, each with a remedy.
        queries: Queries of the application that should change.
        unwatched: Reason why queries could not be watched; empty if they were.
    """

    problems: tuple[str, ...]
    queries: tuple[NamedQuery, ...] = ()
    unwatched: str = ""

    @property
    def passed(self) -> bool:
        """Whether no problem was found."""
        return not self.problems and not self.queries


class UpgradeSteps(Protocol):
    """The steps of an upgrade of a live index; reads and writes continue. See `limpet.upgrade.lifecycle`.

    To resume an interrupted step, repeat the call.

    Args:
        notes: Notes from opening the upgrade, such as a detected dump and restore, or remains of a step.
    """

    notes: tuple[str, ...]

    @property
    def phase(self) -> Phase:
        """Phase of the upgrade."""
        ...

    @property
    def serving(self) -> ModelSide:
        """The model whose vectors queries find; if both models share a column, the model to query with."""
        ...

    def model(self, side: ModelSide) -> UpgradeModel:
        """Return one of the two models."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def status(self) -> UpgradeStatus:
        """Count all items, and return the phase and the next step."""
        ...

    def index(self) -> None:
        """Build the same indexes over the new vectors as over the old ones; reads and writes continue."""
        ...

    def swap(self, *, allow_missing: int = 0) -> None:
        """Switch queries to the new vectors, at once.

        Args:
            allow_missing: Maximum number of items without a vector; they are not found until they have one.
        """
        ...

    def rollback(self, *, allow_missing: int = 0) -> None:
        """Switch queries back to the old vectors."""
        ...

    def finish(self, *, allow_missing: int = 0) -> None:
        """Keep only the new vectors, and remove everything that the upgrade added. This cannot be undone."""
        ...

    def cancel(self) -> None:
        """Keep only the old vectors, and remove everything that the upgrade added."""
        ...

    def verify(self) -> UpgradeVerification:
        """Check the upgrade for errors."""
        ...

    def journal(self, last: int | None = None) -> Sequence[Mapping[str, object]]:
        """Return the events, oldest first, each with "at", a time, and "kind", a step.

        Args:
            last: Maximum number of events. Default: all.
        """
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class Upgrade(UpgradeSteps, Protocol):
    """Steps that need direct access to the items and vectors of the index, in addition to `UpgradeSteps`."""

    def plan(self, source: VectorSource | None = None, **options: Unpack[PlanOptions]) -> BackfillPlan:
        """Estimate time and cost of a backfill; nothing is changed. See `limpet.upgrade.plan.measured_plan`."""
        ...

    def remaining(self, *, at_once: bool) -> tuple[UpgradeStep, ...]:
        """Return the remaining steps, in order, until queries find new vectors of all items.

        Args:
            at_once: Whether queries of the new model may search old vectors.
        """
        ...

    def rehearse(
        self, source: VectorSource, *, sample: int = 2000, queries: tuple[EmbeddingSet, EmbeddingSet] | None = None,
        class_column: str = "label", seed: int = 0, progress: Progress[Told] = None,
    ) -> Results:  # fmt: skip
        """Run all steps on an in-memory copy of a sample, and measure searches throughout; nothing is changed.

        Args:
            source: Source of the vectors of the new model.
            sample: Number of items in the sample.
            queries: The same queries embedded by the old and the new model. Default: sampled items.
            class_column: Metadata column, or column of a table, of the class; items of the same class as a query are
                relevant.
            seed: Random seed of the sample and of the examples shown.
            progress: "rich" or "tqdm" for a bar, or a function that is called with "step", and with "done" and
                "total" while items are embedded.
        """
        ...

    def backfill(self, source: VectorSource, **options: Unpack[FillOptions]) -> Backfilled:
        """Backfill missing new vectors; concurrent writes take precedence."""
        ...
