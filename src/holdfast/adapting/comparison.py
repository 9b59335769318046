"""What was measured of several links between two models: means with intervals, all from the same resampled queries."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from holdfast.adapters import Direction
from holdfast.evaluation.intervals import Draws, Interval

Kind = Literal["adapter", "head"]
Directions = Literal["both", "new_to_old", "old_to_new"]
Values = NDArray[np.float64]  # one per query
Name = TypeVar("Name", bound=Hashable)

AGREEMENT = "overlap@10"
UNSEEN = "unseen classes"
GUARDS = ("recall@1", UNSEEN)
"""What a recommended candidate must not be clearly worse at, unless asked otherwise: the first hit, and new classes."""


class Mean(NamedTuple):
    """A mean over queries, and its interval."""

    mean: float
    interval: Interval

    @property
    def above_zero(self) -> bool:
        """Whether the whole interval is."""
        return self.interval[0] > 0

    @property
    def below_zero(self) -> bool:
        """Whether the whole interval is."""
        return self.interval[1] < 0


def means_of(columns: Mapping[Name, Values], draws: Draws) -> dict[Name, Mean]:
    """Return the mean of every column (Q,) with its interval, over the same resampled queries for all.

    >>> means_of({"a": np.array([0.25, 0.25, np.nan])}, Draws(resamples=10))
    {'a': Mean(mean=0.25, interval=(0.25, 0.25))}
    """
    intervals = draws.intervals(columns)
    return {name: Mean(float(np.nanmean(values)), intervals[name]) for name, values in columns.items()}


class Unseen(NamedTuple):
    """Means over queries of classes that nobody learnt from, which search all held-out items, and what they gain."""

    self_old: float
    cross: float
    self_new: float
    queries: int
    gain: Mean | None = None


class Loss(NamedTuple):
    """What a candidate is clearly worse at than the old model: a metric, or `UNSEEN`; the means of both."""

    name: str
    self_old: float
    cross: float
    gain: Mean


@dataclass(frozen=True)
class Measured:
    """What was found of one candidate.

    Args:
        name: Its name.
        kind: "adapter" or "head".
        seconds: Wall time of its fit.
        cross: Queries of the new model through the link, on the old gallery through the link.
        cross_minus_self_old: What it brings.
        self_new_minus_cross: What re-embedding brings beyond it.
        recovered: Share of the gain of re-embedding that it brings; None where re-embedding was not shown to gain.
        own: The same queries on a gallery embedded anew for them; None where that is the new model's own.
        unseen: Means on unseen classes; None without any.
        direction: What an adapter maps; None for a head.
        worse: What it is clearly worse at than the old model, of what is guarded.
        as_best: The interval of what it brings, corrected for its having been chosen as the best of its kind; None of
            others.
    """

    name: str
    kind: Kind
    seconds: float
    cross: Mean
    cross_minus_self_old: Mean
    self_new_minus_cross: Mean
    recovered: float | None = None
    own: Mean | None = None
    unseen: Unseen | None = None
    direction: Direction | None = None
    worse: tuple[Loss, ...] = ()
    as_best: Interval | None = None

    @property
    def brings(self) -> Mean:
        """What it brings, with the interval that the choice left."""
        return Mean(self.cross_minus_self_old.mean, self.as_best or self.cross_minus_self_old.interval)

    @property
    def helps(self) -> bool:
        """Whether the whole interval of what it brings is above 0."""
        return self.brings.above_zero


@dataclass(frozen=True)
class Failed:
    """A candidate that could not be fitted or used: name, kind, wall time until then, the reason, and what it maps."""

    name: str
    kind: Kind
    seconds: float
    reason: str
    direction: Direction | None = None


@dataclass(frozen=True)
class Comparison:
    """Candidates measured on the same held-out items; scores are fractions in [0, 1], larger is better.

    Args:
        metric: Name of the metric; "overlap@10" is agreement with re-embedding, not correctness.
        fitted_on: How many pairs every candidate was fitted on.
        held_out: How many items the queries search among; each of them is a query.
        unseen_classes: How many of their classes nobody learnt from.
        draws: How intervals were found.
        guards: What was guarded.
        self_old: The old model's queries on its gallery.
        self_new: The new model's queries on its gallery, embedded anew.
        self_new_minus_self_old: What re-embedding brings.
        candidates: In the order given.
        head_lead: Cross of the best head minus that of the best adapter; None unless there are both.
    """

    metric: str
    fitted_on: int
    held_out: int
    unseen_classes: int
    draws: Draws
    self_old: Mean
    self_new: Mean
    self_new_minus_self_old: Mean
    candidates: tuple[Measured | Failed, ...]
    head_lead: Mean | None = None
    guards: tuple[str, ...] = ()

    @property
    def best(self) -> Measured | None:
        """The candidate of the highest cross, the first of equal ones; None where all failed."""
        return self._best("adapter", "head")

    @property
    def best_adapter(self) -> Measured | None:
        """The same among adapters."""
        return self._best("adapter")

    @property
    def best_head(self) -> Measured | None:
        """The same among heads."""
        return self._best("head")

    def _best(self, *kinds: Kind) -> Measured | None:
        measured = [one for one in self.candidates if isinstance(one, Measured) and one.kind in kinds]
        return max(measured, key=lambda one: one.cross.mean, default=None)
