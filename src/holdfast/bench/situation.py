"""The case of a user, and which measured cases are near it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from holdfast.bench.cases import Case, Name
from holdfast.bench.leaderboard import Facts
from holdfast.errors import refuse, unknown_name

NEAREST = 3
"""From so many data sets a recommendation is made, where there are as many of the same kind."""
FULL_ENOUGH = 0.5
"""Cases count with at least this share of the labels of the fullest: one with two labels would exclude the rest."""

SCENARIO_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "extended-data": "extended",
        "extended-class": "extended",
        "enlarged-backbone-data": "extended",
        "enlarged-backbone-class": "extended",
        "both": "extended",
        "open-data": "open",
        "open-class": "open",
        "new-architecture": "same",
    }
)
"""What the new model sees: all that the old one saw and more, other data only, or the same."""


@dataclass(frozen=True)
class Situation:
    """What is known of a user's upgrade; None where something is not.

    Args:
        classes: Classes that the new model is to learn.
        images: Images, or other items, of these classes.
        old_classes: How many classes the old model learnt.
        old_quality: The old model's queries on its own gallery, from 0 to 1.
        scenario: Who sees what, a key of `SCENARIO_KINDS`.
        frozen: Whether both models stay as they are, and only a map or a head between them is learnt.
        labelled: Whether the items have classes.

    Raises:
        ConfigError: A number is out of range, or the scenario is unknown.
    """

    classes: int | None = None
    images: int | None = None
    old_classes: int | None = None
    old_quality: float | None = None
    scenario: str | None = None
    frozen: bool = False
    labelled: bool = True

    def __post_init__(self) -> None:
        for name in ("classes", "images", "old_classes"):
            value = getattr(self, name)
            refuse(value is not None and value < 1, f"{value} {name.replace('_', ' ')}.", "at least 1")
        if self.classes is not None and self.images is not None:
            refuse(
                self.images < self.classes, f"{self.images} images of {self.classes} classes.", "one or more of each"
            )
        quality = self.old_quality
        refuse(quality is not None and not 0 <= quality <= 1, f"An old quality of {quality}.", "from 0 to 1")
        if self.scenario is not None and self.scenario not in SCENARIO_KINDS:
            raise unknown_name("scenario", self.scenario, SCENARIO_KINDS)

    @property
    def track(self) -> str:
        """The track of the benches that are like it."""
        return "features" if self.frozen else "images"

    @property
    def per_class(self) -> float | None:
        """Images per class."""
        return None if self.images is None or self.classes is None else self.images / self.classes


class Distance(NamedTuple):
    """How far a case is from a situation.

    Args:
        scenario: 0 for the same scenario, 1 for one of the same kind, 2 for another.
        track: 0 for the same track, 1 for another.
        classes: The classes of the case, divided by those of the situation; None where one is not known.
        per_class: The same of images per class.
        comparable: False where the situation gives sizes and the case has none.
    """

    scenario: int
    track: int
    classes: float | None
    per_class: float | None
    comparable: bool

    @property
    def size(self) -> float:
        """Doublings from one size to the other: |log2| of both factors, added; infinite where sizes are not known."""
        if not self.comparable:
            return math.inf
        return sum(abs(math.log2(factor)) for factor in (self.classes, self.per_class) if factor is not None)


def distance(situation: Situation, case: Case) -> Distance:
    """Return how far a case is; scenarios do not count between frozen models, which have seen what they have seen."""
    wanted = None if situation.frozen else situation.scenario
    kinds = {SCENARIO_KINDS.get(name, name) for name in (wanted, case.scenario) if name is not None}
    step = 0 if wanted in (None, case.scenario) else 1 if len(kinds) == 1 else 2
    return Distance(
        step,
        int(case.track != situation.track),
        _factor(case.facts, "classes", situation.classes),
        _factor(case.facts, "per_class", situation.per_class),
        situation.classes is None or case.facts is not None,
    )


def _factor(facts: Facts | None, name: str, wanted: float | None) -> float | None:
    return None if facts is None or wanted is None else float(getattr(facts, name) / wanted)


class Nearest(NamedTuple):
    """Cases that a recommendation is made from, the nearest first.

    Args:
        cases: With their distances.
        sparse: Cases as near that were left aside, because they ran few labels.
        apart: Cases that were left aside, because no label is complete in them and in all nearer ones.
    """

    cases: tuple[tuple[Case, Distance], ...]
    sparse: tuple[Case, ...] = ()
    apart: tuple[Case, ...] = ()


def nearest_cases(situation: Situation, cases: Sequence[Case], count: int = NEAREST) -> Nearest:
    """Return the cases to go by.

    Those of the nearest scenario, of these those of the nearest track, of these those with enough labels; of these the
    cases of the data sets that are nearest in size, more of them where several are equally near. The farthest are
    dropped until some label is complete in all.

    Args:
        situation: Of the user.
        cases: Each with at least one complete label.
        count: Of data sets.
    """
    found = [(case, distance(situation, case)) for case in cases]
    if not found:
        return Nearest(())
    kind = min(far[:2] for _, far in found)
    alike = [(case, far) for case, far in found if far[:2] == kind]
    most = max(len(case.complete) for case, _ in alike)
    full = [(case, far) for case, far in alike if len(case.complete) >= FULL_ENOUGH * most]
    chosen = sorted(_of_nearest_data(full, count), key=lambda pair: pair[1].size)
    kept = list(chosen)
    while not common_labels([case for case, _ in kept]):
        kept.pop()
    sparse = tuple(case for case, _ in alike if len(case.complete) < FULL_ENOUGH * most)
    return Nearest(tuple(kept), sparse, tuple(case for case, _ in chosen[len(kept) :]))


def common_labels(cases: Sequence[Case]) -> list[Name]:
    """Return the labels that are complete in all cases, in the order of the first one."""
    first, *others = (case.complete for case in cases)
    return [name for name in first if all(name in other for other in others)]


def _of_nearest_data(pairs: Sequence[tuple[Case, Distance]], count: int) -> list[tuple[Case, Distance]]:
    sizes: dict[str, float] = {}
    for case, far in pairs:
        sizes[case.trained_on] = min(far.size, sizes.get(case.trained_on, math.inf))
    limit = sorted(sizes.values())[: max(count, 1)][-1]
    return [(case, far) for case, far in pairs if far.size <= limit]
