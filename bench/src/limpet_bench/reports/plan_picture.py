"""The picture of a session plan: which classes give how many images to which session (CVS, Fig. 3).

Classes stand in groups by the session that introduces them, so that a thousand classes need no more room than a
hundred. Colours are those of `STYLE`, which a page puts beside its own style; it needs --paper and --soft.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from limpet.reports.svg import Scale, box, chart, element, line, text, width_of

if TYPE_CHECKING:
    from limpet_bench.sessions.plans import Plan

_TOP, _BOTTOM, _KEY, _GAP = 22.0, 52.0, 24.0, 2.0
_HEAD, _BARS, _FOOT = 20.0, 40.0, 12.0  # of a session: its words, its bars, the space below
_NUMBER = 11.5  # height of the letters of a number
_NARROWEST = 14.0  # of a group, so that its bar shows beside much larger ones
_KEY_TOP = _TOP + 3
_LEAST = 3.0  # height of a bar of few images, so that a hollow one is seen to be hollow

STYLE = """:root{--plan:#003058}
@media (prefers-color-scheme:dark){:root{--plan:#74b5dc}}
.plan-new{fill:var(--plan)}
.plan-old{fill:var(--paper);stroke:var(--plan);stroke-width:1.3}
.plan-known{stroke:var(--soft)}
.plan-later{stroke:var(--soft);stroke-dasharray:1 3}
@media print{.plan-new{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""


@dataclass(frozen=True)
class _Words:
    """How a setup speaks of its groups of classes."""

    own: str
    other: str
    axis: str


_INTRODUCED = _Words("new classes", "earlier classes", "number of classes, by the session that introduces them")
_MAJOR = _Words("major classes", "minor classes", "number of classes, by their major session")


def plan_picture(title: str, plan: Plan, *, width: float = 640) -> str:
    """Draw a plan: a row of bars per session, a bar per group of classes, as high as their images per class.

    A bar is as wide as its share of the classes, so its area is the number of images; a group of very few classes is
    drawn wider, a bar of very few images higher. Filled bars are classes that the session introduces, hollow ones
    earlier classes; in the blurry setup major and minor ones. Numbers are training images per class, on average.

    Args:
        title: Name of the plan.
        plan: What to draw.
        width: Width in pixels; a number that does not fit is left to the note of its bar.
    """
    sizes, images = _groups(plan)
    words = _MAJOR if plan.known_from_start else _INTRODUCED
    edges = _edges(sizes, width)
    height = Scale(0.0, float((images / sizes[:, None]).max()), 0.0, _BARS - _NUMBER - 2)
    parts = [text(0, 14, title, "name"), *_key(plan, words, width)]
    for session in range(plan.sessions):
        top = _TOP + _KEY + session * (_HEAD + _BARS + _FOOT)
        parts.append(text(0, top + 13, _session_words(plan, session, short=width < 480), "label"))
        parts += _bars(plan, session, sizes, images[:, session], edges, height, top + _HEAD + _BARS)
    bottom = _TOP + _KEY + plan.sessions * (_HEAD + _BARS + _FOOT)
    parts += _axis(sizes, edges, bottom, words.axis, width)
    return chart(width, bottom + _BOTTOM - _FOOT, title, _in_words(plan, sizes, images), parts)


def _groups(plan: Plan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many classes every session is the home of (J,), and the images of each group by session (J, J)."""
    used = plan.home >= 0
    sizes = np.bincount(plan.home[used], minlength=plan.sessions)
    images = np.zeros((plan.sessions, plan.sessions), np.int64)
    np.add.at(images, plan.home[used], plan.training_counts[used])
    return sizes, images


def _edges(sizes: NDArray[np.int64], width: float) -> NDArray[np.float64]:
    """Return where the groups begin, and where the last ends (J + 1,): in proportion, but none too narrow."""
    narrowest = min(_NARROWEST, width / len(sizes))
    spare = width - narrowest * len(sizes)
    wide = sizes / sizes.sum() * width - narrowest
    extra = np.maximum(0.0, wide)
    across = narrowest + extra * (spare / extra.sum() if extra.sum() else 0.0)
    edges: NDArray[np.float64] = np.concatenate([[0.0], np.cumsum(across)])
    return edges


def _key(plan: Plan, words: _Words, width: float) -> list[str]:
    """Return what is drawn, each with its meaning, as many as fit beside each other."""
    used, away = plan.home >= 0, plan.home[:, None] != np.arange(plan.sessions)
    shown = [(words.own, box(0.5, _KEY_TOP, 13, 10, "plan-new"))]
    if (plan.training_counts * away)[used].any():
        shown.append((words.other, box(1.15, _KEY_TOP + 0.65, 11.7, 8.7, "plan-old")))
    if not plan.known_from_start:
        shown.append(("not yet known", line(0, _KEY_TOP + 9, 14, _KEY_TOP + 9, "plan-later")))
    parts, left = [], 0.0
    for meaning, mark in shown:
        across = 20 + width_of(meaning, 12)
        if left + across <= width:
            moved = element("g", mark + text(20, _KEY_TOP + 10, meaning, "label"), transform=f"translate({left:g} 0)")
            parts.append(moved)
        left += across + 10
    return parts


def _bars(
    plan: Plan,
    session: int,
    sizes: NDArray[np.int64],
    images: NDArray[np.int64],
    edges: NDArray[np.float64],
    height: Scale,
    base: float,
) -> list[str]:
    parts = []
    for group, (start, stop) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        left, right = round(start + _GAP / 2, 2), round(stop - _GAP / 2, 2)
        known = plan.known_from_start or group <= session
        if images[group]:
            mean = float(images[group] / sizes[group])
            up, number = round(max(height(mean), _LEAST), 2), _number(mean)
            note = f"{_count(sizes[group], 'class')}, {_count(images[group], 'image')}: {number} per class"
            kind = "plan-new" if group == session else "plan-old"
            inset = 0.0 if group == session else 0.65  # half of the line, so that hollow bars are not wider
            parts.append(box(left + inset, base - up, right - left - 2 * inset, up, kind, note))
            if width_of(number, _NUMBER) <= stop - start:
                parts.append(text(round((start + stop) / 2, 2), base - up - 4, number, "small number", "middle"))
        parts.append(line(left, base, right, base, "plan-known" if known else "plan-later"))
    return parts


def _axis(sizes: NDArray[np.int64], edges: NDArray[np.float64], bottom: float, title: str, width: float) -> list[str]:
    """Return under every group how many classes it has, where that fits, and the title below."""
    parts = []
    for size, start, stop in zip(sizes.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if width_of(f"{size:,}", 12) <= stop - start:
            parts.append(text(round((start + stop) / 2, 2), bottom + 5, f"{size:,}", "tick", "middle"))
    return [*parts, text(width / 2, bottom + 25, title, "label", "middle")]


def _session_words(plan: Plan, session: int, *, short: bool = False) -> str:
    images, queries = len(plan.training[session]), len(plan.queries(session))
    if short:
        return f"session {session + 1}: {images:,} images, {queries:,} queries"
    shown, so_far = int((plan.training_counts[:, session] > 0).sum()), "" if plan.known_from_start else " so far"
    trained = f"session {session + 1}: {_count(images, 'image')} of {_count(shown, 'class')}"
    return f"{trained}, {queries:,} validation {'query' if queries == 1 else 'queries'}{so_far}"


def _in_words(plan: Plan, sizes: NDArray[np.int64], images: NDArray[np.int64]) -> str:
    told = []
    for session in range(plan.sessions):
        given = (
            f"{_number(float(images[group, session] / sizes[group]))} of each of "
            f"{_count(sizes[group], 'class')} of session {group + 1}"
            for group in np.flatnonzero(images[:, session]).tolist()
        )
        told.append(f"{_session_words(plan, session).capitalize()}: {', '.join(given)}.")
    return "Training images per class, by session. " + " ".join(told)


def _count(number: int, what: str) -> str:
    plural = "classes" if what == "class" else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"


def _number(mean: float) -> str:
    """Write a mean: whole from ten on or where it is whole, with one digit below.

    >>> _number(399.4), _number(9.0), _number(1.25)
    ('399', '9', '1.2')
    """
    return f"{mean:,.0f}" if mean >= 9.95 or abs(mean - round(mean)) < 0.05 else f"{mean:.1f}"
