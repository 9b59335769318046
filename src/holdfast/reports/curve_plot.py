"""The chart of an upgrade: quality over the share of the gallery that is re-embedded."""

from __future__ import annotations

from holdfast.reports.formats import metric_name, score
from holdfast.reports.plots import Evaluations, measured
from holdfast.reports.svg import Scale, chart, line, path, reaching, text, x_axis, y_axis
from holdfast.reports.tables import value
from holdfast.reports.words import Record
from holdfast.wording import whole_percent

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
        if record["upgrade_curve"]
        for number in (*_references(record).values(), *(v for values in _curves(record).values() for v in values))
        if number is not None
    ]
    return (min(found), max(found)) if found else None


def curve_plot(
    name: str, record: Record, limits: tuple[float, float], *, width: float = 340, height: float = 250
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
    if not record["upgrade_curve"]:
        return None
    x = Scale(0.0, 1.0, _LEFT, width - _RIGHT)
    y = reaching(*limits, height - _BOTTOM, _TOP, 4)
    metric = metric_name(record["upgrade_curve"]["metric"])
    parts = [
        x_axis(x, _TOP, y.start, "share of the gallery re-embedded", 4, share=True),
        y_axis(y, _LEFT, x.stop, metric),
    ]
    parts += _reference_lines(record, x, y)
    for order, values in _curves(record).items():
        points = [(x(s), y(v)) for s, v in zip(_shares(record), values, strict=True) if v is not None]
        parts.append(path(points, f"curve {order}"))
    return chart(width, height, f"Upgrade curve of {name}", _in_words(record, metric), parts)


def _reference_lines(record: Record, x: Scale, y: Scale) -> list[str]:
    """Draw both references, each named at the end where the curves are away from it, on the side where they are not."""
    parts = []
    for (words, found), (at, anchor) in zip(
        _references(record).items(), ((x.stop, "end"), (x.start, "start")), strict=True
    ):
        if found is not None:
            parts.append(line(x.start, y(found), x.stop, y(found), "reference level"))
            inset, near = (-4, -1) if anchor == "end" else (4, 0)
            ends = [values[near] for values in _curves(record).values()]
            above = any(end is not None and end >= found for end in ends)
            down = 14 if above and y(found) + 16 < y.start else -5
            parts.append(text(at + inset, y(found) + down, f"{words} {score(found)}", "small halo", anchor))
    return parts


def _references(record: Record) -> dict[str, float | None]:
    metric = record["upgrade_curve"]["metric"]
    return {"old": value(record["self_old"], metric), "all re-embedded": value(record["self_new"], metric)}


def _curves(record: Record) -> dict[str, list[float | None]]:
    values = record["upgrade_curve"]["values"]
    return {order: values[order] for order in ORDERS if order in values}


def _shares(record: Record) -> list[float]:
    shares: list[float] = record["upgrade_curve"]["shares"]
    return shares


def _in_words(record: Record, metric: str) -> str:
    shares, areas = _shares(record), record["upgrade_curve"]["area"]
    references = ", ".join(f"{words} {score(found)}" for words, found in _references(record).items())
    curves = "; ".join(
        f"{ORDERS[order]}: from {score(values[0])} at {whole_percent(shares[0])} to {score(values[-1])} at "
        f"{whole_percent(shares[-1])} re-embedded, mean {score(areas.get(order))}"
        for order, values in _curves(record).items()
    )
    return f"{metric}. {references}. {curves}."
