"""What charts of P_up over P_comp share: their ends and axes, the models that are given, and marks with their names."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.reports.formats import signed
from holdfast.reports.svg import Scale, line, marker, text, width_of, x_axis, y_axis

Rectangle = tuple[float, float, float, float]  # left, top, right, bottom

COMPARABLE = (-1.0, 2.0)
"""P_comp that is drawn in place; marks beyond stand at the edge."""

REACH = (-1.0, 1.0)
"""P_up that is drawn in place."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 46, 52  # room around the plane, in pixels
_NO_LOSS = "no quality lost"


def plane_scales(p_comp: Sequence[float], p_up: Sequence[float], width: float, height: float) -> tuple[Scale, Scale]:
    """Return the scales of P_comp, to the right, and P_up, upwards: around these values, and 0 and the other models."""
    x = Scale(*_around(p_comp, 0.0, 1.05, COMPARABLE), _LEFT, width - _RIGHT)
    return x, Scale(*_around(p_up, -0.05, 0.05, REACH), height - _BOTTOM, _TOP)


def plane_parts(x: Scale, y: Scale) -> list[str]:
    """Draw the axes, and where the old and the independent model are, by definition."""
    parts = [
        x_axis(x, y.stop, y.start, "P_comp: compatibility; further right is better →", 6),
        y_axis(y, x.start, x.stop, "P_up: quality kept; further up is better ↑"),
        line(x.start, y(0), x.stop, y(0), "zero"),
    ]
    for position, words in ((0.0, "old"), (1.0, "independent")):
        at = x(position)
        near_edge = x.stop - at < width_of(words, 12) / 2
        parts.append(line(at, y.stop, at, y.start, "zero"))
        parts.append(text(x.stop if near_edge else at, y.stop - 8, words, "label", "end" if near_edge else "middle"))
    return parts


def named_marks(marks: Sequence[tuple[str, float, float]], x: Scale, y: Scale, width: float) -> list[str]:
    """Draw marks with their names beside them, each where it covers no other; a thin line leads to a far name.

    Args:
        marks: Of each the name, and how far right and down it stands, in pixels.
        x: The scale of P_comp.
        y: The scale of P_up.
        width: That of the chart.
    """
    area = (x.start, y.stop, width, y.start)
    own = [_rectangle(right - 8, down + 6, 16) for _, right, down in marks]
    words = _beside_the_line(x, y, own)
    leaders, shapes, labels = [text(words[0], words[3] - 2, _NO_LOSS, "label")], [], []
    used = [words, *own]
    for number, (name, right, down) in enumerate(marks):
        place = _free_place(name, right, down, area, used)
        used.append(place)
        if abs(place[3] - 7 - down) > 16:
            leaders.append(
                line(right, down, place[2] if place[2] < right else place[0], (place[1] + place[3]) / 2, "leader")
            )
        shapes.append(marker(right, down, number, f"point series-{number % 7}", 7, name))
        labels.append(text(place[0], place[3] - 2, name, "name"))
    return [*leaders, *shapes, *labels]


def _beside_the_line(x: Scale, y: Scale, marks: Sequence[Rectangle]) -> Rectangle:
    """Return where the line of no loss is named: right of the old model, or at an end, where no mark is covered."""
    wide = width_of(_NO_LOSS, 12)
    options = [_rectangle(at, y(0) + down, wide) for down in (-6, 16) for at in (x(0) + 8, x.stop - wide, x.start + 4)]
    return next((option for option in options if not any(_overlap(option, mark) for mark in marks)), options[0])


def beyond(p_comp: float, p_up: float, x: Scale, y: Scale) -> str:
    """Return the numbers of a mark that stands at an edge, to follow its name; nothing where it stands in place."""
    found = (("P_comp", p_comp, x), ("P_up", p_up, y))
    return "".join(f" ({name} {signed(value)})" for name, value, scale in found if not scale.low <= value <= scale.high)


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
