"""The charts of what learning in sessions costs: how the gallery grows, and what every session takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from holdfast.continual.results import LearnerResults
from holdfast.reports.charts.lines import tick_step
from holdfast.reports.svg import Scale, box, chart, line, shortened, text, width_of

STYLE = """.layer{stroke:var(--paper)}
.layer.new{fill:var(--cross)}
.layer.kept{fill:var(--cross);fill-opacity:.28}
.layer.again{fill:var(--paper);stroke:var(--reverse);stroke-width:1.8;stroke-dasharray:5 2.5}
.chart .layer-name{font-size:11.5px;fill:var(--ink)}
.base{stroke:var(--hair)}
@media print{.layer{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""

KINDS = {
    "new": "embedded in this session, for the first time",
    "kept": "embedded in an earlier session and left alone; the number says in which",
    "again": "embedded in an earlier session, and again in this one",
}

_TOP, _COLUMNS, _BOTTOM = 20.0, 190.0, 42.0
_HEAD, _APART, _LEAST, _HIGHEST = 18.0, 14.0, 16.0, 96.0  # of the costs: above, between, and the heights of rows
_LETTERS = 12.5  # height of the letters of a name
_IN_ALL, _GALLERY = "in all", "images in the gallery after session"
_NUMBERED = 13.0  # height of the lowest layer with a number
_INSET = 0.9  # half of the line around what is embedded again, so that it is not larger


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


def growth_plot(growth: Growth, most: int, *, width: float = 520) -> str:
    """Draw the gallery after every session as a column of layers, a layer per session that embedded it.

    Args:
        growth: What to draw.
        most: The largest gallery, so that drawings beside each other share one scale.
        width: Width in pixels; numbers that do not fit are left to the notes of their layers.
    """
    count = len(growth.gallery)
    span, base = width / count, _TOP + _COLUMNS
    y = Scale(0.0, float(most or 1), base, _TOP)
    parts = [line(0, base, width, base, "base"), text(width / 2, base + 36, _GALLERY, "label", "middle")]
    step = tick_step(count, span)
    for session, rows in enumerate(growth.gallery):
        centre, wide = round((session + 0.5) * span, 2), width_of(f"{rows:,}", 12)
        parts += _layers(growth.layers(session), session, centre, min(0.68 * span, 84.0), y)
        if wide <= span - 4 or session == count - 1:
            parts.append(text(round(min(centre, width - wide / 2), 2), y(rows) - 6, f"{rows:,}", "tick", "middle"))
        if session % step == 0:
            parts.append(text(centre, base + 17, str(session + 1), "tick", "middle"))
    title = f"Growth of the gallery of {', '.join(growth.names)}"
    return chart(width, base + _BOTTOM, title, _growth_in_words(growth), parts)


def _layers(layers: Sequence[tuple[str, int, int]], session: int, centre: float, across: float, y: Scale) -> list[str]:
    parts, below = [], 0
    left = round(centre - across / 2, 2)
    for kind, embedded_in, size in layers:
        top, bottom = y(below + size), y(below)
        note = f"session {session + 1}: {size:,} images {KINDS[kind].partition(';')[0]}"
        note += f" ({embedded_in + 1})" if kind == "kept" else ""
        inset = _INSET if kind == "again" else 0.0
        high = max(0.0, round(bottom - top - 2 * inset, 2))
        if size:
            parts.append(box(left + inset, top + inset, across - 2 * inset, high, f"layer {kind}", note))
        if kind == "kept" and bottom - top >= _NUMBERED:
            middle = round((top + bottom) / 2 + 4, 2)
            parts.append(text(centre, middle, str(embedded_in + 1), "layer-name", "middle"))
        below += size
    return parts


def _growth_in_words(growth: Growth) -> str:
    told = []
    for session, rows in enumerate(growth.gallery):
        told.append(f"after session {session + 1} {rows:,} images, {growth.embedded[session]:,} of them embedded in it")
    return f"{'; '.join(told)}. Embedded again in all: {growth.again:,}.".capitalize()


def cost_columns(
    title: str,
    costs: Mapping[str, Sequence[tuple[float, float]]],
    kinds: tuple[str, str],
    form: Callable[[float], str],
    *,
    width: float = 520,
) -> str:
    """Draw what every session cost: a row per learner, a column per session, in two parts above each other.

    Args:
        title: What is counted.
        costs: For every learner both parts of every session; all columns share one scale.
        kinds: Names of the filled and of the hollow part.
        form: Writes a number.
        width: Width in pixels.
    """
    totals = {name: form(sum(map(sum, found))) for name, found in costs.items()}
    count = len(next(iter(costs.values())))
    left = min(max(width_of(name, _LETTERS) for name in costs), 0.3 * width) + 10
    right = width - max(width_of(words, 12) for words in (*totals.values(), _IN_ALL)) - 10
    most = max(sum(both) for found in costs.values() for both in found)
    y, span = Scale(0.0, most or 1.0, 0.0, _HIGHEST), (right - left) / count
    parts, base = [text(width, 12, _IN_ALL, "tick", "end")], _HEAD - _APART
    for name, found in costs.items():
        base = round(base + _APART + max(_LEAST, y(max(map(sum, found)))), 2)
        parts.append(text(0, base - 2, shortened(name, left - 10, _LETTERS), "line-name"))
        parts.append(line(left, base, right, base, "base"))
        parts.append(text(width, base - 2, totals[name], "tick", "end"))
        for session, both in enumerate(found):
            note = f"{name}, session {session + 1}: {form(both[0])} {kinds[0]}, {form(both[1])} {kinds[1]}"
            parts += _column(
                left + (session + 0.5) * span, base, min(0.62 * span, 34.0), (y(both[0]), y(both[1])), note
            )
    parts += _cost_axis(left, right, base, count, f"session; the highest column is {form(most)}", width)
    return chart(width, base + 44, title, _costs_in_words(costs, kinds, form, totals), parts)


def _cost_axis(left: float, right: float, base: float, count: int, title: str, width: float) -> list[str]:
    """Return the numbers of sessions, as many as fit, and the title below, within the drawing."""
    span, half = (right - left) / count, width_of(title, 12) / 2
    parts = [text(round(min(max((left + right) / 2, half), width - half), 2), base + 37, title, "label", "middle")]
    for session in range(0, count, tick_step(count, span)):
        parts.append(text(round(left + (session + 0.5) * span, 2), base + 18, str(session + 1), "tick", "middle"))
    return parts


def _column(centre: float, base: float, across: float, heights: tuple[float, float], note: str) -> list[str]:
    """Return a filled part and a hollow one above it."""
    filled, hollow = heights
    left, inset = round(centre - across / 2, 2), 0.7
    parts = [box(left, round(base - filled, 2), across, round(filled, 2), "bar cross", note)]
    if hollow > 2 * inset:
        top, high = round(base - filled - hollow + inset, 2), round(hollow - 2 * inset, 2)
        parts.append(box(left + inset, top, across - 2 * inset, high, "bar self_new", note))
    return parts


def _costs_in_words(
    costs: Mapping[str, Sequence[tuple[float, float]]],
    kinds: tuple[str, str],
    form: Callable[[float], str],
    totals: Mapping[str, str],
) -> str:
    told = []
    for name, found in costs.items():
        sessions = ", ".join(f"{form(filled)} + {form(hollow)}" for filled, hollow in found)
        told.append(f"{name}: {sessions}; in all {totals[name]}")
    return f"By session, {kinds[0]} + {kinds[1]}. {'; '.join(told)}."


def images_of(learner: LearnerResults) -> list[tuple[float, float]]:
    """Return for every session the images that went through training steps, and those only embedded."""
    return [(session.trained_images, session.encoded_images) for session in learner.sessions]


def seconds_by_session(learner: LearnerResults) -> list[tuple[float, float]]:
    """Return for every session the seconds of training, and of everything else."""
    return [(session.seconds.training, session.seconds.rest) for session in learner.sessions]


def count_of(images: float) -> str:
    """Write a number of images.

    >>> count_of(48_210.0), count_of(12_345_678)
    ('48,210', '12.3 million')
    """
    return f"{images:,.0f}" if images < 10_000_000 else f"{images / 1e6:,.1f} million"


def duration(seconds: float) -> str:
    """Write a time in the unit that suits it, with a space that does not break.

    >>> [duration(seconds).split() for seconds in (0.42, 75, 130, 2_300, 9_000)]
    [['0.4', 's'], ['75', 's'], ['2.2', 'min'], ['38', 'min'], ['2.5', 'h']]
    """
    number, unit = next(
        (seconds / size, unit)
        for size, unit, end in ((1, "s", 100), (60, "min", 5_400), (3_600, "h", math.inf))
        if seconds < end
    )
    return f"{number:.{1 if number < 10 else 0}f}\N{NO-BREAK SPACE}{unit}"
