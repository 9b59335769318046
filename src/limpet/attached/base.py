"""Interface of upgrades of application-owned indexes, in addition to `limpet.upgrade.base.Upgrade`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, Unpack

import numpy as np
from annotated_types import Ge

from limpet.attached.ledger import AttachmentEntry
from limpet.attached.state import AttachmentState
from limpet.embeddings import EmbeddingSet
from limpet.engines.address import Address, Sample
from limpet.engines.sides import ModelSide
from limpet.errors import GalleryError
from limpet.support.progress import Progress, Told, showing
from limpet.support.ranges import Seed, checked
from limpet.upgrade.base import Upgrade, UpgradeVerification
from limpet.upgrade.filling import Backfilled, FillOptions, check_source
from limpet.upgrade.lifecycle import Phase, UpgradeStep
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.plan import BackfillPlan, PlanOptions, measured_plan
from limpet.upgrade.vector_sources import ItemSource, VectorSource

if TYPE_CHECKING:
    from limpet.galleries.rehearsal import Rehearsal

SAMPLE = 256
"""Maximum number of items that are embedded to measure the speed of a source."""
NUMBER = np.dtype(np.float32).itemsize
"""Bytes per value of a vector."""


@dataclass(frozen=True)
class Right:
    """A privilege that a start requires.

    Args:
        statement: SQL statement that grants the privilege.
        held: Whether the privilege is granted.
    """

    statement: str
    held: bool


@dataclass(frozen=True)
class StartPlan:
    """Dry run of a start on an index that an application owns; nothing is changed.

    Args:
        refusals: Reasons why the start is impossible, other than missing privileges; empty if there are none.
        steps: Steps of the start, as SQL or text.
        rights: The privileges that the start requires, and whether each is granted.
        notes: Further remarks.
    """

    refusals: tuple[str, ...]
    steps: Mapping[str, tuple[str, ...]]
    rights: tuple[Right, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def lacking(self) -> tuple[str, ...]:
        """The statements that grant the missing privileges."""
        return tuple(right.statement for right in self.rights if not right.held)

    @property
    def possible(self) -> bool:
        """Whether the start is possible."""
        return not (self.lacking or self.refusals)


class NotStartedError(GalleryError):
    """No upgrade of a table or a collection was started."""


class OwnedIndex(ABC):
    """An index that an application owns, before or after the start of an upgrade. A rehearsal needs only its rows."""

    @property
    @abstractmethod
    def rows(self) -> Address:
        """Address of the rows."""

    @property
    @abstractmethod
    def texts(self) -> ItemSource[list[str]]:
        """Current texts of the items."""

    @property
    @abstractmethod
    def stored(self) -> VectorSource:
        """Current old vectors of the items."""

    @abstractmethod
    def model(self, side: ModelSide) -> UpgradeModel:
        """Return one of the two models; a dimension of 0 means that it is not yet known."""

    @property
    def mixed(self) -> bool:
        """Whether vectors of both models share a column, so that queries of either model find them."""
        return False

    @showing("rehearsal")
    @checked
    def rehearse(
        self, source: VectorSource, *, sample: Annotated[int, Ge(20)] = 2000, reports: Sequence[Path] = (),
        queries: tuple[EmbeddingSet, EmbeddingSet] | None = None, class_column: str = "label", seed: Seed = 0,
        progress: Progress[Told] = None,
    ) -> Rehearsal:  # fmt: skip
        """Rehearse the upgrade on a sample of the rows, in an in-memory gallery; the index is only read.

        Args:
            source: Source of the vectors of the new model.
            sample: Number of rows in the sample, at least 20.
            reports: Evaluation reports that allow new queries on old vectors, if both share a column; see
                `Gallery.start`.
            queries: The same queries embedded by the old and the new model. Default: sampled rows.
            class_column: Column of the class; rows of the same class as a query are relevant.
            seed: Random seed of the sample and of the examples shown.
            progress: "rich" or "tqdm" for a bar, or a function that is called with "step", and with "done" and
                "total" while rows are embedded.
        """
        from limpet.attached.rehearsal import sample_copy
        from limpet.engines.sources import open_source
        from limpet.galleries.rehearsal import rehearse

        new, address = self.model("new"), self.rows
        if new.dim:
            check_source(source, new.fingerprint, new.dim, of="the new model")
        rows = open_source(replace(address, sample=Sample(sample, seed)))
        with sample_copy(rows, self.stored, self.model("old").called) as gallery:
            if self.mixed:
                gallery.start(source.fingerprint, source.space, note=new.called)
                gallery.link(source.fingerprint, self.model("old").fingerprint, force="vectors share a column")
            return rehearse(
                gallery, source, sample=sample, reports=reports, queries=queries, class_column=class_column, seed=seed,
                progress=progress, live=(address.name, open_source(address).rows),
            )  # fmt: skip


class Attachment(OwnedIndex, Upgrade):
    """An upgrade of an index that an application owns and uses during the upgrade."""

    notes: tuple[str, ...] = ()

    @property
    @abstractmethod
    def entry(self) -> AttachmentEntry[Any]:
        """The attachment as currently recorded in its ledger."""

    @property
    def state(self) -> AttachmentState:
        """The phase, the models, and which model each writer uses."""
        return self.entry.state

    @property
    def phase(self) -> Phase:
        """Phase of the upgrade."""
        return self.state.phase

    @property
    def serving(self) -> ModelSide:
        """The model whose vectors queries find."""
        return self.state.serving

    @property
    def mixed(self) -> bool:
        """Whether vectors of both models share a column."""
        return self.state.shared

    @property
    def started(self) -> datetime:
        """Time of the start."""
        return self.entry.started

    def model(self, side: ModelSide) -> UpgradeModel:
        """Return one of the two models."""
        record = self.entry.record
        found: UpgradeModel = record.new if side == "new" else record.old
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def some(self, limit: int) -> list[str]:
        """Return ids of at most ``limit`` items that have an up-to-date old vector."""

    def remaining(self, *, at_once: bool) -> tuple[UpgradeStep, ...]:
        """Return the remaining steps until the new model is served; see `Upgrade.remaining`."""
        state = self.state
        if state.shared:
            steps: tuple[UpgradeStep, ...] = ("swap", "backfill")
        else:
            steps = ("backfill", "index", "swap") if state.swappable else ("backfill", "index")
        done = {"swap": state.phase == "swapped", "index": state.indexed}
        return tuple(step for step in steps if not done.get(step))

    @checked
    def plan(
        self, source: VectorSource | None = None, *, sample: Annotated[int, Ge(2)] = SAMPLE,
        **options: Unpack[PlanOptions],
    ) -> BackfillPlan:  # fmt: skip
        """Estimate time and cost of a backfill of the new vectors; nothing is changed.

        Args:
            source: Source of the new vectors; without it, no time is estimated.
            sample: Number of items to embed for the estimate, at least 2.
            **options: See `measured_plan`.
        """
        found = self.status()
        if source is not None:
            check_source(source, found.new.fingerprint, found.new.dim, of="the new model")
        rows = found.lacking["new"]
        known = BackfillPlan(found.new.called, found.items, rows, NUMBER * rows * found.new.dim,
                             NUMBER * found.items * found.old.dim)  # fmt: skip
        ids = [] if source is None else self.some(sample)
        return replace(measured_plan(known, source, ids, **options), candidates=0)

    @abstractmethod
    def backfill(
        self,
        source: VectorSource,
        *,
        of: ModelSide = "new",
        made: datetime | None = None,
        **options: Unpack[FillOptions],
    ) -> Backfilled:
        """Backfill missing vectors of one of the models; concurrent writes of the application take precedence.

        Args:
            source: Source of the vectors.
            of: Model of the vectors.
            made: Time at which the vectors of the source were made, if it does not embed the current items.
            options: See `FillOptions`.
        """

    @abstractmethod
    def swap(
        self, source: VectorSource | None = None, *, writes: ModelSide | None = None, allow_missing: int = 0
    ) -> None:
        """Switch the queries of the application to the new vectors, in one step.

        Args:
            source: Source of the new model, for items that were just written.
            writes: Model with which the application writes after the swap. Default: unchanged.
            allow_missing: Maximum number of items without a vector; queries do not find them until they have one. If
                vectors of both models share a column, queries find all items, and no swap is refused.
        """

    @abstractmethod
    def rollback(
        self, source: VectorSource | None = None, *, writes: ModelSide | None = None, allow_missing: int = 0
    ) -> None:
        """Switch the queries back to the old vectors; the arguments are those of `swap`, for the old model."""

    @abstractmethod
    def declare_writes(self, model: str, source: VectorSource | None = None, *, allow_missing: int = 0) -> ModelSide:
        """Declare the model with which the application writes.

        Args:
            model: old, new, or a fingerprint.
            source: Source of that model, if no triggers copy earlier writes of the application.
            allow_missing: Maximum number of items without a vector of that model.
        """

    @abstractmethod
    def verify(self, *, watch: float = 0.0, source: VectorSource | None = None) -> UpgradeVerification:
        """Check the upgrade for errors, and find queries of the application that should change.

        Args:
            watch: Seconds to watch queries.
            source: Source of the served model: items written since the last swap or rollback are embedded again and
                compared.
        """

    @abstractmethod
    def cancel(self, *, allow_missing: int = 0, force: bool = False) -> None:
        """Keep only the old vectors, and remove everything that the upgrade added.

        Args:
            allow_missing: Maximum number of items that stay without a vector.
            force: Remove what the upgrade added even if the index has changed since.
        """
