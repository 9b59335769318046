"""A leaderboard as text for other programs: Markdown, LaTeX for papers, CSV run by run, and lines for a terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.bench.leaderboard import Leaderboard
from holdfast.reports.template import write_page
from holdfast.reports.formats import plain_text
from holdfast.reports.leaderboard_names import data_name, metric_names, scale_name
from holdfast.reports.leaderboard_over_sets import OverSets, over_sets, over_sets_notes
from holdfast.reports.leaderboard_speed import SPEEDS
from holdfast.reports.leaderboard_tables import BEST, SECOND, Numbers, by_cell, footnotes, leaderboard_table, summary
from holdfast.reports.leaderboard import duration, headline, sentences

_BY = ("label", "method", "data", "trained_on", "scenario", "seed", "metric")
_REST = ("verdict", "seconds", *SPEEDS, "failure")
_P = ("p_up", "p_comp", "p_score")
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
    """Return what was found and how, the table of means, and that of cells where there are several, in Markdown.

    The best are bold; every failure has its line.
    """
    metric = metric_names(results)
    said = (headline(results), *sentences(results), *(f"Failed: {one}" for one in _failure_lines(results)))
    parts = [
        f"# {_for_markdown(results.title)}\n",
        *(f"{_for_markdown(plain_text(one))}\n" for one in said),
    ]
    parts += [f"`{results.command}` took {duration(results.wall_seconds)}. {_for_markdown(results.machine)}.\n"]
    parts += [f"Means over cells, in {metric}:\n\n" + _markdown(summary(results))]
    if len(results.board.cells) > 1:
        parts.append(f"By cell, {scale_name(results)}:\n\n" + _markdown(by_cell(results)))
    parts += [f"{_for_markdown(note)}\n" for note in footnotes(results)]
    over = over_sets(results)
    parts += [f"{_for_markdown(_over(found))}:\n\n" + _markdown(found.numbers) for found in over]
    parts += [f"{_for_markdown(note)}\n" for note in over_sets_notes(over)]
    return "\n".join(parts)


def _over(found: OverSets) -> str:
    return f"Over several test sets, {found.sets}, {found.scenario}"


def _markdown(found: Numbers) -> str:
    rule = ["---", *["---:"] * (len(found.columns) - 1)]
    lines = [list(map(_for_markdown, found.columns)), rule]
    for row, standing in zip(found.rows, found.standing, strict=True):
        numbers = (_for_markdown(plain_text(cell)) for cell in row[1:])
        bold = (f"**{cell}**" if place == BEST else cell for cell, place in zip(numbers, standing, strict=True))
        lines.append([_for_markdown(row[0]), *bold])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _for_markdown(words: str) -> str:
    for sign in "\\|*_`<[":
        words = words.replace(sign, f"\\{sign}")
    return " ".join(words.split())


def leaderboard_latex(results: Leaderboard) -> str:
    r"""Return both tables in LaTeX, best in bold and second underlined; needs ``\usepackage{booktabs}``."""
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

    The column "line" says which of them a line is: "run", "mean", or "combined" for a run over several test sets. Lines
    of means have no seed, but the number of "seeds" and a column of deviations for every score; where a run failed its
    scores are empty and "failure" says why. "waiting" is a share.
    """
    measures, over = results.board.measures, results.combined
    names = [*measures, *(name for name in _P if over and name not in measures)]
    columns = ["line", *_BY, "seeds", "rank", *names, *(f"{name}_deviation" for name in names), *_REST]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_run_lines(results, names))
    writer.writerows(_mean_lines(results, names))
    writer.writerows({"line": "combined"} | run.model_dump(include={*_BY, *_P}) for run in over)
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


def leaderboard_text(results: Leaderboard) -> str:
    """Return the board for a terminal: the headline, the table, what it tells apart and every failure."""
    lines = [results.title, headline(results), "", *_aligned(*leaderboard_table(results)), ""]
    lines += [plain_text(told) for told in (*sentences(results), *footnotes(results))]
    for found in over_sets(results):
        rows = [[row[0], *map(plain_text, row[1:])] for row in found.numbers.rows]
        lines += ["", f"{_over(found)}:", *_aligned(found.numbers.columns, rows)]
    failed = _failure_lines(results)
    lines += ["", "Failed:", *(f"  {one}" for one in failed)] if failed else []
    return "\n".join(lines) + "\n"


def _failure_lines(results: Leaderboard) -> list[str]:
    """Return a line for every run that failed."""
    return [
        f"{run.label}, {data_name(run)}, {run.scenario}, seed {run.seed}: {run.failure}" for run in results.failures
    ]


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [columns, *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
