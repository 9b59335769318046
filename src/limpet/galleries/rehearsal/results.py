"""Results of the rehearsal of an upgrade, and the verdict for the upgrade itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, PlainSerializer

from limpet.evaluation.compatibility import TRAINED_SHARE
from limpet.evaluation.first_hits import FirstHits as NetFirstHits
from limpet.evaluation.thresholds import Thresholds
from limpet.evaluation.upgrade import Curve
from limpet.galleries.state import How
from limpet.results import Difference, Disagreement, Part, Results
from limpet.support.ranges import Count, NonNegative, PositiveInt, Share

RehearsalVerdict = Literal["ready", "dips", "no gain", "mixed", "worse", "not held out", "unlabelled", "failed"]
Linked = How | Literal["none"]

FIRST = "recall@1"
RIGHT = ("map", FIRST)
"""Metrics of queries of which it is known what is right."""
ALIKE = ("overlap@10 with old", "overlap@10 with new")
"""Metrics of all queries: the share of the first ten items that old queries find before the swap, and that new queries
find once everything is embedded anew."""

Gain = tuple[Difference, Difference, Difference]
"""A mean and both ends of its interval."""


class Timing(Part):
    """Measured time of one step on the copy, and the estimate for the gallery.

    Args:
        step: Name of the step.
        seconds: Seconds on the copy.
        items: Number of items processed; 0 if the time does not depend on them.
        full_seconds: Estimated seconds for the whole gallery; None if the copy allows no estimate.
    """

    step: str
    seconds: NonNegative
    items: Count
    full_seconds: NonNegative | None


class OrderCurve(Part):
    """Scores of new queries while the copy is backfilled in one order.

    Args:
        shares: Share of the items with a new vector, ascending.
        values: Means over queries at each share, by metric.
        differences: To old queries before the swap, at each share, by metric of `RIGHT`: mean and 95 % interval over
            queries, or over their classes. None without labels.
        area: Mean height of the curve by the trapezoid rule, by metric.
    """

    shares: Annotated[tuple[Share, ...], Field(min_length=1)]
    values: dict[str, tuple[Share, ...]]
    differences: dict[str, tuple[Gain, ...]] | None
    area: dict[str, NonNegative]

    @classmethod
    def of(
        cls,
        shares: Sequence[float],
        values: Mapping[str, Sequence[float]],
        differences: Mapping[str, Sequence[Gain]] | None,
    ) -> Self:
        """Return the curve through these points, with its area."""
        area = {metric: Curve(np.array(shares), np.array(means), metric).area for metric, means in values.items()}
        return cls.model_validate({"shares": shares, "values": values, "differences": differences, "area": area})

    @property
    def dips(self) -> list[str]:
        """Metrics that are measurably below those before the swap at some share; none without labels."""
        return [name for name, gains in (self.differences or {}).items() if any(high < 0 for _, _, high in gains)]

    @property
    def lost(self) -> list[str]:
        """Metrics that are measurably below those before the swap at the end."""
        return [name for name, gains in (self.differences or {}).items() if gains[-1][2] < 0]

    def disagreements(self, place: str, metric: str) -> Iterator[Disagreement]:
        """Yield every part that is inconsistent with another, or lacks the main metric."""
        if metric not in self.values or self.area.keys() != self.values.keys():
            yield f"{place}.area", f"of {', '.join(self.area)}", f"'{metric}' and whatever has values"
        lists = [*self.values.values(), *(self.differences or {}).values()]
        if any(len(points) != len(self.shares) for points in lists):
            yield place, f"of {sorted({*map(len, lists)})} points", f"{len(self.shares)} points, one per share"


class FirstHitChanges(Part):
    """How the first hits of queries changed, compared with old queries before the swap.

    Args:
        share: Share of the items with a new vector.
        changed: Share of the queries with another first hit.
        fixed: Share of queries wrong before and right now, see `positive_flip_rate`; None without labels.
        broken: Share of queries right before and wrong now.
    """

    share: Share
    changed: Share
    fixed: Share | None
    broken: Share | None


class FirstHit(Part):
    """The first item that a query found.

    Args:
        id: Id of the item.
        score: Score of the hit.
        metadata: Metadata of the item.
        right: Whether the item is relevant; None if unknown.
    """

    id: str
    score: Annotated[float, Field(allow_inf_nan=False)]
    metadata: dict[str, Any]
    right: bool | None


class ChangedQuery(Part):
    """A query whose first hit changes, for visual inspection.

    Args:
        query: Id of the query.
        metadata: Metadata of the query.
        old: First hit before the swap, by the old model.
        new: First hit by the new model, by share of the items with a new vector.
    """

    query: str
    metadata: dict[str, Any]
    old: FirstHit
    new: dict[Annotated[Share, PlainSerializer("{:g}".format, return_type=str)], FirstHit]


class Searches(Part):
    """Statistics of the searches during the rehearsal.

    Args:
        made: Number of queries, answered or failed.
        failed: Messages of the first failed queries.
        incomplete: Answers that did not cover every item, or named one twice.
        wrong: Answers that were not the nearest items, by a comparison with all vectors.
        milliseconds: Milliseconds per query at each point, on the copy.
    """

    made: Count
    failed: tuple[str, ...]
    incomplete: Count
    wrong: Count
    milliseconds: dict[str, NonNegative]


class TwoStages(Part):
    """Results of two-stage search before the swap: the new model re-scores candidates of old queries.

    Args:
        candidates: Number of candidates per query: a tenth of the copy's items, at least 10 and at most 100.
        values: Means over queries, by metric, as in the curves.
        differences: To old queries before the swap, by metric of `RIGHT`: mean and 95 % interval. None without labels.
        encoded_per_query: Mean number of items encoded per query, with earlier encodings kept.
        encoded: Share of the copy's items that were encoded after all queries.
        first_milliseconds: Median milliseconds of a query that encodes its candidates.
        again_milliseconds: Median milliseconds of the same query when its candidates are already encoded.
    """

    candidates: PositiveInt
    values: dict[str, Share]
    differences: dict[str, Gain] | None
    encoded_per_query: NonNegative
    encoded: Share
    first_milliseconds: NonNegative
    again_milliseconds: NonNegative


class RehearsedModel(Part):
    """One of the two models.

    Args:
        name: Name of its generation in the gallery; empty if it has none yet.
        note: Display name.
        fingerprint: Fingerprint of the model.
    """

    name: str
    note: str
    fingerprint: str


class Rehearsal(Results):
    """Results of a whole upgrade rehearsed on a copy, as stored in rehearsal.json.

    Args:
        gallery: URL of the gallery, table or collection, which was only read, without passwords.
        attached: Whether an application owns it.
        items: Number of its items.
        sampled: Number of items of the copy.
        missing: Number of sampled items that the source does not have.
        old: The old model.
        new: The new model.
        linked: Reason why new queries may search old vectors: "report", "adapter", "mapped", "forced" or "none".
        steps: Names of the steps, in the order of execution.
        metric: The main metric.
        queries: "given" or "items" (sampled items as queries for the others).
        asked: Number of queries.
        judged: Number of queries with known relevant items.
        trained: Number of queries that the new model was trained on; None if unknown.
        before: Scores of old queries before the swap, by metric.
        after_rollback: Scores of old queries after the rollback, by metric.
        rollback_equal: Whether every query found the same items with the same scores after the rollback.
        curves: Curves by order; the first one is that of the whole rehearsal.
        left_out: Orders that could not be used, with the reason.
        first_hits: Changes of first hits at the swap, half way and at the end.
        examples: Queries whose first hit changes.
        timings: One entry per step.
        searches: Searches throughout.
        verdict: Verdict, see `verdict_of`.
        seed: Random seed of all draws.
        passed: Whether every step worked, searches found everything throughout, and the rollback led back.
        two_stage: What two-stage search finds and costs; None where it was not measured.
        thresholds: What thresholds on scores become with the swap, where new queries may search old vectors, and once
            all items are re-embedded.
        commands: What to type to upgrade the gallery as it was rehearsed, in order; empty where Python rehearsed it.
    """

    KIND: ClassVar[str | None] = "rehearsal"
    WRITER: ClassVar[str] = "“limpet upgrade rehearse”"
    AGAIN: ClassVar[str] = "run “limpet upgrade rehearse”"
    FILE: ClassVar[str] = "rehearsal.json"

    kind: str
    title: str = "Rehearsal of an upgrade"
    gallery: str
    attached: bool = False
    items: Count
    sampled: PositiveInt
    missing: Count
    old: RehearsedModel
    new: RehearsedModel
    linked: Linked
    steps: tuple[str, ...]
    metric: str
    queries: Literal["given", "items"]
    asked: PositiveInt
    judged: Count
    trained: Count | None = None
    before: dict[str, Share]
    after_rollback: dict[str, Share]
    rollback_equal: bool
    curves: Annotated[dict[str, OrderCurve], Field(min_length=1)]
    left_out: dict[str, str]
    first_hits: Annotated[tuple[FirstHitChanges, ...], Field(min_length=2)]
    examples: tuple[ChangedQuery, ...]
    timings: tuple[Timing, ...]
    searches: Searches
    verdict: RehearsalVerdict
    seed: int
    passed: bool
    two_stage: TwoStages | None = None
    thresholds: dict[Literal["swap", "finish"], Thresholds] = Field(default_factory=dict)
    commands: tuple[str, ...] = ()

    @property
    def only_read(self) -> str:
        """Assurance that nothing was changed, a clause."""
        return f"the {'data of the application' if self.attached else 'gallery'} was only read"

    @property
    def labelled(self) -> bool:
        """Whether it is known of any query what is right."""
        return self.judged > 0

    @property
    def swaps_first(self) -> bool:
        """Whether new queries may search old vectors, so that the swap need not wait for the last new vector."""
        return self.linked != "none"

    @property
    def curve(self) -> OrderCurve:
        """That of the order that was rehearsed whole."""
        return next(iter(self.curves.values()))

    @property
    def net_first_hits(self) -> NetFirstHits | None:
        """How first hits fare at the end, to stand beside the verdict; None without labels."""
        last, gains, after = self.first_hits[-1], self.curve.differences or {}, self.curve.values.get(FIRST)
        if FIRST not in gains or after is None:
            return None
        net, low, high = gains[FIRST][-1]
        return NetFirstHits(
            metric=FIRST, before=self.before[FIRST], after=after[-1], healed=last.fixed, broken=last.broken, net=net,
            interval=(low, high),
        )  # fmt: skip

    def disagreements(self) -> Iterator[Disagreement]:
        """Yield every part that contradicts another."""
        metric = RIGHT[0] if self.labelled else ALIKE[1]
        if self.metric != metric:
            yield "metric", f"'{self.metric}'", f"'{metric}', as {self.judged} queries are judged"
        if self.missing > self.sampled:
            yield "missing", self.missing, f"at most {self.sampled}, all that are sampled"
        if self.judged > self.asked:
            yield "judged", self.judged, f"at most {self.asked}, all that are asked"
        if metric not in self.before or self.before.keys() != self.after_rollback.keys():
            yield "after_rollback", f"of {', '.join(self.after_rollback)}", f"'{metric}' and the metrics of before"
        for name, curve in self.curves.items():
            yield from curve.disagreements(f"curves.{name}", metric)
            if (lacking := set(curve.differences or ()) - (self.before.keys() & curve.values)) != set():
                yield f"curves.{name}.differences", f"of {', '.join(sorted(lacking))}", "metrics that have values"
        for name, found in self.thresholds.items():
            yield from found.disagreements(f"thresholds.{name}")
        if self.two_stage is not None and self.two_stage.values.keys() != self.before.keys():
            yield "two_stage.values", f"of {', '.join(self.two_stage.values)}", "the metrics of before"
        if self.verdict != "failed" and (self.verdict == "unlabelled") != (self.curve.differences is None):
            yield "verdict", f"'{self.verdict}'", "'unlabelled' just where there are no differences"
        if self.passed != (self.verdict != "failed"):
            yield "passed", self.passed, f"{not self.passed}, as the verdict is '{self.verdict}'"
        if "embed" not in (timing.step for timing in self.timings):
            yield "timings", f"of {', '.join(timing.step for timing in self.timings)}", "one of “embed”"


def verdict_of(
    curve: OrderCurve, searches: Searches, rollback_equal: bool, trained_share: float | None = None
) -> RehearsalVerdict:
    """Return the verdict of a rehearsal, by its confidence intervals.

    Args:
        curve: Curve of the order that was rehearsed completely.
        searches: Searches of the whole rehearsal.
        rollback_equal: Whether every query found the same after the rollback as before.
        trained_share: Share of the queries that the new model was trained on; None if unknown.

    Returns:
        "failed" (a search failed, missed an item or was wrong, or the rollback changed results), "unlabelled" (the
        relevant items are unknown), "worse" (less is found at the end than before, by the main metric), "mixed" (less
        at the end by another metric), "dips" (less is found on the way, by any metric), "ready" (more is found at the
        end, and never less), "not held out" (the same, but the new model was trained on more than `TRAINED_SHARE` of
        the queries), or "no gain" (no difference can be shown).
    """
    if searches.failed or searches.incomplete or searches.wrong or not rollback_equal:
        return "failed"
    if curve.differences is None:
        return "unlabelled"
    if curve.lost:
        return "worse" if RIGHT[0] in curve.lost else "mixed"
    if curve.dips:
        return "dips"
    _, low, _ = curve.differences[RIGHT[0]][-1]
    if low <= 0:
        return "no gain"
    return "ready" if (trained_share or 0) <= TRAINED_SHARE else "not held out"
