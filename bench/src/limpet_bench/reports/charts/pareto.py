"""Chart of P_up over P_comp of the labels of a leaderboard, with the Pareto front."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from limpet.reports.plots.scatter import COMPARABLE, REACH, TITLE, named_marks, plane, plane_layers
from limpet.reports.plots.style import GOOD, cut
from limpet_bench.reports.leaderboard_tables import with_deviation

if TYPE_CHECKING:
    import altair as alt

    from limpet_bench.leaderboard import CellMean, Leaderboard

_MANY = 9  # maximum number of labels with names beside their marks


def pareto_plot(results: Leaderboard, *, width: float = 640, height: float = 420) -> alt.LayerChart | None:
    """Draw P_up over P_comp as means over cells with deviations, and the front; None if no label has both.

    Marks outside P_comp -1 to 2 or P_up -1 to 1 are drawn at the edge with their number. If there are many labels,
    marks have their position in `pareto_points` instead of their name.
    """
    front, points = results.board.front, pareto_points(results)
    if front is None or not points:
        return None
    told = "; ".join(
        f"{name}: P_comp {with_deviation('p_comp', p_comp)}, P_up {with_deviation('p_up', p_up)}"
        for name, (p_comp, p_up) in points.items()
    )
    p_comps, p_ups = zip(*points.values(), strict=True)
    ends = [0.0, *_near_ends(p_comps, COMPARABLE)], [-0.05, *_near_ends(p_ups, REACH)]
    frame = plane(*ends, (width, height))
    corners = sorted({(points[name][0].mean, points[name][1].mean) for name in front.labels})
    (left, right), (low, high) = frame.x, frame.y
    border = [(left, corners[0][1])]  # border of the area that the labels on the front dominate
    for (reached, kept_there), (_, following) in zip(corners, [*corners[1:], (0.0, low)], strict=True):
        border += [(reached, kept_there), (reached, following)]
    inside = [{"x": min(max(x, left), right), "y": min(max(y, low), high)} for x, y in border]
    deviations = []
    for comp, kept in points.values():
        at, above = min(max(comp.mean, left), right), min(max(kept.mean, low), high)
        if comp.deviation is not None:
            start, end = (min(max(end, left), right) for end in _ends(comp))
            deviations.append({"x": start, "x2": end, "y": above, "y2": above})
        if kept.deviation is not None:
            start, end = (min(max(end, low), high) for end in _ends(kept))
            deviations.append({"x": at, "x2": at, "y": start, "y2": end})
    called = {name: str(place) for place, name in enumerate(points, 1)} if numbered(points) else {}
    means = {name: (p_comp.mean, p_up.mean) for name, (p_comp, p_up) in points.items()}
    return frame.chart(TITLE, f"{told}.", [
        *plane_layers(frame),
        frame.lines(inside, "front", colour=GOOD, width=1.6, dashes=(6, 3)),
        frame.rules(deviations, "deviations", width=1),
        *named_marks(frame, [(called.get(name, cut(name, width / 3)), point) for name, point in means.items()]),
    ])  # fmt: skip


def pareto_points(results: Leaderboard) -> dict[str, tuple[CellMean, CellMean]]:
    """Return P_comp and P_up of the labels that have both, in the order of the leaderboard."""
    found = ((entry.label, entry.means.get("p_comp"), entry.means.get("p_up")) for entry in results.board.labels)
    return {label: (p_comp, p_up) for label, p_comp, p_up in found if p_comp and p_up}


def numbered(points: Collection[str]) -> bool:
    """Return whether marks are numbered, because the names of so many marks would overlap."""
    return len(points) > _MANY


def _near_ends(means: Sequence[CellMean], limits: tuple[float, float]) -> list[float]:
    return [end for mean in means if limits[0] <= mean.mean <= limits[1] for end in _ends(mean)]


def _ends(mean: CellMean) -> tuple[float, float]:
    around = mean.deviation or 0.0
    return mean.mean - around, mean.mean + around
