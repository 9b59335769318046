"""The page of a bench: leaderboard.html, one file that opens from disk and needs no script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.bench.leaderboard import Leaderboard, Run
from holdfast.reports import leaderboard_plots, leaderboard_rank_plot
from holdfast.reports.leaderboard import listed_labels, headline, sentences, steps, terms, rank_rule, chance_rule, duration
from holdfast.reports.charts.forest import cell_dots
from holdfast.reports.formats import MISSING, score, signed
from holdfast.reports.leaderboard_names import (
    cell_name,
    data_name,
    measure_name,
    metric_names,
    scale_name,
    training_words,
)
from holdfast.reports.leaderboard_over_sets import over_sets, over_sets_headings, over_sets_notes
from holdfast.reports.leaderboard_speed import SPEEDS, known_speeds, speed_written
from holdfast.reports.leaderboard_tables import BEST, SECOND, by_cell, footnotes, summary
from holdfast.reports.tables import Table
from holdfast.reports.template import in_both_widths, page_template, plain, write_page

FILE_NAME = "leaderboard.html"

STYLE = leaderboard_plots.STYLE + leaderboard_rank_plot.STYLE
_STANDING = {BEST: "best", SECOND: "second", 0: ""}


def write_leaderboard_page(results: Leaderboard, folder: str | Path) -> Path:
    """Write leaderboard.html into a folder, wholly or not at all, and return its path.

    Args:
        results: What a bench came to.
        folder: Where to write.

    Raises:
        ConfigError: Jinja2 is missing.
        DataError: The file could not be written.
    """
    return write_page(render_leaderboard(results), folder, FILE_NAME)


def render_leaderboard(results: Leaderboard) -> str:
    """Return the page as text; see `write_leaderboard_page`."""
    over = over_sets(results)
    page: str = page_template(FILE_NAME, values={"standing": _STANDING}).render(
        document=results,
        style=STYLE,
        headline=headline(results),
        sentences=sentences(results),
        steps=steps(results),
        terms=terms(results),
        scale=scale_name(results),
        metrics=metric_names(results),
        counts=_counts(results),
        summary=summary(results),
        by_cell=by_cell(results),
        footnotes=footnotes(results),
        over_sets=over,
        over_sets_headings=over_sets_headings(over),
        over_sets_notes=over_sets_notes(over),
        charts=_charts(results),
        failures=[(run, data_name(run)) for run in results.failures],
        key=list(points) if leaderboard_plots.numbered(points := leaderboard_plots.pareto_points(results)) else [],
        labels=results.board.in_order,
        options=_options(results),
        trials=record_rows(results.tuning),
        published=record_rows(results.suite.published),
        runs=run_rows(results),
        rules=[rule for rule in (rank_rule(results), chance_rule(results)) if rule],
        duration=duration(results.wall_seconds),
    )
    return page


def _counts(results: Leaderboard) -> dict[str, Any]:
    board = results.board
    return {
        "labels": len(board.labels),
        "cells": len(board.cells),
        "data": _data_sets(results),
        "scenarios": list(dict.fromkeys(cell.scenario for cell in board.cells)),
        "seeds": sorted({seed for cell in board.cells for seed in cell.seeds}),
        "runs": len(results.rows),
    }


def _data_sets(results: Leaderboard) -> list[str]:
    """Write the names of the data; last and together those whose models were trained on the same other data."""
    found: dict[str, list[str]] = {"": []}
    for data in dict.fromkeys(cell.data for cell in results.board.cells):
        training = training_words(data, (run.trained_on for run in results.rows if run.data == data))
        found.setdefault(training, []).append(data)
    own = ", ".join(found.pop(""))
    return [*[own] * bool(own), *(f"{listed_labels(names)} {training}" for training, names in found.items())]


def _charts(results: Leaderboard) -> dict[str, Any]:
    charts: dict[str, Any] = {
        "cells": {cell_name(cell, results): cell_dots(results, cell) for cell in results.board.cells}
    }
    if results.board.nemenyi is not None:
        charts["ranks"] = in_both_widths(lambda width: leaderboard_rank_plot.rank_diagram(results, width=width), 900)
    if results.board.front is not None:
        charts["pareto"] = in_both_widths(lambda width: leaderboard_plots.pareto_plot(results, width=width), 640)
    return charts


def _options(results: Leaderboard) -> dict[str, list[str]]:
    """Return the options of every label and what else it sets, each way they were set once."""
    found: dict[str, list[str]] = {}
    for run in results.rows:
        written = _settings(run)
        if written not in found.setdefault(run.label, []):
            found[run.label].append(written)
    return found


def _settings(run: Run) -> str:
    return plain({**run.options, **run.settings})


def record_rows(records: Sequence[Mapping[str, Any]]) -> Table:
    """Return columns and rows of records whose names the bench chose, such as trials, a column per name."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    rows = [[_written(record.get(name), name) for name in columns] for record in records]
    return [measure_name(name) for name in columns], rows


def run_rows(results: Leaderboard) -> Table:
    """Return columns and rows of all runs; with their options where a label was not set alike everywhere."""
    names = results.board.measures
    several = any(len(ways) > 1 for ways in _options(results).values())
    elsewhere = any(training_words(run.data, [run.trained_on]) for run in results.rows)
    speeds = known_speeds(results)
    columns = ["method", "data", *["trained on"] * elsewhere, "scenario", "seed", *map(measure_name, names), "verdict"]
    columns += ["seconds", *(SPEEDS[key] for key in speeds), *["options"] * several]
    found = []
    for run in results.rows:
        written = [_written(run.numbers.get(name), name) for name in names]
        seconds = MISSING if run.seconds is None else f"{run.seconds:,.1f}"
        verdict = "failed" if run.failure else run.verdict or MISSING
        line = [run.label, run.data, *[run.trained_on or MISSING] * elsewhere, run.scenario]
        line += [str(run.seed), *written, verdict, seconds, *(speed_written(key, run.speeds[key]) for key in speeds)]
        found.append([*line, *[_settings(run)] * several])
    return columns, found


def _written(value: Any, name: str) -> str:
    if isinstance(value, float):
        return (signed if name in ("p_up", "p_comp") else score)(value)
    return plain(value)
