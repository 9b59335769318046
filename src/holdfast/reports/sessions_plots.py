"""The charts of learners compared in sessions: how well they find, and what becomes of classes that grow old.

A learner keeps its colour and shape in all charts. Colours are those of the page and of `STYLE`, which a page puts
beside its own style together with those of heat maps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.continual.results import Bounds, LearnerResults, SessionsResults
from holdfast.reports.formats import score
from holdfast.reports.heat_map import cell, share_of
from holdfast.reports.svg import Scale, chart, element, line, marker, path, reaching, shortened, text, width_of, y_axis

STYLE = """.series-0{--own:var(--cross)}
.track{fill:none;stroke:var(--own);stroke-width:1.8;stroke-linejoin:round}
.track.second{stroke-dasharray:7 3}
.track.led{stroke-width:3.2}
.bound{--own:var(--ink)}
.track.lower{stroke-dasharray:1.5 4;stroke-width:2;stroke-linecap:round}
.track.upper{stroke-dasharray:8 3}
.between{fill:var(--soft);opacity:.1}
.tie{fill:none;stroke:var(--own);stroke-width:1}
.spot-of{fill:var(--own);stroke:var(--paper);stroke-width:1;vector-effect:non-scaling-stroke}
.chart .of-led{font-weight:700}
@media (prefers-color-scheme:dark){.series-5{--own:#c9e8fb}}
@media print{.between{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""

_COLOURS, _SHAPES = 7, 6
_LEFT, _TOP, _BOTTOM = 40.0, 32.0, 44.0
_LINE = 16.0  # pixels from one name to the next
_TIE = 20.0  # from the end of a line to its name
_LETTERS = 12.5  # height of the letters of a name
_MAP_LEFT, _MAP_BOTTOM = 26.0, 22.0
_ASPECT, _HIGHEST = 0.78, 34.0  # height of a cell by its width, and at most


class Look(NamedTuple):
    """How a learner is drawn.

    Args:
        kind: The classes of its line.
        shape: The number of its marks' shape; None has no marks: a bound.
    """

    kind: str
    shape: int | None


def looks(results: SessionsResults) -> dict[str, Look]:
    """Return how every learner is drawn; bounds as black lines, others by their place in the results.

    Of 42 learners no two have both colour and shape alike.
    """
    found = {name: Look(f"bound {side}", None) for name, side in results.bounds.by_name().items()}
    others = [name for name in results.learners if name not in found]
    for number, name in enumerate(others):
        second = " second" if number // _COLOURS % 2 else ""
        found[name] = Look(f"series-{number % _COLOURS}{second}", number % _SHAPES)
    return found


def swatch(look: Look) -> str:
    """Return the line and the mark of a learner for a legend."""
    mark = "" if look.shape is None else _spot(13, 6, look, 4.2)
    drawn = path([(0, 6), (26, 6)], f"track {look.kind}") + mark
    return element("svg", drawn, kind="swatch", viewBox="0 0 26 12", aria_hidden="true")


def recall_lines(results: SessionsResults, *, width: float = 640) -> str:
    """Draw recall@1 after every session, a line per learner with its name at the end.

    Between the bounds, where both are known, lies a band. The learner that comes first of those that are no bounds
    has a thicker line. Where names do not fit below each other, none is written: a legend is needed anyway.
    """
    done, found = results.done, looks(results)
    series = {name: recall_series(learner) for name, learner in results.best_first().items()}
    names = list(series)
    height = max(400.0 if width >= 480 else 350.0, min(560.0, _TOP + _BOTTOM + _LINE * len(names)))
    top, bottom = _TOP, height - _BOTTOM
    named = _LINE * (len(names) - 1) <= bottom - top
    room = min(max(width_of(name, _LETTERS) for name in names), 0.3 * width) if named else 0.0
    x = Scale(*((1.0, float(done)) if done > 1 else (0.0, 2.0)), _LEFT + 8, width - max(12.0, room and room + _TIE + 4))
    y = reaching(*_extent(series), bottom, top)
    points = {name: [(x(place + 1), y(value)) for place, value in enumerate(drawn)] for name, drawn in series.items()}
    led = next((name for name in names if found[name].shape is not None), None)
    parts = [y_axis(y, _LEFT, x.stop, "recall@1; further up is better ↑"), *_session_axis(x, done, top, bottom)]
    parts += _band(results.bounds, points)
    for name in reversed(names):
        parts += _track(name, series[name], points[name], found[name], led=name == led)
    if named:
        parts += _line_names({name: points[name][-1] for name in names}, found, (top, bottom), x.stop, room, led)
    return chart(width, height, "Recall@1 after every session", _lines_in_words(series, results.bounds), parts)


def recall_series(learner: LearnerResults) -> list[float]:
    """Return recall@1 after every session."""
    return [session.recall["1"] for session in learner.sessions]


def _extent(series: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    values = [value for drawn in series.values() for value in drawn]
    return min(values), max(values)


def _session_axis(x: Scale, done: int, top: float, bottom: float) -> list[str]:
    """Return a line for every session with its number, as many as fit, and the title below."""
    step = tick_step(done, (x.stop - x.start) / max(1, done - 1))
    parts = []
    for session in range(1, done + 1):
        parts.append(line(x(session), top, x(session), bottom, "grid"))
        if (session - 1) % step == 0:
            parts.append(text(x(session), bottom + 17, str(session), "tick", "middle"))
    return [*parts, text((x.start + x.stop) / 2, bottom + 37, "after session", "label", "middle")]


def tick_step(count: int, across: float) -> int:
    """Return that every so many of the numbers up to a count are written, if each has this much room."""
    return max(1, math.ceil((width_of(str(count), 12) + 4) / across))


def _band(bounds: Bounds, points: Mapping[str, Sequence[tuple[float, float]]]) -> list[str]:
    if bounds.lower is None or bounds.upper is None:
        return []
    return [path([*points[bounds.upper], *reversed(points[bounds.lower])], "between")]


def _track(
    name: str, values: Sequence[float], points: Sequence[tuple[float, float]], look: Look, *, led: bool
) -> list[str]:
    parts = [path(points, f"track {look.kind}{' led' if led else ''}")]
    if look.shape is None:
        return parts
    for number, (value, (x, y)) in enumerate(zip(values, points, strict=True), start=1):
        parts.append(_spot(x, y, look, 5.4 if led else 4.6, f"{name}, session {number}: {score(value)}"))
    return parts


def _spot(x: float, y: float, look: Look, size: float, note: str = "") -> str:
    return marker(x, y, look.shape or 0, f"spot-of {look.kind}", size, note)


def _line_names(
    ends: Mapping[str, tuple[float, float]],
    found: Mapping[str, Look],
    limits: tuple[float, float],
    edge: float,
    room: float,
    led: str | None,
) -> list[str]:
    """Return the names of lines beside their ends, none over another, and thin lines that lead to them."""
    parts = []
    places = spread([y for _, y in ends.values()], _LINE, *limits)
    for (name, (x, y)), place in zip(ends.items(), places, strict=True):
        kind = "line-name of-led" if name == led else "line-name"
        parts.append(path([(x + 6, y), (edge + _TIE - 4, round(place, 2))], f"tie {found[name].kind}"))
        parts.append(text(edge + _TIE, round(place + 4, 2), shortened(name, room, _LETTERS), kind))
    return parts


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return the places nearest to those wanted, by least squares, that are a gap apart and within limits.

    They keep their order. Places that are too near each other are pooled about their mean until none are (the pool of
    adjacent violators, on places less their rank times the gap). They leave the limits only where they cannot fit.

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


def _lines_in_words(series: Mapping[str, Sequence[float]], bounds: Bounds) -> str:
    roles = {name: f", the {side} bound" for name, side in bounds.by_name().items()}
    told = (
        f"{name}{roles.get(name, '')}: {', '.join(score(value) for value in values)}" for name, values in series.items()
    )
    return f"After sessions 1 to {len(next(iter(series.values())))}. {'; '.join(told)}."


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
