"""The charts of learners compared in sessions: how well they find, and what becomes of classes that grow old.

A learner keeps its colour and shape in all charts. Colours are those of the page and of `STYLE`, which a page puts
beside its own style together with those of heat maps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast.continual.results import LearnerResults, SessionsResults
from holdfast.reports.charts.lines import tick_step
from holdfast.reports.formats import score
from holdfast.reports.heat_map import cell, share_of
from holdfast.reports.svg import chart, text, width_of

_LETTERS = 12.5  # height of the letters of a number
_MAP_LEFT, _MAP_BOTTOM = 26.0, 22.0
_ASPECT, _HIGHEST = 0.78, 34.0  # height of a cell by its width, and at most


def recall_map(name: str, learner: LearnerResults, limits: tuple[float, float], *, width: float = 340) -> str:
    """Draw recall@1 of the classes of every session (columns) after every session (rows).

    Cells on the diagonal, the classes of the session itself, are outlined; a group of which nothing was asked although
    it was known is a dash. Numbers that do not fit are left out.

    Args:
        name: The learner.
        learner: Its results.
        limits: Ends of the colour scale, the same for learners beside each other.
        width: Width in pixels.
    """
    rows = learner.recall_by_age
    groups = max(1, len(rows[0]))
    across = (width - _MAP_LEFT - 2) / groups
    down = min(_ASPECT * across, _HIGHEST)
    bottom = len(rows) * down + 2
    parts = []
    for i in range(0, len(rows), max(1, math.ceil(16 / down))):
        parts.append(text(_MAP_LEFT - 7, round((i + 0.5) * down + 6, 2), str(i + 1), "tick", "end"))
    for j in range(0, groups, tick_step(groups, across)):
        parts.append(
            text(round(_MAP_LEFT + (j + 0.5) * across, 2), round(bottom + 15, 2), str(j + 1), "tick", "middle")
        )
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            parts += _map_cell(value, i, j, (across, down), limits)
    title = f"Recall@1 by class age of {name}"
    return chart(width, round(bottom + _MAP_BOTTOM, 2), title, _map_in_words(rows), parts)


def _map_cell(value: float | None, i: int, j: int, size: tuple[float, float], limits: tuple[float, float]) -> list[str]:
    """Return a cell, with its number where that fits; nothing for a group that is not yet known."""
    across, down = size
    place = (_MAP_LEFT + j * across + 1, i * down + 3, across - 2, down - 2)
    if value is None:
        return cell(*place, "", 0.0, own=False) if j <= i else []
    words = two_digits(value) if width_of("0.00", _LETTERS) <= across - 2 else " "
    return cell(*place, words, share_of(value, limits), own=i == j, down=4.5)


def two_digits(value: float) -> str:
    """Write a fraction briefly, as fits a cell.

    >>> two_digits(0.7431), two_digits(0.0), two_digits(0.998)
    ('0.74', '0.00', '1.00')
    """
    return f"{value:.2f}"


def _map_in_words(rows: Sequence[Sequence[float | None]]) -> str:
    told = []
    for number, row in enumerate(rows, start=1):
        groups = (f"{score(value)} of session {place}" for place, value in enumerate(row, start=1) if value is not None)
        told.append(f"After session {number}, classes {', '.join(groups) or 'none'}")
    return f"{'; '.join(told)}."


def recall_range(results: SessionsResults) -> tuple[float, float]:
    """Return the lowest and the highest recall@1 of any group of classes, so that maps share one scale."""
    values = [
        value
        for learner in results.learners.values()
        for row in learner.recall_by_age
        for value in row
        if value is not None
    ]
    return (min(values), max(values)) if values else (0.0, 1.0)
