"""Tables of a leaderboard, names of its measures, cells and data, and training speeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from limpet.reports.formats import MISSING, percent, plain_text, score, signed
from limpet.support import metric_name
from limpet_bench.leaderboard import CombinedRun, Entry, Leaderboard, LeaderboardCell, Mean, Run, SeedMean, Standings

if TYPE_CHECKING:
    from limpet.reports.markdown import Table

MARK = "*"
"""Mark of a label with a failed or missing run, which shares the last rank in that cell."""

BEST, SECOND = 1, 2

_SIGNED = ("p_up", "p_comp")
_OLD, _INDEPENDENT = "old system", "independent model"

_Values = Sequence[Sequence[float | None]]


class Numbers(NamedTuple):
    """A table with its best numbers marked.

    Args:
        columns: Column heads, that of the labels first.
        rows: Cells of every row, the label first.
        standing: For every number of a row, without the label: `BEST`, `SECOND` or 0.
        kinds: Kind of every row: "ranked", "beside" (a label that is not ranked) or "given" (a given model that labels
            are compared with).
    """

    columns: list[str]
    rows: list[list[str]]
    standing: list[list[int]]
    kinds: list[str]


def leaderboard_table(results: Leaderboard) -> Table:
    """Return columns and rows for a terminal, best average rank first; a dash marks missing values.

    Numbers are means over cells, with the deviation over seeds. Labels that are not ranked come after the ranked ones,
    followed by the old system and the independent model.
    """
    found = summary(results)
    return found.columns, [[row[0], *map(plain_text, row[1:])] for row in found.rows]


def summary(results: Leaderboard) -> Numbers:
    """Return the average rank and the means over cells of every label, and the means of the given models."""
    board = results.board
    names, judged = board.columns, any(entry.judged for entry in board.labels)
    columns = ["method", "average rank", *map(measure_name, names), *["compatible"] * judged, "failed", "minutes"]
    columns += [SPEEDS[key] for key in known_speeds(results)]
    columns += list(COSTS) * costs_known(results)
    shown = board.in_order
    rows = []
    for entry in shown:
        numbers = [with_deviation(name, entry.means[name]) for name in names]
        numbers += [f"{entry.compatible} of {entry.runs}"] * judged
        told = f"{entry.failed} of {entry.runs}" if entry.failed else "0"
        told += f", {entry.missing} not run" if entry.missing else ""
        row = [marked(entry), average_rank(entry.rank), *numbers, told]
        row += [f"{entry.seconds / 60:.1f}", *median_speeds(results, entry.label)]
        rows.append([*row, *costs_of(results, entry.label)])
    given = _given(board, names, columns)
    ranked = board.ranked
    values = [[entry.rank, *(_mean(entry.means[name]) for name in names)] for entry in ranked]
    lower, kinds = [True, *(name in board.lower_is_better for name in names)], kinds_of(shown, given)
    return Numbers(columns, rows + given, standings(values, lower, len(columns) - 1, len(kinds)), kinds)


def _given(board: Standings, names: Sequence[str], columns: Sequence[str]) -> list[list[str]]:
    rows = []
    for name, key, measure in ((_OLD, "self_old", "cross"), (_INDEPENDENT, "self_independent", "self_new")):
        value = board.references.get(key)
        if value is not None and measure in names:
            row = [MISSING] * (len(columns) - 1)
            row[1 + names.index(measure)] = score(value)
            rows.append([name, *row])
    return rows


def by_cell(results: Leaderboard) -> Numbers:
    """Return the ranking score with deviations, a row per label and a column per cell; incomplete cells are marked."""
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


def in_cell(board: Standings, cell: LeaderboardCell, entry: Entry) -> str:
    """Format the ranking score of a label in a cell, with a mark if the label is incomplete there."""
    found = cell.labels[entry.label]
    written = with_deviation(board.ranked_by, found.means.get(board.ranked_by))
    return written if found.complete else f"{written}{MARK}"


def average_rank(value: float | None) -> str:
    """Format an average rank.

    >>> average_rank(1.3333), average_rank(2.0), average_rank(None)
    ('1.33', '2.00', '–')
    """
    return MISSING if value is None else f"{value:.2f}"


def with_deviation(measure: str, mean: Mean | None) -> str:
    """Format a mean with its deviation, if it has one.

    >>> with_deviation("cross", Mean(mean=0.5, deviation=0.0123)), with_deviation("p_up", None)
    ('0.500 ± 0.012', '–')
    """
    if mean is None:
        return MISSING
    written = (signed if measure in _SIGNED else score)(mean.mean)
    return written if mean.deviation is None else f"{written} ± {mean.deviation:.3f}"


def marked(entry: Entry) -> str:
    """Return a label with a mark if it is incomplete, and with its description if it is not ranked."""
    return named(entry, MARK if entry.incomplete else "")


def named(entry: Entry, mark: str = "") -> str:
    """Return a label with a mark, and with its description if it is not ranked."""
    name = f"{entry.label}{mark}"
    return name if entry.reference is None else f"{name} ({entry.reference})"


def footnotes(results: Leaderboard) -> list[str]:
    """Return the notes below a table: the mark, single seeds, costs, fewer cells and training speeds."""
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
    if costs_known(results):
        notes.append(_COSTS)
    told = "; ".join(_MEANING[key] for key in known_speeds(results))
    return [*notes, *_fewer_cells(board), *([f"Medians over runs: {told}."] if told else [])]


def _fewer_cells(board: Standings) -> list[str]:
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


def _complete_mean(board: Standings, cell: LeaderboardCell, entry: Entry) -> float | None:
    found = cell.labels[entry.label]
    return _mean(found.means.get(board.ranked_by)) if found.complete else None


def kinds_of(labels: Sequence[Entry], given: Sequence[Any] = ()) -> list[str]:
    """Return the kinds of the rows of a table, for labels and then for given models; see `Numbers`."""
    return [*("ranked" if entry.reference is None else "beside" for entry in labels), *["given"] * len(given)]


def standings(values: _Values, lower: Sequence[bool], columns: int, rows: int) -> list[list[int]]:
    """Return the standing of every number in its column; columns and rows beyond the values have 0.

    Args:
        values: Numbers by row and column; None if missing.
        lower: Whether lower is better, by column.
        columns: Number of columns of the result.
        rows: Number of rows of the result.
    """
    standing = [[0] * columns for _ in range(rows)]
    for column, less in enumerate(lower):
        found = [row[column] for row in values]
        known = {value for value in found if value is not None}
        first = sorted(known, reverse=not less)[:2] if len(known) > 1 else []  # if all are equal, none is best
        for row, value in enumerate(found):
            standing[row][column] = first.index(value) + 1 if value in first else 0
    return standing


def measure_name(measure: str) -> str:
    """Return the display name of a measure.

    >>> measure_name("p_comp"), measure_name("self_new"), measure_name("ar@1"), measure_name("forgetting")
    ('P_comp', 'self (new)', 'AR@1', 'forgetting')
    """
    name = metric_name(measure)
    return name.replace("_", " ") if name == measure else name


def metric_names(results: Leaderboard, cell: LeaderboardCell | None = None) -> str:
    """Return the names of the ranking metrics of all runs, or of those in a cell: "mAP", "mAP@100 or mAP"."""
    return " or ".join(map(measure_name, results.metrics(cell)))


def scale_name(results: Leaderboard) -> str:
    """Return the name of the ranking measure with its metric: "cross, mAP" or "AR@1"."""
    name, metrics = measure_name(results.board.ranked_by), metric_names(results)
    return name if name == metrics else f"{name}, {metrics}"


def cell_name(cell: LeaderboardCell, results: Leaderboard) -> str:
    """Return the name of a cell; see `cell_headline`."""
    return ", ".join(filter(None, cell_headline(cell, results)))


def cell_headline(cell: LeaderboardCell, results: Leaderboard) -> tuple[str, str]:
    """Return the name of a cell, and a text on the training data if its models were trained on other data.

    The name is data and scenario, or only the one of both that differs between cells.
    """
    data, scenarios = ({one.data for one in results.board.cells}, {one.scenario for one in results.board.cells})
    if len(data) == 1 < len(scenarios):
        return cell.scenario, ""
    name = cell.data if len(scenarios) == 1 < len(data) else f"{cell.data}, {cell.scenario}"
    return name, training_words(cell.data, (run.trained_on for run in results.runs_of(cell)))


def data_name(run: Run) -> str:
    """Return the name of the data that a run searched, with the training data of its models if they differ."""
    return ", ".join(filter(None, (run.data, training_words(run.data, [run.trained_on]))))


def training_words(data: str, trained_on: Iterable[str | None]) -> str:
    """Return a text on the training data of models; empty if it is the searched data, or unknown.

    >>> training_words("roxford", ["gldv2", "gldv2"]), training_words("glyphs", ["glyphs", None])
    ('trained on gldv2', '')
    """
    others = dict.fromkeys(name for name in trained_on if name not in (None, data))
    return f"trained on {' and '.join(map(str, others))}" if others else ""


SPEEDS = {"images_per_second": "images/s", "waiting": "waiting"}
"""Measures of training speed: fields of a run, with their column heads."""

_MEANING = {
    "images_per_second": "images/s, the images that training went through in a second",
    "waiting": "waiting, the share of training spent waiting for data",
}


def known_speeds(results: Leaderboard) -> list[str]:
    """Return the keys of `SPEEDS` that any run has."""
    return [key for key in SPEEDS if any(run.speeds[key] is not None for run in results.rows)]


def median_speeds(results: Leaderboard, label: str) -> list[str]:
    """Return the formatted median speeds over the runs of a label, for the keys of `known_speeds`."""
    written = []
    for key in known_speeds(results):
        values = (run.speeds[key] for run in results.rows if run.label == label)
        found = [value for value in values if value is not None]
        written.append(speed_written(key, median(found) if found else None))
    return written


def speed_written(key: str, value: float | None) -> str:
    """Format a training speed.

    >>> speed_written("images_per_second", 1234.5), speed_written("images_per_second", 7.25)
    ('1,234', '7.2')
    >>> speed_written("waiting", 0.123).replace("\N{NO-BREAK SPACE}", " "), speed_written("waiting", None)
    ('12.3 %', '–')
    """
    if value is None:
        return MISSING
    if key == "waiting":
        return percent(value)
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


COSTS = ("old gallery", "pairs", "labels")
"""Column heads for the requirements of a row."""

_COSTS = (
    "old gallery: whether it is searched as it is, or its stored vectors are mapped once; either way no item of it is "
    "embedded again before the swap, and after a backfill (self (new)) all are. pairs: items to fit on that both "
    "models embedded, each an encoding by the new one; labels: how many of them had one that the row was shown. Rows "
    "under equal conditions are those that are alike in all three."
)


def costs_known(results: Leaderboard) -> bool:
    """Return whether any run records its requirements."""
    return any(run.gallery is not None for run in results.rows)


def costs_of(results: Leaderboard, label: str) -> list[str]:
    """Return the requirements of a label: use of the old gallery, and the ranges of numbers of pairs and labels."""
    if not costs_known(results):
        return []
    runs = [run for run in results.rows if run.label == label and run.gallery is not None]
    galleries = ", ".join(dict.fromkeys(str(run.gallery) for run in runs))
    return [galleries or MISSING, *(_range([getattr(run, name) for run in runs]) for name in ("pairs", "labels"))]


def _range(values: Sequence[int]) -> str:
    """Format the range of some numbers.

    >>> _range([200, 1500, 200]), _range([7]), _range([])
    ('200–1,500', '7', '–')
    """
    ends = sorted({min(values), max(values)}) if values else []
    return "–".join(f"{value:,}" for value in ends) or MISSING


MEASURES = ("p_up", "p_comp", "p_score")


class OverSets(NamedTuple):
    """Results of labels over the same test sets in one scenario.

    Args:
        sets: Names of the test sets, with the training data of the models if it differs.
        scenario: Name of the scenario.
        seeds: Seeds that any label was run with.
        numbers: P_up, P_comp and P_score, a row per label in the order of the leaderboard.
        incomplete: Whether any number is a mean over fewer seeds, and marked.
    """

    sets: str
    scenario: str
    seeds: list[int]
    numbers: Numbers
    incomplete: bool


def over_sets(results: Leaderboard) -> list[OverSets]:
    """Return a table for each group of test sets in a scenario that were measured together, in the order of runs."""
    groups: dict[tuple[str, str], list[CombinedRun]] = {}
    for run in results.combined:
        training = training_words(run.data, [run.trained_on])
        name = f"{run.data} ({training})" if training else run.data
        groups.setdefault((name, run.scenario), []).append(run)
    return [_over_sets(sets, scenario, runs, results) for (sets, scenario), runs in groups.items()]


def _over_sets(sets: str, scenario: str, runs: Sequence[CombinedRun], results: Leaderboard) -> OverSets:
    present = {run.label for run in runs}
    shown = [entry for entry in results.board.in_order if entry.label in present]
    seeds = sorted({run.seed for run in runs})
    written, values, incomplete = [], [], False
    for entry in shown:
        of_label = [run for run in runs if run.label == entry.label]
        means = [_mean_over_seeds(of_label, measure) for measure in MEASURES]
        fewer = [mean is not None and mean.seeds < len(seeds) for mean in means]
        cells = [
            with_deviation(measure, mean) + MARK * less
            for measure, mean, less in zip(MEASURES, means, fewer, strict=True)
        ]
        written.append([named(entry), *cells])
        values.append([None if mean is None or less else mean.mean for mean, less in zip(means, fewer, strict=True)])
        incomplete |= any(fewer)
    kinds = kinds_of(shown)
    ranked = [row for row, kind in zip(values, kinds, strict=True) if kind == "ranked"]
    standing = standings(ranked, [False] * len(MEASURES), len(MEASURES), len(kinds))
    numbers = Numbers(["method", *map(measure_name, MEASURES)], written, standing, kinds)
    return OverSets(sets, scenario, seeds, numbers, incomplete)


def _mean_over_seeds(runs: Sequence[CombinedRun], measure: str) -> SeedMean | None:
    found = [value for run in runs if (value := run.p_metrics[measure]) is not None]
    if not found:
        return None
    return SeedMean(mean=fmean(found), deviation=stdev(found) if len(found) > 1 else None, seeds=len(found))


def over_sets_headings(found: Sequence[OverSets]) -> tuple[str, list[str]]:
    """Return the test sets if all tables share them, else an empty text; and the heading of each table."""
    sets = {table.sets for table in found}
    if len(sets) == 1:
        return sets.pop(), [table.scenario for table in found]
    return "", [f"{table.sets}, {table.scenario}" for table in found]


def over_sets_notes(found: Sequence[OverSets]) -> list[str]:
    """Return the notes below these tables: the mark, and that a single seed has no deviation."""
    notes = []
    if any(table.incomplete for table in found):
        notes.append(f"{MARK} without this number for some seeds: the mean of the others, and never best.")
    if found and all(len(table.seeds) == 1 for table in found):
        notes.append("One seed: there is no deviation, and a difference may be chance.")
    return notes
