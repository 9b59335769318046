"""Chart of recall over sessions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from limpet.reports.formats import score
from limpet.reports.plots.frame import Frame
from limpet.reports.plots.style import INK, PAPER, SERIES, SOFT, Dashes, round_ticks, shape_of, shortened, width_of
from limpet.reports.plots.swatches import line, mark, swatch

if TYPE_CHECKING:
    import altair as alt

    from limpet_bench.sessions.results import LearnerResults, SessionsResults

_LINE, _TIE, _LETTERS = 16.0, 20.0, 12.5  # pixels between two names, pixels from a line to its name, and font size


class Look(NamedTuple):
    """Appearance of a learner in all charts.

    Args:
        colour: Colour of its line and marks.
        dashes: Dash pattern of its line; None for a solid line.
        shape: Shape of its marks; None for a bound, which has no marks.
    """

    colour: str
    dashes: Dashes
    shape: int | None


def looks(results: SessionsResults) -> dict[str, Look]:
    """Return the appearance of every learner: bounds are black lines, others depend on their position in the results.

    The combinations of colour and shape of the first 42 learners differ.
    """
    bounds = {"lower": Look(INK, (1.5, 4), None), "upper": Look(INK, (8, 3), None)}
    found = {name: bounds[side] for name, side in results.bounds.by_name().items()}
    for number, name in enumerate(name for name in results.learners if name not in found):
        second = number // len(SERIES) % 2
        found[name] = Look(SERIES[number % len(SERIES)], (7, 3) if second else None, number % 6)
    return found


@cache
def learner_swatch(look: Look) -> str:
    """Return the legend swatch of a learner: its line and its mark."""
    marked = () if look.shape is None else (mark(look.colour, look.shape, radius=4.2),)
    return swatch(line(look.colour, look.dashes, 1.8), *marked)


def recall_lines(results: SessionsResults, *, width: float = 640) -> alt.LayerChart:
    """Draw recall@1 after every session, one line per learner with its name at the end.

    If both bounds are known, the area between them is shaded. The best learner that is not a bound has a thicker line.
    If the names do not all fit, none is written; a legend then identifies the lines.
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
    frame = Frame(width, height, (40, 32, right, 44), x, (ticks[0], ticks[-1]))
    sessions, bounds = range(1, done + 1), results.bounds
    layers: list[alt.Chart | None] = [
        frame.axes(sessions, ticks, x_title="after session", y_title="recall@1; further up is better ↑")
    ]
    if bounds.lower is not None and bounds.upper is not None:
        between = zip(sessions, series[bounds.lower], series[bounds.upper], strict=True)
        layers.append(
            frame.band([{"x": n, "y": a, "y2": b} for n, a, b in between], "between", colour=SOFT, opacity=0.1)
        )
    led = next((name for name in series if drawn[name].shape is not None), None)
    for name in reversed(series):
        look, first = drawn[name], name == led
        track = [
            {"x": number, "y": value, "note": f"{name}, session {number}: {score(value)}"}
            for number, value in enumerate(series[name], start=1)
        ]
        wide, radius = (3.2, 5.4) if first else (1.8, 4.6)
        layers.append(frame.lines(track, f"track {name}", colour=look.colour, width=wide, dashes=look.dashes))
        if look.shape is not None:
            shape = shape_of(look.shape)
            layers.append(
                frame.marks(track, f"marks {name}", shape=shape, radius=radius, colour=look.colour, edge=PAPER)
            )
    if named:
        top, bottom, at = frame.room[1], height - frame.room[3], width - right + _TIE
        places = spread([frame.down(values[-1]) for values in series.values()], _LINE, top, bottom)
        ties, names = [], []
        for (name, values), place in zip(series.items(), places, strict=True):
            start, end = frame.x_at(frame.across(done) + 6), frame.x_at(at - 4)
            ties.append({"x": start, "x2": end, "y": values[-1], "y2": frame.y_at(place), "colour": drawn[name].colour})
            words = shortened(name, room, _LETTERS)
            names.append({"x": frame.x_at(at), "y": frame.y_at(place + 4), "text": words, "first": name == led})
        layers.append(frame.rules(ties, "ties", width=1))
        for first in (False, True):
            chosen = [row for row in names if row["first"] == first]
            layers.append(frame.text(chosen, "first name" if first else "names", size=_LETTERS, bold=first))
    return frame.chart("Recall@1 after every session", f"After sessions 1 to {done}. {told}.", layers)


def recall_series(learner: LearnerResults) -> list[float]:
    """Return recall@1 after every session."""
    return [session.recall["1"] for session in learner.sessions]


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions apart: return the least-squares nearest positions with a minimum gap, within limits.

    The order is kept. The positions, minus their rank times the gap, are fitted by isotonic regression (pool adjacent
    violators). Positions exceed the limits only if they cannot all fit.

    >>> spread([10.0, 11.0, 50.0], 10.0, 0.0, 100.0)
    [5.5, 15.5, 50.0]
    >>> spread([3.0, 2.0], 10.0, 0.0, 100.0)
    [10.0, 0.0]
    """
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    pools: list[tuple[float, int]] = []  # mean and size
    for rank, place in enumerate(order):
        pools.append((wanted[place] - rank * gap, 1))
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            (first, n), (second, m) = pools[-2:]
            pools[-2:] = [((n * first + m * second) / (n + m), n + m)]
    means = [mean for mean, size in pools for _ in range(size)]
    last = max(low, high - gap * (len(wanted) - 1))
    found = [0.0] * len(wanted)
    for rank, place in enumerate(order):
        found[place] = min(max(means[rank], low), last) + rank * gap
    return found
