"""Bar charts: scores and agreement with their intervals, changes per class, and changes of first hits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt

from limpet.reports.formats import interval, percent, percent_of, score, signed
from limpet.reports.plots.frame import Align, Frame, Range
from limpet.reports.plots.lines import SHARES
from limpet.reports.plots.style import (
    BAD,
    CROSS,
    FAINT,
    GOOD,
    INDEPENDENT,
    INK,
    OLD,
    PAPER,
    PER_CENT,
    Dashes,
    round_ticks,
    shortened,
    width_of,
)
from limpet.reports.readings import CHANGES, NAMED, STAGES, changes_of, classes_at, measures, share_of, stage
from limpet.reports.words import MARKS, measured
from limpet.support.wording import metric_name

if TYPE_CHECKING:
    from limpet.evaluation.agreement import Agreement
    from limpet.evaluation.class_change import ClassChangeSummary
    from limpet.evaluation.results import Evaluation, System
    from limpet.galleries.rehearsal.results import Rehearsal

Layers = list[alt.Chart | None]


class Bar(NamedTuple):
    """One bar.

    Args:
        down: Pixels from the top of the axes to the bar.
        value: Value at the end of the bar.
        around: Interval of the value.
        number: The value as text.
        filled: Whether the bar is filled.
    """

    down: float
    value: float
    around: Range
    number: str
    filled: bool


def _bars(frame: Frame, names: Mapping[float, str], bars: Sequence[Bar], high: float) -> Layers:
    """Draw bars below the names of their groups, with their intervals, and with their numbers on the right.

    Args:
        frame: Axes of the chart.
        names: Name of each group, by pixels from the top.
        bars: The bars.
        high: Height of a bar in pixels.
    """
    layers: Layers = []
    for filled in (True, False):
        rows = [
            {
                "x": 0,
                "x2": bar.value,
                "y": bar.down,
                "y2": bar.down + high,
                "note": f"{bar.number} {interval(bar.around)}",
            }
            for bar in bars
            if bar.filled == filled
        ]
        edge, line = (None, 0.0) if filled else (CROSS, 1.4)
        layers.append(
            frame.boxes(
                rows, "bars" if filled else "hollow bars", colour=CROSS if filled else PAPER, edge=edge, line=line
            )
        )
    whiskers = [{"x": bar.around[0], "x2": bar.around[1], "y": bar.down + high / 2} for bar in bars]
    ends = [
        {"x": end, "x2": end, "y": bar.down + high / 2 - 3.5, "y2": bar.down + high / 2 + 3.5}
        for bar in bars
        for end in bar.around
    ]
    numbers = [{"x": frame.x_at(frame.width), "y": bar.down + high - 2.5, "text": bar.number} for bar in bars]
    start = frame.x_at(0)
    return [
        *layers,
        frame.rules([{**row, "y2": row["y"]} for row in whiskers], "intervals", colour=INK, width=1.3),
        frame.rules(ends, "ends", colour=INK, width=1.3),
        frame.text(numbers, "number", align="right"),
        frame.text([{"x": start, "y": down, "text": words} for down, words in names.items()], "name", bold=True),
    ]


# --- scores and agreement --------------------------------------------------------------------------------------------

_SCORES: tuple[System, ...] = ("cross", "self_new")
_REFERENCES: dict[System, tuple[str, str, Dashes]] = {
    "self_old": ("old", OLD, None),
    "self_independent": ("independent", INDEPENDENT, (5, 3)),
}
_SYSTEM_NAMES = {
    "cross": "cross-test",
    "self_new": "self-test",
    "self_old": "old model",
    "self_independent": "independent model",
}
_HEAD, _STEP = 44.0, 66.0


def score_bars(evaluations: Mapping[str, Evaluation], *, width: float = 640) -> alt.LayerChart:
    """Draw cross-test and self-test of every new model against the old and the independent model.

    Lines show the self-tests of the old and the independent model. Bands and whiskers show intervals. The scale begins
    at zero.
    """
    rows = measured(evaluations)
    metric = metric_name(next(iter(rows.values())).gate_metric)
    found = {name: _with_ends(record) for name, record in rows.items()}
    highest = max((end for systems in found.values() for _, ends in systems.values() for end in ends), default=0.0)
    ticks = round_ticks(0.0, highest or 1.0)
    told = " ".join(
        f"{name}: "
        + ", ".join(
            f"{words} {score(systems[system][0])} {interval(systems[system][1])}"
            for system, words in _SYSTEM_NAMES.items()
            if system in systems
        )
        + "."
        for name, systems in found.items()
    )
    inner = _STEP * len(rows)
    frame = Frame(width, _HEAD + inner + 44, (0.5, _HEAD, 58, 44), (0.0, ticks[-1]), (inner, 0.0))
    layers: Layers = [frame.axes(ticks, x_title=f"{metric} (1 is perfect; longer is better)")]
    for system, (_, colour, dashes) in _REFERENCES.items():
        bands, lines = [], []
        for place, systems in enumerate(found.values()):
            if system in systems:
                value, (low, high) = systems[system]
                span = {"y": _STEP * place, "y2": _STEP * (place + 1)}
                bands.append({"x": low, "x2": high, **span})
                lines.append({"x": value, "x2": value, **span})
        layers.append(frame.boxes(bands, f"band {system}", colour=colour, opacity=0.14))
        layers.append(frame.rules(lines, f"level {system}", colour=colour, width=1.8, dashes=dashes))
    bars = [
        Bar(_STEP * place + 24 + 17 * row, *systems[system], score(systems[system][0]), system == "cross")
        for place, systems in enumerate(found.values())
        for row, system in enumerate(system for system in _SCORES if system in systems)
    ]
    names = {
        _STEP * place + 16: f"{shortened(name, width - 40)} {MARKS[rows[name].verdict]}"
        for place, name in enumerate(found)
    }
    layers += [*_bars(frame, names, bars, 13), *_reference_names(frame, list(found.values()))]
    return frame.chart(f"Scores in {metric}", told, layers)


def _with_ends(record: Evaluation) -> dict[str, tuple[float, Range]]:
    found: dict[str, tuple[float, Range]] = {}
    for system in (*_SCORES, *_REFERENCES):
        value, (low, high) = record.score(system), record.score_interval(system) or (None, None)
        if value is not None:
            found[system] = value, (value if low is None else low, value if high is None else high)
    return found


def _reference_names(frame: Frame, rows: Sequence[Mapping[str, tuple[float, Range]]]) -> Layers:
    taken, right, layers = 0.0, frame.room[0] + frame.inner[0], []
    for system, (name, colour, _) in _REFERENCES.items():
        values = {row[system][0] for row in rows if system in row}
        if values:
            words = f"{name} {score(max(values))}" if len(values) == 1 else name
            half = width_of(words) / 2
            at = min(max(frame.across(max(values)), half), right - half)
            row = {"x": frame.x_at(at), "y": frame.y_at(16 if at - half < taken else 36), "text": words}
            layers.append(frame.text([row], f"name {system}", colour=colour, align="center"))
            taken = at + half
    return layers


def agreement_bars(name: str, agreement: Agreement, *, width: float = 640) -> alt.LayerChart:
    """Draw the agreement of results with today's results, after the swap and after re-embedding.

    The scale reaches from 0 (nothing in common) to 1 (no change). Agreement does not say which results are correct.
    """
    words = measures(agreement)
    told = "; ".join(
        f"{label}: "
        + ", ".join(f"{after} {percent(share_of(agreement, stage, measure)[0])}" for stage, after in STAGES.items())
        for measure, label in words.items()
    )
    inner = 74.0 * len(words)
    frame = Frame(width, 52 + inner, (0.5, 8, 70, 44), (0.0, 1.0), (inner, 0.0))
    bars = []
    for place, measure in enumerate(words):
        for row, after in enumerate(STAGES):
            share, around = share_of(agreement, after, measure)
            bars.append(Bar(74 * place + 24 + 19 * row, share, around, percent(share), after == "cross"))
    names = {74.0 * place + 16: label for place, label in enumerate(words.values())}
    layers = [frame.axes(SHARES, x_words=PER_CENT), *_bars(frame, names, bars, 15)]
    return frame.chart(f"Agreement of {name} with today’s results", f"{told}.", layers)


# --- classes ---------------------------------------------------------------------------------------------------------


def class_plot(
    name: str, change: ClassChangeSummary, limits: Range, *, width: float = 640, height: float = 300
) -> alt.LayerChart:
    """Draw one bar per class in ascending order of change; for more than 201 classes, one bar per quantile."""
    ticks, title = round_ticks(*limits), f"Change per class of {name}"
    told = (
        f"{percent(change.better)} of {change.classes:,} classes score more, {percent(change.same)} the same, "
        f"{percent(change.worse)} less."
    )
    for end in ("worst", "best"):
        named = ", ".join(f"{one.name} {signed(one.change)}" for one in classes_at(change, end)[:NAMED])
        told += f" {end.capitalize()}: {named}." if named else ""
    frame = Frame(width, height, (50, 46, 18, 46), (0.0, 1.0), (ticks[0], ticks[-1]))
    step = 1 / len(change.curve)
    pixels = step * frame.inner[0]
    gap = min(2.0, 0.2 * pixels) / frame.inner[0] if pixels > 3 else 0.0
    bars = [
        {"x": step * place, "x2": step * (place + 1) - gap, "y": 0.0, "y2": value, "colour": BAD if value < 0 else GOOD}
        for place, value in enumerate(change.curve)
        if value
    ]
    layers: Layers = [
        frame.axes(
            SHARES, ticks, x_title=f"share of the {change.classes:,} classes",
            y_title=f"change in {metric_name(change.metric)} of a class", x_words=PER_CENT,
        ),
        frame.boxes(bars, "classes"),
        frame.rules([{"x": 0, "x2": 1, "y": 0, "y2": 0}], "zero"),
    ]  # fmt: skip
    sides: tuple[tuple[float, str, str, float, Align], ...] = (
        (change.worse, "less", BAD, 0.0, "left"),
        (change.better, "more", GOOD, width - 18, "right"),
    )
    for share, words, colour, at, align in sides:  # labels above all bars
        row = {"x": frame.x_at(at), "y": frame.y_at(34), "text": f"{percent(share)} score {words}" if share else ""}
        layers.append(frame.text([row], words, size=12, colour=colour, bold=True, align=align))
    return frame.chart(title, told, layers)


# --- first hits ------------------------------------------------------------------------------------------------------

_CHANGE_LOOKS = {
    "fixed": (GOOD, 1.0, PAPER),
    "broken": (BAD, 1.0, PAPER),
    "other": (CROSS, 0.45, INK),
    "same": (FAINT, 1.0, INK),
}


def first_hit_bars(results: Rehearsal, *, width: float = 640) -> alt.LayerChart:
    """Draw the shares of queries by the change of their first hit compared with today, at every stage."""
    rows = [(stage(found.share), changes_of(found, results.judged / results.asked)) for found in results.first_hits]
    names = 0.0 if width < 500 else max(width_of(name) for name, _ in rows) + 12
    step, high, head = (42.0 if names else 60.0), 24.0, (1.0 if names else 19.0)
    told = " ".join(
        f"{name}: " + ", ".join(f"{percent_of(share)} {CHANGES[kind]}" for kind, share in changes.items()) + "."
        for name, changes in rows
    )
    inner = step * (len(rows) - 1) + high
    frame = Frame(width, head + inner + 1, (names + 0.5, head, 0.5, 1), (0.0, 1.0), (inner, 0.0))
    boxes: dict[str, list[dict[str, Any]]] = {kind: [] for kind in CHANGES}
    numbers: dict[str, list[dict[str, Any]]] = {kind: [] for kind in CHANGES}
    for place, (_, changes) in enumerate(rows):
        top, start = step * place, 0.0
        for kind, share in changes.items():
            words = percent_of(share)
            span = {"x": start, "x2": start + share, "y": top, "y2": top + high}
            boxes[kind].append({**span, "note": f"{CHANGES[kind]}: {words}"})
            if share * frame.inner[0] > width_of(words, 12) + 4:
                numbers[kind].append({"x": start + share / 2, "y": top + 16.5, "text": words})
            start += share
    start = frame.x_at(0)
    layers: Layers = [frame.axes()]
    for kind, (colour, opacity, ink) in _CHANGE_LOOKS.items():
        layers.append(frame.boxes(boxes[kind], kind, colour=colour, opacity=opacity))
        look: dict[str, Any] = {"size": 12, "colour": ink, "align": "center", "bold": ink == PAPER, "halo": False}
        layers.append(frame.text(numbers[kind], f"share {kind}", **look))
    stages = [
        {"x": start, "y": step * place + (high / 2 + 5 if names else -6), "text": name}
        for place, (name, _) in enumerate(rows)
    ]
    return frame.chart("First hits compared with today", told, [*layers, frame.text(stages, "stage")])
