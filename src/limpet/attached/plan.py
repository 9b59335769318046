"""An index that an application owns, before its upgrade is started: plan and rehearse the upgrade."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Self, Unpack

from limpet.attached.base import NUMBER, SAMPLE, OwnedIndex
from limpet.embeddings import EmbeddingSet
from limpet.engines.address import Address, Sample
from limpet.engines.reading import SourceTexts, embeddings_of
from limpet.engines.sides import ModelSide
from limpet.engines.sources import open_source
from limpet.geometry import Space
from limpet.upgrade.lifecycle import Phase, UpgradeStep
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.plan import BackfillPlan, PlanOptions, measured_plan
from limpet.upgrade.vector_sources import VectorSource, WithText

_OLD = "declared:old"  # the model of existing vectors, which has no name before the start


class SampledVectors:
    """Vectors of a sample: a `VectorSource`."""

    def __init__(self, vectors: EmbeddingSet) -> None:
        self.vectors, self.fingerprint = vectors, vectors.fingerprint
        self.space: Space = vectors.space

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return the vectors of the ids that the sample has, in the order given."""
        rows = self.vectors.ids.find(list(ids))
        return self.vectors[rows[rows >= 0]]


class Unstarted(OwnedIndex):
    """An index that an application owns, whose upgrade is not started; it is only read.

    Args:
        address: Address of a table or a collection, as a source.
        sample: Number of old vectors to read; `SAMPLE` when left out.
        old: Fingerprint of the model that made them.
    """

    phase: Phase = "steady"

    def __init__(self, address: Address, sample: Sample | None = None, old: str = _OLD) -> None:
        self._source, self._sample, self._old = open_source(address), sample or Sample(SAMPLE), old
        if address.roles.id is None and self._source.key is not None:  # as a start does
            self._source = open_source(replace(address, roles=replace(address.roles, id=self._source.key)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: a source holds nothing open."""

    @property
    def rows(self) -> Address:
        """Address of the rows, as a source."""
        return self._source.address

    def remaining(self, *, at_once: bool) -> tuple[UpgradeStep, ...]:
        """Return all steps of an upgrade, see `Upgrade.remaining`."""
        return ("start", "swap", "backfill") if at_once else ("start", "backfill", "index", "swap")

    @property
    def texts(self) -> WithText:
        """Texts of the items, for models that re-embed them."""
        return WithText(SourceTexts(self._source))

    @property
    def stored(self) -> VectorSource:
        """The old vectors of a sample, for adapters and heads."""
        return SampledVectors(self.drawn)

    @cached_property
    def drawn(self) -> EmbeddingSet:
        """The old vectors of a random sample of the items."""
        source = open_source(replace(self._source.address, sample=self._sample))
        return embeddings_of(source, fingerprint=self._old, unusable=[])

    def model(self, side: ModelSide) -> UpgradeModel:
        """Return one of the models; the new one is not known yet."""
        if side == "new":
            return UpgradeModel("declared:new", 0)
        return UpgradeModel(self._old, self.drawn.space.dim)

    def plan(self, source: VectorSource | None = None, **options: Unpack[PlanOptions]) -> BackfillPlan:
        """Estimate the effort of an upgrade to the model of a source; see `Attachment.plan`."""
        drawn, items = self.drawn, self._source.rows
        known = BackfillPlan(
            "the new model" if source is None else source.fingerprint, items, items,
            0 if source is None else NUMBER * items * source.space.dim, NUMBER * items * drawn.space.dim,
        )  # fmt: skip
        return replace(measured_plan(known, source, list(drawn.ids), **options), candidates=0)
