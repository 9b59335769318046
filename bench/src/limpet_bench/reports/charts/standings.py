"""Forest plot of the scores of every label in a cell of a leaderboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limpet.reports.formats import score
from limpet.reports.plots.forest import Level, Mark, Row, forest
from limpet.reports.plots.frame import Range
from limpet.reports.plots.style import GOOD, INDEPENDENT, INK, OLD, width_of
from limpet_bench.reports.leaderboard_tables import (
    cell_headline,
    cell_name,
    marked,
    measure_name,
    metric_names,
    with_deviation,
)

if TYPE_CHECKING:
    import altair as alt

    from limpet_bench.leaderboard import Entry, Leaderboard, LeaderboardCell, Standings

GIVEN = {"self_old": ("old", OLD, None), "self_independent": ("independent", INDEPENDENT, (5.0, 3.0))}
"""Names, colours and dashes of the given models of a cell."""


def cell_dots(results: Leaderboard, cell: LeaderboardCell, *, width: float = 340) -> alt.LayerChart:
    """Draw the ranking score of every label in a cell: each seed, the mean and the deviation.

    Lines mark the old system and the independent model. Labels are in the order of the leaderboard. A score far outside
    the others is named at the edge; labels without a score are marked as such.
    """
    board, name = results.board, results.board.ranked_by
    best = min((found.rank for found in cell.labels.values() if found.rank is not None), default=None)
    rows = [_label_row(results, cell, entry, best) for entry in board.labels]
    levels = [
        Level(words, cell.references[key].mean, colour, dashes=dashes, kind=key)
        for key, (words, colour, dashes) in GIVEN.items()
        if key in cell.references
    ]
    told = [f"{GIVEN[key][0] if key in GIVEN else key} {score(mean.mean)}" for key, mean in cell.references.items()]
    for entry in board.labels:
        mean = cell.labels[entry.label].means.get(name)
        told.append(f"{entry.label} {'without a score' if mean is None else with_deviation(name, mean)}")
    names = min(0.36 * width, max(width_of(row.name, 12.5) for row in rows) + 8)
    elsewhere = any(cell_headline(other, results)[1] for other in board.cells)
    axis = measure_name(name) + (f", {metric_names(results, cell)}" if len(results.metrics()) > 1 else "")
    headline, training = cell_headline(cell, results)
    return forest(
        f"{measure_name(name)} in {cell_name(cell, results)}", "; ".join(told) + ".", rows, _cell_reach(board, cell),
        axis, width=width, step=24, head=56 + 16 * elsewhere, names=names, numbers=52, about=3, levels=levels,
        letters=12.5, above=[(headline, 14, True), (training, 30, False)],
    )  # fmt: skip


def _label_row(results: Leaderboard, cell: LeaderboardCell, entry: Entry, best: float | None) -> Row:
    found, name = cell.labels[entry.label], results.board.ranked_by
    mean = found.means.get(name)
    if mean is None:
        return Row(marked(entry), instead="failed" if found.failed else "not run" if found.missing else "no score")
    seeds = [value for run in results.runs_of(cell, entry.label) if (value := run.numbers.get(name)) is not None]
    ends = None if mean.deviation is None else (mean.mean - mean.deviation, mean.mean + mean.deviation)
    first = found.rank is not None and found.rank == best
    hollow = entry.reference is not None
    note = f"{entry.label}: {with_deviation(name, mean)}"
    label = "best" if first else "mean"
    mark = Mark(mean.mean, ends, GOOD if first else INK, radius=4.4, hollow=hollow, note=note, kind=label)
    return Row(marked(entry), [mark], score(mean.mean), dots=seeds if len(seeds) > 1 else ())


def _cell_reach(board: Standings, cell: LeaderboardCell) -> Range:
    """Return the lowest and highest score to draw, over the given models and the labels that are not outliers.

    Outliers are more than four times as far from the best label as the median. They would compress the others.
    """
    means = [found for entry in board.labels if (found := cell.labels[entry.label].means.get(board.ranked_by))]
    given = [mean.mean for mean in cell.references.values()]
    if not means:
        return (min(given), max(given)) if given else (0.0, 1.0)
    lower = board.ranked_by in board.lower_is_better
    values = sorted((mean.mean for mean in means), reverse=not lower)
    reach = 4 * abs(values[0] - values[len(values) // 2]) or float("inf")
    near = [mean for mean in means if abs(mean.mean - values[0]) <= reach]
    low = min([*given, *(mean.mean - (mean.deviation or 0.0) for mean in near)])
    high = max([*given, *(mean.mean + (mean.deviation or 0.0) for mean in near)])
    room = 0.06 * (high - low) if len(near) < len(means) else 0.0  # room for arrows, beside the line of the old system
    return low - room * (not lower), high + room * lower
