"""The page of adapters and heads compared: report.html, one file that opens from disk and needs no script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.adapters.compare import LearningCurve
from holdfast.adapters.results import AdaptResults, ScoreMapRecord
from holdfast.reports.adapt_tables import adapt_table, failures, thresholds
from holdfast.reports.charts.canvas import Chart
from holdfast.reports.charts.forest import KINDS, REFERENCES, candidate_dots, kind_swatch, with_interval
from holdfast.reports.charts.lines import learning_curve, score_map_plot
from holdfast.reports.formats import score
from holdfast.reports.markdown import Table, markdown_of
from holdfast.reports.template import Drawing, in_both_widths, page_template, write_page
from holdfast.reports.words import Finding



def write_adapt_report(results: AdaptResults, folder: str | Path) -> Path:
    """Write report.html into a folder, wholly or not at all, and return its path.

    Args:
        results: What was measured.
        folder: Where to write.

    Raises:
        ConfigError: Jinja2 is missing.
        DataError: The file could not be written.
    """
    return write_page(render_adapt_report(results), folder)


def render_adapt_report(results: AdaptResults) -> str:
    """Return the page as text; see `write_adapt_report`."""
    curve, advised = results.learning_curve, results.recommended
    page: str = page_template("adapt.html").render(
        document=results,
        headline=adapt_headline(results),
        steps=_steps(results),
        agreement=None if results.data.labelled else AGREEMENT_NOTE,
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
        (score(systems.self_new.mean), "re-embedded", False),
    ]


def _charts(results: AdaptResults) -> dict[str, Drawing]:
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


def to_markdown(results: AdaptResults) -> str:
    """Return what is said of adapters and heads and their tables in Markdown."""
    curve, score_map = results.learning_curve, results.score_map
    agreement = [] if results.data.labelled else [AGREEMENT_NOTE]
    told = [*results.recommendation.sentences, *results.data.sentences, *agreement, curve_finding(results)]
    finding = Finding(adapt_headline(results), tuple(filter(None, told)))
    tables = {"Candidates": adapt_table(results)}
    if curve:
        tables[f"{curve.candidate}, by the number of pairs"] = curve_rows(curve)
    if score_map:
        tables["Thresholds"] = threshold_rows(score_map)
    return markdown_of(results.title, [finding], tables, [*failures(results), *protocol_words(results)])
