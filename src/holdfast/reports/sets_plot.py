"""The chart of test sets: old, independent and new self-test and the cross-test of one upgrade, a row per set."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.evaluation.results import System
from holdfast.evaluation.test_sets import SetScores
from holdfast.reports.formats import interval, metric_name, score
from holdfast.reports.svg import Scale, chart, element, line, marker, reaching, shortened, text, whisker, x_axis

Sets = Mapping[str, SetScores]

SYSTEMS: dict[System, str] = {
    "self_old": "old queries, old gallery",
    "cross": "new queries, old gallery: after the swap",
    "self_new": "new queries, new gallery: re-embedded",
    "self_independent": "independent model on its own gallery",
}
_SHAPES: dict[System, int] = {"self_old": 1, "cross": 0, "self_new": 0, "self_independent": 3}
_DRAWN: tuple[System, ...] = ("self_old", "self_independent", "self_new", "cross")
_ROW, _TOP, _BOTTOM = 58, 8, 44

STYLE = """.system.self_old{fill:var(--old)}.system.cross{fill:var(--cross)}
.system.self_new{fill:var(--paper);stroke:var(--cross);stroke-width:.36}
.system.self_independent{fill:var(--independent)}
.whisker.of-self_old{stroke:var(--old)}.whisker.of-cross,.whisker.of-self_new{stroke:var(--cross)}
.whisker.of-self_independent{stroke:var(--independent)}
.span{stroke:var(--hair);stroke-width:1.4}
.chart .gain{font-size:12px;fill:var(--soft)}
"""


def sets_plot(sets: Sets, *, width: float = 640) -> str:
    """Draw the four scores of every test set with their intervals, in its own metric.

    Args:
        sets: Scores by the name of the test set.
        width: Width in pixels.
    """
    ends = [end for found in sets.values() for system in _given(found) for end in _ends(found, system)]
    x = reaching(min(ends), max(ends), 8, width - 12, 6 if width > 500 else 4)
    height = _TOP + _ROW * len(sets) + _BOTTOM
    parts = [x_axis(x, _TOP, height - _BOTTOM, "score (further right is better)", 6 if width > 500 else 4)]
    for place, (name, found) in enumerate(sets.items()):
        parts += _row(x, _TOP + _ROW * place, name, found, width)
    return chart(width, height, "Scores on every test set", _in_words(sets), parts)


def _row(x: Scale, top: float, name: str, found: SetScores, width: float) -> list[str]:
    metric = metric_name(found.metric)
    y, values = top + 40, [found.score(system) or 0.0 for system in _given(found)]
    parts = [
        text(0, top + 16, shortened(name, width - 110), "name"),
        text(width, top + 16, metric, "gain", "end"),
        line(x(min(values)), y, x(max(values)), y, "span"),
    ]
    for system in _DRAWN:
        value = found.score(system)
        if value is None:
            continue
        low, high = _ends(found, system)
        note = f"{SYSTEMS[system]}: {score(value)} {interval((low, high))}"
        parts.append(whisker(x(low), x(high), y, f"whisker of-{system}", 3))
        parts.append(marker(x(value), y, _SHAPES[system], f"system {system}", 6, note))
    return parts


def set_swatch(system: System) -> str:
    """Return the mark of a system for a legend."""
    mark = marker(13, 6, _SHAPES[system], f"system {system}", 5)
    return element("svg", mark, kind="swatch", viewBox="0 0 26 12", aria_hidden="true")


def _given(found: SetScores) -> list[System]:
    return [system for system in SYSTEMS if found.score(system) is not None]


def _ends(found: SetScores, system: System) -> tuple[float, float]:
    value = found.score(system) or 0.0
    return found.mean_interval.get(system) or (value, value)


def _in_words(sets: Sets) -> str:
    return " ".join(
        f"{name} in {metric_name(found.metric)}: "
        + ", ".join(f"{SYSTEMS[system]} {score(found.score(system))}" for system in _given(found))
        + "."
        for name, found in sets.items()
    )
