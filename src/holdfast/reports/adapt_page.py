"""The page of adapters and heads compared: report.html, one file that opens from disk and needs no script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.adapters.compare import LearningCurve
from holdfast.adapters.results import AdaptResults, ScoreMapRecord
from holdfast.embeddings.storage import write_atomically
from holdfast.reports import adapt_words as words
from holdfast.reports.adapt_tables import adapt_table, failures, thresholds
from holdfast.reports.charts.canvas import Chart
from holdfast.reports.charts.forest import KINDS, REFERENCES, candidate_dots, kind_swatch, with_interval
from holdfast.reports.charts.lines import learning_curve, score_map_plot
from holdfast.reports.formats import score
from holdfast.reports.markdown import Table, markdown_of
from holdfast.reports.page import FILE_NAME
from holdfast.reports.template import PHONE, Drawing, page_template
from holdfast.reports.words import Finding

TEMPLATE = "adapt.html"


def write_adapt_report(results: AdaptResults, folder: str | Path) -> Path:
    """Write report.html into a folder, wholly or not at all, and return its path.

    Args:
        results: What was measured.
        folder: Where to write.

    Raises:
        ConfigError: Jinja2 is missing.
        DataError: The file could not be written.
    """
    page = render_adapt_report(results)
    return write_atomically(Path(folder) / FILE_NAME, lambda part: part.write_text(page, encoding="utf-8"))


def render_adapt_report(results: AdaptResults) -> str:
    """Return the page as text; see `write_adapt_report`."""
    curve, advised = results.learning_curve, results.recommended
    page: str = page_template(TEMPLATE).render(
        document=results,
        headline=words.adapt_headline(results),
        steps=_steps(results),
        agreement=None if results.data.labelled else words.AGREEMENT_NOTE,
        terms=words.adapt_terms(results),
        reading=words.READING[results.protocol.metric],
        references=REFERENCES,
        kinds=[kind for kind in KINDS if kind in {one.kind for one in results.candidates}],
        swatch=kind_swatch,
        charts=_charts(results),
        summary=adapt_table(results, typeset=True),
        candidates={one.name: one for one in results.by_score()},
        recommended=advised and advised.name,
        curve_finding=words.curve_finding(results),
        curve_rows=curve_rows(curve) if curve else None,
        threshold_rows=threshold_rows(results.score_map) if results.score_map else None,
        protocol_words=words.protocol_words(results),
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
    charts = {"dots": _both(lambda width: candidate_dots(results, width=width))}
    curve, score_map = results.learning_curve, results.score_map
    if curve is not None and curve.points:
        charts["curve"] = _both(lambda width: learning_curve(results, curve, width=width))
    if score_map is not None:
        charts["map"] = _both(lambda width: score_map_plot(score_map, width=width))
    return charts


def _both(draw: Callable[[float], Chart]) -> Drawing:
    return Drawing(draw(640), draw(PHONE))


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
    agreement = [] if results.data.labelled else [words.AGREEMENT_NOTE]
    told = [*results.recommendation.sentences, *results.data.sentences, *agreement, words.curve_finding(results)]
    finding = Finding(words.adapt_headline(results), tuple(filter(None, told)))
    tables = {"Candidates": adapt_table(results)}
    if curve:
        tables[f"{curve.candidate}, by the number of pairs"] = curve_rows(curve)
    if score_map:
        tables["Thresholds"] = threshold_rows(score_map)
    return markdown_of(results.title, [finding], tables, [*failures(results), *words.protocol_words(results)])
