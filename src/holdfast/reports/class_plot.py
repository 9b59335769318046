"""The chart of what an upgrade does to each class: changes in order, from the largest loss to the largest gain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from holdfast.evaluation.class_change import ClassChangeSummary, ClassScore
from holdfast.reports.formats import percent, score, signed
from holdfast.reports.plots import Evaluations
from holdfast.reports.svg import Scale, box, chart, line, reaching, text, x_axis, y_axis
from holdfast.wording import metric_name

End = Literal["worst", "best"]

NAMED = 5  # classes at either end that stand beside the chart; the table holds all that the record names

_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 18, 46, 46
_ROOM = 0.15  # of the height on either side of zero, which is then seen to lie within


def class_changes(evaluations: Evaluations) -> dict[str, ClassChangeSummary]:
    """Return the change per class of every evaluation that has one."""
    return {name: record.class_change for name, record in evaluations.items() if record.class_change}


def class_range(changes: Mapping[str, ClassChangeSummary]) -> tuple[float, float]:
    """Return the lowest and the highest change of all, zero well among them, so that panels share one scale."""
    found = [value for change in changes.values() for value in (change.curve[0], change.curve[-1])]
    room = _ROOM * (max(0.0, *found) - min(0.0, *found)) or 0.01
    return min(-room, *found), max(room, *found)


def class_plot(
    name: str, change: ClassChangeSummary, limits: tuple[float, float], *, width: float = 640, height: float = 300
) -> str:
    """Draw one bar per class in ascending order of its change; of more than 201 classes one bar per quantile.

    Args:
        name: The new model.
        change: Its record.
        limits: What `class_range` returned.
        width: Width in pixels.
        height: Height in pixels.
    """
    x = Scale(0.0, 1.0, _LEFT, width - _RIGHT)
    y = reaching(*limits, height - _BOTTOM, _TOP, 5)
    parts = [
        x_axis(x, _TOP, y.start, f"share of the {change.classes:,} classes", 4, share=True),
        y_axis(y, _LEFT, x.stop, f"change in {metric_name(change.metric)} of a class"),
        *_bars(change.curve, x, y),
        line(_LEFT, y(0), x.stop, y(0), "zero"),
        *_shares(change, x),
    ]
    return chart(width, height, f"Change per class of {name}", _in_words(change), parts)


def _bars(curve: list[float], x: Scale, y: Scale) -> list[str]:
    step = (x.stop - x.start) / len(curve)
    gap = min(2.0, 0.2 * step) if step > 3 else 0.0
    return [
        box(
            round(x.start + step * place, 2),
            round(min(y(value), y(0)), 2),
            step - gap,
            round(max(abs(y(value) - y(0)), 0.0), 2),
            f"change {'worse' if value < 0 else 'better'}",
        )
        for place, value in enumerate(curve)
        if value
    ]


def _shares(change: ClassChangeSummary, x: Scale) -> list[str]:
    """Write how many classes lie on either side of zero, above all bars: losses on their left, gains on their right."""
    parts = []
    if change.worse:
        parts.append(text(0, _TOP - 12, f"{percent(change.worse)} score less", "change-name worse"))
    if change.better:
        parts.append(text(x.stop, _TOP - 12, f"{percent(change.better)} score more", "change-name better", "end"))
    return parts


def class_rows(change: ClassChangeSummary, end: End, count: int | None = None) -> tuple[list[str], list[list[str]]]:
    """Return the classes at one end as a table.

    Args:
        change: The record.
        end: "worst" or "best".
        count: How many at most; None for all that the record names.
    """
    columns = ["class", "queries", "before", "after", "change"]
    rows = [
        [
            one.name,
            f"{one.queries:,}",
            score(one.before),
            score(one.after),
            f"{signed(one.change)}{' *' if one.clear else ''}",
        ]
        for one in _at(change, end)[:count]
    ]
    return columns, rows


def _at(change: ClassChangeSummary, end: End) -> list[ClassScore]:
    return change.worst if end == "worst" else change.best


def _in_words(change: ClassChangeSummary) -> str:
    def ends(end: End) -> str:
        named = ", ".join(f"{one.name} {signed(one.change)}" for one in _at(change, end)[:NAMED])
        return f" {end.capitalize()}: {named}." if named else ""

    return (
        f"{percent(change.better)} of {change.classes:,} classes score more, {percent(change.same)} the same, "
        f"{percent(change.worse)} less.{ends('worst')}{ends('best')}"
    )
