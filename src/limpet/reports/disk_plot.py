"""The picture of old and new embeddings on the Poincaré disk."""

from __future__ import annotations

from limpet.evaluation.uncertainty import DiskClass, PoincareDisk, ring_radius
from limpet.reports.formats import score
from limpet.reports.svg import chart, element, line, marker, tick_label

RINGS = (0.8, 0.6, 0.4, 0.2, 0.1, 0.05, 0.01)  # uncertainties
_COLOURS = (0, 1, 2, 3, 4, 6)  # of the page's series: those that differ in light and in dark
_LABEL = 20  # pixels above the outermost ring


def disk_plot(name: str, disk: PoincareDisk, *, width: float = 560) -> str:
    """Draw the old embeddings as hollow and the new ones as filled marks, a shape and a colour for every class.

    Shown is the disk up to the first ring of `RINGS` around all marks; where there is none, up to its rim.
    """
    rings = _rings(disk)
    edge = ring_radius(rings[-1])
    centre, scale = (width / 2, width / 2 + _LABEL), (width / 2 - 6) / edge
    parts = [_ring(centre, scale * ring_radius(ring), "rim" if ring == rings[-1] else "ring") for ring in rings]
    x, y = centre
    parts += [line(x - 5, y, x + 5, y, "zero"), line(x, y - 5, x, y + 5, "zero")]
    size = 3.4 if width < 450 else 4.6
    for kind in ("new", "old"):
        for number, group in enumerate(disk.classes):
            parts += [
                _spot(round(x + scale * across, 1), round(y - scale * up, 1), number, kind, size)
                for across, up in (group.old if kind == "old" else group.new).tolist()
            ]
    parts += [_ring_label(centre, scale * ring_radius(ring), ring, outermost=ring == rings[-1]) for ring in rings]
    return chart(width, width + _LABEL, f"Old and new embeddings of {name}", _in_words(disk), parts)


def class_swatch(number: int) -> str:
    """Return the marks of a class for a legend: hollow for the old, filled for the new model."""
    marks = _spot(6.5, 6, number, "old", 4.6) + _spot(19.5, 6, number, "new", 4.6)
    return element("svg", marks, kind="swatch", viewBox="0 0 26 12", aria_hidden="true")


def class_words(group: DiskClass) -> str:
    """Say of a class what the legend does: whether the old model has seen it, and how uncertain both models are."""
    known = {True: " (seen)", False: " (not seen)", None: ""}[group.seen]
    return f"{group.name}{known}: {score(group.old_uncertainty)} → {score(group.new_uncertainty)}"


def _spot(x: float, y: float, number: int, kind: str, size: float) -> str:
    return marker(x, y, number, f"spot {kind} series-{_COLOURS[number % len(_COLOURS)]}", size)


def _rings(disk: PoincareDisk) -> list[float]:
    """Return the rings to draw, inside out; the last is around all marks."""
    largest = max(
        float((places**2).sum(axis=1).max()) ** 0.5 for group in disk.classes for places in (group.old, group.new)
    )
    levels = [*RINGS, 0.0]
    outermost = next((place for place, level in enumerate(levels) if ring_radius(level) >= largest), len(RINGS))
    return levels[: outermost + 1]


def _ring(centre: tuple[float, float], radius: float, kind: str) -> str:
    return element("circle", kind=kind, cx=centre[0], cy=centre[1], r=round(radius, 1))


def _ring_label(centre: tuple[float, float], radius: float, ring: float, *, outermost: bool) -> str:
    words = f"uncertainty {tick_label(ring)}" if outermost else tick_label(ring)
    y = centre[1] - radius + (-7 if outermost else 4)
    return element("text", words, kind="tick halo", x=centre[0], y=round(y, 1), text_anchor="middle")


def _in_words(disk: PoincareDisk) -> str:
    count = sum(len(group.ids) for group in disk.classes)
    listed = "; ".join(map(class_words, disk.classes))
    return f"{count} items of {len(disk.classes)} classes, with their mean uncertainty, old → new. {listed}."
