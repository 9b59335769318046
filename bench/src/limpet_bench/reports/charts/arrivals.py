"""Chart of the number of images per class in every session of a plan, with a band per session."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from limpet.reports.plots.frame import Frame
from limpet.reports.plots.style import CROSS, FAINT, HAIR, REVERSE, SOFT, cut, inner_ticks
from limpet_bench.figure_values import Arrivals

_LINE, _LEFT, _RIGHT = 18.0, 26.0, 40.0
_KEYS = ((CROSS, "classes that the session introduces"), (REVERSE, "classes of other sessions"))
_FROM_START = ((CROSS, "classes of which the session brings most"), (REVERSE, "classes of other sessions"))


def arrivals_panel(title: str, found: Arrivals, *, width: float = 640) -> alt.LayerChart:
    """Draw the number of images of every class (to the right) in every session (downwards), all on one scale."""
    images, home = np.array(found.images), np.array(found.home)
    sessions, classes = images.shape
    most = max(1, int(images.max()))
    band = 46.0 if sessions <= 6 else 34.0
    keys = list(_FROM_START if known_from_start(found) else _KEYS)
    keys = keys if others_arrive(found) else keys[:1]
    head = _LINE * bool(found.place) + _LINE * len(keys) + 26
    room = 0.82  # share of a band that the tallest bar takes
    frame = Frame(width, head + sessions * band + 46, (_LEFT, head, _RIGHT, 46), (0.0, classes), (sessions, 0.0))
    start, end = frame.x_at(0), frame.x_at(width)
    small: dict[str, Any] = {"size": 12, "colour": SOFT}
    lefts = [_LINE * bool(found.place) + _LINE * row for row in range(len(keys))]
    layers: list[alt.Chart | None] = [
        frame.axes(inner_ticks(0, classes), x_title="class, in the order of their sessions"),
        frame.text([{"x": start, "y": frame.y_at(14), "text": cut(found.place, width)}], "place", bold=True),
        *(
            frame.boxes(
                [{"x": start, "x2": frame.x_at(18), "y": frame.y_at(down + 4), "y2": frame.y_at(down + 14)}],
                f"sample {row}", colour=colour, opacity=0.85,
            )
            for row, (down, (colour, _)) in enumerate(zip(lefts, keys, strict=True))
        ),
        frame.text(
            [
                {"x": frame.x_at(26), "y": frame.y_at(down + 14), "text": words}
                for down, (_, words) in zip(lefts, keys, strict=True)
            ],
            "key", **small,
        ),
        frame.text([{"x": start, "y": frame.y_at(head - 10), "text": "session"}], "sessions", **small),
        frame.text([{"x": end, "y": frame.y_at(head - 10), "text": "images"}], "images", align="right", **small),
        frame.rules(
            [{"x": 0, "x2": classes, "y": n + 1, "y2": n + 1} for n in range(sessions)], "bases", colour=HAIR, width=1
        ),
        frame.rules(
            [{"x": 0, "x2": classes, "y": n + 1 - room, "y2": n + 1 - room} for n in range(sessions)],
            "tops", colour=FAINT, width=1,
        ),
    ]  # fmt: skip
    for colour, name in ((CROSS, "own"), (REVERSE, "others")):
        bars = [
            {"x": place, "x2": place + 1, "y": session + 1.0, "y2": session + 1.0 - room * int(count) / most}
            for session in range(sessions)
            for place, count in enumerate(images[session])
            if count and (home[place] == session + 1) == (name == "own")
        ]
        layers.append(frame.boxes(bars, name, colour=colour, opacity=0.85))
    names = [{"x": start, "y": n + 1 - room / 2, "text": str(n + 1)} for n in range(sessions)]
    mosts = [{"x": end, "y": n + 1 - room, "text": f"{most:,}"} for n in range(sessions)]
    layers.append(frame.text(names, "session", dy=4))
    layers.append(frame.text(mosts, "most", size=11, colour=SOFT, align="right", dy=4))
    return frame.chart(f"{title} {found.place}".strip(), _told(found), layers)


def known_from_start(found: Arrivals) -> bool:
    """Return whether classes have images before their home session, as in the blurry setup."""
    images, home = np.array(found.images), np.array(found.home)
    return any(bool(row[home > session].any()) for session, row in enumerate(images, start=1))


def others_arrive(found: Arrivals) -> bool:
    """Return whether any session has images of classes of other sessions."""
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
