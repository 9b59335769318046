"""What changes, in words: class by class with labels, and in the results themselves without."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.evaluation.agreement import Agreement
from holdfast.evaluation.class_change import ClassChangeSummary
from holdfast.evaluation.results import EarlierAgreement
from holdfast.reports.formats import MISSING, interval, percent, probability, score
from holdfast.wording import metric_name

CLEAR = (
    "clearly better or worse: more of the class’s changed queries went one way than chance explains (exact sign test), "
    "all classes judged together, so that about one in twenty of those named is there by chance"
)


def p_words(p_value: float | None) -> str:
    """Write a p-value.

    >>> p_words(0.00009999), p_words(0.0317), p_words(None)
    ('p = 0.0001', 'p = 0.032', '–')
    """
    return MISSING if p_value is None else f"p = {probability(p_value)}"


def flips(
    negative: Mapping[str, float | None] | None, positive: Mapping[str, float | None] | None, units: str = "queries"
) -> str:
    """Say how many answers were lost and won; nothing where it is not known.

    >>> flips({"cross": 0.02}, None).replace("\N{NO-BREAK SPACE}", " ")
    'Negative flips: 2.0 % of queries were right before and are wrong now.'
    """
    lost, won = negative or {}, positive or {}
    if lost.get("cross") is None:
        return ""
    later = lost.get("self_new")
    after = "" if later is None else f", {percent(later)} after re-embedding"
    sentence = f"Negative flips: {percent(lost['cross'])} of {units} were right before and are wrong now{after}."
    if won.get("cross") is None:
        return sentence
    later = won.get("self_new")
    after = "" if later is None else f", {percent(later)} after re-embedding"
    return f"{sentence} Positive flips, wrong before and right now: {percent(won['cross'])}{after}."


def class_finding(change: ClassChangeSummary) -> str:
    """Say how many classes score more and how many less, and of how many this is clear."""
    if change.classes == 1:
        return "All queries are of one class."
    return (
        f"In {metric_name(change.metric)}, {percent(change.better)} of {change.classes:,} classes score more "
        f"than before and {percent(change.worse)} less; {_clearly(change)}"
    )


def _clearly(change: ClassChangeSummary) -> str:
    better, worse = change.clearly_better, change.clearly_worse
    testable = change.testable
    if not testable:
        return "no class has enough queries that changed to tell this from chance."
    if not better and not worse:
        return f"of the {testable:,} with enough changed queries to tell, none does so beyond chance."
    return (
        f"of the {testable:,} with enough changed queries to tell, {better:,} {_are(better)} clearly better and "
        f"{worse:,} clearly worse."
    )


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


_BLIND = "Without labels nobody can say which results are right"


def agreement_finding(agreement: Agreement | EarlierAgreement | None, level: str, begin: str = _BLIND) -> str:
    """Say how much of what people find today they would find again; never that this is good or bad.

    Args:
        agreement: What `agreement_of` returned.
        level: Of its intervals, in words.
        begin: How the sentence begins.
    """
    if isinstance(agreement, EarlierAgreement) and agreement.overlap is not None:
        name, found = agreement.overlap
        return (
            f"{begin}. On the old gallery, old and new queries agree on {score(found)} "
            f"{interval(agreement.interval)} of their first {name.rpartition('@')[2]} items ({level} interval)."
        )
    if not isinstance(agreement, Agreement):
        return f"{begin}, and no agreement was measured."
    cross, later = agreement.cross, agreement.self_new
    low, high = (percent(end) for end in cross.overlap.interval)
    blind = ", and agreement is not quality" if begin == _BLIND else ""
    return (
        f"{begin}{blind}. After the swap {percent(cross.first_changed.mean)} of queries get another first hit, "
        f"and {percent(cross.overlap.mean)} [{low}, {high}] of today’s first {agreement.k} items stay "
        f"({level} interval); with everything re-embedded {percent(later.first_changed.mean)} and "
        f"{percent(later.overlap.mean)}."
    )
