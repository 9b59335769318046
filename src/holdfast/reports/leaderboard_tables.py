"""The numbers of a leaderboard as tables: means over cells, and the score that ranks in every cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.bench.leaderboard import Board, BoardCell, Entry, Leaderboard, Mean
from holdfast.reports.formats import MISSING, plain_text, score, signed
from holdfast.reports.leaderboard_names import cell_name, measure_name, metric_names
from holdfast.reports.leaderboard_speed import SPEEDS, known_speeds, median_speeds, speed_notes
from holdfast.reports.tables import Table

MARK = "*"
"""Beside a label: a run failed or was not made, so that it shares the last rank there."""

BEST, SECOND = 1, 2

_SIGNED = ("p_up", "p_comp")
_OLD, _INDEPENDENT = "old system", "independent model"

_Values = Sequence[Sequence[float | None]]


class Numbers(NamedTuple):
    """A table whose best numbers are known.

    Args:
        columns: Their heads, that of the labels first.
        rows: What is written, the label first.
        standing: For every number of a row, without its label: `BEST`, `SECOND` or 0.
        kinds: Of every row: "ranked", "beside" (a label that is not ranked) or "given" (no label: what others are
            compared with).
    """

    columns: list[str]
    rows: list[list[str]]
    standing: list[list[int]]
    kinds: list[str]


def leaderboard_table(results: Leaderboard) -> Table:
    """Return columns and rows for a terminal, best average rank first; a dash stands for what is missing.

    Numbers are means over cells, with the deviation over seeds. Labels that are not ranked come last, and after them
    the old system and the independent model.
    """
    found = summary(results)
    return found.columns, [[row[0], *map(plain_text, row[1:])] for row in found.rows]


def summary(results: Leaderboard) -> Numbers:
    """Return the average rank and the means over cells of every label, and of the models that are given."""
    board = results.board
    names, judged = board.columns, any(entry.judged for entry in board.labels)
    columns = ["method", "average rank", *map(measure_name, names), *["compatible"] * judged, "failed", "minutes"]
    columns += [SPEEDS[key] for key in known_speeds(results)]
    shown = board.in_order
    rows = []
    for entry in shown:
        numbers = [with_deviation(name, entry.means[name]) for name in names]
        numbers += [f"{entry.compatible} of {entry.runs}"] * judged
        row = [marked(entry), average_rank(entry.rank), *numbers, told_failures(entry)]
        rows.append([*row, f"{entry.seconds / 60:.1f}", *median_speeds(results, entry.label)])
    given = _given(board, names, columns)
    ranked = board.ranked
    values = [[entry.rank, *(_mean(entry.means[name]) for name in names)] for entry in ranked]
    lower, kinds = [True, *(name in board.lower_is_better for name in names)], kinds_of(shown, given)
    return Numbers(columns, rows + given, standings(values, lower, len(columns) - 1, len(kinds)), kinds)


def _given(board: Board, names: Sequence[str], columns: Sequence[str]) -> list[list[str]]:
    """Return a row for each model that is given, its score below the column that it is compared with."""
    rows = []
    for name, key, measure in ((_OLD, "self_old", "cross"), (_INDEPENDENT, "self_independent", "self_new")):
        value = board.references.get(key)
        if value is not None and measure in names:
            row = [MISSING] * (len(columns) - 1)
            row[1 + names.index(measure)] = score(value)
            rows.append([name, *row])
    return rows


def by_cell(results: Leaderboard) -> Numbers:
    """Return the score that ranks, a row per label and a column per cell, with deviations; marked where incomplete."""
    board = results.board
    name, cells = board.ranked_by, board.cells
    shown = board.in_order
    rows = [[marked(entry), *(in_cell(board, cell, entry) for cell in cells)] for entry in shown]
    given = []
    for words, key in ((_OLD, "self_old"), (_INDEPENDENT, "self_independent")):
        found = [with_deviation(key, cell.references.get(key)) for cell in cells]
        given += [[words, *found]] if set(found) != {MISSING} else []
    values = [[_complete_mean(board, cell, entry) for cell in cells] for entry in board.ranked]
    lower, kinds = [name in board.lower_is_better] * len(cells), kinds_of(shown, given)
    columns = ["method", *(cell_name(cell, results) for cell in cells)]
    if len(results.metrics()) > 1:
        columns[1:] = [f"{name}, {metric_names(results, cell)}" for name, cell in zip(columns[1:], cells, strict=True)]
    return Numbers(columns, rows + given, standings(values, lower, len(cells), len(kinds)), kinds)


def in_cell(board: Board, cell: BoardCell, entry: Entry) -> str:
    """Write the score that ranks of a label in a cell."""
    found = cell.labels[entry.label]
    written = with_deviation(board.ranked_by, found.means.get(board.ranked_by))
    return written if found.complete else f"{written}{MARK}"


def average_rank(value: float | None) -> str:
    """Write an average rank.

    >>> average_rank(1.3333), average_rank(2.0), average_rank(None)
    ('1.33', '2.00', '–')
    """
    return MISSING if value is None else f"{value:.2f}"


def with_deviation(measure: str, mean: Mean | None) -> str:
    """Write a mean with its deviation, where there is one.

    >>> with_deviation("cross", Mean(mean=0.5, deviation=0.0123)), with_deviation("p_up", None)
    ('0.500 ± 0.012', '–')
    """
    if mean is None:
        return MISSING
    written = (signed if measure in _SIGNED else score)(mean.mean)
    return written if mean.deviation is None else f"{written} ± {mean.deviation:.3f}"


def marked(entry: Entry) -> str:
    """Return a label with a mark where it is not complete, and with what it is where it is not ranked."""
    return named(entry, MARK if entry.incomplete else "")


def named(entry: Entry, mark: str = "") -> str:
    """Return a label with a mark, and with what it is where it is not ranked."""
    name = f"{entry.label}{mark}"
    return name if entry.reference is None else f"{name} ({entry.reference})"


def told_failures(entry: Entry) -> str:
    """Write how many runs failed or were not made: "0", or such as "1 of 3, 2 not run"."""
    told = f"{entry.failed} of {entry.runs}" if entry.failed else "0"
    return told + (f", {entry.missing} not run" if entry.missing else "")


def footnotes(results: Leaderboard) -> list[str]:
    """Return what has to be said below a table: the mark, and where numbers are of fewer cells or of one seed."""
    board, notes = results.board, []
    if any(entry.incomplete for entry in board.labels):
        notes.append(
            f"{MARK} failed, or was not run, somewhere: it shares the last rank there, and has no mean over cells that "
            "include it."
        )
    if all(len(cell.seeds) == 1 for cell in board.cells):
        notes.append("One seed: there is no deviation, and a difference may be chance.")
    elif len({tuple(cell.seeds) for cell in board.cells}) > 1:
        notes.append("Cells were run with different seeds: means over cells have no deviation.")
    return [*notes, *_fewer_cells(board), *speed_notes(results)]


def _fewer_cells(board: Board) -> list[str]:
    """Say which measures are means over fewer cells than there are."""
    of_cells: dict[int, list[str]] = {}
    for name in board.columns:
        cells = max((mean.cells for entry in board.labels if (mean := entry.means[name])), default=0)
        of_cells.setdefault(cells, []).append(measure_name(name))
    return [
        f"{' and '.join(names)}: means over {cells} of {len(board.cells)} cells; in the others there is no such "
        "number, or no label is complete."
        for cells, names in of_cells.items()
        if 0 < cells < len(board.cells)
    ]


def _mean(found: Mean | None) -> float | None:
    return None if found is None else found.mean


def _complete_mean(board: Board, cell: BoardCell, entry: Entry) -> float | None:
    found = cell.labels[entry.label]
    return _mean(found.means.get(board.ranked_by)) if found.complete else None


def kinds_of(labels: Sequence[Entry], given: Sequence[Any] = ()) -> list[str]:
    """Return the kinds of the rows of a table, of labels and then of models that are given; see `Numbers`."""
    return [*("ranked" if entry.reference is None else "beside" for entry in labels), *["given"] * len(given)]


def standings(values: _Values, lower: Sequence[bool], columns: int, rows: int) -> list[list[int]]:
    """Return which numbers are best and second in their column; columns and rows beyond the values have none."""
    standing = [[0] * columns for _ in range(rows)]
    for column, less in enumerate(lower):
        found = [row[column] for row in values]
        known = {value for value in found if value is not None}
        first = sorted(known, reverse=not less)[:2] if len(known) > 1 else []  # of equal ones none leads
        for row, value in enumerate(found):
            standing[row][column] = first.index(value) + 1 if value in first else 0
    return standing
