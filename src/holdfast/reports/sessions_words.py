"""Learners compared in sessions, in words: what was found, what was forgotten, what it cost, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.continual.results import SessionsResults
from holdfast.reports.formats import percent, score
from holdfast.reports.words import Finding
from holdfast.wording import listed

_CLOSE = 0.01  # of AR@1: a lead below this is taken for chance, since one seed says nothing of others

TERMS = {
    "session": "images that arrive together: a model is trained on them, starting from the one before, embeds them for "
    "the gallery and answers all queries asked so far",
    "learner": "a way to train the next session's model so that it still finds what earlier ones embedded",
    "append-only": "every image of the gallery is embedded once, by the model of its session, and never again",
    "recall@1": "the share of queries whose first result is right",
    "AR@K": "recall@K, where one of the first K results has to be right, averaged over all sessions",
    "bounds": "the lower one trains on without any care for what is embedded; the upper one trains on all images so "
    "far and embeds all of them again",
    "forgetting": "recall@1 that the classes of earlier sessions lost since they were found best, averaged over those "
    "sessions",
    "exemplars": "images of earlier sessions that a learner keeps, and trains on again",
}


@dataclass(frozen=True)
class Standing:
    """Who leads, between which bounds.

    Args:
        results: Of the comparison.
        leader: The learner of the highest AR@1 among those that embed every image once, or of all where there are
            none.
        others: The remaining learners that are no bounds, the highest AR@1 first.
        lower: The lower bound, if there is one.
        upper: The upper bound, if there is one.
    """

    results: SessionsResults
    leader: str
    others: tuple[str, ...]
    lower: str | None
    upper: str | None

    def average(self, name: str) -> float:
        """Return a learner's AR@1."""
        return self.results.learners[name].average_recall["1"]

    @property
    def roles(self) -> list[str]:
        """The lower bound, the leader and the upper one, each once."""
        return [name for name in dict.fromkeys((self.lower, self.leader, self.upper)) if name is not None]

    @property
    def gap(self) -> float | None:
        """AR@1 between the bounds; None where one is missing."""
        if self.lower is None or self.upper is None:
            return None
        return self.average(self.upper) - self.average(self.lower)

    @property
    def once(self) -> str:
        """What to add about a leader that embeds nothing again; nothing for another one."""
        return "" if self.results.learners[self.leader].embedded_again else ", with nothing embedded again"

    @property
    def rival(self) -> str | None:
        """The learner next to the leader that is not the upper bound; None where there is none."""
        rivals = [name for name in (*self.others, self.lower) if name not in (None, self.leader)]
        return max(rivals, key=self.average, default=None)


def standing(results: SessionsResults) -> Standing:
    """Find out who leads."""
    lower, upper, learners = results.bounds.lower, results.bounds.upper, results.best_first()
    once = [name for name, learner in learners.items() if learner.gallery_policy == "append"]
    leader = next(iter(once or learners))
    others = tuple(name for name in learners if name not in (leader, lower, upper))
    return Standing(results, leader, others, lower, upper)


def gap_closed(found: Standing, name: str) -> float | None:
    """Return how much of the gap between the bounds a learner closes: 0 at the lower, 1 at the upper one.

    None where a bound is missing, or the upper one is no better than the lower.
    """
    if found.lower is None or found.gap is None or found.gap <= 0:
        return None
    return (found.average(name) - found.average(found.lower)) / found.gap


def sessions_headline(found: Standing) -> str:
    """Say in one sentence which learner leads and how far it is from the upper bound."""
    leader, lower, upper, average = found.leader, found.lower, found.upper, score(found.average(found.leader))
    if leader == lower and found.others:
        return f"No learner does better than {lower}, the lower bound."
    if upper is None or upper == leader:
        if found.others or lower not in (None, leader):
            return f"{leader} leads: AR@1 {average}{found.once}."
        return f"{leader} reaches AR@1 {average} over {_sessions(found)}{found.once}."
    below = found.average(upper) - found.average(leader)
    if below <= 0:
        compared = "even more than" if below else "as much as"
        return f"{leader} finds {compared} {upper}: AR@1 {average}{found.once}."
    nearest = "comes nearest to" if found.others else "stays below"
    return f"{leader} {nearest} {upper}: AR@1 {average}, {score(below)} less{found.once}."


def sessions_findings(found: Standing) -> list[Finding]:
    """Put a comparison into words: quality, forgetting and cost."""
    findings = [_quality(found), _forgetting(found), _cost(found)]
    return [finding for finding in findings if finding is not None]


def _quality(found: Standing) -> Finding:
    values = {name: found.average(name) for name in found.roles}
    sentence = f"AR@1, recall@1 averaged over {_sessions(found)}, is {_each(found, values, score)}."
    closed = gap_closed(found, found.leader)
    if closed is not None and found.leader != found.lower:
        sentence += f" {found.leader} closes {percent(closed)} of the gap between the bounds."
    if found.others:
        runner_up = found.others[0]
        sentence += f" {runner_up} follows with {score(found.average(runner_up))}."
    steps = tuple((score(found.average(name)), name) for name in found.roles)
    return Finding("", (sentence, *_quality_notes(found)), (_next_step(found),), name="Quality", steps=steps)


def _next_step(found: Standing) -> str:
    leader, lower, upper = found.leader, found.lower, found.upper
    if leader == lower:
        return _LOWER_LEADS if found.others else _ONLY_BOUNDS
    if found.rival and found.average(leader) - found.average(found.rival) < _CLOSE:
        return (
            f"Repeat with other seeds (--seed) before you choose between {leader} and {found.rival}: another one may "
            "well turn a lead this small around."
        )
    if upper == leader:
        return "Run a learner that embeds every image once beside it, to see what keeping the gallery costs in quality."
    if upper is None:
        missing = "joint" if lower else "joint finetune"
        return f"Run “--method {missing}” beside it, to see how much there is to gain{'' if lower else ' and to lose'}."
    if found.average(upper) <= found.average(leader):
        return f"Train the next session with {leader}: embedding everything again would bring nothing here."
    again = count_of(found.results.learners[upper].embedded_again)
    return (
        f"Train the next session with {leader} and leave the gallery alone, unless "
        f"{score(found.average(upper) - found.average(leader))} more AR@1 is worth embedding {again} images again."
    )


_LOWER_LEADS = (
    "Do not pay for any of the others yet: choose their weights on the validation queries, or give those with a memory "
    "more exemplars, and compare again."
)
_ONLY_BOUNDS = "Compare it with learners that keep to what is embedded, such as “--method cvs”."


def _quality_notes(found: Standing) -> list[str]:
    notes = []
    if found.gap is not None and found.gap <= 0:
        notes.append(
            f"The bounds are no bounds here: {found.upper} scores no more than {found.lower}. Train longer, or with "
            "more images, before you compare learners."
        )
    below = [name for name in found.others if found.lower and found.average(name) < found.average(found.lower)]
    if below and found.leader != found.lower:
        worse = listed([f"{name} ({score(found.average(name))})" for name in below])
        notes.append(f"Below the lower bound: {worse}.")
    notes.append(f"One seed ({found.results.seed}): how far these numbers depend on it was not measured.")
    return notes


def _forgetting(found: Standing) -> Finding | None:
    learners = found.results.learners
    lost = {name: value for name in found.roles if (value := learners[name].forgetting) is not None}
    if found.leader not in lost:
        return None
    sentence = f"Classes of earlier sessions lost {_each(found, lost, score, ' of their best recall@1')}."
    if min(lost.values()) < 0:
        sentence += " A negative loss is a gain."
    oldest = [session.recall_by_home[0] for session in learners[found.leader].sessions]
    if oldest[0] is not None and oldest[-1] is not None:
        sentence += (
            f" The classes of session 1 stood at {score(oldest[0])} with {found.leader} when they were new, and stand "
            f"at {score(oldest[-1])} now."
        )
    notes = []
    harder = not found.results.plan.known_from_start  # a later session asks for more classes
    if harder and found.upper not in (None, found.leader) and lost.get(found.upper, 0.0) > 0:
        notes.append(
            f"What {found.upper} loses is hardly forgetting, since it sees everything again: with every class the "
            "search itself grows harder, for all learners alike."
        )
    steps = tuple((score(value), name) for name, value in lost.items())
    return Finding("", (sentence, *notes), name="Forgetting", steps=steps)


def _cost(found: Standing) -> Finding:
    learners = found.results.learners
    seconds = {name: learners[name].seconds for name in found.roles}
    sentence = f"All sessions together took {_each(found, seconds, duration)}, on the machine that ran them."
    again = {name: learner.embedded_again for name, learner in learners.items() if learner.embedded_again}
    if again:
        counted = listed([f"{name} embedded {count_of(number)} images again" for name, number in again.items()])
        sentence += f" {counted}" + ("; the others none." if len(again) < len(learners) else ".")
    else:
        sentence += " No image was embedded for the gallery twice."
    notes = []
    replayed = max(session.replayed for session in learners[found.leader].sessions)
    if replayed:
        notes.append(f"{found.leader} trained on up to {count_of(replayed)} exemplars of earlier sessions at a time.")
    steps = tuple((duration(seconds[name]), name) for name in found.roles)
    return Finding("", (sentence, *notes), name="Cost", steps=steps)


def _each(found: Standing, values: Mapping[str, float], form: Callable[[float], str], unit: str = "") -> str:
    """Write a number for each learner: the leader's, with a unit, against those of the bounds."""
    roles = {found.lower: " (the lower bound)", found.upper: " (the upper bound)"}
    first, *rest = sorted(values, key=lambda name: name != found.leader)
    others = listed([f"{form(values[name])} with {name}{roles.get(name, '')}" for name in rest])
    return f"{form(values[first])}{unit} with {first}{roles.get(first, '')}" + (f", against {others}" if rest else "")


def _sessions(found: Standing) -> str:
    done, planned = found.results.done, found.results.plan.sessions
    counted = f"{done} session{'' if done == 1 else 's'}"
    return counted if done == planned else f"{done} of {planned} sessions"


def count_of(images: float) -> str:
    """Write a number of images.

    >>> count_of(48_210.0), count_of(12_345_678)
    ('48,210', '12.3 million')
    """
    return f"{images:,.0f}" if images < 10_000_000 else f"{images / 1e6:,.1f} million"


def duration(seconds: float) -> str:
    """Write a time in the unit that suits it, with a space that does not break.

    >>> [duration(seconds).split() for seconds in (0.42, 75, 130, 2_300, 9_000)]
    [['0.4', 's'], ['75', 's'], ['2.2', 'min'], ['38', 'min'], ['2.5', 'h']]
    """
    number, unit = next(
        (seconds / size, unit)
        for size, unit, end in ((1, "s", 100), (60, "min", 5_400), (3_600, "h", math.inf))
        if seconds < end
    )
    return f"{number:.{1 if number < 10 else 0}f}\N{NO-BREAK SPACE}{unit}"
