"""What the rule of `recommend` is worth: leave one data set out, recommend from the others, and look what it missed.

A label stands for itself as it was tuned on the data set that was left out: what is judged is the choice of the method,
not of its options.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from holdfast.bench.cases import Case, Evidence, Name
from holdfast.bench.merit import LEAST_P_UP, best_there, keeps_quality, mean_of, merit
from holdfast.bench.recommend import choose
from holdfast.bench.recommend_words import counted
from holdfast.bench.situation import NEAREST, SCENARIO_KINDS, Situation

RULE, CHEAPEST = "the rule", "the cheapest it cannot tell apart"
ORACLE, RANDOM = "the best there", "one at random"


class Outcome(NamedTuple):
    """What a choice came to in a case that was left out.

    Args:
        label: What was chosen; None where nothing was, or for several.
        p_comp: Its mean raw P_comp there; None where it has none there.
        regret: How much higher that of the best there is, at least 0. None where the label has no number there, or
            violates the bound of P_up: what P_comp is bought with by that is no gain.
        violated: Whether its mean P_up is below -0.05 there, as a share where it is a mean of several choices.
        best: Whether nothing is better there, as a share likewise.
    """

    label: str | None
    p_comp: float | None
    regret: float | None
    violated: float | None
    best: float | None


NOTHING = Outcome(None, None, None, None, None)


class Summary(NamedTuple):
    """A way to choose over all cases that were left out.

    Args:
        strategy: Its name.
        cases: How many there are.
        missing: In how many it chose nothing, or a label that has no number there.
        violated: In how many P_up was below -0.05; of one at random, the number to be expected.
        regret: Mean over those that are neither; None where there are none.
        worst: The largest of them.
        best: In how many nothing was better, likewise.
    """

    strategy: str
    cases: int
    missing: int
    violated: float
    regret: float | None
    worst: float | None
    best: float


@dataclass(frozen=True)
class Regret:
    """Every case that was left out.

    Args:
        cases: The cases.
        outcomes: For every case, what every strategy came to, by its name.
        unavoidable: In how many cases no label keeps P_up, not even the best there.
    """

    cases: tuple[Case, ...]
    outcomes: tuple[Mapping[str, Outcome], ...]
    unavoidable: int

    @property
    def summaries(self) -> list[Summary]:
        """The rule first, then every other strategy, by violations, then by regret; those with missing cases last."""
        names = list(dict.fromkeys(name for found in self.outcomes for name in found))
        found = [_summary(name, [each.get(name, NOTHING) for each in self.outcomes]) for name in names]
        return sorted(found, key=_order)


def regret(evidence: Evidence, *, nearest: int = NEAREST) -> Regret:
    """Leave every data set out in turn.

    All cases of a data set are left out together, of all suites and scenarios. Each is then a situation of which
    everything is known but the outcome.

    Args:
        evidence: At least two data sets; with one, the rule has nothing to go by and chooses nothing.
        nearest: See `choose`.
    """
    cases = evidence.usable
    labels = list(dict.fromkeys(name for case in cases for name in case.complete))
    outcomes = []
    for case in cases:
        choice = choose(situation_of(case), evidence.without(case.trained_on), nearest=nearest)
        every = {name: _outcome(case, name) for name in labels}
        outcomes.append(
            {
                RULE: NOTHING if choice.chosen is None else _outcome(case, choice.chosen.name),
                CHEAPEST: NOTHING if choice.cheapest is None else _outcome(case, choice.cheapest.name),
                ORACLE: _outcome(case, best_there(case)),
                RANDOM: _mean_outcome(every[name] for name in case.complete),
                **{_always(name, labels): every[name] for name in labels},
            }
        )
    return Regret(cases, tuple(outcomes), sum(not merit(case, best_there(case))[0] for case in cases))


def _always(name: Name, labels: Sequence[Name]) -> str:
    single = sum(name.label == other.label for other in labels) == 1
    return f"always {name.label}" if single else f"always {name.label} ({name.method})"


def situation_of(case: Case) -> Situation:
    """Return a case as a situation: its sizes and scenario, and nothing of its outcome."""
    facts = case.facts
    return Situation(
        classes=None if facts is None else facts.classes,
        images=None if facts is None else facts.images,
        scenario=case.scenario if case.scenario in SCENARIO_KINDS else None,
        frozen=case.track == "features",
    )


def _outcome(case: Case, name: Name) -> Outcome:
    if name not in case.complete:
        return NOTHING._replace(label=name.label)
    p_comp, best = mean_of(case, name, "p_comp"), best_there(case)
    violated = not keeps_quality(mean_of(case, name, "p_up"))
    missed = None if violated else max(0.0, mean_of(case, best, "p_comp") - p_comp)
    return Outcome(name.label, p_comp, missed, float(violated), float(merit(case, name) == merit(case, best)))


def _mean_outcome(found: Iterable[Outcome]) -> Outcome:
    each = list(found)
    values = ([value for one in each if (value := getattr(one, name)) is not None] for name in Outcome._fields[1:])
    return Outcome(None, *(float(np.mean(known)) if known else None for known in values))


def _summary(name: str, outcomes: Sequence[Outcome]) -> Summary:
    known = [one for one in outcomes if one.p_comp is not None]
    regrets = [one.regret for one in known if one.regret is not None]
    return Summary(
        name,
        len(outcomes),
        len(outcomes) - len(known),
        float(sum(one.violated or 0.0 for one in known)),
        float(np.mean(regrets)) if regrets else None,
        max(regrets, default=None),
        float(sum(one.best or 0.0 for one in known)),
    )


def _order(found: Summary) -> tuple[bool, bool, float, float]:
    regret_or_infinite = math.inf if found.regret is None else found.regret
    return found.strategy != RULE, found.missing > 0, found.violated, regret_or_infinite


@dataclass(frozen=True)
class Worth:
    """What the evidence says of the rule itself.

    Args:
        sentence: The conclusion.
        detail: The numbers that it rests on.
        summaries: The rule, the method that would have been the best one to take always, and one at random.
    """

    sentence: str
    detail: str
    summaries: tuple[Summary, ...] = ()


def worth(found: Regret) -> Worth:
    """Say whether the rule does better than chance, and than always taking the same method, where it chose any."""
    chose = [place for place, one in enumerate(found.outcomes) if one[RULE].p_comp is not None]
    cases = tuple(found.cases[place] for place in chose)
    outcomes = tuple(found.outcomes[place] for place in chose)
    compared = Regret(cases, outcomes, found.unavoidable).summaries
    known = {one.strategy: one for one in compared if one.regret is not None and not one.missing}
    rule, chance = known.get(RULE), known.get(RANDOM)
    always = min((one for name, one in known.items() if name.startswith("always ")), key=_missed, default=None)
    if rule is None or chance is None or always is None:
        return Worth("Nobody knows what this rule is worth: there is too little evidence to leave a data set out.", "")
    others = {f"{always.strategy.replace('always ', 'always taking ')}": always, "chance": chance}
    worse = [name for name, one in others.items() if _missed(rule) > _missed(one)]
    named = " and ".join(f"than {name}" for name in worse or others)
    told = " and ".join(f"{_missed(one):.3f}" for one in (others[name] for name in worse or others))
    data = counted(len({case.trained_on for case in cases}), "data set")
    parts = (f"{name} {_missed(one):.3f} ({one.violated:.3g} of {one.cases})" for name, one in others.items())
    return Worth(
        f"By its own evidence this rule does {'worse' if worse else 'no worse'} {named} (mean regret "
        f"{_missed(rule):.3f} against {told}): {'take it as a guess, and ' if worse else ''}compare a few methods on "
        "your own data, with `holdfast bench`.",
        f"What the rule is worth: {data} left out in turn ({counted(rule.cases, 'case')}), what it chose from the "
        f"others had {_missed(rule):.3f} less of raw P_comp than the best there, of which 1 is all that there is "
        f"to gain, and P_up below −0.05 in {rule.violated:.3g} of {rule.cases}; {' and '.join(parts)}.",
        (rule, always, chance),
    )


def _missed(one: Summary) -> float:
    return math.inf if one.regret is None else one.regret


def plain(found: Regret) -> dict[str, Any]:
    """Return all of it as plain values."""
    return {
        "least_p_up": LEAST_P_UP,
        "unavoidable": found.unavoidable,
        "summaries": [summary._asdict() for summary in found.summaries],
        "cases": [
            {
                **{name: getattr(case, name) for name in ("suite", "track", "data", "trained_on", "scenario")},
                "facts": None if case.facts is None else case.facts.model_dump(),
                "outcomes": {name: outcome._asdict() for name, outcome in outcomes.items()},
            }
            for case, outcomes in zip(found.cases, found.outcomes, strict=True)
        ],
    }
