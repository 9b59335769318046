"""What a drill measured, as values, and what they mean for the upgrade itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from holdfast.stores.base import Metadata

Verdict = Literal["ready", "dips", "no gain", "mixed", "worse", "unlabelled", "failed"]

RIGHT = ("map", "recall@1")
"""Metrics of queries of which it is known what is right."""
ALIKE = ("overlap@10 with old", "overlap@10 with new")
"""Metrics of all queries: the share of the first ten items that old queries find before the swap, and that new queries
find once everything is embedded anew."""


Difference = tuple[float, float, float]
"""A mean and both ends of its interval."""


@dataclass(frozen=True)
class Timing:
    """How long one step took on the copy, and would take on the gallery.

    Args:
        step: Its name.
        seconds: On the copy.
        items: How many items it went through; 0 where it does not depend on them.
        full_seconds: On as many items as the gallery has; None where the copy says nothing of that.
    """

    step: str
    seconds: float
    items: int
    full_seconds: float | None


@dataclass(frozen=True)
class OrderCurve:
    """What new queries find while the copy is backfilled in one order.

    Args:
        shares: Share of the items that had a new vector, ascending.
        values: Means over queries at each share, by metric.
        differences: To old queries before the swap, at each share, by metric of `RIGHT`: mean and 95 % interval over
            queries, or over their classes. None without labels.
    """

    shares: tuple[float, ...]
    values: Mapping[str, tuple[float, ...]]
    differences: Mapping[str, tuple[Difference, ...]] | None

    def area(self, metric: str) -> float:
        """Return the mean height of a curve by the trapezoid rule."""
        values, shares = self.values[metric], self.shares
        pairs = zip(values, values[1:], shares, shares[1:], strict=False)
        width = shares[-1] - shares[0]
        return sum((a + b) / 2 * (end - start) for a, b, start, end in pairs) / width if width else values[0]


@dataclass(frozen=True)
class FirstHits:
    """How the first hits of queries changed, compared with old queries before the swap.

    Args:
        share: Of the items that had a new vector.
        changed: Share of the queries with another first hit.
        fixed: Share that was wrong and is right; None where nobody knows what is right.
        broken: Share that was right and is wrong.
    """

    share: float
    changed: float
    fixed: float | None
    broken: float | None


@dataclass(frozen=True)
class FirstHit:
    """The first item that a query found.

    Args:
        id: Its name.
        score: Of the hit.
        metadata: What is known of the item.
        right: Whether it is a right answer; None where nobody knows.
    """

    id: str
    score: float
    metadata: Metadata
    right: bool | None


@dataclass(frozen=True)
class Example:
    """One query whose first hit changes, to judge by eye.

    Args:
        query: Id of the query.
        metadata: What is known of it.
        old: What it found before the swap, by the old model.
        new: What it finds by the new one, by share of the items that have a new vector.
    """

    query: str
    metadata: Metadata
    old: FirstHit
    new: Mapping[float, FirstHit]


@dataclass(frozen=True)
class Searches:
    """What happened to the searches that were made throughout.

    Args:
        made: How many queries were answered or failed.
        failed: Messages of those that failed, the first ones.
        incomplete: Answers that did not cover every item, or named one twice.
        wrong: Answers that were not the nearest items, by a comparison with all vectors.
        milliseconds: Per query at each point, on the copy.
    """

    made: int
    failed: tuple[str, ...]
    incomplete: int
    wrong: int
    milliseconds: Mapping[str, float]


@dataclass(frozen=True)
class Drill:
    """A whole upgrade, rehearsed on a copy.

    Args:
        gallery: URL of the gallery, which was only read.
        items: Items it has.
        sampled: Items of the copy.
        missing: Items of the sample that the source does not have.
        old: Name, note and fingerprint of the model that is replaced.
        new: The same of the one that replaces it.
        linked: Why new queries may search old vectors: "report", "adapter", "mapped", "forced" or "none".
        steps: Names of the steps in the order in which they were made.
        metric: The main metric.
        queries: "given" or "items" (sampled items that were searched for among the others).
        asked: How many queries.
        judged: For how many of them it is known what is right.
        before: What old queries find before the swap, by metric.
        after_rollback: What they find after the rollback.
        rollback_equal: Whether every query found the same items with the same scores after the rollback.
        curves: By order; the first one is that of the whole drill.
        left_out: Orders that could not be used, with why.
        first_hits: At the swap, half way and at the end.
        examples: Queries whose first hit changes.
        timings: One entry per step.
        searches: Searches throughout.
        verdict: What it means, see `verdict_of`.
        seed: Of all that was drawn.
    """

    gallery: str
    items: int
    sampled: int
    missing: int
    old: Mapping[str, str]
    new: Mapping[str, str]
    linked: str
    steps: tuple[str, ...]
    metric: str
    queries: str
    asked: int
    judged: int
    before: Mapping[str, float]
    after_rollback: Mapping[str, float]
    rollback_equal: bool
    curves: Mapping[str, OrderCurve]
    left_out: Mapping[str, str]
    first_hits: tuple[FirstHits, ...]
    examples: tuple[Example, ...]
    timings: tuple[Timing, ...]
    searches: Searches
    verdict: Verdict
    seed: int

    @property
    def passed(self) -> bool:
        """Whether every step worked, searches found everything throughout, and the rollback led back."""
        return self.verdict != "failed"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        record = asdict(self)
        for name, curve in self.curves.items():
            record["curves"][name]["area"] = {metric: curve.area(metric) for metric in curve.values}
        for example in record["examples"]:
            example["new"] = {f"{share:g}": hit for share, hit in example["new"].items()}
        return {"kind": "drill", **record, "passed": self.passed}


def verdict_of(curve: OrderCurve, searches: Searches, rollback_equal: bool) -> Verdict:
    """Return what a drill means, by its intervals.

    Returns:
        "failed" (a search failed, missed an item or was wrong, or the rollback did not lead back), "unlabelled" (nobody
        knows what is right), "worse" (less is found at the end than before, by the main metric), "mixed" (less at the
        end by another one), "dips" (less is found on the way, by any), "ready" (more is found at the end, and never
        less), or "no gain" (neither more nor less can be told).
    """
    if searches.failed or searches.incomplete or searches.wrong or not rollback_equal:
        return "failed"
    if curve.differences is None:
        return "unlabelled"
    ends = {metric: found[-1] for metric, found in curve.differences.items()}
    _, low, high = ends[RIGHT[0]]
    if high < 0:
        return "worse"
    if any(above < 0 for _, _, above in ends.values()):
        return "mixed"
    if any(above < 0 for found in curve.differences.values() for _, _, above in found):
        return "dips"
    return "ready" if low > 0 else "no gain"
