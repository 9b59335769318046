"""One upgrade on several test sets in words: where it may search the old gallery, and what is not defined."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.evaluation.test_sets import CombinationResults, SetScores
from holdfast.reports.combined_tables import P_METRICS
from holdfast.reports.formats import interval, score, signed
from holdfast.reports.words import CLICKS, TERMS, listed, spoken_verdict
from holdfast.wording import metric_name

TERMS_OF_SETS = {
    "old, new, independent": TERMS["old, new, independent"],
    "compatible": TERMS["compatible"],
    "P_up": f"{TERMS['P_up']}. As a sigmoid in per cent, 50 is no loss",
    "P_comp": f"{TERMS['P_comp']}. As a sigmoid in per cent, 50 is the old system",
    "P_1": "the harmonic mean of the two sigmoids: high only where both are",
    "average": "over test sets, of each P metric; it does not exist where one set has none",
}


class SetFinding(NamedTuple):
    """What one test set says.

    Args:
        name: The test set.
        verdict: Its verdict.
        spoken: The same in words.
        sentence: What was measured.
        notes: Which P metrics are not defined, and why.
    """

    name: str
    verdict: str
    spoken: str
    sentence: str
    notes: tuple[str, ...]


def combined_headline(results: CombinationResults) -> str:
    """Say in one sentence on how many test sets the new model is compatible."""
    sets = results.sets
    good = [name for name, found in sets.items() if found.verdict == "compatible"]
    if len(good) == len(sets):
        count = "both" if len(sets) == 2 else f"all {len(sets)}"
        return f"{results.new} can search the old gallery on {count} test sets."
    worse = [f" On {name} it is {spoken_verdict(found)}." for name, found in sets.items() if found.verdict == "mixed"]
    if not good:
        return f"{results.new} is not shown to be compatible on any of {len(sets)} test sets.{''.join(worse)}"
    count = f"{results.new} can search the old gallery on {len(good)} of {len(sets)} test sets"
    return f"{count}: {', '.join(good)}.{''.join(worse)}"


def set_findings(results: CombinationResults) -> list[SetFinding]:
    """Put every test set into words."""
    return [_finding(name, found, results) for name, found in results.sets.items()]


def _finding(name: str, found: SetScores, results: CombinationResults) -> SetFinding:
    level = results.protocols[name].bootstrap.level
    sentence = (
        f"New queries on the old gallery score {metric_name(found.metric)} {score(found.cross)}, old queries "
        f"{score(found.self_old)}: {signed(found.gain)} ({100 * level:g}\N{NO-BREAK SPACE}% "
        f"interval {interval(found.interval, sign=True)}){_judged(found)}."
    )
    clicks = f"{CLICKS} " if found.verdict == "unlabelled" else ""
    notes = [f"{P_METRICS[key]} is not defined: {reason}." for key, reason in found.undefined.items()]
    notes = list(dict.fromkeys(notes)) if _some(results) else []
    return SetFinding(name, found.verdict, spoken_verdict(found), clicks + sentence, tuple(notes))


def _judged(found: SetScores) -> str:
    return ", judged by its sign alone" if found.gate == "point" and found.verdict != "unlabelled" else ""


def _some(results: CombinationResults) -> bool:
    return results.fingerprints.get("independent") is not None


def combined_notes(results: CombinationResults) -> list[str]:
    """Say what holds for all sets: no independent model, or no average."""
    if not _some(results):
        return [
            "No independent model was evaluated, so P_up, P_comp and P_1 are missing: train one with “holdfast train "
            "--method independent” and evaluate every test set with it."
        ]
    lost = {
        told: [name for name, found in results.sets.items() if key in _missing(found)]
        for key, told in P_METRICS.items()
    }
    sets = list(dict.fromkeys(name for names in lost.values() for name in names))
    if not sets:
        return []
    without = [told for told, names in lost.items() if names]
    return [
        f"{listed(without)} {'has' if len(without) == 1 else 'have'} no average, for lack of {listed(sets)}: an "
        "average over the other sets would be of another benchmark."
    ]


def _missing(found: SetScores) -> set[str]:
    return {*found.undefined, *(["p_score"] if found.undefined else [])}
