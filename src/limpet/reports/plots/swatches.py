"""Swatches of legends as SVG, which pages show beside text; they require no chart library."""

from __future__ import annotations

from functools import cache

from limpet.reports.plots.style import (
    BAD,
    CROSS,
    FAINT,
    GOOD,
    INDEPENDENT,
    KINDS,
    OLD,
    ORDER_LOOKS,
    PAPER,
    REFERENCE_LOOKS,
    REVERSE,
    SERIES,
    VARIABLES,
    Dashes,
)
from limpet.reports.readings import DISK_SERIES

__all__ = ["box", "line", "mark", "swatch", "system_swatch"]

_PATHS = (
    "M-1 0A1 1 0 1 0 1 0A1 1 0 1 0 -1 0Z",
    "M-.9 -.9H.9V.9H-.9Z",
    "M0 -1.1L1.05 .8H-1.05Z",
    "M0 -1.25L1.25 0L0 1.25L-1.25 0Z",
    "M0 1.1L1.05 -.8H-1.05Z",
    "M-.4 -1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
)


def swatch(*parts: str) -> str:
    """Return a swatch of 26 x 12 pixels made of SVG parts."""
    return f'<svg class="swatch" viewBox="0 0 26 12" aria-hidden="true">{"".join(parts)}</svg>'


def line(colour: str, dashes: Dashes = None, width: float = 2.2) -> str:
    """Return a line across a swatch."""
    dashed = f' stroke-dasharray="{" ".join(f"{length:g}" for length in dashes)}"' if dashes else ""
    return f'<path d="M0 6H26" fill="none" stroke="{_of(colour)}" stroke-width="{width}"{dashed}/>'


def mark(
    colour: str, shape: int, *, radius: float = 4.6, x: float = 13, hollow: bool = False, edge: str = PAPER
) -> str:
    """Return a mark.

    Args:
        colour: Colour of the mark.
        shape: Index of one of six shapes; larger numbers start again at the first.
        radius: Half width in pixels.
        x: Centre of the mark, in pixels from the left.
        hollow: Whether to draw only the outline, in `colour`.
        edge: Colour of the outline of a filled mark.
    """
    fill, stroke, wide = ("none", colour, 1.6) if hollow else (_of(colour), edge, 1.0)
    look = f'fill="{fill}" stroke="{_of(stroke)}" stroke-width="{wide}" vector-effect="non-scaling-stroke"'
    return f'<path d="{_PATHS[shape % len(_PATHS)]}" {look} transform="translate({x:g} 6) scale({radius:g})"/>'


def box(colour: str, opacity: float = 1.0, *, edge: str = "", dashes: Dashes = None) -> str:
    """Return a bar, with an outline if it has an edge colour."""
    dashed = f' stroke-dasharray="{" ".join(f"{length:g}" for length in dashes)}"' if dashes else ""
    outline = f' stroke="{_of(edge)}" stroke-width="1.4"{dashed}' if edge else ""
    return f'<rect x="1" y="1" width="24" height="10" fill="{_of(colour)}" fill-opacity="{opacity:g}"{outline}/>'


def _of(colour: str) -> str:
    return f"var(--{VARIABLES[colour]})"


_SYSTEMS = {
    "cross": (box(CROSS),),
    "self_new": (box(PAPER, edge=CROSS),),
    "self_old": (box(OLD, 0.14), line(OLD, width=1.8)),
    "self_independent": (box(INDEPENDENT, 0.14), line(INDEPENDENT, (5, 3), 1.8)),
}
_SETS = {
    "self_old": mark(OLD, 1),
    "self_independent": mark(INDEPENDENT, 3),
    "self_new": mark(CROSS, 0, hollow=True),
    "cross": mark(CROSS, 0),
}
_CHANGES = {"fixed": box(GOOD), "broken": box(BAD), "other": box(CROSS, 0.45), "same": box(FAINT)}


@cache
def system_swatch(system: str) -> str:
    """Return the swatch of a system: a bar or a line."""
    return swatch(*_SYSTEMS[system])


@cache
def set_swatch(system: str) -> str:
    """Return the swatch of a system on a test set."""
    return swatch(_SETS[system])


@cache
def kind_swatch(kind: str) -> str:
    """Return the swatch of a kind of candidate or of a reference."""
    if kind in REFERENCE_LOOKS:
        colour, dashes = REFERENCE_LOOKS[kind]
        return swatch(box(colour, 0.14), line(colour, dashes, 1.8))
    colour, shape = KINDS[kind]
    return swatch(line(colour, width=1.8), mark(colour, shape))


@cache
def curve_swatch(number: int) -> str:
    """Return the swatch of an order of a backfill: a line."""
    return swatch(line(*ORDER_LOOKS[number % len(ORDER_LOOKS)]))


@cache
def order_swatch(number: int) -> str:
    """Return the swatch of an order of a backfill: a line with a mark."""
    colour, dashes = ORDER_LOOKS[number % len(ORDER_LOOKS)]
    return swatch(line(colour, dashes), mark(colour, number, radius=3.4, edge=colour))


@cache
def change_swatch(kind: str) -> str:
    """Return the swatch of a change of the first hit."""
    return swatch(_CHANGES[kind])


@cache
def group_swatch(group: str) -> str:
    """Return the swatch of a group of classes in a histogram: an area or an outline."""
    return swatch(line(REVERSE, (5, 3))) if group == "unseen" else swatch(box(CROSS, 0.28, edge=CROSS))


@cache
def class_swatch(number: int) -> str:
    """Return the swatch of a class on the disk: a hollow mark for the old and a filled one for the new model."""
    colour = SERIES[DISK_SERIES[number % len(DISK_SERIES)]]
    return swatch(mark(colour, number, x=6.5, hollow=True), mark(colour, number, x=19.5))
