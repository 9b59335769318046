"""Recall over sessions."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from limpet.reports.charts.canvas import (
    INK,
    PAPER,
    SERIES,
    SOFT,
    Chart,
    round_ticks,
    swatch,
)
from limpet.reports.formats import score
from limpet.reports.svg import shortened, width_of

if TYPE_CHECKING:
    from limpet_bench.sessions.results import LearnerResults, SessionsResults
from limpet.reports.charts.lines import spread, tick_step
from limpet.reports.charts.shapes import Dashes

_LINE, _TIE, _LETTERS = 16.0, 20.0, 12.5  # from one name to the next, from a line to its name, height of letters


class Look(NamedTuple):
    """How a learner is drawn in all charts.

    Args:
        colour: Of its line and marks.
        dashes: Of its line.
        shape: Of its marks; None has no marks: a bound.
    """

    colour: str
    dashes: Dashes
    shape: int | None


def looks(results: SessionsResults) -> dict[str, Look]:
    """Return how every learner is drawn; bounds as black lines, others by their place in the results.

    Of 42 learners no two have both colour and shape alike.
    """
    bounds = {"lower": Look(INK, (1.5, 4), None), "upper": Look(INK, (8, 3), None)}
    found = {name: bounds[side] for name, side in results.bounds.by_name().items()}
    for number, name in enumerate(name for name in results.learners if name not in found):
        second = number // len(SERIES) % 2
        found[name] = Look(SERIES[number % len(SERIES)], (7, 3) if second else None, number % 6)
    return found


@cache
def learner_swatch(look: Look) -> str:
    """Return the line and the mark of a learner for a legend."""

    def draw(chart: Chart) -> None:
        chart.line([0, 26], [6, 6], look.colour, 1.8, look.dashes)
        if look.shape is not None:
            chart.mark(13, 6, look.shape, look.colour, 4.2, edge=PAPER)

    return swatch(draw)


def recall_lines(results: SessionsResults, *, width: float = 640) -> Chart:
    """Draw recall@1 after every session, a line per learner with its name at the end.

    Between the bounds, where both are known, lies a band. The learner that comes first of those that are no bounds
    has a thicker line. Where names do not fit below each other, none is written: a legend is needed anyway.
    """
    done, drawn = results.done, looks(results)
    series = {name: recall_series(learner) for name, learner in results.best_first().items()}
    roles = {name: f", the {side} bound" for name, side in results.bounds.by_name().items()}
    told = "; ".join(f"{name}{roles.get(name, '')}: {', '.join(map(score, values))}" for name, values in series.items())
    height = max(400.0 if width >= 480 else 350.0, min(560.0, 76 + _LINE * len(series)))
    named = _LINE * (len(series) - 1) <= height - 76
    room = min(max(width_of(name, _LETTERS) for name in series), 0.3 * width) if named else 0.0
    ends = [value for values in series.values() for value in values]
    ticks, right = round_ticks(min(ends), max(ends)), max(12.0, room and room + _TIE + 4)
    edge = 8 / (width - 40 - right) * max(1, done - 1)
    x = (1.0 - edge, float(done)) if done > 1 else (0.0, 2.0)
    chart = Chart(
        "Recall@1 after every session", f"After sessions 1 to {done}. {told}.",
        (width, height), (40, 32, right, 44), x, (ticks[0], ticks[-1]),
    )  # fmt: skip
    chart.y_axis(ticks, "recall@1; further up is better ↑")
    sessions, step = range(1, done + 1), tick_step(done, (width - 48 - right) / max(1, done - 1))
    chart.x_axis(sessions, "after session", labels=["" if (n - 1) % step else str(n) for n in sessions])
    bounds = results.bounds
    if bounds.lower is not None and bounds.upper is not None:
        between = (series[bounds.lower], series[bounds.upper])
        chart.area(sessions, *between, SOFT, 0.1, label="between")
    led = next((name for name in series if drawn[name].shape is not None), None)
    for name in reversed(series):
        look, values = drawn[name], series[name]
        chart.line(sessions, values, look.colour, 3.2 if name == led else 1.8, look.dashes, label=f"track {name}")
        for number, value in enumerate(values, start=1):
            if look.shape is not None:
                note, radius = f"{name}, session {number}: {score(value)}", 5.4 if name == led else 4.6
                chart.mark(number, value, look.shape, look.colour, radius, edge=PAPER, note=note, label=name)
    if named:
        places = spread([chart.down(values[-1]) for values in series.values()], _LINE, chart.top, chart.bottom)
        for (name, values), place in zip(series.items(), places, strict=True):
            beside, up = chart.value(width - right + _TIE - 4, place)
            start = chart.value(chart.at(done) + 6, 0)[0]
            chart.line([start, beside], [values[-1], up], drawn[name].colour, 1.0, label="tie")
            at, words = width - right + _TIE, shortened(name, room, _LETTERS)
            chart.write(at, up, words, across="page", shift=(0, -4), size=_LETTERS, bold=name == led, label="line name")
    return chart


def recall_series(learner: LearnerResults) -> list[float]:
    """Return recall@1 after every session."""
    return [session.recall["1"] for session in learner.sessions]
