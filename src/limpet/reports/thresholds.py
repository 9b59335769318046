"""New score thresholds in tables and words."""

from __future__ import annotations

from limpet.evaluation.thresholds import NewThreshold, Thresholds
from limpet.reports.formats import interval, score
from limpet.reports.markdown import Table
from limpet.reports.plots.style import inner_ticks

_ROWS = 10  # about how many are read off a table


def round_thresholds(found: Thresholds) -> list[NewThreshold]:
    """Return the new thresholds for round old thresholds, within the range of the table."""
    low, high = found.rows[0].old, found.rows[-1].old
    return [found.at(at) for at in inner_ticks(low, high, _ROWS) if low <= at <= high]


def threshold_words(thresholds: Thresholds) -> str:
    """Describe what new thresholds preserve, and the data behind them."""
    kept = "as many items pass for a query on average" if thresholds.kept == "number" else (
        "the items that pass are as often right. Intervals of “right after” are for as many other queries"
    )  # fmt: skip
    return f"With a new threshold, {kept}. Measured with {thresholds.queries:,} queries."


def threshold_rows(thresholds: Thresholds) -> Table:
    """Return columns and rows of round old thresholds and the new ones that replace them."""
    rows = [
        [f"{row.old:g}".replace("-", "−"), f"{score(row.new)} {interval(row.interval)}",
         f"{row.passing_before:.3g} → {row.passing_after:.3g}",
         *([] if row.precision is None else [
             score(row.precision_before), f"{score(row.precision)} {interval(row.precision_interval)}"])]
        for row in round_thresholds(thresholds)
    ]  # fmt: skip
    right = [] if thresholds.kept == "number" else ["right before", "right after"]
    return ["old threshold", "new threshold", "items that pass", *right], rows
