"""Forest plots: one row per item compared, with marks, their intervals, and a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import altair as alt

from limpet.reports.formats import interval, score, signed
from limpet.reports.plots.frame import Frame, Range, as_it_is, layer_of, noted
from limpet.reports.plots.style import (
    BAD,
    CROSS,
    HAIR,
    INDEPENDENT,
    INK,
    KINDS,
    OLD,
    PAPER,
    REFERENCE_LOOKS,
    SOFT,
    VERDICTS,
    area_of,
    cut,
    round_ticks,
    shape_of,
    shortened,
    width_of,
)
from limpet.reports.readings import REFERENCES
from limpet.reports.words import SHAPES, SYSTEMS, measured, with_interval
from limpet.support.wording import metric_name

if TYPE_CHECKING:
    from limpet.evaluation.results import Evaluation, System
    from limpet.evaluation.test_sets import SetScores
    from limpet.linking.compare import CandidateScores
    from limpet.linking.results import AdaptResults

__all__ = ["Level", "Mark", "Row", "forest"]

Layers = list[alt.Chart | None]

_BOTTOM = 44.0  # pixels below the rows, for the axis
_NAME = 16.0  # pixels from the top of a row to the baseline of a name above its mark


@dataclass(frozen=True)
class Mark:
    """One mark of a row.

    Args:
        value: Position on the scale.
        ends: Interval of the value, if it has one.
        colour: Colour of mark and interval.
        shape: Index into `style.SHAPES`; see `style.shape_of`.
        radius: Half width in pixels.
        line: Width of the line of the interval, in pixels.
        hollow: Whether the mark is filled with the colour of the page.
        note: Text that appears under the pointer.
        kind: Kind of the mark, in the data of the chart.
    """

    value: float
    ends: Range | None = None
    colour: str = INK
    shape: int = 0
    radius: float = 6.0
    line: float = 1.3
    hollow: bool = False
    note: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Row:
    """One row.

    Args:
        name: Name on the left of the marks, or above them.
        marks: Marks of the row. The last one is on top, and decides whether the row is off the scale.
        number: Text on the right.
        below: Small text below the number.
        detail: Small text below a name on the left, or on the right of a name above.
        dots: Single values, drawn behind the marks.
        instead: Text that replaces missing marks.
        tint: Background colour of a highlighted row.
    """

    name: str
    marks: Sequence[Mark] = ()
    number: str = ""
    below: str = ""
    detail: str = ""
    dots: Sequence[float] = ()
    instead: str = ""
    tint: str | None = None


@dataclass(frozen=True)
class Level:
    """A reference value for all rows: a line, with the band of its interval and its name above.

    Args:
        name: Text above the line.
        value: Position on the scale.
        colour: Colour of line, band and name.
        ends: Interval of the value, if it has one.
        dashes: Lengths of dashes and gaps in pixels; None draws a solid line.
        kind: Kind of the level, in the names of its layers.
    """

    name: str
    value: float
    colour: str
    ends: Range | None = None
    dashes: tuple[float, ...] | None = None
    kind: str = ""


def forest(
    title: str,
    told: str,
    rows: Sequence[Row],
    limits: Range,
    axis: str,
    *,
    width: float,
    step: float,
    head: float,
    names: float = 0.0,
    numbers: float = 12.0,
    about: int = 0,
    levels: Sequence[Level] = (),
    zero: bool = False,
    joined: bool = False,
    letters: float = 13.0,
    above: Sequence[tuple[str, float, bool]] = (),
) -> alt.LayerChart:
    """Draw rows of marks with their intervals; a row whose mark is off the scale gets a note at the edge.

    Args:
        title: Title of the chart, for its text alternative.
        told: All numbers in words, for the text alternative.
        rows: Rows from top to bottom.
        limits: Smallest range of the scale.
        axis: Text below the axis.
        width: Width in pixels.
        step: Height of a row.
        head: Height above the rows.
        names: Pixels to the left for names; 0 writes them above the marks.
        numbers: Pixels to the right for numbers.
        about: Approximate number of ticks; 0 chooses it from the width.
        levels: Reference levels for the rows.
        zero: Whether to draw a line at 0, with "worse" on its left and "better than old" on its right.
        joined: Whether a line connects the marks of a row.
        letters: Font size of names in pixels.
        above: Texts above the rows, each with pixels from the top and whether it is bold.
    """
    left, count = names or 10.0, len(rows)
    ticks = round_ticks(*limits, about or max(3, min(6, int((width - left - numbers) / 70))))
    low, high = ticks[0], ticks[-1]
    frame = Frame(
        width, head + step * count + _BOTTOM, (left, head, numbers, _BOTTOM), (low, high), (float(count), 0.0)
    )
    middle = 0.5 if names else (_NAME + (step - _NAME) / 2) / step  # vertical position of marks, as a share of a row
    drawn = [(place, row) for place, row in enumerate(rows) if row.marks and low <= row.marks[-1].value <= high]
    held = float(max(1, sum(bool(row.marks) for row in rows)))  # rows without marks are last
    tints = [
        {"x": frame.x_at(-6), "x2": frame.x_at(width + 6), "y": place, "y2": place + 1, "colour": row.tint}
        for place, row in enumerate(rows)
        if row.tint
    ]
    layers: Layers = [frame.axes(ticks, x_title=axis), frame.boxes(tints, "tint", opacity=0.09)]
    for level in levels:
        layers += _level(frame, level, held)
    layers += _zero(frame, head) if zero else []
    layers += _marks(frame, drawn, middle, joined=joined)
    layers += _named(frame, rows, step, middle, names, letters)
    edge, numbers_above = frame.x_at(width), any(row.below for row in rows)
    for best in (False, True):
        written = [
            {"x": edge, "y": place + middle, "text": row.number}
            for place, row in enumerate(rows)
            if bool(row.tint) == best
        ]
        name, dy = "number of the best" if best else "number", -1 if numbers_above else 4.5
        layers.append(frame.text(written, name, align="right", bold=best, dy=dy))
    below = [{"x": edge, "y": place + middle, "text": row.below} for place, row in enumerate(rows)]
    layers.append(frame.text(below, "below", align="right", size=11.5, colour=SOFT, dy=15))
    layers += _without_marks(frame, rows, middle)
    layers += _level_names(frame, levels, head, min(letters, 13.0) if step > 30 else 11.5)
    for words, down, bold in above:
        headline = {"x": frame.x_at(0), "y": frame.y_at(down), "text": cut(words, width)}
        layers.append(
            frame.text(
                [headline], f"headline {down:g}", size=13 if bold else 12, bold=bold, colour=INK if bold else SOFT
            )
        )
    return frame.chart(title, told, layers)


def _marks(frame: Frame, drawn: Sequence[tuple[int, Row]], middle: float, *, joined: bool) -> Layers:
    low, high = frame.x

    def near(value: float) -> float:
        return min(max(value, low), high)

    marks = [
        {
            "x": near(mark.value), "y": place + middle, "low": near(mark.ends[0]) if mark.ends else None,
            "high": near(mark.ends[1]) if mark.ends else None, "colour": mark.colour,
            "fill": PAPER if mark.hollow else mark.colour, "edge": mark.colour if mark.hollow else PAPER,
            "shape": shape_of(mark.shape), "size": area_of(shape_of(mark.shape), mark.radius),
            "line": mark.line, "border": 0.34 * mark.radius if mark.hollow else 1.0,
            "note": mark.note, "kind": mark.kind,
        }
        for place, row in drawn
        for mark in row.marks
    ]  # fmt: skip
    if not marks:
        return []
    across = [
        {"x": near(min(values)), "x2": near(max(values)), "y": place + middle, "y2": place + middle}
        for place, row in drawn
        if joined and (values := [mark.value for mark in row.marks])
    ]
    dots = [{"x": near(value), "y": place + middle} for place, row in drawn for value in row.dots]
    ended = [mark for mark in marks if mark["low"] is not None]
    colour, cap = as_it_is("colour"), {"type": "tick", "orient": "vertical", "size": 9, "thickness": 1.8, "opacity": 1}
    interval = {
        **frame.at("low"),
        "x2": {"field": "high"},
        "color": colour,
        "strokeWidth": as_it_is("line", "quantitative"),
    }
    looks = {
        "fill": as_it_is("fill"),
        "stroke": as_it_is("edge"),
        "shape": as_it_is("shape"),
        "size": as_it_is("size", "quantitative"),
        "strokeWidth": as_it_is("border", "quantitative"),
    }
    return [
        frame.rules(across, "joined", colour=HAIR, width=1.4),
        frame.marks(dots, "seeds", radius=2.4, colour=SOFT, line=0, opacity=0.55),
        layer_of(ended, "intervals", {"type": "rule"}, interval),
        *(layer_of(ended, f"{end} ends", cap, {**frame.at(end), "color": colour}) for end in ("low", "high")),
        layer_of(
            marks, "marks", {"type": "point", "aria": True, "opacity": 1}, {**frame.at(), **noted(marks), **looks}
        ),
    ]


def _without_marks(frame: Frame, rows: Sequence[Row], middle: float) -> Layers:
    low, high = frame.x
    lasts = [(place + middle, row.marks[-1].value) for place, row in enumerate(rows) if row.marks]
    said = [{"x": low, "y": place + middle, "text": row.instead} for place, row in enumerate(rows) if row.instead]
    below = [{"x": low, "y": y, "text": "← off the scale"} for y, value in lasts if value < low]
    beyond = [{"x": high, "y": y, "text": "off the scale →"} for y, value in lasts if value > high]
    return [
        frame.text([*said, *below], "instead", size=12, colour=BAD, dy=4),
        frame.text(beyond, "beyond", size=12, colour=BAD, dy=4, align="right"),
    ]


def _level(frame: Frame, level: Level, held: float) -> Layers:
    (low, high), ends = frame.x, level.ends or (level.value, level.value)
    left, right = (min(max(end, low), high) for end in ends)
    band, line = ({"x": a, "x2": b, "y": 0, "y2": held} for a, b in ((left, right), (level.value, level.value)))
    return [
        frame.boxes([band] if level.ends else [], f"band {level.kind}", colour=level.colour, opacity=0.14),
        frame.rules([line], f"level {level.kind}", colour=level.colour, width=1.8, dashes=level.dashes),
    ]


def _level_names(frame: Frame, levels: Sequence[Level], head: float, size: float) -> Layers:
    found = []
    for place, level in enumerate(levels):
        half = width_of(level.name, size) / 2
        across = min(max(frame.across(level.value), half), frame.width - half)
        row = {"x": frame.x_at(across), "y": frame.y_at(head - 8 - 1.5 * size * place), "text": level.name}
        found.append(frame.text([row], f"name {level.kind}", size=size, colour=level.colour, align="center"))
    return found


def _zero(frame: Frame, head: float) -> Layers:
    less, more, at, y = "← worse", "better than old →", frame.across(0), frame.y_at(head - 10)
    fits = at - 8 - width_of(less, 12) > 0
    left, right = frame.x_at(at - 8), frame.x_at(min(at + 8, frame.width - width_of(more, 12)))
    return [
        frame.rules([{"x": 0, "x2": 0, "y": 0, "y2": frame.y[0]}], "zero"),
        frame.text([{"x": left, "y": y, "text": less * fits}], "worse", size=12, colour=SOFT, align="right"),
        frame.text([{"x": right, "y": y, "text": more}], "better", size=12, colour=SOFT),
    ]


def _named(frame: Frame, rows: Sequence[Row], step: float, middle: float, names: float, letters: float) -> Layers:
    start, end, layers = frame.x_at(0), frame.x_at(frame.width), []
    for bold in (False, True):
        chosen = [(place, row) for place, row in enumerate(rows) if bool(row.tint) == bold]
        kind = f"name{' of the best' * bold}"
        if names:
            written = [
                {
                    "x": start,
                    "y": place + middle - 7 / step * bool(row.detail),
                    "text": cut(row.name, names - 8, letters),
                }
                for place, row in chosen
            ]
            layers.append(frame.text(written, kind, size=letters, bold=bold, dy=4.5))
        else:
            written = [
                {"x": start, "y": place + _NAME / step, "text": shortened(row.name, frame.width - _room(row.detail))}
                for place, row in chosen
            ]
            layers.append(frame.text(written, kind, bold=True))
    details = [
        {"x": start if names else end, "y": place + (middle + 13 / step if names else _NAME / step), "text": row.detail,
         "colour": row.tint or SOFT}
        for place, row in enumerate(rows)
    ]  # fmt: skip
    return [*layers, frame.text(details, "detail", size=11.5, align="left" if names else "right")]


def _room(detail: str) -> float:
    return width_of(detail, 12) + 12 if detail else 0.0


class Gain(NamedTuple):
    """The gain of one comparison.

    Args:
        name: Name of the comparison.
        found: cross - self (old).
        around: Interval of the gain; None without one.
        verdict: Verdict, a key of `words.MARKS`.
    """

    name: str
    found: float
    around: tuple[float | None, float | None] | None
    verdict: str


def difference_plot(evaluations: Mapping[str, Evaluation], *, width: float = 400) -> alt.LayerChart:
    """Draw cross minus self (old) of every new model with its interval, on a scale around zero.

    Models that are not compatible and whose difference would stretch the scale get a note at the edge.
    """
    rows = measured(evaluations)
    gains = [Gain(name, record.gain() or 0.0, record.gain_interval(), record.verdict) for name, record in rows.items()]
    told = " ".join(
        f"{name}: {signed(found)} {interval(around, sign=True)}, {verdict}." for name, found, around, verdict in gains
    )
    metric = metric_name(next(iter(rows.values())).gate_metric)
    title, axis = "Cross-test minus self-test of the old model", f"difference in {metric}"
    drawn = [_gain_row(gain, below=interval(gain.around, sign=True)) for gain in gains]
    return forest(title, told, drawn, _near(gains), axis, width=width, step=66, head=44, numbers=116, zero=True)


def _near(gains: Sequence[Gain]) -> Range:
    """Return the lowest and highest difference to draw, with some space on both sides of zero.

    Differences more than twice as large as any of a model that may be compatible are left out of the range, because
    they would compress the others.
    """
    ends = {gain.name: [end or 0.0 for end in (gain.found, *(gain.around or ()))] for gain in gains}
    usual = [abs(end) for gain in gains if gain.verdict != "not compatible" for end in ends[gain.name]]
    most = 2 * max(usual) if usual else float("inf")
    drawn = [end for found in ends.values() if max(map(abs, found)) <= most for end in found]
    room = 0.4 * max(map(abs, drawn)) or 0.01
    return min(*drawn, -room), max(*drawn, room)


def gain_plot(title: str, gains: Sequence[Gain], axis: str, *, width: float = 640) -> alt.LayerChart:
    """Draw every gain as a mark with its interval, and its number on the right.

    Args:
        title: Title of the chart, for its text alternative.
        gains: Gains from top to bottom.
        axis: Text below the axis.
        width: Width in pixels; names are above the marks if they need more than two fifths of it.
    """
    told = "; ".join(
        f"{name}: {signed(found)} {interval(around, sign=True)}, {verdict}" for name, found, around, verdict in gains
    )
    ends = [end or 0.0 for gain in gains for end in (gain.found, *(gain.around or ()))]
    room = 0.15 * max(map(abs, ends)) or 0.01
    limits, names = (min(*ends, -room), max(*ends, room)), max(width_of(gain.name) for gain in gains) + 12
    above = names > 0.4 * width
    step, names = (44, 0.0) if above else (26, names)
    return forest(
        title, f"{told}.", list(map(_gain_row, gains)), limits, axis,
        width=width, step=step, head=30, names=names, numbers=62, zero=True,
    )  # fmt: skip


def _gain_row(gain: Gain, below: str = "") -> Row:
    low, high = gain.around or (None, None)
    ends = None if low is None or high is None else (low, high)
    note = f"{gain.name}: {signed(gain.found)} {interval(gain.around, sign=True)}"
    colour, radius = VERDICTS.get(gain.verdict, INK), 6 if below else 5
    mark = Mark(gain.found, ends, colour, SHAPES[gain.verdict], radius, 2.2, note=note, kind=gain.verdict)
    return Row(gain.name, [mark], signed(gain.found), below)


_SYSTEM_LOOKS: dict[System, tuple[str, int, bool]] = {  # colour, shape, hollow; the last is on top
    "self_old": (OLD, 1, False),
    "self_independent": (INDEPENDENT, 3, False),
    "self_new": (CROSS, 0, True),
    "cross": (CROSS, 0, False),
}


def sets_plot(sets: Mapping[str, SetScores], *, width: float = 640) -> alt.LayerChart:
    """Draw the self-tests of the old, the independent and the new model, and the cross-test, on every test set."""
    rows = [Row(name, _set_marks(found), detail=metric_name(found.metric)) for name, found in sets.items()]
    told = " ".join(
        f"{name} in {metric_name(found.metric)}: "
        + ", ".join(
            f"{words} {score(found.score(system))}"
            for system, words in SYSTEMS.items()
            if found.score(system) is not None
        )
        + "."
        for name, found in sets.items()
    )
    ends = [end for row in rows for mark in row.marks for end in mark.ends or ()]
    axis, title = "score (further right is better)", "Scores on every test set"
    return forest(title, told, rows, (min(ends), max(ends)), axis, width=width, step=58, head=8, joined=True)


def _set_marks(found: SetScores) -> list[Mark]:
    marks = []
    for system, (colour, shape, hollow) in _SYSTEM_LOOKS.items():
        value = found.score(system)
        if value is not None:
            ends = found.mean_interval.get(system) or (value, value)
            note = f"{SYSTEMS[system]}: {score(value)} {interval(ends)}"
            marks.append(Mark(value, ends, colour, shape, hollow=hollow, note=note, kind=system))
    return marks


def candidate_dots(results: AdaptResults, *, width: float = 640) -> alt.LayerChart:
    """Draw the cross-test of every candidate with its interval, the best first, and both references as levels.

    Failed candidates are last, with the reason. Candidates far below the others get a note at the edge. The recommended
    candidate has a larger mark on a tinted row.
    """
    narrow, metric = width < 480, metric_name(results.protocol.metric)
    references = results.systems.by_name()
    if results.answered:
        asked = "judged queries" if results.protocol.judged is not None else "held-out items"
        axis = f"{metric} on {asked}{'' if narrow else '; further right is better'} →"
    else:
        axis = f"{metric} with re-embedding{'' if narrow else ': provisional agreement, not correctness'} →"
    levels = [
        Level(f"{name} {score(references[system].mean)}", references[system].mean, colour,
              references[system].interval, dashes, system)
        for (system, name), (colour, dashes) in zip(REFERENCES.items(), REFERENCE_LOOKS.values(), strict=True)
    ]  # fmt: skip
    names = 0.0 if narrow else 206.0
    rows = [_candidate(found, width - names - 52, led=found is results.recommended) for found in results.by_score()]
    told = [f"{name}: {with_interval(references[system])}." for system, name in REFERENCES.items()]
    for found in results.by_score():
        cross = found.cross
        told.append(
            f"{found.name} ({found.kind})" + (f": {with_interval(cross)}." if cross else f" failed: {found.failed}")
        )
    return forest(
        f"Candidates by {metric}", " ".join(told), rows, _reach(results), axis,
        width=width, step=50 if narrow else 38, head=44, names=names, numbers=52, levels=levels,
    )  # fmt: skip


def _candidate(found: CandidateScores, room: float, *, led: bool) -> Row:
    colour, shape = KINDS[found.kind]
    if found.cross is None:
        reason = (found.failed or "").partition("\n")[0]  # there is no room for the lines that say what to do
        return Row(found.name, instead=shortened(f"failed: {reason}", room, 12))
    note, radius, line = f"{found.name}: {with_interval(found.cross)}", 8 if led else 6, 3 if led else 1.8
    mark = Mark(found.cross.mean, found.cross.interval, colour, shape, radius, line, note=note, kind=found.kind)
    return Row(found.name, [mark], score(found.cross.mean), detail="recommended" * led, tint=colour if led else None)


def _reach(results: AdaptResults) -> Range:
    """Return the lowest and highest value to draw.

    The usual range holds the references and the best candidate. Candidates below it by more than its size are left out,
    because they would compress the others.
    """
    found = [candidate.cross for candidate in results.by_score() if candidate.cross]
    references = [results.systems.by_name()[system] for system in REFERENCES]
    high = max(mean.interval[1] for mean in (*found, *references))
    usual = min(mean.interval[0] for mean in (*found[:1], *references))
    floor = usual - max(high - usual, 0.01)
    return min([usual, *(mean.interval[0] for mean in found if mean.interval[0] >= floor)]), high
