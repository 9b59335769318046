"""The charts of scores: evaluations in, SVG out.

Every chart is drawn for a width in pixels; a page holds one for desks and one for phones, so that letters keep their
size. Numbers are those of the evaluations; nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.evaluation.results import Evaluation, System
from holdfast.reports.charts.forest import measured
from holdfast.reports.formats import interval, score
from holdfast.reports.svg import Scale, box, chart, line, reaching, shortened, text, whisker, width_of, x_axis
from holdfast.reports.words import MARKS
from holdfast.wording import metric_name

Evaluations = Mapping[str, Evaluation]

_ROW, _TOP, _BOTTOM = 66, 44, 44
_BARS: tuple[tuple[System, int], ...] = (("cross", 24), ("self_new", 40))
_REFERENCES: tuple[tuple[System, str], ...] = (("self_old", "old"), ("self_independent", "independent"))
_GUTTER = 58


def score_bars(evaluations: Evaluations, *, width: float = 640) -> str:
    """Draw cross-test and self-test of every new model against the old and the independent model.

    Lines are the self-tests of the old and the independent model, bands and whiskers their intervals. The scale
    begins at zero.
    """
    rows = measured(evaluations)
    metric = _metric(rows)
    highest = max(
        (end for record in rows.values() for system in _systems(record) for end in _ends(record, system)), default=0.0
    )
    x = reaching(0.0, highest or 1.0, 0.5, width - _GUTTER)
    height = _TOP + _ROW * len(rows) + _BOTTOM
    parts = [x_axis(x, _TOP, height - _BOTTOM, f"{metric_name(metric)} (1 is perfect; longer is better)")]
    for place, (name, record) in enumerate(rows.items()):
        parts += _bar_row(x, _TOP + _ROW * place, name, record, width)
    parts += _reference_labels(x, rows, width - _GUTTER)
    return chart(width, height, f"Scores in {metric_name(metric)}", _bars_in_words(rows), parts)


def _bar_row(x: Scale, top: float, name: str, record: Evaluation, width: float) -> list[str]:
    parts = []
    for system, _ in _REFERENCES:
        if system in _systems(record):
            low, high = (x(end) for end in _ends(record, system))
            parts.append(box(low, top, high - low, _ROW, f"band {system}"))
    for system, down in _BARS:
        if system not in _systems(record):
            continue
        found, (low, high) = record.score(system) or 0.0, _ends(record, system)
        note = f"{score(found)} {interval((low, high))}"
        parts.append(box(x(0), top + down, x(found) - x(0), 13, f"bar {system}", note))
        parts.append(whisker(x(low), x(high), top + down + 6.5))
        parts.append(text(width, top + down + 11, score(found), "number", "end"))
    for system, _ in _REFERENCES:
        if system in _systems(record):
            at = x(record.score(system) or 0.0)
            parts.append(line(at, top, at, top + _ROW, f"reference {system}"))
    return [*parts, text(0, top + 16, f"{shortened(name, width - 40)} {MARKS[record.verdict]}", "name")]


def _reference_labels(x: Scale, rows: Evaluations, width: float) -> list[str]:
    labels: list[str] = []
    taken = 0.0
    for system, name in _REFERENCES:
        values = {record.score(system) for record in rows.values()} - {None}
        if not values:
            continue
        words = f"{name} {score(next(iter(values)))}" if len(values) == 1 else name
        half = width_of(words) / 2
        at = min(max(x(max(found or 0.0 for found in values)), half), width - half)
        labels.append(text(at, 16 if labels and at - half < taken else 36, words, f"reference-name {system}", "middle"))
        taken = at + half
    return labels


def _metric(rows: Evaluations) -> str:
    return next(iter(rows.values())).gate_metric


def _systems(record: Evaluation) -> list[System]:
    """Return the systems of the chart that have a score."""
    systems = (*(system for system, _ in _BARS), *(system for system, _ in _REFERENCES))
    return [system for system in systems if record.score(system) is not None]


def _ends(record: Evaluation, system: System) -> tuple[float, float]:
    """Return the interval of a score, or the score twice where it has none."""
    found = record.score(system) or 0.0
    low, high = record.score_interval(system) or (None, None)
    return found if low is None else low, found if high is None else high


def _bars_in_words(rows: Evaluations) -> str:
    names: dict[System, str] = {
        "cross": "cross-test",
        "self_new": "self-test",
        "self_old": "old model",
        "self_independent": "independent model",
    }
    return " ".join(
        f"{name}: "
        + ", ".join(
            f"{words} {score(record.score(system))} {interval(_ends(record, system))}"
            for system, words in names.items()
            if system in _systems(record)
        )
        + "."
        for name, record in rows.items()
    )
