"""Planes of P_up over P_comp: what compatibility cost, with each name where it covers nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from limpet.reports.charts.canvas import SERIES, SOFT, Chart, round_ticks
from limpet.reports.charts.forest import measured
from limpet.reports.charts.shapes import Align
from limpet.reports.formats import signed
from limpet.reports.svg import shortened, width_of

if TYPE_CHECKING:
    from limpet.evaluation.results import Evaluation

Rectangle = tuple[float, float, float, float]  # left, top, right, bottom, in pixels
Point = tuple[float, float]  # P_comp, P_up

COMPARABLE, REACH = (
    (-1.0, 2.0),
    (-1.0, 1.0),
)  # P_comp and P_up; marks beyond stand at the edge
_NO_LOSS = "no quality lost"
_TITLE = "Compatibility against quality kept"


def trade_off(evaluations: Mapping[str, Evaluation], *, width: float = 640, height: float = 400) -> Chart | None:
    """Draw P_up over P_comp (raw), one mark per model; None where no model has both.

    Marks beyond P_comp of -1 or 2, or P_up of 1, stand at the edge with their number.
    """
    points = trade_off_points(evaluations)
    if not points:
        return None
    told = "; ".join(f"{name}: P_comp {signed(p[0])}, P_up {signed(p[1])}" for name, p in points.items()) + "."
    p_comp, p_up = zip(*points.values(), strict=True)
    chart = plane(told, p_comp, p_up, (width, height))
    named_marks(chart, [(shortened(name, width / 3), point) for name, point in points.items()])
    return chart


def trade_off_points(evaluations: Mapping[str, Evaluation]) -> dict[str, Point]:
    """Return (P_comp, P_up), raw and on the gate metric, of the models that have both."""
    points = {}
    for name, record in measured(evaluations).items():
        p_comp, p_up = record.p("p_comp"), record.p("p_up")
        if p_comp is not None and p_up is not None:
            points[name] = (p_comp, p_up)
    return points


def plane(told: str, p_comp: Sequence[float], p_up: Sequence[float], size: tuple[float, float]) -> Chart:
    """Return the plane around these values, with where the old and the independent model are, by definition."""
    x, y = _around(p_comp, 0.0, 1.05, COMPARABLE), _around(p_up, -0.05, 0.05, REACH)
    chart = Chart(_TITLE, told, size, (62, 46, 14, 46), x, y)
    across, up = round_ticks(*x, 6 if size[0] > 500 else 4), round_ticks(*y)
    chart.x_axis([t for t in across if x[0] <= t <= x[1]], "P_comp: compatibility; further right is better →")
    chart.y_axis([t for t in up if y[0] <= t <= y[1]], "P_up: quality kept; further up is better ↑")
    chart.line(x, [0, 0], SOFT, 1.2, label="no loss", behind=True)
    for position, words in ((0.0, "old"), (1.0, "independent")):
        at, right = chart.at(position), size[0] - 14
        align: Align = "right" if right - at < width_of(words, 12) / 2 else "center"
        chart.line([position, position], y, SOFT, 1.2, label=words, behind=True)
        place = right if align == "right" else at
        chart.write(place, size[1] - 38, words, across="page", up="page", size=12, colour=SOFT, align=align)
    return chart


def _around(values: Sequence[float], low: float, high: float, limits: tuple[float, float]) -> tuple[float, float]:
    spread = 0.08 * (max(*values, high) - min(*values, low))
    return max(limits[0], min(low, min(values) - spread)), min(limits[1], max(high, max(values) + spread))


def named_marks(chart: Chart, named: Sequence[tuple[str, Point]]) -> None:
    """Draw marks with their names beside them, each where it covers no other; a thin line leads to a far name.

    A mark beyond the plane stands at its edge, and its numbers follow its name.
    """
    (left, right), (low, high) = chart.x, chart.y
    inside = [(min(max(p_comp, left), right), min(max(p_up, low), high)) for _, (p_comp, p_up) in named]
    pixels = [(chart.at(x), chart.down(y)) for x, y in inside]
    area = (chart.start, chart.top, chart.width, chart.bottom)
    own = [_rectangle(across - 8, down + 6, 16) for across, down in pixels]
    words = _beside_the_line(chart, own)
    used = [words, *own]
    chart.write(words[0], chart.height - words[3] + 2, _NO_LOSS, across="page", up="page", size=12, colour=SOFT)
    for number, ((name, (p_comp, p_up)), (x, y), (across, down)) in enumerate(zip(named, inside, pixels, strict=True)):
        beyond = (("P_comp", p_comp, left, right), ("P_up", p_up, low, high))
        name += "".join(f" ({measure} {signed(v)})" for measure, v, start, end in beyond if not start <= v <= end)
        place = _free_place(name, across, down, area, used)
        used.append(place)
        if abs(place[3] - 7 - down) > 16:
            end = chart.value(place[2] if place[2] < across else place[0], (place[1] + place[3]) / 2)
            chart.line([x, end[0]], [y, end[1]], SOFT, 0.8, label="leader")
        chart.mark(x, y, number, SERIES[number % len(SERIES)], 6.5, note=name, label="model")
        base = chart.height - place[3] + 2
        chart.write(place[0], base, name, across="page", up="page", bold=True, halo=True, label="name")


def _beside_the_line(chart: Chart, marks: Sequence[Rectangle]) -> Rectangle:
    """Return where the line of no loss is named: right of the old model, or at an end, where no mark is covered."""
    wide, end = width_of(_NO_LOSS, 12), chart.start + chart.inner
    places, base = (chart.at(0) + 8, end - wide, chart.start + 4), chart.down(0)
    options = [_rectangle(at, base + down, wide) for down in (-6, 16) for at in places]
    return next((option for option in options if not any(_overlap(option, mark) for mark in marks)), options[0])


def _free_place(name: str, x: float, y: float, area: Rectangle, used: Sequence[Rectangle]) -> Rectangle:
    """Return the first place around a mark where its name covers nothing."""
    wide = width_of(name)
    options = [
        _rectangle(x - 13 - wide if left else x + 13, y + 5 + step * up, wide)
        for step in range(0, 160, 15)
        for up in (-1, 1)
        for left in (False, True)
    ]
    inside = [
        option
        for option in options
        if (option[0] >= area[0] and option[1] >= area[1] and option[2] <= area[2] and option[3] <= area[3])
    ]
    free = [option for option in inside if not any(_overlap(option, other) for other in used)]
    return (free or inside or options)[0]


def _rectangle(x: float, baseline: float, wide: float) -> Rectangle:
    return x, baseline - 12, x + wide, baseline + 2


def _overlap(a: Rectangle, b: Rectangle) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
