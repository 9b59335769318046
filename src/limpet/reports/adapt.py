"""Report of a comparison of adapters and heads: findings, tables and page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limpet.evaluation.intervals import FEW
from limpet.linking.recommend import Action, place
from limpet.reports.formats import MISSING, interval, percent, score, signed
from limpet.reports.markdown import Table, markdown_of
from limpet.reports.page import Drawing, drawn_both, page_template, write_page
from limpet.reports.plots.style import KINDS
from limpet.reports.plots.swatches import kind_swatch
from limpet.reports.readings import REFERENCES
from limpet.reports.thresholds import threshold_rows, threshold_words
from limpet.reports.words import (
    OLD,
    REEMBEDDED,
    Finding,
    first_hit_cell,
    first_hits,
    with_interval,
)
from limpet.support.wording import listed, metric_name, model_name

if TYPE_CHECKING:
    from limpet.linking.adapt import Adapted
    from limpet.linking.compare import CandidateScores, Effect, LearningCurve
    from limpet.linking.results import AdaptResults

AGREEMENT_NOTE = (
    "Provisional: without labels or judged queries, nobody can say which results are right. Every number here is "
    "agreement with re-embedding, not correctness, and items of the index serve as queries. A few judged queries "
    "(--relevant) tell more."
)


def adapt_headline(results: AdaptResults) -> str:
    """Summarise the recommendation, its gain and the change of first hits in one line."""
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


def two_stage_finding(results: AdaptResults) -> str:
    """Describe results and cost of two-stage search; empty if not measured."""
    found = results.two_stage
    if found is None:
        return ""
    more = _written(found.cross_minus_self_old, sign=True)
    compared = "than today" if results.data.labelled else "than the old model"
    return (
        f"Without any fit, two-stage search reaches {metric_name(results.protocol.metric)} {score(found.cross.mean)} "
        f"({more} {compared}){_caveat(results)}: old queries find {found.candidates:,} candidates, and the new model "
        f"scores them again. It needs the items at search time and keeps what it encodes: the first query encodes "
        f"{found.candidates:,} items; {found.queries:,} queries encoded {found.encoded_per_query:.1f} each on average, "
        f"{percent(found.encoded)} of all items."
    )


def two_stage_rows(results: AdaptResults) -> Table | None:
    """Return columns and rows of two-stage search between both models; None if not measured."""
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


_GUARDED = {"recall@1": "the first hit (recall@1)", "unseen classes": "unseen classes"}


def adapt_table(results: AdaptResults) -> Table:
    """Return columns and rows: the unchanged old model, the candidates, best first, and full re-embedding.

    Scores are fractions; a dash stands for what is missing, "– failed" for what could not be measured (`failures` says
    why), and a column of which nothing is known is left out.
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
    return [columns[place] for place in known], [[row[place] for place in known] for row in rows]


def _row(found: CandidateScores, new: Effect) -> list[str]:
    if found.cross is None or found.cross_minus_self_old is None:
        return [found.name, found.kind, f"{MISSING} failed", *[MISSING] * 5, _seconds(found.seconds)]
    backfilled = found.own or new  # without a gallery of its own, use that of the new model
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
    """Return the reason for every failed candidate, one per line."""
    reasons = {found.name: found.failed for found in results.by_score() if found.failed is not None}
    return [f"{name} failed: {' '.join(reason.split())}" for name, reason in reasons.items()]


def _written(found: Effect, *, sign: bool = False) -> str:
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
    """Write report.html into a folder atomically, and return its path; see `write_page`."""
    return write_page(render_adapt_report(results), folder)


def render_adapt_report(results: AdaptResults) -> str:
    """Return the page as text; see `write_adapt_report`."""
    curve, advised = results.learning_curve, results.recommended
    page: str = page_template("adapt.html").render(
        document=results,
        headline=adapt_headline(results),
        advice_finding=Finding("", tuple(results.recommendation.sentences)),
        steps=_steps(results),
        agreement_note=AGREEMENT_NOTE,
        few=FEW,
        guarded=[_GUARDED.get(name, metric_name(name)) for name in results.protocol.guards],
        references=REFERENCES,
        kinds=[kind for kind in KINDS if kind in {one.kind for one in results.candidates}],
        swatch=kind_swatch,
        charts=_charts(results),
        summary=adapt_table(results),
        candidates={one.name: one for one in results.by_score()},
        recommended=advised and advised.name,
        curve_rows=curve_rows(curve) if curve else None,
        threshold_rows=threshold_rows(results.thresholds) if results.thresholds else None,
        threshold_words=threshold_words,
        two_stage_finding=two_stage_finding(results),
        two_stage_rows=two_stage_rows(results),
    )
    return page


def _steps(results: AdaptResults) -> list[tuple[str, str, bool]]:
    """Return the scores today, with the candidate recommended or else the best, and after re-embedding.

    Returns:
        Number, name, and whether the recommendation refers to it.
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
    from limpet.reports.plots.lines import learning_curve, threshold_plot

    charts = {"dots": drawn_both(candidate_dots, results)}
    curve, thresholds = results.learning_curve, results.thresholds
    if curve is not None and curve.points:
        charts["curve"] = drawn_both(learning_curve, results, curve)
    if thresholds is not None:
        charts["thresholds"] = drawn_both(threshold_plot, thresholds)
    return charts


def curve_rows(curve: LearningCurve) -> Table:
    """Return columns and rows of a learning curve, one row per number of pairs."""
    rows = [[f"{point.pairs:,}", with_interval(point.cross)] for point in curve.points]
    return ["pairs", "cross"], rows


def results_of(adapted: Adapted) -> AdaptResults:
    """Return the results for two models, named by their fingerprints."""
    from limpet.linking.results import AdaptResults, Names

    directions = {one.direction for one in adapted.comparison.candidates if one.direction}
    old, new = (model_name(side.fingerprint) for side in (adapted.held_out.old, adapted.held_out.new))
    return AdaptResults.gather(
        adapted.held_out,
        adapted.comparison,
        adapted.recommendation,
        title=f"Can {new} search what {old} embedded?",
        names=Names("items", old, new),
        direction=directions.pop() if len(directions) == 1 else "both",
        pair_sentences=adapted.sentences,
        suspects=adapted.suspects,
        curve=adapted.curve,
        thresholds=adapted.thresholds,
        two_stage=adapted.two_stage,
    )


def adapt_words(results: AdaptResults) -> list[str]:
    """Return the findings on adapters and heads, one per line."""
    return [adapt_finding(results).headline, *adapt_finding(results).lines]


def adapt_records(results: AdaptResults) -> list[dict[str, Any]]:
    """Return the scores of every candidate, the best first."""
    return [
        {
            "candidate": one.name,
            "kind": one.kind,
            "direction": one.direction,
            "metric": results.protocol.metric,
            **{
                column: None if effect is None else value(effect)
                for name in ("cross", "cross_minus_self_old", "self_new_minus_cross")
                for effect in [getattr(one, name)]
                for column, value in _columns(name)
            },
            "recovered": one.recovered,
            "seconds": one.seconds,
            "failed": one.failed,
        }
        for one in results.by_score()
    ]


def _columns(name: str) -> list[tuple[str, Callable[[Effect], float]]]:
    return [
        (name, lambda effect: effect.mean),
        (f"{name}_low", lambda effect: effect.interval[0]),
        (f"{name}_high", lambda effect: effect.interval[1]),
    ]


def adapt_finding(results: AdaptResults) -> Finding:
    """Return the findings on adapters and heads."""
    agreement = [] if results.answered else [AGREEMENT_NOTE]
    told = [*results.recommendation.sentences, *results.data.sentences, *agreement, two_stage_finding(results)]
    return Finding(adapt_headline(results), tuple(filter(None, told)))


def adapt_markdown(results: AdaptResults) -> str:
    """Return findings and tables in Markdown."""
    curve = results.learning_curve
    tables = {"Candidates": adapt_table(results)}
    if (two_stage := two_stage_rows(results)) is not None:
        tables["Two-stage search"] = two_stage
    if curve:
        tables[f"{curve.candidate}, by the number of pairs"] = curve_rows(curve)
    if results.thresholds:
        tables["Thresholds"] = threshold_rows(results.thresholds)
    return markdown_of(results.title, [adapt_finding(results)], tables, failures(results))
