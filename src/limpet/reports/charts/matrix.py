"""Heat maps: the score of every generation's queries on every earlier gallery, and recall of classes by their age."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limpet.errors import DataError
from limpet.reports.charts.canvas import BAD, HEAT, HEAT_INK, INK, ON_HEAT, SOFT, Chart
from limpet.reports.formats import score
from limpet.reports.svg import tick_label

if TYPE_CHECKING:
    pass

Limits = tuple[float, float]

MARK = "▲"
"""Beside a number: cross-test above the self-test of the older model."""

WRONG = "✗"
"""Beside a number, with an outline: cross-test not above the self-test of the older model."""

_LEFT, _BOTTOM = 28.0, 24.0
_TIGHT = 44.0  # width of a cell below which its number needs the room of the mark
_FAINTEST = 0.1  # opacity of the lower end of the scale, so that its cells still show
_INK_FLIPS = 0.6  # share of the scale from which letters change colour: both keep a contrast of 4.4 in both schemes


def heat_range(matrices: Iterable[ArrayLike]) -> Limits | None:
    """Return the lowest and highest finite entry of several matrices; None where there is none.

    >>> heat_range([[[0.5, float("nan")], [0.25, 0.75]]])
    (0.25, 0.75)
    """
    values = np.concatenate([np.asarray(matrix, np.float64).ravel() for matrix in matrices] or [np.empty(0)])
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) else None


def marked_by_criterion(matrix: ArrayLike) -> NDArray[np.bool_]:
    """Return which pairs i > j of a compatibility matrix are compatible: M[i, j] > M[j, j], strictly.

    >>> marked_by_criterion([[0.5, 0.0], [0.6, 0.8]]).tolist()
    [[False, False], [True, False]]
    """
    scores = _square(matrix)
    marked: NDArray[np.bool_] = np.tril(scores > np.diag(scores), -1)
    return marked


def heat_map(
    title: str,
    matrix: ArrayLike,
    names: Sequence[str],
    limits: Limits,
    *,
    what: str,
    marked: ArrayLike | None = None,
    mark: str = MARK,
    columns: Sequence[str] | None = None,
    form: Callable[[float], str] = score,
    width: float = 264,
) -> Chart:
    """Draw the lower triangle of a matrix of generations; rows are queries, columns galleries.

    Args:
        title: Whose chain it is; empty where the page says so.
        matrix: (T, T); what is above the diagonal is not read. An entry that is not finite is a dash, or nothing on the
            diagonal, for numbers that compare two generations.
        names: Short names of the generations, oldest first.
        limits: Ends of the colour scale, such as `heat_range` of all matrices beside each other; values outside have
            the colour of the end.
        what: Name of the numbers, for the text alternative.
        marked: (T, T) bool, cells to mark; none when left out.
        mark: `MARK`, or `WRONG`, which outlines the cell too.
        columns: Names of the galleries where they are not those of the rows; the diagonal is then like all cells.
        form: Writes a number.
        width: Width in pixels; a cell is as wide as fits.

    Raises:
        DataError: The matrix is not square, or names or marks are not of its size.
    """
    values = _square(matrix)
    marks = np.zeros(values.shape, bool) if marked is None else np.asarray(marked, bool)
    count = len(values)
    below = names if columns is None else columns
    if not len(names) == len(below) == count or marks.shape != values.shape:
        raise DataError(
            f"{len(names)} and {len(below)} names and marks of shape {marks.shape} for a matrix of {values.shape}.",
            expected="one name per generation, one mark per cell",
        )
    told = []
    for i, name in enumerate(names):
        cells = (
            f"{form(values[i, j])}{' (marked)' if marks[i, j] else ''} on {below[j]}"
            for j in range(i + 1)
            if math.isfinite(values[i, j])
        )
        told.append(f"Queries of {name}: {', '.join(cells) or 'nothing measured'}")
    across, top = (width - _LEFT - 2) / count, 26.0 if title else 2.0
    down = 0.82 * across
    bottom = top + count * down
    chart = pixels(f"{what} of {title}" if title else what, f"{'; '.join(told)}.", (width, bottom + _BOTTOM))
    if title:
        chart.write(0, 15, title, bold=True)
    for i, name in enumerate(names):
        y = top + i * down
        chart.write(_LEFT - 7, y + down / 2 + 4, name, size=12, colour=SOFT, align="right", label="row")
        chart.write(
            _LEFT + (i + 0.5) * across, bottom + 16, below[i], size=12, colour=SOFT, align="center", label="column"
        )
        for j in range(i + 1):
            words = form(values[i, j]) if math.isfinite(values[i, j]) else ""
            place = (_LEFT + j * across + 1, y + 1, across - 2, down - 2)
            own, with_mark = i == j and columns is None, mark if marks[i, j] else ""
            cell(chart, place, words, share(values[i, j], limits), own=own, mark=with_mark)
    return chart


def pixels(title: str, told: str, size: tuple[float, float]) -> Chart:
    """Return a chart whose values are pixels from its upper left corner."""
    return Chart(title, told, size, (0, 0, 0, 0), (0.0, size[0]))


def cell(
    chart: Chart,
    place: tuple[float, float, float, float],
    words: str,
    share: float,
    *,
    own: bool,
    mark: str = "",
    down: float = 7.0,
) -> None:
    """Draw one cell with its number, mark and outline; without a number a dash, or nothing on the diagonal.

    Args:
        chart: Where to draw.
        place: Left and upper edge, width and height in pixels.
        words: The number; a space draws none, nothing a dash.
        share: Of the colour scale.
        own: Whether the cell is on the diagonal, and outlined.
        mark: Which mark it has, if any.
        down: Pixels from the middle to the foot of the number; the usual ones leave room for a mark.
    """
    x, y, width, height = place
    if not words:
        if not own:
            middle = (x + width / 2, y + height / 2)
            chart.line([middle[0] - 4, middle[0] + 4], [middle[1]] * 2, SOFT, label="none")
        return
    colour, wrong = ON_HEAT if share >= _INK_FLIPS else HEAT_INK, mark == WRONG
    outline, line = (BAD, 2.6) if wrong else (INK, 1.4) if own else (None, 0.0)
    chart.box(*place, HEAT, alpha=round(_FAINTEST + (1 - _FAINTEST) * share, 3), label="cell")
    if outline:
        chart.box(*place, HEAT, alpha=0.0, edge=outline, line=line, label="wrong" if wrong else "own")
    if words.strip():
        at = (x + width / 2, y + height / 2 + down)
        chart.write(*at, words, size=12.5, colour=colour, align="center", label="number")
    if mark and not (wrong and width < _TIGHT):  # the outline says it where the number needs the room
        size, corner = (13.0, (6, 15)) if wrong else (8.0, (3, 9))
        at = (x + width - corner[0], y + corner[1])
        chart.write(*at, mark, size=size, colour=colour, align="right", bold=wrong, label="mark")


def heat_key(
    limits: Limits,
    what: str,
    *,
    mark_means: str = "",
    mark: str = MARK,
    own: bool = True,
    meanings: Sequence[str] = (),
    width: float = 640,
) -> Chart:
    """Draw the colour scale of heat maps, with the meaning of outlines and marks.

    Args:
        limits: What the maps were given.
        what: Name of the numbers.
        mark_means: What a mark says; no mark is explained when left out.
        mark: What the maps were given.
        own: Whether the maps have a diagonal, outlined cells.
        meanings: What rows, columns and outlines are, where they are not generations; a line each.
        width: Width in pixels; on a narrow one the explanations stand below each other.
    """
    explained = [*meanings] or ["rows: generation of the queries; columns: of the gallery"]
    explained += ["outlined: queries and gallery of one generation"] if own and not meanings else []
    explained += [f"{mark}  {mark_means}"] if mark_means else []
    low, high = (tick_label(round(end, 3)) for end in limits)
    beside, bar, steps = width >= 480, 168.0, 24
    height = max(56.0, 2.0 + 18 * len(explained)) if beside else 66.0 + 18 * len(explained)
    chart = pixels(f"Scale of {what}", "; ".join([f"From {low} to {high}", *explained]), (width, height))
    chart.write(0, 13, what, size=12, colour=SOFT)
    for number in range(steps):
        alpha = round(_FAINTEST + (1 - _FAINTEST) * number / (steps - 1), 3)
        chart.box(number * bar / steps, 22, bar / steps, 12, HEAT, alpha=alpha, label="cell", crisp=True)
    chart.write(0, 49, low, size=12, colour=SOFT)
    chart.write(bar, 49, high, size=12, colour=SOFT, align="right")
    x, y = (bar + 36, 13.0) if beside else (0.0, 72.0)
    for number, words in enumerate(explained):
        chart.write(x, y + 18 * number, words, size=12, colour=SOFT)
    return chart


def share(value: float, limits: Limits) -> float:
    """Return where a value lies between two limits: 0 at the first or before it, 1 at the second or beyond."""
    low, high = limits
    return min(max((value - low) / ((high - low) or 1.0), 0.0), 1.0)


def _square(matrix: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(matrix, np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or values.size == 0:
        raise DataError(f"A matrix of shape {values.shape}.", expected="(models, models), at least one")
    return values
