"""The chart of what compatibility cost: P_up over P_comp."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.reports.formats import signed
from holdfast.reports.plots import Evaluations, measured
from holdfast.reports.svg import Scale, chart, line, marker, shortened, text, width_of, x_axis, y_axis
from holdfast.reports.tables import value

Rectangle = tuple[float, float, float, float]  # left, top, right, bottom

_COMPARABLE, _REACH = (-1.0, 2.0), (-1.0, 1.0)  # P_comp and P_up that are drawn in place
_LEFT, _TOP = 62, 46
_NO_LOSS = "no quality lost"


def trade_off(evaluations: Evaluations, *, width: float = 640, height: float = 400) -> str | None:
    """Draw P_up over P_comp (raw), one mark per model; None where no model has both.

    Marks beyond P_comp of -1 or 2, or P_up of 1, stand at the edge with their number.
    """
    points = trade_off_points(evaluations)
    if not points:
        return None
    x = Scale(*_around([p for p, _ in points.values()], 0.0, 1.05, _COMPARABLE), _LEFT, width - 14)
    y = Scale(*_around([p for _, p in points.values()], -0.05, 0.05, _REACH), height - 52, _TOP)
    marks = [
        (shortened(name, width / 3) + _beyond(p_comp, x, "P_comp") + _beyond(p_up, y, "P_up"), x(p_comp), y(p_up))
        for name, (p_comp, p_up) in points.items()
    ]
    parts = [
        x_axis(x, _TOP, height - 52, "P_comp: compatibility; further right is better →", 6),
        y_axis(y, _LEFT, width - 14, "P_up: quality kept; further up is better ↑"),
        *_lines(x, y),
        *_named_marks(marks, (_LEFT, _TOP, width, y.start), [_rectangle(x(0) + 8, y(0) - 6, width_of(_NO_LOSS, 12))]),
    ]
    described = "; ".join(f"{name}: P_comp {signed(p[0])}, P_up {signed(p[1])}" for name, p in points.items())
    return chart(width, height, "Compatibility against quality kept", described + ".", parts)


def _lines(x: Scale, y: Scale) -> list[str]:
    """Draw where the old and the independent model are, by definition."""
    parts = [line(x.start, y(0), x.stop, y(0), "zero"), text(x(0) + 8, y(0) - 6, _NO_LOSS, "label")]
    for position, words in ((0.0, "old"), (1.0, "independent")):
        at = x(position)
        near_edge = x.stop - at < width_of(words, 12) / 2
        parts.append(line(at, y.stop, at, y.start, "zero"))
        parts.append(text(x.stop if near_edge else at, y.stop - 8, words, "label", "end" if near_edge else "middle"))
    return parts


def trade_off_points(evaluations: Evaluations) -> dict[str, tuple[float, float]]:
    """Return (P_comp, P_up), raw and on the gate metric, of the models that have both."""
    points = {}
    for name, record in measured(evaluations).items():
        p_comp, p_up = (value(record[key], "raw", record["gate_metric"]) for key in ("p_comp", "p_up"))
        if p_comp is not None and p_up is not None:
            points[name] = (p_comp, p_up)
    return points


def _named_marks(marks: Sequence[tuple[str, float, float]], area: Rectangle, taken: Sequence[Rectangle]) -> list[str]:
    """Draw marks with their names beside them, each where it covers no other; a thin line leads to a far name."""
    leaders, shapes, labels = [], [], []
    used = [*taken, *(_rectangle(x - 8, y + 6, 16) for _, x, y in marks)]
    for number, (name, x, y) in enumerate(marks):
        left, top, right, bottom = _free_place(name, x, y, area, used)
        used.append((left, top, right, bottom))
        if abs(bottom - 7 - y) > 16:
            leaders.append(line(x, y, right if right < x else left, (top + bottom) / 2, "leader"))
        shapes.append(marker(x, y, number, f"point series-{number % 7}", 7, name))
        labels.append(text(left, bottom - 2, name, "name"))
    return [*leaders, *shapes, *labels]


def _free_place(name: str, x: float, y: float, area: Rectangle, used: Sequence[Rectangle]) -> Rectangle:
    """Return the first place around a mark where its name covers nothing."""
    wide = width_of(name)
    options = [
        _rectangle(x - 13 - wide if left else x + 13, y + 5 + step * up, wide)
        for step in range(0, 160, 15)
        for up in (-1, 1)
        for left in (False, True)
    ]
    inside = [option for option in options if _within(option, area)]
    free = [option for option in inside if not any(_overlap(option, other) for other in used)]
    return (free or inside or options)[0]


def _rectangle(x: float, baseline: float, wide: float) -> Rectangle:
    return x, baseline - 12, x + wide, baseline + 2


def _overlap(a: Rectangle, b: Rectangle) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _within(a: Rectangle, area: Rectangle) -> bool:
    return a[0] >= area[0] and a[1] >= area[1] and a[2] <= area[2] and a[3] <= area[3]


def _around(values: Sequence[float], low: float, high: float, limits: tuple[float, float]) -> tuple[float, float]:
    spread = 0.08 * (max(*values, high) - min(*values, low))
    return max(limits[0], min(low, min(values) - spread)), min(limits[1], max(high, max(values) + spread))


def _beyond(found: float, scale: Scale, name: str) -> str:
    """Return the number of a mark that stands at the edge, or nothing."""
    return "" if scale.low <= found <= scale.high else f" ({name} {signed(found)})"
