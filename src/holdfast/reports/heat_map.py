"""The chart of a chain of models: the score of every generation's queries on every earlier gallery, as a heat map.

Drawings share a scale when they are given the same limits. Colours are those of `STYLE`, which a page puts beside its
own style; it needs the variables --paper, --ink, --soft and --faint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import DataError
from holdfast.reports.formats import score
from holdfast.reports.svg import chart, element, line, path, text, tick_label

MARK = "▲"
"""Beside a number: cross-test above the self-test of the older model."""

WRONG = "✗"
"""Beside a number, with an outline: cross-test not above the self-test of the older model."""

_LEFT, _TOP, _RIGHT, _BOTTOM = 28.0, 26.0, 2.0, 24.0
_LINE = 2.0  # room for outlines where there is no title
_TIGHT = 44.0
_ASPECT = 0.82  # height of a cell by its width
_FAINTEST = 0.1  # opacity of the lower end of the scale, so that its cells still show
_INK_FLIPS = 0.6  # share of the scale from which letters change colour: both keep a contrast of 4.4 in both schemes
_KEY_STEPS = 24

STYLE = """:root{--heat:#003058;--heat-ink:#000;--on-heat:#fff}
@media (prefers-color-scheme:dark){:root{--heat:#74b5dc;--heat-ink:#fff;--on-heat:#000}}
.heat{fill:var(--heat);shape-rendering:crispEdges}
.chart .heat-number,.chart .heat-mark{fill:var(--heat-ink);font-size:12.5px;font-variant-numeric:tabular-nums}
.chart .heat-mark{font-size:8px}
.chart .on-heat{fill:var(--on-heat)}
.heat-self{fill:none;stroke:var(--ink);stroke-width:1.4}
.heat-wrong{fill:none;stroke:var(--bad);stroke-width:2.6}
.chart .heat-mark.wrong{font-size:13px;font-weight:700}
.heat-none{stroke:var(--soft)}
@media print{.heat{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""


def heat_range(matrices: Iterable[ArrayLike]) -> tuple[float, float] | None:
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
    limits: tuple[float, float],
    *,
    what: str,
    marked: ArrayLike | None = None,
    mark: str = MARK,
    columns: Sequence[str] | None = None,
    form: Callable[[float], str] = score,
    width: float = 264,
) -> str:
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
    across = (width - _LEFT - _RIGHT) / count
    down, top = _ASPECT * across, _TOP if title else _LINE
    parts = []
    for i in range(count):
        y = top + i * down
        parts.append(text(_LEFT - 7, y + down / 2 + 4, names[i], "tick", "end"))
        for j in range(i + 1):
            value = values[i, j]
            words = form(value) if math.isfinite(value) else ""
            place = (_LEFT + j * across + 1, y + 1, across - 2, down - 2)
            own = i == j and columns is None
            parts += cell(*place, words, share_of(value, limits), marked=bool(marks[i, j]), mark=mark, own=own)
    bottom = top + count * down
    parts += [text(_LEFT + (j + 0.5) * across, bottom + 16, below[j], "tick", "middle") for j in range(count)]
    parts += [text(0, 15, title, "name")] if title else []
    told = _in_words(values, names, below, marks, form)
    return chart(width, bottom + _BOTTOM, f"{what} of {title}" if title else what, told, parts)


def heat_key(
    limits: tuple[float, float],
    what: str,
    *,
    mark_means: str = "",
    mark: str = MARK,
    own: bool = True,
    meanings: Sequence[str] = (),
    width: float = 640,
) -> str:
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
    low, high = limits
    bar, left, top = 168.0, 0.0, 22.0
    step = bar / _KEY_STEPS
    parts = [text(left, 13, what, "label")]
    for number in range(_KEY_STEPS):
        share = number / (_KEY_STEPS - 1)
        parts.append(_swatch(round(left + number * step, 2), top, step, 12, share))
    for value, at, anchor in ((low, left, "start"), (high, left + bar, "end")):
        parts.append(text(at, top + 27, _end(value), "tick", anchor))
    explained = [*meanings] or ["rows: generation of the queries; columns: of the gallery"]
    explained += ["outlined: queries and gallery of one generation"] if own and not meanings else []
    explained += [f"{mark}  {mark_means}"] if mark_means else []
    beside = width >= 480
    x, y = (bar + 36, 13.0) if beside else (0.0, 72.0)
    parts += [text(x, y + 18 * number, words, "label") for number, words in enumerate(explained)]
    height = max(56.0, 2.0 + 18 * len(explained)) if beside else 66.0 + 18 * len(explained)
    return chart(width, height, f"Scale of {what}", "; ".join([f"From {_end(low)} to {_end(high)}", *explained]), parts)


def cell(
    x: float,
    y: float,
    width: float,
    height: float,
    words: str,
    share: float,
    *,
    own: bool,
    marked: bool = False,
    mark: str = MARK,
    down: float = 7.0,
) -> list[str]:
    """Return one cell with its number, mark and outline; without a number a dash, or nothing on the diagonal.

    Args:
        x: Left edge.
        y: Upper edge.
        width: Width in pixels.
        height: Height in pixels.
        words: The number; a space draws none, nothing a dash.
        share: Of the colour scale, what `share_of` returned.
        own: Whether the cell is on the diagonal, and outlined.
        marked: Whether it has a mark.
        mark: Which one; see `heat_map`.
        down: Pixels from the middle to the foot of the number; the usual ones leave room for a mark.
    """
    centre, middle, right, bottom = (round(at, 2) for at in (x + width / 2, y + height / 2, x + width, y + height))
    x, y = round(x, 2), round(y, 2)
    if not words:
        return [] if own else [line(centre - 4, middle, centre + 4, middle, "heat-none")]
    over = " on-heat" if share >= _INK_FLIPS else ""
    parts = [_swatch(x, y, round(width, 2), round(height, 2), share)]
    parts.append(text(centre, middle + down, words, f"heat-number{over}", "middle"))
    wrong = marked and mark == WRONG
    if marked and not (wrong and width < _TIGHT):  # the outline says it where the number needs the room
        kind = f"heat-mark{' wrong' if wrong else ''}{over}"
        parts.append(text(right - (6 if wrong else 3), y + (15 if wrong else 9), mark, kind, "end"))
    if own or wrong:
        edge = [(x, y), (right, y), (right, bottom), (x, bottom), (x, y)]
        parts.append(path(edge, "heat-wrong" if wrong else "heat-self"))
    return parts


def _swatch(x: float, y: float, width: float, height: float, share: float) -> str:
    """Return a patch of the scale: the colour of heat over that of the paper."""
    return element(
        "rect",
        kind="heat",
        x=x,
        y=y,
        width=width,
        height=height,
        fill_opacity=round(_FAINTEST + (1 - _FAINTEST) * share, 3),
    )


def share_of(value: float, limits: tuple[float, float]) -> float:
    """Return where a value lies between two limits: 0 at the first or before it, 1 at the second or beyond."""
    low, high = limits
    return min(max((value - low) / ((high - low) or 1.0), 0.0), 1.0)


def _end(value: float) -> str:
    return tick_label(round(value, 3))


def _square(matrix: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(matrix, np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or values.size == 0:
        raise DataError(f"A matrix of shape {values.shape}.", expected="(models, models), at least one")
    return values


def _in_words(
    values: NDArray[np.float64],
    names: Sequence[str],
    below: Sequence[str],
    marks: NDArray[np.bool_],
    form: Callable[[float], str],
) -> str:
    rows = []
    for i, name in enumerate(names):
        cells = (
            f"{form(values[i, j])}{' (marked)' if marks[i, j] else ''} on {below[j]}"
            for j in range(i + 1)
            if math.isfinite(values[i, j])
        )
        rows.append(f"Queries of {name}: {', '.join(cells) or 'nothing measured'}")
    return "; ".join(rows) + "."
