"""A leaderboard in words, as a page, and as Markdown, LaTeX, CSV and text for a terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limpet.reports.formats import MISSING, plain_text, probability, score, signed
from limpet.reports.markdown import Table, in_markdown
from limpet.reports.page import drawn_both, page_template, plain, write_page
from limpet.reports.plots.rendering import svg
from limpet.reports.words import Finding, first_hit_cell
from limpet.support import aligned, duration
from limpet_bench.figure_values import NumberTable
from limpet_bench.reports.charts.pareto import numbered, pareto_plot, pareto_points
from limpet_bench.reports.charts.standings import cell_dots
from limpet_bench.reports.leaderboard_rank_plot import rank_diagram
from limpet_bench.reports.leaderboard_tables import (
    BEST,
    SECOND,
    SPEEDS,
    Numbers,
    OverSets,
    average_rank,
    by_cell,
    cell_name,
    data_name,
    footnotes,
    known_speeds,
    leaderboard_table,
    measure_name,
    metric_names,
    over_sets,
    over_sets_headings,
    over_sets_notes,
    scale_name,
    speed_written,
    summary,
    training_words,
    with_deviation,
)
from limpet_bench.reports.suite_figures import figure_lines, figure_markdown, page_figures

if TYPE_CHECKING:
    from limpet_bench.leaderboard import Entry, Leaderboard, NemenyiTest, Run, Standings

_NAMED = 4  # maximum number of names in a sentence
_SMALLEST = 0.0001  # smaller p-values are not written exactly


def leaders(results: Leaderboard) -> list[Entry]:
    """Return the labels with the best average rank; none if nothing could be ranked."""
    ranked = [entry for entry in results.board.ranked if entry.rank is not None]
    return [entry for entry in ranked if entry.rank == ranked[0].rank]


def headline(results: Leaderboard) -> str:
    """Return a sentence on which labels may go live, and one on the leader and whether the lead may be chance."""
    live = _live(results)
    return f"{live} {_leader(results)}" if live else _leader(results)


def _live(results: Leaderboard) -> str:
    """Return which labels may go live, by their verdicts; empty if none was judged."""
    judged = [entry for entry in results.board.ranked if entry.judged]
    always = [entry.label for entry in judged if entry.compatible == entry.runs]
    sometimes = [entry for entry in judged if 0 < entry.compatible < entry.runs]
    if always:
        verb = "was" if len(always) == 1 else "were"
        return f"{listed_labels(always)} {verb} compatible in every run and may go live on such data."
    if sometimes:
        most = max(sometimes, key=lambda entry: entry.compatible / entry.runs)
        return f"Nothing was compatible in every run; {most.label} was in {most.compatible} of {most.runs}."
    return "Nothing may go live: no label was compatible in any run." if judged else ""


def _leader(results: Leaderboard) -> str:
    board, first = results.board, leaders(results)
    if not first:
        return f"Nothing could be ranked: {len(results.failures)} of {len(results.rows)} runs failed."
    names = listed_labels([entry.label for entry in first])
    if len(first) > 1:
        return f"{names} share the lead."
    if board.untested == "labels":
        return f"{names} is the only label that is ranked."
    if board.friedman is None or board.nemenyi is None:
        cells = sum(cell.ranked for cell in board.cells)
        if cells > 1:
            return f"{names} ranks first in {cells} cells of one data set; what other data would say is not tested."
        return f"{names} comes first in the only cell{'' if len(board.cells) == 1 else ' that could be ranked'}."
    if not board.friedman.differ:
        return f"{names} ranks first, but the order may be chance."
    beside = _not_apart(board.nemenyi, first[0].label)
    if not beside:
        return f"{names} leads, significantly ahead of all others."
    others = len(board.ranked) - 1
    if len(beside) == others:
        return f"{names} ranks first, but not significantly ahead of any other."
    return f"{names} leads, significantly ahead of {others - len(beside)} of {others} others."


def sentences(results: Leaderboard) -> list[str]:
    """Return one or two sentences each on the leader, the significance tests, the Pareto front and failed runs."""
    found = [_lead(results), _chance(results), _front(results), _failed(results)]
    return [told for told in found if told]


def _lead(results: Leaderboard) -> str:
    board, first = results.board, leaders(results)
    if not first:
        return ""
    ranked = len(board.ranked)
    cells = sum(cell.ranked for cell in board.cells)
    entry, found = first[0], first[0].means.get(board.ranked_by)
    mean = f"; {scale_name(results)}: {with_deviation(board.ranked_by, found)}" if found else ""
    verdicts = f" It was compatible in {entry.compatible} of {entry.runs} runs." if entry.judged else ""
    if entry.mixed:
        verdicts += f" In {entry.mixed} more it gained by this metric and was clearly worse by another."
    if len(first) > 1:
        return (
            f"By {scale_name(results)}, average rank {average_rank(entry.rank)} of {ranked} over "
            f"{_evidence(board, cells)}."
        )
    best = f", best in {entry.best} of {_cells(cells)}" if cells > 1 else ""
    rank = f"average rank {average_rank(entry.rank)}" if cells > 1 else f"rank {entry.rank:g}"
    return f"{entry.label}: {rank} of {ranked} over {_evidence(board, cells)}{best}{mean}.{verdicts}"


def _chance(results: Leaderboard) -> str:
    board = results.board
    if board.untested == "labels":
        return "There is no test of ranks: it takes two labels at least."
    tested, nemenyi = board.friedman, board.nemenyi
    if tested is None or nemenyi is None:
        return (
            "There is no test of ranks: it asks whether data sets order the labels alike, and takes two of them at "
            "least. Neither seeds nor scenarios replace them: they share their data."
        )
    found = f"Friedman’s test over {tested.cells} data sets: {p_written(tested.p_value)}"
    if not tested.differ:
        return (
            f"{found}. Ranks like these are not rare among labels that are equally good, so no two differ "
            "significantly; more data sets would tell more."
        )
    apart = f"average ranks {nemenyi.critical_difference:.2f} apart or more differ significantly"
    told = f"{found}: the labels differ. By Nemenyi’s test at level {nemenyi.level:g}, {apart}."
    if nemenyi.critical_difference > tested.labels - 1:
        return f"{told} So many labels over so few data sets cannot lie that far apart: more data sets would tell more."
    first = leaders(results)
    beside = _not_apart(nemenyi, first[0].label) if len(first) == 1 else []
    return f"{told} Not significantly behind {first[0].label}: {listed_labels(beside)}." if beside else told


def _front(results: Leaderboard) -> str:
    """Return which labels no other beats in both P_comp and P_up; empty if the suite has neither measure."""
    board = results.board
    if board.front is None:
        return (
            "No label has both P_comp and P_up in every cell, so there is no front of the two."
            if {"p_comp", "p_up"} & set(board.measures)
            else ""
        )
    return f"No label beats {listed_labels(board.front.labels)} in both P_comp and P_up."


def _failed(results: Leaderboard) -> str:
    failed = results.failures
    if not failed:
        return ""
    names = listed_labels(list(dict.fromkeys(run.label for run in failed)))
    told = f"{len(failed)} of {len(results.rows)} runs failed, of {names}"
    return f"{told}; a label shares the last rank where one of its runs failed."


def _not_apart(tested: NemenyiTest, label: str) -> list[str]:
    return [name for group in tested.groups[:1] if label in group for name in group if name != label]


def listed_labels(names: Sequence[str]) -> str:
    """Join names for a sentence, at most the first few. Names that contain commas are quoted.

    >>> listed_labels(["bct"]), listed_labels(["bct", "p2s, two layers"]), listed_labels([*"abcdef"])
    ('bct', 'bct and “p2s, two layers”', 'a, b, c and 3 others')
    """
    names = [f"“{name}”" if "," in name else name for name in names]
    shown = list(names) if len(names) <= _NAMED else [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} others"]
    return " and ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part) if shown else "none"


def p_written(value: float) -> str:
    """Format a p-value.

    >>> p_written(0.0312), p_written(0.0001), p_written(1e-13)
    ('p = 0.031', 'p = 0.0001', 'p < 0.0001')
    """
    return f"p = {probability(value)}" if value >= _SMALLEST else f"p < {_SMALLEST:g}"


def _evidence(board: Standings, cells: int) -> str:
    """Return what average ranks are over: pooled data sets, or the cells of a single one."""
    tested = board.friedman
    return f"{tested.cells} data sets" if tested is not None and tested.cells < cells else _cells(cells)


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


def steps(results: Leaderboard) -> list[tuple[str, str, bool]]:
    """Return the scores of the old system, the leader and the independent model; empty unless all three are known.

    Returns:
        For each, the formatted score, its name, and whether it is the leader's.
    """
    board, first = results.board, leaders(results)
    if board.ranked_by != "cross" or not first:
        return []
    old, independent = (board.references.get(name) for name in ("self_old", "self_independent"))
    found = first[0].means["cross"]
    if old is None or independent is None or found is None:
        return []
    return [
        (score(old), "old system", False),
        (score(found.mean), f"{first[0].label}, nothing embedded again", True),
        (score(independent), "independent model, all embedded again", False),
    ]


_BY = ("label", "method", "data", "trained_on", "scenario", "seed", "metric")
_REST = ("verdict", "seconds", *SPEEDS, "failure")
_P = ("p_up", "p_comp", "p_score")
_PRINTED = ("variant", "where")
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "#": r"\#",
        "%": r"\%",
        "_": r"\_",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': "''",
        "−": "$-$",
        "±": r"$\pm$",
        "–": "--",
        "\N{NO-BREAK SPACE}": "~",
    }
)


def write_tables(results: Leaderboard, folder: str | Path) -> list[Path]:
    """Write leaderboard.md, leaderboard.csv and leaderboard.tex into a folder, and return their paths.

    Raises:
        DataError: A file could not be written.
    """
    written = {
        "md": leaderboard_markdown(results),
        "csv": leaderboard_csv(results),
        "tex": leaderboard_latex(results),
    }
    return [write_page(text, folder, f"leaderboard.{ending}") for ending, text in written.items()]


def leaderboard_markdown(results: Leaderboard) -> str:
    """Return the leaderboard in Markdown: sentences, the tables of means, cells and test sets, and tables of the suite.

    The best numbers are bold; every failure has a line.
    """
    metric = metric_names(results)
    parts = [
        f"# {in_markdown(results.title)}\n",
        *(f"{in_markdown(one)}\n" for one in leaderboard_words(results)),
    ]
    parts += [f"`{results.command}` took {duration(results.wall_seconds)}. {in_markdown(results.machine)}.\n"]
    parts += [f"Means over cells, in {metric}:\n\n" + _markdown(summary(results))]
    if len(results.board.cells) > 1:
        parts.append(f"By cell, {scale_name(results)}:\n\n" + _markdown(by_cell(results)))
    parts += [f"{in_markdown(note)}\n" for note in footnotes(results)]
    over = over_sets(results)
    parts += [f"{in_markdown(_over(found))}:\n\n" + _markdown(found.numbers) for found in over]
    parts += [f"{in_markdown(note)}\n" for note in over_sets_notes(over)]
    parts += [figure_markdown(value, "##") for value in results.figures.values() if isinstance(value, NumberTable)]
    return "\n".join(parts)


def _over(found: OverSets) -> str:
    return f"Over several test sets, {found.sets}, {found.scenario}"


def _markdown(found: Numbers) -> str:
    rule = ["---", *["---:"] * (len(found.columns) - 1)]
    lines = [list(map(in_markdown, found.columns)), rule]
    for row, standing in zip(found.rows, found.standing, strict=True):
        numbers = (in_markdown(cell) for cell in row[1:])
        bold = (f"**{cell}**" if place == BEST else cell for cell, place in zip(numbers, standing, strict=True))
        lines.append([in_markdown(row[0]), *bold])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def leaderboard_latex(results: Leaderboard) -> str:
    r"""Return the tables in LaTeX, best in bold and second best underlined; needs ``\usepackage{booktabs}``."""
    title, metric = _for_latex(results.title), _for_latex(metric_names(results))
    notes = " ".join(_for_latex(note) for note in footnotes(results))
    parts = [_latex(summary(results), f"{title} Means over cells, in {metric}. {notes}".strip())]
    if len(results.board.cells) > 1:
        parts.append(_latex(by_cell(results), f"{title} {_for_latex(scale_name(results))}, by cell."))
    for found in over_sets(results):
        told = " ".join(_for_latex(note) for note in over_sets_notes([found]))
        parts.append(_latex(found.numbers, f"{title} {_for_latex(_over(found))}. {told}".strip()))
    return "% \\usepackage{booktabs}\n" + "\n".join(parts)


def _latex(found: Numbers, caption: str) -> str:
    head = " & ".join(map(_for_latex, found.columns)) + r" \\"
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * (len(found.columns) - 1)}}}", r"\toprule", head, r"\midrule"]
    for row, standing, kind, before in zip(
        found.rows, found.standing, found.kinds, [None, *found.kinds[:-1]], strict=True
    ):
        lines += [r"\midrule"] if before is not None and kind != before else []
        lines.append(" & ".join(_latex_cells(row, standing)) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _latex_cells(row: Sequence[str], standing: Sequence[int]) -> Iterator[str]:
    yield _for_latex(row[0])
    for cell, place in zip(row[1:], standing, strict=True):
        number, sign, deviation = _for_latex(cell).partition(r" $\pm$ ")
        drawn = {BEST: rf"\textbf{{{number}}}", SECOND: rf"\underline{{{number}}}"}.get(place, number)
        yield f"{drawn}{sign}{deviation}"


def _for_latex(words: str) -> str:
    return " ".join(words.split(" ")).translate(_LATEX).replace("\n", " ")


def leaderboard_csv(results: Leaderboard) -> str:
    """Return every number as CSV, unrounded: a line per run, and a line per label and cell with the means over seeds.

    The column "line" is "run", "mean", "combined" for a run over several test sets, or "published" for a row of a
    paper. Lines of means have the number of "seeds" instead of a seed, and a deviation for every score. If a run
    failed, its scores are empty and "failure" holds the reason. Published rows have the "variant" of their P_up and
    P_comp, which are raw in all other lines, and "where", the table in the paper. "waiting" is a share.
    """
    measures, over, published = results.board.measures, results.combined, results.suite.published
    names = [*measures, *(name for name in _P if over and name not in measures)]
    columns = ["line", *_BY, "seeds", "rank", *names, *(f"{name}_deviation" for name in names), *_REST]
    columns += [*_PRINTED] if published else []
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_run_lines(results, names))
    writer.writerows(_mean_lines(results, names))
    writer.writerows({"line": "combined"} | run.model_dump(include={*_BY, *_P}) for run in over)
    for row in published:
        numbers = {
            **row.scores,
            **{f"{name}_deviation": value for name, value in row.deviations.items()},
            **row.p_metrics,
        }
        known = {name: value for name, value in numbers.items() if name in columns}
        writer.writerow({"line": "published"} | row.model_dump(include={*_BY, *_PRINTED}) | known)
    return stream.getvalue()


def _run_lines(results: Leaderboard, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for run in results.rows:
        yield {
            "line": "run",
            **run.model_dump(include={*_BY, *_REST}),
            **{name: run.numbers.get(name) for name in names},
        }


def _mean_lines(results: Leaderboard, names: Iterable[str]) -> Iterator[dict[str, Any]]:
    for cell in results.board.cells:
        for entry in results.board.labels:
            found, runs = cell.labels[entry.label], results.runs_of(cell, entry.label)
            means = {name: mean for name in names if (mean := found.means.get(name)) is not None}
            yield {
                "line": "mean",
                "label": entry.label,
                "method": entry.method,
                "data": cell.data,
                "trained_on": " and ".join(dict.fromkeys(run.trained_on for run in runs if run.trained_on)),
                "scenario": cell.scenario,
                "metric": " and ".join(results.metrics(cell)),
                "seeds": len(cell.seeds) - found.failed - found.missing,
                "rank": found.rank,
                "failure": f"{found.failed} failed, {found.missing} not run" * (not found.complete),
                **{name: mean.mean for name, mean in means.items()},
                **{f"{name}_deviation": mean.deviation for name, mean in means.items()},
            }


def leaderboard_words(results: Leaderboard) -> list[str]:
    """Return the sentences about a leaderboard and its failures, as plain text."""
    told = [headline(results), *sentences(results), *(f"Failed: {one}" for one in _failure_lines(results))]
    return [plain_text(line) for line in told]


def leaderboard_records(results: Leaderboard) -> list[dict[str, Any]]:
    """Return one record per run, with its scores."""
    return [{name: one[name] for name in one if name != "line"} for one in _run_lines(results, results.board.measures)]


def leaderboard_text(results: Leaderboard) -> str:
    """Return the leaderboard for a terminal: headline, table, significance, notes, figures and failures."""
    lines = [results.title, headline(results), "", *aligned(*leaderboard_table(results)), ""]
    lines += [plain_text(told) for told in (*sentences(results), *footnotes(results))]
    for found in over_sets(results):
        rows = [[row[0], *map(plain_text, row[1:])] for row in found.numbers.rows]
        lines += ["", f"{_over(found)}:", *aligned(found.numbers.columns, rows)]
    drawn = figure_lines(results)
    lines += ["", "Figures:", *(f"  {one}" for one in drawn)] if drawn else []
    failed = _failure_lines(results)
    lines += ["", "Failed:", *(f"  {one}" for one in failed)] if failed else []
    return "\n".join(lines) + "\n"


def _failure_lines(results: Leaderboard) -> list[str]:
    return [
        f"{run.label}, {data_name(run)}, {run.scenario}, seed {run.seed}: {run.failure}" for run in results.failures
    ]


FILE_NAME = "leaderboard.html"

_STANDING = {BEST: "best", SECOND: "second", 0: ""}


def write_leaderboard_page(results: Leaderboard, folder: str | Path) -> Path:
    """Write leaderboard.html into a folder atomically, and return its path; see `write_page`."""
    return write_page(render_leaderboard(results), folder, FILE_NAME)


def render_leaderboard(results: Leaderboard) -> str:
    """Return the page as text; see `write_leaderboard_page`."""
    over = over_sets(results)
    board = results.board
    page: str = page_template(FILE_NAME, package="limpet_bench").render(
        document=results,
        headline=headline(results),
        finding=Finding("", tuple(sentences(results))),
        steps=steps(results),
        standing=_STANDING,
        p_written=p_written,
        scale=scale_name(results),
        metrics=metric_names(results),
        counts={
            "labels": len(board.labels),
            "cells": len(board.cells),
            "data": _data_sets(results),
            "scenarios": list(dict.fromkeys(cell.scenario for cell in board.cells)),
            "most_seeds": max(len(cell.seeds) for cell in board.cells),
            "seeds": sorted({seed for cell in board.cells for seed in cell.seeds}),
            "runs": len(results.rows),
        },
        summary=summary(results),
        by_cell=by_cell(results),
        footnotes=footnotes(results),
        over_sets=over,
        over_sets_headings=over_sets_headings(over),
        over_sets_notes=over_sets_notes(over),
        charts=_charts(results),
        figures=page_figures(results),
        undrawn={name: note for name, note in results.figure_notes.items() if name not in results.figures},
        failures=[(run, data_name(run)) for run in results.failures],
        key=list(points) if numbered(points := pareto_points(results)) else [],
        labels=results.board.in_order,
        options=_options(results),
        trials=record_rows(results.tuning),
        runs=run_rows(results),
    )
    return page


def _data_sets(results: Leaderboard) -> list[str]:
    """Return the names of the data; sets whose models were trained on other data come last, grouped by that data."""
    found: dict[str, list[str]] = {"": []}
    for data in dict.fromkeys(cell.data for cell in results.board.cells):
        training = training_words(data, (run.trained_on for run in results.rows if run.data == data))
        found.setdefault(training, []).append(data)
    own = ", ".join(found.pop(""))
    return [*[own] * bool(own), *(f"{listed_labels(names)} {training}" for training, names in found.items())]


def _charts(results: Leaderboard) -> dict[str, Any]:
    charts: dict[str, Any] = {
        "cells": {cell_name(cell, results): svg(cell_dots(results, cell)) for cell in results.board.cells}
    }
    if results.board.nemenyi is not None:
        charts["ranks"] = drawn_both(rank_diagram, results, wide={"width": 900})
    if results.board.front is not None:
        charts["pareto"] = drawn_both(pareto_plot, results)
    return charts


def _options(results: Leaderboard) -> dict[str, list[str]]:
    """Return the options and further settings of every label, each distinct combination once."""
    found: dict[str, list[str]] = {}
    for run in results.rows:
        written = _settings(run)
        if written not in found.setdefault(run.label, []):
            found[run.label].append(written)
    return found


def _settings(run: Run) -> str:
    return plain({**run.options, **run.settings})


def record_rows(records: Sequence[Mapping[str, object]]) -> Table:
    """Return columns and rows of records such as trials, with one column per key."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    rows = [[_written(record.get(name), name) for name in columns] for record in records]
    return [measure_name(name) for name in columns], rows


def run_rows(results: Leaderboard) -> Table:
    """Return columns and rows of all runs, with their options if a label has different ones in different runs."""
    names = results.board.measures
    several = any(len(ways) > 1 for ways in _options(results).values())
    elsewhere = any(training_words(run.data, [run.trained_on]) for run in results.rows)
    speeds = known_speeds(results)
    columns = ["method", "data", *["trained on"] * elsewhere, "scenario", "seed", *map(measure_name, names), "verdict"]
    columns += ["first hits (net)", "seconds", *(SPEEDS[key] for key in speeds), *["options"] * several]
    found = []
    for run in results.rows:
        written = [_written(run.numbers.get(name), name) for name in names]
        seconds = MISSING if run.seconds is None else f"{run.seconds:,.1f}"
        verdict = "failed" if run.failure else run.verdict or MISSING
        line = [run.label, run.data, *[run.trained_on or MISSING] * elsewhere, run.scenario]
        line += [str(run.seed), *written, verdict, first_hit_cell(run.first_hits), seconds]
        line += [speed_written(key, run.speeds[key]) for key in speeds]
        found.append([*line, *[_settings(run)] * several])
    return columns, found


def _written(value: object, name: str) -> str:
    if isinstance(value, float):
        return (signed if name in ("p_up", "p_comp") else score)(value)
    return plain(value)
