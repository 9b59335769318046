"""The charts of a leaderboard: the score that ranks in every cell, and what arrives against what it costs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.bench.leaderboard import CellMean, Leaderboard
from holdfast.reports.leaderboard_tables import with_deviation
from holdfast.reports.p_plane import COMPARABLE, REACH, beyond, named_marks, plane_parts, plane_scales
from holdfast.reports.svg import (
    Scale,
    chart,
    cut,
    line,
    path,
)

STYLE = """.front{fill:none;stroke:var(--good);stroke-width:1.6;stroke-dasharray:6 3}
.whisker.faint{stroke:var(--soft);stroke-width:1}
"""

_MANY = 9  # labels whose names have room beside their marks


def pareto_plot(results: Leaderboard, *, width: float = 640, height: float = 420) -> str | None:
    """Draw P_up over P_comp, means over cells with deviations, and the front; None where no label has both.

    Marks beyond P_comp of -1 or 2, or P_up of 1, stand at the edge with their number. Many labels have their place in
    `pareto_points` instead of a name.
    """
    front, points = results.board.front, pareto_points(results)
    if front is None or not points:
        return None
    p_comp_ends = _near_ends([p_comp for p_comp, _ in points.values()], COMPARABLE)
    p_up_ends = _near_ends([p_up for _, p_up in points.values()], REACH)
    x, y = plane_scales([0.0, *p_comp_ends], [-0.05, *p_up_ends], width, height)
    words = {name: str(place) for place, name in enumerate(points, 1)} if numbered(points) else {}
    marks = []
    for name, (p_comp, p_up) in points.items():
        far = beyond(p_comp.mean, p_up.mean, x, y)
        marks.append((words.get(name, cut(name, width / 3)) + far, x(p_comp.mean), y(p_up.mean)))
    parts = [
        *plane_parts(x, y),
        _staircase([points[name] for name in front.labels], x, y),
        *(part for found in points.values() for part in _cross_hairs(*found, x, y)),
        *named_marks(marks, x, y, width),
    ]
    told = "; ".join(
        f"{name}: P_comp {with_deviation('p_comp', found[0])}, P_up {with_deviation('p_up', found[1])}"
        for name, found in points.items()
    )
    return chart(width, height, "Compatibility against quality kept", told + ".", parts)


def pareto_points(results: Leaderboard) -> dict[str, tuple[CellMean, CellMean]]:
    """Return P_comp and P_up of the labels that have both, in the order of the board."""
    found = ((entry.label, entry.means.get("p_comp"), entry.means.get("p_up")) for entry in results.board.labels)
    return {label: (p_comp, p_up) for label, p_comp, p_up in found if p_comp and p_up}


def numbered(points: Collection[str]) -> bool:
    """Return whether marks have numbers: so many names would cover each other."""
    return len(points) > _MANY


def _near_ends(means: Sequence[CellMean], limits: tuple[float, float]) -> list[float]:
    """Return where the deviations end of the means that are within the limits."""
    return [end for mean in means if limits[0] <= mean.mean <= limits[1] for end in _ends(mean)]


def _ends(mean: CellMean) -> tuple[float, float]:
    around = mean.deviation or 0.0
    return mean.mean - around, mean.mean + around


def _staircase(front: Sequence[tuple[CellMean, CellMean]], x: Scale, y: Scale) -> str:
    """Draw the border of what the labels of the front beat."""
    corners = sorted({(p_comp.mean, p_up.mean) for p_comp, p_up in front})
    points = [(x.start, y(corners[0][1]))]
    for (p_comp, p_up), (_, following) in zip(corners, [*corners[1:], (0.0, y.low)], strict=True):
        points += [(x(p_comp), y(p_up)), (x(p_comp), y(following))]
    return path(points, "front")


def _cross_hairs(p_comp: CellMean, p_up: CellMean, x: Scale, y: Scale) -> list[str]:
    """Draw the deviations of a mark, sideways and up and down."""
    at, up = x(p_comp.mean), y(p_up.mean)
    parts = []
    if p_comp.deviation is not None:
        parts.append(line(x(_ends(p_comp)[0]), up, x(_ends(p_comp)[1]), up, "whisker faint"))
    if p_up.deviation is not None:
        parts.append(line(at, y(_ends(p_up)[0]), at, y(_ends(p_up)[1]), "whisker faint"))
    return parts
