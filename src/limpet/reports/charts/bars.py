"""Bars and columns: scores and agreement, changes of classes and of first hits, and what learning in sessions costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from limpet.evaluation.agreement import Agreement, MeanAgreement
from limpet.evaluation.results import Evaluation, System
from limpet.reports.charts.canvas import (
    BAD,
    CROSS,
    FAINT,
    GOOD,
    INDEPENDENT,
    INK,
    OLD,
    PAPER,
    SOFT,
    Chart,
    round_ticks,
    swatch,
)
from limpet.reports.charts.forest import measured
from limpet.reports.charts.lines import IN_PER_CENT, SHARES
from limpet.reports.charts.shapes import Align
from limpet.reports.formats import interval, percent, percent_of, score, signed
from limpet.reports.svg import shortened, width_of
from limpet.reports.words import MARKS
from limpet.support.wording import metric_name

if TYPE_CHECKING:
    from limpet.evaluation.class_change import ClassChangeSummary, ClassScore
    from limpet.galleries.rehearsal.results import FirstHitChanges, Rehearsal

Range = tuple[float, float]
Place = tuple[float, float, float, float]  # left, lower edge, width and height, in values of the axes
Evaluations = Mapping[str, Evaluation]


class Bar(NamedTuple):
    """One bar: where it ends, its interval, its number in words, and whether it is filled or hollow."""

    label: str
    value: float
    around: Range
    number: str
    filled: bool


def _bars(chart: Chart, name: str, top: float, bars: Sequence[Bar], high: float) -> None:
    """Draw bars below each other under their name, with their intervals, and their numbers to the right."""
    chart.write(0, top + 16, name, across="page", bold=True, halo=True, label="name")
    for place, bar in enumerate(bars):
        y, note = top + 24 + (high + 4) * place, f"{bar.number} {interval(bar.around)}"
        line = 0.0 if bar.filled else 1.4
        chart.box(
            0, y, bar.value, high, CROSS if bar.filled else PAPER, edge=CROSS, line=line, note=note, label=bar.label
        )
        chart.whisker(bar.around, y + high / 2, label=f"whisker {bar.label}")
        chart.write(chart.width, y + high - 2.5, bar.number, across="page", align="right", label="number")


# --- scores and agreement --------------------------------------------------------------------------------------------

_SCORES: tuple[System, ...] = ("cross", "self_new")
_REFERENCES: dict[System, tuple[str, str, tuple[float, ...] | None]] = {
    "self_old": ("old", OLD, None),
    "self_independent": ("independent", INDEPENDENT, (5, 3)),
}


def score_bars(evaluations: Evaluations, *, width: float = 640) -> Chart:
    """Draw cross-test and self-test of every new model against the old and the independent model.

    Lines are the self-tests of the old and the independent model, bands and whiskers their intervals. The scale
    begins at zero.
    """
    rows = measured(evaluations)
    metric = metric_name(next(iter(rows.values())).gate_metric)
    found = {name: _with_ends(record) for name, record in rows.items()}
    highest = max((end for systems in found.values() for _, ends in systems.values() for end in ends), default=0.0)
    ticks, size = round_ticks(0.0, highest or 1.0), (width, 88.0 + 66 * len(rows))
    names = {
        "cross": "cross-test",
        "self_new": "self-test",
        "self_old": "old model",
        "self_independent": "independent model",
    }
    told = " ".join(
        f"{name}: "
        + ", ".join(
            f"{words} {score(systems[system][0])} {interval(systems[system][1])}"
            for system, words in names.items()
            if system in systems
        )
        + "."
        for name, systems in found.items()
    )
    chart = Chart(f"Scores in {metric}", told, size, (0.5, 44, 58, 44), (0.0, ticks[-1]))
    chart.x_axis(ticks, f"{metric} (1 is perfect; longer is better)")
    for place, (name, systems) in enumerate(found.items()):
        top = 44.0 + 66 * place
        for system, (_, colour, dashes) in _REFERENCES.items():
            if system in systems:
                value, (low, high) = systems[system]
                chart.box(low, top, high - low, 66, colour, alpha=0.14, label=f"band {system}")
                chart.line([value, value], [top, top + 66], colour, 1.8, dashes, label=f"level {system}", behind=True)
        bars = [Bar(s, *systems[s], score(systems[s][0]), s == "cross") for s in _SCORES if s in systems]
        _bars(chart, f"{shortened(name, width - 40)} {MARKS[rows[name].verdict]}", top, bars, 13)
    _reference_names(chart, list(found.values()))
    return chart


def _with_ends(record: Evaluation) -> dict[str, tuple[float, Range]]:
    """Return the score of every system of the chart with its interval, or with itself where it has none."""
    found: dict[str, tuple[float, Range]] = {}
    for system in (*_SCORES, *_REFERENCES):
        value, (low, high) = record.score(system), record.score_interval(system) or (None, None)
        if value is not None:
            found[system] = value, (value if low is None else low, value if high is None else high)
    return found


def _reference_names(chart: Chart, rows: Sequence[Mapping[str, tuple[float, Range]]]) -> None:
    """Name the lines above the first row, the second on a line of its own where it would cover the first."""
    taken, right = 0.0, chart.start + chart.inner
    for system, (name, colour, _) in _REFERENCES.items():
        values = {row[system][0] for row in rows if system in row}
        if values:
            words = f"{name} {score(max(values))}" if len(values) == 1 else name
            half = width_of(words) / 2
            at = min(max(chart.at(max(values)), half), right - half)
            chart.write(at, 16 if at - half < taken else 36, words, across="page", colour=colour, align="center")
            taken = at + half


Stage = Literal["cross", "self_new"]
STAGES: dict[Stage, str] = {"cross": "after the swap", "self_new": "re-embedded"}


def agreements(evaluations: Evaluations) -> dict[str, Agreement]:
    """Return the agreement of every evaluation that has one for both stages."""
    found = {name: record.agreement for name, record in evaluations.items()}
    return {name: agreement for name, agreement in found.items() if isinstance(agreement, Agreement)}


def measures(agreement: Agreement) -> dict[str, str]:
    """Return what is drawn, by name, in words; each is a share of 0 to 1, where 1 is no change."""
    return {
        "first_kept": "queries whose first hit stays",
        "overlap": f"items of today’s first {agreement.k} that stay",
        "rank_biased_overlap": "the same, the top of the list counting most",
    }


def agreement_bars(name: str, agreement: Agreement, *, width: float = 640) -> Chart:
    """Draw how much of what people find today they would find again, after the swap and after re-embedding.

    From nothing in common to no change at all, without a word on what is right.
    """
    words = measures(agreement)
    told = "; ".join(
        f"{label}: "
        + ", ".join(f"{after} {percent(share_of(agreement, stage, measure)[0])}" for stage, after in STAGES.items())
        for measure, label in words.items()
    )
    title, size = f"Agreement of {name} with today’s results", (width, 52.0 + 74 * len(words))
    chart = Chart(title, f"{told}.", size, (0.5, 8, 70, 44), (0.0, 1.0))
    chart.x_axis(SHARES, "", labels=IN_PER_CENT)
    for place, (measure, label) in enumerate(words.items()):
        bars = []
        for stage in STAGES:
            share, around = share_of(agreement, stage, measure)
            bars.append(Bar(stage, share, around, percent(share), stage == "cross"))
        _bars(chart, label, 8.0 + 74 * place, bars, 15)
    return chart


def share_of(agreement: Agreement, stage: Stage, measure: str) -> tuple[float, Range]:
    """Return the share and its interval, turned round where a record counts changes."""
    turned = measure == "first_kept"
    found: MeanAgreement = getattr(getattr(agreement, stage), "first_changed" if turned else measure)
    low, high = (found.mean if end is None else end for end in found.interval)
    return (1 - found.mean, (1 - high, 1 - low)) if turned else (found.mean, (low, high))


def agreement_rows(agreement: Agreement) -> tuple[list[str], list[list[str]]]:
    """Return all numbers as a table: a row per measure, a column per stage, in per cent with intervals."""
    rows = []
    for measure, label in measures(agreement).items():
        cells = []
        for stage in STAGES:
            share, (low, high) = share_of(agreement, stage, measure)
            cells.append(f"{percent(share)} [{percent(low)}, {percent(high)}]")
        rows.append([label, *cells])
    return ["share that agrees with today", *STAGES.values()], rows


# --- classes ---------------------------------------------------------------------------------------------------------

End = Literal["worst", "best"]
NAMED = 5  # classes at either end that stand beside the chart; the table holds all that the record names


def class_changes(evaluations: Evaluations) -> dict[str, ClassChangeSummary]:
    """Return the change per class of every evaluation that has one."""
    return {name: record.class_change for name, record in evaluations.items() if record.class_change}


def class_range(changes: Mapping[str, ClassChangeSummary]) -> Range:
    """Return the lowest and the highest change of all, zero well among them, so that panels share one scale."""
    found = [value for change in changes.values() for value in (change.curve[0], change.curve[-1])]
    room = 0.15 * (max(0.0, *found) - min(0.0, *found)) or 0.01
    return min(-room, *found), max(room, *found)


def class_plot(
    name: str, change: ClassChangeSummary, limits: Range, *, width: float = 640, height: float = 300
) -> Chart:
    """Draw one bar per class in ascending order of its change; of more than 201 classes one bar per quantile."""
    ticks, title = round_ticks(*limits), f"Change per class of {name}"
    told = (
        f"{percent(change.better)} of {change.classes:,} classes score more, {percent(change.same)} the same, "
        f"{percent(change.worse)} less."
    )
    for end in ("worst", "best"):
        named = ", ".join(f"{one.name} {signed(one.change)}" for one in _at(change, end)[:NAMED])
        told += f" {end.capitalize()}: {named}." if named else ""
    chart = Chart(title, told, (width, height), (50, 46, 18, 46), (0.0, 1.0), (ticks[0], ticks[-1]))
    chart.x_axis(SHARES, f"share of the {change.classes:,} classes", labels=IN_PER_CENT)
    chart.y_axis(ticks, f"change in {metric_name(change.metric)} of a class")
    step = 1 / len(change.curve)
    pixels = step * chart.inner
    gap = min(2.0, 0.2 * pixels) / chart.inner if pixels > 3 else 0.0
    for place, value in enumerate(change.curve):
        if value:
            kind = "worse" if value < 0 else "better"
            chart.box(step * place, 0.0, step - gap, value, BAD if value < 0 else GOOD, label=kind)
    chart.line([0, 1], [0, 0], SOFT, 1.2, label="zero")
    sides: tuple[tuple[float, str, str, float, Align], ...] = (
        (change.worse, "less", BAD, 0.0, "left"),
        (change.better, "more", GOOD, width - 18, "right"),
    )
    for share, words, colour, at, align in sides:  # above all bars
        if share:
            said = f"{percent(share)} score {words}"
            chart.write(at, height - 34, said, across="page", up="page", size=12, colour=colour, bold=True, align=align)
    return chart


def class_rows(change: ClassChangeSummary, end: End, count: int | None = None) -> tuple[list[str], list[list[str]]]:
    """Return the classes at one end as a table.

    Args:
        change: The record.
        end: "worst" or "best".
        count: How many at most; None for all that the record names.
    """
    rows = []
    for one in _at(change, end)[:count]:
        numbers = [f"{one.queries:,}", score(one.before), score(one.after)]
        rows.append([one.name, *numbers, f"{signed(one.change)}{' *' if one.clear else ''}"])
    return ["class", "queries", "before", "after", "change"], rows


def _at(change: ClassChangeSummary, end: End) -> list[ClassScore]:
    return change.worst if end == "worst" else change.best


# --- first hits ------------------------------------------------------------------------------------------------------

CHANGES = {
    "fixed": "wrong before, right now",
    "broken": "right before, wrong now",
    "other": "another first hit",
    "same": "the same first hit",
}
"""What can become of the first hit of a query."""
_CHANGE_LOOKS = {
    "fixed": (GOOD, 1.0, PAPER),
    "broken": (BAD, 1.0, PAPER),
    "other": (CROSS, 0.45, INK),
    "same": (FAINT, 1.0, INK),
}


def changes_of(found: FirstHitChanges, judged: float) -> dict[str, float]:
    """Return which share of all queries each change befell, in the order of `CHANGES`, those that did.

    Args:
        found: How first hits changed.
        judged: Share of the queries of which it is known what is right.

    >>> from limpet.galleries.rehearsal.results import FirstHitChanges
    >>> changes_of(FirstHitChanges(share=1.0, changed=0.5, fixed=0.4, broken=0.2), judged=0.5)
    {'fixed': 0.2, 'broken': 0.1, 'other': 0.2, 'same': 0.5}
    """
    fixed, broken = (found.fixed or 0.0) * judged, (found.broken or 0.0) * judged
    changed = max(found.changed, fixed + broken)  # of tied first items, one may be as likely right as another was
    shares = {"fixed": fixed, "broken": broken, "other": changed - fixed - broken, "same": 1 - changed}
    return {name: round(share, 6) for name, share in shares.items() if share > 1e-9}


def first_hit_bars(results: Rehearsal, *, width: float = 640) -> Chart:
    """Draw which share of the queries finds another item first than today, at every stage."""
    rows = [(stage(found.share), changes_of(found, results.judged / results.asked)) for found in results.first_hits]
    names = 0.0 if width < 500 else max(width_of(name) for name, _ in rows) + 12
    step, high, head = (42.0 if names else 60.0), 24.0, (1.0 if names else 19.0)
    told = " ".join(
        f"{name}: " + ", ".join(f"{percent_of(share)} {CHANGES[kind]}" for kind, share in changes.items()) + "."
        for name, changes in rows
    )
    size = (width, head + step * (len(rows) - 1) + high + 1)
    chart = Chart("First hits compared with today", told, size, (names + 0.5, head, 0.5, 1), (0.0, 1.0))
    for place, (name, changes) in enumerate(rows):
        top, start = head + step * place, 0.0
        chart.write(0, top + (high / 2 + 5 if names else -6), name, across="page", label="stage")
        for kind, share in changes.items():
            (colour, alpha, ink), words = _CHANGE_LOOKS[kind], percent_of(share)
            chart.box(start, top, share, high, colour, alpha=alpha, note=f"{CHANGES[kind]}: {words}", label=kind)
            if share * chart.inner > width_of(words, 12) + 4:
                chart.write(
                    start + share / 2, top + 16.5, words, size=12, colour=ink, align="center", bold=ink == PAPER
                )
            start += share
    return chart


@cache
def change_swatch(kind: str) -> str:
    """Return the colour of a change, for a legend."""
    colour, alpha, _ = _CHANGE_LOOKS[kind]
    return swatch(lambda chart: chart.box(0, 0, 26, 12, colour, alpha=alpha))


def stage(share: float) -> str:
    """Name the moment at which so much is re-embedded.

    >>> stage(0.0), stage(0.5), stage(1.0)
    ('after the swap', 'half way', 'at the end')
    """
    return {0.0: "after the swap", 0.5: "half way", 1.0: "at the end"}.get(share, f"{percent_of(share)} done")
