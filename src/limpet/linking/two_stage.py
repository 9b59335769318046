"""Two-stage search among held-out items, for comparison with adapters and heads: it encodes instead of fitting."""

from __future__ import annotations

from collections.abc import Mapping

from limpet.evaluation.intervals import Resampled
from limpet.evaluation.sides import Sides
from limpet.evaluation.two_stage import Rescored, rescored, rescored_metrics
from limpet.linking.compare import (
    AGREEMENT,
    FIRST,
    Effect,
    Values,
    draws_of,
    first_ten,
    means_of,
    metric_for,
    score_by,
    share_of,
)
from limpet.linking.held_out import HeldOut
from limpet.results import Defined, Part
from limpet.support.ranges import Count, NonNegative, Share

_MOST_CANDIDATES = 100
_FEWEST_CANDIDATES = 10


class TwoStage(Part):
    """Scores and cost of two-stage search, with every held-out item, or judged query, as a query, one after another.

    Args:
        candidates: Number of candidates per query: a tenth of the held-out items, from 10 to 100. In a larger gallery
            this is a smaller share of the items, and more relevant ones are missed.
        self_new_minus_cross: Further gain from re-embedding.
        recovered: Share of the gain from re-embedding that it recovers; None if re-embedding showed no gain.
        encoded_per_query: Mean number of items encoded per query, with those of earlier queries cached.
        encoded: Share of the held-out items encoded after all queries.
    """

    candidates: Count
    cross: Effect
    cross_minus_self_old: Effect
    self_new_minus_cross: Effect
    recovered: Defined = None
    encoded_per_query: NonNegative
    encoded: Share
    queries: Count


def two_stage(
    held_out: HeldOut,
    *,
    candidates: int | None = None,
    metric: str | None = None,
    resamples: int = 2000,
    resample: Resampled = "auto",
    level: float = 0.95,
    seed: int = 0,
) -> TwoStage:
    """Measure two-stage search on held-out items.

    Raises:
        ConfigError: An option is out of range.
        DataError: The metric needs labels, and there are none.
    """
    draws, metric = draws_of([held_out], resamples, level, seed, resample), metric_for(held_out, metric)
    (query_old, query_new), size = held_out.asking, len(held_out.old)
    usual = min(_MOST_CANDIDATES, max(_FEWEST_CANDIDATES, size // 10))
    count = usual if candidates is None else candidates
    old, new = (query_old, held_out.old), (query_new, held_out.new)
    found = rescored(old, new, count, exclude_same_id=True)
    values = _agreement(old, new, found) if metric == AGREEMENT else _scores(held_out, old, new, count, metric)
    gain = values["self_new"] - values["self_old"]
    brings, lacks = (values["cross"] - values["self_old"], values["self_new"] - values["cross"])
    means = means_of({"cross": values["cross"], "brings": brings, "lacks": lacks, "gain": gain}, draws)
    gained = means["gain"]
    return TwoStage(
        candidates=count,
        cross=means["cross"],
        cross_minus_self_old=means["brings"],
        self_new_minus_cross=means["lacks"],
        recovered=means["brings"].mean / gained.mean if gained.above_zero else None,
        encoded_per_query=float(found.new_encodings.mean()),
        encoded=found.encoded,
        queries=len(query_old),
    )


def _scores(held_out: HeldOut, old: Sides, new: Sides, count: int, metric: str) -> Mapping[str, Values]:
    score = score_by((metric,), held_out)
    if held_out.judged is None:
        cross = rescored_metrics(old, new, count, (metric,), exclude_same_id=True)
    else:
        relevance = held_out.judged.relevance
        lists = relevance.answers(*old)
        cross = rescored_metrics(
            old, new, count, (metric,), relevant=lists.relevant, ignore=lists.ignore,
            exclude_same_id=relevance.leave_one_out, no_relevant=relevance.no_relevant,
        )  # fmt: skip
    return {"self_old": score(*old)[metric], "cross": cross[metric], "self_new": score(*new)[metric]}


def _agreement(old: Sides, new: Sides, found: Rescored) -> Mapping[str, Values]:
    """Return the share of the first ten items after re-embedding that each system finds in its first ten (Q,)."""
    again = first_ten(*new)
    first = {"self_old": first_ten(*old), "cross": found.rows[:, :FIRST], "self_new": again}
    return {system: share_of(again, rows) for system, rows in first.items()}
