"""The verdict in words: one plain sentence per new model, what to do next, and what every term means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.evaluation.compatibility import clearly_worse
from holdfast.evaluation.intervals import FEW
from holdfast.evaluation.results import Evaluation, EvaluationResults
from holdfast.evaluation.test_sets import SetScores
from holdfast.evaluation.uncertainty import Histogram
from holdfast.reports.change_words import agreement_finding, flips, p_words
from holdfast.reports.formats import interval, score, signed
from holdfast.wording import listed, metric_name

Judged = Evaluation | SetScores
"""What has a verdict."""

MARKS = {"compatible": "✓", "inconclusive": "?", "not compatible": "✗", "unlabelled": "–", "mixed": "±"}
"""Signs of the verdicts."""
SHAPES = {"compatible": 0, "inconclusive": 1, "not compatible": 3, "unlabelled": 0, "mixed": 2}
"""Numbers of the marks that stand for verdicts in charts, see `svg.marker`."""

TERMS = {
    "old, new, independent": "the model that embedded your gallery, the one that may follow it, and the new recipe "
    "trained without regard to the old model: how good could new be",
    "self-test": "queries and gallery embedded by the same model",
    "cross-test": "new queries search the gallery that the old model embedded, before anything is re-embedded",
    "compatible": "the cross-test scores more than the old model's self-test: swapping the query model helps at once",
    "backfill": "re-embedding the old gallery with the new model, item by item, while it stays in use",
    "negative flip": "a query whose first result was right with the old system and is wrong with the new one; a "
    "positive flip is the reverse",
    "p": "how often two equally good systems would differ by at least as much, if chance alone decided which of them "
    "did better on each query (paired permutation test, two-sided): the smaller, the less it looks like chance",
    "agreement": "how many results stay the same: it tells how much people will notice, not whether it is better",
    "P_comp": "the share of the possible improvement that arrives without re-embedding: 0 is the old system, 1 the "
    "independent model",
    "uncertainty": "how close to the origin of hyperbolic space the model puts an item: 1 at the origin, 0 infinitely "
    "far from it",
    "P_up": "what the new model gained or lost on its own gallery by being kept compatible, relative to the "
    "independent model; 0 is no loss",
}

OLD, REEMBEDDED = "old model as it is", "everything re-embedded"
"""What candidates that link two models are compared with."""

FIRST_HIT = ("recall@1", "cmc@1", "rank@1")
"""Metrics of the first hit."""

CLICKS = (
    "Clicks only know what the old system showed, so no verdict is spoken: a better answer that nobody was shown "
    "counts as wrong."
)

_NOTES = {
    "map-trapezoid": "mean average precision, measured between places as the Oxford and Paris benchmarks do; 1 if "
    "every right item comes before every wrong one",
    "mp": "mean precision: the share of right items among the first {}, or as many as it takes to find all",
    "tar": "the share of genuine pairs that are accepted where a share of {} of the other pairs is accepted too",
    "tpir": "the share of probes whose subject is found first and accepted, where a share of {} of the probes that "
    "belong to nobody is accepted too",
    "rank": "the share of probes whose subject is among the first {} found",
}


@dataclass(frozen=True)
class Finding:
    """What results say, or what they say of one model, one test set, one subject.

    Args:
        headline: The most important in a line.
        sentences: What was measured, and after it what else there is to know.
        next_steps: What to do.
        verdict: A key of `MARKS`, where there is one.
        name: Of what it is about, where that is a part of the results.
        steps: Numbers to compare with each other, with a name each: of the system as it is, of what is new, and so on.
    """

    headline: str
    sentences: tuple[str, ...]
    next_steps: tuple[str, ...] = ()
    verdict: str = ""
    name: str = ""
    steps: tuple[tuple[str, str], ...] = ()

    @property
    def lines(self) -> list[str]:
        """What stands below the headline: what was measured, what to do, and what else to know."""
        return [*self.sentences[:1], *(f"Next: {step}" for step in self.next_steps), *self.sentences[1:]]


def finding(name: str, record: Evaluation) -> Finding:
    """Put one evaluation into words."""
    verdict = record.verdict
    if verdict == "unlabelled" and record.scored:
        sentence = f"{CLICKS} {_scores(record)}"
        return Finding(verdict, (sentence, *_unjudged_notes(record)), (_UNJUDGED_NEXT,), verdict, name)
    if verdict == "unlabelled":
        sentence = agreement_finding(record.agreement, level(record))
        return Finding(verdict, (sentence, *_mapped_notes(record)[:1]), (_UNLABELLED_NEXT,), verdict, name)
    sentences = (_scores(record), *_notes(record))
    return Finding(spoken_verdict(record), sentences, (_next_step(record),), verdict, name)


def spoken_verdict(record: Judged) -> str:
    """Write a verdict for people: that of several metrics names them.

    >>> from types import SimpleNamespace
    >>> spoken_verdict(SimpleNamespace(verdict="mixed", gate_metric="map", worse=("recall@1", "recall@5")))
    'compatible in mAP, worse at the first hit (recall@1) and in recall@5'
    """
    if record.verdict != "mixed":
        return record.verdict
    return f"compatible in {metric_name(record.gate_metric)}, worse {listed(worse_places(record))}"


def short_verdict(record: Judged) -> str:
    """Write a verdict for a table.

    >>> from types import SimpleNamespace
    >>> short_verdict(SimpleNamespace(verdict="mixed", gate_metric="map"))
    'compatible in mAP only'
    """
    return f"compatible in {metric_name(record.gate_metric)} only" if record.verdict == "mixed" else record.verdict


def worse_places(record: Judged) -> list[str]:
    """Say where new queries are clearly worse than old ones."""
    return places(record.worse)


def places(metrics: Iterable[str]) -> list[str]:
    """Say where something is worse.

    >>> places(["recall@1", "map"])
    ['at the first hit (recall@1)', 'in mAP']
    """
    return [
        f"at the first hit ({metric_name(metric)})" if metric in FIRST_HIT else f"in {metric_name(metric)}"
        for metric in metrics
    ]


def headline(results: EvaluationResults) -> str:
    """Say in one sentence how many of the new models may search the old gallery."""
    verdicts = {name: record.verdict for name, record in results.evaluations.items()}
    if set(verdicts.values()) == {"unlabelled"}:
        if any(record.scored for record in results.evaluations.values()):
            return "Scores were measured by clicks, and no verdict is spoken."
        return "Nothing could be judged: the data has no labels."
    good = [name for name, verdict in verdicts.items() if verdict == "compatible"]
    if len(verdicts) == 1:
        (name, record), *_ = results.evaluations.items()
        return _headline_of(name, record)
    worse = [
        f" {name} is {spoken_verdict(record)}."
        for name, record in results.evaluations.items()
        if record.verdict == "mixed"
    ]
    if not good:
        return f"None of {len(verdicts)} new models is shown to be compatible with your old gallery.{''.join(worse)}"
    count = f"{len(good)} of {len(verdicts)} new models can search your old gallery today"
    return f"{count}: {listed(good)}.{''.join(worse)}"


def _headline_of(name: str, record: Evaluation) -> str:
    """Say what one new model may do, and where it is clearly worse whatever the verdict."""
    worse = listed(worse_places(record))
    metric = metric_name(record.gate_metric)
    once = " once it is mapped." if "gallery" in (record.mapped or {}) else " today."
    said = {
        "compatible": f"{name} can search your old gallery{once}",
        "mixed": f"{name} finds more in your old gallery in {metric}, and clearly less {worse}.",
        "inconclusive": f"Whether {name} can search your old gallery is not decided yet.",
    }.get(record.verdict, f"{name} cannot search your old gallery.")
    if _equal(record) and not worse:
        said = f"In {metric}, {name} scores on your old gallery just what the old model does: a swap gains nothing."
    return f"{said} It is clearly worse {worse}." if worse and record.verdict == "inconclusive" else said


def _equal(record: Evaluation) -> bool:
    """Say whether old and new queries score the same on the old gallery, whatever queries are drawn."""
    return record.gain() == 0 and record.gain_interval() == (0, 0)


def uncertainty_finding(found: Histogram) -> str:
    """Say whether the old model is more uncertain of classes that it has not seen.

    >>> from holdfast.evaluation.uncertainty import Group
    >>> groups = {name: Group(items=5, mean=mean, counts=[5]) for name, mean in (("seen", 0.25), ("unseen", 0.3125))}
    >>> uncertainty_finding(Histogram(edges=[0, 1], groups=groups))
    'The old model is more uncertain of classes that it has not seen: 0.312 against 0.250 on average.'
    """
    groups = found.groups
    if "all" in groups:
        return (
            "Which of these classes the old model has seen is not known here; “holdfast evaluate --old-release” tells, "
            "with a release that names its classes."
        )
    if len(groups) == 1:
        return f"The old model has seen {'all' if 'seen' in groups else 'none'} of these classes."
    seen, unseen = groups["seen"].mean, groups["unseen"].mean
    more = "more" if unseen > seen else "not more"
    return (
        f"The old model is {more} uncertain of classes that it has not seen: {score(unseen)} against {score(seen)} "
        "on average."
    )


def metric_note(metric: str) -> str:
    """Explain a metric in one line.

    >>> metric_note("recall@1")
    'the share of queries whose first result is right'
    """
    family, _, depth = metric.partition("@")
    if family in ("recall", "cmc"):
        first = "result is" if depth == "1" else f"{depth} results hold one that is"
        return f"the share of queries whose first {first} right"
    if family in _NOTES:
        return _NOTES[family].format(depth)
    extent = "" if not depth else ", over as many places as there are right items" if depth == "r" else f" at {depth}"
    return f"mean average precision{extent}; 1 if every right item comes before every wrong one"


def level(record: Evaluation) -> str:
    """Write the level of the intervals."""
    return f"{100 * record.protocol.bootstrap.level:g}\N{NO-BREAK SPACE}%"


def units(record: Evaluation) -> str:
    """Return what scores are averaged over, such as queries."""
    return record.protocol.units


def flip_meaning(record: Evaluation) -> str:
    """Explain a negative flip of what scores are averaged over."""
    if units(record) == "queries":
        return TERMS["negative flip"]
    return (
        f"one of the {units(record)} that was right with the old system and is wrong with the new one; a positive "
        "flip is the reverse"
    )


def drawn(record: Evaluation) -> str:
    """Return what the bootstrap draws: units, or whole classes of them, and from how many."""
    bootstrap = record.protocol.bootstrap
    what = units(record) if bootstrap.resample == "queries" else bootstrap.resample
    return what if bootstrap.groups is None else f"{bootstrap.groups:,} {what}"


def _scores(record: Evaluation) -> str:
    metric = record.gate_metric
    name = metric_name(metric)
    cross, old, new = (score(record.score(system)) for system in ("cross", "self_old", "self_new"))
    return (
        f"New queries on the old gallery score {name} {cross}, old queries {old}; the difference "
        f"{signed(record.gain(metric))} {_judged(record, metric)}. Re-embedding everything would give {new}."
    )


def _judged(record: Evaluation, metric: str) -> str:
    found = interval(record.gain_interval(metric), sign=True)
    if record.gate == "point":
        return f"{found} is judged by its sign alone, as asked"
    verdict = {
        "unlabelled": "is not judged",
        "compatible": "excludes zero",
        "mixed": "excludes zero",
        "inconclusive": f"includes zero: {record.protocol.queries_counted or 0:,} {units(record)} cannot tell",
    }
    chance = record.chance(metric)
    around = f"{level(record)} interval over {drawn(record)}"
    measured = around if chance is None else f"{around}; {p_words(chance)}"
    return f"{found} ({measured}) {verdict.get(record.verdict, 'has no part above zero')}"


def _next_step(record: Evaluation) -> str:
    if record.verdict == "mixed" or (record.verdict == "inconclusive" and record.worse):
        return (
            "Look at queries that lost a right first hit, of which the report shows some, and decide what counts for "
            "your users. Name it (“--guard recall@1,recall@5”, or “--no-guard” for the gate metric alone) and evaluate "
            "again, or embed the gallery anew before you swap."
        )
    if record.verdict == "inconclusive":
        return f"Measure more {units(record)} and evaluate again before you swap; no gallery has to change for that."
    if _equal(record):
        return (
            "Keep the old model, or evaluate by a metric in which the two differ (--gate-metric): this one may be as "
            "good as it gets."
        )
    if record.verdict == "not compatible":
        return (
            "Do not search the old gallery with this model: re-embed the gallery first, or train with a "
            "compatibility method (holdfast methods lists them)."
        )
    if "gallery" in (record.mapped or {}):
        return "Map the old gallery (“holdfast embed --stored GALLERY --adapter ADAPTER”), then swap the query model."
    if (record.score("self_new") or 0) <= (record.score("cross") or 0):
        return "Swap the query model now; by these numbers re-embedding the gallery would bring nothing more."
    return "Swap the query model now, and re-embed the gallery afterwards at your own pace (backfill)."


def _notes(record: Evaluation) -> list[str]:
    notes = [*_guard_notes(record), *_mapped_notes(record), *_class_notes(record)]
    told = flips(record.negative_flip_rate, record.positive_flip_rate, units(record))
    if told:
        notes.append(told)
    if record.self_independent is None:
        notes.append(
            "No independent model was given, so P_comp and P_up are missing: train one with "
            "“holdfast train --method independent” and evaluate again with it."
        )
    elif record.p("p_comp") is None:
        notes.append(
            "P_comp is not defined: the independent model does not score more than the old one, so there is no "
            "improvement that could arrive early. A new recipe that is better is worth more than compatibility here."
        )
    return notes


def _guard_notes(record: Evaluation) -> list[str]:
    """Say by how much new queries are worse in each metric where they clearly are, guarded or not."""
    found = {metric: record.gain_interval(metric) for metric in record.interval or {}}
    beside = [metric for metric in clearly_worse(found) if metric not in (*record.worse, record.gate_metric)]
    told = [(metric, "Clearly worse") for metric in record.worse]
    unguarded = "Clearly worse" if record.guards is None else "Clearly worse, and not guarded"
    told += [(metric, unguarded) for metric in beside]
    return [
        f"{said}: {metric_name(metric)} {score(record.score('cross', metric))}, "
        f"{score(record.score('self_old', metric))} with old queries, {signed(record.gain(metric))} "
        f"{interval(record.gain_interval(metric), sign=True)}."
        for metric, said in told
    ]


def _class_notes(record: Evaluation) -> list[str]:
    """Say how few classes there are, where they are few."""
    bootstrap = record.protocol.bootstrap
    if bootstrap.resample == "queries" or (bootstrap.groups or FEW) >= FEW:
        return []
    return [f"The queries are of {bootstrap.groups} classes only, which makes intervals wide: measure with more."]


def _mapped_notes(record: Evaluation) -> list[str]:
    """Say which side of the cross-test a map or a head made, and what could not be measured then."""
    mapped = record.mapped or {}
    if not mapped:
        return []
    sides = {"query": "the new queries", "gallery": "the old gallery"}
    notes = [
        "In the cross-test a map links two frozen models. It was applied to "
        f"{listed([words for side, words in sides.items() if side in mapped])}; do the same before you swap."
    ]
    if "query" in mapped:
        notes.append(
            "The upgrade curve was not measured: while the gallery is re-embedded, mapped queries search its old part "
            "and the new queries themselves its new part. The scores of the two are not on one scale, and their "
            "results need a rank merge. A map of the old gallery (direction old_to_new) keeps all in one space."
        )
    return notes


_UNLABELLED_NEXT = (
    "Look in the report at queries whose first hit changed, and judge which answer is better. For a verdict add labels "
    "to queries and gallery (a column “label” or an array “labels”; a few hundred labelled queries are a beginning) "
    "and run “holdfast evaluate” again."
)


_UNJUDGED_NEXT = (
    "Look in the report at queries whose first hit changed, and judge which answer is better. If people judged these "
    "pairs, whatever either system showed them, say so for a verdict: “holdfast evaluate --protocol-options.judged "
    "true”."
)


def _unjudged_notes(record: Evaluation) -> list[str]:
    """Say how alike results are, which needs no judgement, and what a map did."""
    found = record.agreement
    notes = [agreement_finding(found, level(record), begin="Agreement is not quality either")] if found else []
    return [*notes, *_mapped_notes(record)[:1]]
