"""Heat maps: the scores of every generation's queries on its own and every earlier gallery."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import ArrayLike, NDArray

from limpet.errors import DataError
from limpet.reports.formats import score
from limpet.reports.plots.frame import Frame, Range, as_it_is, layer_of
from limpet.reports.plots.style import BAD, HEAT, HEAT_INK, INK, ON_HEAT, SOFT, tick_label

__all__ = ["cells_of", "heat_key", "heat_map", "heat_range", "marked_by_criterion", "share_of_scale"]

MARK = "▲"
"""Mark beside a number: the cross-test is above the self-test of the older model."""

WRONG = "✗"
"""Mark beside a number, with an outline: the cross-test is not above the self-test of the older model."""

_LEFT, _BOTTOM = 28.0, 24.0
_TIGHT = 44.0  # pixels; in narrower cells the mark would cover the number
_FAINTEST = 0.1  # opacity of the lower end of the scale, so that its cells are visible
_INK_FLIPS = 0.6  # share of the scale from which text changes colour; contrast is at least 4.4 in both colour schemes

Layers = list[alt.Chart | None]


def heat_range(matrices: Iterable[ArrayLike]) -> Range | None:
    """Return the lowest and highest finite entry of several matrices; None if no entry is finite.

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
    limits: Range,
    *,
    what: str,
    marked: ArrayLike | None = None,
    mark: str = MARK,
    columns: Sequence[str] | None = None,
    form: Callable[[float], str] = score,
    width: float = 264,
) -> alt.LayerChart:
    """Draw the lower triangle of a matrix of generations; rows are queries, columns galleries.

    Args:
        title: Name of the chain; empty if the page shows it.
        matrix: Scores (T, T); entries above the diagonal are not read. An entry that is not finite is drawn as a dash;
            on the diagonal nothing is drawn, for numbers that compare two generations.
        names: Short names of the generations, oldest first.
        limits: Ends of the colour scale, such as `heat_range` of all maps on a page; values outside have the colour of
            the nearer end.
        what: Name of the numbers, for the text alternative.
        marked: Cells to mark, bool (T, T); None marks none.
        mark: `MARK`; or `WRONG`, which also outlines the cell.
        columns: Names of the galleries if they differ from those of the rows; the diagonal is then not outlined.
        form: Function that formats a number.
        width: Width in pixels, divided among the cells.

    Raises:
        DataError: The matrix is not square, or names or marks do not fit its size.
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
    frame = Frame(width, top + count * down + _BOTTOM, (_LEFT, top, 2, _BOTTOM), (0, count), (count, 0))
    rows = [
        {"column": j, "row": i, "text": form(values[i, j]) if math.isfinite(values[i, j]) else "",
         "share": share_of_scale(values[i, j], limits), "own": i == j and columns is None,
         "mark": mark if marks[i, j] else ""}
        for i in range(count)
        for j in range(i + 1)
    ]  # fmt: skip
    start = frame.x_at(_LEFT - 7)
    return frame.chart(f"{what} of {title}" if title else what, f"{'; '.join(told)}.", [
        frame.axes(),
        frame.text([{"x": frame.x_at(0), "y": frame.y_at(15), "text": title}], "title", bold=True),
        frame.text(
            [{"x": start, "y": i + 0.5, "text": name} for i, name in enumerate(names)],
            "row names", size=12, colour=SOFT, align="right", dy=4,
        ),
        frame.text(
            [{"x": j + 0.5, "y": count, "text": name} for j, name in enumerate(below)],
            "column names", size=12, colour=SOFT, align="center", dy=16,
        ),
        *cells_of(frame, rows),
    ])  # fmt: skip


def cells_of(frame: Frame, rows: Sequence[dict[str, Any]], *, dy: float = 7.0) -> Layers:
    """Draw cells with numbers, marks and outlines; a cell with an empty text is a dash, or nothing on the diagonal.

    Args:
        frame: Frame whose axes count columns and rows.
        rows: Cells with "column", "row", "text" (a space fills the cell without a number), "share" of the colour scale,
            "own" (whether it is on the diagonal), and "mark".
        dy: Pixels from the middle of a cell to the baseline of its number; the default leaves room for a mark.
    """
    wide, high = (abs(size / (ends[1] - ends[0])) for size, ends in zip(frame.inner, (frame.x, frame.y), strict=True))
    gap, tall = 1 / wide, 1 / high
    filled = [
        {"x": row["column"] + gap, "x2": row["column"] + 1 - gap, "y": row["row"] + tall, "y2": row["row"] + 1 - tall,
         "opacity": round(_FAINTEST + (1 - _FAINTEST) * row["share"], 3), "value": row["text"]}
        for row in rows
        if row["text"]
    ]  # fmt: skip
    layers: Layers = []
    if filled:
        layers.append(_heated(frame, filled, "cells"))
    for name, chosen, edge, line in (
        ("own", [row["own"] for row in rows if row["text"]], INK, 1.4),
        ("wrong", [row["mark"] == WRONG for row in rows if row["text"]], BAD, 2.6),
    ):
        outlined = [
            {key: found for key, found in cell.items() if key in ("x", "x2", "y", "y2")}
            for cell, which in zip(filled, chosen, strict=True)
            if which
        ]
        layers.append(frame.boxes(outlined, name, opacity=0.0, edge=edge, line=line))
    numbers = [
        {"x": row["column"] + 0.5, "y": row["row"] + 0.5, "text": row["text"].strip(), "colour": _ink(row["share"])}
        for row in rows
    ]
    layers.append(frame.text(numbers, "numbers", size=12.5, align="center", dy=dy, halo=False))
    for wrong in (False, True):
        corner = (6, 15) if wrong else (3, 9)
        marks = [
            {"x": row["column"] + 1 - gap, "y": row["row"] + tall, "text": row["mark"], "colour": _ink(row["share"])}
            for row in rows
            if row["text"] and (row["mark"] == WRONG) == wrong and not (wrong and wide - 2 < _TIGHT)
        ]  # in narrow cells the outline alone shows it
        look: dict[str, Any] = {"size": 13 if wrong else 8, "bold": wrong, "halo": False, "align": "right"}
        layers.append(frame.text(marks, "wrong marks" if wrong else "marks", dx=-corner[0], dy=corner[1], **look))
    none = [
        {
            "x": row["column"] + 0.5 - 4 * gap,
            "x2": row["column"] + 0.5 + 4 * gap,
            "y": row["row"] + 0.5,
            "y2": row["row"] + 0.5,
        }
        for row in rows
        if not row["text"] and not row["own"]
    ]
    return [*layers, frame.rules(none, "none", width=1)]


def heat_key(
    limits: Range,
    what: str,
    *,
    mark_means: str = "",
    mark: str = MARK,
    own: bool = True,
    meanings: Sequence[str] = (),
    width: float = 640,
) -> alt.LayerChart:
    """Draw the colour scale of heat maps, with the meaning of outlines and marks.

    Args:
        limits: Ends of the colour scale of the maps.
        what: Name of the numbers.
        mark_means: Meaning of the mark; empty explains no mark.
        mark: Mark of the maps.
        own: Whether the maps have an outlined diagonal.
        meanings: Lines that explain rows, columns and outlines, if they are not those of generations.
        width: Width in pixels; below 480 the explanations are below the scale, else beside it.
    """
    explained = [*meanings] or ["rows: generation of the queries; columns: of the gallery"]
    explained += ["outlined: queries and gallery of one generation"] if own and not meanings else []
    explained += [f"{mark}  {mark_means}"] if mark_means else []
    low, high = (tick_label(round(end, 3)) for end in limits)
    beside, bar, steps = width >= 480, 168.0, 24
    height = max(56.0, 2.0 + 18 * len(explained)) if beside else 66.0 + 18 * len(explained)
    frame = Frame(width, height, (0, 0, 0, 0), (0.0, width), (height, 0.0))
    scale = [
        {"x": number * bar / steps, "x2": (number + 1) * bar / steps, "y": 22, "y2": 34,
         "opacity": round(_FAINTEST + (1 - _FAINTEST) * number / (steps - 1), 3)}
        for number in range(steps)
    ]  # fmt: skip
    x, y = (bar + 36, 13.0) if beside else (0.0, 72.0)
    lines = [{"x": x, "y": y + 18 * number, "text": words} for number, words in enumerate(explained)]
    small: dict[str, Any] = {"size": 12, "colour": SOFT}
    return frame.chart(f"Scale of {what}", "; ".join([f"From {low} to {high}", *explained]), [
        frame.axes(),
        _heated(frame, scale, "scale"),
        frame.text([{"x": 0, "y": 13, "text": what}, {"x": 0, "y": 49, "text": low}, *lines], "words", **small),
        frame.text([{"x": bar, "y": 49, "text": high}], "high", align="right", **small),
    ])  # fmt: skip


def _heated(frame: Frame, rows: Sequence[dict[str, Any]], name: str) -> alt.Chart:
    opacity = as_it_is("opacity", "quantitative")
    return layer_of(rows, name, {"type": "rect", "fill": HEAT}, {**frame.between(), "fillOpacity": opacity})


def share_of_scale(value: float, limits: Range) -> float:
    """Return the position of a value between two limits, clipped to [0, 1]; 0 for a value that is not finite."""
    low, high = limits
    return min(max((value - low) / ((high - low) or 1.0), 0.0), 1.0) if math.isfinite(value) else 0.0


def _ink(share: float) -> str:
    return ON_HEAT if share >= _INK_FLIPS else HEAT_INK


def _square(matrix: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(matrix, np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or values.size == 0:
        raise DataError(f"A matrix of shape {values.shape}.", expected="(models, models), at least one")
    return values
