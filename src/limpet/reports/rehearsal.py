"""Report of a rehearsed upgrade: findings, tables and page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limpet.reports.formats import MISSING, percent_of, score, signed
from limpet.reports.markdown import Table, markdown_of
from limpet.reports.page import Drawing, drawn_both, page_template, write_page
from limpet.reports.plots.swatches import change_swatch, order_swatch
from limpet.reports.readings import CHANGES, changes_of, stage
from limpet.reports.thresholds import threshold_rows, threshold_words
from limpet.reports.words import Finding, first_hits
from limpet.support.wording import duration, metric_name

if TYPE_CHECKING:
    from limpet.galleries.rehearsal.results import Gain, Rehearsal

SPACE = "\N{NO-BREAK SPACE}"

ORDERS = {
    "random": "in random order",
    "uncertainty": "the most uncertain old vectors first",
    "traffic": "the most retrieved first",
    "id": "by id",
}
"""Description of the backfill orders, by name."""

STEPS = {
    "embed": "embed the items with the new model",
    "start": "start: make room for new vectors",
    "swap": "swap: the new model becomes the active one",
    "backfill": "write the new vectors, without embedding",
    "rollback": "rollback: the old model is active again",
    "finish": "finish: read every new vector, and remove the old ones",
}
"""Description of the steps of an upgrade."""

LINKS = {
    "report": "a compatibility report lets new queries search old vectors as they are",
    "adapter": "an adapter maps new queries into the space of the old vectors",
    "mapped": "an adapter mapped the old vectors into the space of the new model",
    "forced": "somebody decided, without a report, that new queries may search old vectors",
    "none": "nothing lets new queries search old vectors: the old model serves until every item has a new one",
}


ORDER_MATTERS = 0.005
"""Minimum mean difference between orders that is reported."""

TONES = {
    "ready": "compatible",
    "dips": "inconclusive",
    "mixed": "inconclusive",
    "no gain": "inconclusive",
    "not held out": "inconclusive",
    "unlabelled": "inconclusive",
    "worse": "not-compatible",
    "failed": "not-compatible",
}
"""Kind of finding, for its colour, by verdict."""


def rehearsal_headline(results: Rehearsal) -> str:
    """Summarise a rehearsal and the change of first hits in one line."""
    said, beside = _HEADLINES[results.verdict](results), first_hits(results.net_first_hits)
    return f"{said} {beside[:1].upper()}{beside[1:]} at the end." if beside else said


def _ends(results: Rehearsal) -> tuple[float, float, float]:
    values = results.curve.values[results.metric]
    return results.before[results.metric], values[0], values[-1]


def _on_sample(results: Rehearsal) -> str:
    """Name the sample that scores were measured on, if any, because scores differ among all items."""
    if results.sampled == results.items:
        return ""
    return f" (among {results.sampled:,} of the {results.items:,} items)"


def _ready(results: Rehearsal) -> str:
    before, swap, end = _ends(results)
    if not results.swaps_first:
        return (
            f"Ready: mAP stays at {score(before)} until the swap, which comes last, and is {score(end)} from then on"
            f"{_on_sample(results)}."
        )
    return (
        f"Ready: mAP goes from {score(before)} to {score(swap)} at the swap and {score(end)} at the end"
        f"{_on_sample(results)}, and neither it nor the first hit is ever measurably below today."
    )


def _not_held_out(results: Rehearsal) -> str:
    before, swap, end = _ends(results)
    return (
        f"It works, but {results.trained or 0:,} of {results.asked:,} queries are items that the new model was trained "
        f"on, so mAP {score(before)} today, {score(swap)} at the swap and {score(end)} at the end says nothing of "
        "others."
    )


def _mixed(results: Rehearsal) -> str:
    before, _, end = _ends(results)
    lost = [
        f"{metric_name(metric)} {score(results.before[metric])} today, "
        f"{score(results.curve.values[metric][-1])} at the end"
        for metric in results.curve.lost
    ]
    gained = f"mAP {score(before)} today, {score(end)} at the end"
    return (
        f"It works, but the new model finds less at the first hit: {'; '.join([*lost, gained])}{_on_sample(results)}."
    )


def _dips(results: Rehearsal) -> str:
    metric, share = _lowest(results)
    curve, before = results.curve, results.before[metric]
    lowest, end = curve.values[metric][curve.shares.index(share)], curve.values[metric][-1]
    when = "right after the swap" if share == 0 else f"with {percent_of(share)} re-embedded"
    where = "" if metric == results.metric else " at the first hit"
    return (
        f"It works, but finds less{where} for a while: {metric_name(metric)} is {score(before)} today, "
        f"{score(lowest)} {when}, and {score(end)} at the end{_on_sample(results)}."
    )


def _lowest(results: Rehearsal) -> tuple[str, float]:
    """Return the metric that dips, and the share where it is lowest: the main one if it does."""
    curve = results.curve
    metric = results.metric if results.metric in curve.dips else curve.dips[0]
    return metric, min(zip(curve.values[metric], curve.shares, strict=True))[1]


def _no_better(results: Rehearsal) -> str:
    said = {"no gain": "nothing shows that the new model finds more", "worse": "the new model finds less"}
    before, _, end = _ends(results)
    shown = f"mAP {score(before)} today, {score(end)} at the end{_on_sample(results)}"
    return f"It works, but {said[results.verdict]}: {shown}."


def _unlabelled(results: Rehearsal) -> str:
    last = results.first_hits[-1]
    return (
        f"It works; at the end {percent_of(last.changed)} of the queries find another item first. Whether a better "
        "one, only people can tell."
    )


def _failed(results: Rehearsal) -> str:
    searches = results.searches
    reasons = {
        f"{'searches' if len(searches.failed) > 1 else 'a search'} failed": searches.failed,
        f"{searches.incomplete:,} answers did not see every item once": searches.incomplete,
        f"{searches.wrong:,} answers were not the nearest items": searches.wrong,
        "old queries find something else after the rollback": not results.rollback_equal,
    }
    return f"Do not upgrade yet: {'; '.join(words for words, found in reasons.items() if found)}."


_HEADLINES: dict[str, Callable[[Rehearsal], str]] = {
    "ready": _ready,
    "dips": _dips,
    "no gain": _no_better,
    "mixed": _mixed,
    "not held out": _not_held_out,
    "worse": _no_better,
    "unlabelled": _unlabelled,
    "failed": _failed,
}


def findings(results: Rehearsal) -> list[str]:
    """Return the findings in sentences, the most important one first."""
    searches, linked = results.searches, LINKS[results.linked]
    went = ", ".join(results.steps)
    sentences = [f"Every step was made on a copy: {went}. {linked[0].upper()}{linked[1:]}."]
    if results.verdict != "failed":
        sentences.append(
            f"{searches.made:,} queries searched meanwhile; none failed, and every answer saw every item once."
        )
    sentences.append(
        "It is not known whether the new model was trained on these queries."
        if results.trained is None
        else f"The new model was trained on {results.trained:,} of {results.asked:,} queries."
    )
    if results.curve.differences and results.swaps_first:
        sentences.append(_margin(results.curve.differences))
    if results.missing:
        sentences.append(
            f"{results.missing:,} of {results.sampled:,} sampled items are not where the new vectors come "
            "from: they would stay with their old ones."
        )
    return sentences


def _margin(differences: Mapping[str, Sequence[Gain]]) -> str:
    said = [
        f"{signed(mean)} {metric_name(metric)} ({signed(low)} to {signed(high)})"
        for metric, ((mean, low, high), *_) in differences.items()
    ]
    return (
        f"Right after the swap, before anything is re-embedded, the difference to today is {' and '.join(said)}; in "
        f"brackets 95{SPACE}% of resampled sets of queries, whole classes where several share one."
    )


def next_step(results: Rehearsal) -> str:
    """Return the next step; known commands can be run unchanged."""
    verdict = results.verdict
    if verdict == "failed":
        look = "limpet upgrade verify" if results.attached else "limpet doctor"
        return f"run `{look}`, and report what this page shows; {results.only_read}."
    if verdict == "worse":
        return f"keep the old model, or find out why the new one finds less; {results.only_read}."
    if verdict == "mixed":
        return (
            "look at the examples below, and decide whether the first hit counts for your users before anything is "
            f"swapped; {results.only_read}."
        )
    if verdict == "not held out":
        return (
            "embed queries that the new model was not trained on with both models, and rehearse with them: "
            "`--queries OLD NEW`."
        )
    if verdict == "dips":
        return "backfill a part before the swap, or find a better link."
    order = wanted_order(results)
    fill = f"limpet upgrade backfill{'' if order is None else f' --order {order}'}"
    steps = ["limpet upgrade swap", fill] if results.swaps_first else [fill, "limpet upgrade swap"]
    start = [] if results.new.name else ["limpet upgrade start"]
    steps = list(results.commands) or [*start, *steps]
    said = ", then ".join(f"`{step}`" for step in steps)
    if not (results.swaps_first or results.attached):
        said += "; a report or an adapter would let you swap first"
    return f"look at the examples below; then {said}." if verdict in ("unlabelled", "no gain") else f"{said}."


def wanted_order(results: Rehearsal) -> str | None:
    """Return the most useful order; None if the order hardly matters, or new vectors become searchable all at once."""
    return best_order(results) if results.swaps_first and order_gain(results) >= ORDER_MATTERS else None


def best_order(results: Rehearsal) -> str:
    """Return the order with the highest mean of its curve, or the first one."""
    metric = results.metric
    areas = {name: curve.area[metric] for name, curve in results.curves.items()}
    return max(areas, key=areas.__getitem__)


def order_gain(results: Rehearsal) -> float:
    """Return how far the main metric of the best order is above that of the worst one, on average."""
    areas = [curve.area[results.metric] for curve in results.curves.values()]
    return max(areas) - min(areas)


def two_stage_rows(results: Rehearsal) -> Table | None:
    """Return columns and rows of two-stage search between today and the end; None if it was not rehearsed."""
    found = results.two_stage
    if found is None:
        return None
    curve, metrics = results.curve, [name for name in found.values if not name.endswith("with old")]
    before = results.searches.milliseconds.get("before")
    swapped = [score(curve.values[name][0]) for name in metrics]
    rows = [
        ["today", *(score(results.before[name]) for name in metrics),
         duration(None if before is None else before / 1000), "0"],
        ["in two stages", *(score(found.values[name]) for name in metrics),
         f"{duration(found.first_milliseconds / 1000)}, then {duration(found.again_milliseconds / 1000)}",
         f"{found.encoded_per_query:.1f}"],
        *([["after the swap", *swapped, MISSING, "0"]] if results.swaps_first else []),
        ["all re-embedded", *(score(curve.values[name][-1]) for name in metrics), MISSING, MISSING],
    ]  # fmt: skip
    return ["", *map(metric_name, metrics), "a query on the copy", "encoded for it"], rows


PAGE = "rehearsal.html"

_SHOWN = ("0 ", "50 ", "100 ")  # shares whose searches are in the table of times


def write_rehearsal_report(results: Rehearsal, folder: str | Path) -> Path:
    """Write rehearsal.html into a folder atomically, and return its path; see `write_page`."""
    return write_page(render_rehearsal_report(results), folder, PAGE)


def render_rehearsal_report(results: Rehearsal) -> str:
    """Return the page as text; see `write_rehearsal_report`."""
    shown = ("map", "recall@1") if results.labelled else ("overlap@10 with new", "overlap@10 with old")
    judged = results.judged / results.asked
    occurring = {kind for found in results.first_hits for kind in changes_of(found, judged)}
    other = "another first hit, as right or wrong as before" if results.labelled else "another first hit"
    page: str = page_template("rehearsal.html").render(
        document=results,
        tone=TONES[results.verdict],
        headline=rehearsal_headline(results),
        finding=_finding(results),
        numbers_now=_numbers(results),
        metrics=shown,
        orders={name: ORDERS.get(name, name) for name in results.curves},
        order_swatch=order_swatch,
        change_swatch=change_swatch,
        changes={kind: other if kind == "other" else told for kind, told in CHANGES.items() if kind in occurring},
        charts=_charts(results, shown),
        best=best_order(results),
        order_gain=order_gain(results),
        order_matters=ORDER_MATTERS,
        order_rows=order_rows(results),
        embedding=next(one.full_seconds for one in results.timings if one.step == "embed"),
        timing_rows=timing_rows(results),
        latency_rows=latency_rows(results),
        two_stage_rows=two_stage_rows(results),
        threshold_tables=[
            (step, threshold_words(found), threshold_rows(found)) for step, found in results.thresholds.items()
        ],
        rollback_rows=rollback_rows(results),
        stage=stage,
        link=LINKS[results.linked],
    )
    return page


def _finding(results: Rehearsal) -> Finding:
    failed = (f"A search failed: {reason}" for reason in results.searches.failed)
    return Finding(rehearsal_headline(results), (*findings(results), *failed), (next_step(results),))


def _numbers(results: Rehearsal) -> list[tuple[str, str, bool]]:
    """Return the main metric today, after the swap and at the end: number, name, and whether it is the one in focus."""
    metric = results.metric
    values = results.curve.values[metric]
    swapped = [(score(values[0]), "after the swap", True)] if results.swaps_first else []
    today = [] if metric.startswith("overlap") else [(score(results.before[metric]), "today", False)]
    return [*today, *swapped, (score(values[-1]), "all re-embedded", not swapped)]


def _charts(results: Rehearsal, metrics: tuple[str, ...]) -> dict[str, Drawing]:
    from limpet.reports.plots.bars import first_hit_bars
    from limpet.reports.plots.lines import rehearsal_curves

    charts = {metric: drawn_both(rehearsal_curves, results, metric, wide={"width": 520}) for metric in metrics}
    return charts | {"first": drawn_both(first_hit_bars, results)}


def order_rows(results: Rehearsal) -> Table:
    """Return columns and rows of the orders, the best first: on average, and at every share."""
    metric, curves = results.metric, results.curves
    shares = map(percent_of, results.curve.shares)
    columns = [f"{metric_name(metric)}, re-embedded", "on average", *shares]
    ranked = sorted(curves.items(), key=lambda item: -item[1].area[metric])
    return columns, [[name, score(curve.area[metric]), *map(score, curve.values[metric])] for name, curve in ranked]


def timing_rows(results: Rehearsal) -> Table:
    """Return columns and rows of the steps: on the copy, and extrapolated to all items."""
    rows = [
        [
            STEPS.get(one.step, one.step),
            duration(one.seconds),
            duration(one.full_seconds) if one.items else "the same",
        ]
        for one in results.timings
    ]
    return ["step", f"{results.sampled:,} items", f"{results.items:,} items"], rows


def latency_rows(results: Rehearsal) -> Table:
    """Return columns and rows of the time of a query at every stage, on the copy."""
    found = results.searches.milliseconds
    between = [point for point in found if point.endswith("re-embedded") and not point.startswith(_SHOWN)]
    rows = [[point, duration(taken / 1000)] for point, taken in found.items() if point not in between]
    return ["a query on the copy", "median"], rows


def rollback_rows(results: Rehearsal) -> Table:
    """Return columns and rows of the results of old queries before the swap and after the rollback."""
    metrics = [name for name in results.before if not name.startswith("overlap")] or ["overlap@10 with old"]
    rows = [
        [metric_name(name), f"{results.before[name]:.6f}", f"{results.after_rollback[name]:.6f}"] for name in metrics
    ]
    return ["old queries", "before the swap", "after the rollback"], rows


def rehearsal_words(results: Rehearsal) -> list[str]:
    """Return the findings on a rehearsal, one per line."""
    found = _finding(results)
    return [found.headline, *found.lines]


def rehearsal_records(results: Rehearsal) -> list[dict[str, Any]]:
    """Return the scores of new queries in every order, at every share of re-embedded items."""
    return [
        {"order": name, "share": share, **{metric: values[place] for metric, values in curve.values.items()}}
        for name, curve in results.curves.items()
        for place, share in enumerate(curve.shares)
    ]


def rehearsal_markdown(results: Rehearsal) -> str:
    """Return findings and tables in Markdown."""
    tables = {"Orders": order_rows(results), "Time by step": timing_rows(results)}
    tables |= {"Time of a query": latency_rows(results), "Rollback": rollback_rows(results)}
    if (two_stage := two_stage_rows(results)) is not None:
        tables["Two-stage search"] = two_stage
    tables |= {f"New thresholds after the {step}": threshold_rows(found) for step, found in results.thresholds.items()}
    title = f"A rehearsed upgrade on {results.sampled:,} of {results.items:,} items"
    return markdown_of(title, [_finding(results)], tables)
