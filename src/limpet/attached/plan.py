"""Plans for indexes that an application owns: of a backfill, or of an upgrade that is not started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Self, Unpack

import numpy as np
from annotated_types import Ge

from limpet.attached.base import Attachment
from limpet.embeddings import EmbeddingSet
from limpet.engines.address import Address, Sample
from limpet.engines.reading import SourceTexts, embeddings_of
from limpet.engines.sides import ModelSide
from limpet.engines.sources import open_source
from limpet.geometry import Space
from limpet.support.ranges import checked
from limpet.upgrade.filling import check_source
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.plan import BackfillPlan, PlanOptions, measured_plan
from limpet.upgrade.vector_sources import VectorSource, WithText

SAMPLE = 256
"""Items that are embedded to measure a source, at most."""
_NUMBER = np.dtype(np.float32).itemsize
_OLD = "declared:old"  # the model of existing vectors, which has no name before the start


@checked
def plan(
    it: Attachment, source: VectorSource | None = None, *, sample: Annotated[int, Ge(2)] = SAMPLE,
    **options: Unpack[PlanOptions],
) -> BackfillPlan:  # fmt: skip
    """Say what a backfill of the new vectors will take; nothing is changed.

    Args:
        it: An upgrade that is started.
        source: Of the new vectors; without it nothing is said of time.
        sample: Items to embed, at least 2.
        **options: See `measured_plan`.
    """
    found = it.status()
    if source is not None:
        check_source(source, found.new.fingerprint, found.new.dim, of="the new model")
    rows = found.lacking["new"]
    known = BackfillPlan(found.new.called, found.items, rows, _NUMBER * rows * found.new.dim,
                         _NUMBER * found.items * found.old.dim)  # fmt: skip
    ids = [] if source is None else it.some(sample)
    return replace(measured_plan(known, source, ids, **options), candidates=0)


class SampledVectors:
    """Vectors of a sample: a `VectorSource`.

    Args:
        vectors: Of the sample.
    """

    def __init__(self, vectors: EmbeddingSet) -> None:
        self.vectors, self.fingerprint = vectors, vectors.fingerprint
        self.space: Space = vectors.space

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return the vectors of those of the ids that the sample has, in the order given."""
        rows = self.vectors.ids.find(list(ids))
        return self.vectors[rows[rows >= 0]]


class Unstarted:
    """An index that an application owns, whose upgrade is not started; it is only read.

    Args:
        address: Of a table or a collection, as a source.
        sample: Which of the old vectors are read; `SAMPLE` of them when left out.
        old: Fingerprint of the model that made them.
    """

    def __init__(self, address: Address, sample: Sample | None = None, old: str = _OLD) -> None:
        self._source, self._sample, self._old = open_source(address), sample or Sample(SAMPLE), old

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: a source holds nothing open."""

    @property
    def items(self) -> int:
        """How many items there are."""
        return self._source.rows

    @property
    def texts(self) -> WithText:
        """Texts of the items, for models that embed them anew."""
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
        """Return one of the models; of the new one nothing is known yet."""
        if side == "new":
            return UpgradeModel("declared:new", 0)
        return UpgradeModel(self.drawn.fingerprint, self.drawn.space.dim)

    def plan(self, source: VectorSource | None = None, **options: Unpack[PlanOptions]) -> BackfillPlan:
        """Say what an upgrade to the model of a source will take; see `plan`."""
        drawn = self.drawn
        known = BackfillPlan(
            "the new model" if source is None else source.fingerprint, self.items, self.items,
            0 if source is None else _NUMBER * self.items * source.space.dim, _NUMBER * self.items * drawn.space.dim,
        )  # fmt: skip
        return replace(measured_plan(known, source, list(drawn.ids), **options), candidates=0)
