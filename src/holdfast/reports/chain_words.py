"""A chain of models in words: how many pairs are compatible, which are not, and what to do."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.evaluation.chain import ChainResults
from holdfast.reports.formats import interval, percent, score, signed
from holdfast.reports.words import CLICKS, TERMS, listed, places
from holdfast.wording import metric_name

_SHOWN = 6  # violations that are told one by one

TERMS_OF_CHAINS = {
    "compatible": "queries of a newer model score more on an older gallery than the queries of the model that embedded "
    "it; a tie is a violation",
    "self-test": TERMS["self-test"],
    "AC": "average compatibility: the share of pairs of a newer and an older model that score more, guards apart",
    "AM": "average multi-model score: the mean of the whole matrix, self-tests included",
    "independent": "the recipe of a model trained without regard to its predecessors",
    "P_comp": TERMS["P_comp"],
    "P_up": TERMS["P_up"],
}


class ChainFinding(NamedTuple):
    """What a chain shows.

    Args:
        verdict: "compatible", "mixed", "not compatible" or "unlabelled".
        sentence: What was measured.
        next_step: What to do.
        notes: Each violation, and what else to know.
    """

    verdict: str
    sentence: str
    next_step: str
    notes: tuple[str, ...]


def chain_headline(results: ChainResults) -> str:
    """Say in one sentence whether every newer model may search every older gallery."""
    pairs, wrong = len(results.pairs), results.violations
    if not results.judged:
        return "Scores were measured, and no pair is judged."
    worse = sum(bool(pair.worse) for pair in results.pairs)
    if not wrong and worse:
        return (
            f"In {metric_name(results.metric)} every newer model can search every older gallery, and {worse} of "
            f"{pairs} pairs {'is' if worse == 1 else 'are'} clearly worse elsewhere."
        )
    if not wrong:
        return "Every newer model can search every older gallery."
    return f"{wrong} of {pairs} pairs of models {'is' if wrong == 1 else 'are'} not compatible."


def chain_finding(results: ChainResults) -> ChainFinding:
    """Put a chain into words."""
    metric = metric_name(results.metric)
    sentence = (
        f"AC is {score(results.ac)}: in {metric}, {len(results.pairs) - results.violations} of "
        f"{len(results.pairs)} pairs score more on the older gallery than its own model does. AM, the mean of the "
        f"matrix, is {score(results.am)}."
    )
    if not results.judged:
        return ChainFinding("unlabelled", f"{CLICKS} {sentence}", _JUDGE, tuple(_undefined(results)))
    notes = (*_violations(results), *_worse(results), *_unsure(results), *_undefined(results))
    if results.compatible:
        return ChainFinding("compatible", sentence, _ALL, notes)
    if not results.violations:
        return ChainFinding("mixed", sentence, _LOOK, notes)
    return ChainFinding("not compatible", sentence, _SOME, notes)


_ALL = "Swap to the newest model; no gallery has to be re-embedded for it."
_SOME = (
    "Re-embed the galleries of the pairs below before newer queries search them, or train the newer models with regard "
    "to them too (holdfast methods lists how)."
)
_LOOK = (
    "Decide what counts for your users, name it (“--guard recall@1”, or “--no-guard” for the metric alone) and "
    "evaluate the chain again, or re-embed the galleries of the pairs below before newer queries search them."
)
_JUDGE = "Let people judge which items answer each query, and evaluate the chain by their judgements."


def _violations(results: ChainResults) -> list[str]:
    found = [pair for pair in results.pairs if pair.violates]
    told = []
    for pair in found[:_SHOWN]:
        around = interval(pair.interval, sign=True)
        chance = "" if pair.interval[1] <= 0 else ", which includes zero: chance alone may explain it"
        told.append(
            f"Queries of {pair.new} on the gallery of {pair.old} score {score(pair.cross)}, those of "
            f"{pair.old} {score(pair.self_old)}: {signed(pair.gain)} "
            f"({level(results)} interval {around}{chance})."
        )
    return told + [f"{len(found) - _SHOWN} more are in the table of pairs."] * (len(found) > _SHOWN)


def _worse(results: ChainResults) -> list[str]:
    """Name the pairs that are clearly worse in what is guarded."""
    told = [f"Queries of {pair.new} on the gallery of {pair.old} are clearly worse {listed(places(pair.worse))}."
            for pair in results.pairs if pair.worse]  # fmt: skip
    return told[:_SHOWN] + [f"{len(told) - _SHOWN} more are in the table of pairs."] * (len(told) > _SHOWN)


def _unsure(results: ChainResults) -> list[str]:
    unsure = [pair for pair in results.pairs if not pair.violates and pair.interval[0] <= 0]
    if not unsure:
        return []
    one = len(unsure) == 1
    named = _first([f"{pair.new} on {pair.old}" for pair in unsure])
    return [
        f"{len(unsure)} of the other pairs {'is' if one else 'are'} ahead by no more than chance may explain "
        f"({'its' if one else 'their'} {level(results)} interval includes zero): {named}."
    ]


def _undefined(results: ChainResults) -> list[str]:
    """Say where P_comp is not defined, and by which numbers."""
    if results.p_comp is None or results.independent_self is None:
        return ["No independent models were given, so P_comp and P_up are missing: --independent gives them."]
    names, alone, found = results.models, results.independent_self, []
    own = [row[number] for number, row in enumerate(results.matrix)]
    for baseline, values in results.p_comp["raw"].items():
        missing = [
            f"{names[i]} on {names[j]} ({score(alone[i])} against {score((own if baseline == 'own' else alone)[j])})"
            for i in range(len(names))
            for j in range(i)
            if values[i][j] is None
        ]
        if missing:
            found.append(
                f"P_comp with the {'chain’s own' if baseline == 'own' else 'independent'} old model is not defined "
                f"where the independent new model is not better than it: {_first(missing)}."
            )
    return found


def _first(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_SHOWN])} and {more} more"


def level(results: ChainResults) -> str:
    """Write the level of the intervals."""
    return percent(results.protocol.bootstrap.level).replace(".0", "")
