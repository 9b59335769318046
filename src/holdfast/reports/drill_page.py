"""The page of a rehearsed upgrade: rehearsal.html, one file that opens from disk and needs no script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.embeddings.storage import write_atomically
from holdfast.galleries.rehearsal import Rehearsal
from holdfast.reports import drill_words as words
from holdfast.reports.charts.bars import CHANGES, change_swatch, changes_of, first_hit_bars, stage
from holdfast.reports.charts.canvas import Chart
from holdfast.reports.charts.lines import drill_curves, order_swatch
from holdfast.reports.formats import score
from holdfast.reports.markdown import Table, markdown_of
from holdfast.reports.template import PHONE, Drawing, page_template
from holdfast.reports.words import Finding
from holdfast.wording import metric_name

TEMPLATE = "drill.html"
PAGE = "rehearsal.html"

_SHOWN = ("0 ", "50 ", "100 ")  # shares whose searches are in the table of times


def write_drill_report(results: Rehearsal, folder: str | Path) -> Path:
    """Write rehearsal.html into a folder, wholly or not at all, and return its path.

    Args:
        results: What a rehearsal measured.
        folder: Where to write.

    Raises:
        ConfigError: Jinja2 is missing.
        DataError: The file could not be written.
    """
    page = render_drill_report(results)
    return write_atomically(Path(folder) / PAGE, lambda part: part.write_text(page, encoding="utf-8"))


def render_drill_report(results: Rehearsal) -> str:
    """Return the page as text; see `write_drill_report`."""
    shown = ("map", "recall@1") if results.labelled else ("overlap@10 with new", "overlap@10 with old")
    page: str = page_template(TEMPLATE, values={"duration": words.duration, "percent_of": words.percent_of}).render(
        document=results,
        tone=words.TONES[results.verdict],
        headline=words.drill_headline(results),
        sentences=words.findings(results),
        next_step=words.next_step(results),
        numbers_now=_numbers(results),
        metrics={metric: words.METRICS[metric] for metric in shown},
        short=metric_name,
        orders={name: words.ORDERS.get(name, name) for name in results.curves},
        order_swatch=order_swatch,
        change_swatch=change_swatch,
        changes=_changes(results),
        charts=_charts(results, shown),
        order_finding=words.order_finding(results),
        first_hit_findings=words.first_hit_findings(results),
        order_rows=order_rows(results),
        time_finding=words.time_finding(results),
        timing_rows=timing_rows(results),
        latency_rows=latency_rows(results),
        rollback_finding=words.rollback_finding(results),
        rollback_rows=rollback_rows(results),
        stage=stage,
        protocol_words=words.protocol_words(results),
        link=words.LINKS[results.linked],
    )
    return page


def _numbers(results: Rehearsal) -> list[tuple[str, str, bool]]:
    """Return the main metric today, after the swap and at the end: number, name, and whether it is in question."""
    metric = results.metric
    values = results.curve.values[metric]
    swapped = [(score(values[0]), "after the swap", True)] if results.swaps_first else []
    today = [] if metric.startswith("overlap") else [(score(results.before[metric]), "today", False)]
    return [*today, *swapped, (score(values[-1]), "all re-embedded", not swapped)]


def _changes(results: Rehearsal) -> dict[str, str]:
    """Return the kinds of changes that occur, in words."""
    judged = results.judged / results.asked
    occurring = {kind for found in results.first_hits for kind in changes_of(found, judged)}
    other = "another first hit, as right or wrong as before" if results.labelled else "another first hit"
    return {kind: other if kind == "other" else told for kind, told in CHANGES.items() if kind in occurring}


def _charts(results: Rehearsal, metrics: tuple[str, ...]) -> dict[str, Drawing]:
    charts = {
        metric: _both(lambda width, metric=metric: drill_curves(results, metric, width=width), 520)
        for metric in metrics
    }
    return charts | {"first": _both(lambda width: first_hit_bars(results, width=width), 640)}


def _both(draw: Callable[..., Chart], wide: float) -> Drawing:
    return Drawing(draw(wide), draw(PHONE))


def order_rows(results: Rehearsal) -> Table:
    """Return columns and rows of the orders, the best first: on average, and at every share."""
    metric, curves = results.metric, results.curves
    shares = map(words.percent_of, results.curve.shares)
    columns = [f"{metric_name(metric)}, re-embedded", "on average", *shares]
    ranked = sorted(curves.items(), key=lambda item: -item[1].area[metric])
    return columns, [[name, score(curve.area[metric]), *map(score, curve.values[metric])] for name, curve in ranked]


def timing_rows(results: Rehearsal) -> Table:
    """Return columns and rows of the steps: on the copy, and as they would be with all items."""
    rows = [
        [
            words.STEPS.get(one.step, one.step),
            words.duration(one.seconds),
            words.duration(one.full_seconds) if one.items else "the same",
        ]
        for one in results.timings
    ]
    return ["step", f"{results.sampled:,} items", f"{results.items:,} items"], rows


def latency_rows(results: Rehearsal) -> Table:
    """Return columns and rows of the time of a query at every stage, on the copy."""
    found = results.searches.milliseconds
    between = [point for point in found if point.endswith("re-embedded") and not point.startswith(_SHOWN)]
    rows = [[point, words.duration(taken / 1000)] for point, taken in found.items() if point not in between]
    return ["a query on the copy", "median"], rows


def rollback_rows(results: Rehearsal) -> Table:
    """Return columns and rows of what old queries find before the swap and after the rollback."""
    metrics = [name for name in results.before if not name.startswith("overlap")] or ["overlap@10 with old"]
    rows = [
        [metric_name(name), f"{results.before[name]:.6f}", f"{results.after_rollback[name]:.6f}"] for name in metrics
    ]
    return ["old queries", "before the swap", "after the rollback"], rows


def to_markdown(results: Rehearsal) -> str:
    """Return what is said of a rehearsal and its tables in Markdown."""
    told = [*words.findings(results), words.order_finding(results), *words.first_hit_findings(results)]
    told += [words.time_finding(results), words.rollback_finding(results)]
    finding = Finding(words.drill_headline(results), tuple(told), (words.next_step(results),))
    tables = {"Orders": order_rows(results), "Time by step": timing_rows(results)}
    tables |= {"Time of a query": latency_rows(results), "Rollback": rollback_rows(results)}
    title = f"A rehearsed upgrade on {results.sampled:,} of {results.items:,} items"
    return markdown_of(title, [finding], tables, words.protocol_words(results))
