"""Adapters and heads compared: what is said of them, their tables and their page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from limpet.evaluation.intervals import FEW
from limpet.linking.recommend import Action, place
from limpet.reports.formats import MISSING, interval, percent, plain_text, score, signed
from limpet.reports.markdown import Table, markdown_of
from limpet.reports.page import Drawing, in_both_widths, page_template, write_page
from limpet.reports.plots.style import KINDS
from limpet.reports.plots.swatches import kind_swatch
from limpet.reports.readings import REFERENCES, thresholds
from limpet.reports.words import OLD, REEMBEDDED, Finding, first_hit_cell, first_hits, with_interval
from limpet.support.wording import listed, metric_name

if TYPE_CHECKING:
    from limpet.linking.compare import CandidateScores, Directions, Gap, LearningCurve, Score
    from limpet.linking.results import AdaptResults, ScoreMapRecord

AGREEMENT_NOTE = (
    "Provisional: there are neither labels nor judged queries, so nobody can say which results are right. Every number "
    "here is agreement with re-embedding, not correctness, and of documents that ask for each other, not of real "
    "queries; a few judged ones (--relevant) tell more."
)
METRICS = {
    "map": "mean average precision; 1 if every item of the query’s class comes before every other one",
    "ndcg@10": "normalised discounted cumulative gain of the first ten items, as judged; 1 if no order is better",
    "overlap@10": "the share of the first ten items that are also among the first ten that re-embedding finds; it "
    "measures agreement with re-embedding, not correctness",
}
READING = {  # how to read the picture and the differences of the table
    "map": (
        "Right of the line of the old model, the swap pays at once; the nearer to re-embedding, the less is left to "
        "gain.",
        "All of it above zero means that the candidate helps.",
    ),
    "ndcg@10": (
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
    """Say in one line what to do, what it brings, and how first hits fare."""
    action = results.recommendation.action
    said, nearest = _HEADLINES[action](results), results.named(results.best) if action == "re-embed" else None
    found = results.recommended or nearest
    beside = first_hits(found.first_hits) if found is not None else ""
    return f"{said} {beside[:1].upper()}{beside[1:]}." if beside else said


def _use(results: AdaptResults) -> str:
    verb = "Adapt with" if results.recommendation.action == "adapt" else "Train"
    found = results.recommended
    if found is None or found.cross is None or found.cross_minus_self_old is None:
        return "Train a head: what was tried does not let the new model search the old gallery well enough."
    more = found.cross_minus_self_old.mean
    today = "today" if results.answered else "the old model has"
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
    less = f", {score(missing)} less" if results.answered and missing > 0 else ""
    reached = _reached(results, best.cross.mean)
    return f"Re-embed the gallery: {best.name} comes nearest to that with {reached}{less}{_caveat(results)}."


def _keep(results: AdaptResults) -> str:
    if not results.answered:
        return "Keep the old model: without labels or judged queries, nothing shows that the new one finds more."
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
    where = "on the old gallery" if results.answered else "with re-embedding"
    return f"{metric_name(results.protocol.metric)} {score(found)} {where}"


def _caveat(results: AdaptResults) -> str:
    return "" if results.answered else " (provisional: agreement, not correctness)"


def curve_finding(results: AdaptResults) -> str:
    """Say how many pairs are enough; nothing where that was not asked."""
    curve = results.learning_curve
    if curve is None:
        return ""
    name, enough = curve.candidate, curve.enough
    what = "" if results.answered else " This is agreement with re-embedding, not correctness."
    if enough is None:
        found = f"No smaller number of pairs was enough for {name}: more than these may still help."
    else:
        found = (
            f"{enough:,} pairs are enough for {name}: from there on, it falls short of all pairs by less than two "
            "points, and by half a point or more nowhere beyond chance."
        )
    return f"{found}{_last_step(curve)}{what}"


def _last_step(curve: LearningCurve) -> str:
    """Say what the last pairs brought, which as many more would hardly exceed."""
    if curve.last_step is None:
        return ""
    before, every = curve.points[-2].pairs, curve.points[-1].pairs
    gained, low, high = (
        f"{100 * value:+.1f}".replace("-", "−") for value in (curve.last_step.mean, *curve.last_step.interval)
    )
    return (
        f" The last {every - before:,} of {every:,} pairs brought {gained} points [{low}, {high}]; as many more would "
        "hardly bring more than that."
    )


def two_stage_finding(results: AdaptResults) -> str:
    """Say what two-stage search finds and costs; nothing where that was not measured."""
    found = results.two_stage
    if found is None:
        return ""
    more = _written(found.cross_minus_self_old, sign=True)
    compared = "than today" if results.data.labelled else "than the old model"
    return (
        f"Without any fit, two-stage search reaches {metric_name(results.protocol.metric)} {score(found.cross.mean)} "
        f"({more} {compared}){_caveat(results)}: old queries find {found.candidates:,} candidates, and the new model "
        f"scores them again. It needs the items where it searches: a query encodes {found.candidates:,} of them at "
        f"first; over these {found.queries:,} queries that was {found.encoded_per_query:.1f} each, "
        f"{percent(found.encoded)} of the items in all, since what is encoded is kept."
    )


def two_stage_rows(results: AdaptResults) -> Table | None:
    """Return columns and rows of two-stage search between both models; None where that was not measured."""
    found, systems = results.two_stage, results.systems
    if found is None:
        return None
    gained = signed(systems.self_new.mean - systems.self_old.mean)
    columns = [
        "", f"{metric_name(results.protocol.metric)}", "minus self (old)", "gain recovered", "encoded per query",
        "encoded in all",
    ]  # fmt: skip
    return columns, [
        [OLD, _written(systems.self_old), *[MISSING] * 4],
        [f"two stages, {found.candidates:,} candidates", _written(found.cross),
         _written(found.cross_minus_self_old, sign=True), percent(found.recovered).replace("-", "−"),
         f"{found.encoded_per_query:.1f}", percent(found.encoded)],
        [REEMBEDDED, _written(systems.self_new), gained, MISSING, MISSING, percent(1.0)],
    ]  # fmt: skip


def protocol_words(results: AdaptResults) -> list[str]:
    """Say how everything was measured, in sentences."""
    protocol = results.protocol
    unseen = protocol.unseen_classes
    apart = f" Of {_classes(unseen)} no item was used to fit anything." if unseen else ""
    every = "Every held-out item is a query among all other held-out items."
    fitted = (
        f"Every candidate was fitted on {protocol.fitted_on:,} pairs, and measured on {protocol.held_out:,} others "
        f"that were held out.{apart}"
    )
    if protocol.splits > 1:
        fitted += f" The pairs were split {protocol.splits} times, each time into so many."
    counted = (
        " An item of the query’s class is right."
        if results.answered
        else " There are no labels: a system’s first ten items are compared with those that re-embedding finds. "
        f"{REEMBEDDED.capitalize()} has 1 by definition. This is provisional: agreement, not correctness."
    )
    if protocol.judged is not None:
        fitted = f"Every candidate was fitted on {protocol.fitted_on:,} pairs."
        every = f"{protocol.judged:,} judged queries search {protocol.held_out:,} items."
        counted = (
            " What people judged is right. The queries were used to choose what is recommended, and to fit nothing."
        )
    return [
        fitted,
        every + counted,
        _DIRECTIONS[protocol.direction],
        f"Intervals hold {100 * protocol.level:g}\N{NO-BREAK SPACE}% of {protocol.resamples:,} resampled sets of "
        f"{_DRAWN[protocol.resample]} (seed {protocol.seed}), the same sets for all, so that what "
        "is common to two of them cancels in their difference.",
        *_corrections(results),
        *(found.sentence for found in results.long_texts),
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
        "gain recovered": "how far cross comes from the old model as it is (0\N{NO-BREAK SPACE}%) to the score after "
        "backfill (100\N{NO-BREAK SPACE}%)" if any(found.recovered is not None for found in candidates) else "",
        "after backfill": "what the same queries find once all items have been re-embedded for them; with an "
        "adapter, what the new model finds by itself",
        "unseen classes": "cross on queries of classes of which no item was used to fit anything"
        if any(found.unseen for found in candidates) else "",
    }  # fmt: skip
    return {term: meaning for term, meaning in told.items() if meaning}


def adapt_table(results: AdaptResults, *, typeset: bool = False) -> Table:
    """Return columns and rows: the old model as it is, the candidates, best first, and everything re-embedded.

    Scores are fractions; a dash stands for what is missing, "– failed" for what could not be measured (`failures` says
    why), and a column of which nothing is known is left out. Minus signs are hyphens unless ``typeset``.
    """
    columns = [
        "candidate",
        "kind",
        f"cross ({metric_name(results.protocol.metric)}{'' if results.answered else ', provisional'})",
        "minus self (old)",
        "first hits (net)",
        "gain recovered",
        "after backfill",
        "unseen classes",
        "fit seconds",
    ]
    unseen = next((found.unseen for found in results.candidates if found.unseen), None)
    old, new = results.systems.self_old, results.systems.self_new
    gained, after = signed(new.mean - old.mean), score(new.mean)
    rows = [
        [OLD, MISSING, _written(old), *[MISSING] * 4, score(unseen.self_old if unseen else None), MISSING],
        *(_row(found, new) for found in results.by_score()),
        [
            REEMBEDDED,
            MISSING,
            _written(new),
            gained,
            MISSING,
            MISSING,
            after,
            score(unseen.self_new if unseen else None),
            MISSING,
        ],
    ]
    known = [place for place in range(len(columns)) if {row[place] for row in rows} - {MISSING}]
    if not typeset:
        rows = [[row[0], *map(plain_text, row[1:])] for row in rows]
    return [columns[place] for place in known], [[row[place] for place in known] for row in rows]


def _row(found: CandidateScores, new: Score) -> list[str]:
    if found.cross is None or found.cross_minus_self_old is None:
        return [found.name, found.kind, f"{MISSING} failed", *[MISSING] * 5, _seconds(found.seconds)]
    backfilled = found.own or new  # without a gallery of its own, that of the new model
    return [
        found.name,
        found.kind,
        _written(found.cross),
        _written(found.cross_minus_self_old, sign=True),
        first_hit_cell(found.first_hits),
        percent(found.recovered).replace("-", "−"),
        score(backfilled.mean),
        score(found.unseen.cross if found.unseen else None),
        _seconds(found.seconds),
    ]


def failures(results: AdaptResults) -> list[str]:
    """Say of every candidate that failed why it did, each on one line."""
    reasons = {found.name: found.failed for found in results.by_score() if found.failed is not None}
    return [f"{name} failed: {' '.join(reason.split())}" for name, reason in reasons.items()]


def _written(found: Score | Gap, *, sign: bool = False) -> str:
    return f"{(signed if sign else score)(found.mean)} {interval(found.interval, sign=sign)}"


def _seconds(found: float | None) -> str:
    """Write a time.

    >>> _seconds(0.0312), _seconds(41.37), _seconds(1234.5), _seconds(None)
    ('0.03', '41.4', '1,234', '–')
    """
    if found is None:
        return MISSING
    return f"{found:.2f}" if found < 10 else f"{found:.1f}" if found < 100 else f"{found:,.0f}"


def write_adapt_report(results: AdaptResults, folder: str | Path) -> Path:
    """Write report.html into a folder, wholly or not at all, and return its path; see `write_page`."""
    return write_page(render_adapt_report(results), folder)


def render_adapt_report(results: AdaptResults) -> str:
    """Return the page as text; see `write_adapt_report`."""
    curve, advised = results.learning_curve, results.recommended
    page: str = page_template("adapt.html").render(
        document=results,
        headline=adapt_headline(results),
        steps=_steps(results),
        agreement=None if results.answered else AGREEMENT_NOTE,
        terms=adapt_terms(results),
        reading=READING[results.protocol.metric],
        references=REFERENCES,
        kinds=[kind for kind in KINDS if kind in {one.kind for one in results.candidates}],
        swatch=kind_swatch,
        charts=_charts(results),
        summary=adapt_table(results, typeset=True),
        candidates={one.name: one for one in results.by_score()},
        recommended=advised and advised.name,
        curve_finding=curve_finding(results),
        curve_rows=curve_rows(curve) if curve else None,
        threshold_rows=threshold_rows(results.score_map) if results.score_map else None,
        two_stage_finding=two_stage_finding(results),
        two_stage_rows=two_stage_rows(results),
        protocol_words=protocol_words(results),
    )
    return page


def _steps(results: AdaptResults) -> list[tuple[str, str, bool]]:
    """Return the scores today, with the candidate recommended or else the best, and after re-embedding.

    Returns:
        A number, its name, and whether it is what the recommendation is about.
    """
    systems, advised = results.systems, results.recommended
    shown = advised or results.named(results.best)
    between = [(score(shown.cross.mean), f"with {shown.name}", advised is not None)] if shown and shown.cross else []
    return [
        (score(systems.self_old.mean), "today", False),
        *between,
        (score(systems.self_new.mean), "re-embedded", False)
        if shown is None or shown.own is None
        else (score(shown.own.mean), f"re-embedded with {shown.name}", False),
    ]


def _charts(results: AdaptResults) -> dict[str, Drawing]:
    from limpet.reports.plots.forest import candidate_dots
    from limpet.reports.plots.lines import learning_curve, score_map_plot

    charts = {"dots": in_both_widths(lambda width: candidate_dots(results, width=width))}
    curve, score_map = results.learning_curve, results.score_map
    if curve is not None and curve.points:
        charts["curve"] = in_both_widths(lambda width: learning_curve(results, curve, width=width))
    if score_map is not None:
        charts["map"] = in_both_widths(lambda width: score_map_plot(score_map, width=width))
    return charts


def curve_rows(curve: LearningCurve) -> Table:
    """Return columns and rows of a learning curve, one row per number of pairs."""
    rows = [[f"{point.pairs:,}", with_interval(point.cross)] for point in curve.points]
    return ["pairs", "cross"], rows


def threshold_rows(score_map: ScoreMapRecord) -> Table:
    """Return columns and rows of round old scores and the new ones that stand for them."""
    return ["old score", "new score"], [
        [f"{old:g}".replace("-", "−"), score(new)] for old, new in thresholds(score_map)
    ]


def adapt_markdown(results: AdaptResults) -> str:
    """Return what is said of adapters and heads and their tables in Markdown."""
    curve, score_map = results.learning_curve, results.score_map
    agreement = [] if results.answered else [AGREEMENT_NOTE]
    told = [*results.recommendation.sentences, *results.data.sentences, *agreement, curve_finding(results)]
    told.append(two_stage_finding(results))
    finding = Finding(adapt_headline(results), tuple(filter(None, told)))
    tables = {"Candidates": adapt_table(results)}
    if (two_stage := two_stage_rows(results)) is not None:
        tables["Two-stage search"] = two_stage
    if curve:
        tables[f"{curve.candidate}, by the number of pairs"] = curve_rows(curve)
    if score_map:
        tables["Thresholds"] = threshold_rows(score_map)
    return markdown_of(results.title, [finding], tables, [*failures(results), *protocol_words(results)])
