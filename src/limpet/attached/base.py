"""What an upgrade in somebody else's place offers beyond `limpet.upgrade.base.Upgrade`."""

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
"""Items that are embedded to measure a source, at most."""
NUMBER = np.dtype(np.float32).itemsize
"""Bytes of a number of a vector."""


@dataclass(frozen=True)
class Right:
    """A right that a start takes."""

    statement: str
    held: bool


@dataclass(frozen=True)
class StartPlan:
    """What a start would do to an index that an application owns; nothing was changed.

    Args:
        refusals: What rules the index out, in words; empty where nothing does.
        steps: What every step would do, in SQL or in words.
        rights: What the start takes, no more, and which of it is there.
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


class OwnedIndex(ABC):
    """An index that an application owns, whose upgrade is started or not: it can be rehearsed from its rows alone."""

    @property
    @abstractmethod
    def rows(self) -> Address:
        """Where its rows are, as a source."""

    @property
    @abstractmethod
    def texts(self) -> ItemSource[list[str]]:
        """Texts of the items as they are at the moment."""

    @property
    @abstractmethod
    def stored(self) -> VectorSource:
        """The old vectors of the items as they are at the moment."""

    @abstractmethod
    def model(self, side: ModelSide) -> UpgradeModel:
        """Return one of the two models; one of dimension 0 is not known yet."""

    @property
    def mixed(self) -> bool:
        """Whether vectors of both models share a column, where queries of either find them."""
        return False

    @showing("rehearsal")
    @checked
    def rehearse(
        self, source: VectorSource, *, sample: Annotated[int, Ge(20)] = 2000, reports: Sequence[Path] = (),
        queries: tuple[EmbeddingSet, EmbeddingSet] | None = None, class_column: str = "label", seed: Seed = 0,
        progress: Progress[Told] = None,
    ) -> Rehearsal:  # fmt: skip
        """Rehearse the upgrade in a gallery in memory that holds a sample of the rows, which are only read.

        Args:
            source: Where the vectors of the new model come from.
            sample: Rows of the copy.
            reports: What lets new queries search old vectors, where both are to share a column; see `Gallery.start`.
            queries: The same queries by the old and by the new model; sampled rows when left out.
            class_column: Column of the class: rows of a query's class are relevant.
            seed: Of the sample, and of what is shown.
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
    """An upgrade that is carried out where an application keeps its vectors, beside that application."""

    notes: tuple[str, ...] = ()

    @property
    @abstractmethod
    def entry(self) -> AttachmentEntry[Any]:
        """The attachment as its ledger has it now."""

    @property
    def state(self) -> AttachmentState:
        """Its phase, its models, and who writes with which."""
        return self.entry.state

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        return self.state.phase

    @property
    def serving(self) -> ModelSide:
        """Whose vectors queries find."""
        return self.state.serving

    @property
    def mixed(self) -> bool:
        """Whether vectors of both models share a column."""
        return self.state.shared

    @property
    def started(self) -> datetime:
        """When it began."""
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
        """Return the steps that are left until the new model serves, see `Upgrade.remaining`."""
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
        """Say what a backfill of the new vectors will take; nothing is changed.

        Args:
            source: Of the new vectors; without it nothing is said of time.
            sample: Items to embed, at least 2.
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
        """Give items that lack one a vector of one of the models; what the application writes meanwhile wins.

        Args:
            source: Of vectors.
            of: Of which model.
            made: When the source's vectors were made, where it does not read items as they are.
            options: See `FillOptions`.
        """

    @abstractmethod
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

    @abstractmethod
    def rollback(
        self, source: VectorSource | None = None, *, writes: ModelSide | None = None, allow_missing: int = 0
    ) -> None:
        """Let them find the old vectors again; the arguments are those of `swap`, for the old model."""

    @abstractmethod
    def declare_writes(self, model: str, source: VectorSource | None = None, *, allow_missing: int = 0) -> ModelSide:
        """Declare with which model the application writes.

        Args:
            model: old, new, or a fingerprint.
            source: Of that model, where no triggers bring over what the application wrote until now.
            allow_missing: So many items may lack a vector of that model.
        """

    @abstractmethod
    def verify(self, *, watch: float = 0.0, source: VectorSource | None = None) -> UpgradeVerification:
        """Look for what is not as it should be, and for queries of the application that should change.

        Args:
            watch: Seconds to watch queries.
            source: Of the model that serves: what the application wrote since the last turn is embedded again and
                compared.
        """

    @abstractmethod
    def cancel(self, *, allow_missing: int = 0, force: bool = False) -> None:
        """Keep the old vectors alone, and remove what the upgrade added.

        Args:
            allow_missing: So many items may stay without a vector.
            force: Remove what is left of it, whatever became of the place meanwhile.
        """
