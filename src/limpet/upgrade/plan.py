"""Estimates for a backfill before it starts, measured on a sample of real items without changing anything."""

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

_NAMED = 20  # maximum number of missing ids to keep


@dataclass(frozen=True)
class BackfillPlan:
    """Estimates for a backfill.

    Args:
        generation: The generation, or the model, whose vectors it makes.
        rows: Number of items without a vector of the generation.
        bytes_written: Size of their vectors, without ids, metadata and indexes of the store.
        bytes_until_finish: Size of the vectors of other models, which stay until the upgrade is finished.
        sampled: Number of items in the sample; 0 without a source.
        missing: Number of sampled items that the source does not have.
        items_per_second: Speed of the source for items that it has; None if nothing could be measured.
        price_per_thousand: Price of embedding 1,000 items; None if unknown.
        budget_cost: Maximum cost of embedding; None for no limit.
        budget_seconds: Maximum seconds of embedding; None for no limit.
        meanwhile: The other vectors that new queries may search until then, and why, in words.
        tokens_per_item: Mean number of tokens per sampled item if the model is priced by tokens; else None.
        price_per_million_tokens: Price of embedding a million tokens; None if unknown.
        candidates: Number of candidates per query of two-stage search before the backfill; 0 if it is not used.
        machines: Number of machines that embed, each as fast as the measured one.
        like: Actual number of items if the plan is for another number of items like these; else None.
        committed_per_second: Vectors that one process commits per second; None if not measured.
        stored_per_item: Bytes per new vector with its id, its share of the ledger and further copies of metadata,
            without an index; None if not measured.
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
        """Estimated number of the rows that the source has, from its share of the sample."""
        return round(self.rows * (self.sampled - self.missing) / self.sampled) if self.sampled else self.rows

    @property
    def seconds(self) -> float | None:
        """Seconds to embed the found rows, without writing them; None if nothing could be measured."""
        return self.found_rows / self.items_per_second if self.items_per_second else None

    @property
    def commit_seconds(self) -> float | None:
        """Seconds to commit the found rows; None if not measured."""
        return self.found_rows / self.committed_per_second if self.committed_per_second else None

    @property
    def total_seconds(self) -> float | None:
        """Seconds for both: one after the other on one machine; several machines embed while one commits.

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
        """Size of their vectors as the gallery stores them; None if not measured."""
        return None if self.stored_per_item is None else self.rows * self.stored_per_item

    def of_items(self, items: int) -> BackfillPlan:
        """Return the plan for `items` items like these, none of which has a new vector.

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
        """Cost of embedding the found rows; None without a price.

        >>> BackfillPlan("g2", 9000, 9000, 0, 0, tokens_per_item=200, price_per_million_tokens=0.5).cost
        0.9
        """
        return None if self.cost_per_thousand is None else self.found_rows * self.cost_per_thousand / 1000

    @property
    def cost_per_thousand(self) -> float | None:
        """Cost of 1,000 items, by the price of items or of tokens; None without a price."""
        if self.tokens_per_item is not None and self.price_per_million_tokens is not None:
            return self.tokens_per_item * self.price_per_million_tokens / 1000
        return self.price_per_thousand

    @property
    def seconds_per_query(self) -> float | None:
        """Maximum seconds that a query of two-stage search embeds: all its candidates; None if not measured.

        >>> BackfillPlan("g2", 9000, 9000, 0, 0, items_per_second=50.0).seconds_per_query
        2.0
        """
        if not self.items_per_second or not self.candidates:
            return None
        return min(self.candidates, self.rows) / self.items_per_second

    @property
    def cost_per_query(self) -> float | None:
        """Maximum cost of embedding these; None without a price."""
        cost = self.cost_per_thousand
        return None if cost is None or not self.candidates else min(self.candidates, self.rows) * cost / 1000

    @property
    def tokens(self) -> float | None:
        """Number of tokens of the found rows; None if the model is not priced by tokens."""
        return None if self.tokens_per_item is None else self.found_rows * self.tokens_per_item

    @property
    def rows_within_budget(self) -> int | None:
        """Number of the found rows that the budgets allow; None without a budget.

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
        """Return plain values, including the derived ones."""
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
    """Return a plan with the effort of a source, measured on a sample of the items.

    Half of the sample is embedded to warm the source up; then the other half is timed, since a source would read items
    faster that it has just read.

    Args:
        plan: The plan as far as it is known without the source.
        source: Source of the vectors; without it, times are not estimated.
        ids: Ids of the sample.
        price_per_thousand: Price of embedding 1,000 items, in any currency.
        batch: Number of items per request to the source, as in the backfill.
        budget_cost: Maximum cost, in the same currency.
        budget_seconds: Maximum seconds of embedding.
        clock: Returns the time in seconds.
        meter: Meter of a source that calls a model behind an API; its price of tokens is used if it has one.
        candidates: Number of candidates per query of two-stage search, see `limpet.galleries.two_stage`.
        items: Plan for this number of items like the present ones; for the present ones when left out.
        machines: Number of machines that embed, each as fast as this one.

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
    """Measurements of a sample: its size, the ids that the source lacks, and the speed of the source."""

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
