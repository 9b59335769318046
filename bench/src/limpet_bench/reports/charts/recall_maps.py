"""Heat map of the recall of the classes of every session, after every session."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from limpet.reports.formats import score
from limpet.reports.plots.frame import Frame, Range
from limpet.reports.plots.heat import cells_of, share_of_scale
from limpet.reports.plots.style import SOFT, width_of

if TYPE_CHECKING:
    import altair as alt

    from limpet_bench.sessions.results import LearnerResults, SessionsResults


def recall_map(name: str, learner: LearnerResults, limits: Range, *, width: float = 340) -> alt.LayerChart:
    """Draw recall@1 of the classes of every session (columns) after every session (rows).

    Cells on the diagonal, the classes of the session itself, are outlined. A dash marks known classes without queries.
    Numbers that do not fit are left out.
    """
    rows, left = learner.recall_by_age, 26.0
    groups, told = max(1, len(rows[0])), []
    for number, row in enumerate(rows, start=1):
        known = (f"{score(value)} of session {place}" for place, value in enumerate(row, start=1) if value is not None)
        told.append(f"After session {number}, classes {', '.join(known) or 'none'}")
    across = (width - left - 2) / groups
    down = min(0.78 * across, 34.0)
    inner, count = len(rows) * down, len(rows)
    frame = Frame(width, inner + 24, (left, 2, 2, 22), (0, groups), (count, 0))
    fits = width_of("0.00", 12.5) <= across - 2
    cells = [
        {"column": j, "row": i, "text": "" if value is None else f"{value:.2f}" if fits else " ",
         "share": share_of_scale(value or 0.0, limits), "own": i == j and value is not None, "mark": ""}
        for i, row in enumerate(rows)
        for j, value in enumerate(row)
        if value is not None or j <= i
    ]  # fmt: skip
    step = max(1, math.ceil((width_of(str(groups), 12) + 4) / across))
    afters = [
        {"x": frame.x_at(left - 7), "y": i + 0.5, "text": str(i + 1)} for i in range(0, count, math.ceil(16 / down))
    ]
    classes = [{"x": j + 0.5, "y": count, "text": str(j + 1)} for j in range(0, groups, step)]
    return frame.chart(f"Recall@1 by class age of {name}", f"{'; '.join(told)}.", [
        frame.axes(),
        frame.text(afters, "row names", size=12, colour=SOFT, align="right", dy=4),
        frame.text(classes, "column names", size=12, colour=SOFT, align="center", dy=14),
        *cells_of(frame, cells, dy=4.5),
    ])  # fmt: skip


def recall_range(results: SessionsResults) -> Range:
    """Return the lowest and the highest recall@1 of any group of classes, for one common scale."""
    rows = (row for learner in results.learners.values() for row in learner.recall_by_age)
    values = [value for row in rows for value in row if value is not None]
    return (min(values), max(values)) if values else (0.0, 1.0)
