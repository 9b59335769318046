"""The page of a bench: leaderboard.html, one file that opens from disk and needs no script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.embeddings.storage import write_atomically
from holdfast.reports import leaderboard_plots, leaderboard_rank_plot
from holdfast.reports import leaderboard_words as words
from holdfast.reports.formats import MISSING, score, signed
from holdfast.reports.leaderboard_over_sets import over_sets, over_sets_headings, over_sets_notes
from holdfast.reports.leaderboard_results import (
    cell_name,
    checked_leaderboard,
    data_name,
    failures,
    in_order,
    measure_name,
    metric_names,
    scale_name,
    trained_elsewhere,
    training_words,
)
from holdfast.reports.leaderboard_speed import SPEEDS, known_speeds, speed_written
from holdfast.reports.leaderboard_tables import BEST, SECOND, by_cell, footnotes, summary
from holdfast.reports.tables import Table
from holdfast.reports.template import PHONE, Drawing, page_template, plain

FILE_NAME = "leaderboard.html"

Document = Mapping[str, Any]

STYLE = leaderboard_plots.STYLE + leaderboard_rank_plot.STYLE
_STANDING = {BEST: "best", SECOND: "second", 0: ""}
_P = ("p_up", "p_comp", "p_score")


def write_leaderboard_page(document: Document, folder: str | Path) -> Path:
    """Write leaderboard.html into a folder, wholly or not at all, and return its path.

    Args:
        document: What `leaderboard_document` or `read_leaderboard` returned.
        folder: Where to write.

    Raises:
        ConfigError: Jinja2 is missing, or the document is not complete.
        DataError: The file could not be written.
    """
    page = render_leaderboard(document)
    return write_atomically(Path(folder) / FILE_NAME, lambda part: part.write_text(page, encoding="utf-8"))


def render_leaderboard(document: Document) -> str:
    """Return the page as text; see `write_leaderboard_page`."""
    found = checked_leaderboard(dict(document))
    board, over = found["board"], over_sets(found)
    page: str = page_template(FILE_NAME, values={"standing": _STANDING}).render(
        document={"holdfast": None, "versions": None, **found, "title": found["suite"]["title"]},
        style=STYLE,
        headline=words.headline(found),
        sentences=words.sentences(found),
        steps=words.steps(found),
        terms=words.terms(found),
        scale=scale_name(found),
        metrics=metric_names(found),
        counts=_counts(found),
        summary=summary(found),
        by_cell=by_cell(found),
        footnotes=footnotes(found),
        over_sets=over,
        over_sets_headings=over_sets_headings(over),
        over_sets_notes=over_sets_notes(over),
        charts=_charts(found),
        failures=[{**row, "data": data_name(row)} for row in failures(found)],
        key=list(points) if leaderboard_plots.numbered(points := leaderboard_plots.pareto_points(found)) else [],
        labels=in_order(board),
        options=_options(found),
        trials=record_rows(found["tuning"]),
        published=record_rows(found["suite"].get("published") or []),
        runs=run_rows(found),
        rules=[rule for rule in (words.rank_rule(found), words.chance_rule(found)) if rule],
        duration=words.duration(found["wall_seconds"]),
    )
    return page


def _counts(document: Document) -> dict[str, Any]:
    board = document["board"]
    return {
        "labels": len(board["labels"]),
        "cells": len(board["cells"]),
        "data": _data_sets(document),
        "scenarios": list(dict.fromkeys(cell["scenario"] for cell in board["cells"])),
        "seeds": sorted({seed for cell in board["cells"] for seed in cell["seeds"]}),
        "runs": len(document["rows"]),
    }


def _data_sets(document: Document) -> list[str]:
    """Write the names of the data; last and together those whose models were trained on the same other data."""
    found: dict[str, list[str]] = {"": []}
    for data in dict.fromkeys(cell["data"] for cell in document["board"]["cells"]):
        training = training_words(data, (row for row in document["rows"] if row["data"] == data))
        found.setdefault(training, []).append(data)
    own = ", ".join(found.pop(""))
    return [*[own] * bool(own), *(f"{words.listed(names)} {training}" for training, names in found.items())]


def _charts(document: Document) -> dict[str, Any]:
    charts: dict[str, Any] = {
        "cells": {
            cell_name(cell, document): leaderboard_plots.cell_dots(document, cell)
            for cell in document["board"]["cells"]
        }
    }
    if document["board"]["nemenyi"] is not None:
        charts["ranks"] = _both(lambda width: leaderboard_rank_plot.rank_diagram(document, width=width), 900)
    if document["board"]["front"] is not None:
        charts["pareto"] = _both(lambda width: leaderboard_plots.pareto_plot(document, width=width), 640)
    return charts


def _both(draw: Callable[[float], str | None], wide: float) -> Drawing:
    return Drawing(draw(wide) or "", draw(PHONE) or "")


def _options(document: Document) -> dict[str, list[str]]:
    """Return the options of every label and what else it sets, each way they were set once."""
    found: dict[str, list[str]] = {}
    for row in document["rows"]:
        written = _settings(row)
        if written not in found.setdefault(row["label"], []):
            found[row["label"]].append(written)
    return found


def _settings(row: Mapping[str, Any]) -> str:
    return plain({**(row.get("options") or {}), **(row.get("settings") or {})})


def record_rows(records: Sequence[Mapping[str, Any]]) -> Table:
    """Return columns and rows of records whose names the bench chose, such as trials, a column per name."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    rows = [[_written(record.get(name), name) for name in columns] for record in records]
    return [measure_name(name) for name in columns], rows


def run_rows(document: Document) -> Table:
    """Return columns and rows of all runs; with their options where a label was not set alike everywhere."""
    board, rows = document["board"], document["rows"]
    names = board["measures"]
    several = any(len(ways) > 1 for ways in _options(document).values())
    elsewhere = any(trained_elsewhere(row["data"], [row]) for row in rows)
    speeds = known_speeds(document)
    columns = ["method", "data", *["trained on"] * elsewhere, "scenario", "seed", *map(measure_name, names), "verdict"]
    columns += ["seconds", *(SPEEDS[key] for key in speeds), *["options"] * several]
    found = []
    for row in rows:
        scores = {**(row["scores"] or {}), **{name: row.get(name) for name in _P}}
        written = [_written(scores.get(name), name) for name in names]
        seconds = MISSING if row.get("seconds") is None else f"{row['seconds']:,.1f}"
        verdict = "failed" if row.get("failure") else row.get("verdict") or MISSING
        line = [row["label"], row["data"], *[row.get("trained_on") or MISSING] * elsewhere, row["scenario"]]
        line += [str(row["seed"]), *written, verdict, seconds, *(speed_written(key, row.get(key)) for key in speeds)]
        found.append([*line, *[_settings(row)] * several])
    return columns, found


def _written(value: Any, name: str) -> str:
    if isinstance(value, float):
        return (signed if name in ("p_up", "p_comp") else score)(value)
    return plain(value)
