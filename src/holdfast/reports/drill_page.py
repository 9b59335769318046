"""The page of a rehearsed upgrade: drill.html, one file that opens from disk and needs no script."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.embeddings.storage import write_atomically
from holdfast.errors import ConfigError
from holdfast.reports import drill_plots
from holdfast.reports import drill_words as words
from holdfast.reports.formats import score
from holdfast.reports.results import versions
from holdfast.reports.tables import Table
from holdfast.reports.template import PHONE, Drawing, page_template

Document = Mapping[str, Any]

TEMPLATE = "drill.html"  # and the name of the page
TITLE = "Rehearsal of an upgrade"

_SHOWN = ("0 ", "50 ", "100 ")  # shares whose searches are in the table of times

_KEYS = (
    "gallery", "items", "sampled", "missing", "old", "new", "linked", "steps", "metric", "queries", "asked", "judged",
    "before", "after_rollback", "rollback_equal", "curves", "left_out", "first_hits", "examples", "timings",
    "searches", "verdict", "seed",
)  # fmt: skip


def drill_document(found: Mapping[str, Any], title: str = TITLE) -> dict[str, Any]:
    """Return what a drill measured with a title and the versions that measured it.

    Args:
        found: What `Drill.to_dict` returned.
        title: Of the page.
    """
    return {**found, "title": title, **versions()}


def write_drill_report(document: Document, folder: str | Path) -> Path:
    """Write drill.html into a folder, wholly or not at all, and return its path.

    Args:
        document: What `Drill.to_dict` or `drill_document` returned.
        folder: Where to write.

    Raises:
        ConfigError: Jinja2 is missing, or the document is not that of a drill.
        DataError: The file could not be written.
    """
    page = render_drill_report(document)
    return write_atomically(Path(folder) / TEMPLATE, lambda part: part.write_text(page, encoding="utf-8"))


def _curves(document: Document) -> dict[str, Any]:
    """Return the curves; those of earlier versions know differences of the main metric alone."""
    return {
        name: curve | {"differences": {document["metric"]: curve["differences"]}}
        if isinstance(curve["differences"], list)
        else curve
        for name, curve in document["curves"].items()
    }


def render_drill_report(document: Document) -> str:
    """Return the page as text; see `write_drill_report`."""
    _check(document)
    document = {"title": TITLE, **versions(), **document, "curves": _curves(document)}
    labelled = document["judged"] > 0
    shown = ("map", "recall@1") if labelled else ("overlap@10 with new", "overlap@10 with old")
    page: str = page_template(TEMPLATE, values={"duration": words.duration, "percent_of": words.percent_of}).render(
        document=document,
        style=drill_plots.STYLE,
        tone=words.TONES[document["verdict"]],
        headline=words.drill_headline(document),
        sentences=words.findings(document),
        next_step=words.next_step(document),
        numbers_now=_numbers(document),
        labelled=labelled,
        metrics={metric: words.METRICS[metric] for metric in shown},
        short=words.short_metric,
        orders={name: words.ORDERS.get(name, name) for name in document["curves"]},
        order_swatch=drill_plots.order_swatch,
        change_swatch=drill_plots.change_swatch,
        changes=_changes(document),
        charts=_charts(document, shown),
        order_finding=words.order_finding(document),
        first_hit_findings=words.first_hit_findings(document),
        order_rows=order_rows(document),
        time_finding=words.time_finding(document),
        timing_rows=timing_rows(document),
        latency_rows=latency_rows(document),
        rollback_finding=words.rollback_finding(document),
        rollback_rows=rollback_rows(document),
        stage=drill_plots.stage,
        protocol_words=words.protocol_words(document),
        link=words.LINKS[document["linked"]],
    )
    return page


def _check(document: Document) -> None:
    lacking = [key for key in _KEYS if key not in document]
    if document.get("kind") != "drill" or lacking:
        raise ConfigError(
            f"No results of a drill: kind {document.get('kind', 'not said')}, without {', '.join(lacking) or '–'}.",
            expected="what `Drill.to_dict` returns",
            to_do="run “holdfast gallery drill” again.",
        )


def _numbers(document: Document) -> list[tuple[str, str, bool]]:
    """Return the main metric today, after the swap and at the end: number, name, and whether it is in question."""
    metric = document["metric"]
    values = words.curve_of(document)["values"][metric]
    swapped = [] if document["linked"] == "none" else [(score(values[0]), "after the swap", True)]
    today = [] if metric.startswith("overlap") else [(score(document["before"][metric]), "today", False)]
    return [*today, *swapped, (score(values[-1]), "all re-embedded", not swapped)]


def _changes(document: Document) -> dict[str, str]:
    """Return the kinds of changes that occur, in words."""
    occurring = {kind for found in document["first_hits"] for kind in drill_plots.changes_of(document, found)}
    other = "another first hit, as right or wrong as before" if document["judged"] else "another first hit"
    return {kind: other if kind == "other" else told for kind, told in drill_plots.CHANGES.items() if kind in occurring}


def _charts(document: Document, metrics: tuple[str, ...]) -> dict[str, Drawing]:
    charts = {
        metric: _both(lambda width, metric=metric: drill_plots.drill_curves(document, metric, width=width), 520)
        for metric in metrics
    }
    return charts | {"first": _both(lambda width: drill_plots.first_hit_bars(document, width=width), 640)}


def _both(draw: Callable[..., str], wide: float) -> Drawing:
    return Drawing(draw(wide), draw(PHONE))


def order_rows(document: Document) -> Table:
    """Return columns and rows of the orders, the best first: on average, and at every share."""
    metric, curves = document["metric"], document["curves"]
    shares = words.curve_of(document)["shares"]
    columns = [f"{words.short_metric(metric)}, re-embedded", "on average", *map(words.percent_of, shares)]
    ranked = sorted(curves, key=lambda name: -curves[name]["area"][metric])
    return columns, [
        [name, score(curves[name]["area"][metric]), *map(score, curves[name]["values"][metric])] for name in ranked
    ]


def timing_rows(document: Document) -> Table:
    """Return columns and rows of the steps: on the copy, and as they would be with all items."""
    rows = [
        [
            words.STEPS.get(one["step"], one["step"]),
            words.duration(one["seconds"]),
            words.duration(one["full_seconds"]) if one["items"] else "the same",
        ]
        for one in document["timings"]
    ]
    return ["step", f"{document['sampled']:,} items", f"{document['items']:,} items"], rows


def latency_rows(document: Document) -> Table:
    """Return columns and rows of the time of a query at every stage, on the copy."""
    found = document["searches"]["milliseconds"]
    between = [point for point in found if point.endswith("re-embedded") and not point.startswith(_SHOWN)]
    rows = [[point, words.duration(taken / 1000)] for point, taken in found.items() if point not in between]
    return ["a query on the copy", "median"], rows


def rollback_rows(document: Document) -> Table:
    """Return columns and rows of what old queries find before the swap and after the rollback."""
    metrics = [name for name in document["before"] if not name.startswith("overlap")] or ["overlap@10 with old"]
    rows = [
        [words.short_metric(name), f"{document['before'][name]:.6f}", f"{document['after_rollback'][name]:.6f}"]
        for name in metrics
    ]
    return ["old queries", "before the swap", "after the rollback"], rows
