"""What learning in sessions costs: growing galleries, images and seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from limpet.reports.charts.canvas import (
    CROSS,
    HAIR,
    PAPER,
    REVERSE,
    SOFT,
    Chart,
    swatch,
)
from limpet.reports.charts.lines import tick_step
from limpet.reports.svg import shortened, width_of

if TYPE_CHECKING:
    from limpet_bench.sessions.results import LearnerResults

Range = tuple[float, float]
Place = tuple[float, float, float, float]  # left, lower edge, width and height, in values of the axes


KINDS = {
    "new": "embedded in this session, for the first time",
    "kept": "embedded in an earlier session and left alone; the number says in which",
    "again": "embedded in an earlier session, and again in this one",
}


class Growth(NamedTuple):
    """How the gallery of some learners grows.

    Args:
        names: The learners.
        gallery: Images in the gallery after every session.
        embedded: Images embedded at the end of every session.
        again: How many images were embedded although an earlier session had.
    """

    names: tuple[str, ...]
    gallery: tuple[int, ...]
    embedded: tuple[int, ...]
    again: int

    def layers(self, session: int) -> list[tuple[str, int, int]]:
        """Return what the gallery consists of after a session, from 0, oldest first.

        Every layer is a kind of `KINDS`, the session that embedded it, from 0, and its images.
        """
        before = self.gallery[session - 1] if session else 0
        fresh = self.gallery[session] - before
        if self.embedded[session] > fresh:
            return [("again", session, before), ("new", session, fresh)]
        parts = [0, *self.gallery[: session + 1]]
        sizes = [after - earlier for earlier, after in pairwise(parts)]
        return [("kept" if place < session else "new", place, size) for place, size in enumerate(sizes)]


def growths(learners: Mapping[str, LearnerResults]) -> list[Growth]:
    """Return how galleries grow, learners whose gallery grows alike together, the least embedded again first."""
    alike: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    for name, learner in learners.items():
        gallery = tuple(session.gallery_rows for session in learner.sessions)
        embedded = tuple(session.embedded_rows for session in learner.sessions)
        alike.setdefault((gallery, embedded), []).append(name)
    found = [Growth(tuple(names), *key, learners[names[0]].embedded_again) for key, names in alike.items()]
    return sorted(found, key=lambda growth: growth.again)


def growth_plot(growth: Growth, most: int, *, width: float = 520) -> Chart:
    """Draw the gallery after every session as a column of layers, a layer per session that embedded it.

    Args:
        growth: What to draw.
        most: The largest gallery, so that drawings beside each other share one scale.
        width: Width in pixels; numbers that do not fit are left to the notes of their layers.
    """
    count = len(growth.gallery)
    told = "; ".join(
        f"after session {session} {rows:,} images, {embedded:,} of them embedded in it"
        for session, (rows, embedded) in enumerate(zip(growth.gallery, growth.embedded, strict=True), start=1)
    )
    title = f"Growth of the gallery of {', '.join(growth.names)}"
    told = f"{told.capitalize()}. Embedded again in all: {growth.again:,}."
    chart = Chart(title, told, (width, 252), (0, 20, 0, 42), (0.5, count + 0.5), (0.0, float(most or 1)))
    span = width / count
    step, across = tick_step(count, span), min(0.68 * span, 84.0) / span
    sessions = list(range(1, count + 1))
    labels = ["" if (n - 1) % step else str(n) for n in sessions]
    chart.x_axis(sessions, "images in the gallery after session", labels=labels, grid=False)
    chart.line(chart.x, [0, 0], HAIR, label="base", behind=True)
    for session, rows in enumerate(growth.gallery, start=1):
        layers = growth.layers(session - 1)
        below, pixels = 0, chart.down(0) - chart.down(1)
        inset = (0.9 / (chart.at(2) - chart.at(1)), 0.9 / pixels)
        for kind, embedded_in, size in layers:
            note = f"session {session}: {size:,} images {KINDS[kind].partition(';')[0]}"
            note += f" ({embedded_in + 1})" if kind == "kept" else ""
            if size:
                _layer(chart, kind, (session - across / 2, below, across, size), inset, note)
            if kind == "kept" and size * pixels >= 13:
                number = str(embedded_in + 1)
                chart.write(
                    session, below + size / 2, number, shift=(0, -4), size=11.5, align="center", label="layer name"
                )
            below += size
        half = width_of(f"{rows:,}", 12) / 2
        if 2 * half <= span - 4 or session == count:
            right = min(chart.at(session), width - half)
            chart.write(right, rows, f"{rows:,}", across="page", shift=(0, 6), size=12, colour=SOFT, align="center")
    return chart


def _layer(chart: Chart, kind: str, place: Place, inset: Range = (0.5, 0.5), note: str = "") -> None:
    """Draw a layer; the line around what was embedded again lies inside."""
    if kind == "again":
        (x, y, width, height), (right, up) = place, inset
        inside = (x + right, y + up, width - 2 * right, max(0.0, height - 2 * up))
        chart.box(*inside, PAPER, edge=REVERSE, line=1.8, dashes=(5, 2.5), note=note, label=kind)
    else:
        chart.box(*place, CROSS, alpha=0.28 if kind == "kept" else 1.0, edge=PAPER, line=1.0, note=note, label=kind)


@cache
def layer_swatch(kind: str) -> str:
    """Return the look of a layer, for a legend."""
    return swatch(lambda chart: _layer(chart, kind, (1, 1, 24, 10)))


def cost_columns(
    title: str,
    costs: Mapping[str, Sequence[Range]],
    kinds: tuple[str, str],
    form: Callable[[float], str],
    *,
    width: float = 520,
) -> Chart:
    """Draw what every session cost: a row per learner, a column per session, in two parts above each other.

    Args:
        title: What is counted.
        costs: For every learner both parts of every session; all columns share one scale.
        kinds: Names of the filled and of the hollow part.
        form: Writes a number.
        width: Width in pixels.
    """
    totals = {name: form(sum(map(sum, found))) for name, found in costs.items()}
    told = "; ".join(
        f"{name}: {', '.join(f'{form(filled)} + {form(hollow)}' for filled, hollow in found)}; in all {totals[name]}"
        for name, found in costs.items()
    )
    count, most = len(next(iter(costs.values()))), max(sum(both) for found in costs.values() for both in found)
    left = min(max(width_of(name, 12.5) for name in costs), 0.3 * width) + 10
    right = max(width_of(words, 12) for words in (*totals.values(), "in all")) + 10
    unit = 96 / (most or 1.0)  # pixels of a cost
    bases, base = {}, 4.0
    for name, found in costs.items():
        base += 14 + max(16.0, unit * max(map(sum, found)))
        bases[name] = base
    said, size = f"By session, {kinds[0]} + {kinds[1]}. {told}.", (width, base + 44)
    chart = Chart(title, said, size, (left, 18, right, 44), (0.5, count + 0.5))
    span = chart.inner / count
    step, across = tick_step(count, span), min(0.62 * span, 34.0) / span
    sessions = list(range(1, count + 1))
    chart.x_ticks(sessions, ["" if (n - 1) % step else str(n) for n in sessions], grid=False)
    words = f"session; the highest column is {form(most)}"
    half = width_of(words, 12) / 2
    middle = min(max(left + chart.inner / 2, half), width - half)
    chart.write(middle, base + 36, words, across="page", size=12, colour=SOFT, align="center")
    chart.write(width, 12, "in all", across="page", size=12, colour=SOFT, align="right")
    for name, found in costs.items():
        base = bases[name]
        chart.write(0, base - 2, shortened(name, left - 10, 12.5), across="page", size=12.5, label="name")
        chart.write(width, base - 2, totals[name], across="page", size=12, colour=SOFT, align="right")
        chart.line(chart.x, [base, base], HAIR, label="base", behind=True)
        for session, (filled, hollow) in enumerate(found, start=1):
            note = f"{name}, session {session}: {form(filled)} {kinds[0]}, {form(hollow)} {kinds[1]}"
            chart.box(session - across / 2, base, across, -unit * filled, CROSS, note=note, label="filled")
            if unit * hollow > 1.4:
                x, wide = session - across / 2 + 0.7 / span, across - 1.4 / span
                place = (x, base - unit * filled - 0.7, wide, 1.4 - unit * hollow)
                chart.box(*place, PAPER, edge=CROSS, line=1.4, note=note, label="hollow")
    return chart


def images_of(learner: LearnerResults) -> list[Range]:
    """Return for every session the images that went through training steps, and those only embedded."""
    return [(session.trained_images, session.encoded_images) for session in learner.sessions]


def seconds_by_session(learner: LearnerResults) -> list[Range]:
    """Return for every session the seconds of training, and of everything else."""
    return [(session.seconds.training, session.seconds.rest) for session in learner.sessions]
