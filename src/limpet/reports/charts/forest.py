"""Forest plots: a row for everything compared, its marks with their intervals, and its number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from limpet.reports.charts.canvas import (
    BAD,
    CROSS,
    GOOD,
    HAIR,
    INDEPENDENT,
    INK,
    OLD,
    PAPER,
    SOFT,
    VERDICTS,
    Chart,
    round_ticks,
    swatch,
)
from limpet.reports.charts.shapes import Area, Box, Marks
from limpet.reports.formats import interval, score, signed
from limpet.reports.svg import cut, shortened, width_of
from limpet.reports.words import OLD as AS_IT_IS
from limpet.reports.words import REEMBEDDED, SHAPES
from limpet.support.wording import metric_name

if TYPE_CHECKING:
    from limpet.evaluation.results import Evaluation, System
    from limpet.evaluation.test_sets import SetScores
    from limpet.linking.compare import CandidateScores, Score
    from limpet.linking.results import AdaptResults

Ends = tuple[float, float]
Gains = Sequence["Gain"]

_BOTTOM = 44.0  # pixels below the rows, for the axis
_NAME = 16.0  # base of a name that stands above its mark, from the top of the row


@dataclass(frozen=True)
class Mark:
    """One mark of a row.

    Args:
        value: Where it stands.
        ends: Its interval, where it has one.
        colour: Of mark and interval.
        shape: See `canvas.SHAPES`.
        radius: In pixels.
        line: Width of the interval's line.
        fill: Another colour inside.
        note: What appears under a pointer.
        label: What it stands for.
    """

    value: float
    ends: Ends | None = None
    colour: str = INK
    shape: int = 0
    radius: float = 6.0
    line: float = 1.3
    fill: str | None = None
    note: str = ""
    label: str = ""


@dataclass(frozen=True)
class Row:
    """One row.

    Args:
        name: To the left, or above.
        marks: The last one is on top, and decides whether the row is off the scale.
        number: To the right.
        below: A small line below the number.
        detail: Small words below a name to the left, or to the right of one above.
        dots: Single values, behind the marks.
        instead: What is written where there are no marks.
        tint: Colour of the whole row, for one that stands out.
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
    """A value that all rows are held against: a line, with the band of its interval and its name above."""

    name: str
    value: float
    colour: str
    ends: Ends | None = None
    dashes: tuple[float, ...] | None = None
    label: str = ""


def forest(
    title: str,
    told: str,
    rows: Sequence[Row],
    limits: Ends,
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
) -> Chart:
    """Draw rows of marks with their intervals; marks beyond the scale are arrows at its edge.

    Args:
        title: Of the chart, for its text alternative.
        told: All numbers in words, for the same.
        rows: From top to bottom.
        limits: What the scale reaches at least.
        axis: What is below the axis.
        width: Width in pixels.
        step: Height of a row.
        head: Height above the rows.
        names: Pixels to the left for names; 0 writes them above the marks.
        numbers: Pixels to the right for numbers.
        about: How many ticks; as many as fit when 0.
        levels: What the rows are held against.
        zero: Whether 0 is a line, with worse on its left and better on its right.
        joined: Whether the marks of a row are joined by a line.
        letters: Height of the letters of names.
    """
    left = names or 10.0
    ticks = round_ticks(*limits, about or max(3, min(6, int((width - left - numbers) / 70))))
    low, high = ticks[0], ticks[-1]
    size = (width, head + step * len(rows) + _BOTTOM)
    chart = Chart(title, told, size, (left, head, numbers, _BOTTOM), (low, high))
    chart.x_axis(ticks, axis)
    drawn = [row for row in rows if row.marks and low <= row.marks[-1].value <= high]
    if names:
        spans = [(head, head + step * max(1, len([row for row in rows if row.marks])))]
    else:  # names stand on the way, and nothing is drawn behind them
        spans = [
            (head + step * place + _NAME + 6, head + step * (place + 1))
            for place, row in enumerate(rows)
            if row in drawn
        ]
    _levels(chart, levels, spans, head, min(letters, 13.0) if step > 30 else 11.5)
    if zero:
        _zero(chart, head)
    for place, row in enumerate(rows):
        top = head + step * place
        y = top + (step / 2 if names else _NAME + (step - _NAME) / 2)
        _names(chart, row, top, y, names, letters)
        if row.number:
            chart.write(
                width,
                y - 1 if row.below else y + 4.5,
                row.number,
                across="page",
                align="right",
                bold=bool(row.tint),
                label="number",
            )
        if row.below:
            chart.write(width, y + 15, row.below, across="page", align="right", size=11.5, colour=SOFT)
        if row.instead:
            chart.write(low, y + 4, row.instead, size=12, colour=BAD, halo=True)
        elif row in drawn:
            _marks(chart, row, y, (low, high), joined=joined)
        elif row.marks:
            below = row.marks[-1].value < low
            words = "◂ off the scale" if below else "off the scale ▸"
            chart.write(
                low if below else high, y + 4, words, size=12, colour=BAD, halo=True, align="left" if below else "right"
            )
        if row.tint:
            (left, _), (right, _) = chart.value(-6, 0), chart.value(width + 6, 0)
            chart.add(Box(left, top, right - left, step, row.tint, zorder=0.5, opacity=0.09))
    return chart


def _levels(chart: Chart, levels: Sequence[Level], spans: Sequence[Ends], head: float, size: float) -> None:
    for place, level in enumerate(levels):
        for top, bottom in spans:
            if level.ends:
                label = f"band {level.label}"
                chart.add(Area([top, bottom], *level.ends, level.colour, 0.14, label, upright=True, clipped=True))
            chart.line(
                [level.value] * 2,
                [top, bottom],
                level.colour,
                1.8,
                level.dashes,
                label=f"level {level.label}",
                behind=True,
            )
        half = width_of(level.name, size) / 2
        inside = min(max(chart.at(level.value), half), chart.width - half)
        chart.write(
            inside,
            head - 8 - 1.5 * size * place,
            level.name,
            across="page",
            size=size,
            colour=level.colour,
            align="center",
        )


def _zero(chart: Chart, head: float) -> None:
    """Draw the line of no difference, and name both of its sides where there is room."""
    chart.line([0, 0], [head, chart.bottom], SOFT, 1.2, label="zero", behind=True)
    less, more, at = "← worse", "better than old →", chart.at(0)
    if at - 8 - width_of(less, 12) > 0:
        chart.write(at - 8, head - 10, less, across="page", size=12, colour=SOFT, align="right")
    chart.write(min(at + 8, chart.width - width_of(more, 12)), head - 10, more, across="page", size=12, colour=SOFT)


def _names(chart: Chart, row: Row, top: float, y: float, names: float, letters: float) -> None:
    """Write the name of a row to the left of its marks or above, and what more is said of it."""
    bold = bool(row.tint)
    if names:
        chart.write(
            0,
            y + 4.5 - 7 * bool(row.detail),
            cut(row.name, names - 8, letters),
            across="page",
            size=letters,
            bold=bold,
            label="name",
        )
        if row.detail:
            chart.write(0, y + 13, row.detail, across="page", size=11.5, colour=row.tint or SOFT)
    else:
        room, base = width_of(row.detail, 12) + 12 if row.detail else 0.0, top + _NAME
        name, colour = shortened(row.name, chart.width - room), row.tint or SOFT
        chart.write(0, base, name, across="page", bold=True, halo=True, label="name")
        if row.detail:
            chart.write(chart.width, base, row.detail, across="page", size=12, colour=colour, align="right", halo=True)


def _marks(chart: Chart, row: Row, y: float, limits: Ends, *, joined: bool) -> None:
    low, high = limits
    if joined:
        values = [mark.value for mark in row.marks]
        chart.line([min(values), max(values)], [y, y], HAIR, 1.4, behind=True)
    if row.dots:
        dots = [min(max(value, low), high) for value in row.dots]
        chart.add(Marks(dots, [y] * len(dots), "o", 4.8, SOFT, SOFT, 0, 0.55, label="dots", zorder=2, clipped=True))
    for mark in row.marks:
        at = min(max(mark.value, low), high)
        if mark.ends:
            ends = (max(mark.ends[0], low), min(mark.ends[1], high))
            chart.whisker(ends, y, mark.colour, mark.line, 4.0, label=f"whisker {mark.label}")
        edge = mark.colour if mark.fill else PAPER
        thick = 0.34 * mark.radius if mark.fill else 1.0
        look = (mark.shape, mark.colour, mark.radius)
        chart.mark(at, y, *look, edge=edge, fill=mark.fill, line=thick, note=mark.note, label=mark.label)


class Gain(NamedTuple):
    """One comparison: cross - self (old), its interval, and the verdict, a key of `words.MARKS`."""

    name: str
    found: float
    around: tuple[float | None, float | None] | None
    verdict: str


def difference_plot(evaluations: Mapping[str, Evaluation], *, width: float = 400) -> Chart:
    """Draw cross minus self (old) of every new model with its interval around zero.

    Differences far beyond those of the models that may be compatible are arrows at the edge, with their number.
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


def measured(evaluations: Mapping[str, Evaluation]) -> dict[str, Evaluation]:
    """Return the evaluations that have scores."""
    return {name: record for name, record in evaluations.items() if record.scored}


def _near(gains: Gains) -> Ends:
    """Return the lowest and highest difference to draw, with zero well inside.

    Those more than twice as far as any that may be compatible would flatten the others, and are left out.
    """
    ends = {gain.name: [end or 0.0 for end in (gain.found, *(gain.around or ()))] for gain in gains}
    usual = [abs(end) for gain in gains if gain.verdict != "not compatible" for end in ends[gain.name]]
    most = 2 * max(usual) if usual else float("inf")
    drawn = [end for found in ends.values() if max(map(abs, found)) <= most for end in found]
    room = 0.4 * max(map(abs, drawn)) or 0.01
    return min(*drawn, -room), max(*drawn, room)


def gain_plot(title: str, gains: Gains, axis: str, *, width: float = 640) -> Chart:
    """Draw every gain as a mark with its interval, and its number to the right.

    Args:
        title: Of the chart, for its text alternative.
        gains: From top to bottom.
        axis: What is below the axis.
        width: Width in pixels; names stand above where they would take more than two fifths of it.
    """
    told = "; ".join(
        f"{name}: {signed(found)} {interval(around, sign=True)}, {verdict}" for name, found, around, verdict in gains
    )
    ends = [end or 0.0 for gain in gains for end in (gain.found, *(gain.around or ()))]
    room = 0.15 * max(map(abs, ends)) or 0.01
    limits, names = (min(*ends, -room), max(*ends, room)), max(width_of(gain.name) for gain in gains) + 12
    above = names > 0.4 * width
    rows = [_gain_row(gain) for gain in gains]
    step, names = (44, 0.0) if above else (26, names)
    return forest(
        title, f"{told}.", rows, limits, axis, width=width, step=step, head=30, names=names, numbers=62, zero=True
    )


def _gain_row(gain: Gain, below: str = "") -> Row:
    low, high = gain.around or (None, None)
    ends = None if low is None or high is None else (low, high)
    note = f"{gain.name}: {signed(gain.found)} {interval(gain.around, sign=True)}"
    colour = VERDICTS.get(gain.verdict, INK)
    mark = Mark(gain.found, ends, colour, SHAPES[gain.verdict], 6 if below else 5, 2.2, note=note, label=gain.verdict)
    return Row(gain.name, [mark], signed(gain.found), below)


SYSTEMS: dict[System, str] = {
    "self_old": "old queries, old gallery",
    "cross": "new queries, old gallery: after the swap",
    "self_new": "new queries, new gallery: re-embedded",
    "self_independent": "independent model on its own gallery",
}
_SYSTEM_LOOKS: dict[System, tuple[str, int, str | None]] = {  # colour, shape and fill; the last is on top
    "self_old": (OLD, 1, None),
    "self_independent": (INDEPENDENT, 3, None),
    "self_new": (CROSS, 0, PAPER),
    "cross": (CROSS, 0, None),
}


def sets_plot(sets: Mapping[str, SetScores], *, width: float = 640) -> Chart:
    """Draw the scores of old, independent and new self-test and of the cross-test on every test set, by its name."""
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
    for system, (colour, shape, fill) in _SYSTEM_LOOKS.items():
        value = found.score(system)
        if value is not None:
            ends = found.mean_interval.get(system) or (value, value)
            note = f"{SYSTEMS[system]}: {score(value)} {interval(ends)}"
            marks.append(Mark(value, ends, colour, shape, fill=fill, note=note, label=system))
    return marks


@cache
def set_swatch(system: System) -> str:
    """Return the mark of a system for a legend."""
    colour, shape, fill = _SYSTEM_LOOKS[system]
    return swatch(lambda chart: chart.mark(13, 6, shape, colour, 5, fill=fill, line=1.6))


KINDS: dict[str, tuple[str, int]] = {"adapter": (CROSS, 0), "head": (INDEPENDENT, 3)}
"""Colours and shapes of the kinds of candidates."""

REFERENCES = {"self_old": AS_IT_IS, "self_new": REEMBEDDED}
REFERENCE_LOOKS: dict[str, tuple[str, tuple[float, ...] | None]] = {"self_old": (OLD, None), "self_new": (GOOD, (7, 3))}


def candidate_dots(results: AdaptResults, *, width: float = 640) -> Chart:
    """Draw cross of every candidate with its interval, the best first, against both references and their intervals.

    What failed stands last, with its reason. Marks far below the others are arrows at the edge. The candidate that is
    recommended has a thicker mark on a tinted row.
    """
    narrow, metric = width < 480, metric_name(results.protocol.metric)
    references = results.systems.by_name()
    if results.answered:
        asked = "judged queries" if results.protocol.judged is not None else "held-out items"
        axis = f"{metric} on {asked}{'' if narrow else '; further right is better'} →"
    else:
        axis = f"{metric} with re-embedding{'' if narrow else ': provisional agreement, not correctness'} →"
    levels = [
        Level(
            f"{name} {score(references[system].mean)}",
            references[system].mean,
            colour,
            references[system].interval,
            dashes,
            system,
        )
        for (system, name), (colour, dashes) in zip(REFERENCES.items(), REFERENCE_LOOKS.values(), strict=True)
    ]
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
        reason = (found.failed or "").partition("\n")[0]  # further lines say what to do, for which there is no room
        return Row(found.name, instead=shortened(f"failed: {reason}", room, 12))
    note, radius, line = f"{found.name}: {with_interval(found.cross)}", 8 if led else 6, 3 if led else 1.8
    mark = Mark(found.cross.mean, found.cross.interval, colour, shape, radius, line, note=note, label=found.kind)
    return Row(found.name, [mark], score(found.cross.mean), detail="recommended" * led, tint=colour if led else None)


def _reach(results: AdaptResults) -> Ends:
    """Return the lowest and highest value to draw.

    Marks further below the references than once what lies between would flatten the others, and are left out.
    """
    found = [candidate.cross for candidate in results.by_score() if candidate.cross]
    references = [results.systems.by_name()[system] for system in REFERENCES]
    high = max(mean.interval[1] for mean in (*found, *references))
    usual = min(mean.interval[0] for mean in (*found[:1], *references))
    floor = usual - max(high - usual, 0.01)
    return min([usual, *(mean.interval[0] for mean in found if mean.interval[0] >= floor)]), high


def with_interval(mean: Score) -> str:
    """Write a mean with its interval."""
    return f"{score(mean.mean)} {interval(mean.interval)}"


@cache
def kind_swatch(kind: str) -> str:
    """Return the mark of a kind of candidate, or the line of a reference, for a legend."""

    def draw(chart: Chart) -> None:
        if kind in REFERENCE_LOOKS:
            colour, dashes = REFERENCE_LOOKS[kind]
            chart.add(Area([0, 12], 0, 26, colour, 0.14, upright=True))
            chart.line([13, 13], [0, 12], colour, 1.8, dashes)
        else:
            colour, shape = KINDS[kind]
            chart.whisker((1, 25), 6, colour, 1.8)
            chart.mark(13, 6, shape, colour, 5, edge=PAPER)

    return swatch(draw)
