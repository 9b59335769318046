"""What to do about two models, from what was measured: adapt, train a head, re-embed, or keep the old model.

The thresholds are conventions of this project, from no paper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from holdfast.adapters import SuspectPairs
from holdfast.adapting.comparison import Comparison, Loss, Measured
from holdfast.adapting.recommendation_words import Words

Action = Literal["adapt", "train a head", "re-embed", "keep the old model", "check the pairs"]

NO_RELATION = 0.8  # lower end of the share of suspect pairs from which on there is nothing to learn
SUSPECT = 0.2  # lower end above which the numbers say more about the pairs than about the models


@dataclass(frozen=True)
class Recommendation:
    """What to do.

    Args:
        action: In a word.
        candidate: With which candidate; None where the action needs none.
        worse: What this is clearly worse at than the old model, of what is guarded.
        sentences: What to do, why, and what to expect, in this order.
    """

    action: Action
    candidate: str | None
    sentences: tuple[str, ...]
    worse: tuple[Loss, ...] = ()


def recommend(comparison: Comparison, suspects: SuspectPairs | None = None) -> Recommendation:
    """Decide what to do.

    Where too many pairs are suspect, check them first. A candidate helps if the whole interval of cross − self_old,
    corrected for the choice, is above 0; of each kind only the one of the highest cross is considered. A head is worth
    its training if no adapter helps or the whole interval of its lead over the best adapter is above 0; but one that is
    clearly worse at something that is guarded gives way to one that is not. Where nothing helps, re-embed if the whole
    interval of self_new − self_old is above 0. Classes that nobody learnt from count by their share of the held-out
    items.

    Args:
        comparison: What was measured.
        suspects: Which share of the pairs does not belong together; None where that was not asked.
    """
    words = Words(comparison)
    if suspects is not None and suspects.low >= NO_RELATION:
        return _recommendation("check the pairs", None, words.no_relation(suspects))
    if suspects is not None and suspects.low > SUSPECT:
        return _recommendation("check the pairs", None, words.suspect(suspects))
    adapter, head = _helping(comparison.best_adapter), _helping(comparison.best_head)
    if head and _preferred(head, adapter, comparison):
        return _recommendation("train a head", head, words.train(head))
    if adapter:
        return _recommendation("adapt", adapter, words.adapt(adapter))
    if comparison.self_new_minus_self_old.above_zero:
        return _recommendation("re-embed", None, words.re_embed())
    return _recommendation("keep the old model", None, words.keep())


def _recommendation(action: Action, candidate: Measured | None, sentences: Iterable[str]) -> Recommendation:
    if candidate is None:
        return Recommendation(action, None, tuple(sentences))
    return Recommendation(action, candidate.name, tuple(sentences), candidate.worse)


def _helping(best: Measured | None) -> Measured | None:
    return best if best and best.helps else None


def _preferred(head: Measured, adapter: Measured | None, comparison: Comparison) -> bool:
    """Say whether a head that helps is to be trained, rather than an adapter to be used."""
    if adapter is None or comparison.head_lead is None:
        return True
    if bool(head.worse) != bool(adapter.worse):
        return bool(adapter.worse)
    return comparison.head_lead.above_zero
