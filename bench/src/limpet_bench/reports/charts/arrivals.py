"""How classes are spread over the sessions of a plan: a band for every session, with the images of every class."""

from __future__ import annotations

import numpy as np

from limpet.reports.charts.canvas import CROSS, FAINT, HAIR, REVERSE, SOFT, Chart, round_ticks
from limpet.reports.charts.shapes import Steps
from limpet.reports.svg import cut
from limpet_bench.figure_values import Arrivals

_LINE, _LEFT, _RIGHT = 18.0, 26.0, 40.0
_KEYS = ((CROSS, "classes that the session introduces"), (REVERSE, "classes of other sessions"))
_FROM_START = ((CROSS, "classes of which the session brings most"), (REVERSE, "classes of other sessions"))


def arrivals_panel(title: str, found: Arrivals, *, width: float = 640) -> Chart:
    """Draw the images that every session (downwards) brings of every class (to the right), all on one scale."""
    images, home = np.array(found.images), np.array(found.home)
    sessions, classes = images.shape
    most = max(1, int(images.max()))
    band = 46.0 if sessions <= 6 else 34.0
    keys = list(_FROM_START if known_from_start(found) else _KEYS)
    keys = keys if others_arrive(found) else keys[:1]
    head = _LINE * bool(found.place) + _LINE * len(keys) + 26
    size = (width, head + sessions * band + 46)
    chart = Chart(f"{title} {found.place}".strip(), _told(found), size, (_LEFT, head, _RIGHT, 46), (0.0, classes),
                  (sessions, 0.0))  # fmt: skip
    ticks = [tick for tick in round_ticks(0, classes, 5) if tick <= classes]
    chart.x_axis(ticks, "class, in the order of their sessions")
    if found.place:
        chart.write(0, chart.height - 14, cut(found.place, width), across="page", up="page", bold=True)
    for row, (colour, words) in enumerate(keys):
        down = _LINE * bool(found.place) + _LINE * row
        x, y = chart.value(0, down + 14)
        end, top = chart.value(18, down + 4)
        chart.box(x, y, end - x, top - y, colour, alpha=0.85)
        chart.write(26, chart.height - down - 14, words, across="page", up="page", size=12, colour=SOFT, label="key")
    chart.write(0, chart.height - head + 10, "session", across="page", up="page", size=12, colour=SOFT)
    chart.write(
        width, chart.height - head + 10, "images", across="page", up="page", size=12, colour=SOFT, align="right"
    )
    room = 0.82  # of a band that the tallest class takes
    for session in range(sessions):
        base = session + 1.0
        own = home == session + 1
        chart.line([0, classes], [base, base], HAIR, 1.0, label="base")
        chart.line([0, classes], [base - room, base - room], FAINT, 1.0, label="top", behind=True)
        for colour, part in ((CROSS, own), (REVERSE, ~own)):
            heights = base - room * np.where(part, images[session], 0) / most
            label = f"session {session + 1}"
            chart.add(Steps(heights.tolist(), range(classes + 1), colour, 0.85, baseline=base, label=label))
        middle = chart.height - chart.down(base - room / 2) - 4
        chart.write(0, middle, str(session + 1), across="page", up="page", size=13, label="session")
        top = chart.height - chart.down(base - room) - 4
        chart.write(width, top, f"{most:,}", across="page", up="page", size=11, colour=SOFT, align="right",
                    label="tick")  # fmt: skip
    return chart


def known_from_start(found: Arrivals) -> bool:
    """Return whether classes arrive before the session that is their home, as in the blurry setup."""
    images, home = np.array(found.images), np.array(found.home)
    return any(bool(row[home > session].any()) for session, row in enumerate(images, start=1))


def others_arrive(found: Arrivals) -> bool:
    """Return whether any session brings images of classes of other sessions."""
    images, home = np.array(found.images), np.array(found.home)
    return any(bool(row[home != session].any()) for session, row in enumerate(images, start=1))


def _told(found: Arrivals) -> str:
    images, home = np.array(found.images), np.array(found.home)
    words = []
    for session, row in enumerate(images, start=1):
        own, other = row[home == session], row[home != session]
        whole = f"Session {session}: {int(row.sum()):,} images"
        told = f"{whole}, {int(own.sum()):,} of {int((own > 0).sum())} classes of its own"
        words.append(told + (f", {int(other.sum()):,} of {int((other > 0).sum())} others." if other.any() else "."))
    return " ".join(words)
