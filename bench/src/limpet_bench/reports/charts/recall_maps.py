"""Recall of the classes of every session after every session, as a heat map."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from limpet.reports.charts.canvas import SOFT, Chart
from limpet.reports.charts.lines import tick_step
from limpet.reports.formats import score
from limpet.reports.svg import width_of

if TYPE_CHECKING:
    from limpet_bench.sessions.results import LearnerResults, SessionsResults
from limpet.reports.charts.matrix import Limits, cell, pixels, share


def recall_map(name: str, learner: LearnerResults, limits: Limits, *, width: float = 340) -> Chart:
    """Draw recall@1 of the classes of every session (columns) after every session (rows).

    Cells on the diagonal, the classes of the session itself, are outlined; a group of which nothing was asked although
    it was known is a dash. Numbers that do not fit are left out.

    Args:
        name: The learner.
        learner: Its results.
        limits: Ends of the colour scale, the same for learners beside each other.
        width: Width in pixels.
    """
    rows, left = learner.recall_by_age, 26.0
    groups, told = max(1, len(rows[0])), []
    for number, row in enumerate(rows, start=1):
        known = (f"{score(value)} of session {place}" for place, value in enumerate(row, start=1) if value is not None)
        told.append(f"After session {number}, classes {', '.join(known) or 'none'}")
    across = (width - left - 2) / groups
    down = min(0.78 * across, 34.0)
    bottom = len(rows) * down + 2
    chart = pixels(f"Recall@1 by class age of {name}", f"{'; '.join(told)}.", (width, bottom + 22))
    for i in range(0, len(rows), max(1, math.ceil(16 / down))):
        chart.write(left - 7, (i + 0.5) * down + 6, str(i + 1), size=12, colour=SOFT, align="right", label="row")
    for j in range(0, groups, tick_step(groups, across)):
        at = left + (j + 0.5) * across
        chart.write(at, bottom + 15, str(j + 1), size=12, colour=SOFT, align="center", label="column")
    fits = width_of("0.00", 12.5) <= across - 2
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            place = (left + j * across + 1, i * down + 3, across - 2, down - 2)
            if value is not None:
                words = f"{value:.2f}" if fits else " "
                cell(chart, place, words, share(value, limits), own=i == j, down=4.5)
            elif j <= i:
                cell(chart, place, "", 0.0, own=False)
    return chart


def recall_range(results: SessionsResults) -> Limits:
    """Return the lowest and the highest recall@1 of any group of classes, so that maps share one scale."""
    rows = (row for learner in results.learners.values() for row in learner.recall_by_age)
    values = [value for row in rows for value in row if value is not None]
    return (min(values), max(values)) if values else (0.0, 1.0)
