"""The page of adapters and heads compared: report.html, one file that opens from disk and needs no script."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.embeddings.storage import write_atomically
from holdfast.reports import adapt_curve_plots, adapt_plots
from holdfast.reports import adapt_words as words
from holdfast.reports.adapt_results import adapt_table, by_score, checked_adapt, recommended, thresholds
from holdfast.reports.formats import score
from holdfast.reports.page import FILE_NAME
from holdfast.reports.tables import Table
from holdfast.reports.template import PHONE, Drawing, page_template

Document = Mapping[str, Any]

TEMPLATE = "adapt.html"


def write_adapt_report(document: Document, folder: str | Path) -> Path:
    """Write report.html into a folder, wholly or not at all, and return its path.

    Args:
        document: What `adapt_document` or `read_adapt` returned.
        folder: Where to write.

    Raises:
        ConfigError: Jinja2 is missing, or the document is not complete.
        DataError: The file could not be written.
    """
    page = render_adapt_report(document)
    return write_atomically(Path(folder) / FILE_NAME, lambda part: part.write_text(page, encoding="utf-8"))


def render_adapt_report(document: Document) -> str:
    """Return the page as text; see `write_adapt_report`."""
    found = checked_adapt(dict(document))
    curve = found["learning_curve"]
    page: str = page_template(TEMPLATE).render(
        document=found,
        style=adapt_plots.STYLE,
        headline=words.adapt_headline(found),
        steps=_steps(found),
        agreement=None if found["data"]["labelled"] else words.AGREEMENT_NOTE,
        terms=words.adapt_terms(found),
        reading=words.READING[found["protocol"]["metric"]],
        references=adapt_plots.REFERENCES,
        kinds=[kind for kind in adapt_plots.SHAPES if kind in {one["kind"] for one in found["candidates"]}],
        swatch=adapt_plots.kind_swatch,
        charts=_charts(found),
        summary=adapt_table(found, typeset=True),
        candidates={one["name"]: one for one in by_score(found)},
        recommended=recommended(found),
        curve_finding=words.curve_finding(found) if curve else "",
        curve_rows=curve_rows(curve) if curve else None,
        threshold_rows=threshold_rows(found["score_map"]) if found["score_map"] else None,
        protocol_words=words.protocol_words(found),
    )
    return page


def _steps(document: Document) -> list[tuple[str, str, bool]]:
    """Return the scores today, with the candidate recommended or else the best, and after re-embedding.

    Returns:
        A number, its name, and whether it is what the recommendation is about.
    """
    systems, advised = document["systems"], recommended(document)
    name = advised or document["best"]
    between = [(score(one["cross"]["mean"]), one["name"], True) for one in by_score(document) if one["name"] == name]
    return [
        (score(systems["self_old"]["mean"]), "today", False),
        *((number, f"with {name}", advised is not None) for number, name, _ in between),
        (score(systems["self_new"]["mean"]), "re-embedded", False),
    ]


def _charts(document: Document) -> dict[str, Drawing]:
    charts = {"dots": _both(lambda width: adapt_plots.candidate_dots(document, width=width))}
    if document["learning_curve"] and document["learning_curve"]["points"]:
        charts["curve"] = _both(lambda width: adapt_curve_plots.learning_curve(document, width=width))
    if document["score_map"]:
        charts["map"] = _both(lambda width: adapt_curve_plots.score_map_plot(document["score_map"], width=width))
    return charts


def _both(draw: Callable[[float], str]) -> Drawing:
    return Drawing(draw(640), draw(PHONE))


def curve_rows(curve: Mapping[str, Any]) -> Table:
    """Return columns and rows of a learning curve, one row per number of pairs."""
    rows = [[f"{point['pairs']:,}", adapt_plots.written(point["cross"])] for point in curve["points"]]
    return ["pairs", "cross"], rows


def threshold_rows(score_map: Mapping[str, Any]) -> Table:
    """Return columns and rows of round old scores and the new ones that stand for them."""
    return ["old score", "new score"], [
        [f"{old:g}".replace("-", "−"), score(new)] for old, new in thresholds(score_map)
    ]
