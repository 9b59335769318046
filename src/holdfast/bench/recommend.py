"""Which method to train with, from what benches found on the data sets nearest to the user's.

The rule is short enough to follow by hand; `holdfast.bench.regret` measures what it is worth. It learns nothing: there
are a dozen data sets, and a rule with parameters would fit them by heart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.bench.cases import Case, Evidence, Name, Outcome
from holdfast.bench.merit import DIGITS, keeps_quality
from holdfast.bench.recommend_words import headline, thin_words
from holdfast.bench.situation import NEAREST, Distance, Nearest, Situation, common_labels, nearest_cases
from holdfast.bench.statistics import cell_ranks
from holdfast.bench.told_apart import lead

Action = Literal["train", "adapt", "measure"]


class Spread(NamedTuple):
    """A raw P over several cases.

    Args:
        mean: Mean over cases of the means over seeds.
        deviation: Standard deviation over seeds within a case, as a root mean square over cases; None where a case has
            one seed.
        low: The lowest mean of a case.
        high: The highest.
    """

    mean: float
    deviation: float | None
    low: float
    high: float


@dataclass(frozen=True)
class Standing:
    """How a label stands among those that were compared.

    Args:
        name: The label, with its method.
        p_comp: What new queries gain on the old gallery: 0 is the old system, 1 all that is to be gained.
        p_up: What compatibility costs the new model; below 0 is a loss.
        keeps: Whether the mean P_up is at least -0.05.
        rank: Mean over cases of its rank among those that may be chosen; None if it may not.
        best: In how many cases it has the first rank, shared ones too.
        seconds: Mean seconds of a run, the models that it needs included; None where none was timed.
        apart: Whether its distance to the chosen label is more than the chance of seeds; None where it may not be
            chosen itself.
    """

    name: Name
    p_comp: Spread
    p_up: Spread
    keeps: bool
    rank: float | None
    best: int
    seconds: float | None
    apart: bool | None


@dataclass(frozen=True)
class Choice:
    """What the rule says.

    Args:
        near: The cases that it goes by.
        table: Every label that is complete in all of these, the chosen one first, those that may not be chosen last.
        left_out: Why other labels of these cases were not compared.
    """

    near: Nearest
    table: tuple[Standing, ...]
    left_out: Mapping[Name, str]

    @property
    def chosen(self) -> Standing | None:
        """The label to take; None without evidence."""
        return self.table[0] if self.table else None

    @property
    def cases(self) -> list[Case]:
        """The cases without their distances."""
        return [case for case, _ in self.near.cases]

    def nearest(self, one: Standing) -> Outcome:
        """Return what a label came to, and how it was set, in the nearest case."""
        return self.cases[0].outcomes[one.name]

    @property
    def group(self) -> tuple[Standing, ...]:
        """The chosen label and all that cannot be told apart from it."""
        return tuple(one for one in self.table if one.apart is False)

    @property
    def cheapest(self) -> Standing | None:
        """The label of the group that takes the fewest seconds; the chosen one where none was timed."""
        return min(self.group, key=lambda one: _or_infinite(one.seconds), default=None)


@dataclass(frozen=True)
class Recommendation:
    """What to do.

    Args:
        situation: What was asked.
        action: "train" with a method, "adapt" (`holdfast adapt` compares on the user's own vectors within seconds), or
            "measure" on the user's own data, where there is no evidence.
        choice: What the rule says of the evidence; for "adapt", of heads over frozen models.
        sentences: What to do, and why.
        thin: Where the evidence is thin, one sentence each.
    """

    situation: Situation
    action: Action
    choice: Choice
    sentences: tuple[str, ...]
    thin: tuple[str, ...]

    @property
    def method(self) -> str | None:
        """The method to train with; None for other actions."""
        chosen = self.choice.chosen
        return chosen.name.method if chosen is not None and self.action == "train" else None

    @property
    def options(self) -> dict[str, Any]:
        """Options of the chosen label, as they were in the nearest case."""
        chosen = self.choice.chosen
        return {} if chosen is None else dict(self.choice.nearest(chosen).options)

    @property
    def settings(self) -> dict[str, Any]:
        """Its settings beside these, by dotted name, likewise."""
        chosen = self.choice.chosen
        return {} if chosen is None else dict(self.choice.nearest(chosen).settings)


def recommend(situation: Situation, evidence: Evidence, *, nearest: int = NEAREST) -> Recommendation:
    """Recommend what to do.

    Args:
        situation: The user's case.
        evidence: What benches found.
        nearest: Data sets to go by.
    """
    choice = choose(situation, evidence if situation.labelled else Evidence(), nearest=nearest)
    if situation.frozen or not situation.labelled:
        action: Action = "adapt"
    else:
        action = "train" if choice.table else "measure"
    return Recommendation(
        situation, action, choice, tuple(headline(situation, action, choice)), tuple(thin_words(situation, choice))
    )


def choose(situation: Situation, evidence: Evidence, *, nearest: int = NEAREST) -> Choice:
    """Apply the rule: the highest mean raw P_comp among labels whose mean P_up is at least -0.05.

    Means are over the nearest cases (`nearest_cases`). Equal ones are decided by the mean rank over cases, then by
    seconds. Where no label keeps P_up, the highest P_up is taken.
    """
    heads = [
        case for case in evidence.usable if case.track == "features"
    ]  # training a whole model says nothing of them
    near = nearest_cases(situation, heads if situation.frozen else evidence.usable, nearest)
    cases = [case for case, _ in near.cases]
    if not cases:
        return Choice(near, (), {})
    names = common_labels(cases)
    left_out = {name: words for case in cases for name, words in _incomplete(case, cases).items()}
    return Choice(near, tuple(_table(cases, names)), left_out)


def _incomplete(case: Case, cases: Sequence[Case]) -> dict[Name, str]:
    """Return why labels of a case were not compared."""
    found = {}
    for name, outcome in case.outcomes.items():
        absent = [other for other in cases if name not in other.outcomes]
        if outcome.failure is not None:
            found[name] = f"{case.words}: {outcome.failure}"
        elif absent:
            found[name] = f"it was not run on {absent[0].words}"
    return found


def _table(cases: Sequence[Case], names: Sequence[Name]) -> list[Standing]:
    """Return all labels: those that may be chosen in the order of the rule, then the others by P_comp."""
    p_comp, p_up = ({name: _values(cases, name, which) for name in names} for which in ("p_comp", "p_up"))
    keeps = {name: keeps_quality(spread(p_up[name]).mean) for name in names}
    keepers = [name for name in names if keeps[name]]
    allowed, judged_by = (keepers, p_comp) if keepers else (list(names), p_up)
    ranks = cell_ranks(
        [[round(float(values.mean()), DIGITS) for values in case] for case in _by_case(judged_by, allowed)]
    )
    rank = dict(zip(allowed, ranks.mean(axis=0).tolist(), strict=True))
    best = dict(zip(allowed, (ranks == ranks.min(axis=1, keepdims=True)).sum(axis=0).tolist(), strict=True))
    seconds = {name: _seconds(cases, name) for name in names}

    def merit(name: Name) -> tuple[float, float, float]:
        return -round(spread(judged_by[name]).mean, DIGITS), rank[name], _or_infinite(seconds[name])

    order = sorted(allowed, key=merit)
    others = sorted((name for name in names if name not in rank), key=lambda name: -spread(p_comp[name]).mean)
    first, data = judged_by[order[0]], [(case.data, tuple(case.seeds)) for case in cases]
    return [
        Standing(
            name, spread(p_comp[name]), spread(p_up[name]), keeps[name], rank.get(name), best.get(name, 0),
            seconds[name], lead(first, judged_by[name], data).told_apart if name in rank else None,
        )
        for name in (*order, *others)
    ]  # fmt: skip


def _values(cases: Sequence[Case], name: Name, which: str) -> list[NDArray[np.float64]]:
    return [getattr(case.complete[name], which) for case in cases]


def _by_case(values: Mapping[Name, Sequence[NDArray[np.float64]]], names: Sequence[Name]) -> list[Any]:
    return list(zip(*(values[name] for name in names), strict=True))


def spread(values: Sequence[NDArray[np.float64]]) -> Spread:
    """Return mean and spread of the values of every case (S,).

    >>> spread([np.array([0.25, 0.75]), np.array([1.0, 1.0])])
    Spread(mean=0.75, deviation=0.25, low=0.5, high=1.0)
    """
    means = [float(each.mean()) for each in values]
    several = all(len(each) > 1 for each in values)
    deviation = float(np.sqrt(np.mean([each.var(ddof=1) for each in values]))) if several else None
    return Spread(float(np.mean(means)), deviation, min(means), max(means))


def _seconds(cases: Sequence[Case], name: Name) -> float | None:
    found = [seconds for case in cases if (seconds := case.complete[name].seconds) is not None]
    return float(np.mean(found)) if len(found) == len(cases) else None


def _or_infinite(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


def plain(found: Recommendation) -> dict[str, Any]:
    """Return a recommendation as plain values for machines."""
    choice = found.choice
    return {
        "action": found.action,
        "method": found.method,
        "label": choice.chosen.name.label if choice.chosen and found.action == "train" else None,
        "options": found.options if found.action == "train" else {},
        "settings": found.settings if found.action == "train" else {},
        "situation": vars(found.situation),
        "sentences": list(found.sentences),
        "thin": list(found.thin),
        "labels": [_plain_standing(one, choice) for one in choice.table],
        "not_told_apart": [one.name.label for one in choice.group],
        "cheapest": choice.cheapest.name.label if choice.cheapest else None,
        "left_out": {name.label: words for name, words in choice.left_out.items()},
        "evidence": [_plain_case(case, far) for case, far in choice.near.cases],
    }


def _plain_standing(one: Standing, choice: Choice) -> dict[str, Any]:
    return {
        **one.name._asdict(),
        **{name: value for name, value in vars(one).items() if name != "name"},
        "p_comp": one.p_comp._asdict(),
        "p_up": one.p_up._asdict(),
        "options": {case.words: dict(case.outcomes[one.name].options) for case in choice.cases},
        "settings": {case.words: dict(case.outcomes[one.name].settings) for case in choice.cases},
    }


def _plain_case(case: Case, far: Distance) -> dict[str, Any]:
    return {
        **{name: getattr(case, name) for name in ("suite", "track", "data", "scenario", "metric", "old_quality")},
        "seeds": list(case.seeds),
        "facts": None if case.facts is None else case.facts.model_dump(),
        "distance": far._asdict(),
    }
