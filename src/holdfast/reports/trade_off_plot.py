"""The chart of what compatibility cost: P_up over P_comp."""

from __future__ import annotations

from holdfast.reports.charts.bars import Evaluations
from holdfast.reports.charts.forest import measured
from holdfast.reports.formats import signed
from holdfast.reports.p_plane import beyond, named_marks, plane_parts, plane_scales
from holdfast.reports.svg import chart, shortened


def trade_off(evaluations: Evaluations, *, width: float = 640, height: float = 400) -> str | None:
    """Draw P_up over P_comp (raw), one mark per model; None where no model has both.

    Marks beyond P_comp of -1 or 2, or P_up of 1, stand at the edge with their number.
    """
    points = trade_off_points(evaluations)
    if not points:
        return None
    x, y = plane_scales([p for p, _ in points.values()], [p for _, p in points.values()], width, height)
    marks = [
        (shortened(name, width / 3) + beyond(p_comp, p_up, x, y), x(p_comp), y(p_up))
        for name, (p_comp, p_up) in points.items()
    ]
    described = "; ".join(f"{name}: P_comp {signed(p[0])}, P_up {signed(p[1])}" for name, p in points.items())
    parts = [*plane_parts(x, y), *named_marks(marks, x, y, width)]
    return chart(width, height, "Compatibility against quality kept", described + ".", parts)


def trade_off_points(evaluations: Evaluations) -> dict[str, tuple[float, float]]:
    """Return (P_comp, P_up), raw and on the gate metric, of the models that have both."""
    points = {}
    for name, record in measured(evaluations).items():
        p_comp, p_up = record.p("p_comp"), record.p("p_up")
        if p_comp is not None and p_up is not None:
            points[name] = (p_comp, p_up)
    return points
