"""The page of learners compared in sessions: report.html, one file that opens from disk and needs no script."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.continual.plan import Plan
from holdfast.embeddings.storage import write_atomically
from holdfast.errors import ConfigError
from holdfast.reports import heat_map, plan_picture, sessions_cost_plots, sessions_plots
from holdfast.reports import sessions_words as words
from holdfast.reports.formats import percent, score
from holdfast.reports.page import FILE_NAME
from holdfast.reports.sessions_results import Learner, best_first, checked_sessions, sessions_done, sessions_table
from holdfast.reports.tables import Table
from holdfast.reports.template import PHONE, Drawing, page_template

Document = Mapping[str, Any]

TEMPLATE = "sessions.html"
_COUNTS = {
    "gallery_rows": "gallery",
    "embedded_rows": "embedded",
    "replayed": "replayed",
    "trained_images": "images trained on",
    "encoded_images": "images only embedded",
}
_TIMES = {"training": "seconds of training", "rest": "seconds of the rest"}
_MAP_MEANS = (
    "rows: after which session",
    "columns: classes, by their session",
    "outlined: the session's own classes",
)

STYLE = sessions_plots.STYLE + sessions_cost_plots.STYLE + heat_map.STYLE + plan_picture.STYLE


def write_sessions_report(document: Document, plan: Plan, folder: str | Path) -> Path:
    """Write report.html into a folder, wholly or not at all, and return its path.

    Args:
        document: What `document_of`, `sessions_document` or `read_sessions` returned.
        plan: The plan that the learners went through, for its picture.
        folder: Where to write.

    Raises:
        ConfigError: Jinja2 is missing, the document is not complete, or it is of another plan.
        DataError: The file could not be written.
    """
    page = render_sessions_report(document, plan)
    return write_atomically(Path(folder) / FILE_NAME, lambda part: part.write_text(page, encoding="utf-8"))


def render_sessions_report(document: Document, plan: Plan) -> str:
    """Return the page as text; see `write_sessions_report`."""
    found = checked_sessions(dict(document), "These results of sessions")
    _check_plan(found, plan)
    standing, names = words.standing(found), best_first(found)
    learners = {name: found["learners"][name] for name in names}
    page: str = page_template(TEMPLATE).render(
        document=found,
        learners=learners,
        done=sessions_done(found),
        style=STYLE,
        headline=words.sessions_headline(standing),
        findings=words.sessions_findings(standing),
        terms=_terms(found),
        ranking=_ranking(found, standing),
        swatches={name: sessions_plots.swatch(look) for name, look in sessions_plots.looks(found).items()},
        charts=_charts(found, learners, plan),
        growths=sessions_cost_plots.growths(learners),
        kinds=sessions_cost_plots.KINDS,
        summary=sessions_table(found, typeset=True),
        by_session={name: session_rows(learner) for name, learner in learners.items()},
        by_age={name: age_rows(learner) for name, learner in learners.items()},
    )
    return page


def _check_plan(document: Document, plan: Plan) -> None:
    told, training = document["plan"], [len(rows) for rows in plan.training]
    if (told["name"], told["training"]) != (plan.name, training):
        raise ConfigError(
            f"The results are of the plan '{told['name']}' with {told['training']} training images, and '{plan.name}' "
            f"with {training} was given.",
            expected="the plan that the learners went through",
        )


def _terms(document: Document) -> dict[str, str]:
    """Return the terms that occur on the page."""
    sessions = (session for learner in document["learners"].values() for session in learner["sessions"])
    absent = {
        "exemplars": not any(session["replayed"] for session in sessions),
        "bounds": not any(document["bounds"].values()),
    }
    return {name: told for name, told in words.TERMS.items() if not absent.get(name)}


def _ranking(document: Document, standing: words.Standing) -> Table:
    """Return AR@K of every learner, and which share of the gap between the bounds it closes where there is one."""
    columns, rows = ["learner", *(f"AR@{k}" for k in document["ks"])], []
    for name in best_first(document):
        recall = document["learners"][name]["average_recall"]
        rows.append([name, *(score(recall[str(k)]) for k in document["ks"])])
        share = words.gap_closed(standing, name)
        if share is not None:
            rows[-1].append(percent(share).replace("-", "−"))
    return columns + ["gap closed"] * (len(rows[0]) > len(columns)), rows


def _charts(document: Document, learners: Mapping[str, Learner], plan: Plan) -> dict[str, Any]:
    limits = sessions_plots.recall_range(document)
    grown = sessions_cost_plots.growths(learners)
    most = max(max(growth.gallery) for growth in grown)
    return {
        "recall": _both(lambda width: sessions_plots.recall_lines(document, width=width), 640),
        "maps": {name: sessions_plots.recall_map(name, learner, limits) for name, learner in learners.items()},
        "map_key": _both(lambda width: heat_map.heat_key(limits, "recall@1", meanings=_MAP_MEANS, width=width), 640),
        "growth": [_both(partial(_growth, growth, most), 520) for growth in grown],
        "images": _both(lambda width: _images(learners, width), 520),
        "seconds": _both(lambda width: _seconds(learners, width), 520),
        "plan": _both(lambda width: plan_picture.plan_picture(f"The plan: {plan.name}", plan, width=width), 640),
    }


def _both(draw: Callable[[float], str], wide: float) -> Drawing:
    return Drawing(draw(wide), draw(PHONE))


def _growth(growth: sessions_cost_plots.Growth, most: int, width: float) -> str:
    return sessions_cost_plots.growth_plot(growth, most, width=width)


def _images(learners: Mapping[str, Learner], width: float) -> str:
    costs = {name: sessions_cost_plots.images_of(learner) for name, learner in learners.items()}
    kinds = ("through training steps", "only embedded")
    return sessions_cost_plots.cost_columns(
        "Images by session", costs, kinds, sessions_cost_plots.count_of, width=width
    )


def _seconds(learners: Mapping[str, Learner], width: float) -> str:
    costs = {name: sessions_cost_plots.seconds_by_session(learner) for name, learner in learners.items()}
    kinds = ("of training", "of everything else")
    return sessions_cost_plots.cost_columns("Time by session", costs, kinds, sessions_cost_plots.duration, width=width)


def session_rows(learner: Learner) -> Table:
    """Return columns and rows of all numbers of a learner, a row per session."""
    ks = list(learner["sessions"][0]["recall"])
    scores = [f"recall@{k}" for k in ks]
    columns = ["session", *scores, "queries", "validation recall@1", "epoch kept", *_COUNTS.values(), *_TIMES.values()]
    rows = []
    for number, session in enumerate(learner["sessions"], start=1):
        row = [str(number), *(score(session["recall"][k]) for k in ks), f"{session['queries']:,}"]
        row += [score(session["validation_recall"]), f"{session['best_epoch'] + 1} of {session['epochs']}"]
        row += [f"{session[name]:,}" for name in _COUNTS] + [f"{session['seconds'][part]:,.1f}" for part in _TIMES]
        rows.append(row)
    return columns, rows


def age_rows(learner: Learner) -> Table:
    """Return recall@1 after every session (rows) of the classes of every session (columns)."""
    found = sessions_plots.home_recalls(learner)
    columns = ["after session", *(f"classes of session {place + 1}" for place in range(len(found[0])))]
    return columns, [[str(number), *map(score, row)] for number, row in enumerate(found, start=1)]
