"""Scatter plots: the cost of compatibility, with names beside the marks, and embeddings on the Poincaré disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from limpet.evaluation.uncertainty import ring_radius
from limpet.reports.formats import signed
from limpet.reports.plots.frame import Align, Frame, Range, as_it_is, layer_of, noted
from limpet.reports.plots.style import (
    HAIR,
    SERIES,
    SOFT,
    area_of,
    inner_ticks,
    shape_of,
    shortened,
    tick_label,
    width_of,
)
from limpet.reports.readings import DISK_SERIES, class_words, trade_off_points

if TYPE_CHECKING:
    from limpet.evaluation.results import Evaluation
    from limpet.evaluation.uncertainty import PoincareDisk

__all__ = ["COMPARABLE", "REACH", "TITLE", "many_marks", "named_marks", "plane", "plane_layers"]

Rectangle = tuple[float, float, float, float]  # left, top, right, bottom, in pixels
Point = tuple[float, float]  # P_comp, P_up
Layers = list[alt.Chart | None]

COMPARABLE, REACH = (-1.0, 2.0), (-1.0, 1.0)  # largest ranges of P_comp and P_up; other marks are at the edge
TITLE = "Compatibility against quality kept"
_NO_LOSS = "no quality lost"
_RINGS = (0.8, 0.6, 0.4, 0.2, 0.1, 0.05, 0.01)  # uncertainties
_LABEL = 20.0  # pixels above the outermost ring


def trade_off(
    evaluations: Mapping[str, Evaluation], *, width: float = 640, height: float = 400
) -> alt.LayerChart | None:
    """Draw P_up against P_comp (raw), one mark per model.

    Marks with P_comp outside [-1, 2] or P_up outside [-1, 1] are drawn at the edge, with their numbers.

    Returns:
        None if no model has both values.
    """
    points = trade_off_points(evaluations)
    if not points:
        return None
    told = "; ".join(f"{name}: P_comp {signed(p[0])}, P_up {signed(p[1])}" for name, p in points.items()) + "."
    p_comp, p_up = zip(*points.values(), strict=True)
    frame = plane(p_comp, p_up, (width, height))
    named = named_marks(frame, [(shortened(name, width / 3), point) for name, point in points.items()])
    return frame.chart(TITLE, told, [*plane_layers(frame), *named])


def plane(p_comp: Sequence[float], p_up: Sequence[float], size: tuple[float, float]) -> Frame:
    """Return a frame for P_comp and P_up that holds these values, the old and the independent model.

    Args:
        p_comp: Values of P_comp.
        p_up: Values of P_up.
        size: Width and height in pixels.
    """
    x, y = _around(p_comp, 0.0, 1.05, COMPARABLE), _around(p_up, -0.05, 0.05, REACH)
    return Frame(*size, (62, 46, 14, 46), x, y)


def plane_layers(frame: Frame) -> Layers:
    """Draw the axes of a plane, and lines at the old model (P_comp 0), the independent one (1) and no loss (P_up 0)."""
    (x, y), right = (frame.x, frame.y), frame.width - 14
    layers: Layers = [
        frame.axes(
            inner_ticks(*x, 6 if frame.width > 500 else 4),
            inner_ticks(*y),
            x_title="P_comp: compatibility; further right is better →",
            y_title="P_up: quality kept; further up is better ↑",
        ),
        frame.rules([{"x": x[0], "x2": x[1], "y": 0, "y2": 0}], "no loss"),
    ]
    for position, words in ((0.0, "old"), (1.0, "independent")):
        at = frame.across(position)
        align: Align = "right" if right - at < width_of(words, 12) / 2 else "center"
        name = {"x": frame.x_at(right if align == "right" else at), "y": frame.y_at(38), "text": words}
        layers += [
            frame.rules([{"x": position, "x2": position, "y": y[0], "y2": y[1]}], words),
            frame.text([name], f"name {words}", size=12, colour=SOFT, align=align),
        ]
    return layers


def _around(values: Sequence[float], low: float, high: float, limits: Range) -> Range:
    spread = 0.08 * (max(*values, high) - min(*values, low))
    return max(limits[0], min(low, min(values) - spread)), min(limits[1], max(high, max(values) + spread))


def named_marks(frame: Frame, named: Sequence[tuple[str, Point]]) -> Layers:
    """Draw marks with names beside them that do not overlap; a thin line connects a mark with a distant name.

    A mark outside the plane is drawn at its edge, and its numbers follow its name.
    """
    (left, right), (low, high) = frame.x, frame.y
    inside = [(min(max(p_comp, left), right), min(max(p_up, low), high)) for _, (p_comp, p_up) in named]
    pixels = [(frame.across(x), frame.down(y)) for x, y in inside]
    area = (frame.room[0], frame.room[1], frame.width, frame.height - frame.room[3])
    own = [_rectangle(across - 8, down + 6, 16) for across, down in pixels]
    line = _beside_the_line(frame, own)
    used, marks, names, leaders = [line, *own], [], [], []
    for number, ((name, (p_comp, p_up)), (x, y), (across, down)) in enumerate(zip(named, inside, pixels, strict=True)):
        beyond = (("P_comp", p_comp, left, right), ("P_up", p_up, low, high))
        name += "".join(f" ({measure} {signed(v)})" for measure, v, start, end in beyond if not start <= v <= end)
        place = _free_place(name, across, down, area, used)
        used.append(place)
        names.append({"x": frame.x_at(place[0]), "y": frame.y_at(place[3] - 2), "text": name})
        if abs(place[3] - 7 - down) > 16:
            end = frame.x_at(place[2] if place[2] < across else place[0])
            leaders.append({"x": x, "x2": end, "y": y, "y2": frame.y_at((place[1] + place[3]) / 2)})
        shape = shape_of(number)
        marks.append(
            {
                "x": x,
                "y": y,
                "colour": SERIES[number % len(SERIES)],
                "shape": shape,
                "size": area_of(shape, 6.5),
                "note": name,
            }
        )
    words = {"x": frame.x_at(line[0]), "y": frame.y_at(line[3] - 2), "text": _NO_LOSS}
    return [
        frame.text([words], "name no loss", size=12, colour=SOFT),
        frame.rules(leaders, "leaders", width=0.8),
        many_marks(frame, marks, "models"),
        frame.text(names, "name", bold=True),
    ]


def many_marks(
    frame: Frame, rows: Sequence[Mapping[str, Any]], name: str, *, hollow: bool = False, line: float = 1.0,
    edge: str | None = None,
) -> alt.Chart | None:  # fmt: skip
    """Return a layer of different marks: rows hold x, y, colour, shape and size, and optionally a note."""
    if not rows:
        return None
    mark: dict[str, Any] = {"type": "point", "opacity": 1, "aria": "note" in rows[0], "strokeWidth": line}
    mark |= {"stroke": edge} if edge else {}
    mark |= {"fill": "transparent"} if hollow else {}
    looks = {"shape": as_it_is("shape"), "size": as_it_is("size", "quantitative")}
    looks |= {key: as_it_is("colour") for key in ("stroke", "fill") if key not in mark}
    return layer_of(rows, name, mark, {**frame.at(), **noted(rows), **looks})


def _beside_the_line(frame: Frame, marks: Sequence[Rectangle]) -> Rectangle:
    """Return the place for the name of the line of no loss: the first of several that covers no mark."""
    wide, end = width_of(_NO_LOSS, 12), frame.room[0] + frame.inner[0]
    places, base = (frame.across(0) + 8, end - wide, frame.room[0] + 4), frame.down(0)
    options = [_rectangle(at, base + down, wide) for down in (-6, 16) for at in places]
    return next((option for option in options if not any(_overlap(option, mark) for mark in marks)), options[0])


def _free_place(name: str, x: float, y: float, area: Rectangle, used: Sequence[Rectangle]) -> Rectangle:
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


# --- the Poincaré disk -----------------------------------------------------------------------------------------------


def disk_plot(name: str, disk: PoincareDisk, *, width: float = 560) -> alt.LayerChart:
    """Draw old embeddings as hollow and new ones as filled marks, with one shape and one colour per class.

    The disk is shown up to the first ring that contains all marks, or up to its rim if no ring contains all.
    """
    rings = _rings(disk)
    edge = ring_radius(rings[-1])
    scale = (width / 2 - 6) / edge
    reach = edge * (width / 2) / (width / 2 - 6)
    frame = Frame(width, width + _LABEL, (0, _LABEL, 0, 0), (-reach, reach), (-reach, reach))
    layers: Layers = [frame.axes()]
    for ring in rings:
        outermost, radius = ring == rings[-1], scale * ring_radius(ring)
        words = f"uncertainty {tick_label(ring)}" if outermost else tick_label(ring)
        layers += [
            frame.marks(
                [{"x": 0, "y": 0}], f"ring {tick_label(ring)}",
                radius=radius, fill="transparent", edge=SOFT if outermost else HAIR,
            ),
            frame.text(
                [{"x": 0, "y": ring_radius(ring), "text": words}], f"name of ring {tick_label(ring)}",
                size=12, colour=SOFT, align="center", dy=-7 if outermost else 4,
            ),
        ]  # fmt: skip
    arm = 5 / scale
    layers.append(
        frame.rules([{"x": -arm, "x2": arm, "y": 0, "y2": 0}, {"x": 0, "x2": 0, "y": -arm, "y2": arm}], "centre")
    )
    size = 3.4 if width < 450 else 4.6
    for kind in ("new", "old"):
        spots = [
            {"x": across, "y": up, "colour": SERIES[DISK_SERIES[number % len(DISK_SERIES)]], "shape": shape_of(number),
             "size": area_of(shape_of(number), size)}
            for number, group in enumerate(disk.classes)
            for across, up in (group.old if kind == "old" else group.new).tolist()
        ]  # fmt: skip
        layers.append(many_marks(frame, spots, kind, hollow=kind == "old", line=1.4 if kind == "old" else 0.6))
    count = sum(len(group.ids) for group in disk.classes)
    listed = "; ".join(map(class_words, disk.classes))
    told = f"{count} items of {len(disk.classes)} classes, with their mean uncertainty, old → new. {listed}."
    return frame.chart(f"Old and new embeddings of {name}", told, layers)


def _rings(disk: PoincareDisk) -> list[float]:
    """Return the uncertainties of the rings to draw, from the inside outwards; the last ring contains all marks."""
    largest = max(
        float((places**2).sum(axis=1).max()) ** 0.5 for group in disk.classes for places in (group.old, group.new)
    )
    levels = [*_RINGS, 0.0]
    outermost = next((place for place, level in enumerate(levels) if ring_radius(level) >= largest), len(_RINGS))
    return levels[: outermost + 1]
