"""The charts of a leaderboard: the score that ranks in every cell, and what arrives against what it costs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.bench.leaderboard import Board, BoardCell, CellMean, Entry, Leaderboard
from holdfast.reports.formats import score
from holdfast.reports.leaderboard_names import cell_headline, cell_name, measure_name, metric_names
from holdfast.reports.leaderboard_rank_plot import cut
from holdfast.reports.leaderboard_tables import marked, with_deviation
from holdfast.reports.p_plane import COMPARABLE, REACH, beyond, named_marks, plane_parts, plane_scales
from holdfast.reports.svg import (
    Scale,
    chart,
    line,
    marker,
    path,
    reaching,
    text,
    whisker,
    width_of,
    x_axis,
)

STYLE = """.seed{fill:var(--soft);opacity:.55}
.best-dot{fill:var(--good)}.whisker.best{stroke:var(--good)}
.beside-dot{fill:var(--paper);stroke:var(--ink);stroke-width:1.4;vector-effect:non-scaling-stroke}
.front{fill:none;stroke:var(--good);stroke-width:1.6;stroke-dasharray:6 3}
.whisker.faint{stroke:var(--soft);stroke-width:1}
"""

_ROW, _TOP, _LINE, _BOTTOM = 24.0, 54.0, 16.0, 42.0
_REFERENCES = {"self_old": "old", "self_independent": "independent"}
_FAR = 4.0  # labels this many times further from the best than the median is would flatten the others
_ROOM = 0.06
_MANY = 9  # labels whose names have room beside their marks


def cell_dots(results: Leaderboard, cell: BoardCell, *, width: float = 340) -> str:
    """Draw the score that ranks of every label in a cell: each seed, the mean and the deviation.

    Lines are the old system and the independent model. Labels are in the order of the board; one far below the others
    is an arrow at the edge, one without a score says so.
    """
    board, name = results.board, results.board.ranked_by
    shown = board.labels
    left, right = min(0.36 * width, max(width_of(marked(entry), 12.5) for entry in shown) + 8), width - 44
    x = reaching(*_extent(board, cell), left + 4, right - 8, 3)
    elsewhere = any(cell_headline(other, results)[1] for other in board.cells)
    top = _TOP + _LINE * elsewhere  # alike in all cells, which stand side by side
    bottom = top + _ROW * len(shown)
    measured = measure_name(name) + (f", {metric_names(results, cell)}" if len(results.metrics()) > 1 else "")
    parts = [x_axis(x, top - 6, bottom, measured, 3), *_reference_lines(cell, x, top, bottom)]
    best = min((found.rank for found in cell.labels.values() if found.rank is not None), default=None)
    for place, entry in enumerate(shown):
        seeds = _seeds(results, cell, entry)
        parts += _dot_row(board, cell, entry, seeds, x, top + _ROW * (place + 0.5), width, left, best)
    headline, training = cell_headline(cell, results)
    parts.append(text(0, 14, cut(headline, width, 13.5), "name"))
    parts += [text(0, 14 + _LINE, cut(training, width, 12.5), "label")] if training else []
    told = f"{measure_name(name)} in {cell_name(cell, results)}"
    return chart(width, bottom + _BOTTOM, told, _cell_in_words(board, cell), parts)


def _dot_row(
    board: Board,
    cell: BoardCell,
    entry: Entry,
    seeds: Sequence[float],
    x: Scale,
    y: float,
    width: float,
    left: float,
    best: float | None,
) -> list[str]:
    found, name = cell.labels[entry.label], board.ranked_by
    parts = [text(0, y + 4.5, cut(marked(entry), left - 4, 12.5), "row-name")]
    mean = found.means.get(name)
    if mean is None:
        words = "failed" if found.failed else "not run" if found.missing else "no score"
        return [*parts, text(x.start, y + 4, words, "far")]
    kind = "best" if found.rank is not None and found.rank == best else ""
    parts.append(text(width, y + 4.5, score(mean.mean), "number", "end"))
    if not x.low <= mean.mean <= x.high:
        below = mean.mean < x.low
        return [*parts, text(x.start if below else x.stop, y + 4, "◂" if below else "▸", "label", "middle")]
    parts += [marker(x(value), y, 0, "seed", 2.4) for value in seeds if len(seeds) > 1]
    if mean.deviation is not None:
        ends = (x(mean.mean - mean.deviation), x(mean.mean + mean.deviation))
        parts.append(whisker(*ends, y, f"whisker {kind}"))
    dot = "beside-dot" if entry.reference is not None else f"{kind or 'rank'}-dot"
    return [*parts, marker(x(mean.mean), y, 0, dot, 4.4, f"{entry.label}: {with_deviation(name, mean)}")]


def _seeds(results: Leaderboard, cell: BoardCell, entry: Entry) -> list[float]:
    """Return the score that ranks of every run of a label in a cell."""
    values = (run.numbers.get(results.board.ranked_by) for run in results.runs_of(cell, entry.label))
    return [value for value in values if value is not None]


def _reference_lines(cell: BoardCell, x: Scale, top: float, bottom: float) -> list[str]:
    """Draw the models that are given as lines, with their names above on two lines."""
    parts = []
    for place, (name, words) in enumerate(_REFERENCES.items()):
        if name in cell.references:
            at = x(cell.references[name].mean)
            parts.append(line(at, top - 6, at, bottom, f"reference {name}"))
            left = at > (x.start + x.stop) / 2
            parts.append(
                text(
                    at + (-4 if left else 4),
                    top - 23 + 12 * place,
                    words,
                    f"small reference-name {name}",
                    "end" if left else "start",
                )
            )
    return parts


def _extent(board: Board, cell: BoardCell) -> tuple[float, float]:
    """Return the lowest and highest score to draw: the given models, and the labels that are not far off."""
    name, ends = board.ranked_by, []
    for entry in board.labels:
        mean = cell.labels[entry.label].means.get(name)
        if mean is not None:
            around = mean.deviation or 0.0
            ends.append((mean.mean, mean.mean - around, mean.mean + around))
    given = [mean.mean for mean in cell.references.values()]
    if not ends:
        return (min(given), max(given)) if given else (0.0, 1.0)
    lower = name in board.lower_is_better
    means = sorted((mean for mean, *_ in ends), reverse=not lower)
    reach = _FAR * abs(means[0] - means[len(means) // 2]) or float("inf")
    near = [end for end in ends if abs(end[0] - means[0]) <= reach]
    low, high = min([*given, *(low for _, low, _ in near)]), max([*given, *(high for *_, high in near)])
    room = _ROOM * (high - low) if len(near) < len(ends) else 0.0  # for arrows, beside the line of the old system
    return low - room * (not lower), high + room * lower


def _cell_in_words(board: Board, cell: BoardCell) -> str:
    name = board.ranked_by
    told = [f"{_REFERENCES.get(key, key)} {score(mean.mean)}" for key, mean in cell.references.items()]
    for entry in board.labels:
        mean = cell.labels[entry.label].means.get(name)
        told.append(f"{entry.label} {'without a score' if mean is None else with_deviation(name, mean)}")
    return "; ".join(told) + "."


def pareto_plot(results: Leaderboard, *, width: float = 640, height: float = 420) -> str | None:
    """Draw P_up over P_comp, means over cells with deviations, and the front; None where no label has both.

    Marks beyond P_comp of -1 or 2, or P_up of 1, stand at the edge with their number. Many labels have their place in
    `pareto_points` instead of a name.
    """
    front, points = results.board.front, pareto_points(results)
    if front is None or not points:
        return None
    p_comp_ends = _near_ends([p_comp for p_comp, _ in points.values()], COMPARABLE)
    p_up_ends = _near_ends([p_up for _, p_up in points.values()], REACH)
    x, y = plane_scales([0.0, *p_comp_ends], [-0.05, *p_up_ends], width, height)
    words = {name: str(place) for place, name in enumerate(points, 1)} if numbered(points) else {}
    marks = []
    for name, (p_comp, p_up) in points.items():
        far = beyond(p_comp.mean, p_up.mean, x, y)
        marks.append((words.get(name, cut(name, width / 3)) + far, x(p_comp.mean), y(p_up.mean)))
    parts = [
        *plane_parts(x, y),
        _staircase([points[name] for name in front.labels], x, y),
        *(part for found in points.values() for part in _cross_hairs(*found, x, y)),
        *named_marks(marks, x, y, width),
    ]
    told = "; ".join(
        f"{name}: P_comp {with_deviation('p_comp', found[0])}, P_up {with_deviation('p_up', found[1])}"
        for name, found in points.items()
    )
    return chart(width, height, "Compatibility against quality kept", told + ".", parts)


def pareto_points(results: Leaderboard) -> dict[str, tuple[CellMean, CellMean]]:
    """Return P_comp and P_up of the labels that have both, in the order of the board."""
    found = ((entry.label, entry.means.get("p_comp"), entry.means.get("p_up")) for entry in results.board.labels)
    return {label: (p_comp, p_up) for label, p_comp, p_up in found if p_comp and p_up}


def numbered(points: Collection[str]) -> bool:
    """Return whether marks have numbers: so many names would cover each other."""
    return len(points) > _MANY


def _near_ends(means: Sequence[CellMean], limits: tuple[float, float]) -> list[float]:
    """Return where the deviations end of the means that are within the limits."""
    return [end for mean in means if limits[0] <= mean.mean <= limits[1] for end in _ends(mean)]


def _ends(mean: CellMean) -> tuple[float, float]:
    around = mean.deviation or 0.0
    return mean.mean - around, mean.mean + around


def _staircase(front: Sequence[tuple[CellMean, CellMean]], x: Scale, y: Scale) -> str:
    """Draw the border of what the labels of the front beat."""
    corners = sorted({(p_comp.mean, p_up.mean) for p_comp, p_up in front})
    points = [(x.start, y(corners[0][1]))]
    for (p_comp, p_up), (_, following) in zip(corners, [*corners[1:], (0.0, y.low)], strict=True):
        points += [(x(p_comp), y(p_up)), (x(p_comp), y(following))]
    return path(points, "front")


def _cross_hairs(p_comp: CellMean, p_up: CellMean, x: Scale, y: Scale) -> list[str]:
    """Draw the deviations of a mark, sideways and up and down."""
    at, up = x(p_comp.mean), y(p_up.mean)
    parts = []
    if p_comp.deviation is not None:
        parts.append(line(x(_ends(p_comp)[0]), up, x(_ends(p_comp)[1]), up, "whisker faint"))
    if p_up.deviation is not None:
        parts.append(line(at, y(_ends(p_up)[0]), at, y(_ends(p_up)[1]), "whisker faint"))
    return parts
