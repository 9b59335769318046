"""What a backfill will take, before it starts: measured on a sample of real items, and changing nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from limpet.errors import refuse
from limpet.support.ranges import NonNegative, PositiveInt, checked
from limpet.upgrade.vector_sources import VectorSource

if TYPE_CHECKING:
    from limpet.models.api.meter import Meter

_NAMED = 20  # missing ids kept


@dataclass(frozen=True)
class BackfillPlan:
    """What a backfill will take.

    Args:
        generation: The generation, or the model, whose vectors it makes.
        rows: Items without a vector of the generation.
        bytes_written: Size of their vectors, without ids, metadata and indexes of the store.
        bytes_until_finish: Size of the vectors of other models, which stay until the upgrade is finished.
        sampled: Items of the sample; 0 without a source.
        missing: How many of them the source does not have.
        items_per_second: How fast the source is, items that it has; None where nothing could be measured.
        price_per_thousand: Of embedding 1,000 items; None if it is not known.
        budget_cost: At most this much for embedding; None without limit.
        budget_seconds: Most seconds of embedding; None without limit.
        meanwhile: Which other vectors new queries may search until then, and why, in words.
        tokens_per_item: Of an item of the sample on average, where a model is paid by tokens; None for others.
        price_per_million_tokens: Of embedding; None if it is not known.
        candidates: Of a query that searches in two stages before the backfill; 0 where none does.
        machines: How many embed, each as fast as the one where that was measured.
        like: How many items there are, where the plan is of another number of items like these; else None.
        committed_per_second: How fast vectors are committed, by one process; None where that was not measured.
        stored_per_item: Bytes that a new vector takes with its id, its share of the ledger and further copies of
            metadata, without an index; None where that was not measured.
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
    meanwhile: tuple[str, ...] = ()
    tokens_per_item: float | None = None
    price_per_million_tokens: float | None = None
    candidates: int = 100
    machines: int = 1
    like: int | None = None
    committed_per_second: float | None = None
    stored_per_item: float | None = None

    @property
    def found_rows(self) -> int:
        """How many of the rows the source probably has, by its share of the sample."""
        return round(self.rows * (self.sampled - self.missing) / self.sampled) if self.sampled else self.rows

    @property
    def seconds(self) -> float | None:
        """How long embedding these will take; writing comes on top. None where nothing could be measured."""
        return self.found_rows / self.items_per_second if self.items_per_second else None

    @property
    def commit_seconds(self) -> float | None:
        """How long committing these will take; None where that was not measured."""
        return self.found_rows / self.committed_per_second if self.committed_per_second else None

    @property
    def total_seconds(self) -> float | None:
        """How long both will take: one after the other on one machine; several embed while one commits.

        >>> known = BackfillPlan("g2", 9000, 9000, 0, 0, items_per_second=10.0, committed_per_second=90.0)
        >>> known.total_seconds, replace(known, machines=4).total_seconds
        (1000.0, 225.0)
        """
        if self.seconds is None or self.commit_seconds is None:
            return None
        embedding = self.seconds / self.machines
        return embedding + self.commit_seconds if self.machines == 1 else max(embedding, self.commit_seconds)

    @property
    def bytes_stored(self) -> float | None:
        """Size of their vectors as the gallery keeps them; None where that was not measured."""
        return None if self.stored_per_item is None else self.rows * self.stored_per_item

    def of_items(self, items: int) -> BackfillPlan:
        """Return the plan for this number of items like these, none of which has a new vector.

        >>> known = BackfillPlan("g2", 100, 50, 200, 300).of_items(10_000)
        >>> known.items, known.rows, known.bytes_written, known.bytes_until_finish, known.like
        (10000, 10000, 40000, 30000, 100)
        """
        refuse(not self.rows, f"There is nothing to measure for {items:,} items: every item here has a new vector.",
               "an upgrade that is not backfilled, or a source of another model")  # fmt: skip
        return replace(
            self, items=items, rows=items, bytes_written=self.bytes_written * items // self.rows,
            bytes_until_finish=self.bytes_until_finish * items // self.items, like=self.items,
        )  # fmt: skip

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
        if not self.items_per_second or not self.candidates:
            return None
        return min(self.candidates, self.rows) / self.items_per_second

    @property
    def cost_per_query(self) -> float | None:
        """Of embedding these, at most; None without a price."""
        cost = self.cost_per_thousand
        return None if cost is None or not self.candidates else min(self.candidates, self.rows) * cost / 1000

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
            "found_rows", "seconds", "commit_seconds", "total_seconds", "bytes_stored", "cost", "tokens",
            "rows_within_budget", "seconds_per_query", "cost_per_query",
        )  # fmt: skip
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}


class PlanOptions(TypedDict, total=False):
    """Options of every plan; see `measured_plan`."""

    price_per_thousand: NonNegative | None
    batch: PositiveInt
    budget_cost: NonNegative | None
    budget_seconds: NonNegative | None
    clock: Callable[[], float]
    meter: Meter | None
    candidates: PositiveInt
    items: PositiveInt | None
    machines: PositiveInt


@checked
def measured_plan(
    plan: BackfillPlan,
    source: VectorSource | None,
    ids: Sequence[str],
    *,
    price_per_thousand: NonNegative | None = None,
    batch: PositiveInt = 4096,
    budget_cost: NonNegative | None = None,
    budget_seconds: NonNegative | None = None,
    clock: Callable[[], float] = time.perf_counter,
    meter: Meter | None = None,
    candidates: PositiveInt = 100,
    items: PositiveInt | None = None,
    machines: PositiveInt = 1,
) -> BackfillPlan:
    """Return a plan with what a source takes, measured on a sample of the items.

    Half of the sample is embedded to warm the source up, then the other half is timed: items that a source has just
    read would be read faster than others.

    Args:
        plan: What is known without the source.
        source: Where the vectors will come from; without it nothing is said of time.
        ids: The sample.
        price_per_thousand: Of embedding 1,000 items, in any currency.
        batch: Items that the source is asked for at a time, as in the backfill.
        budget_cost: At most this much, in the same currency.
        budget_seconds: Most seconds of embedding.
        clock: Tells seconds.
        meter: Of a source that asks a model behind an API: its price of tokens counts, where there is one.
        candidates: Of a query that searches in two stages, see `limpet.galleries.two_stage`.
        items: Plan for this number of items like those that are there; for these when left out.
        machines: How many embed, each as fast as this one.

    Raises:
        ConfigError: A budget needs a price or a source, or no item lacks a vector and ``items`` is given.
    """
    per_token = None if meter is None else meter.limits.price
    refuse(per_token is not None and price_per_thousand is not None, "Prices of items and of tokens.", "one of them")
    refuse(budget_cost is not None and price_per_thousand is None and per_token is None, "A budget without a price.",
           "price_per_thousand, or the price of a million tokens")  # fmt: skip
    refuse(budget_seconds is not None and source is None, "A budget of time without a source.", "a source to measure")
    measured = _Measured() if source is None else _measured(source, ids, batch, clock)
    return replace(
        plan if items is None else plan.of_items(items),
        sampled=measured.sampled,
        missing=len(measured.missing),
        missing_ids=tuple(sorted(measured.missing)[:_NAMED]),
        items_per_second=measured.items_per_second,
        price_per_thousand=price_per_thousand,
        budget_cost=budget_cost,
        budget_seconds=budget_seconds,
        tokens_per_item=None if meter is None else meter.tokens_per_text,
        price_per_million_tokens=per_token,
        candidates=candidates,
        machines=machines,
    )


class _Measured(NamedTuple):
    """Of a sample: how many items it has, which of them the source lacks, and how fast the source is."""

    sampled: int = 0
    missing: Sequence[str] = ()
    items_per_second: float | None = None


def _measured(source: VectorSource, ids: Sequence[str], batch: int, clock: Callable[[], float]) -> _Measured:
    half = len(ids) // 2
    first = _embedded(source, ids[:half], batch)
    started = clock()
    timed = _embedded(source, ids[half:], batch)
    seconds = clock() - started
    known = {*first, *timed}
    missing = [name for name in ids if name not in known]
    return _Measured(len(ids), missing, len(timed) / seconds if timed and seconds > 0 else None)


def _embedded(source: VectorSource, ids: Sequence[str], batch: int) -> list[str]:
    return [name for start in range(0, len(ids), batch) for name in source.embed(ids[start : start + batch]).ids]
