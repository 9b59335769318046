"""The page of learners compared in sessions: report.html, one file that opens from disk and needs no script."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.continual.plans import Plan
from holdfast.continual.results import LearnerResults, SessionsResults
from holdfast.embeddings.storage import write_atomically
from holdfast.errors import ConfigError
from holdfast.reports import heat_map, plan_picture, sessions_plots
from holdfast.reports import sessions_words as words
from holdfast.reports.charts.bars import (
    KINDS,
    Growth,
    cost_columns,
    growth_plot,
    growths,
    images_of,
    layer_swatch,
    seconds_by_session,
)
from holdfast.reports.charts.canvas import Chart
from holdfast.reports.charts.lines import learner_swatch, looks, recall_lines
from holdfast.reports.formats import percent, score
from holdfast.reports.markdown import Table, markdown_of
from holdfast.reports.page import FILE_NAME
from holdfast.reports.sessions_tables import sessions_table
from holdfast.reports.template import PHONE, Drawing, page_template
from holdfast.reports.words import Finding

TEMPLATE = "sessions.html"
_COUNTS = ("gallery", "embedded", "replayed", "images trained on", "images only embedded")
_TIMES = ("seconds of training", "seconds of the rest")
_MAP_MEANS = (
    "rows: after which session",
    "columns: classes, by their session",
    "outlined: the session's own classes",
)

STYLE = heat_map.STYLE + plan_picture.STYLE


def write_sessions_report(results: SessionsResults, plan: Plan, folder: str | Path) -> Path:
    """Write report.html into a folder, wholly or not at all, and return its path.

    Args:
        results: What was measured.
        plan: The plan that the learners went through, for its picture.
        folder: Where to write.

    Raises:
        ConfigError: Jinja2 is missing, or the results are of another plan.
        DataError: The file could not be written.
    """
    page = render_sessions_report(results, plan)
    return write_atomically(Path(folder) / FILE_NAME, lambda part: part.write_text(page, encoding="utf-8"))


def render_sessions_report(results: SessionsResults, plan: Plan) -> str:
    """Return the page as text; see `write_sessions_report`."""
    _check_plan(results, plan)
    standing, learners = words.standing(results), results.best_first()
    page: str = page_template(TEMPLATE).render(
        document=results,
        learners=learners,
        style=STYLE,
        headline=words.sessions_headline(standing),
        findings=words.sessions_findings(standing),
        terms=_terms(results),
        ranking=_ranking(results, standing),
        swatches={name: learner_swatch(look) for name, look in looks(results).items()},
        charts=_charts(results, learners, plan),
        growths=growths(learners),
        kinds=KINDS,
        layer_swatch=layer_swatch,
        summary=sessions_table(results, typeset=True),
        by_session={name: session_rows(learner) for name, learner in learners.items()},
        by_age={name: age_rows(learner) for name, learner in learners.items()},
    )
    return page


def _check_plan(results: SessionsResults, plan: Plan) -> None:
    told, training = results.plan, [len(rows) for rows in plan.training]
    if (told.name, told.training) != (plan.name, training):
        raise ConfigError(
            f"The results are of the plan '{told.name}' with {told.training} training images, and '{plan.name}' with "
            f"{training} was given.",
            expected="the plan that the learners went through",
        )


def _terms(results: SessionsResults) -> dict[str, str]:
    """Return the terms that occur on the page."""
    sessions = (session for learner in results.learners.values() for session in learner.sessions)
    absent = {
        "exemplars": not any(session.replayed for session in sessions),
        "bounds": not results.bounds.by_name(),
    }
    return {name: told for name, told in words.TERMS.items() if not absent.get(name)}


def _ranking(results: SessionsResults, standing: words.Standing) -> Table:
    """Return AR@K of every learner, and which share of the gap between the bounds it closes where there is one."""
    columns, rows = ["learner", *(f"AR@{k}" for k in results.ks)], []
    for name, learner in results.best_first().items():
        rows.append([name, *(score(learner.average_recall[str(k)]) for k in results.ks)])
        share = words.gap_closed(standing, name)
        if share is not None:
            rows[-1].append(percent(share).replace("-", "−"))
    return columns + ["gap closed"] * (len(rows[0]) > len(columns)), rows


def _charts(results: SessionsResults, learners: Mapping[str, LearnerResults], plan: Plan) -> dict[str, Any]:
    limits = sessions_plots.recall_range(results)
    grown = growths(learners)
    most = max(max(growth.gallery) for growth in grown)
    return {
        "recall": _both(lambda width: recall_lines(results, width=width), 640),
        "maps": {name: sessions_plots.recall_map(name, learner, limits) for name, learner in learners.items()},
        "map_key": _both(lambda width: heat_map.heat_key(limits, "recall@1", meanings=_MAP_MEANS, width=width), 640),
        "growth": [_both(partial(_growth, growth, most), 520) for growth in grown],
        "images": _both(lambda width: _images(learners, width), 520),
        "seconds": _both(lambda width: _seconds(learners, width), 520),
        "plan": _both(lambda width: plan_picture.plan_picture(f"The plan: {plan.name}", plan, width=width), 640),
    }


def _both(draw: Callable[[float], Chart | str], wide: float) -> Drawing:
    return Drawing(draw(wide), draw(PHONE))


def _growth(growth: Growth, most: int, width: float) -> Chart:
    return growth_plot(growth, most, width=width)


def _images(learners: Mapping[str, LearnerResults], width: float) -> Chart:
    costs = {name: images_of(learner) for name, learner in learners.items()}
    kinds = ("through training steps", "only embedded")
    return cost_columns("Images by session", costs, kinds, words.count_of, width=width)


def _seconds(learners: Mapping[str, LearnerResults], width: float) -> Chart:
    costs = {name: seconds_by_session(learner) for name, learner in learners.items()}
    kinds = ("of training", "of everything else")
    return cost_columns("Time by session", costs, kinds, words.duration, width=width)


def session_rows(learner: LearnerResults) -> Table:
    """Return columns and rows of all numbers of a learner, a row per session."""
    ks = list(learner.sessions[0].recall)
    scores = [f"recall@{k}" for k in ks]
    columns = ["session", *scores, "queries", "validation recall@1", "epoch kept", *_COUNTS, *_TIMES]
    rows = []
    for number, session in enumerate(learner.sessions, start=1):
        row = [str(number), *(score(session.recall[k]) for k in ks), f"{session.queries:,}"]
        row += [score(session.validation_recall), f"{session.best_epoch + 1} of {session.epochs}"]
        counts = [session.gallery_rows, session.embedded_rows, session.replayed]
        row += [f"{count:,}" for count in (*counts, session.trained_images, session.encoded_images)]
        row += [f"{seconds:,.1f}" for seconds in (session.seconds.training, session.seconds.rest)]
        rows.append(row)
    return columns, rows


def age_rows(learner: LearnerResults) -> Table:
    """Return recall@1 after every session (rows) of the classes of every session (columns)."""
    found = learner.recall_by_age
    columns = ["after session", *(f"classes of session {place + 1}" for place in range(len(found[0])))]
    return columns, [[str(number), *map(score, row)] for number, row in enumerate(found, start=1)]


def to_markdown(results: SessionsResults) -> str:
    """Return what is said of learners compared in sessions and their tables in Markdown."""
    standing = words.standing(results)
    tables = {"Learners": sessions_table(results)}
    for name, learner in results.best_first().items():
        tables[f"{name}, session by session"] = session_rows(learner)
        tables[f"{name}, recall@1 by the age of classes"] = age_rows(learner)
    findings = [Finding(words.sessions_headline(standing), ()), *words.sessions_findings(standing)]
    return markdown_of(results.title, findings, tables)
