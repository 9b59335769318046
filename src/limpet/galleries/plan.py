"""What a backfill will take, before it starts: measured on a sample of real items, and changing nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from annotated_types import Ge

from limpet.errors import refuse
from limpet.galleries.items import sample as sampled_items
from limpet.galleries.links import link_from_report
from limpet.galleries.state import GalleryState, Link, advance
from limpet.support.ranges import NonNegative, PositiveInt, Seed, checked
from limpet.upgrade.filling import check_source
from limpet.upgrade.vector_sources import VectorSource

if TYPE_CHECKING:
    from limpet.galleries.gallery import Gallery
    from limpet.models.api.meter import Meter

_NAMED = 20  # missing ids kept


@dataclass(frozen=True)
class BackfillPlan:
    """What a backfill will take.

    Args:
        generation: Which generation it fills.
        items: Items of the gallery.
        rows: Items without a vector of the generation.
        bytes_written: Size of their vectors, without ids, metadata and indexes of the store.
        bytes_until_finish: Size of the vectors of other generations, which stay until the upgrade is finished.
        sampled: Items of the sample; 0 without a source.
        missing: How many of them the source does not have.
        missing_ids: The first of those.
        items_per_second: How fast the source is, items that it has; None where nothing could be measured.
        price_per_thousand: Of embedding 1,000 items; None where nobody said.
        budget_cost: At most this much for embedding; None without limit.
        budget_seconds: At most so many seconds of embedding; None without limit.
        links: Why new queries may search other generations meanwhile, with the numbers of the reports.
        tokens_per_item: Of an item of the sample on average, where a model is paid by tokens; None for others.
        price_per_million_tokens: Of embedding; None where nobody said.
        candidates: Of a query that searches in two stages before the backfill.
    """

    generation: str
    items: int
    rows: int
    bytes_written: int
    bytes_until_finish: int
    sampled: int = 0
    missing: int = 0
    missing_ids: tuple[str, ...] = ()
    items_per_second: float | None = None
    price_per_thousand: float | None = None
    budget_cost: float | None = None
    budget_seconds: float | None = None
    links: tuple[Link, ...] = ()
    tokens_per_item: float | None = None
    price_per_million_tokens: float | None = None
    candidates: int = 100

    @property
    def found_rows(self) -> int:
        """How many of the rows the source probably has, by its share of the sample."""
        return round(self.rows * (self.sampled - self.missing) / self.sampled) if self.sampled else self.rows

    @property
    def seconds(self) -> float | None:
        """How long embedding these will take; writing comes on top. None where nothing could be measured."""
        return self.found_rows / self.items_per_second if self.items_per_second else None

    @property
    def cost(self) -> float | None:
        """Of embedding these; None without a price.

        >>> BackfillPlan("g2", 9000, 9000, 0, 0, tokens_per_item=200, price_per_million_tokens=0.5).cost
        0.9
        """
        return None if self.cost_per_thousand is None else self.found_rows * self.cost_per_thousand / 1000

    @property
    def cost_per_thousand(self) -> float | None:
        """Of 1,000 items, by the price of items or of tokens; None without a price."""
        if self.tokens_per_item is not None and self.price_per_million_tokens is not None:
            return self.tokens_per_item * self.price_per_million_tokens / 1000
        return self.price_per_thousand

    @property
    def seconds_per_query(self) -> float | None:
        """How long a query embeds that searches in two stages, at most: all its candidates; None where unmeasured.

        >>> BackfillPlan("g2", 9000, 9000, 0, 0, items_per_second=50.0).seconds_per_query
        2.0
        """
        return min(self.candidates, self.rows) / self.items_per_second if self.items_per_second else None

    @property
    def cost_per_query(self) -> float | None:
        """Of embedding these, at most; None without a price."""
        cost = self.cost_per_thousand
        return None if cost is None else min(self.candidates, self.rows) * cost / 1000

    @property
    def tokens(self) -> float | None:
        """Of embedding these; None for a model that is not paid by tokens."""
        return None if self.tokens_per_item is None else self.found_rows * self.tokens_per_item

    @property
    def rows_within_budget(self) -> int | None:
        """How many of these the budgets allow; None without one.

        >>> BackfillPlan("g2", 9000, 9000, 0, 0, price_per_thousand=0.5, budget_cost=2.0).rows_within_budget
        4000
        """
        allowed = []
        if self.budget_cost is not None and self.cost_per_thousand:
            allowed.append(math.floor(1000 * self.budget_cost / self.cost_per_thousand))
        if self.budget_seconds is not None and self.items_per_second is not None:
            allowed.append(math.floor(self.budget_seconds * self.items_per_second))
        if self.budget_cost is None and self.budget_seconds is None:
            return None
        return min(self.found_rows, *allowed) if allowed else self.found_rows

    def to_dict(self) -> dict[str, object]:
        """Return plain values, with what follows from them."""
        derived = (
            "found_rows", "seconds", "cost", "tokens", "rows_within_budget", "seconds_per_query", "cost_per_query"
        )  # fmt: skip
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}


@checked
def plan(
    gallery: Gallery,
    source: VectorSource | None = None,
    *,
    reports: Sequence[Path] = (),
    sample: Annotated[int, Ge(2)] = 256,
    price_per_thousand: NonNegative | None = None,
    batch: PositiveInt = 4096,
    budget_cost: NonNegative | None = None,
    budget_seconds: NonNegative | None = None,
    seed: Seed = 0,
    clock: Callable[[], float] = time.perf_counter,
    meter: Meter | None = None,
    candidates: PositiveInt = 100,
) -> BackfillPlan:
    """Say what a backfill of the started or active generation will take; nothing is changed.

    A source of another model, while no upgrade is started, stands for the new one.

    Half of a random sample of the items without a vector is embedded to warm the source up, then the other half is
    timed: items that a source has just read would be read faster than others.

    Args:
        gallery: Where.
        source: Where the vectors will come from; without it nothing is said of time.
        reports: See `Gallery.start`; only where the upgrade is not started yet.
        sample: Items to embed, at least 2.
        price_per_thousand: Of embedding 1,000 items, in any currency.
        batch: Items that the source is asked for at a time, as in the backfill.
        budget_cost: At most this much, in the same currency.
        budget_seconds: At most so many seconds of embedding.
        seed: Of the sample.
        clock: Tells seconds.
        meter: Of a source that asks a model behind an API: its price of tokens counts, where there is one.
        candidates: Of a query that searches in two stages, see `limpet.galleries.two_stage`.

    Raises:
        ConfigError: A number is out of range, or a budget needs a price or a source.
        DataError: The source is of another model.
        GalleryError: A report does not vouch for the new model.
    """
    per_token = None if meter is None else meter.limits.price
    refuse(per_token is not None and price_per_thousand is not None, "Prices of items and of tokens.", "one of them")
    refuse(budget_cost is not None and price_per_thousand is None and per_token is None, "A budget without a price.",
           "price_per_thousand, or the price of a million tokens")  # fmt: skip
    refuse(budget_seconds is not None and source is None, "A budget of time without a source.", "a source to measure")
    pointer, state = gallery.now()
    started = source is None or state.of(source.fingerprint) is not None or state.started is not None
    refuse(
        started and bool(reports),
        "--evidence for an upgrade that is started.",
        "it only before; the gallery has it now",
    )
    if source is not None and not started:
        state = _with_started(state, source, reports)
    target = state.by_name[state.target]
    measured = _Measured()
    if source is not None:
        check_source(source, target.fingerprint, target.geometry, of=target.name)
        drawn = sampled_items(gallery.store, sample, seed, lacking=target.name if started else None)
        measured = _measured(source, [identifier for identifier, _ in drawn], batch, clock)
    rows = pointer.items - pointer.covered([target.name])
    return BackfillPlan(
        generation=target.name,
        items=pointer.items,
        rows=rows,
        bytes_written=rows * target.geometry.index_dim * np.dtype(np.float32).itemsize,
        bytes_until_finish=sum(gallery.store.upkeep(name).bytes for name in state.by_name if name != target.name),
        sampled=measured.sampled,
        missing=len(measured.missing),
        missing_ids=tuple(sorted(measured.missing)[:_NAMED]),
        items_per_second=measured.items_per_second,
        price_per_thousand=price_per_thousand,
        budget_cost=budget_cost,
        budget_seconds=budget_seconds,
        links=tuple(link for link in state.links if link.query == target.name),
        tokens_per_item=None if meter is None else meter.tokens_per_text,
        price_per_million_tokens=per_token,
        candidates=candidates,
    )


def _with_started(state: GalleryState, source: VectorSource, reports: Sequence[Path]) -> GalleryState:
    """Return the state of a gallery whose upgrade to the model of a source is started."""
    new = state.new_generation(source.fingerprint, source.space)
    links = [link_from_report(path, new, state.by_name[state.active]) for path in reports]
    return advance(state, {"kind": "start", "generation": new.to_record(), "links": [vars(link) for link in links]})


class _Measured(NamedTuple):
    """Of a sample: how many items it has, which of them the source lacks, and how fast the source is."""

    sampled: int = 0
    missing: Sequence[str] = ()
    items_per_second: float | None = None


def _measured(source: VectorSource, ids: Sequence[str], batch: int, clock: Callable[[], float]) -> _Measured:
    """Embed one half of the ids, and then the other half against the clock."""
    half = len(ids) // 2
    first = _embedded(source, ids[:half], batch)
    started = clock()
    timed = _embedded(source, ids[half:], batch)
    seconds = clock() - started
    known = {*first, *timed}
    missing = [name for name in ids if name not in known]
    return _Measured(len(ids), missing, len(timed) / seconds if timed and seconds > 0 else None)


def _embedded(source: VectorSource, ids: Sequence[str], batch: int) -> list[str]:
    """Return the ids that the source has."""
    return [name for start in range(0, len(ids), batch) for name in source.embed(ids[start : start + batch]).ids]
