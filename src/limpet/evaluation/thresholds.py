"""Map score thresholds of one model to those of another, with intervals over queries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from limpet.errors import DataError
from limpet.results import Disagreement, Finite, Part
from limpet.support.ranges import NonNegative, PositiveInt, Seed, Share, checked

_Floats = NDArray[np.float64]
_Relevant = NDArray[np.bool_]

FEWEST_QUERIES = 20
_ROWS, _EDGES = 50, 1000  # old thresholds of a table; new ones to choose among
_FEWEST_PASSING = 20  # pairs that pass the highest old threshold
_SORTED = 4_000_000  # scores that new thresholds are drawn from
_ENDS = (0.025, 0.975)


class NewThreshold(Part):
    """New threshold for a threshold on old scores; a score at or above a threshold passes it.

    Args:
        old: Threshold on old scores.
        new: Corresponding threshold on new scores.
        interval: 95 % interval of `new` over queries.
        passing_before: Mean number of items that pass for a query.
        passing_after: Mean number of items that pass the new threshold.
        precision_before: Share of the passing items that are relevant; None without labels.
        precision: Share of the items passing the new threshold that are relevant.
        precision_interval: 95 % prediction interval of `precision` for the same number of other queries.
    """

    old: Finite
    new: Finite
    interval: tuple[Finite, Finite]
    passing_before: NonNegative
    passing_after: NonNegative
    precision_before: Share | None = None
    precision: Share | None = None
    precision_interval: tuple[Share, Share] | None = None

    @property
    def words(self) -> str:
        """The mapping as a sentence."""
        low, high = self.interval
        said = f"A threshold of {self.old:g} on old scores becomes {self.new:.4g} [{low:.4g}, {high:.4g}] on new ones"
        if self.precision is None or self.precision_interval is None:
            return f"{said}: about {self.passing_after:.3g} items pass for a query, as before."
        low, high = self.precision_interval
        return (
            f"{said}: {self.passing_after:.3g} items pass for a query instead of {self.passing_before:.3g}, and "
            f"{self.precision:.3f} of them are relevant (before: {self.precision_before:.3f}; for as many other "
            f"queries between {low:.3f} and {high:.3f})."
        )


class Thresholds(Part):
    """Table of thresholds on old scores and their new thresholds.

    Args:
        kept: Quantity that a new threshold preserves: "precision" of the passing items or, without labels, their
            "number".
        queries: Number of scored queries.
        pairs: Number of pairs of query and item scored by each model.
        rows: Rows by old threshold, ascending.
    """

    kept: Literal["precision", "number"]
    queries: PositiveInt
    pairs: PositiveInt
    rows: Annotated[tuple[NewThreshold, ...], Field(min_length=1)]

    @classmethod
    @checked
    def of(
        cls,
        old: ArrayLike,
        new: ArrayLike,
        relevant: tuple[ArrayLike, ArrayLike] | None = None,
        *,
        resamples: PositiveInt = 1000,
        seed: Seed = 0,
    ) -> Self:
        """Compute new thresholds from queries that both models scored.

        The new threshold is the lowest at which the passing items are as precise as with the old one. Without labels,
        it is the lowest at which no more items pass. Every resample of queries has its own new threshold, which gives
        the interval, and its precision is measured on a second resample.

        Args:
            old: Scores by the old model (queries, items), larger for nearer; NaN for an ignored item, such as the query
                itself. Use all items or a random sample: among the first few hits alone, precision depends on the
                number of competing items.
            new: Scores of the same queries by the new model (queries, items); the items may differ.
            relevant: Whether each item is relevant, bool, in the shapes of `old` and `new`; None if unknown.
            resamples: Number of bootstrap resamples.
            seed: Random seed of the draws.

        Raises:
            DataError: There are fewer than 20 queries, or no threshold can be mapped.
        """
        before, after = (np.asarray(one, np.float64) for one in (old, new))
        queries, ordered, scores = len(before), _ordered(before), _ordered(after)
        if queries < FEWEST_QUERIES or len(after) != queries or not len(ordered) or not len(scores):
            raise DataError(f"Scores of {queries} and {len(after)} queries.",
                            expected=f"scores of the same queries, at least {FEWEST_QUERIES}")  # fmt: skip
        asked = np.linspace(np.median(ordered), ordered[-min(_FEWEST_PASSING, len(ordered))], _ROWS)
        choice = np.unique(scores[-np.unique(np.geomspace(1, len(scores), _EDGES).astype(int))])
        known = (None, None) if relevant is None else tuple(np.asarray(one, bool) for one in relevant)
        sides = _Passing(before, asked, known[0]), _Passing(after, choice, known[1])
        draws = np.random.default_rng(seed).multinomial(queries, np.full(queries, 1 / queries), size=(2, resamples))
        all_of, others = (np.concatenate([np.ones((1, queries)), one]) for one in draws)  # what is measured comes first
        (kept, reached), tested = (side.kept(all_of) for side in sides), sides[1].kept(others)
        rows = []
        for number, threshold in enumerate(asked):
            good = reached >= kept[:, [number]]
            chosen = np.where(good.any(axis=1), good.argmax(axis=1), len(choice) - 1)
            if not good[0].any():
                continue  # no new threshold is as precise
            row = {"old": threshold, "new": choice[chosen[0]], "interval": _interval(choice[chosen[1:]]),
                   "passing_before": sides[0].items[:, number].mean(),
                   "passing_after": sides[1].items[:, chosen[0]].mean()}  # fmt: skip
            if relevant is not None:
                values = np.take_along_axis(tested, chosen[:, None], axis=1)[:, 0]
                row |= {"precision_before": kept[0, number], "precision": values[0],
                        "precision_interval": _interval(values[1:])}  # fmt: skip
            rows.append(row)
        if len(rows) < 2 or asked[0] == asked[-1]:
            raise DataError("Scores that are all alike, or of which new ones are never as precise as old ones.",
                            expected="scores of near and of far items by both models")  # fmt: skip
        return cls.model_validate({
            "kept": "number" if relevant is None else "precision", "queries": queries,
            "pairs": int(np.isfinite(before).sum()), "rows": rows,
        })  # fmt: skip

    def at(self, threshold: float) -> NewThreshold:
        """Return the new threshold of an old one, by linear interpolation between rows.

        Raises:
            DataError: The threshold is outside the table.
        """
        old = [row.old for row in self.rows]
        if not old[0] <= threshold <= old[-1]:
            raise DataError(
                f"A threshold of {threshold:g}.", expected=f"one from {old[0]:.4g} to {old[-1]:.4g}, as far as enough "
                "items pass and new scores are as precise",
            )  # fmt: skip
        if threshold in old:
            return self.rows[old.index(threshold)]
        after = int(np.searchsorted(old, threshold))
        share = (threshold - old[after - 1]) / (old[after] - old[after - 1])
        low, high = (row.model_dump() for row in self.rows[after - 1 : after + 1])

        def between(name: str) -> Any:
            if low[name] is None or high[name] is None:
                return None
            return ((1 - share) * np.array(low[name]) + share * np.array(high[name])).tolist()

        return NewThreshold.model_validate({name: between(name) for name in low})

    def disagreements(self, place: str) -> Iterator[Disagreement]:
        """Yield every part that is inconsistent with another."""
        for before, after in pairwise(row.old for row in self.rows):
            if before >= after:
                yield f"{place}.rows", f"{before} before {after}", "old thresholds that rise"


class _Passing:
    """How many items, and how many relevant ones, pass each of ascending thresholds, by query.

    Args:
        scores: Scores by query (Q, N); NaN does not count.
        thresholds: Ascending thresholds (T,).
        relevant: Which items are relevant (Q, N); None if unknown.
    """

    def __init__(self, scores: _Floats, thresholds: _Floats, relevant: _Relevant | None) -> None:
        queries, width = len(scores), len(thresholds) + 1
        place = np.searchsorted(thresholds, np.where(np.isfinite(scores), scores, -np.inf), side="right")
        place += width * np.arange(queries)[:, None]

        def counted(places: NDArray[np.int64]) -> _Floats:
            bins = np.bincount(places, minlength=queries * width).reshape(queries, width)
            return np.cumsum(bins[:, :0:-1], axis=1)[:, ::-1].astype(np.float64)

        self.items = counted(place.ravel())
        self.relevant = None if relevant is None else counted(place[relevant])

    def kept(self, weights: _Floats) -> _Floats:
        """Return the precision at each threshold over weighted queries (W, T); without labels, minus the items."""
        items = weights @ self.items
        if self.relevant is None:
            return -items
        right = weights @ self.relevant
        return np.divide(right, items, out=np.ones_like(right), where=items > 0)


def _ordered(scores: _Floats) -> _Floats:
    known = scores[np.isfinite(scores)]
    return np.sort(known[:: 1 + len(known) // _SORTED])


def _interval(values: _Floats) -> list[float]:
    return [float(end) for end in np.quantile(values, _ENDS)]
