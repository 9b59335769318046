"""The chart of an upgrade: quality over the share of the gallery that is re-embedded."""

from __future__ import annotations

from holdfast.evaluation.results import Evaluation
from holdfast.evaluation.upgrade import UpgradeCurves
from holdfast.reports.charts.forest import measured
from holdfast.reports.formats import score
from holdfast.reports.plots import Evaluations
from holdfast.reports.svg import Scale, chart, line, path, reaching, text, x_axis, y_axis
from holdfast.wording import metric_name, whole_percent

References = dict[str, float | None]

ORDERS = {
    "random": "random order",
    "margin": "least certain items first",
    "margin_reversed": "most certain items first",
}

_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 18, 30, 46


def curve_range(evaluations: Evaluations) -> tuple[float, float] | None:
    """Return the lowest and highest value of all upgrade curves with their references; None without any curve."""
    found = [
        number
        for record in measured(evaluations).values()
        if (curves := record.upgrade_curve)
        for number in (
            *_references(record, curves).values(),
            *(v for values in _orders(curves).values() for v in values),
        )
        if number is not None
    ]
    return (min(found), max(found)) if found else None


def curve_plot(
    name: str, record: Evaluation, limits: tuple[float, float], *, width: float = 340, height: float = 250
) -> str | None:
    """Draw the upgrade curves of one new model in all orders, between its old and its full quality.

    Args:
        name: The model.
        record: Its evaluation.
        limits: What `curve_range` returned, so that panels of several models share one scale.
        width: Width in pixels.
        height: Height in pixels.

    Returns:
        None where no curve was measured.
    """
    curves = record.upgrade_curve
    if not curves:
        return None
    x = Scale(0.0, 1.0, _LEFT, width - _RIGHT)
    y = reaching(*limits, height - _BOTTOM, _TOP, 4)
    metric = metric_name(curves.metric)
    parts = [
        x_axis(x, _TOP, y.start, "share of the gallery re-embedded", 4, share=True),
        y_axis(y, _LEFT, x.stop, metric),
    ]
    references = _references(record, curves)
    parts += _reference_lines(references, curves, x, y)
    for order, values in _orders(curves).items():
        points = [(x(s), y(v)) for s, v in zip(curves.shares, values, strict=True) if v is not None]
        parts.append(path(points, f"curve {order}"))
    return chart(width, height, f"Upgrade curve of {name}", _in_words(references, curves), parts)


def _reference_lines(references: References, curves: UpgradeCurves, x: Scale, y: Scale) -> list[str]:
    """Draw both references, each named at the end where the curves are away from it, on the side where they are not."""
    parts = []
    for (words, found), (at, anchor) in zip(references.items(), ((x.stop, "end"), (x.start, "start")), strict=True):
        if found is not None:
            parts.append(line(x.start, y(found), x.stop, y(found), "reference level"))
            inset, near = (-4, -1) if anchor == "end" else (4, 0)
            ends = [values[near] for values in _orders(curves).values()]
            above = any(end is not None and end >= found for end in ends)
            down = 14 if above and y(found) + 16 < y.start else -5
            parts.append(text(at + inset, y(found) + down, f"{words} {score(found)}", "small halo", anchor))
    return parts


def _references(record: Evaluation, curves: UpgradeCurves) -> References:
    return {
        "old": record.score("self_old", curves.metric),
        "all re-embedded": record.score("self_new", curves.metric),
    }


def _orders(curves: UpgradeCurves) -> dict[str, list[float | None]]:
    return {order: curves.values[order] for order in ORDERS if order in curves.values}


def _in_words(references: References, curves: UpgradeCurves) -> str:
    shares = curves.shares
    levels = ", ".join(f"{words} {score(found)}" for words, found in references.items())
    told = "; ".join(
        f"{ORDERS[order]}: from {score(values[0])} at {whole_percent(shares[0])} to {score(values[-1])} at "
        f"{whole_percent(shares[-1])} re-embedded, mean {score(curves.area.get(order))}"
        for order, values in _orders(curves).items()
    )
    return f"{metric_name(curves.metric)}. {levels}. {told}."
