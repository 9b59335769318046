"""Adapters and heads compared, in words: what to do in one line, how it was measured, and what every term means."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.adapters.compare import Directions
from holdfast.adapters.recommend import Action, place
from holdfast.adapters.results import AdaptResults
from holdfast.evaluation.intervals import FEW
from holdfast.reports.words import OLD, REEMBEDDED
from holdfast.reports.formats import percent, score
from holdfast.wording import listed, metric_name

AGREEMENT_NOTE = (
    "There are no labels, so nobody can say which results are right: every number here is agreement with re-embedding, "
    "not correctness."
)
METRICS = {
    "map": "mean average precision; 1 if every item of the query’s class comes before every other one",
    "overlap@10": "the share of the first ten items that are also among the first ten that re-embedding finds; it "
    "measures agreement with re-embedding, not correctness",
}
READING = {  # how to read the picture and the differences of the table
    "map": (
        "Right of the line of the old model, the swap pays at once; the nearer to re-embedding, the less is left to "
        "gain.",
        "All of it above zero means that the candidate helps.",
    ),
    "overlap@10": (
        "Right of the line of the old model, more is found of what re-embedding would find; whether that is right, "
        "agreement cannot tell.",
        "All of it above zero means that the candidate agrees more with re-embedding, not that it is right more often.",
    ),
}
_GALLERY = "an adapter that maps the vectors of the old gallery, once, instead of every new query"
_ADAPTER = "a map between the finished embeddings of two frozen models, fitted on pairs without labels"
_HEAD = "a small network on top of the frozen new model, trained with labels to search what the old model embedded"
_DIRECTIONS: dict[Directions, str] = {
    "new_to_old": "Adapters map the new model’s queries into the space of the old one; the old gallery stays as it is.",
    "old_to_new": "Adapters map the vectors of the old gallery into the space of the new model, without embedding an "
    "item again; the new model’s queries stay as they are.",
    "both": "Every adapter was fitted in both directions: to map the new model’s queries into the space of the old "
    "one, whose gallery stays as it is; and, marked (gallery), to map the vectors of the old gallery into the space of "
    "the new model, without embedding an item again.",
}


def adapt_headline(results: AdaptResults) -> str:
    """Say in one line what to do, and what it brings."""
    return _HEADLINES[results.recommendation.action](results)


def _use(results: AdaptResults) -> str:
    verb = "Adapt with" if results.recommendation.action == "adapt" else "Train"
    found = results.recommended
    if found is None or found.cross is None or found.cross_minus_self_old is None:
        return "Train a head: what was tried does not let the new model search the old gallery well enough."
    more = found.cross_minus_self_old.mean
    today = "today" if results.data.labelled else "the old model has"
    compared = f"{score(abs(more))} {'more' if more >= 0 else 'less'} than {today}"
    said = f"{_reached(results, found.cross.mean)}, {compared}{_caveat(results)}"
    worse = [f"{place(loss.name)} ({score(loss.self_old)} → {score(loss.cross)})" for loss in found.worse]
    if worse:
        return f"{verb} {found.name} only if you can bear what it loses: {said}, but clearly worse {listed(worse)}."
    return f"{verb} {found.name}: {said}."


def _re_embed(results: AdaptResults) -> str:
    best = results.named(results.best)
    if best is None or best.cross is None or best.self_new_minus_cross is None:
        return "Re-embed the gallery: nothing that was tried lets the new model search it as it is."
    missing = best.self_new_minus_cross.mean
    less = f", {score(missing)} less" if results.data.labelled and missing > 0 else ""
    reached = _reached(results, best.cross.mean)
    return f"Re-embed the gallery: {best.name} comes nearest to that with {reached}{less}{_caveat(results)}."


def _keep(results: AdaptResults) -> str:
    if not results.data.labelled:
        return "Keep the old model: without labels, nothing shows that the new one finds more."
    old, new = results.systems.self_old.mean, results.systems.self_new.mean
    name = metric_name(results.protocol.metric)
    return f"Keep the old model: its {name} is {score(old)}, and {score(new)} with {REEMBEDDED} by the new one."


def _check(results: AdaptResults) -> str:
    suspects = results.suspects
    if suspects is None:
        return "Check the pairs before you trust any number here."
    return f"Check the pairs first: {percent(suspects.share)} of them seem not to belong together."


_HEADLINES: dict[Action, Callable[[AdaptResults], str]] = {
    "adapt": _use,
    "train a head": _use,
    "re-embed": _re_embed,
    "keep the old model": _keep,
    "check the pairs": _check,
}


def _reached(results: AdaptResults, found: float) -> str:
    where = "on the old gallery" if results.data.labelled else "with re-embedding"
    return f"{metric_name(results.protocol.metric)} {score(found)} {where}"


def _caveat(results: AdaptResults) -> str:
    return "" if results.data.labelled else " (agreement, not correctness)"


def curve_finding(results: AdaptResults) -> str:
    """Say how many pairs are enough; nothing where that was not asked."""
    curve = results.learning_curve
    if curve is None:
        return ""
    name, enough = curve.candidate, curve.enough
    what = "" if results.data.labelled else " This is agreement with re-embedding, not correctness."
    if enough is None:
        return f"No smaller number of pairs was enough for {name}: more than these may still help.{what}"
    return (
        f"{enough:,} pairs are enough for {name}: from there on, it falls short of all pairs by less than two "
        f"points, and by half a point or more nowhere beyond chance.{what}"
    )


def protocol_words(results: AdaptResults) -> list[str]:
    """Say how everything was measured, in sentences."""
    protocol, labelled = results.protocol, results.data.labelled
    unseen = protocol.unseen_classes
    apart = f" Of {_classes(unseen)} no item was used to fit anything." if unseen else ""
    every = "Every held-out item is a query among all other held-out items."
    counted = (
        " An item of the query’s class is right."
        if labelled
        else " There are no labels: a system’s first ten items are compared with those that re-embedding finds. "
        f"{REEMBEDDED.capitalize()} has 1 by definition. This is agreement, not correctness."
    )
    return [
        f"Every candidate was fitted on {protocol.fitted_on:,} pairs, and measured on {protocol.held_out:,} "
        f"others that were held out.{apart}",
        every + counted,
        _DIRECTIONS[protocol.direction],
        f"Intervals hold {100 * protocol.level:g}\N{NO-BREAK SPACE}% of {protocol.resamples:,} resampled sets of "
        f"{_DRAWN[protocol.resample]} (seed {protocol.seed}), the same sets for all, so that what "
        "is common to two of them cancels in their difference.",
        *_corrections(results),
    ]


_DRAWN = {"queries": "queries", "classes": "whole classes of queries, as those of one class are alike"}


def _corrections(results: AdaptResults) -> list[str]:
    """Say which intervals are corrected for the choice, and what is guarded."""
    best = [found.name for found in results.candidates if found.as_best]
    protocol = results.protocol
    guards = [_GUARDED.get(name, metric_name(name)) for name in protocol.guards]
    told = []
    if protocol.resample == "classes" and 0 < protocol.unseen_classes < FEW:
        told.append(
            f"What is lost on {_classes(protocol.unseen_classes)} that nothing was learnt from is told by intervals "
            "over queries: so few classes say little of others."
        )
    if best:
        told.append(
            f"Intervals in table and picture are those of every candidate by itself. What {listed(best)}, the best of "
            "its kind, is said to gain over the old model has an interval that is corrected for that choice: every "
            "resampled set chooses anew, and shows how much luck there is in being chosen."
        )
    if guards:
        told.append(f"A candidate that is clearly worse at {listed(guards)} is not recommended without saying so.")
    return told


_GUARDED = {"recall@1": "the first hit (recall@1)", "unseen classes": "classes that nothing was learnt from"}


def _classes(count: int) -> str:
    return "1 class" if count == 1 else f"{count:,} classes"


def adapt_terms(results: AdaptResults) -> dict[str, str]:
    """Return the terms that occur on the page, with what they mean."""
    candidates, metric = results.candidates, results.protocol.metric
    kinds = {found.kind for found in candidates}
    told = {
        "adapter": _ADAPTER if "adapter" in kinds else "",
        "(gallery)": _GALLERY if results.protocol.direction != "new_to_old" and "adapter" in kinds else "",
        "head": _HEAD if "head" in kinds else "",
        "cross": "new queries search what the old model embedded; nothing is embedded again",
        OLD: "old queries on the old gallery, self (old): what there is today",
        REEMBEDDED: "new queries on a gallery that the new model embedded anew, self (new)",
        metric_name(metric): METRICS[metric],
        "gain recovered": "how far cross comes from the old model as it is (0\N{NO-BREAK SPACE}%) to everything "
        "re-embedded (100\N{NO-BREAK SPACE}%)" if any(found.recovered is not None for found in candidates) else "",
        "after backfill": "what the same queries find once all items have been re-embedded for them; with an "
        "adapter, what the new model finds by itself",
        "unseen classes": "cross on queries of classes of which no item was used to fit anything"
        if any(found.unseen for found in candidates) else "",
    }  # fmt: skip
    return {term: meaning for term, meaning in told.items() if meaning}
